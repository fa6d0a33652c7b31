#include "passes/shard/Division.h"

#include "ir/dialect/Types.h"
#include "passes/MissLog.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fusion {

SmallVector<AxisClasses::Id> Division::component(Id first) const {
  SmallVector<Id> ids = {first};
  for (size_t next = 0; next < ids.size(); ++next)
    for (Id companion : classes.classes()[ids[next]].companions)
      if (!llvm::is_contained(ids, companion))
        ids.push_back(companion);
  return ids;
}

/// 0 if the class cannot be divided evenly.
int64_t Division::shardsOf(const AxisClasses::Class &group) const {
  if (group.units % ranks == 0)
    return ranks;
  return group.keyHeads && group.units > 0 && ranks % group.units == 0 ? group.units : 0;
}

std::string Division::conflict(Id id) const {
  DenseSet<Value> seen;
  for (const AxisClasses::Axis &member : classes.classes()[id].members)
    if (!seen.insert(member.value).second || divided.contains(member.value))
      return "another dim of " + locationName(member.value.getLoc()) + " is divided";
  return "";
}

std::string Division::whyWhole(ArrayRef<Id> ids) const {
  bool summed = false;
  for (Id id : ids) {
    const AxisClasses::Class &group = classes.classes()[id];
    summed |= !group.sums.empty() || !group.lookups.empty() || !group.largests.empty() ||
              (vocabulary && group.isResult);
    if (!group.whole.empty())
      return group.whole;
    if (shardsOf(group) == 0)
      return std::to_string(group.units) + " equal shards at most, for " + std::to_string(ranks) + " ranks";
    if (!group.norms.empty() && shardsOf(group) != ranks)
      return siteOf(group.norms.front()) + " normalises over it, and several ranks would have the same shard";
    if (!group.largests.empty() && shardsOf(group) != ranks)
      return siteOf(group.largests.front()) +
             " finds the largest along it, and several ranks would have the same shard";
    if (!group.lookups.empty() && !isVocabulary(group))
      return siteOf(group.lookups.front()) +
             " looks up in it, and no result of the graph has as many columns";
    if (std::string reason = conflict(id); !reason.empty())
      return reason;
    for (const AxisClasses::Axis &member : group.members)
      if (auto argument = llvm::dyn_cast<BlockArgument>(member.value);
          argument && !llvm::isa<FloatType>(elementType(argument)))
        return "an integer input of the graph has it";
  }
  return summed ? "" : "no product sums over it, so that dividing it would need a gather";
}

bool Division::isVocabulary(const AxisClasses::Class &table) const {
  return llvm::any_of(classes.classes(), [&](const AxisClasses::Class &group) {
    return (group.isResult || !group.largests.empty()) && !group.columns.empty() &&
           group.units == table.units;
  });
}

int64_t Division::weightElements(ArrayRef<Id> ids) const {
  int64_t elements = 0;
  for (Id id : ids)
    for (const AxisClasses::Axis &member : classes.classes()[id].members)
      if (classes.isParameter(member.value))
        elements += product(shapes[member.value]).constant().value_or(0);
  return elements;
}

void Division::choose() {
  struct Candidate {
    SmallVector<Id> ids;
    bool normalised; ///< takes a sum over ranks in each norm: after those that take none
    int64_t elements;
  };
  std::vector<Candidate> candidates;
  DenseSet<Id> seen;
  for (Id id = 0; id < classes.classes().size(); ++id) {
    SmallVector<Id> ids = component(id);
    auto group = [&](Id member) -> const AxisClasses::Class & { return classes.classes()[member]; };
    bool weighty = llvm::any_of(
        ids, [&](Id member) { return !group(member).columns.empty() || !group(member).lookups.empty(); });
    bool normalised = llvm::any_of(ids, [&](Id member) { return !group(member).norms.empty(); });
    if (weighty && !seen.contains(id))
      candidates.push_back({ids, normalised, weightElements(ids)});
    seen.insert(ids.begin(), ids.end());
  }
  llvm::sort(candidates, [](const Candidate &a, const Candidate &b) {
    return std::make_tuple(a.normalised, -a.elements, a.ids.front()) <
           std::make_tuple(b.normalised, -b.elements, b.ids.front());
  });
  std::vector<std::pair<Operation *, std::string>> whole;
  for (const Candidate &candidate : candidates) {
    std::string reason = whyWhole(candidate.ids);
    for (Id id : candidate.ids) {
      const AxisClasses::Class &group = classes.classes()[id];
      if (!reason.empty()) {
        for (Operation *op : llvm::concat<Operation *const>(group.columns, group.lookups))
          whole.push_back({op, reason});
        continue;
      }
      parts[id] = shardsOf(group);
      if (parts[id] > 1)
        for (const AxisClasses::Axis &member : group.members)
          divided[member.value] = member.axis;
      for (ArrayRef<Operation *> added :
           {ArrayRef(group.sums), ArrayRef(group.norms), ArrayRef(group.lookups), ArrayRef(group.largests)})
        partial.insert(added.begin(), added.end());
    }
  }
  for (auto &[op, reason] : whole)
    if (!partial.contains(op))
      noteMiss(
          op, "shard",
          (llvm::isa<nn::GatherOp>(op) ? "the rows of its table stay whole: " : "its columns stay whole: ") +
              reason);
}

std::optional<std::pair<unsigned, int64_t>> Division::of(Value value) const {
  auto entry = divided.find(value);
  if (entry == divided.end())
    return std::nullopt;
  return std::make_pair(entry->second, parts[*classes.of(value, entry->second)]);
}

} // namespace fusion
