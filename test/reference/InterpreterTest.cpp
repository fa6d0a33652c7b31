#include "test/reference/Testing.h"

#include <set>

namespace fusion::testing {
namespace {

TEST(Interpreter, EveryOpHasAReference) {
  size_t count = 0;
  auto *dialect = context().getLoadedDialect<nn::NNDialect>();
  for (mlir::RegisteredOperationName name : context().getRegisteredOperations())
    if (&name.getDialect() == dialect) {
      ++count;
      EXPECT_TRUE(hasReferenceFunction(name)) << name.getStringRef().str();
    }
  EXPECT_GT(count, 50u);
  EXPECT_FALSE(hasReference(mlir::OperationName("nn.no_such_op", &context())));
}

constexpr const char *block = R"(
func.func @main(%x: tensor<?x?x8xf16> {nn.name = "x", nn.dims = ["batch", "seq", 8]},
                %past: tensor<?x?x8xf16> {nn.name = "past", nn.dims = ["batch", "past + 1", 8]})
    -> (tensor<?x?x8xf16> {nn.name = "y"}, tensor<1xi64>, tensor<?x?x8xf16> {nn.name = "all"}) {
  %w = nn.constant {value = dense<1.5> : tensor<8xf16>} : () -> tensor<8xf16>
  %0 = nn.add %x, %x : (tensor<?x?x8xf16>, tensor<?x?x8xf16>) -> tensor<?x?x8xf16>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x?x8xf16>, tensor<8xf16>) -> tensor<?x?x8xf16>
  %2 = nn.reshape %1 {shape = ["batch*seq", 8]} : (tensor<?x?x8xf16>) -> tensor<?x8xf16>
  %3 = nn.silu %2 : (tensor<?x8xf16>) -> tensor<?x8xf16>
  %4 = nn.reshape %3 {shape = ["batch", "seq", 8]} : (tensor<?x8xf16>) -> tensor<?x?x8xf16>
  %5 = nn.concat %past, %4 {axis = 1 : i64} : (tensor<?x?x8xf16>, tensor<?x?x8xf16>) -> tensor<?x?x8xf16>
  %6 = nn.dim_constant {values = ["past + seq"]} : () -> tensor<1xi64>
  return %4, %6, %5 : tensor<?x?x8xf16>, tensor<1xi64>, tensor<?x?x8xf16>
})";

constexpr const char *grouped = R"(
func.func @main(%x: tensor<?x?x8xf16> {nn.name = "x", nn.dims = ["batch", "seq", 8]},
                %past: tensor<?x?x8xf16> {nn.name = "past", nn.dims = ["batch", "past + 1", 8]})
    -> (tensor<?x?x8xf16> {nn.name = "y"}, tensor<1xi64>, tensor<?x?x8xf16> {nn.name = "all"}) {
  %1, %sum = fusion.group "add_norm" schedule "row" (%a = %x, %b = %x)
      : (tensor<?x?x8xf16>, tensor<?x?x8xf16>) -> (tensor<?x?x8xf16>, tensor<?x?x8xf16>) {
    %w = nn.constant {value = dense<1.5> : tensor<8xf16>} : () -> tensor<8xf16>
    %0 = nn.add %a, %b : (tensor<?x?x8xf16>, tensor<?x?x8xf16>) -> tensor<?x?x8xf16>
    %n = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x?x8xf16>, tensor<8xf16>) -> tensor<?x?x8xf16>
    fusion.yield %n, %0 : tensor<?x?x8xf16>, tensor<?x?x8xf16>
  }
  %4 = fusion.group "pointwise" schedule "pointwise" (%a = %1) : (tensor<?x?x8xf16>) -> tensor<?x?x8xf16> {
    %2 = nn.reshape %a {shape = ["batch*seq", 8]} : (tensor<?x?x8xf16>) -> tensor<?x8xf16>
    %3 = nn.silu %2 : (tensor<?x8xf16>) -> tensor<?x8xf16>
    %5 = nn.reshape %3 {shape = ["batch", "seq", 8]} : (tensor<?x8xf16>) -> tensor<?x?x8xf16>
    fusion.yield %5 : tensor<?x?x8xf16>
  }
  %5 = nn.concat %past, %4 {axis = 1 : i64} : (tensor<?x?x8xf16>, tensor<?x?x8xf16>) -> tensor<?x?x8xf16>
  %6 = nn.dim_constant {values = ["past + seq"]} : () -> tensor<1xi64>
  return %4, %6, %5 : tensor<?x?x8xf16>, tensor<1xi64>, tensor<?x?x8xf16>
})";

Result<NamedTensors> runModule(const char *text, const NamedTensors &inputs) {
  auto module = parse(text);
  auto interpreter = Interpreter::create(*module->getOps<mlir::func::FuncOp>().begin(), "");
  if (!interpreter)
    return interpreter.error();
  return interpreter->run(inputs);
}

NamedTensors inputs() {
  return {{"x", randomTensor(DType::F16, {2, 3, 8}, 71)}, {"past", randomTensor(DType::F16, {2, 6, 8}, 72)}};
}

