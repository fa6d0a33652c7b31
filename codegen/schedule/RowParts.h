// Chains of ops of a region, each over rows of its own.
#pragma once

#include "codegen/schedule/RowLayout.h"

#include <deque>

namespace fusion::row {

struct Part {
  Part(Graph graph, const Layout &layout) : graph(std::move(graph)), layout(layout) {}
  Part(Part &&) = default;
  Part(const Part &) = delete;
  Graph graph;
  Layout layout;
  Dim blocks() const { return graph.rows.ceilDiv(static_cast<int64_t>(layout.rowsPerBlock())); }
};
/// Nodes point at each other, so a part is never copied: a vector would copy as it grows.
using Parts = std::deque<Part>;

/// The chains apart, as a thread that holds rows of several runs out of registers; all over one set of rows
/// if they read a tensor in common, or fit no other way. The reason if there is no such kernel.
std::variant<Parts, std::string> partsOf(const Region &region, const KernelContext &context);

} // namespace fusion::row
