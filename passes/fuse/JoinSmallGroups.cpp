// Groups and single elementwise ops that share nothing, such as the counters of all layers, in one kernel:
// they are so small that launching them costs more than what they do.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Dialect.h"

#include "llvm/ADT/SetVector.h"

#include <map>

using namespace mlir;

namespace fusion {

namespace {
constexpr double mostElements = 1 << 16;
/// Inputs and results of one kernel.
constexpr size_t mostPorts = 128;

struct SmallGroup {
  const Candidate *candidate;
  GroupPorts ports;
};
/// Groups that become one, in the order of the block.
using Row = SmallVector<SmallGroup>;

/// What computes the value, if that is no view of something else.
Operation *sourceOf(Value value, ScheduleOracle &oracle) {
  while (value.getDefiningOp() && oracle.isView(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value.getDefiningOp();
}

/// What follows from weights alone is computed when they are loaded.
bool readsWeightsAlone(const GroupPorts &ports, ScheduleOracle &oracle) {
  return llvm::all_of(ports.inputs, [&](Value value) {
    Operation *source = sourceOf(value, oracle);
    return source && nn::isStored(source);
  });
}

size_t countPorts(const SmallGroup &group) { return group.ports.inputs.size() + group.ports.outputs.size(); }

/// Whether all that the group reads is there when the row's first group may run: however many rows are made,
/// none then waits for itself.
bool mayJoin(const SmallGroup &group, const Row &row, ScheduleOracle &oracle) {
  size_t ports = countPorts(group);
  for (const SmallGroup &other : row)
    ports += countPorts(other);
  Operation *first = row.front().candidate->ops.front();
  return ports <= mostPorts && llvm::all_of(group.ports.inputs, [&](Value value) {
           Operation *source = sourceOf(value, oracle);
           return !source || nn::isStored(source) || source->isBeforeInBlock(first);
         });
}

Candidate join(ArrayRef<SmallGroup> groups) {
  llvm::SmallSetVector<Operation *, 8> ops, clones;
  for (const SmallGroup &group : groups) {
    ops.insert(group.candidate->ops.begin(), group.candidate->ops.end());
    clones.insert(group.candidate->clones.begin(), group.candidate->clones.end());
  }
  Candidate joined;
  joined.pattern = "pointwise";
  joined.root = groups.back().candidate->root;
  joined.ops = ops.takeVector();
  joined.clones = clones.takeVector();
  auto isBefore = [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); };
  llvm::sort(joined.ops, isBefore);
  llvm::sort(joined.clones, isBefore);
  return joined;
}

bool isOneKernel(const Candidate &candidate, ScheduleOracle &oracle) {
  const DenseSet<Operation *> members(candidate.ops.begin(), candidate.ops.end());
  for (Operation *clone : candidate.clones) // of one group, and a member of another
    if (members.contains(clone) || llvm::any_of(clone->getOperands(), [&](Value operand) {
          return operand.getDefiningOp() && members.contains(operand.getDefiningOp());
        }))
      return false;
  return bool(oracle.schedule(candidate.body(), portsOf(candidate.ops, candidate.clones)));
}
} // namespace

/// Ops of elementwise groups that have a name: they keep it.
static DenseSet<Operation *> namedOps(ArrayRef<Candidate> found) {
  DenseSet<Operation *> named;
  for (const Candidate &candidate : found)
    if (llvm::all_of(candidate.ops, [](Operation *op) { return op->hasTrait<nn::Pointwise>(); }))
      named.insert(candidate.ops.begin(), candidate.ops.end());
  return named;
}

std::vector<Candidate> joinSmallGroups(const ProposalContext &context, ArrayRef<Candidate> candidates) {
  SmallVector<const Candidate *> inOrder;
  for (const Candidate &candidate : candidates)
    inOrder.push_back(&candidate);
  llvm::sort(inOrder, [](const Candidate *a, const Candidate *b) {
    return a->ops.front()->isBeforeInBlock(b->ops.front());
  });
  const DenseSet<Operation *> named = namedOps(context.found);
  std::map<DimShape, std::vector<Row>> rowsOfShape;
  for (const Candidate *candidate : inOrder) {
    Value result = candidate->root->getResult(0);
    SmallGroup group{candidate, portsOf(candidate->ops, candidate->clones)};
    if (context.traffic.elements(result) > mostElements || readsWeightsAlone(group.ports, context.oracle) ||
        llvm::any_of(candidate->ops, [&](Operation *op) { return named.contains(op); }))
      continue;
    std::vector<Row> &rows = rowsOfShape[context.traffic.shapes[result]];
    // What reads inputs of the graph alone fits into the first; the rest is together in its layer.
    if (!rows.empty() && mayJoin(group, rows.back(), context.oracle))
      rows.back().push_back(std::move(group));
    else if (!rows.empty() && mayJoin(group, rows.front(), context.oracle))
      rows.front().push_back(std::move(group));
    else
      rows.push_back({std::move(group)});
  }
  std::vector<Candidate> joined;
  for (const auto &[shape, rows] : rowsOfShape)
    for (const Row &row : rows)
      if (row.size() > 1)
        if (Candidate candidate = join(row); isOneKernel(candidate, context.oracle))
          joined.push_back(std::move(candidate));
  return joined;
}

} // namespace fusion
