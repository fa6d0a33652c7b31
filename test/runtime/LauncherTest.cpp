#include "runtime/collective/Launcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

using namespace fusion;

namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<LaunchedRank>> readFrom(const Variables &set) {
  return launchedRank([&](const char *name) {
    auto found = set.find(name);
    return found == set.end() ? std::string() : found->second;
  });
}

LaunchedRank place(const Variables &set) {
  auto read = readFrom(set);
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  EXPECT_TRUE(!read || read->has_value());
  return read && *read ? **read : LaunchedRank();
}

void expectRefused(const Variables &set, const std::string &part) {
  auto read = readFrom(set);
  ASSERT_FALSE(read) << part;
  EXPECT_EQ(read.error().kind, ErrorKind::BadInput);
  EXPECT_NE(read.error().message.find(part), std::string::npos) << read.error().message;
  EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
}

const Variables torchrun = {{"RANK", "3"},           {"WORLD_SIZE", "8"},         {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

Variables with(Variables set, const Variables &more) {
  for (const auto &[name, value] : more)
    set[name] = value;
  return set;
}

TEST(Launcher, NobodyLaunchedUs) {
  for (const Variables &set :
       {Variables{}, Variables{{"MASTER_ADDR", "x"}, {"MASTER_PORT", "1"}},
        // a batch script outside of srun
        Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}}}) {
    auto read = readFrom(set);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_FALSE(read->has_value());
  }
}

TEST(Launcher, Torchrun) {
  LaunchedRank found = place(torchrun);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.ranks, 8);
  EXPECT_EQ(found.localRank, 1);
  EXPECT_EQ(found.address, "node0");
  EXPECT_EQ(found.ports, std::vector<uint16_t>{29500});
  EXPECT_EQ(found.launcher, "torchrun");
}

TEST(Launcher, ThePortOfTorchrunsStoreIsLeftAlone) {
  LaunchedRank found = place(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(found.ports.size(), 16u);
  EXPECT_EQ(found.ports.front(), 29501);
  found = place(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65530"}}));
  EXPECT_EQ(found.ports[4], 65535);
  EXPECT_EQ(found.ports[5], 1025);
  found = place(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"FUSION_MASTER_PORT", "4000"}}));
  EXPECT_EQ(found.ports, std::vector<uint16_t>{4000});
  found = place(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  EXPECT_EQ(found.ports, std::vector<uint16_t>{29500});
}

TEST(Launcher, LaunchesThatTryTheSamePortsAreToldApart) {
  auto group = [](const char *id) { return place(with(torchrun, {{"TORCHELASTIC_RUN_ID", id}})).group; };
  EXPECT_EQ(group("a"), group("a"));
  EXPECT_NE(group("a"), group("b"));
}

TEST(Launcher, OtherLaunchersAndTheirDefaults) {
  LaunchedRank found = place({{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.ranks, 4);
  EXPECT_EQ(found.localRank, 1);
  EXPECT_EQ(found.address, "127.0.0.1");
  EXPECT_EQ(found.ports.size(), 16u);
  found = place({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}});
  EXPECT_EQ(found.rank, 2);
  found = place({{"SLURM_PROCID", "5"},
                 {"SLURM_STEP_NUM_TASKS", "8"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_STEP_NODELIST", "gpu[07-08,11],other"}});
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.localRank, 1);
  EXPECT_EQ(found.address, "gpu07");
  EXPECT_EQ(
      place({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_NODELIST", "a,b"}}).address,
      "a");
}

TEST(Launcher, TheLocalRankFollowsFromTheRank) {
  EXPECT_EQ(place({{"RANK", "3"}, {"WORLD_SIZE", "4"}}).localRank, 3);
  EXPECT_EQ(
      place({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "x"}}).localRank,
      1);
}

TEST(Launcher, RanksOfOneHostMeetInside) {
  LaunchedRank found =
      place(with(torchrun, {{"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}}));
  EXPECT_TRUE(found.onOneHost);
  EXPECT_EQ(found.address, "127.0.0.1");
  EXPECT_FALSE(place(torchrun).onOneHost);
  EXPECT_TRUE(place(with(torchrun, {{"MASTER_ADDR", "localhost"}})).onOneHost);
  const Variables slurm = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_NODELIST", "a"}};
  EXPECT_FALSE(place(slurm).onOneHost);
  EXPECT_TRUE(place(with(slurm, {{"SLURM_STEP_NUM_NODES", "1"}})).onOneHost);
  EXPECT_EQ(place(with(slurm, {{"SLURM_STEP_NUM_NODES", "1"}})).address, "127.0.0.1");
}

TEST(Launcher, TheSecretIsTheUsers) {
  EXPECT_EQ(place(torchrun).secret, "");
  EXPECT_EQ(place(with(torchrun, {{"FUSION_RENDEZVOUS_SECRET", "abc"}})).secret, "abc");
}

TEST(Launcher, ATorchrunInsideOfAnMpirun) {
  LaunchedRank found =
      place(with(torchrun, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}));
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.ranks, 8);
}

TEST(Launcher, NonsenseIsRefused) {
  expectRefused({{"RANK", "0"}}, "RANK is set, WORLD_SIZE is not");
  expectRefused({{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set, RANK is not");
  for (const char *value : {"x", "-1", "1 ", "1.0", "99999999999999999999", "0x1"})
    expectRefused(with(torchrun, {{"RANK", value}}), fmt::format("RANK={}: not a number", value));
  expectRefused(with(torchrun, {{"RANK", "8"}}), "RANK=8, but WORLD_SIZE=8");
  expectRefused(with(torchrun, {{"LOCAL_RANK", "2"}}), "LOCAL_RANK=2, but LOCAL_WORLD_SIZE=2");
  expectRefused(with(torchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE=9 is more than WORLD_SIZE=8");
  expectRefused(with(torchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT=0");
  expectRefused(with(torchrun, {{"FUSION_MASTER_PORT", "70000"}}), "FUSION_MASTER_PORT=70000");
  expectRefused(with(torchrun, {{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "8"}}),
                "RANK=3, but OMPI_COMM_WORLD_RANK=4");
  expectRefused({{"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                "set MASTER_ADDR");
}

} // namespace
