// Launches and bytes of a function at nominal sizes.
#include "passes/fuse/Fuse.h"

#include "ir/dialect/Types.h"
#include "passes/fuse/ReportGraph.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fusion {

SymbolValues nominalSizes(func::FuncOp function) {
  SymbolValues values;
  for (BlockArgument argument : function.getArguments())
    for (const Dim &dim : nn::argumentDims(function, argument.getArgNumber()))
      for (const std::string &symbol : dim.symbols())
        values[symbol] = llvm::StringRef(symbol).contains_insensitive("batch") ? 1 : 128;
  return values;
}

Status countLaunches(func::FuncOp function, ScheduleOracle &oracle, FusionReport &report, bool before) {
  auto shapes = nn::SymbolicShapes::compute(function);
  if (failed(shapes))
    return badInput("shapes do not fit together");
  oracle.begin(function, *shapes);
  Traffic traffic{*shapes, nominalSizes(function), oracle};
  int64_t bytes = 0, launches = 0;
  llvm::MapVector<std::string, int64_t, std::map<std::string, unsigned>> layers;
  for (Operation *op : oracle.launching(function)) {
    auto group = llvm::dyn_cast<GroupOp>(op);
    const SmallVector<GroupPorts> parts = group ? oracle.parts(group) : SmallVector<GroupPorts>();
    bytes += parts.empty() ? traffic.launch(op) : 0;
    for (const GroupPorts &part : parts)
      bytes += traffic.bytes(part.inputs, part.outputs);
    const int64_t kernels = oracle.kernels(op, traffic.sizes);
    launches += kernels;
    if (std::string layer = layerOf(locationName(op->getLoc())); !layer.empty())
      layers[layer] += kernels;
  }
  (before ? report.kernelsBefore : report.kernelsAfter) = launches;
  (before ? report.bytesBefore : report.bytesAfter) = bytes;
  if (!before) {
    report.layers.clear();
    for (auto &[name, kernels] : layers)
      report.layers.push_back({name, kernels});
  }
  return {};
}

Status describeUnfused(func::FuncOp function, ScheduleOracle &oracle, FusionReport &report) {
  for (const auto &[symbol, size] : nominalSizes(function))
    report.nominal[symbol] = size;
  if (Status status = countLaunches(function, oracle, report, true); !status)
    return status;
  auto nodes = drawNodes(function, oracle, report.before);
  if (nodes)
    nodes = drawFused(function, oracle, *nodes, report);
  if (!nodes)
    return nodes.error();
  return countLaunches(function, oracle, report, false);
}

} // namespace fusion
