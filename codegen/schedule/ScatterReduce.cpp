#include "codegen/schedule/ScatterReduce.h"

#include "codegen/body/KernelSource.h"
#include "codegen/body/Printer.h"

#include "ir/dialect/Types.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {

using scalar::Level;

constexpr uint32_t blockThreads = 256;
constexpr int64_t mostBlocks = 65536, width = 4;

/// The type in which elements are reduced. Integers are added and multiplied as u64, which wraps as their own
/// type does.
DType heldAs(DType type, bool isExtreme) {
  if (isFloat(type))
    return scalar::registerType(type);
  return isExtreme && isSignedInteger(type) ? DType::I64 : DType::U64;
}

class Builder {
public:
  Builder(nn::ScatterReduceOp op, const Region &region, const KernelContext &context)
      : op(op), region(region), context(context), source(region, context.inputs),
        target(context.shape(op.getX())), tuples(context.shape(op.getIndices())),
        depth(static_cast<size_t>(tuples.back().value())), type(dtype(op.getX())),
        held(heldAs(type, op.getKind() == "min" || op.getKind() == "max")) {
    tuples.pop_back();
  }

  KernelDraft build() {
    const DimShape slice(target.begin() + static_cast<ptrdiff_t>(depth), target.end());
    source.include("scatter.cuh");
    source.config.set("threads", blockThreads);
    source.config.set("width", width);
    source.config.setType("Held", body::spelling(held));
    writeSlice();
    writeElement();
    writeUpdate(slice);
    const StringRef kind = op.getKind();
    source.body.method(fmt::format("DEVICE {0} reduce({0} a, {0} b) const", body::spelling(held)),
                       std::string(kind == "add"   ? "a + b"
                                   : kind == "mul" ? "a * b"
                                   : kind == "max" ? "larger_of(a, b)"
                                                   : "smaller_of(a, b)"));
    writePut();
    const Dim size = product(target);
    KernelDraft draft = source.finish({.schedule = "scan",
                                       .function = "scatter_reduce",
                                       .arguments = source.size(size) + ", " + source.size(product(tuples)) +
                                                    ", " + source.size(product(slice)),
                                       .name = body::kernelName(region, context),
                                       .threads = blockThreads});
    draft.gridX = Dim::min(size.ceilDiv(width * static_cast<int64_t>(blockThreads)), mostBlocks);
    draft.flops = product(tuples) * product(slice);
    return draft;
  }

private:
  unsigned input(Value value) const {
    return static_cast<unsigned>(llvm::find(region.inputs, value) - region.inputs.begin());
  }
  scalar::Value load(scalar::Graph &graph, Value value, llvm::ArrayRef<scalar::Value> index) {
    return graph.load(source.body.pointer(input(value)),
                      source.body.address(graph, context.inputs[input(value)], index));
  }
  /// A method whose lines return the value.
  void method(const std::string &signature, scalar::Graph &graph, scalar::Value value) {
    body::Printer printer(graph, source.names);
    body::Code code(2);
    printer.enterBlock();
    const std::string text = printer.value(value, code);
    code.line(fmt::format("return {};", text));
    printer.leaveBlock();
    source.body.method(signature, code);
  }

  void writeSlice() {
    scalar::Graph graph;
    auto index = source.body.delinearize(graph, graph.input("update", DType::I64, Level::Element), tuples);
    llvm::SmallVector<scalar::Value> place;
    scalar::Value inside = graph.boolean(true);
    for (size_t i = 0; i < depth; ++i) {
      llvm::SmallVector<scalar::Value> entry(index.begin(), index.end());
      entry.push_back(graph.index(static_cast<int64_t>(i)));
      const scalar::Value size = source.body.size(graph, target[i]), zero = graph.index(0);
      const scalar::Value chosen = graph.convertRegister(DType::I64, load(graph, op.getIndices(), entry));
      const scalar::Value at =
          graph.select(graph.compare(scalar::Kind::Less, chosen, zero), graph.add(chosen, size), chosen);
      inside = graph.both(inside, graph.both(graph.compare(scalar::Kind::GreaterEqual, at, zero),
                                             graph.compare(scalar::Kind::Less, at, size)));
      place.push_back(at);
    }
    const DimShape leading(target.begin(), target.begin() + static_cast<ptrdiff_t>(depth));
    method("DEVICE i64 slice_of(i64 update) const", graph,
           graph.select(inside, source.body.address(graph, leading, place), graph.index(-1)));
  }

  void writeElement() {
    scalar::Graph graph;
    auto index = source.body.delinearize(graph, graph.input("at", DType::I64, Level::Element), target);
    method(fmt::format("DEVICE {} element(i64 at) const", body::spelling(held)), graph,
           graph.convertRegister(held, load(graph, op.getX(), index)));
  }

  void writeUpdate(const DimShape &slice) {
    scalar::Graph graph;
    auto index = source.body.delinearize(graph, graph.input("update", DType::I64, Level::Element), tuples);
    const auto inside = source.body.delinearize(graph, graph.input("at", DType::I64, Level::Element), slice);
    index.append(inside.begin(), inside.end());
    method(fmt::format("DEVICE {} update(i64 update, i64 at) const", body::spelling(held)), graph,
           graph.convertRegister(held, load(graph, op.getUpdates(), index)));
  }

  void writePut() {
    scalar::Graph graph;
    body::Printer printer(graph, source.names);
    body::Code code(2);
    printer.enterBlock();
    const scalar::Value value = graph.convert(type, graph.input("value", held, Level::Element));
    const std::string text = printer.stored({value, type}, code);
    code.line(fmt::format("store({} + at, {});", source.body.output(0), text));
    printer.leaveBlock();
    source.body.method(fmt::format("DEVICE void put(i64 at, {} value) const", body::spelling(held)), code);
  }

  nn::ScatterReduceOp op;
  const Region &region;
  const KernelContext &context;
  body::KernelSource source;
  const DimShape target;
  DimShape tuples;
  size_t depth;
  DType type, held;
};

} // namespace

KernelDraft emitScatterReduce(nn::ScatterReduceOp op, const Region &region, const KernelContext &context) {
  return Builder(op, region, context).build();
}

} // namespace fusion
