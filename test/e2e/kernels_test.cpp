// The kernel engineer's loop: kernels as files that compile, edited files in their place, checked and timed.
#include "GraphCase.h"

#include "runtime/cuda/Nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {
constexpr const char *graphText = R"(
func.func @main(%x: tensor<?x128xf32> {nn.dims = [["rows"], 128]}, %r: tensor<?x128xf32> {nn.dims = [["rows"], 128]},
                %w: tensor<128xf32>) -> tensor<?x128xf32> {
  %0 = nn.add %x, %r : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  return %1 : tensor<?x128xf32>
})";

class Kernels : public testing::Test {
protected:
  Kernels() {
    fs::remove_all(folder);
    fs::create_directories(folder);
    options.device = RunOn::Emulate;
    options.target = {"sm_90a"};
    options.cacheFolder = (folder / "cache").string();
    options.profit = ProfitMode::Model; // names must not depend on times measured beside other programs
  }
  ~Kernels() override { fs::remove_all(folder); }

  Graph load() const {
    std::ofstream(folder / "g.mlir") << graphText;
    auto graph = Graph::load((folder / "g.mlir").string());
    EXPECT_TRUE(bool(graph)) << graph.error().message;
    return *graph;
  }

  static std::string read(const fs::path &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// The one kernel of load(), written into `kernels`.
  fs::path writeOne(const Graph &graph) const {
    Status status = writeKernels(graph, options, kernels.string());
    EXPECT_TRUE(bool(status)) << status.error().message;
    fs::path found;
    for (const fs::directory_entry &entry : fs::directory_iterator(kernels))
      if (entry.path().extension() == ".cu")
        found = entry.path();
    return found;
  }

  /// Changes the first place in the file that the expression `from` matches.
  static void edit(const fs::path &path, const std::string &from, const std::string &to) {
    const std::string before = read(path);
    const std::string after =
        std::regex_replace(before, std::regex(from), to, std::regex_constants::format_first_only);
    ASSERT_NE(before, after);
    std::ofstream(path) << after;
  }

  fs::path folder = fs::temp_directory_path() / ("fusion-kernels-" + std::to_string(getpid()));
  fs::path kernels = folder / "kernels";
  CompileOptions options;
};

TEST_F(Kernels, SourceCompilesAsItIs) {
  auto all = explain(load(), options, Emit::Cuda);
  ASSERT_TRUE(bool(all)) << all.error().message;
  EXPECT_THAT(all->text, testing::Not(HasSubstr("#include")));
  auto nvrtc = Nvrtc::instance();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  auto cubin = (*nvrtc)->compile(all->text, "all", "sm_90a");
  EXPECT_TRUE(bool(cubin)) << cubin.error().message;
}

TEST_F(Kernels, AFileAKernelAndTheDeviceFilesBeside) {
  const fs::path file = writeOne(load());
  EXPECT_THAT(read(file), HasSubstr("#include \""));
  EXPECT_TRUE(fs::exists(kernels / "machine.cuh"));
  // Written again it is the same; an edited file is not lost.
  writeOne(load());
  edit(file, "KERNEL", "/* mine */ KERNEL");
  Status status = writeKernels(load(), options, kernels.string());
  ASSERT_FALSE(bool(status));
  EXPECT_EQ(status.error().kind, ErrorKind::BadInput);
  EXPECT_THAT(status.error().message, HasSubstr(file.string() + ": has other contents"));
  EXPECT_THAT(read(file), HasSubstr("/* mine */"));
}

TEST_F(Kernels, AnEditedKernelIsCheckedAndRuns) {
  Graph graph = load();
  const fs::path file = writeOne(graph);
  const std::string name = file.stem().string();
  options.kernels = {{name, file.string()}};
  edit(file, "KERNEL", "// edited\nKERNEL");
  auto trials = tryKernels(graph, options);
  ASSERT_TRUE(bool(trials)) << trials.error().message;
  ASSERT_EQ(trials->size(), 1u);
  EXPECT_THAT(trials->front().text(),
              HasSubstr("kernel " + name + " from " + file.string() + " agrees with its body on "));
  if (trials->front().edited == 0)
    EXPECT_THAT(trials->front().text(), HasSubstr("no GPU to time it on"));
  auto program = compile(graph, options);
  ASSERT_TRUE(bool(program)) << program.error().message;
  EXPECT_THAT(program->cudaSource(), HasSubstr("// edited"));
  // The plan without the edit is what was cached.
  options.kernels = {};
  auto plain = compile(graph, options);
  ASSERT_TRUE(bool(plain)) << plain.error().message;
  EXPECT_THAT(plain->cudaSource(), testing::Not(HasSubstr("// edited")));
}

TEST_F(Kernels, AWrongKernelIsRefusedWithItsError) {
  Graph graph = load();
  const fs::path file = writeOne(graph);
  options.kernels = {{file.stem().string(), file.string()}};
  edit(file, R"([0-9.]+e-0[0-9]+f)", "1.5f"); // the eps
  auto trials = tryKernels(graph, options);
  ASSERT_FALSE(bool(trials));
  EXPECT_EQ(trials.error().kind, ErrorKind::AnswerIsNo);
  EXPECT_THAT(trials.error().message, HasSubstr("differs from its body in result0 at element "));
  EXPECT_THAT(trials.error().message, HasSubstr("relative L2"));
  EXPECT_EQ(trials.error().message.find('\n'), std::string::npos);
}

TEST_F(Kernels, AnEditedDeviceFileCounts) {
  Graph graph = load();
  const fs::path file = writeOne(graph);
  options.kernels = {{file.stem().string(), file.string()}};
  std::ofstream(kernels / "types.cuh", std::ios::app) << "static_assert(false, \"mine\");\n";
  auto trials = tryKernels(graph, options);
  ASSERT_FALSE(bool(trials));
  EXPECT_EQ(trials.error().kind, ErrorKind::BadInput);
  EXPECT_THAT(trials.error().message, HasSubstr("mine"));
  EXPECT_THAT(trials.error().message, HasSubstr("types.cuh"));
}

TEST_F(Kernels, TheParametersMustBeThePlans) {
  Graph graph = load();
  const fs::path file = writeOne(graph);
  const std::string name = file.stem().string();
  options.kernels = {{name, file.string()}};
  edit(file, ", i64 ", ", i32 ");
  auto trials = tryKernels(graph, options);
  ASSERT_FALSE(bool(trials));
  EXPECT_EQ(trials.error().kind, ErrorKind::BadInput);
  EXPECT_THAT(trials.error().message, HasSubstr("the plan calls " + name + "("));
}

TEST_F(Kernels, NamesMustBeThePlans) {
  Graph graph = load();
  const std::string name = writeOne(graph).stem().string();
  options.kernels = {{name.substr(0, name.size() - 2), "nowhere.cu"}};
  auto program = compile(graph, options);
  auto trials = tryKernels(graph, options);
  ASSERT_FALSE(bool(program));
  ASSERT_FALSE(bool(trials));
  for (const Error &error : {program.error(), trials.error()}) {
    EXPECT_EQ(error.kind, ErrorKind::BadInput);
    EXPECT_THAT(error.message, HasSubstr("the plan has no kernel '"));
    EXPECT_THAT(error.message, HasSubstr("like it: " + name));
  }
  options.kernels = {{name, "nowhere.cu"}};
  EXPECT_THAT(compile(graph, options).error().message, HasSubstr("nowhere.cu: cannot be read"));
}
} // namespace
