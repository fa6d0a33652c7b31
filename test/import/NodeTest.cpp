// Runs ONNX's node tests of every op that can be imported: through the importer and the reference.
#include "NodeTestData.h"

#include "ir/dialect/Dialect.h"
#include "ir/import/NodeImporter.h"
#include "ir/import/Onnx.h"
#include "ir/reference/Reference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace fusion::test {
namespace {

/// The ops of ONNX's own domain whose node tests must pass.
const std::set<std::string> claimed = {
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "Attention",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Cos",
    "CumSum",
    "DequantizeLinear",
    "Div",
    "Dropout",
    "DynamicQuantizeLinear",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "EyeLike",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "If",
    "IsInf",
    "IsNaN",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "MatMul",
    "MatMulInteger",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "OneHot",
    "Or",
    "PRelu",
    "Pad",
    "Pow",
    "QLinearMatMul",
    "QuantizeLinear",
    "RMSNormalization",
    "Range",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "RotaryEmbedding",
    "Round",
    "ScatterND",
    "Shape",
    "Sigmoid",
    "Sign",
    "Sin",
    "Size",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
    "Xor",
};

/// Ops that are known only to be refused with a reason.
const std::set<std::string> refused = {"Loop", "Scan"};

/// Tests that a claimed op does not pass, and why.
const std::map<std::string, std::string> exempt = {};

const std::vector<NodeTestFolder> &allTests() {
  static const std::vector<NodeTestFolder> tests = findNodeTests();
  return tests;
}

bool isClaimed(const NodeTestFolder &test) {
  for (const std::string &op : opsOf(test.model))
    if (!claimed.contains(op))
      return false;
  return true;
}

std::vector<size_t> runnable() {
  std::vector<size_t> indices;
  for (size_t i = 0; i < allTests().size(); ++i)
    if (isClaimed(allTests()[i]) && unsupportedType(allTests()[i].model).empty() &&
        !exempt.contains(allTests()[i].name))
      indices.push_back(i);
  return indices;
}

mlir::MLIRContext &context() {
  static mlir::DialectRegistry registry = [] {
    mlir::DialectRegistry dialects;
    registerDialects(dialects);
    return dialects;
  }();
  static mlir::MLIRContext shared(registry, mlir::MLIRContext::Threading::DISABLED);
  return shared;
}

/// Counts for the report at the end, by op.
class Tally : public testing::Environment {
public:
  struct Count {
    int run = 0, passed = 0;
  };
  static std::map<std::string, Count> &counts() {
    static std::map<std::string, Count> byOp;
    return byOp;
  }
  static int &withConstants() {
    static int count = 0;
    return count;
  }
  void TearDown() override {
    std::string line;
    for (const auto &[op, count] : counts())
      line += fmt::format("{} {}/{}  ", op, count.passed, count.run);
    if (!line.empty())
      fmt::print("passed/run by op: {}\n{} of them with inputs known at import\n", line, withConstants());
  }
};

bool isExact(DType type) { return !isFloat(type) || byteSize(type) == 1; }

double tolerance(DType type) {
  switch (type) {
  case DType::F16:
    return 2e-3;
  case DType::BF16:
    return 1.5e-2;
  default:
    return isExact(type) ? 0 : 1e-5;
  }
}

void expectSame(const Tensor &actual, const Tensor &expected, const std::string &name) {
  ASSERT_EQ(fusion::name(actual.type()), fusion::name(expected.type())) << name;
  ASSERT_EQ(actual.shape(), expected.shape()) << name;
  auto difference = compare(actual, expected);
  ASSERT_TRUE(difference) << difference.error().message;
  EXPECT_LE(difference->relativeL2, tolerance(expected.type()))
      << name << ": largest difference " << difference->maxAbs << " at " << difference->worstIndex;
}

struct Import {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  NamedTensors constants;
};

/// Imports with as few inputs known as it takes: none, the integers, all.
Result<Import> importWith(const std::string &path, const NamedTensors &inputs) {
  NamedTensors integers;
  for (const auto &[name, tensor] : inputs)
    if (!isFloat(tensor.type()))
      integers.emplace(name, tensor);
  Error last;
  for (const NamedTensors &constants : {NamedTensors(), integers, inputs}) {
    auto module = importOnnx(context(), path, {.constants = constants});
    if (module)
      return Import{std::move(*module), constants};
    last = module.error();
  }
  return last;
}

class Node : public testing::TestWithParam<size_t> {};

void runDataSet(const NodeTestFolder &test, const std::string &folder) {
  auto given = readTensors(folder, "input"), expected = readTensors(folder, "output");
  ASSERT_TRUE(given) << given.error().message;
  ASSERT_TRUE(expected) << expected.error().message;
  const auto &graph = test.model.graph();
  ASSERT_LE(given->size(), static_cast<size_t>(graph.input_size()));
  NamedTensors inputs;
  for (size_t i = 0; i < given->size(); ++i)
    inputs[graph.input(static_cast<int>(i)).name()] = (*given)[i];
  auto imported = importWith(test.path + "/model.onnx", inputs);
  ASSERT_TRUE(imported) << imported.error().message;
  Tally::withConstants() += imported->constants.empty() ? 0 : 1;
  for (const auto &[name, tensor] : imported->constants)
    inputs.erase(name);
  auto function = imported->module->lookupSymbol<mlir::func::FuncOp>("main");
  ASSERT_TRUE(function);
  auto interpreter = Interpreter::create(function, test.path);
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  auto outputs = interpreter->run(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  ASSERT_EQ(expected->size(), static_cast<size_t>(graph.output_size()));
  for (size_t i = 0; i < expected->size(); ++i) {
    const std::string &name = graph.output(static_cast<int>(i)).name();
    auto found = outputs->find(name);
    ASSERT_NE(found, outputs->end()) << "no output " << name;
    expectSame(found->second, (*expected)[i], name);
  }
}

TEST_P(Node, Conforms) {
  const NodeTestFolder &test = allTests()[GetParam()];
  for (const std::string &folder : dataSets(test))
    runDataSet(test, folder);
  for (const std::string &op : opsOf(test.model)) {
    auto &count = Tally::counts()[op];
    ++count.run;
    count.passed += HasFailure() ? 0 : 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Onnx, Node, testing::ValuesIn(runnable()), [](const auto &info) {
  return allTests()[info.param].source + "_" + allTests()[info.param].name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Node);

TEST(NodeTests, AreInstalled) {
  if (allTests().empty())
    GTEST_SKIP() << "no node tests on this machine; install libonnx-testdata, or an onnx wheel in .venv";
  EXPECT_FALSE(runnable().empty());
}

/// The list above is neither behind the importer nor ahead of it.
TEST(NodeTests, ListIsComplete) {
  for (const std::string &op : claimed)
    EXPECT_TRUE(onnx::HandlerTable::instance().find("", op)) << op << " is claimed and cannot be imported";
  for (const NodeTestFolder &test : allTests())
    for (const std::string &op : opsOf(test.model))
      EXPECT_TRUE(claimed.contains(op) || refused.contains(op) ||
                  !onnx::HandlerTable::instance().find("", op))
          << op << " is not listed";
}

TEST(NodeTests, ExemptTestsStillFail) {
  for (const NodeTestFolder &test : allTests()) {
    if (!exempt.contains(test.name) || !unsupportedType(test.model).empty())
      continue;
    EXPECT_TRUE(isClaimed(test)) << test.name << " needs no exemption";
  }
}

const auto *const tally = testing::AddGlobalTestEnvironment(new Tally);

} // namespace
} // namespace fusion::test
