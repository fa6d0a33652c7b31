// Kernels in which warps, blocks or clusters walk the rows of an operand along one dim: see
// codegen/device/scan.cuh for what their bodies have.
#pragma once

#include "codegen/body/KernelSource.h"
#include "codegen/body/Printer.h"
#include "codegen/schedule/Schedules.h"

#include "ir/dialect/Types.h"

#include <fmt/format.h>

namespace fusion::scan {

constexpr uint32_t blockThreads = 256, longThreads = 1024;
constexpr int64_t longRow = 4096; ///< elements of a row that is worth a block of longThreads
constexpr int64_t clusterRow = 32768; ///< and of one that is worth a cluster of these
constexpr uint32_t clusterBlocks = 8; ///< the largest that every GPU with clusters has
/// Of which a multiprocessor has room for several, so that the rows of a batch do not come one after another.
constexpr uint32_t clusterThreads = 512;
constexpr int64_t mostBlocks = 65536;

inline size_t normalised(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

/// A kernel in which each warp, or each block, walks the rows of the op's first operand along `axis`.
class RowWalk {
public:
  RowWalk(const Region &region, const KernelContext &context, int64_t axis)
      : region(region), context(context), input(indexOf(region, region.ops[0]->getOperand(0))),
        view(context.inputs[input]), shape(context.shape(region.inputs[input])),
        axis(normalised(axis, shape.size())), rows(shape), source(region, context.inputs),
        printer(graph, source.names) {
    rows[this->axis] = 1;
    index = source.body.delinearize(graph, graph.input("row", DType::I64, scalar::Level::Row), rows);
    index[this->axis] = graph.input("at", DType::I64, scalar::Level::Element);
  }

  /// The element of the operand at `at`.
  scalar::Value element() {
    return graph.load(source.body.pointer(input), source.body.address(graph, view, index));
  }
  static unsigned indexOf(const Region &region, mlir::Value value) {
    return static_cast<unsigned>(llvm::find(region.inputs, value) - region.inputs.begin());
  }
  /// Body::element gives `loaded`; Body::put writes `stored` at `place` of the result. `count`: an argument
  /// of the function behind the rows' number and length. A region without a result has no put.
  KernelDraft finish(const char *function, DType held, scalar::Value loaded, body::Result stored,
                     scalar::Value place, const char *putSignature, const Dim *count = nullptr,
                     const std::string &lastArgument = "") {
    const scalar::Value roots[] = {loaded, stored.value, place};
    body::Code begin(2), load(2), store(2);
    source.body.member("i64", "row");
    begin.line("row = index;");
    for (const body::Member &member : printer.hoistMembers(roots, scalar::Level::Row, begin))
      source.body.member(member.type, member.name);
    const std::string heldType = body::spelling(held);
    const std::string loads = width == 0 ? fmt::format("DEVICE {} element(i64 at) const", heldType)
                                         : fmt::format("DEVICE void elements(i64 at, {} (&held)[{}]) const",
                                                       heldType, width);
    printer.enterBlock();
    if (width > 1) {
      const std::string type = body::spelling(dtype(region.inputs[input])),
                        at = printer.value(source.body.address(graph, view, index), load);
      load.line(fmt::format("const Vec<{0}, {1}> loaded = load_vec<{0}, {1}>({2} + {3});", type, width,
                            source.body.input(input), at));
      load.line(fmt::format("for (int i = 0; i < {}; ++i)", width));
      load.line(fmt::format("  held[i] = held_as<{}>(loaded, i);", heldType));
    } else {
      const std::string element = printer.value(loaded, load);
      load.line(width == 0 ? "return " + element + ";" : "held[0] = " + element + ";");
    }
    printer.leaveBlock();
    printer.enterBlock();
    if (!region.outputs.empty()) {
      const std::string to = printer.value(place, store), result = printer.stored(stored, store);
      store.line(fmt::format("store({} + {}, {});", source.body.output(0), to, result));
    }
    printer.leaveBlock();
    source.include(file);
    source.config.set("threads", threads);
    source.config.setType("Held", heldType);
    source.body.method("DEVICE void begin_row(i64 index)", begin);
    source.body.method(loads, load);
    if (!store.empty())
      source.body.method(putSignature, store);
    std::string arguments = source.size(product(rows)) + ", " + source.size(shape[axis]);
    if (count)
      arguments += ", " + source.size(*count);
    if (!lastArgument.empty())
      arguments += ", " + lastArgument;
    KernelDraft draft = source.finish({.schedule = "scan",
                                       .function = function,
                                       .arguments = std::move(arguments),
                                       .name = name.empty() ? body::kernelName(region, context) : name,
                                       .threads = threads,
                                       .residentBlocks = cluster > 1 ? 2u : 0u,
                                       .clusterBlocks = cluster});
    draft.gridX = Dim::min(product(rows).ceilDiv(rowsPerBlock), mostBlocks) * Dim(cluster);
    draft.flops = product(shape);
    return draft;
  }

  /// A block takes a row.
  void takeBlocks() {
    threads = isLong() ? longThreads : blockThreads;
    rowsPerBlock = 1;
  }
  /// A cluster takes a row, if it is long enough.
  void takeClusters() {
    takeBlocks();
    if (shape[axis].constant().value_or(0) >= clusterRow && context.target.has(Feature::Clusters)) {
      cluster = clusterBlocks;
      threads = clusterThreads;
    }
    source.config.set("cluster", int64_t(cluster));
  }
  /// Body::elements loads neighbours of a row, as many as fit 16 bytes, where they lie side by side.
  void readVectors() {
    auto fits = [&](int64_t width) {
      for (size_t dim = 0; dim < shape.size(); ++dim)
        if (dim == axis ? view.strides[dim] != Dim(1) || !shape[dim].knownMultipleOf(width)
                        : !view.strides[dim].knownMultipleOf(width))
          return false;
      return view.offset.knownMultipleOf(width);
    };
    width = 16 / static_cast<int64_t>(byteSize(dtype(region.inputs[input])));
    while (width > 1 && !fits(width))
      width /= 2;
    source.config.set("width", width);
  }
  bool isLong() const { return shape[axis].constant().value_or(longRow) >= longRow; }

  const Region &region;
  const KernelContext &context;
  const unsigned input; ///< of the region
  const View &view;
  uint32_t threads = blockThreads, cluster = 1;
  int64_t rowsPerBlock = blockThreads / 32;
  int64_t width = 0; ///< of Body::elements; 0: Body::element
  const char *file = "scan.cuh";
  std::string name; ///< of the kernel; empty: by its ops and its result
  DimShape shape;
  size_t axis;
  DimShape rows;
  scalar::Graph graph;
  body::KernelSource source;
  body::Printer printer;
  llvm::SmallVector<scalar::Value> index;
};

} // namespace fusion::scan
