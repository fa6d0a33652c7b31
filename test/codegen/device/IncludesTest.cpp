// Expansion of a kernel's includes: each file once, in order, none of the other flavour.
#include "codegen/device/Includes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fusion;

static size_t count(const std::string &text, std::string_view part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++number;
  return number;
}

TEST(Includes, EachFileOnceInFrontOfWhatNeedsIt) {
  const std::string text = expandIncludes({"vectors.cuh", "math.cuh", "vectors.cuh"}, Flavour::Cuda);
  EXPECT_EQ(count(text, "using i64 ="), 1u);
  EXPECT_EQ(count(text, "Vec<f32, N> quotients("), 1u);
  EXPECT_LT(text.find("using i64 ="), text.find("saturate_to_int"));
  EXPECT_LT(text.find("saturate_to_int"), text.find("Vec<f32, N> quotients("));
  EXPECT_EQ(text.find("#include"), std::string::npos);
  EXPECT_NE(text.find("#line"), std::string::npos);
}

TEST(Includes, OnlyTheFlavourAskedFor) {
  const std::string cuda = expandIncludes({"prelude.cuh"}, Flavour::Cuda);
  const std::string emulated = expandIncludes({"prelude.cuh"}, Flavour::Emulated);
  EXPECT_NE(cuda.find("cp.async.cg"), std::string::npos);
  EXPECT_EQ(cuda.find("fusion_emulation"), std::string::npos);
  EXPECT_EQ(emulated.find("cp.async.cg"), std::string::npos);
  EXPECT_NE(emulated.find("fusion_emulation"), std::string::npos);
  EXPECT_EQ(cuda.find("FUSION_EMULATED"), std::string::npos);
  // Conditions that are not about the flavour stay.
  EXPECT_EQ(count(cuda, "\n#if"), count(cuda, "\n#endif"));
  EXPECT_EQ(count(emulated, "\n#if"), count(emulated, "\n#endif"));
}

TEST(Includes, LinesKeepTheirNumbers) {
  const std::string source = "#include \"math.cuh\"\nline two\n";
  const std::string text = expandSource(source, Flavour::Cuda, "add.cu");
  EXPECT_TRUE(text.ends_with("#line 1 \"add.cu\"\n\nline two\n")) << text.substr(text.size() - 60);
}

TEST(Includes, WithoutIncludesThereIsEverything) {
  EXPECT_EQ(splitIncludes("KERNEL(32) f() {}").includes, std::vector<std::string>{"prelude.cuh"});
  EXPECT_EQ(splitIncludes("KERNEL(32) f(Exchange *e) {}").includes,
            (std::vector<std::string>{"prelude.cuh", "exchange.cuh"}));
}

TEST(Includes, UnknownFilesAreTheCompilersToRefuse) {
  EXPECT_EQ(expandIncludes({"no_such_file.cuh"}, Flavour::Cuda), "#include \"no_such_file.cuh\"\n");
}

TEST(Includes, PointwiseKernelsParseNoAttention) {
  EXPECT_EQ(expandIncludes({"vectors.cuh"}, Flavour::Cuda).find("split_pair"), std::string::npos);
}

TEST(Includes, TemplatesAreWhatThePreludeHasNot) {
  EXPECT_EQ(templateText({"prelude.cuh", "math.cuh"}), "");
  EXPECT_NE(templateText({"exchange.cuh"}).find("collective_context"), std::string::npos);
}

TEST(Includes, FilesOnDiskFindEachOtherFirst) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("fusion-includes-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "mine.cuh").string();
  std::ofstream(path) << "#pragma once\n#include \"reduce.cuh\"\n#include \"types.cuh\"\nint mine;\n";
  std::ofstream(folder / "reduce.cuh") << "int edited;\n";
  std::string text = expandIncludes({path, "reduce.cuh"}, Flavour::Cuda);
  EXPECT_LT(text.find("int edited;"), text.find("int mine;"));
  EXPECT_EQ(count(text, "using i64 ="), 1u);
  EXPECT_NE(text.find("#line 4 \"" + path + "\""), std::string::npos) << text;
  EXPECT_NE(templateText({path}).find("int mine;"), std::string::npos);
  std::ofstream(path) << "int changed;\n";
  text = expandIncludes({path}, Flavour::Cuda);
  EXPECT_EQ(text, "#line 1 \"" + path + "\"\nint changed;\n");
  std::filesystem::remove_all(folder);
}
