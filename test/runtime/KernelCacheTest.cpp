#include "SamplePlan.h"

#include "runtime/KernelCache.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sys/wait.h>

using namespace fusion;
using namespace fusion::test;
namespace fs = std::filesystem;

TEST(KernelCache, ReturnsWhatWasStored) {
  TemporaryFolder folder;
  KernelCache cache(folder.path);
  EXPECT_FALSE(cache.get("key"));
  std::string bytes("a\0b\n", 4);
  cache.put("key", bytes);
  EXPECT_EQ(cache.get("key"), bytes);
  EXPECT_FALSE(cache.get("other key"));
  cache.put("key", "");
  EXPECT_EQ(cache.get("key"), "");
  EXPECT_EQ(KernelCache(folder.path).get("key"), "");
}

TEST(KernelCache, ADamagedEntryIsAbsentAndReplaced) {
  TemporaryFolder folder;
  std::vector<std::string> warnings;
  KernelCache cache(folder.path, [&](const std::string &text) { warnings.push_back(text); });
  cache.put("key", std::string(1000, 'x'));
  std::string entry;
  for (const auto &file : fs::recursive_directory_iterator(folder.path))
    if (file.is_regular_file())
      entry = file.path().string();
  std::vector<std::function<void()>> damages = {
      [&] { fs::resize_file(entry, 500); },
      [&] { fs::resize_file(entry, 0); },
      [&] { std::ofstream(entry, std::ios::app) << "more"; },
      [&] { std::fstream(entry, std::ios::in | std::ios::out).seekp(600) << "y"; },
      [&] { std::fstream(entry, std::ios::in | std::ios::out) << "another format"; },
  };
  for (auto &damage : damages) {
    damage();
    warnings.clear();
    EXPECT_FALSE(cache.get("key"));
    EXPECT_FALSE(fs::exists(entry));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find(entry), std::string::npos);
    cache.put("key", std::string(1000, 'x'));
    EXPECT_TRUE(cache.get("key"));
  }
}

TEST(KernelCache, ManyProcessesMayWriteAndReadOneKey) {
  TemporaryFolder folder;
  std::string content(200000, 'k');
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    pid_t child = fork();
    if (child == 0) {
      KernelCache cache(folder.path);
      bool good = true;
      for (int round = 0; round < 30; ++round) {
        cache.put("key", content);
        auto read = cache.get("key");
        good = good && read && *read == content;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(KernelCache(folder.path).get("key"), content);
}

TEST(KernelCache, AKilledWriterLeavesNoBrokenEntry) {
  TemporaryFolder folder;
  KernelCache cache(folder.path);
  for (int round = 0; round < 20; ++round) {
    pid_t child = fork();
    if (child == 0) {
      KernelCache own(folder.path);
      for (int i = 0;; ++i)
        own.put("key", std::string(300000, static_cast<char>('a' + i % 26)));
    }
    usleep(static_cast<useconds_t>(1000 + 700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const auto &file : fs::recursive_directory_iterator(folder.path))
      if (auto read = cache.get("key"))
        EXPECT_EQ(*read, std::string(300000, (*read)[0])) << file.path();
  }
  cache.put("key", "after");
  EXPECT_EQ(cache.get("key"), "after");
}

TEST(KernelCache, AFolderThatCannotBeWrittenIsReportedOnceAndCostsNothingElse) {
  TemporaryFolder folder;
  std::string file = folder.path + "/file"; // permissions do not stop root, a file in the way does
  std::ofstream(file) << "x";
  std::vector<std::string> warnings;
  KernelCache cache(file + "/cache", [&](const std::string &text) { warnings.push_back(text); });
  cache.put("a", "1");
  cache.put("b", "2");
  EXPECT_FALSE(cache.get("a"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find(file + "/cache"), std::string::npos);
  EXPECT_NE(warnings[0].find("FUSION_CACHE_DIR"), std::string::npos);
}

TEST(KernelCache, NoFolderMeansNoCache) {
  KernelCache cache("", [](const std::string &) { ADD_FAILURE(); });
  cache.put("a", "1");
  EXPECT_FALSE(cache.get("a"));
}

TEST(KernelCache, TheFolderComesFromTheEnvironment) {
  auto keep = [](const char *name) {
    return std::pair(std::string(name), std::getenv(name) ? std::getenv(name) : "");
  };
  std::vector<std::pair<std::string, std::string>> saved = {keep("FUSION_CACHE_DIR"), keep("XDG_CACHE_HOME"),
                                                            keep("HOME")};
  setenv("HOME", "/h", 1);
  unsetenv("XDG_CACHE_HOME");
  unsetenv("FUSION_CACHE_DIR");
  EXPECT_EQ(KernelCache::defaultFolder(), "/h/.cache/fusion");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(KernelCache::defaultFolder(), "/x/fusion");
  setenv("FUSION_CACHE_DIR", "/f", 1);
  EXPECT_EQ(KernelCache::defaultFolder(), "/f");
  for (auto &[name, value] : saved)
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
}
