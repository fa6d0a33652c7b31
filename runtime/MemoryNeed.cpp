#include "runtime/MemoryNeed.h"

#include "runtime/WeightRows.h"
#include "runtime/WeightStore.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace fusion {

Result<size_t> weightBytesOf(const ProgramPlan &plan, int rank, Device device,
                             const std::vector<SharedWeights::Place> &elsewhere) {
  const std::vector<bool> used = usedBuffers(plan);
  // Tied weights name the same bytes.
  std::set<std::tuple<std::string, uint64_t, const void *, std::vector<WeightRows>>> seen;
  size_t total = 0;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan &buffer = plan.buffers[i];
    const bool isPrepared = buffer.kind == BufferPlan::Kind::Prepared;
    if (!used[i] || (!elsewhere.empty() && elsewhere[i].address) ||
        (buffer.kind != BufferPlan::Kind::Weight && !isPrepared))
      continue;
    Result<std::vector<WeightRows>> rows = weightRows(buffer, rank);
    if (!rows)
      return rows.error();
    if (isReadInPlace(buffer, *rows, device))
      continue;
    std::string path;
    uint64_t offset = 0;
    const void *data = isPrepared ? &buffer : nullptr;
    if (auto *tensor = std::get_if<Tensor>(&buffer.contents))
      data = tensor->data() ? tensor->data() : data;
    else if (auto *span = std::get_if<FileSpan>(&buffer.contents))
      std::tie(path, offset) = std::tie(span->path, span->offset);
    for (const FileSpan &part : buffer.parts)
      path += fmt::format("\n{} {}", part.path, part.offset);
    size_t bytes = 0;
    for (const WeightRows &run : *rows)
      bytes += run.total();
    if (isPrepared || seen.insert({path, offset, data, std::move(*rows)}).second)
      total += std::max(alignedSize(bytes), bufferAlignment);
  }
  return total;
}

MemoryNeed memoryOf(const ProgramPlan &plan, const ShapePlan &shapes) {
  MemoryNeed need;
  need.temporaries = shapes.arenaBytes + shapes.keptZeroBytes;
  std::vector<bool> isCache(plan.buffers.size(), false);
  for (const PortPlan &port : plan.inputs)
    isCache[port.buffer] = isCache[port.buffer] || !port.strides.empty();
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    if (isCache[i])
      need.caches += alignedSize(shapes.placeBytes[i]);
    else if (plan.buffers[i].kind == BufferPlan::Kind::Output)
      need.results += alignedSize(shapes.placeBytes[i]);
  return need;
}

std::string bytesText(size_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes >= size_t(1) << 30   ? fmt::format("{:.1f} GiB", value / (1 << 30))
         : bytes >= size_t(1) << 20 ? fmt::format("{:.1f} MiB", value / (1 << 20))
                                    : fmt::format("{:.1f} KiB", value / (1 << 10));
}

std::string describe(const MemoryNeed &need) {
  std::string text;
  for (auto [what, bytes] : {std::pair("weights", need.weights),
                             {"caches", need.caches},
                             {"temporaries", need.temporaries},
                             {"results", need.results}})
    if (bytes > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, bytesText(bytes));
  return text;
}

size_t availableBytes(const Backend &device, size_t limit) {
  const std::optional<size_t> free = device.freeBytes();
  const size_t there = free ? *free + device.allocatedBytes() : SIZE_MAX;
  return limit > 0 ? std::min(there, limit) : there;
}

Status checkFits(const MemoryNeed &need, size_t available, const std::string &device) {
  if (need.total() <= available)
    return {};
  return environment(fmt::format("the program needs {} ({}), {} more than the {} there are for it on {}",
                                 bytesText(need.total()), describe(need), bytesText(need.total() - available),
                                 bytesText(available), device));
}

} // namespace fusion
