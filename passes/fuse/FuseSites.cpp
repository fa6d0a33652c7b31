#include "passes/fuse/FuseSites.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/SmallSet.h"

#include <algorithm>

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
                     const std::string &reason, FoundOps found) {
  auto [entry, fresh] = misses.insert({{root, pattern}, {}});
  if (fresh || opsFound > entry->second.opsFound)
    entry->second = {opsFound, reason, std::move(found)};
}

void FuseSites::unfire(Operation *root, const std::string &pattern, const std::string &reason,
                       int64_t bytes) {
  fired.erase({root, pattern});
  misses[{root, pattern}] = {~0u, reason, {{}, bytes}};
}

void FuseSites::group(ArrayRef<Operation *> ops, int64_t bytesSaved) {
  for (Operation *op : ops)
    groups[op] = saved.size();
  saved.push_back(bytesSaved);
}

int64_t FuseSites::lost(const FoundOps &found) const {
  llvm::SmallSet<size_t, 4> taken;
  int64_t bytes = found.bytes;
  for (Operation *op : found.ops)
    if (auto group = groups.find(op); group != groups.end() && taken.insert(group->second).second)
      bytes -= saved[group->second];
  return std::max<int64_t>(bytes, 0);
}

void FuseSites::recordMisses(FusionReport &report, const std::map<Operation *, size_t> &nodes,
                             llvm::function_ref<bool(Operation *, const std::string &)> isShown) {
  for (auto &[key, site] : roots) {
    if (fired.contains(key) || !isShown(key.first, key.second))
      continue;
    const NearMiss &miss = misses[key];
    remark::missed(site.second, remarkOf(key.second))
        << remark::reason("missed at {0}: {1}", site.first, miss.reason);
    FusionReport::Pattern &pattern = report.patterns[key.second];
    pattern.applies |= miss.opsFound > 1 || !miss.found.ops.empty();
    auto node = nodes.find(key.first);
    pattern.missed.push_back({site.first, miss.reason, lost(miss.found),
                              node == nodes.end() ? std::nullopt : std::optional(node->second)});
  }
}

} // namespace fusion
