#include "codegen/schedule/Schedules.h"

namespace fusion {

llvm::ArrayRef<const Schedule *> allSchedules() {
  static const Schedule *const schedules[] = {&pointwiseSchedule(), &rowSchedule(), &scanSchedule(),
                                              &matmulSchedule(), &attentionSchedule()};
  return schedules;
}

const Schedule *findSchedule(llvm::StringRef name) {
  for (const Schedule *schedule : allSchedules())
    if (schedule->name() == name)
      return schedule;
  return nullptr;
}

} // namespace fusion
