#include "passes/shard/AxisClasses.h"

#include "ir/dialect/Types.h"

#include <numeric>

using namespace mlir;

namespace fusion {

AxisClasses::AxisClasses(func::FuncOp function, const nn::SymbolicShapes &shapes, bool vocabulary)
    : shapes(shapes), vocabulary(vocabulary) {
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (op.getNumOperands() == 0 ||
        llvm::all_of(op.getOperands(), [&](Value operand) { return parameters.contains(operand); }))
      parameters.insert(op.result_begin(), op.result_end());
    if (auto shardable = llvm::dyn_cast<nn::Shardable>(op))
      shardable.shardAxes(*this);
    else
      allWhole(&op);
  }
  for (Value result : function.getBody().front().getTerminator()->getOperands())
    if (auto rank = static_cast<unsigned>(shapes[result].size()))
      results.push_back(node(result, rank - 1));
  finish();
}

void AxisClasses::link(Value left, unsigned leftAxis, Value right, unsigned rightAxis) {
  joined.unionSets(node(left, leftAxis), node(right, rightAxis));
}

void AxisClasses::whole(Value value, unsigned axis, const std::string &reason) {
  wholes.push_back({node(value, axis), reason});
}

void AxisClasses::contracted(Value value, unsigned axis, Operation *op) {
  sums.push_back({node(value, axis), op});
}

void AxisClasses::columns(Value value, unsigned axis, Operation *op) {
  columnsOfWeights.push_back({node(value, axis), op});
}

void AxisClasses::normalised(Value value, unsigned axis, Operation *op) {
  norms.push_back({node(value, axis), op});
}

void AxisClasses::lookedUp(Value value, unsigned axis, Operation *op) {
  if (vocabulary)
    lookups.push_back({node(value, axis), op});
  else
    whole(value, axis, siteOf(op) + " looks up along it");
}

void AxisClasses::largest(Value value, unsigned axis, Operation *op) {
  if (vocabulary)
    largests.push_back({node(value, axis), op});
  else
    whole(value, axis, siteOf(op) + " finds the largest along it");
}

void AxisClasses::heads(Value queries, Value keys, unsigned axis) {
  headAxes.push_back(node(queries, axis));
  headAxes.push_back(node(keys, axis));
  if (shape(keys)[axis] == shape(queries)[axis])
    link(keys, axis, queries, axis);
  else
    followers.push_back({node(keys, axis), node(queries, axis)});
}

unsigned AxisClasses::node(Value value, unsigned axis) {
  auto [entry, fresh] = nodes.insert({{value, axis}, static_cast<unsigned>(axes.size())});
  if (fresh) {
    axes.push_back({value, axis});
    joined.insert(entry->second);
  }
  return entry->second;
}

std::optional<AxisClasses::Id> AxisClasses::of(Value value, unsigned axis) const {
  auto entry = nodes.find({value, axis});
  if (entry == nodes.end())
    return std::nullopt;
  return classOf.lookup(joined.getLeaderValue(entry->second));
}

void AxisClasses::finish() {
  for (unsigned index = 0; index < axes.size(); ++index) {
    unsigned leader = joined.getLeaderValue(index);
    auto [entry, fresh] = classOf.insert({leader, static_cast<Id>(all.size())});
    if (fresh)
      all.emplace_back();
    Class &group = all[entry->second];
    group.members.push_back(axes[index]);
    std::optional<int64_t> size = shapes[axes[index].value][axes[index].axis].constant();
    if (size)
      group.units = std::gcd(group.units, *size);
    else if (group.whole.empty())
      group.whole = "its size is not static";
  }
  auto at = [&](unsigned index) -> Class & { return all[classOf.lookup(joined.getLeaderValue(index))]; };
  for (auto &[index, reason] : wholes)
    if (at(index).whole.empty())
      at(index).whole = reason;
  for (auto &[index, op] : columnsOfWeights)
    at(index).columns.push_back(op);
  for (auto &[index, op] : sums)
    at(index).sums.push_back(op);
  for (unsigned index : headAxes)
    at(index).ofHeads = true;
  for (auto &[index, op] : norms) {
    at(index).norms.push_back(op);
    if (!at(index).ofHeads && at(index).whole.empty())
      at(index).whole = siteOf(op) + " normalises over it";
  }
  for (auto &[index, op] : lookups)
    at(index).lookups.push_back(op);
  for (auto &[index, op] : largests)
    at(index).largests.push_back(op);
  for (unsigned index : results)
    at(index).isResult = true;
  for (auto &[keys, queries] : followers) {
    Id first = classOf.lookup(joined.getLeaderValue(keys)),
       second = classOf.lookup(joined.getLeaderValue(queries));
    if (first == second)
      continue;
    all[first].keyHeads = true;
    all[first].companions.push_back(second);
    all[second].companions.push_back(first);
  }
}

} // namespace fusion
