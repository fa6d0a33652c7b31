// A report with the times of a run in it.
#pragma once

#include "api/Fusion.h"

namespace fusion {

/// The report whose launches have the microseconds that a profile found, where kernel and location are the
/// same.
Report withTimes(const Report &report, const Profile &profile);

} // namespace fusion
