#include "runtime/Arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

bool isEmptyView(const ShapePlan::Argument &sizes) {
  return std::ranges::count(std::span(sizes.extents).first(sizes.extents.size() / 2), 0) > 0;
}

std::optional<std::string> tensorMapProblem(const TensorMapArgument &map, const ShapePlan::Argument &sizes,
                                            size_t bufferBytes) {
  const size_t rank = sizes.extents.size() / 2;
  const auto elementBytes = static_cast<int64_t>(byteSize(map.type));
  int64_t last = 0; // element
  for (size_t dim = 0; dim < rank; ++dim) {
    const int64_t extent = sizes.extents[dim], stride = sizes.extents[rank + dim];
    if (extent < 0 || extent > UINT32_MAX)
      return fmt::format("has a dim of {}", extent);
    if (dim + 1 < rank && stride * elementBytes % 16 != 0)
      return fmt::format("has a stride of {} bytes, not of whole 16", stride * elementBytes);
    int64_t reach = 0;
    if (__builtin_mul_overflow(extent - 1, stride, &reach) || __builtin_add_overflow(last, reach, &last))
      return std::string("is too large");
  }
  if (sizes.value % 16 != 0)
    return fmt::format("begins at byte {}, not at whole 16", sizes.value);
  if (!isEmptyView(sizes) && last >= static_cast<int64_t>(bufferBytes - sizes.value) / elementBytes)
    return fmt::format("reaches element {} after byte {} of a buffer of {} bytes", last, sizes.value,
                       bufferBytes);
  return std::nullopt;
}

namespace {
/// Appends the words of an argument, by its kind.
struct AppendWords {
  const ShapePlan::Argument &sizes;
  std::span<void *const> places;
  void *exchange;
  Backend &backend;
  std::vector<uint64_t> &words;

  uint64_t address() const { return reinterpret_cast<uint64_t>(places[sizes.place]); }

  Status operator()(const PointerArgument &) const {
    words.push_back(address() + sizes.value);
    return {};
  }
  Status operator()(const ScalarArgument &) const {
    words.push_back(sizes.value);
    return {};
  }
  Status operator()(const TensorMapArgument &map) const {
    words.resize(words.size() + Backend::tensorMapWords);
    return backend.encodeTensorMap(map, sizes.extents, reinterpret_cast<void *>(address() + sizes.value),
                                   std::span(words).last<Backend::tensorMapWords>());
  }
  Status operator()(const WorkspaceArgument &) const {
    words.push_back(address());
    return {};
  }
  Status operator()(const ExchangeArgument &) const {
    words.push_back(reinterpret_cast<uint64_t>(exchange));
    return {};
  }
};
} // namespace

Status resolveArguments(const ShapePlan::Launch &launch, std::span<void *const> places, void *exchange,
                        Backend &backend, std::vector<uint64_t> &words) {
  words.clear();
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const AppendWords append{launch.arguments[i], places, exchange, backend, words};
    if (Status status = std::visit(append, launch.launch->arguments[i]); !status)
      return status;
  }
  return {};
}

Status clearWorkspace(const ShapePlan::Launch &launch, std::span<void *const> places, Backend &backend) {
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    auto *workspace = std::get_if<WorkspaceArgument>(&launch.launch->arguments[i]);
    if (!workspace || workspace->contents != WorkspaceArgument::Contents::Zeroed)
      continue;
    Status status =
        backend.call([&backend, address = places[launch.arguments[i].place],
                      bytes = launch.arguments[i].value] { return backend.fill(address, 0, bytes); });
    if (!status)
      return status;
  }
  return {};
}

} // namespace fusion
