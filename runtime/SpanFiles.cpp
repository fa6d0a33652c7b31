#include "runtime/SpanFiles.h"

#include <fmt/format.h>

namespace fusion {

Result<const std::byte *> SpanFiles::bytesOf(const FileSpan &span, const std::string &weight) {
  std::shared_ptr<MappedFile> &file = files[span.path];
  if (!file) {
    Result<std::shared_ptr<MappedFile>> opened = MappedFile::open(span.path);
    if (!opened)
      return badInput(fmt::format("weight {}: {}", weight, opened.error().message));
    file = *opened;
  }
  const size_t available = file->bytes().size();
  if (span.offset > available || span.length > available - span.offset)
    return badInput(fmt::format("weight {}: {} has {} bytes, needs {} at offset {}", weight, span.path,
                                available, span.length, span.offset));
  return file->bytes().data() + span.offset;
}

const std::byte *SpanFiles::bytesOn(Device device, const FileSpan &span) {
  if (device.kind != Device::Kind::Cuda)
    return nullptr;
  std::optional<MappedFile::Found> found = MappedFile::onGpu(span.path);
  if (!found || found->place.ordinal != device.ordinal || span.offset > found->place.size ||
      span.length > found->place.size - span.offset)
    return nullptr;
  onGpu[span.path] = std::move(found->file);
  return found->place.address + span.offset;
}

} // namespace fusion
