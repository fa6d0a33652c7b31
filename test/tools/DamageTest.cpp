// Damaged graph and tensor files, several thousand of them: every one is either still a graph or an error of
// one line. Nothing crashes, hangs or asks for memory without end.
#include "Mutations.h"
#include "../import/ModelBuilder.h"

#include "api/Fusion.h"
#include "api/Lower.h"
#include "codegen/BuildPlan.h"
#include "ir/base/MappedFile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <sys/resource.h>

namespace fusion::test {
namespace {

[[maybe_unused]] constexpr int64_t memoryLimit = int64_t{8} << 30;
constexpr double secondsPerFile = 4;

double budgetSeconds() {
  const char *text = std::getenv("FUSION_DAMAGE_SECONDS");
  return text ? std::atof(text) : 2.5;
}

double cpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string graph(const std::string &name) {
  return std::string(FUSION_SOURCE_DIR) + "/test/data/graphs/" + name + "/model.onnx";
}

void expectOneLine(const Error &error) {
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  EXPECT_FALSE(error.message.empty());
  EXPECT_EQ(error.kind, ErrorKind::BadInput) << error.message;
}

class Damage : public testing::TestWithParam<const char *> {
protected:
  Damage() {
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
    // What asks for more than this has believed a number in the file.
    rlimit limit{memoryLimit, memoryLimit};
    setrlimit(RLIMIT_AS, &limit);
#endif
  }

  /// Everything between a file and kernels.
  void compileFile(const std::string &path) {
    double start = cpuSeconds();
    auto context = makeContext();
    auto module = loadModule(*context, path);
    if (!module)
      return expectOneLine(module.error());
    ++loaded;
    FusionReport report;
    if (Status status = lower(**module, {}, report); !status)
      return expectOneLine(status.error());
    auto entry = entryFunction(**module);
    if (!entry)
      return expectOneLine(entry.error());
    if (auto plan = buildPlan(*entry, {"sm_90a", folder / ""}); !plan)
      return expectOneLine(plan.error());
    ++planned;
    EXPECT_LT(cpuSeconds() - start, secondsPerFile) << path;
  }

  /// The model with its weights in a file of their own, so that damage meets the graph.
  std::string modelWithoutWeights(const std::string &source) {
    proto::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(readFile(source)));
    size_t offset = 0;
    for (auto &tensor : *model.mutable_graph()->mutable_initializer()) {
      if (tensor.raw_data().size() <= 256)
        continue;
      auto describe = [&](const char *key, const std::string &value) {
        auto *entry = tensor.add_external_data();
        entry->set_key(key);
        entry->set_value(value);
      };
      describe("location", "weights.bin");
      describe("offset", std::to_string(offset));
      describe("length", std::to_string(tensor.raw_data().size()));
      offset += tensor.raw_data().size();
      tensor.clear_raw_data();
      tensor.set_data_location(proto::TensorProto::EXTERNAL);
    }
    writeFile(folder / "weights.bin", std::string(offset, '\0'));
    return model.SerializeAsString();
  }

  /// Calls `once` with a fresh random generator until the time is over.
  template <typename Once> void repeat(Once once) {
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(budgetSeconds());
    unsigned seed = 0;
    for (; std::chrono::steady_clock::now() < end && !HasFailure(); ++seed) {
      std::mt19937 random(seed);
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      once(random);
    }
    std::printf("%u damaged files: %d load, %d compile\n", seed, loaded, planned);
  }

  TemporaryFolder folder;
  int loaded = 0, planned = 0;
};

TEST_P(Damage, Onnx) {
  std::string model = modelWithoutWeights(graph(GetParam()));
  std::string path = folder / "model.onnx";
  writeFile(path, model);
  compileFile(path);
  ASSERT_EQ(planned, 1);
  MessageMutator mutator(model);
  repeat([&](std::mt19937 &random) {
    writeFile(path, mutator.mutate(random));
    compileFile(path);
  });
}

TEST_P(Damage, TruncatedOnnx) {
  std::string model = modelWithoutWeights(graph(GetParam()));
  std::string path = folder / "model.onnx";
  auto context = makeContext();
  for (size_t size = 0; size < model.size(); size += 509) {
    writeFile(path, std::string_view(model).substr(0, size));
    auto module = loadModule(*context, path);
    ASSERT_FALSE(module) << size << " of " << model.size() << " bytes";
    expectOneLine(module.error());
  }
}

TEST_P(Damage, Text) {
  std::string source = folder / "model.onnx", path = folder / "graph.mlir";
  writeFile(source, modelWithoutWeights(graph(GetParam())));
  auto loadedGraph = Graph::load(source);
  ASSERT_TRUE(loadedGraph) << loadedGraph.error().message;
  std::string text = loadedGraph->text();
  writeFile(path, text);
  compileFile(path);
  ASSERT_EQ(planned, 1);
  repeat([&](std::mt19937 &random) {
    writeFile(path, mutateText(text, random));
    compileFile(path);
  });
}

INSTANTIATE_TEST_SUITE_P(Graphs, Damage,
                         testing::Values("llama-fp32-op18", "gpt2-fp16-decode", "qwen3-bf16-op23"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DamageToTensors, Safetensors) {
  TemporaryFolder folder;
  std::string path = folder / "tensors.safetensors";
  ASSERT_TRUE(writeSafetensors(path, {{"a", Tensor::zeros(DType::F16, {3, 5})},
                                      {"b", Tensor::zeros(DType::I64, {2})},
                                      {"empty", Tensor::zeros(DType::F32, {0, 4})},
                                      {"scalar", Tensor::zeros(DType::BF16, {})}}));
  std::string good = readFile(path);
  for (size_t size = 0; size < good.size(); ++size) {
    writeFile(path, std::string_view(good).substr(0, size));
    auto tensors = readSafetensors(path);
    ASSERT_FALSE(tensors) << size;
    expectOneLine(tensors.error());
  }
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    writeFile(path, mutateBytes(good, random));
    auto tensors = readSafetensors(path);
    if (!tensors)
      expectOneLine(tensors.error());
    else
      for (const auto &[name, tensor] : *tensors)
        tensor.toFloats();
  }
}

} // namespace
} // namespace fusion::test
