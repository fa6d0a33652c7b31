#include "runtime/WeightStore.h"

#include "ir/base/Progress.h"
#include "runtime/MemoryPlan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace fusion {

/// Kernels load 16 bytes at once.
static constexpr uintptr_t kernelAlignment = 16;
static constexpr size_t progressStep = 256 << 20;

std::vector<bool> usedBuffers(const ProgramPlan &plan) {
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

namespace {
/// Where the bytes of a weight are: one run, or several equal ones that follow each other on the device.
struct Source {
  std::vector<const std::byte *> parts;
  size_t partBytes = 0; ///< of each; not needed where there is one
  bool isOnDevice = false;
};

std::vector<FileSpan> spansOf(const BufferPlan &buffer) {
  std::vector<FileSpan> spans = buffer.parts;
  if (spans.empty())
    spans.push_back(std::get<FileSpan>(buffer.contents));
  return spans;
}

Result<Source> sourceOf(SpanFiles &files, const BufferPlan &buffer, int rank, Device device) {
  std::vector<FileSpan> spans = spansOf(buffer);
  if (!buffer.perRank.empty()) {
    if (rank < 0 || static_cast<size_t>(rank) >= buffer.perRank.size())
      return badInput(fmt::format("weight {}: there is no file for rank {}", buffer.name, rank));
    spans = {buffer.perRank[static_cast<size_t>(rank)]};
  }
  Source source{{}, spans.front().length, true};
  for (const FileSpan &span : spans)
    source.parts.push_back(files.bytesOn(device, span));
  if (std::find(source.parts.begin(), source.parts.end(), nullptr) == source.parts.end())
    return source;
  source = {{}, spans.front().length, false};
  for (const FileSpan &span : spans) {
    Result<const std::byte *> bytes = files.bytesOf(span, buffer.name);
    if (!bytes)
      return bytes.error();
    source.parts.push_back(*bytes);
  }
  return source;
}

bool isOneRun(const std::vector<WeightRows> &rows) { return rows.size() == 1 && rows.front().count == 1; }
bool isAligned(const std::byte *start) { return reinterpret_cast<uintptr_t>(start) % kernelAlignment == 0; }

/// Copies rows that lie in one part to `target`.
Status uploadRows(Backend &backend, std::byte *target, const std::byte *source, bool isOnDevice, size_t bytes,
                  size_t pitch, size_t count) {
  if (!isOnDevice)
    return backend.uploadRows(target, source, bytes, pitch, count);
  if (pitch == bytes || count == 1)
    return backend.copy(target, source, bytes * count);
  for (size_t row = 0; row < count; ++row)
    if (Status status = backend.copy(target + row * bytes, source + row * pitch, bytes); !status)
      return status;
  return {};
}

/// Copies `rows` of the source, wherever the parts end, to `target`.
Status upload(Backend &backend, std::byte *target, const Source &source, const WeightRows &rows) {
  if (source.parts.size() == 1)
    return uploadRows(backend, target, source.parts.front() + rows.offset, source.isOnDevice, rows.bytes,
                      rows.pitch, rows.count);
  for (size_t row = 0; row < rows.count;) {
    const size_t start = rows.offset + row * rows.pitch, part = start / source.partBytes,
                 within = start % source.partBytes;
    const size_t room = source.partBytes - within;
    size_t count = 1; // rows that lie in this part
    if (rows.bytes <= room && rows.pitch > 0)
      count = std::min(rows.count - row, (room - rows.bytes) / rows.pitch + 1);
    if (rows.bytes <= room) {
      if (Status status = uploadRows(backend, target, source.parts[part] + within, source.isOnDevice,
                                     rows.bytes, rows.pitch, count);
          !status)
        return status;
    } else {
      for (size_t done = 0; done < rows.bytes;) {
        const size_t at = start + done, left = source.partBytes - at % source.partBytes;
        const size_t bytes = std::min(rows.bytes - done, left);
        if (Status status = uploadRows(backend, target + done,
                                       source.parts[at / source.partBytes] + at % source.partBytes,
                                       source.isOnDevice, bytes, bytes, 1);
            !status)
          return status;
        done += bytes;
      }
    }
    target += count * rows.bytes;
    row += count;
  }
  return {};
}
} // namespace

bool isReadInPlace(const BufferPlan &buffer, const std::vector<WeightRows> &rows, Device device) {
  if (buffer.kind != BufferPlan::Kind::Weight || !std::holds_alternative<FileSpan>(buffer.contents) ||
      !buffer.perRank.empty())
    return false;
  SpanFiles files;
  const std::vector<FileSpan> spans = spansOf(buffer);
  const std::byte *start =
      spans.size() == 1 && isOneRun(rows) ? files.bytesOn(device, spans.front()) : nullptr;
  return start && isAligned(start + rows.front().offset);
}

Result<WeightStore> WeightStore::load(const ProgramPlan &plan, Backend &backend, int rank,
                                      const NamedTensors &prepared,
                                      const std::vector<SharedWeights::Place> &elsewhere) {
  WeightStore store;
  store.storage = std::make_shared<Storage>();
  store.addresses.resize(plan.buffers.size(), nullptr);
  for (size_t i = 0; i < elsewhere.size(); ++i)
    if (elsewhere[i].address) {
      store.addresses[i] = elsewhere[i].address;
      store.storage->others.insert(elsewhere[i].owner);
    }
  for (const auto &[name, tensor] : prepared) {
    store.addresses[std::stoul(name)] = const_cast<void *>(tensor.data());
    store.storage->tensors.push_back(tensor);
  }

  struct Copy {
    BufferId buffer;
    Source source;
    std::vector<WeightRows> rows; ///< empty when another copy brings them
    size_t offset;
  };
  std::vector<Copy> copies;
  std::map<std::pair<std::vector<const std::byte *>, std::vector<WeightRows>>, size_t> placed;
  std::vector<bool> used = usedBuffers(plan);
  SpanFiles &files = store.storage->files;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan &buffer = plan.buffers[i];
    if (buffer.kind != BufferPlan::Kind::Weight || !used[i] || store.addresses[i])
      continue;
    Source source;
    if (auto *tensor = std::get_if<Tensor>(&buffer.contents)) {
      store.storage->tensors.push_back(*tensor);
      source.parts = {static_cast<const std::byte *>(tensor->data())};
    } else {
      Result<Source> found = sourceOf(files, buffer, rank, backend.device());
      if (!found)
        return found.error();
      source = std::move(*found);
    }
    Result<std::vector<WeightRows>> rows = weightRows(buffer, rank);
    if (!rows)
      return rows.error();
    const std::byte *start = source.parts.front() + rows->front().offset;
    if ((backend.sharesHostMemory() || source.isOnDevice) && source.parts.front() &&
        source.parts.size() == 1 && isOneRun(*rows) && isAligned(start)) {
      store.addresses[i] = const_cast<std::byte *>(start); // kernels do not write weights: verify() saw to it
    } else {
      // Tied weights name the same bytes: one copy serves all.
      auto [place, fresh] = placed.try_emplace({source.parts, *rows}, store.copiedBytes);
      copies.push_back({static_cast<BufferId>(i), std::move(source),
                        fresh ? *rows : std::vector<WeightRows>(), place->second});
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
    std::byte *target = static_cast<std::byte *>(memory->get()) + copy.offset;
    store.addresses[copy.buffer] = target;
    size_t done = 0;
    for (const WeightRows &rows : copy.rows) {
      if (Status status = upload(backend, target + done, copy.source, rows); !status)
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

std::vector<SharedWeights::Place> WeightStore::places() const {
  std::vector<SharedWeights::Place> places;
  for (void *address : addresses)
    places.push_back({address, address ? storage : nullptr});
  return places;
}

} // namespace fusion
