#include "SamplePlan.h"

#include "runtime/Binding.h"
#include "runtime/collective/Agreement.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

using namespace fusion;
using namespace fusion::test;

namespace {

/// Ranks as threads: gather() waits at a barrier. Counts the bytes that are told.
struct Group {
  explicit Group(int ranks) : parts(static_cast<size_t>(ranks)), barrier(ranks) {}
  std::vector<std::string> parts;
  std::barrier<> barrier;
  std::atomic<size_t> bytes = 0;
};
class Member : public Rendezvous {
public:
  Member(Group &group, int number) : group(group), number(number) {}
  int rank() const override { return number; }
  int ranks() const override { return static_cast<int>(group.parts.size()); }
  Result<std::vector<std::string>> gather(const std::string &bytes) override {
    group.bytes += bytes.size();
    group.parts[static_cast<size_t>(number)] = bytes;
    group.barrier.arrive_and_wait();
    std::vector<std::string> all = group.parts;
    group.barrier.arrive_and_wait();
    return all;
  }
  void abandon(const std::string &) override {}
  Status check() override { return {}; }

private:
  Group &group;
  int number;
};

/// What agree() tells each rank, and how many bytes were told.
std::pair<std::vector<std::string>, size_t> agreeOn(const std::vector<std::string> &texts) {
  Group group(static_cast<int>(texts.size()));
  std::vector<std::string> messages(texts.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    threads.emplace_back([&, rank] {
      Member member(group, static_cast<int>(rank));
      if (Status status = agree(member, texts[rank]); !status) {
        EXPECT_EQ(status.error().kind, ErrorKind::BadInput);
        messages[rank] = status.error().message;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return {messages, group.bytes};
}

std::string described(const ProgramPlan &plan, int64_t rows = 3, int64_t columns = 8, int64_t rank = 0) {
  auto symbols = bindInputs(plan, sampleInputs(rows, columns));
  EXPECT_TRUE(symbols) << symbols.error().message;
  (*symbols)["tp_rank"] = rank;
  auto text = describeRun(plan, *symbols, {"NCCL 2.28.9"});
  EXPECT_TRUE(text) << text.error().message;
  return *text;
}

TEST(Agreement, TheSameTextsTravelAsHashes) {
  const std::string text(1 << 20, 'x');
  auto [messages, bytes] = agreeOn({text, text, text});
  EXPECT_EQ(messages, (std::vector<std::string>{"", "", ""}));
  EXPECT_LT(bytes, 1000u);
}

TEST(Agreement, ADifferenceIsToldAllWithBothLines) {
  auto [messages, bytes] = agreeOn({"a\nb\nc\n", "a\nb\nc\n", "a\nB\nc\n", "a\nb\n"});
  for (const std::string &message : messages)
    EXPECT_EQ(message, "the ranks would not run the same; rank 0: b; rank 2: B");
  EXPECT_EQ(agreeOn({"a\nb\n", "a\n"}).first[1],
            "the ranks would not run the same; rank 0: b; rank 1: nothing");
  EXPECT_EQ(agreeOn({"a", "a\nc"}).first[0], "the ranks would not run the same; rank 0: nothing; rank 1: c");
  EXPECT_LT(agreeOn({std::string(5000, 'x'), ""}).first[0].size(), 400u);
}

TEST(Agreement, OtherShapesAreSeenByTheirInput) {
  const ProgramPlan plan = samplePlan();
  EXPECT_EQ(described(plan), described(plan));
  auto [messages, bytes] = agreeOn({described(plan, 3, 8), described(plan, 4, 8)});
  EXPECT_NE(messages[0].find("rank 0: input x f32 [3, 8]"), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("rank 1: input x f32 [4, 8]"), std::string::npos) << messages[0];
}

TEST(Agreement, OtherKernelsGridsConstantsAndVersionsAreSeen) {
  const ProgramPlan plan = samplePlan();
  const std::string same = described(plan);
  auto differs = [&](const std::function<void(ProgramPlan &)> &change) {
    ProgramPlan other = samplePlan();
    change(other);
    return described(other) != same;
  };
  EXPECT_FALSE(differs([](ProgramPlan &other) { other.report = "{\"measured\": 3.5}"; }));
  EXPECT_TRUE(differs([](ProgramPlan &other) { other.kernels[0].source += " "; }));
  EXPECT_TRUE(differs([](ProgramPlan &other) { other.kernels[0].blockX *= 2; }));
  EXPECT_TRUE(
      differs([](ProgramPlan &other) { onlyLaunch(other, 0).gridX = onlyLaunch(other, 0).gridX + 1; }));
  EXPECT_TRUE(differs([](ProgramPlan &other) { other.steps.pop_back(); }));
  EXPECT_TRUE(differs([](ProgramPlan &other) { other.target = "sm_80"; }));
  for (bool longer : {false, true}) { // where a weight lies may differ, its size may not
    ProgramPlan one = samplePlan();
    for (BufferPlan &buffer : one.buffers)
      if (buffer.kind == BufferPlan::Kind::Weight)
        buffer.contents = FileSpan{"/here/w.bin", 64, 16};
    ProgramPlan two = one;
    for (BufferPlan &buffer : two.buffers)
      if (auto *span = std::get_if<FileSpan>(&buffer.contents))
        *span = {"/there/w.bin", 128, span->length + (longer ? 4u : 0u)};
    EXPECT_EQ(described(one) != described(two), longer);
  }
  EXPECT_NE(same, *describeRun(plan, *bindInputs(plan, sampleInputs(3, 8)), {"NCCL 2.27"}));
}

TEST(Agreement, WhatFollowsFromTheRankMayDiffer) {
  ProgramPlan plan = samplePlan();
  plan.ranks = 2;
  for (KernelLaunch *launch : plan.launches())
    for (KernelArgument &argument : launch->arguments)
      if (auto *scalar = std::get_if<ScalarArgument>(&argument))
        scalar->value = scalar->value + Dim::symbol("tp_rank") * 7;
  EXPECT_EQ(described(plan, 3, 8, 0), described(plan, 3, 8, 1));
}

} // namespace
