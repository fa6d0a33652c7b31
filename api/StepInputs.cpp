#include "api/StepInputs.h"

#include <algorithm>
#include <cstring>

namespace fusion {

static constexpr int64_t mostSteps = 256, alignment = 16; ///< alignment: as kernels take inputs

/// Of this type and shape, `offset` bytes behind the first of `tensor`.
static Tensor partOf(const Tensor &tensor, int64_t offset, DType type, Shape shape) {
  auto *first = static_cast<std::byte *>(const_cast<void *>(tensor.data()));
  return Tensor::wrap(type, std::move(shape), first + offset, tensor.storage(), tensor.device());
}

Result<NamedTensors> StepInputs::at(int64_t position, uint64_t counter) {
  if (end == 0)
    if (Status status = placeConstant(); !status)
      return status.error();
  if (position >= end)
    if (Status status = fillTables(position, counter); !status)
      return status.error();
  NamedTensors taken = constant;
  for (const auto &[name, table] : tables)
    taken[name] = partOf(table.entries, (position - begin) * table.pitch, table.type, table.shape);
  if (ones)
    taken[ones->first] = partOf(ones->second, 0, ones->second.type(), {inputs.batch, position + 1});
  else if (auto mask = inputs.maskUntil(position + 1))
    taken.insert(std::move(*mask));
  return taken;
}

Status StepInputs::placeConstant() {
  auto placed = program.place(inputs.constant());
  if (!placed)
    return placed.error();
  constant = std::move(*placed);
  if (inputs.hasPadding())
    return {};
  ones = inputs.maskUntil(inputs.width + options.tokens);
  if (!ones)
    return {};
  auto mask = program.place({*ones});
  if (!mask)
    return mask.error();
  ones->second = std::move(mask->begin()->second);
  return {};
}

Status StepInputs::fillTables(int64_t position, uint64_t counter) {
  const int64_t steps = std::clamp<int64_t>(inputs.width + options.tokens - position, 1, mostSteps);
  NamedTensors bytes;
  for (int64_t step = 0; step < steps; ++step)
    for (const auto &[name, value] : inputs.ofPositions(position + step, position + step + 1, options.seed,
                                                        counter + static_cast<uint64_t>(step))) {
      const auto size = static_cast<int64_t>(value.bytes());
      Table &table = tables[name];
      if (step == 0) {
        const int64_t pitch = (size + alignment - 1) / alignment * alignment;
        if (table.entries.data())
          earlier.push_back(table.entries);
        table = {value.type(), value.shape(), pitch, {}};
        bytes[name] = Tensor::zeros(DType::U8, {steps * pitch});
      }
      std::memcpy(bytes[name].as<std::byte>() + step * table.pitch, value.data(), value.bytes());
    }
  auto placed = program.place(bytes);
  if (!placed)
    return placed.error();
  for (auto &[name, entries] : *placed)
    tables[name].entries = std::move(entries);
  begin = position;
  end = position + steps;
  return {};
}

} // namespace fusion
