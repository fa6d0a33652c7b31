// Hash, parallel loops, plain text, progress.
#include "ir/base/Hash.h"
#include "ir/base/Parallel.h"
#include "ir/base/PlainText.h"
#include "ir/base/Progress.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

using namespace fusion;

namespace {

TEST(Hash, IsMurmur3) {
  EXPECT_EQ(contentHash(""), "00000000000000000000000000000000");
  EXPECT_EQ(contentHash("hello"), "cbd8a7b341bd9b025b1e906a48ae1d19");
  EXPECT_EQ(contentHash("The quick brown fox jumps over the lazy dog"), "e34bbc7bbc071b6c7a433ca9c49a9347");
}

TEST(Parallel, VisitsEveryItemOnce) {
  for (int64_t count : {0, 1, 5, 1000, 100003})
    for (int64_t grain : {0, 1, 7, 1000000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      parallelFor(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          ++visits[static_cast<size_t>(i)];
      });
      for (const auto &visit : visits)
        ASSERT_EQ(visit, 1);
    }
}

TEST(Parallel, NestedLoopsRunInline) {
  std::atomic<int64_t> total = 0;
  parallelFor(64, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::thread::id outer = std::this_thread::get_id();
      parallelFor(100, 1, [&](int64_t first, int64_t last) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        total += last - first;
      });
    }
  });
  EXPECT_EQ(total, 6400);
}

TEST(Parallel, SeveralThreadsMayLoopAtOnce) {
  std::atomic<int64_t> total = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round)
        parallelFor(16, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
    });
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_EQ(total, 4 * 500 * 16);
}

TEST(PlainText, IsAComment) {
  EXPECT_EQ(plainText("model.layers.0 (a \"b\" 'c')"), "model.layers.0 (a \"b\" 'c')");
  EXPECT_EQ(plainText("a\nb\rc\td\\"), "a_b_c_d_");
  EXPECT_EQ(plainText(std::string_view("a\0b\x7f", 4)), "a_b_");
  EXPECT_EQ(plainText("\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80."), "___.");
  EXPECT_EQ(plainText("\x80\x80"), "_"); // no UTF-8
  EXPECT_EQ(plainText("*/ /* **/ */* ?\?/ ?\?\?\?/"), "*_ /_ **_ *_* ?_/ ?_?_/");
  EXPECT_EQ(plainText("12345", 5), "12345");
  EXPECT_EQ(plainText("123456", 5), "12...");
  EXPECT_EQ(plainText(std::string(100000, 'x')).size(), 200u);
}

TEST(PlainText, MessagesAreOneLineOfUtf8) {
  EXPECT_EQ(oneLine("\xc3\xa9: \xe2\x80\xa6 \xf0\x9f\x98\x80"), "\xc3\xa9: \xe2\x80\xa6 \xf0\x9f\x98\x80");
  EXPECT_EQ(oneLine("a\nb\tc\x7f"), "a b c ");
  EXPECT_EQ(oneLine("\xff\xc3(\xe2\x80"), "??(??");
  for (const char *wrong : {"\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                            "\xf4\x90\x80\x80", "\xf8", "\x80"})
    EXPECT_FALSE(isUtf8(wrong)) << wrong;
  EXPECT_TRUE(isUtf8("\xf4\x8f\xbf\xbf\xed\x9f\xbf"));
  std::string large;
  for (int i = 0; i < 10000; ++i)
    large += "\xe2\x80\xa6";
  const std::string cut = oneLine(large);
  EXPECT_TRUE(isUtf8(cut));
  EXPECT_LT(cut.size(), 3000u);
}

TEST(PlainText, StaysAsItIs) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string plain = plainText(std::string{char(first), char(second)});
      EXPECT_TRUE(isPlainText(plain)) << plain;
      EXPECT_EQ(plainText(plain), plain);
    }
  for (const char *text : {"a\nb", "\\", "*/", "/*", "?\?/", "\x80"})
    EXPECT_FALSE(isPlainText(text)) << text;
}

TEST(Progress, OneLineAStepUnlessQuiet) {
  testing::internal::CaptureStderr();
  {
    Progress progress("compiling kernels", 2);
    progress.step("first");
    progress.step("second");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "compiling kernels [1/2] first\ncompiling kernels [2/2] second\n");
  testing::internal::CaptureStderr();
  {
    Progress progress("compiling kernels", 100);
    for (int i = 1; i <= 100; ++i)
      progress.step("kernel");
  }
  const std::string few = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(few.begin(), few.end(), '\n'), 9);
  EXPECT_TRUE(few.starts_with("compiling kernels [1/100] kernel\n")) << few;
  EXPECT_TRUE(few.ends_with("compiling kernels [100/100] kernel\n")) << few;
  testing::internal::CaptureStderr();
  {
    Progress soonDone("compiling kernels", 2, std::chrono::steady_clock::now() + std::chrono::hours(1));
    soonDone.step("first");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  setQuiet(true);
  testing::internal::CaptureStderr();
  Progress("compiling kernels", 0).step("first");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  setQuiet(false);
}

TEST(Progress, ASinkGetsTheStepsInstead) {
  std::vector<std::string> steps;
  setProgressSink([&](std::string_view title, std::string_view name, int64_t done, int64_t total) {
    steps.push_back(std::string(title) + " " + std::string(name) + " " + std::to_string(done) + "/" +
                    std::to_string(total));
  });
  testing::internal::CaptureStderr();
  Progress("compiling kernels", 2, std::chrono::steady_clock::now() + std::chrono::hours(1)).step("first");
  setQuiet(true);
  Progress("compiling kernels", 2).step("unseen");
  setQuiet(false);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(steps, std::vector<std::string>{"compiling kernels first 1/2"});
  setProgressSink(nullptr);
  testing::internal::CaptureStderr();
  Progress("compiling kernels", 1).step("printed");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "compiling kernels [1/1] printed\n");
}

} // namespace
