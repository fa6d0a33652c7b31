// Groups and single elementwise ops that share nothing, such as the counters of all layers, in one kernel:
// they are so small that launching them costs more than what they do.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Dialect.h"

#include "llvm/ADT/SetVector.h"

#include <map>

using namespace mlir;

namespace fusion {

namespace {
constexpr double mostElements = 4096;
/// Inputs and results of one kernel.
constexpr size_t mostPorts = 128;

struct SmallGroup {
  const Candidate *candidate;
  size_t ports;
};

/// Whether the group may run before everything else: it reads inputs of the graph, and besides them weights
/// and constants at most. What reads weights alone is computed when they are loaded.
bool mayRunFirst(const GroupPorts &ports, ScheduleOracle &oracle) {
  auto isInput = [&](Value value) {
    while (value.getDefiningOp() && oracle.isView(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    return llvm::isa<BlockArgument>(value);
  };
  return llvm::any_of(ports.inputs, isInput) &&
         llvm::all_of(ports.inputs, [&](Value value) { return isInput(value) || nn::isStored(value); });
}

Candidate join(ArrayRef<SmallGroup> groups) {
  llvm::SmallSetVector<Operation *, 8> ops, clones;
  for (const SmallGroup &group : groups) {
    ops.insert(group.candidate->ops.begin(), group.candidate->ops.end());
    clones.insert(group.candidate->clones.begin(), group.candidate->clones.end());
  }
  Candidate joined;
  joined.pattern = "pointwise";
  joined.root = groups.front().candidate->root;
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

std::vector<Candidate> joinSmallGroups(const ProposalContext &context, ArrayRef<Candidate> candidates) {
  std::map<DimShape, std::vector<SmallGroup>> byShape;
  for (const Candidate &candidate : candidates) {
    Value result = candidate.root->getResult(0);
    if (context.traffic.elements(result) > mostElements)
      continue;
    const GroupPorts ports = portsOf(candidate.ops, candidate.clones);
    if (mayRunFirst(ports, context.oracle))
      byShape[context.traffic.shapes[result]].push_back(
          {&candidate, ports.inputs.size() + ports.outputs.size()});
  }
  std::vector<Candidate> joined;
  for (const auto &[shape, groups] : byShape)
    for (ArrayRef<SmallGroup> rest = groups; rest.size() > 1;) {
      size_t count = 1, ports = rest.front().ports;
      while (count < rest.size() && (ports += rest[count].ports) <= mostPorts)
        ++count;
      if (count > 1)
        if (Candidate candidate = join(rest.take_front(count)); isOneKernel(candidate, context.oracle))
          joined.push_back(std::move(candidate));
      rest = rest.drop_front(count);
    }
  return joined;
}

} // namespace fusion
