#include "Wide.h"

#include "ir/dialect/Build.h"
#include "ir/reference/Reference.h"

#include "mlir/IR/AttrTypeSubElements.h"

namespace fusion::fuzz {

static bool isWidened(mlir::Type type) { return type.isF16() || type.isBF16() || type.isF32(); }

/// Constants of the tensor types whose elements become f64; attributes that are numbers, such as an eps,
/// stay.
static mlir::Attribute widened(mlir::DenseElementsAttr values) {
  const mlir::Type wide = mlir::Float64Type::get(values.getContext());
  return values.mapValues(wide, [](const llvm::APFloat &value) {
    llvm::APFloat copy = value;
    bool loses = false;
    copy.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &loses);
    return copy.bitcastToAPInt();
  });
}

Result<NamedTensors> runWide(mlir::func::FuncOp function, const NamedTensors &inputs) {
  mlir::OwningOpRef<mlir::func::FuncOp> copy = function.clone();
  const mlir::Type wide = mlir::Float64Type::get(function.getContext());
  copy->walk([&](mlir::Operation *op) {
    for (const mlir::NamedAttribute &attribute : llvm::to_vector(op->getAttrs()))
      if (auto values = llvm::dyn_cast<mlir::DenseElementsAttr>(attribute.getValue());
          values && isWidened(values.getElementType()))
        op->setAttr(attribute.getName(), widened(values));
  });
  mlir::AttrTypeReplacer replacer;
  replacer.addReplacement([&](mlir::RankedTensorType type) -> mlir::Type {
    return isWidened(type.getElementType())
               ? mlir::RankedTensorType::get(type.getShape(), wide, type.getEncoding())
               : type;
  });
  replacer.recursivelyReplaceElementsIn(copy->getOperation(), /*replaceAttrs=*/false, /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
  copy->setFunctionType(llvm::cast<mlir::FunctionType>(replacer.replace(copy->getFunctionType())));
  auto interpreter = Interpreter::create(*copy, "");
  if (!interpreter)
    return interpreter.error();
  NamedTensors moved;
  for (const auto &[name, tensor] : inputs)
    moved[name] =
        isFloat(tensor.type()) && byteSize(tensor.type()) > 1 ? tensor.convertedTo(DType::F64) : tensor;
  return interpreter->run(moved);
}

Result<NamedTensors> runWithoutTails(mlir::func::FuncOp function, const NamedTensors &inputs) {
  mlir::OwningOpRef<mlir::func::FuncOp> copy = function.clone();
  copy->walk([&](nn::GeluOp op) {
    if (op.getApproximate() == "quick")
      return;
    mlir::OpBuilder builder(op);
    builder.setInsertionPointAfter(op);
    const mlir::Type type = mlir::getElementTypeOrSelf(op.getX().getType());
    auto number = [&](double value) { return nn::buildScalar(builder, op.getLoc(), type, value); };
    auto isTail = nn::build<nn::LessOp>(builder, op.getLoc(), {op.getX(), number(-5)});
    auto cut = nn::build<nn::WhereOp>(builder, op.getLoc(), {isTail, number(0), op.getY()});
    op.getY().replaceAllUsesExcept(cut, cut);
  });
  auto interpreter = Interpreter::create(*copy, "");
  return interpreter ? interpreter->run(inputs) : Result<NamedTensors>(interpreter.error());
}

} // namespace fusion::fuzz
