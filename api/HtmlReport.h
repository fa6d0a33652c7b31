// The report as one self-contained web page.
#pragma once

#include "passes/fuse/FusionReport.h"

namespace fusion {

/// The graph before and after fusion, drawn, groups coloured by fusion and misses with their reasons on hover; then the
/// tables of the markdown report. Of layers that look the same one is drawn.
std::string htmlReport(const FusionReport &report);

} // namespace fusion
