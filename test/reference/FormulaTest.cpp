// Formulas and the reference's own functions are two opinions on one op: evaluated, they agree to the last
// bit.
#include "test/reference/Testing.h"

#include "ir/reference/Support.h"

#include "mlir/IR/Verifier.h"

#include <set>

namespace fusion::testing {
namespace {

using mlir::Operation;

Tensor sample(DType type, unsigned seed) {
  Tensor tensor = randomTensor(type, {7, 19}, seed, /*spread=*/3);
  if (!isFloat(type))
    return tensor;
  std::vector<double> numbers = values(tensor);
  for (size_t i = 0; double special : {0.0, -0.0, nan, infinity, -infinity, 0.5, 2.0, -1.5})
    numbers[(seed % 5) + 3 * i++] = special;
  return testing::tensor(type, {7, 19}, numbers);
}

/// One op outside any module.
struct Single {
  Single(llvm::StringRef name, const std::vector<Tensor> &operands, DType result) {
    mlir::OpBuilder builder(&context());
    const mlir::Location location = builder.getUnknownLoc();
    for (const Tensor &operand : operands)
      block.addArgument(nn::typeOf(DimShape(operand.shape().begin(), operand.shape().end()),
                                   mlirType(&context(), operand.type())),
                        location);
    mlir::OperationState state(location, name);
    state.addOperands(llvm::SmallVector<mlir::Value>(block.args_begin(), block.args_end()));
    state.addTypes(mlir::RankedTensorType::get({7, 19}, mlirType(&context(), result)));
    builder.setInsertionPointToEnd(&block);
    op = builder.create(state);
  }
  mlir::Block block;
  Operation *op;
};

struct Tally {
  size_t compared = 0;
  std::set<std::string> unknown; ///< ops that call what only a device has
};

void compareOn(llvm::StringRef name, const std::vector<Tensor> &operands, DType result, Tally &tally) {
  SCOPED_TRACE((name + " of " + fusion::name(operands.back().type()) + " to " + fusion::name(result)).str());
  Single single(name, operands, result);
  mlir::ScopedDiagnosticHandler quiet(&context(), [](mlir::Diagnostic &) { return mlir::success(); });
  auto expected = mlir::succeeded(mlir::verify(single.op)) ? evaluate(single.op, operands, {}) : badInput("");
  if (!expected)
    return; // not an op of these types
  auto actual = reference::evaluateFormula({single.op, operands, {}, {}});
  if (!actual) {
    EXPECT_NE(actual.error().message.find("its formula calls"), std::string::npos) << actual.error().message;
    tally.unknown.insert(name.str());
    return;
  }
  ++tally.compared;
  EXPECT_EQ(actual->front().type(), result);
  // The two forms of this one cancel differently in f64.
  const double absolute = name == nn::GeluOp::getOperationName() ? 1e-15 : 0;
  expectNear(actual->front(), values(expected->front()), 0, absolute);
}

constexpr DType types[] = {DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8,  DType::U8,
                           DType::I32, DType::U32, DType::I64,  DType::U64, DType::Bool};

void compareOp(mlir::RegisteredOperationName name, Tally &tally) {
  const bool isCast = name.getStringRef() == nn::CastOp::getOperationName();
  const bool isWhere = name.getStringRef() == nn::WhereOp::getOperationName();
  for (DType type : types) {
    std::vector<Tensor> operands;
    if (isWhere)
      operands.push_back(sample(DType::Bool, 4));
    operands.push_back(sample(type, 1));
    if (!name.hasTrait<mlir::OpTrait::OneOperand>())
      operands.push_back(sample(type, 2));
    if (!isCast)
      compareOn(name.getStringRef(), operands, name.hasTrait<nn::BoolResult>() ? DType::Bool : type, tally);
    for (DType to : types)
      if (isCast)
        compareOn(name.getStringRef(), operands, to, tally);
  }
}

TEST(Formula, EveryElementwiseOpMeansTheSame) {
  Tally tally;
  size_t ops = 0;
  for (mlir::RegisteredOperationName name : context().getRegisteredOperations())
    if (reference::hasFormula(name) && hasReferenceFunction(name)) {
      ++ops;
      compareOp(name, tally);
    }
  EXPECT_GT(ops, 38u);
  EXPECT_GT(tally.compared, 300u);
  // These have a function of their own in codegen/device.
  EXPECT_EQ(tally.unknown, (std::set<std::string>{"nn.gelu", "nn.sigmoid", "nn.silu", "nn.softplus"}));
}

TEST(Formula, OperandsBroadcastAsElsewhere) {
  const std::vector<Tensor> operands = {randomTensor(DType::F16, {3, 1, 5}, 1),
                                        randomTensor(DType::F16, {700, 1}, 2)};
  auto module =
      parse("func.func @f(%a: tensor<3x1x5xf16>, %b: tensor<700x1xf16>) {"
            "%r = nn.add %a, %b : (tensor<3x1x5xf16>, tensor<700x1xf16>) -> tensor<3x700x5xf16> return }");
  Operation *op = &(*module->getOps<mlir::func::FuncOp>().begin()).getBody().front().front();
  auto expected = evaluate(op, operands, {});
  auto actual = reference::evaluateFormula({op, operands, {}, {}});
  ASSERT_TRUE(expected && actual);
  EXPECT_EQ(actual->front().shape(), (Shape{3, 700, 5}));
  expectEqual(actual->front(), values(expected->front()));
}

} // namespace
} // namespace fusion::testing
