// Runs ONNX's node tests of every op that can be imported: through the importer and the reference.
#include "NodeTestData.h"

#include "ir/dialect/Dialect.h"
#include "ir/import/NodeImporter.h"
#include "ir/import/Onnx.h"
#include "ir/reference/Reference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace fusion::test {
namespace {

/// The ops whose node tests must pass.
const std::set<std::string> claimed = {
    // clang-format off
    "Abs", "Acos", "Acosh", "Add", "AffineGrid", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan",
    "Atanh", "Attention", "AveragePool", "BatchNormalization", "BitCast", "BitShift", "BitwiseAnd",
    "BitwiseNot", "BitwiseOr", "BitwiseXor", "BlackmanWindow", "Cast", "CastLike", "CausalConvWithState",
    "Ceil", "Celu", "CenterCropPad", "Clip", "Col2Im", "Compress", "Concat", "ConcatFromSequence",
    "Constant", "ConstantOfShape", "Conv", "ConvInteger", "ConvTranspose", "Cos", "Cosh", "CumProd",
    "CumSum", "DFT", "DeformConv", "DepthToSpace", "DequantizeLinear", "Det", "Div", "Dropout",
    "DynamicQuantizeLinear", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten",
    "Floor", "GRU", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool",
    "GlobalLpPool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GridSample", "GroupNormalization",
    "HammingWindow", "HannWindow", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "If",
    "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization", "LeakyRelu", "Less",
    "LessOrEqual", "LinearAttention", "Log", "LogSoftmax", "Loop", "LpNormalization", "LpPool", "MatMul",
    "MatMulInteger", "Max", "MaxPool", "MaxRoiPool", "MaxUnpool", "Mean", "MeanVarianceNormalization",
    "MelWeightMatrix", "Min", "Mish", "Mod", "Mul", "Neg", "NegativeLogLikelihoodLoss", "NonZero", "Not",
    "OneHot", "Optional", "OptionalGetElement", "OptionalHasElement", "Or", "PRelu", "Pad", "Pow",
    "QLinearConv", "QLinearMatMul", "QuantizeLinear", "RMSNormalization", "RNN", "Range", "Reciprocal",
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Resize", "ReverseSequence",
    "RoiAlign", "RotaryEmbedding", "Round", "STFT", "Scan", "Scatter", "ScatterElements", "ScatterND",
    "Selu", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceLength", "SequenceMap", "Shape", "Shrink", "Sigmoid", "Sign", "SimplifiedLayerNormalization",
    "Sin", "Sinh", "Size", "Slice", "Softmax", "SoftmaxCrossEntropyLoss", "Softplus", "Softsign",
    "SpaceToDepth", "Split", "SplitToSequence", "Sqrt", "Squeeze", "Sub", "Sum", "SwiGLU", "Swish", "Tan",
    "Tanh", "TensorScatter", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze",
    "Upsample", "Where", "Xor", "com.microsoft.Attention", "com.microsoft.BiasAdd",
    "com.microsoft.BiasDropout", "com.microsoft.BiasGelu", "com.microsoft.BiasSoftmax",
    "com.microsoft.BiasSplitGelu", "com.microsoft.BitmaskDropout", "com.microsoft.BranchwiseRMSNorm",
    "com.microsoft.CDist", "com.microsoft.ComplexMul", "com.microsoft.ComplexMulConj",
    "com.microsoft.CropAndResize", "com.microsoft.DecoderMaskedMultiHeadAttention",
    "com.microsoft.DynamicQuantizeLSTM", "com.microsoft.DynamicQuantizeMatMul",
    "com.microsoft.EmbedLayerNormalization", "com.microsoft.EngramGate", "com.microsoft.ExpandDims",
    "com.microsoft.FastGelu", "com.microsoft.FusedConv", "com.microsoft.FusedGemm",
    "com.microsoft.FusedMatMul", "com.microsoft.FusedMatMulActivation", "com.microsoft.GatedAdd",
    "com.microsoft.GatedDeltaNet", "com.microsoft.GatedRMSNorm", "com.microsoft.GatedRelativePositionBias",
    "com.microsoft.GatherBlockQuantized", "com.microsoft.GemmFastGelu",
    "com.microsoft.GemmaRotaryEmbedding", "com.microsoft.GroupNorm", "com.microsoft.GroupQueryAttention",
    "com.microsoft.HyperConnectionLowRankMix", "com.microsoft.HyperConnectionPostMix",
    "com.microsoft.HyperConnectionPreMix", "com.microsoft.Inverse", "com.microsoft.Irfft",
    "com.microsoft.IsAllFinite", "com.microsoft.LinearAttentionGate", "com.microsoft.MRotaryEmbedding",
    "com.microsoft.MatMulBlockQuantizedFp4Weight", "com.microsoft.MatMulBlockQuantizedFp8Weight",
    "com.microsoft.MatMulBnb4", "com.microsoft.MatMulInteger16", "com.microsoft.MatMulIntegerToFloat",
    "com.microsoft.MatMulNBits", "com.microsoft.MatMulNBitsMlp", "com.microsoft.MatMulNBitsQkv",
    "com.microsoft.MoE", "com.microsoft.MulInteger", "com.microsoft.MultiHeadAttention",
    "com.microsoft.NhwcConv", "com.microsoft.NhwcFusedConv", "com.microsoft.NhwcMaxPool",
    "com.microsoft.PagedAttention", "com.microsoft.QAttention", "com.microsoft.QEmbedLayerNormalization",
    "com.microsoft.QGemm", "com.microsoft.QLinearAdd", "com.microsoft.QLinearAveragePool",
    "com.microsoft.QLinearConcat", "com.microsoft.QLinearConv", "com.microsoft.QLinearGlobalAveragePool",
    "com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearMul", "com.microsoft.QLinearReduceMean",
    "com.microsoft.QLinearSigmoid", "com.microsoft.QLinearSoftmax", "com.microsoft.QLinearWhere",
    "com.microsoft.QMoE", "com.microsoft.QuickGelu", "com.microsoft.ReduceSumInteger",
    "com.microsoft.RelativePositionBias", "com.microsoft.Rfft", "com.microsoft.RotaryEmbedding",
    "com.microsoft.RouterGateUpProj", "com.microsoft.ScaledSiLU", "com.microsoft.SkipGroupNorm",
    "com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization",
    "com.microsoft.SparseAttention", "com.microsoft.SwiGLU", "com.microsoft.TorchEmbedding",
    "com.microsoft.TransposeMatMul", "com.microsoft.UnfoldTensor", "com.microsoft.VarlenCausalConvWithState"
    // clang-format on
};

/// Ops that are known only to be refused with a reason.
const std::set<std::string> refused = {
    "NonMaxSuppression", "Unique", "com.microsoft.PackedAttention", "com.microsoft.PackedMultiHeadAttention",
    "com.microsoft.RemovePadding", "com.microsoft.RestorePadding"};

} // namespace

