#include "SamplePlan.h"

#include "runtime/cuda/Driver.h"
#include "runtime/cuda/Nvrtc.h"
#include "runtime/cuda/Packages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace fusion;
using namespace fusion::test;

TEST(Library, AnAbsentLibraryIsAnEnvironmentErrorWithAdvice) {
  auto library = Library::open(
      {"the frobnicator", {"libno-such-thing.so.1"}, {"/nowhere"}, {"/nowhere/else"}, "get one"});
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().kind, ErrorKind::Environment);
  EXPECT_NE(library.error().message.find("the frobnicator cannot be loaded"), std::string::npos);
  EXPECT_NE(library.error().message.find("libno-such-thing.so.1"), std::string::npos);
  EXPECT_NE(library.error().message.find("get one"), std::string::npos);
}

TEST(Library, AFileThatIsNoLibraryIsNamed) {
  TemporaryFolder folder;
  std::ofstream(folder.path + "/libbroken.so") << "not an ELF file";
  auto library = Library::open({"x", {"libbroken.so"}, {folder.path}, {}, "y"});
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find(folder.path), std::string::npos) << library.error().message;
}

TEST(Library, AWheelKnowsTheFolderThatItIsInstalledIn) {
  EXPECT_EQ(packagesAround("/v/lib/python3.12/site-packages/fusion/bin/fusion-opt"),
            "/v/lib/python3.12/site-packages");
  EXPECT_EQ(packagesAround("/usr/lib/python3/dist-packages/fusion/libfusion.so.1"),
            "/usr/lib/python3/dist-packages");
  EXPECT_EQ(packagesAround("/usr/lib/libfusion.so.1"), "");
  EXPECT_EQ(packagesAround("fusion-opt"), "");
  EXPECT_EQ(packagesAround(""), "");
}

TEST(Library, AnNvrtcOfAnActiveEnvironmentIsFound) {
  TemporaryFolder folder;
  const std::string wheel = folder.path + "/lib/python3.12/site-packages/nvidia/cu13/lib";
  std::filesystem::create_directories(wheel);
  const char *before = std::getenv("VIRTUAL_ENV");
  const std::string saved = before ? before : "";
  setenv("VIRTUAL_ENV", folder.path.c_str(), 1);
  const std::vector<std::string> found = wheelFolders("nvidia/cu13/lib");
  before ? setenv("VIRTUAL_ENV", saved.c_str(), 1) : unsetenv("VIRTUAL_ENV");
  EXPECT_EQ(std::count(found.begin(), found.end(), wheel), 1);
}

TEST(Library, SymbolsResolveOrSaySo) {
  auto library = Library::open({"the C library", {"libc.so.6"}, {}, {}, ""});
  ASSERT_TRUE(library) << library.error().message;
  int (*present)() = nullptr, (*absent)() = nullptr;
  EXPECT_TRUE(library->resolve("getpid", present));
  EXPECT_EQ(present(), getpid());
  EXPECT_FALSE(library->resolve("no_such_function_anywhere", absent));
}

TEST(Driver, WithoutAGpuTheErrorSaysWhatToDo) {
  if (cuda::deviceCount() > 0)
    GTEST_SKIP() << "this machine has a GPU";
  auto driver = cuda::Driver::instance();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().kind, ErrorKind::Environment);
  EXPECT_NE(driver.error().message.find("--device=emulate"), std::string::npos) << driver.error().message;
}
