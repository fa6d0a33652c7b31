#include "codegen/schedule/Schedules.h"

#include "ir/dialect/Types.h"

namespace fusion {

llvm::ArrayRef<const Schedule *> allSchedules() {
  static const Schedule *const schedules[] = {&pointwiseSchedule(), &rowSchedule(), &scanSchedule(),
                                              &matmulSchedule(), &attentionSchedule(),
                                              &collectiveSchedule()};
  return schedules;
}

static bool isConcatOfRows(mlir::Value value) {
  auto concat = value.getDefiningOp<nn::ConcatOp>();
  const int64_t rank = llvm::cast<mlir::RankedTensorType>(value.getType()).getRank();
  return concat && concat.getAxis() != -1 && static_cast<int64_t>(concat.getAxis()) != rank - 1;
}

llvm::SmallVector<const Schedule *> schedulesFor(const Region &region) {
  llvm::SmallVector<const Schedule *> order(allSchedules());
  if (!region.outputs.empty() && llvm::all_of(region.outputs, isConcatOfRows))
    std::stable_partition(order.begin(), order.end(), [](const Schedule *one) { return one == &rowSchedule(); });
  return order;
}

const Schedule *findSchedule(llvm::StringRef name) {
  for (const Schedule *schedule : allSchedules())
    if (schedule->name() == name)
      return schedule;
  return nullptr;
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
