// Which vectors of a row are loaded ahead of the arithmetic.
#include "codegen/schedule/RowEmitter.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

/// 32-bit registers that may hold vectors loaded ahead; beyond it they would crowd out the values kept between
/// sweeps.
static constexpr int64_t mostRegisters = 48;

bool Emitter::isConstant(const Node *load) const {
  // No kernel writes these, so that they can be read before the kernels ahead have finished.
  Operation *producer = context.inputs[load->access.index].base.getDefiningOp();
  return producer && isa<nn::WeightOp, nn::ConstantOp>(producer);
}

void Emitter::choosePreloads() {
  if (!layout.inRegisters || !vectors())
    return;
  // Loads of the thread's own columns; what a Move reads lies elsewhere.
  std::set<const Node *> seen;
  std::vector<const Node *> pending, loads;
  for (const Store &store : graph.stores)
    pending.push_back(store.value);
  while (!pending.empty()) {
    const Node *node = pending.back();
    pending.pop_back();
    if (node->kind == Node::Kind::Move || !seen.insert(node).second)
      continue;
    if (node->kind == Node::Kind::Load && node->level == Level::Element && isVectorAccess(node->access, layout.vector))
      loads.push_back(node);
    pending.insert(pending.end(), node->operands.begin(), node->operands.end());
  }
  int64_t left = mostRegisters;
  for (bool constants : {true, false})
    for (const Node &node : graph.nodes) { // in the order of the graph, so that the text is always the same
      if (!llvm::is_contained(loads, &node) || isConstant(&node) != constants)
        continue;
      const int64_t bytes = layout.chunks * layout.vector * static_cast<int64_t>(byteSize(node.access.type));
      if (bytes / 4 > left)
        continue;
      left -= bytes / 4;
      preloads.push_back(&node);
    }
}

void Emitter::preload(bool constants) {
  for (const Node *node : preloads) {
    if (isConstant(node) != constants)
      continue;
    const std::string type = sourceType(node->access.type).str();
    const std::string name = writer.fresh("v");
    preloaded[node] = name;
    const std::string column =
        fmt::format("k * {} + {}", layout.vector * static_cast<int64_t>(layout.threadsPerRow), threadStart());
    writer.line(fmt::format("Vec<{}, {}> {}[{}];", type, layout.vector, name, layout.chunks));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", layout.chunks));
    const bool guarded = layout.guarded(*graph.width.constant());
    if (guarded)
      writer.line(fmt::format("if ({} < {}) {{", column, writer.size(graph.width)));
    const std::string offset = columnOffset(node->access, column);
    writer.line(
        fmt::format("{}[k] = load_vec<{}, {}>({} + {});", name, type, layout.vector, pointerNames.at(node), offset));
    if (guarded)
      writer.line("}");
    writer.line("}");
  }
}

} // namespace fusion::row