TEST(Interpreter, BindsSymbolsAndNamesResults) {
  auto outputs = runModule(block, inputs());
  ASSERT_TRUE(bool(outputs)) << outputs.error().message;
  ASSERT_EQ(outputs->size(), 3u);
  EXPECT_EQ(outputs->at("y").shape(), (Shape{2, 3, 8}));
  EXPECT_EQ(outputs->at("all").shape(), (Shape{2, 9, 8}));
  expectEqual(outputs->at("result1"), {8}); // past = 5, seq = 3
  Tensor sum = runOp("nn.add", {inputs()["x"], inputs()["x"]}, "", DType::F16, {2, 3, 8});
  Tensor weight = tensor(DType::F16, {8}, std::vector<double>(8, 1.5));
  Tensor norm = runOp("nn.rms_norm", {sum, weight}, "{eps = 1.0e-6 : f32}", DType::F16, {2, 3, 8});
  expectEqual(outputs->at("y"), values(runOp("nn.silu", {norm}, "", DType::F16, {2, 3, 8})));
}

TEST(Interpreter, AGroupIsItsBody) {
  auto plain = runModule(block, inputs()), fused = runModule(grouped, inputs());
  ASSERT_TRUE(bool(plain));
  ASSERT_TRUE(bool(fused)) << fused.error().message;
  for (const auto &[name, tensor] : *plain)
    expectEqual(fused->at(name), values(tensor));
}

TEST(Interpreter, WrongInputsAreOneClearLine) {
  auto message = [](NamedTensors wrong) {
    auto outputs = runModule(block, wrong);
    EXPECT_FALSE(outputs);
    return outputs ? std::string() : outputs.error().message;
  };
  auto change = [](const std::string &name, Tensor tensor) {
    NamedTensors all = inputs();
    all[name] = std::move(tensor);
    return all;
  };
  NamedTensors missing = inputs();
  missing.erase("past");
  EXPECT_EQ(message(missing), "missing input past (f16 [batch, past + 1, 8])");
  EXPECT_EQ(message(change("z", randomTensor(DType::F16, {1}, 1))), "unknown input z: expected x, past");
  EXPECT_EQ(message(change("x", randomTensor(DType::F32, {2, 3, 8}, 1))), "input x is f32, expected f16");
  EXPECT_NE(message(change("x", randomTensor(DType::F16, {3, 8}, 1))).find("input x has rank 2"),
            std::string::npos);
  EXPECT_EQ(message(change("x", randomTensor(DType::F16, {2, 3, 9}, 1))), "input x dim 2 is 9, expected 8");
  EXPECT_EQ(message(change("past", randomTensor(DType::F16, {4, 6, 8}, 1))),
            "input past dim 0 is 4 but batch is 2 from input x dim 0");
  EXPECT_NE(message(change("past", randomTensor(DType::F16, {2, 0, 8}, 1))).find("past dim 1 is 0"),
            std::string::npos);
}

TEST(Interpreter, ErrorsNameTheOp) {
  auto outputs =
      runModule(R"(
    func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
      %0 = nn.add %x, %y : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32> loc("layers.0.sum")
      return %0 : tensor<?xf32>
    })",
                {{"arg0", randomTensor(DType::F32, {3}, 1)}, {"arg1", randomTensor(DType::F32, {4}, 1)}});
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error().message, "nn.add at layers.0.sum: shapes 3 and 4 do not broadcast");
}

TEST(Interpreter, MissingWeightFileFailsEarly) {
  auto module = parse(R"(
    func.func @main() -> tensor<2xf32> {
      %0 = nn.weight {name = "embed", path = "absent.bin", offset = 0 : i64, length = 8 : i64} : () -> tensor<2xf32>
      return %0 : tensor<2xf32>
    })");
  auto interpreter = Interpreter::create(*module->getOps<mlir::func::FuncOp>().begin(), "/nonexistent");
  ASSERT_FALSE(interpreter);
  EXPECT_EQ(interpreter.error().message,
            "weight embed: no file absent.bin in /nonexistent or in the working folder");
}

TEST(Interpreter, FoldsConstantsOnly) {
  auto module = parse(R"(
    func.func @main(%x: tensor<2xf32>) {
      %a = nn.constant {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
      %b = nn.add %a, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %c = nn.add %a, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %d = nn.reshape %a {shape = ["s", 2]} : (tensor<2xf32>) -> tensor<?x2xf32>
      %e = nn.expand %a {shape = [100, 2]} : (tensor<2xf32>) -> tensor<100x2xf32>
      return
    })");
  auto &ops = (*module->getOps<mlir::func::FuncOp>().begin()).getBody().front().getOperations();
  std::vector<bool> folded;
  for (mlir::Operation &op : ops)
    folded.push_back(foldWithReference(&op, 100).has_value());
  EXPECT_EQ(folded, (std::vector<bool>{false, true, false, false, false, false}));
  auto sum = foldWithReference(&*std::next(ops.begin()), 100);
  expectEqual(toTensor(llvm::cast<mlir::ElementsAttr>(sum->front())), {2, 4});
}

} // namespace
} // namespace fusion::testing
