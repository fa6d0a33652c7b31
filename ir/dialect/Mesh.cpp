#include "ir/dialect/Mesh.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fusion::nn {

SmallVector<MeshAxis> meshOf(func::FuncOp function) {
  SmallVector<MeshAxis> axes;
  if (auto mesh = function->getAttrOfType<DictionaryAttr>(meshAttr))
    for (NamedAttribute axis : mesh)
      axes.push_back({axis.getName().str(), llvm::cast<IntegerAttr>(axis.getValue()).getInt()});
  return axes;
}

std::optional<int64_t> ranksOf(func::FuncOp function) {
  const SmallVector<MeshAxis> axes = meshOf(function);
  if (axes.empty())
    return std::nullopt;
  int64_t ranks = 1;
  for (const MeshAxis &axis : axes)
    ranks *= axis.ranks;
  return ranks;
}

void setMesh(func::FuncOp function, const MeshAxis &axis) {
  Builder builder(function.getContext());
  function->setAttr(meshAttr, builder.getDictionaryAttr(
                                  builder.getNamedAttr(axis.name, builder.getI64IntegerAttr(axis.ranks))));
}

Status checkSums(func::FuncOp function) {
  const SmallVector<MeshAxis> axes = meshOf(function);
  if (axes.size() > 1) {
    auto shown = llvm::map_range(
        axes, [](const MeshAxis &axis) { return axis.name + " = " + std::to_string(axis.ranks); });
    return badInput("the ranks are a mesh of " + std::to_string(axes.size()) + " axes (" +
                    llvm::join(shown, ", ") + "); only ranks along one axis can be run yet");
  }
  if (axes.empty() || axes.front().ranks == 1)
    return {};
  const std::string &own = axes.front().name;
  AllReduceOp other;
  function.walk([&](AllReduceOp sum) {
    if (!other && sum.getGroup() != own)
      other = sum;
  });
  if (!other)
    return {};
  const std::string where = locationName(other->getLoc());
  return badInput("nn.all_reduce" + (where.empty() ? "" : " at " + where) + " sums over the mesh axis \"" +
                  other.getGroup().str() + "\", but the ranks are the axis \"" + own +
                  "\"; sums over another axis cannot be run yet");
}

LogicalResult verifyMesh(Operation *op, Attribute attribute) {
  auto mesh = llvm::dyn_cast<DictionaryAttr>(attribute);
  auto isSize = [](NamedAttribute axis) {
    auto size = llvm::dyn_cast<IntegerAttr>(axis.getValue());
    return size && size.getType().isInteger(64) && size.getInt() > 0;
  };
  if (!llvm::isa<func::FuncOp>(op) || !mesh || mesh.empty() || !llvm::all_of(mesh, isSize))
    return op->emitError() << meshAttr
                           << " is for functions and gives each axis a positive size: {tp = 4 : i64}";
  return success();
}

} // namespace fusion::nn
