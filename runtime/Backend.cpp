#include "runtime/Backend.h"

namespace fusion {

/// `tensor` as rows of `bytes` each; nothing if its own rows are no multiple of that.
static std::optional<Tensor::Rows> inRowsOf(const Tensor &tensor, size_t bytes) {
  std::optional<Tensor::Rows> rows = tensor.rows();
  if (!rows || bytes == 0 || rows->bytes % bytes != 0 || (rows->count > 1 && rows->bytes != bytes))
    return std::nullopt;
  if (rows->count == 1)
    return Tensor::Rows{rows->bytes / bytes, bytes, bytes};
  return rows;
}

Status Backend::downloadAll(std::span<const Download> wanted) {
  for (const Download &one : wanted)
    if (Status status = download(one.target, one.source, one.bytes); !status)
      return status;
  return {};
}

Status Backend::transfer(const Tensor &source, Tensor &target) {
  if (source.size() == 0)
    return {};
  auto from = source.rows(), to = target.rows();
  const size_t bytes = from && to ? std::min(from->bytes, to->bytes) : 0;
  from = inRowsOf(source, bytes);
  to = inRowsOf(target, bytes);
  if (!from || !to || from->count != to->count)
    return badInput("the gaps of a tensor are not regular: make it dense, or view a cache of this program");
  const bool fromHost = source.device().kind == Device::Kind::Host && !sharesHostMemory();
  const bool toHost = target.device().kind == Device::Kind::Host && !sharesHostMemory();
  for (size_t row = 0; row < from->count; ++row) {
    const void *begin = source.as<char>() + row * from->pitch;
    void *place = target.as<char>() + row * to->pitch;
    Status status = fromHost ? upload(place, begin, bytes)
                    : toHost ? download(place, begin, bytes)
                             : copy(place, begin, bytes);
    if (!status)
      return status;
  }
  return {};
}

Status Backend::uploadRows(void *target, const void *source, size_t bytes, size_t pitch, size_t count) {
  for (size_t row = 0; row < count; ++row)
    if (Status status = upload(static_cast<std::byte *>(target) + row * bytes,
                               static_cast<const std::byte *>(source) + row * pitch, bytes);
        !status)
      return status;
  return {};
}

} // namespace fusion
