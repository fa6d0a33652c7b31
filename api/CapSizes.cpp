#include "api/CapSizes.h"

#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

#include <map>

using namespace mlir;

namespace fusion {

namespace {
constexpr int64_t largest = 1024, step = 128;

using SizeMap = std::map<int64_t, int64_t>;

/// Every large size in the types of the function's arguments, and what it becomes.
SizeMap chooseSizes(func::FuncOp function, int64_t least) {
  SizeMap sizes;
  for (Type type : function.getArgumentTypes())
    for (int64_t size : llvm::cast<RankedTensorType>(type).getShape())
      if (!ShapedType::isDynamic(size) && size > largest)
        sizes[size];
  for (auto &[from, to] : sizes) {
    to = std::min(from, least + from % step);
    least += step;
  }
  return sizes;
}

bool saysSizes(Operation *op) {
  if (llvm::isa<nn::ConstantOp>(op))
    return !constantScalar(op->getResult(0)) && tensorType(op->getResult(0)).getNumElements() > largest;
  return llvm::any_of(op->getAttrs(), [](NamedAttribute attribute) {
    auto dims = llvm::dyn_cast<ArrayAttr>(attribute.getValue());
    return dims && nn::isDimsAttr(dims);
  });
}

Type mapped(Type type, const SizeMap &sizes) {
  auto tensor = llvm::cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  for (int64_t &size : shape)
    if (auto found = sizes.find(size); found != sizes.end())
      size = found->second;
  return tensor.clone(shape);
}

void setSizes(func::FuncOp function, const SizeMap &sizes) {
  auto retype = [&](Value value) {
    value.setType(llvm::cast<RankedTensorType>(mapped(value.getType(), sizes)));
  };
  for (BlockArgument argument : function.getArguments()) {
    retype(argument);
    DimShape dims;
    for (const Dim &dim : nn::argumentDims(function, argument.getArgNumber())) {
      auto found = dim.isStatic() ? sizes.find(dim.value()) : sizes.end();
      dims.push_back(found == sizes.end() ? dim : Dim(found->second));
    }
    function.setArgAttr(argument.getArgNumber(), nn::dimsAttr, nn::dimsToAttr(function.getContext(), dims));
  }
  function.getBody().walk([&](Operation *op) {
    llvm::for_each(op->getResults(), retype);
    for (Region &region : op->getRegions())
      llvm::for_each(region.getArguments(), retype);
  });
  SmallVector<Type> results(function.getBody().front().getTerminator()->getOperandTypes());
  SmallVector<Type> arguments(function.getBody().getArgumentTypes());
  function.setType(FunctionType::get(function.getContext(), arguments, results));
}
} // namespace

bool capSizes(func::FuncOp function, int64_t least) {
  SizeMap sizes = chooseSizes(function, least);
  bool multiplies = false, fixed = false;
  function.walk([&](Operation *op) {
    multiplies |= llvm::isa<nn::MatmulOp>(op);
    fixed |= op != function && saysSizes(op);
  });
  if (sizes.empty() || !multiplies || fixed)
    return false;
  OwningOpRef<ModuleOp> trial = ModuleOp::create(function.getLoc());
  trial->push_back(function.clone());
  auto copy = *trial->getOps<func::FuncOp>().begin();
  setSizes(copy, sizes);
  ScopedDiagnosticHandler silent(function.getContext(), [](Diagnostic &) { return success(); });
  if (failed(nn::SymbolicShapes::compute(copy)) || failed(verify(*trial)))
    return false;
  setSizes(function, sizes);
  return true;
}

} // namespace fusion
