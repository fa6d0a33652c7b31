// What every tool does when it is told to end, and when a file is cut short under it.
#include "Tool.h"

#include "ir/base/MappedFault.h"
#include "ir/base/MappedFile.h"
#include "ir/base/TemporaryPath.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace fusion;
namespace fs = std::filesystem;

namespace {

class Tool : public testing::Test {
protected:
  Tool() {
    std::string pattern = (fs::temp_directory_path() / "fusion-tool-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~Tool() override { fs::remove_all(folder); }

  /// Runs `work` as a tool in a process of its own, whose stderr goes to a file. The status of waitpid().
  int run(const std::function<Status()> &work) const {
    const pid_t child = fork();
    if (child == 0) {
      if (!std::freopen((folder / "stderr").c_str(), "w", stderr))
        _exit(99);
      _exit(runTool("tool", work));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }
  std::string said() const {
    std::ifstream file(folder / "stderr");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder;
};

/// Also where several threads read it, and nothing half written stays.
TEST_F(Tool, AFileThatIsCutShortIsOneLine) {
  const std::string path = folder / "weights.bin", half = folder / "half";
  std::ofstream(path) << std::string(1 << 16, 'x');
  const int status = run([&]() -> Status {
    auto file = MappedFile::open(path);
    EXPECT_STREQ(mappedFileAt((*file)->bytes().data() + 5), path.c_str());
    EXPECT_EQ(mappedFileAt(&path), nullptr);
    if (truncate(path.c_str(), 100) != 0)
      return environment("truncate");
    const TemporaryPath temporary(half);
    std::ofstream(half) << "x";
    auto sumUp = [&] {
      volatile int sum = 0;
      for (std::byte byte : (*file)->bytes())
        sum = sum + static_cast<int>(byte);
    };
    std::vector<std::thread> others;
    for (int i = 0; i < 8; ++i)
      others.emplace_back(sumUp);
    sumUp();
    for (std::thread &other : others)
      other.join();
    return {};
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(said(), "tool: " + path + ": the file was cut short, or its disk failed, while it was read\n");
  EXPECT_FALSE(fs::exists(half));
}

TEST_F(Tool, AnEndBySignalEndsWhatItStarted) {
  const std::string half = folder / "half", late = folder / "late";
  const std::string script = "echo x > " + half + "-1.tmp; trap 'echo x > " + half +
                             "-2.tmp; exit' TERM; sleep 5 >/dev/null 2>&1 & wait; echo x > " + late;
  const int status = run([&]() -> Status {
    const TemporaryPath temporary(half, TemporaryPath::AndLonger);
    TemporaryProcess shell([&](pid_t &child) {
      const char *words[] = {"sh", "-c", script.c_str(), nullptr};
      posix_spawnattr_t attributes; // a tool's threads block the signal
      sigset_t none;
      sigemptyset(&none);
      posix_spawnattr_init(&attributes);
      posix_spawnattr_setsigmask(&attributes, &none);
      posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
      return posix_spawn(&child, "/bin/sh", nullptr, &attributes, const_cast<char **>(words), environ);
    });
    while (!fs::exists(half + "-1.tmp"))
      usleep(1000);
    kill(getpid(), SIGTERM);
    shell.wait();
    std::ofstream(late) << "x"; // what follows the end of a compiler
    sleep(20);
    return {};
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  std::vector<std::string> left;
  for (const auto &entry : fs::directory_iterator(folder))
    left.push_back(entry.path().filename());
  EXPECT_EQ(left, std::vector<std::string>{"stderr"});
}

TEST_F(Tool, AnEndBySignalLeavesNothingHalfWritten) {
  const std::string half = folder / "half", whole = folder / "whole";
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = run([&]() -> Status {
      const TemporaryPath temporary(half);
      fs::create_directory(half);
      std::ofstream(half + "/part") << "x";
      std::ofstream(whole) << "x";
      kill(getpid(), number);
      sleep(20);
      return {};
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_FALSE(fs::exists(half));
    EXPECT_TRUE(fs::exists(whole));
  }
}

} // namespace
