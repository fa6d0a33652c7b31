#include "ir/dialect/SymbolsOf.h"

#include "ir/dialect/Shapes.h"

using namespace mlir;

namespace fusion::nn {

std::set<std::string> symbolsOf(Operation *op, const SymbolicShapes &shapes) {
  std::set<std::string> symbols;
  auto see = [&](const DimShape &dims) {
    for (const Dim &dim : dims)
      symbols.merge(dim.symbols());
  };
  for (Value operand : op->getOperands())
    see(shapes[operand]);
  op->walk([&](Operation *inner) {
    for (Value result : inner->getResults())
      see(shapes[result]);
    for (NamedAttribute attribute : inner->getAttrs())
      if (auto dims = llvm::dyn_cast<ArrayAttr>(attribute.getValue()); dims && isDimsAttr(dims))
        see(dimsFromAttr(dims));
  });
  return symbols;
}

} // namespace fusion::nn
