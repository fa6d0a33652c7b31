#include "api/PlanReport.h"

#include "codegen/plan/Print.h"

#include "llvm/ADT/STLExtras.h"

#include <deque>

namespace fusion {

namespace {
/// Steps stand in the order of the graph's ops: of those with one location and fusion the next one that is
/// not a view and has the ops of the launch.
class NodesOfSteps {
public:
  explicit NodesOfSteps(const std::vector<FusionReport::Node> &nodes) : nodes(nodes) {
    for (size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].bytes > 0)
        waiting[{nodes[i].location, nodes[i].fusion}].push_back(i);
  }

  std::optional<size_t> next(const KernelLaunch &launch) {
    auto found = waiting.find({launch.location, launch.fusion});
    if (found == waiting.end())
      return std::nullopt;
    std::deque<size_t> &places = found->second;
    auto place = llvm::find_if(places, [&](size_t node) {
      return llvm::all_of(launch.ops,
                          [&](const std::string &op) { return llvm::is_contained(nodes[node].ops, op); });
    });
    if (place == places.end())
      return std::nullopt;
    const size_t node = *place;
    places.erase(place);
    return node;
  }

private:
  const std::vector<FusionReport::Node> &nodes;
  std::map<std::pair<std::string, std::string>, std::deque<size_t>> waiting;
};
} // namespace

void writeLaunches(llvm::json::OStream &out, const ProgramPlan &plan, const FusionReport &report) {
  const SymbolValues sizes(report.nominal.begin(), report.nominal.end());
  NodesOfSteps nodes(report.after);
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    std::optional<size_t> node;
    for (const Alternative &alternative : plan.steps[step].alternatives) {
      std::string condition = conditionText(alternative);
      auto write = [&](const KernelLaunch &launch) {
        if (!node)
          node = nodes.next(launch);
        llvm::json::Object entry{{"kernel", plan.kernels[launch.kernel].name},
                                 {"schedule", plan.kernels[launch.kernel].schedule},
                                 {"fusion", launch.fusion},
                                 {"location", launch.location},
                                 {"step", static_cast<int64_t>(step)}};
        if (!condition.empty())
          entry["condition"] = condition.substr(1);
        if (node)
          entry["node"] = static_cast<int64_t>(*node);
        auto read = launch.bytesRead.evaluate(sizes), written = launch.bytesWritten.evaluate(sizes);
        if (read && written)
          entry["bytes"] = *read + *written;
        out.value(std::move(entry));
      };
      llvm::for_each(alternative.launches, write);
      condition += condition.empty() ? " linked" : ", linked";
      if (alternative.linked)
        write(*alternative.linked);
    }
  }
}

void writeKernelSources(llvm::json::OStream &out, const ProgramPlan &plan) {
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelPlan &kernel = plan.kernels[i];
    llvm::json::Object entry{{"name", kernel.name}, {"schedule", kernel.schedule}};
    if (kernel.isLibraryCall) {
      entry["library"] = kernel.matmul ? "cuBLASLt" : "the communication library";
    } else {
      entry["threads"] = int64_t(kernel.blockX) * kernel.blockY * kernel.blockZ;
      entry["source"] = kernelComment(plan, i) + kernel.source;
    }
    out.value(std::move(entry));
  }
}

} // namespace fusion