std::vector<std::string> knownOps() {
  std::vector<std::string> ops(claimed.begin(), claimed.end());
  ops.insert(ops.end(), refused.begin(), refused.end());
  return ops;
}

namespace {
/// Forms of claimed ops that the importer refuses: part of the test's name, with a $ behind its end, and what
/// the error must say.
const std::pair<std::string, std::string> refusals[] = {
    {"training_dropout$", "training mode is not supported"},
    {"training_dropout_mask", "training mode is not supported"},
    {"training_dropout_default", "training mode is not supported"},
    {"no_saturate", "without saturation"},
};

/// Tests that are not run, by part of the collection and name, or by its end before a $.
const std::string notRun[] = {
    // The expected numbers have four digits; π has six in old numbers and bodies of windows.
    "test_gridsample_bicubic$", "test_roialign_aligned", "window_expanded", "window_symmetric_expanded",
    "debian_test_blackmanwindow", "debian_test_hammingwindow", "debian_test_hannwindow",
    "averagepool_2d_ceil_last_window_starts_on_pad",
    // ONNX leaves floats beyond the range of an integer type undefined; these expect that they wrap.
    "cast_FLOAT_to_INT4", "cast_FLOAT_to_UINT4", "cast_FLOAT16_to_INT4", "cast_FLOAT16_to_UINT4",
    "castlike_FLOAT_to_INT4", "castlike_FLOAT_to_UINT4", "castlike_FLOAT16_to_INT4",
    "castlike_FLOAT16_to_UINT4",
    // The data of one input does not have the shape that the model declares.
    "debian_test_castlike_BFLOAT16_to_FLOAT", "debian_test_castlike_FLOAT_to_BFLOAT16"};

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

/// The importer takes opset 7 to 28.
bool isOpsetSupported(const NodeTestFolder &test) {
  for (const auto &opset : test.model.opset_import())
    if (opset.domain().empty())
      return opset.version() >= 7 && opset.version() <= 28;
  return false;
}

/// What the error must say if the importer has to refuse the test; empty if the test must pass.
std::string expectedRefusal(const std::string &name) {
  for (const auto &[part, text] : refusals)
    if ((name + "$").find(part) != std::string::npos)
      return text;
  return {};
}

bool isRun(const NodeTestFolder &test) {
  std::string name = test.source + "_" + test.name;
  return std::none_of(std::begin(notRun), std::end(notRun),
                      [&](const std::string &part) {
                        return part.back() == '$' ? name.ends_with(part.substr(0, part.size() - 1))
                                                  : name.find(part) != std::string::npos;
                      });
}

std::vector<size_t> runnable() {
  std::vector<size_t> indices;
  for (size_t i = 0; i < allTests().size(); ++i) {
    const NodeTestFolder &test = allTests()[i];
    if (isClaimed(test) && isOpsetSupported(test) && unsupportedType(test.model).empty() && isRun(test))
      indices.push_back(i);
  }
  return indices;
}

mlir::MLIRContext &context() {
  static mlir::DialectRegistry registry = [] {
    mlir::DialectRegistry dialects;
    registerDialects(dialects);
    return dialects;
  }();
  static mlir::MLIRContext shared(registry, mlir::MLIRContext::Threading::DISABLED);
  shared.loadAllAvailableDialects();
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

/// Old collections keep bf16 as u16.
Tensor asDeclared(const Tensor &tensor, const onnx::proto::ValueInfoProto &value) {
  if (tensor.type() != DType::U16 ||
      value.type().tensor_type().elem_type() != onnx::proto::TensorProto::BFLOAT16)
    return tensor;
  return Tensor::of(DType::BF16, tensor.shape(),
                    std::span(tensor.as<uint16_t>(), static_cast<size_t>(tensor.size())));
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
    inputs[graph.input(static_cast<int>(i)).name()] =
        asDeclared((*given)[i], graph.input(static_cast<int>(i)));
  auto imported = importWith(test.path + "/model.onnx", inputs);
  if (std::string refusal = expectedRefusal(test.name); !refusal.empty()) {
    ASSERT_FALSE(imported) << "is supported now";
    EXPECT_NE(imported.error().message.find(refusal), std::string::npos) << imported.error().message;
    return;
  }
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
    const auto &output = graph.output(static_cast<int>(i));
    auto found = outputs->find(output.name());
    ASSERT_NE(found, outputs->end()) << "no output " << output.name();
    expectSame(found->second, asDeclared((*expected)[i], output), output.name());
  }
}

TEST_P(Node, Conforms) {
  const NodeTestFolder &test = allTests()[GetParam()];
  for (const std::string &folder : dataSets(test))
    runDataSet(test, folder);
  if (!expectedRefusal(test.name).empty())
    return;
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

bool canImport(llvm::StringRef op) {
  auto [domain, name] = op.rsplit('.');
  return onnx::HandlerTable::instance().find(name.empty() ? "" : domain, name.empty() ? op : name);
}

/// The list above is neither behind the importer nor ahead of it.
TEST(NodeTests, ListIsComplete) {
  for (const std::string &op : claimed)
    EXPECT_TRUE(canImport(op)) << op << " is claimed and cannot be imported";
  for (const NodeTestFolder &test : allTests())
    for (const std::string &op : opsOf(test.model))
      EXPECT_TRUE(claimed.contains(op) || refused.contains(op) || !canImport(op)) << op << " is not listed";
}

const auto *const tally = testing::AddGlobalTestEnvironment(new Tally);

} // namespace
} // namespace fusion::test
