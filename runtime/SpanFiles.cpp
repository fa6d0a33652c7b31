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
    return badInput(fmt::format("weight {}: {} has {} bytes, needs {} at offset {}", weight, span.path, available,
                                span.length, span.offset));
  return file->bytes().data() + span.offset;
}

} // namespace fusion
