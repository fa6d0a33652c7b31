#include "codegen/schedule/Schedules.h"

namespace fusion {

llvm::ArrayRef<const Schedule *> allSchedules() {
  static const Schedule *const schedules[] = {
      &pointwiseSchedule(),
#ifdef FUSION_HAVE_ROW
      &rowSchedule(),
#endif
      &scanSchedule(),
#ifdef FUSION_HAVE_MATMUL
      &matmulSchedule(),
#endif
#ifdef FUSION_HAVE_ATTENTION
      &attentionSchedule(),
#endif
  };
  return schedules;
}

const Schedule *findSchedule(llvm::StringRef name) {
  for (const Schedule *schedule : allSchedules())
    if (schedule->name() == name)
      return schedule;
  return nullptr;
}

} // namespace fusion
