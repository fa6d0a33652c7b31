#include "codegen/schedule/RowParts.h"

#include "codegen/OutputSlices.h"

#include "llvm/ADT/IntEqClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <numeric>

using namespace mlir;

namespace fusion::row {

namespace {
/// An op that only stands for a number, so that reading it ties no chains together.
bool isNumber(Operation *op) { return isa<nn::ConstantOp, nn::DimConstantOp>(op); }

/// Slices of outputs and the ops that compute them.
struct Chain {
  std::vector<OutputSlice> slices;
  llvm::SmallSetVector<Operation *, 8> ops;
};

/// The chains of a region that share no op, in the order of their last slices.
llvm::SmallVector<Chain, 0> chainsOf(const Region &region, llvm::ArrayRef<OutputSlice> slices) {
  const llvm::DenseSet<Value> inputs(region.inputs.begin(), region.inputs.end());
  llvm::IntEqClasses chainOfSlice(static_cast<unsigned>(slices.size()));
  llvm::MapVector<Operation *, unsigned> firstReader; // the slice that an op was found for
  for (auto [index, slice] : llvm::enumerate(slices)) {
    llvm::SmallVector<Value> pending{slice.value};
    while (!pending.empty()) {
      Value value = pending.pop_back_val();
      Operation *op = inputs.contains(value) ? nullptr : value.getDefiningOp();
      if (!op || isNumber(op))
        continue;
      auto [reader, isNew] = firstReader.insert({op, static_cast<unsigned>(index)});
      if (isNew)
        pending.append(op->operand_begin(), op->operand_end());
      else
        chainOfSlice.join(reader->second, static_cast<unsigned>(index));
    }
  }
  chainOfSlice.compress();
  llvm::SmallVector<size_t> last(chainOfSlice.getNumClasses()), order(last.size());
  for (size_t index = 0; index < slices.size(); ++index)
    last[chainOfSlice[static_cast<unsigned>(index)]] = index;
  std::iota(order.begin(), order.end(), size_t(0));
  llvm::sort(order, [&](size_t a, size_t b) { return last[a] < last[b]; });
  llvm::SmallVector<size_t> place(order.size());
  for (auto [index, chain] : llvm::enumerate(order))
    place[chain] = index;
  llvm::SmallVector<Chain, 0> chains(order.size());
  for (auto [index, slice] : llvm::enumerate(slices))
    chains[place[chainOfSlice[static_cast<unsigned>(index)]]].slices.push_back(slice);
  for (auto [op, slice] : firstReader)
    chains[place[chainOfSlice[slice]]].ops.insert(op);
  return chains;
}

std::variant<Part, std::string> partOf(const Region &region, const KernelContext &context) {
  auto graph = buildGraph(region, context);
  if (auto *reason = std::get_if<std::string>(&graph))
    return std::move(*reason);
  auto layout = chooseLayout(std::get<Graph>(graph), context.range());
  if (auto *reason = std::get_if<std::string>(&layout))
    return std::move(*reason);
  return Part(std::move(std::get<Graph>(graph)), std::get<Layout>(layout));
}

/// Whether two chains read one tensor as large as what they write: rows in common save reading it twice.
bool shareATensor(llvm::ArrayRef<Chain> chains, const Region &region, const KernelContext &context) {
  return llvm::any_of(region.inputs, [&](Value input) {
    return llvm::count_if(chains, [&](const Chain &chain) {
             return product(context.shape(input)) ==
                        product(context.shape(chain.slices[0].value)) &&
                    llvm::any_of(input.getUsers(), [&](Operation *user) { return chain.ops.contains(user); });
           }) > 1;
  });
}

/// Each chain over rows of its own.
std::variant<Parts, std::string> partsOf(llvm::ArrayRef<Chain> chains, const Region &region,
                                         const KernelContext &context) {
  Parts parts;
  for (const Chain &chain : chains) {
    Region own;
    own.inputs = region.inputs;
    own.anchor = region.anchor;
    for (Operation *op : region.ops)
      if (isNumber(op) || chain.ops.contains(op))
        own.ops.push_back(op);
    llvm::SmallVector<View> targets;
    std::vector<std::optional<RowPlacement>> placements;
    for (const OutputSlice &slice : chain.slices) {
      own.outputs.push_back(slice.value);
      targets.push_back(slice.target);
      placements.push_back(slice.placement);
    }
    KernelContext placed = context;
    placed.outputs = targets;
    placed.placements = placements;
    auto part = partOf(own, placed);
    if (auto *reason = std::get_if<std::string>(&part))
      return std::move(*reason);
    parts.push_back(std::move(std::get<Part>(part)));
    for (Store &store : parts.back().graph.stores)
      store.access.index = chain.slices[store.access.index].output;
  }
  // One size of block for all: what the longest rows want.
  uint32_t threads = 0;
  for (const Part &part : parts)
    threads = std::max(threads, part.layout.blockThreads);
  for (Part &part : parts)
    if (part.layout.blockThreads != threads) {
      auto layout = chooseLayout(part.graph, nullptr, threads);
      if (auto *reason = std::get_if<std::string>(&layout))
        return std::move(*reason);
      part.layout = std::get<Layout>(layout);
    }
  return std::move(parts);
}

/// Whether every output is one slice, contiguous in a buffer of its own.
bool isWhole(llvm::ArrayRef<OutputSlice> slices, const Region &region, const KernelContext &context) {
  return slices.size() == region.outputs.size() && llvm::all_of(slices, [&](const OutputSlice &slice) {
           return slice.value == region.outputs[slice.output] &&
                  slice.target == View::contiguous(slice.target.base, context.shape(slice.value));
         });
}

} // namespace

std::variant<Parts, std::string> partsOf(const Region &region, const KernelContext &context) {
  const llvm::SmallVector<OutputSlice> slices = outputSlicesOf(region, context);
  const llvm::SmallVector<Chain, 0> chains = chainsOf(region, slices);
  const bool whole = isWhole(slices, region, context);
  std::string why;
  if (!whole || (chains.size() > 1 && !shareATensor(chains, region, context))) {
    auto parts = partsOf(chains, region, context);
    if (std::holds_alternative<Parts>(parts) || !whole)
      return parts;
    why = std::get<std::string>(parts);
  }
  auto part = partOf(region, context);
  if (auto *reason = std::get_if<std::string>(&part))
    return why.empty() ? std::move(*reason) : why;
  Parts parts;
  parts.push_back(std::move(std::get<Part>(part)));
  return std::move(parts);
}

} // namespace fusion::row
