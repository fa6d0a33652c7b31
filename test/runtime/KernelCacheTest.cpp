#include "SamplePlan.h"

#include "runtime/KernelCache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
    if (file.is_regular_file() && file.path().parent_path() != folder.path)
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

static std::vector<std::string> entriesOf(const std::string &folder) {
  std::vector<std::string> entries;
  for (const auto &file : fs::recursive_directory_iterator(folder))
    if (file.is_regular_file() && file.path().parent_path() != folder)
      entries.push_back(file.path().string());
  return entries;
}

TEST(KernelCache, EntriesAreTakenFromTheirPlaceAndTheirFolderOnly) {
  TemporaryFolder folder, other;
  std::vector<std::string> warnings;
  KernelCache cache(folder.path, [&](const std::string &text) { warnings.push_back(text); });
  cache.put("key", "good");
  KernelCache(other.path).put("key", "evil");
  const std::string entry = entriesOf(folder.path).front();
  fs::copy_file(entriesOf(other.path).front(), entry, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(cache.get("key")); // whole, but by another key
  EXPECT_EQ(warnings.size(), 1u);
  cache.put("key", "good");
  cache.put("other", "evil");
  for (const std::string &file : entriesOf(folder.path))
    if (file != entry)
      fs::copy_file(file, entry, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(cache.get("key")); // whole, but another entry
  EXPECT_EQ(warnings.size(), 2u);
  EXPECT_EQ(cache.get("other"), "evil");
}

TEST(KernelCache, AFolderThatOthersMayWriteIsNotUsed) {
  TemporaryFolder folder;
  KernelCache(folder.path).put("key", "x");
  EXPECT_EQ(fs::status(folder.path).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(folder.path + "/key").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  fs::permissions(folder.path, fs::perms::all);
  std::vector<std::string> warnings;
  KernelCache cache(folder.path, [&](const std::string &text) { warnings.push_back(text); });
  EXPECT_FALSE(cache.get("key"));
  cache.put("new", "y");
  EXPECT_FALSE(cache.get("new"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("others may write"), std::string::npos) << warnings[0];
  fs::permissions(folder.path, fs::perms::owner_all);
  if (geteuid() != 0)
    return;
  warnings.clear();
  ASSERT_EQ(chown(folder.path.c_str(), 12345, 12345), 0);
  KernelCache foreign(folder.path, [&](const std::string &text) { warnings.push_back(text); });
  EXPECT_FALSE(foreign.get("key"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("another user"), std::string::npos) << warnings[0];
}

TEST(KernelCache, AFolderThatIsNewIsTheUsersAlone) {
  TemporaryFolder folder;
  const mode_t mask = umask(0);
  KernelCache cache(folder.path + "/a/cache");
  cache.put("key", "x");
  umask(mask);
  EXPECT_EQ(fs::status(folder.path + "/a/cache").permissions(), fs::perms::owner_all);
  for (const std::string &entry : entriesOf(folder.path + "/a/cache"))
    EXPECT_EQ(fs::status(entry).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(cache.get("key"), "x");
}

TEST(KernelCache, WhatIsNoFileIsNotWaitedFor) {
  TemporaryFolder folder;
  std::vector<std::string> warnings;
  KernelCache cache(folder.path, [&](const std::string &text) { warnings.push_back(text); });
  cache.put("key", "x");
  const std::string entry = entriesOf(folder.path).front();
  fs::remove(entry);
  ASSERT_EQ(mkfifo(entry.c_str(), 0600), 0);
  EXPECT_FALSE(cache.get("key"));
  EXPECT_EQ(warnings.size(), 1u);
  fs::create_symlink("/dev/zero", entry);
  EXPECT_FALSE(cache.get("key"));
  cache.put("key", "y");
  EXPECT_EQ(cache.get("key"), "y");
}

TEST(KernelCache, TheLongestUnusedGoWhenThereIsTooMuch) {
  TemporaryFolder folder;
  KernelCache cache(folder.path);
  const std::string bytes(10000, 'x');
  for (int i = 0; i < 10; ++i)
    cache.put(std::to_string(i), bytes);
  auto made = PrivateFolder::open(folder.path, false);
  ASSERT_TRUE(made && *made);
  const auto files = (*made)->entries();
  ASSERT_EQ(files.size(), 10u);
  for (const auto &file : files) { // all long ago
    const timespec old[2] = {{1000000, 0}, {1000000, 0}};
    utimensat(AT_FDCWD, fmt::format("{}/{}", folder.path, file.names.front()).c_str(), old, 0);
  }
  EXPECT_TRUE(cache.get("3")); // which notes that it is used
  EXPECT_TRUE(cache.get("7"));
  (*made)->shrink(1 << 20);
  EXPECT_EQ((*made)->entries().size(), 10u);
  (*made)->shrink(40000);
  EXPECT_EQ((*made)->entries().size(), 3u);
  EXPECT_TRUE(cache.get("3"));
  EXPECT_TRUE(cache.get("7"));
  std::ofstream(folder.path + "/building-999999999-0.so") << "x"; // of a process that is gone
  std::ofstream(folder.path + fmt::format("/building-{}-0.so", getpid())) << "x";
  (*made)->shrink(1 << 20);
  EXPECT_EQ((*made)->entries().size(), 4u);
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
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(KernelCache::defaultFolder(), "/h/.cache/fusion");
  setenv("HOME", "relative", 1);
  EXPECT_EQ(KernelCache::defaultFolder(), "");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(KernelCache::defaultFolder(), "/x/fusion");
  setenv("FUSION_CACHE_DIR", "/f", 1);
  EXPECT_EQ(KernelCache::defaultFolder(), "/f");
  for (auto &[name, value] : saved)
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
}
