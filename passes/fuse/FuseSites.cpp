#include "passes/fuse/FuseSites.h"

#include "ir/dialect/Types.h"
#include "passes/fuse/Candidate.h"
#include "passes/fuse/Traffic.h"

using namespace mlir;

namespace fusion {

std::string siteName(Operation *op) {
  std::string name = locationName(op->getLoc());
  return name.empty() ? op->getName().getStringRef().str() : name;
}

remark::RemarkOpts remarkOf(StringRef pattern) { return remark::RemarkOpts::name(pattern).category("fuse"); }

void FuseSites::see(Operation *root, const std::string &pattern) {
  roots.insert({{root, pattern}, {siteName(root), root->getLoc()}});
}

void FuseSites::miss(Operation *root, const std::string &pattern, unsigned opsFound,
                     const std::string &reason) {
  auto [entry, fresh] = misses.insert({{root, pattern}, {opsFound, reason}});
  if (!fresh && opsFound > entry->second.opsFound)
    entry->second = {opsFound, reason};
}

void FuseSites::unfire(Operation *root, const std::string &pattern, const std::string &reason) {
  fired.erase({root, pattern});
  misses[{root, pattern}] = {~0u, reason};
}

void FuseSites::recordMisses(FusionReport &report,
                             llvm::function_ref<bool(Operation *, const std::string &)> isShown) {
  for (auto &[key, site] : roots) {
    if (fired.contains(key) || !isShown(key.first, key.second))
      continue;
    const std::string reason = misses[key].reason;
    remark::missed(site.second, remarkOf(key.second))
        << remark::reason("missed at {0}: {1}", site.first, reason);
    report.patterns[key.second].missed.push_back({site.first, reason});
    lines.push_back({key.first, key.second + ": " + reason});
  }
}

DrawnNodes drawNodes(func::FuncOp function, std::vector<FusionReport::Node> &nodes) {
  DrawnNodes index;
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (nn::isStored(&op))
      continue;
    FusionReport::Node node;
    node.location = locationName(op.getLoc());
    node.layer = layerOf(node.location);
    node.label = op.getName().getStringRef().str();
    if (auto group = llvm::dyn_cast<GroupOp>(op)) {
      node.fusion = group.getPattern().str();
      node.label.clear();
      for (Operation &member : group.getBody().front().without_terminator())
        if (!llvm::isa<nn::ConstantOp>(member))
          node.label += (node.label.empty() ? "" : " → ") + member.getName().getStringRef().str();
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

} // namespace fusion
