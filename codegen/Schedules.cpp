#include "codegen/schedule/Schedules.h"

#include "ir/dialect/Types.h"

namespace fusion {

ScheduleSet::ScheduleSet()
    : list{&pointwiseSchedule(), &rowSchedule(),          &scanSchedule(),
           &matmulChainSchedule(), &matmulSchedule(),    &matmulArgMaxSchedule(),
           &expertSchedule(),    &routerSchedule(),      &attentionSchedule(),
           &linearAttentionSchedule(), &ropeAttentionSchedule(), &collectiveSchedule()} {}

ScheduleSet::ScheduleSet(llvm::ArrayRef<const Schedule *> own) : ScheduleSet() {
  list.insert(list.begin(), own.begin(), own.end());
}

const ScheduleSet &builtinSchedules() {
  static const ScheduleSet set;
  return set;
}

const Schedule *ScheduleSet::find(llvm::StringRef name) const {
  auto *found = llvm::find_if(list, [&](const Schedule *one) { return one->name() == name; });
  return found == list.end() ? nullptr : *found;
}

static bool isConcatOfRows(mlir::Value value) {
  auto concat = value.getDefiningOp<nn::ConcatOp>();
  const int64_t rank = llvm::cast<mlir::RankedTensorType>(value.getType()).getRank();
  const auto axis = concat ? static_cast<int64_t>(concat.getAxis()) : -1;
  return axis != -1 && axis != rank - 1;
}

llvm::SmallVector<const Schedule *> ScheduleSet::inOrderFor(const Region &region) const {
  llvm::SmallVector<const Schedule *> order = list;
  if (!region.outputs.empty() && llvm::all_of(region.outputs, isConcatOfRows)) {
    auto *pointwise = llvm::find(order, &pointwiseSchedule());
    std::stable_partition(pointwise, order.end(), [](const Schedule *one) { return one == &rowSchedule(); });
  }
  return order;
}

std::vector<PlannedAlternative> SchedulePlan::alternatives(const Region &region) const {
  return split ? split() : alternativesFor({}, region, emit);
}

std::vector<PlannedAlternative> alternativesFor(llvm::ArrayRef<SizeRange> ranges, const Region &region,
                                                const KernelEmitter &emit) {
  std::vector<Predicate> predicates;
  for (const SizeRange &range : ranges)
    predicates.push_back({range});
  return alternativesWhere(predicates, region, emit);
}

std::vector<PlannedAlternative> alternativesWhere(llvm::ArrayRef<Predicate> predicates, const Region &region,
                                                  const KernelEmitter &emit) {
  std::vector<PlannedAlternative> alternatives;
  for (const Predicate &when : predicates) {
    auto within = [when, emit](KernelContext context) {
      context.when = when;
      return emit(context);
    };
    alternatives.push_back(PlannedAlternative{when, {}, {PlannedKernel{region, within}}});
  }
  if (alternatives.empty())
    alternatives.push_back(PlannedAlternative{{}, {}, {PlannedKernel{region, emit}}});
  return alternatives;
}

std::optional<std::string> readsPacked(const Region &region, const KernelContext &context) {
  for (auto [input, view] : llvm::zip(region.inputs, context.inputs))
    if (isPacked(view) && llvm::any_of(input.getUsers(), [&](mlir::Operation *user) {
          return llvm::is_contained(region.ops, user);
        }))
      return "a weight of packed " + std::string(name(dtype(input))) + " elements";
  return std::nullopt;
}

} // namespace fusion
