// Normalise and raise keep the numbers: modules and exported graphs run on the reference before and after.
#include "ir/base/Safetensors.h"
#include "ir/import/Onnx.h"
#include "ir/reference/Reference.h"
#include "passes/MissLog.h"
#include "passes/Passes.h"
#include "passes/Pipeline.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

using namespace fusion;

namespace {

double tolerance(DType type) {
  switch (type) {
  case DType::F16:
    return 2e-3;
  case DType::BF16:
    return 1.5e-2;
  default:
    return 1e-5;
  }
}

void raise(mlir::OpPassManager &manager) { buildRaisePipeline(manager); }

class Raise : public ::testing::Test {
protected:
  Raise() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.allowUnregisteredDialects(false);
  }

  static mlir::func::FuncOp firstFunction(mlir::ModuleOp module) {
    return *module.getOps<mlir::func::FuncOp>().begin();
  }

  /// Named symbols have a size each; undeclared dims of all arguments have the same one.
  static int64_t sizeOf(const Dim &dim) {
    SymbolValues values = {{"b", 2}, {"s", 5}, {"t", 3}};
    for (const std::string &symbol : dim.symbols())
      values.try_emplace(symbol, 4);
    return *dim.evaluate(values);
  }

  Tensor randomTensor(DType type, const Shape &shape) {
    int64_t count = elementCount(shape);
    if (isFloat(type)) {
      std::normal_distribution<float> normal;
      std::vector<float> values(count);
      std::generate(values.begin(), values.end(), [&] { return normal(random); });
      return Tensor::of<float>(DType::F32, shape, values).convertedTo(type);
    }
    std::uniform_int_distribution<int64_t> small(0, 1);
    std::vector<int64_t> values(count);
    std::generate(values.begin(), values.end(), [&] { return small(random); });
    return Tensor::of<int64_t>(DType::I64, shape, values).convertedTo(type);
  }

  NamedTensors randomInputs(const Interpreter &interpreter) {
    NamedTensors inputs;
    for (const PortShape &port : interpreter.inputs()) {
      Shape shape;
      for (const Dim &dim : port.shape)
        shape.push_back(sizeOf(dim));
      inputs[port.name] = randomTensor(port.type, shape);
    }
    return inputs;
  }

  /// Runs the first function; weights lie in `folder`.
  Result<NamedTensors> run(mlir::ModuleOp module, const std::string &folder, const NamedTensors *given,
                           NamedTensors *used = nullptr) {
    auto interpreter = Interpreter::create(firstFunction(module), folder);
    if (!interpreter)
      return interpreter.error();
    NamedTensors inputs = given ? *given : randomInputs(*interpreter);
    if (used)
      *used = inputs;
    return interpreter->run(inputs);
  }

  static void expectClose(const NamedTensors &actual, const NamedTensors &expected, const std::string &what) {
    for (const auto &[name, tensor] : expected) {
      auto found = actual.find(name);
      ASSERT_NE(found, actual.end()) << what << ": " << name << " is missing";
      auto difference = compare(found->second, tensor);
      ASSERT_TRUE(difference) << what << ": " << difference.error().message;
      EXPECT_LE(difference->relativeL2, tolerance(tensor.type())) << what << ": " << name;
    }
  }

  bool runPipeline(mlir::ModuleOp module, llvm::function_ref<void(mlir::OpPassManager &)> build) {
    mlir::PassManager manager(&context);
    build(manager);
    return succeeded(manager.run(module)) && succeeded(mlir::verify(module));
  }

  mlir::MLIRContext context;
  std::mt19937 random{7};
};

