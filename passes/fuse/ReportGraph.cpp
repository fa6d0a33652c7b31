#include "passes/fuse/ReportGraph.h"
#include "passes/fuse/Fuse.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/StringExtras.h"

#include <unordered_map>

using namespace mlir;

namespace fusion {

static std::string resultType(Value value, const Traffic &traffic) {
  return std::string(name(dtype(value))) + " " + shapeString(traffic.shapes[value]);
}

Result<DrawnNodes> drawNodes(func::FuncOp function, ScheduleOracle &oracle,
                             std::vector<FusionReport::Node> &nodes) {
  auto shapes = nn::SymbolicShapes::compute(function);
  if (failed(shapes))
    return badInput("shapes do not fit together");
  oracle.begin(function, *shapes);
  const Traffic traffic{*shapes, nominalSizes(function), oracle};
  DrawnNodes index;
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (nn::isStored(&op))
      continue;
    FusionReport::Node node;
    node.location = locationName(op.getLoc());
    if (op.getNumResults() > 0)
      node.result = resultType(op.getResult(0), traffic);
    node.bytes = traffic.launch(&op);
    if (auto group = llvm::dyn_cast<GroupOp>(op)) {
      node.fusion = group.getPattern().str();
      for (Operation &member : group.getBody().front().without_terminator())
        if (!llvm::isa<nn::ConstantOp>(member))
          node.ops.push_back(member.getName().getStringRef().str());
    } else {
      node.ops.push_back(op.getName().getStringRef().str());
    }
    for (Value operand : op.getOperands())
      if (auto producer = index.find(operand.getDefiningOp());
          producer != index.end() && !llvm::is_contained(node.inputs, producer->second))
        node.inputs.push_back(producer->second);
    index[&op] = nodes.size();
    nodes.push_back(std::move(node));
  }
  return index;
}

static void joinGroups(FusionReport &report, const DrawnNodes &before, const DrawnNodes &after) {
  for (auto &[op, number] : after) {
    auto group = llvm::dyn_cast<GroupOp>(op);
    if (!group) {
      if (auto node = before.find(op); node != before.end())
        report.before[node->second].group = number;
      continue;
    }
    for (Operation &member : group.getBody().front())
      if (auto node = before.find(&member); node != before.end()) {
        report.before[node->second].fusion = group.getPattern().str();
        report.before[node->second].group = number;
      }
  }
}

static std::vector<LayeredNode> layeredNodes(llvm::ArrayRef<FusionReport::Node> nodes) {
  std::vector<LayeredNode> layered;
  for (const FusionReport::Node &node : nodes)
    layered.push_back(
        {node.fusion + ":" + llvm::join(node.ops, "+") + ":" + node.result + ":" + std::to_string(node.bytes),
         node.location, node.inputs});
  return layered;
}

/// Those of after have the layers of what they hold, unless their names say otherwise.
static void describeStructure(FusionReport &report) {
  const std::vector<LayeredNode> before = layeredNodes(report.before), after = layeredNodes(report.after);
  Layers layers = findLayers(before), fused{layers.names, {}};
  fused.ofNode.resize(after.size());
  for (size_t i = 0; i < report.before.size(); ++i)
    if (auto group = report.before[i].group)
      fused.ofNode[*group] = layers.ofNode[i];
  std::unordered_map<std::string_view, size_t> named;
  for (size_t i = 0; i < layers.names.size(); ++i)
    named.emplace(layers.names[i], i);
  for (size_t i = 0; i < after.size(); ++i)
    if (auto name = named.find(layerOf(after[i].location)); name != named.end())
      fused.ofNode[i] = name->second;
  std::vector<std::string> looks = layerLooks(before, layers);
  const std::vector<std::string> fusedLooks = layerLooks(after, fused);
  for (size_t i = 0; i < looks.size(); ++i)
    looks[i] += "=>" + fusedLooks[i];
  FusionReport::Structure &structure = report.structure;
  structure.layers = std::move(layers.names);
  structure.alike = alikeLayers(looks);
  structure.folds = foldLayers(structure.alike);
  structure.before = std::move(layers.ofNode);
  structure.after = std::move(fused.ofNode);
}

Result<DrawnNodes> drawFused(func::FuncOp function, ScheduleOracle &oracle, const DrawnNodes &before,
                             FusionReport &report) {
  auto after = drawNodes(function, oracle, report.after);
  if (!after)
    return after;
  joinGroups(report, before, *after);
  describeStructure(report);
  return after;
}

void placeSites(FusionReport &report, std::map<SiteName, std::vector<size_t>> nodes) {
  for (auto &[name, places] : nodes)
    llvm::sort(places, std::greater<>());
  for (auto &[name, pattern] : report.patterns)
    for (FusionReport::Site &site : pattern.fired)
      if (auto places = nodes.find({name, site.location}); places != nodes.end() && !places->second.empty()) {
        site.node = places->second.back();
        places->second.pop_back();
      }
}

} // namespace fusion
