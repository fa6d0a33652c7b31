#include "runtime/WeightStore.h"

#include "ir/base/Progress.h"
#include "runtime/MemoryPlan.h"
#include "runtime/WeightRows.h"

#include <fmt/format.h>

#include <map>

namespace fusion {

/// Kernels load 16 bytes at once.
static constexpr uintptr_t kernelAlignment = 16;
static constexpr size_t progressStep = 256 << 20;

static std::vector<bool> usedBuffers(const ProgramPlan &plan) {
  std::vector<bool> used(plan.buffers.size(), false);
  for (const KernelLaunch *launch : plan.launches())
    for (const KernelArgument &argument : launch->arguments)
      if (const BufferId *buffer = bufferOf(argument))
        used[*buffer] = true;
  for (const PortPlan &port : plan.outputs)
    used[port.buffer] = true;
  return used;
}

static size_t totalBytes(const std::vector<WeightRows> &parts) {
  size_t bytes = 0;
  for (const WeightRows &rows : parts)
    bytes += rows.total();
  return bytes;
}

Result<WeightStore> WeightStore::load(const ProgramPlan &plan, Backend &backend, int rank) {
  WeightStore store;
  store.storage = std::make_shared<Storage>();
  store.addresses.resize(plan.buffers.size(), nullptr);

  struct Copy {
    BufferId buffer;
    const std::byte *source;
    std::vector<WeightRows> rows; ///< empty when another copy brings them
    size_t offset;
  };
  std::vector<Copy> copies;
  std::map<std::pair<const std::byte *, std::vector<WeightRows>>, size_t> placed;
  std::vector<bool> used = usedBuffers(plan);
  std::map<std::string, std::shared_ptr<MappedFile>> files;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan &buffer = plan.buffers[i];
    if (buffer.kind != BufferPlan::Kind::Weight || !used[i])
      continue;
    const std::byte *source = nullptr;
    if (auto *span = std::get_if<FileSpan>(&buffer.contents)) {
      if (!buffer.perRank.empty()) {
        if (rank < 0 || static_cast<size_t>(rank) >= buffer.perRank.size())
          return badInput(fmt::format("weight {}: there is no file for rank {}", buffer.name, rank));
        span = &buffer.perRank[static_cast<size_t>(rank)];
      }
      std::shared_ptr<MappedFile> &file = files[span->path];
      if (!file) {
        Result<std::shared_ptr<MappedFile>> opened = MappedFile::open(span->path);
        if (!opened)
          return badInput(fmt::format("weight {}: {}", buffer.name, opened.error().message));
        file = *opened;
        store.storage->files.push_back(file);
      }
      size_t available = file->bytes().size();
      if (span->offset > available || span->length > available - span->offset)
        return badInput(fmt::format("weight {}: {} has {} bytes, needs {} at offset {}", buffer.name,
                                    span->path, available, span->length, span->offset));
      source = file->bytes().data() + span->offset;
    } else {
      const Tensor &tensor = std::get<Tensor>(buffer.contents);
      store.storage->tensors.push_back(tensor);
      source = static_cast<const std::byte *>(tensor.data());
    }
    Result<std::vector<WeightRows>> rows = weightRows(buffer, rank);
    if (!rows)
      return rows.error();
    const bool isOneRun = rows->size() == 1 && rows->front().count == 1;
    const std::byte *start = source + rows->front().offset;
    if (backend.sharesHostMemory() && source && isOneRun &&
        reinterpret_cast<uintptr_t>(start) % kernelAlignment == 0) {
      store.addresses[i] = const_cast<std::byte *>(start); // kernels do not write weights: verify() saw to it
    } else {
      // Tied weights name the same bytes: one copy serves all.
      auto [place, fresh] = placed.try_emplace({source, *rows}, store.copiedBytes);
      copies.push_back({static_cast<BufferId>(i), source, fresh ? *rows : std::vector<WeightRows>(), place->second});
      if (fresh)
        store.copiedBytes += std::max(alignedSize(totalBytes(*rows)), bufferAlignment);
    }
  }
  if (copies.empty())
    return store;

  Result<std::shared_ptr<void>> memory = backend.allocate(store.copiedBytes);
  if (!memory)
    return Error{memory.error().kind, "weights: " + memory.error().message};
  store.storage->memory = *memory;
  std::optional<Progress> progress;
  if (store.copiedBytes > progressStep)
    progress.emplace("load weights", static_cast<int64_t>(store.copiedBytes / progressStep));
  size_t shown = 0;
  for (const Copy &copy : copies) {
    void *target = static_cast<std::byte *>(memory->get()) + copy.offset;
    store.addresses[copy.buffer] = target;
    size_t done = 0;
    for (const WeightRows &rows : copy.rows) {
      if (Status status = backend.uploadRows(static_cast<std::byte *>(target) + done, copy.source + rows.offset,
                                             rows.bytes, rows.pitch, rows.count);
          !status)
        return status.error();
      done += rows.total();
    }
    for (; progress && copy.offset + done >= (shown + 1) * progressStep; ++shown)
      progress->step(fmt::format("{} MiB", (shown + 1) * (progressStep >> 20)));
  }
  if (Status status = backend.synchronize(); !status)
    return status.error();
  return store;
}

} // namespace fusion