/// The modules of a RUN-line test: the same text between its separators.
std::vector<std::string> splitModules(const std::string &file) {
  std::ifstream in(file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::string> parts;
  const std::string separator = "// -----\n";
  for (size_t from = 0; from < text.size();) {
    size_t to = std::min(text.find(separator, from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + separator.size();
  }
  return parts;
}

TEST_F(Raise, KeepsTheNumbersOfTheRunLineTests) {
  auto folder = std::filesystem::temp_directory_path() / ("fusion-raise-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  Tensor bytes = randomTensor(DType::F32, {1 << 16});
  std::ofstream(folder / "m.onnx", std::ios::binary)
      .write(bytes.as<char>(), static_cast<std::streamsize>(bytes.bytes()));
  int modules = 0;
  for (std::string file :
       {"canonicalize", "fold-constants", "fold-positions", "raise-norm", "raise-activation", "raise-rope",
        "raise-attention", "raise-attention-sink", "raise-attention-gate", "raise-attention-arithmetic",
        "raise-attention-swapped", "raise-norm-gain", "raise-norm-narrow", "raise-norm-rows", "raise-rope-stacked",
        "raise-attention-batch", "raise-softmax"}) {
    for (const std::string &text : splitModules(FUSION_SOURCE_DIR "/test/passes/" + file + ".mlir")) {
      auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
      ASSERT_TRUE(module) << file;
      std::string what = file + " @" + firstFunction(*module).getName().str();
      NamedTensors inputs;
      auto before = run(*module, folder.string(), nullptr, &inputs);
      ASSERT_TRUE(before) << what << ": " << before.error().message;
      ASSERT_TRUE(runPipeline(*module, [](mlir::OpPassManager &manager) {
        buildNormalisePipeline(manager);
        buildRaisePipeline(manager);
      })) << what;
      auto after = run(*module, folder.string(), &inputs);
      ASSERT_TRUE(after) << what << ": " << after.error().message;
      expectClose(*after, *before, what);
      ++modules;
    }
  }
  EXPECT_GT(modules, 50);
  std::filesystem::remove_all(folder);
}

TEST_F(Raise, EveryGraphIsRaisedAndKeepsItsNumbers) {
  const char *given = std::getenv("FUSION_GRAPHS");
  std::filesystem::path root = given ? given : FUSION_SOURCE_DIR "/test/data/graphs";
  int graphs = 0;
  for (const auto &entry : std::filesystem::directory_iterator(root)) {
    std::string folder = entry.path().string(), name = entry.path().filename().string();
    if (!std::filesystem::exists(entry.path() / "model.onnx"))
      continue;
    auto module = importOnnx(context, folder + "/model.onnx");
    ASSERT_TRUE(module) << module.error().message;
    auto inputs = readSafetensors(folder + "/inputs.safetensors");
    auto outputs = readSafetensors(folder + "/outputs.safetensors");
    ASSERT_TRUE(inputs && outputs) << name;
    auto before = run(**module, folder, &*inputs);
    ASSERT_TRUE(before) << before.error().message;
    MissLog log;
    {
      MissLog::Scope scope(log);
      ASSERT_TRUE(runPipeline(**module, buildNormalisePipeline)) << name;
      auto normalised = run(**module, folder, &*inputs);
      ASSERT_TRUE(normalised) << normalised.error().message;
      expectClose(*normalised, *before, name + " normalised");
      ASSERT_TRUE(runPipeline(**module, raise)) << name;
    }
    for (const Miss &miss : log.misses())
      ADD_FAILURE() << name << ": missed " << miss.pattern << " at " << miss.location << ": " << miss.reason;
    auto raised = run(**module, folder, &*inputs);
    ASSERT_TRUE(raised) << raised.error().message;
    for (auto &[key, tensor] : *raised)
      if (auto expected = outputs->find(key); expected != outputs->end())
        expectClose({{key, tensor}}, {{key, expected->second}}, name + " raised");
    std::map<std::string, int> count;
    (*module)->walk([&](mlir::Operation *op) { ++count[op->getName().getStringRef().str()]; });
    EXPECT_EQ(count["nn.attention"], 2) << name;
    EXPECT_GE(count["nn.rms_norm"] + count["nn.layer_norm"], 5) << name;
    EXPECT_EQ(count["nn.silu"] + count["nn.gelu"], 2) << name;
    bool learnedPositions = name.starts_with("gpt2") || name.starts_with("bert");
    EXPECT_EQ(count["nn.rope"], learnedPositions ? 0 : 4) << name;
    for (const char *gone :
         {"nn.softmax", "nn.rsqrt", "nn.sigmoid", "nn.tanh", "nn.erf", "nn.is_nan", "nn.pow"})
      EXPECT_EQ(count[gone], 0) << name << ": " << gone;
    ++graphs;
  }
  EXPECT_GT(graphs, 0);
}

TEST_F(Raise, MissesAreOneARoot) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.exp %x : (tensor<4xf32>) -> tensor<4xf32> loc("layer")
  %1 = nn.exp %0 : (tensor<4xf32>) -> tensor<4xf32> loc("layer")
  return %1 : tensor<4xf32>
})", &context);
  ASSERT_TRUE(module);
  auto ops = llvm::to_vector(firstFunction(*module).getOps<nn::ExpOp>());
  MissLog log;
  MissLog::Scope scope(log);
  noteMiss(ops[0], "gelu", "early");
  noteMiss(ops[1], "gelu", "late");
  noteMiss(ops[0], "gelu", "late");
  ASSERT_EQ(log.misses().size(), 2u);
  EXPECT_EQ(log.misses()[0].reason, "late");
  EXPECT_EQ(log.misses()[1].location, "layer");
  noteMiss(ops[0], "silu", "another op");
  noteRaised(ops[0], "gelu");
  ASSERT_EQ(log.misses().size(), 2u);
  EXPECT_EQ(log.misses()[0].reason, "late");
  EXPECT_EQ(log.misses()[1].pattern, "silu");
  EXPECT_EQ(log.raised().size(), 1u);
}

TEST_F(Raise, ANormOfCentredValuesIsInTheReport) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @f(%x: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = nn.reduce %x {axes = array<i64: -1>, keepdims = true, kind = "mean"} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %1 = nn.sub %x, %0 : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %2 = nn.rms_norm %1, %w {eps = 1.0e-5 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
})",
                                                        &context);
  ASSERT_TRUE(module);
  MissLog log;
  MissLog::Scope scope(log);
  ASSERT_TRUE(runPipeline(*module, raise));
  ASSERT_EQ(log.raised().size(), 1u);
  EXPECT_EQ(log.raised()[0].op, "layer_norm");
  EXPECT_EQ(log.raised()[0].root, "nn.rms_norm");
}

} // namespace
