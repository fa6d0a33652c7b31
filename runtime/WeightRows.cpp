#include "runtime/WeightRows.h"

#include "ir/base/BindSymbols.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

namespace fusion {

static size_t bitsOf(DType type) {
  return type == DType::I4 || type == DType::U4 ? 4 : 8 * byteSize(type);
}

Result<std::vector<WeightRows>> weightRows(const BufferPlan &buffer, int rank) {
  Shape sizes;
  for (const Dim &dim : buffer.shape)
    sizes.push_back(dim.value());
  const auto bits = static_cast<int64_t>(bitsOf(buffer.type));
  const Shape whole = buffer.window ? buffer.window->whole : sizes;
  int64_t origin = 0, stride = 1;
  Shape strides(sizes.size());
  for (size_t i = sizes.size(); i-- > 0; stride *= whole[i]) {
    strides[i] = stride;
    if (!buffer.window)
      continue;
    Result<int64_t> start = buffer.window->starts[i].evaluate({{std::string(rankSymbol), rank}});
    if (!start || *start < 0 || *start > whole[i] - sizes[i])
      return badInput(fmt::format("weight {}: rank {} has no part of it", buffer.name, rank));
    origin += *start * stride;
  }
  if (sizes == whole || elementCount(sizes) == 0)
    return std::vector{WeightRows{0, static_cast<size_t>((elementCount(sizes) * bits + 7) / 8)}};

  // [outer dims] [cut dim, dims that are whole: rows equally far apart] [last cut dim and those after: one
  // row]
  auto lastCutBefore = [&](size_t end) {
    while (end > 0 && sizes[end - 1] == whole[end - 1])
      --end;
    return end > 0 ? end - 1 : 0;
  };
  const size_t inner = lastCutBefore(sizes.size()), outer = lastCutBefore(inner);
  const int64_t length = sizes[inner] * strides[inner], pitch = whole[inner] * strides[inner];
  const int64_t count =
      std::accumulate(sizes.begin() + static_cast<int64_t>(outer),
                      sizes.begin() + static_cast<int64_t>(inner), int64_t(1), std::multiplies<>());
  const int64_t groups = elementCount(std::span(sizes).first(outer));
  std::vector<WeightRows> rows;
  for (int64_t group = 0; group < groups; ++group) {
    int64_t first = origin;
    for (int64_t i = static_cast<int64_t>(outer), left = group; i-- > 0;
         left /= sizes[static_cast<size_t>(i)])
      first += left % sizes[static_cast<size_t>(i)] * strides[static_cast<size_t>(i)];
    if (first * bits % 8 != 0 || length * bits % 8 != 0 || (count > 1 && pitch * bits % 8 != 0))
      return badInput(
          fmt::format("weight {}: the part of rank {} starts or ends inside a byte", buffer.name, rank));
    rows.push_back({static_cast<size_t>(first * bits / 8), static_cast<size_t>(length * bits / 8),
                    static_cast<size_t>(pitch * bits / 8), static_cast<size_t>(count)});
  }
  return rows;
}

} // namespace fusion
