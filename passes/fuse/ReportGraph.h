// The graph as the report shows it. Internal to the fuse phase.
#pragma once

#include "passes/fuse/FusionReport.h"
#include "passes/fuse/Traffic.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion {

/// The number of each op's node.
using DrawnNodes = std::map<mlir::Operation *, size_t>;

/// Fills the nodes of the function as it is.
Result<DrawnNodes> drawNodes(mlir::func::FuncOp function, ScheduleOracle &oracle,
                             std::vector<FusionReport::Node> &nodes);

/// Fills the nodes after fusion, tells those before which one their op is or went into, and finds the layers
/// of both.
Result<DrawnNodes> drawFused(mlir::func::FuncOp function, ScheduleOracle &oracle, const DrawnNodes &before,
                             FusionReport &report);

/// Pattern and location.
using SiteName = std::pair<std::string, std::string>;

/// Gives the sites that fired their nodes in `after`: several of one name have several.
void placeSites(FusionReport &report, std::map<SiteName, std::vector<size_t>> nodes);

} // namespace fusion
