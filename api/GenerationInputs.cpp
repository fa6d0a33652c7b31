#include "api/GenerationInputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace fusion {

namespace {
constexpr std::string_view maskName = "attention_mask", positionsName = "position_ids",
                           cachePositionName = "cache_position";

const Port *find(const std::vector<Port> &ports, std::string_view name) {
  auto port = std::find_if(ports.begin(), ports.end(), [&](const Port &port) { return port.name == name; });
  return port == ports.end() ? nullptr : &*port;
}

/// `present.0.key` for `past_key_values.0.key`; empty for names of other inputs.
std::string presentNamed(const std::string &past) {
  for (const char *prefix : {"past_key_values", "past_states", "past"})
    if (past.starts_with(prefix))
      return "present" + past.substr(std::string_view(prefix).size());
  return {};
}

Tensor integers(DType type, Shape shape, const std::vector<int64_t> &values) {
  return Tensor::of<int64_t>(DType::I64, std::move(shape), std::span<const int64_t>(values))
      .convertedTo(type);
}
} // namespace

Result<GenerationInputs> GenerationInputs::create(const std::vector<Port> &inputs,
                                                  const std::vector<Port> &outputs,
                                                  const std::vector<Program::Cache> &caches,
                                                  const Prompts &prompts, const GenerateOptions &options) {
  GenerationInputs made;
  made.prompts = prompts;
  made.batch = static_cast<int64_t>(prompts.size());
  if (prompts.empty())
    return badInput("there is no prompt to go on from");
  for (const std::vector<int64_t> &prompt : prompts)
    made.width = std::max(made.width, static_cast<int64_t>(prompt.size()));
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty())
      return badInput(fmt::format("prompt {} is empty", i));
    made.padding.push_back(made.width - static_cast<int64_t>(prompts[i].size()));
  }
  made.ids = find(inputs, tokenIdsName);
  made.mask = find(inputs, maskName);
  made.positions = find(inputs, positionsName);
  if (const Port *rows = find(inputs, cachePositionName); rows && rows->shape.size() == 1)
    made.cachePosition = rows;
  made.seed = find(inputs, sampleSeedName);
  if (!find(outputs, nextTokensName))
    return badInput("the graph chooses no tokens: load it with a way of sampling");
  if (!made.ids || made.ids->shape.size() != 2 || !isInteger(made.ids->type))
    return badInput(fmt::format("generating needs an input {} of integers, [batch, sequence]", tokenIdsName));
  if (Status status = made.findPieces(options); !status)
    return status.error();
  if (made.positions && made.kindsOfPositions() == 0)
    return badInput(
        fmt::format("generating needs {} of [batch, sequence], or a number of such in front", positionsName));
  for (const Port &port : inputs)
    if (Status status = made.addOther(port, outputs, caches, options); !status)
      return status.error();
  if (made.pasts.empty())
    return badInput("generating needs caches: inputs called past… that become results called present…");
  if (made.hasPadding() && (!made.mask || !made.positions))
    return badInput(
        fmt::format("prompts of different lengths need inputs {} and {}", maskName, positionsName));
  return made;
}

NamedTensors GenerationInputs::at(int64_t begin, int64_t end, uint64_t key, uint64_t counter) const {
  NamedTensors inputs = others;
  inputs.merge(ofPositions(begin, end, key, counter));
  if (auto visible = maskUntil(end))
    inputs.insert(std::move(*visible));
  if (begin < width) {
    std::vector<int64_t> tokens;
    for (int64_t row = 0; row < batch; ++row)
      for (int64_t at = begin; at < end; ++at) {
        const int64_t inPrompt = at - padding[static_cast<size_t>(row)];
        tokens.push_back(inPrompt < 0 || at >= width
                             ? 0
                             : prompts[static_cast<size_t>(row)][static_cast<size_t>(inPrompt)]);
      }
    inputs[ids->name] = integers(ids->type, {batch, end - begin}, tokens);
  }
  return inputs;
}

NamedTensors GenerationInputs::ofPositions(int64_t begin, int64_t end, uint64_t key, uint64_t counter) const {
  NamedTensors inputs;
  const int64_t count = end - begin;
  if (positions) {
    std::vector<int64_t> places;
    for (int64_t kind = 0; kind < kindsOfPositions(); ++kind)
      for (int64_t row = 0; row < batch; ++row)
        for (int64_t at = begin; at < end; ++at)
          places.push_back(std::max<int64_t>(at - padding[static_cast<size_t>(row)], 0));
    Shape shape = {batch, count};
    if (positions->shape.size() == 3)
      shape.insert(shape.begin(), kindsOfPositions());
    inputs[positions->name] = integers(positions->type, std::move(shape), places);
  }
  if (cachePosition) {
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), begin);
    inputs[cachePosition->name] = integers(cachePosition->type, {count}, rows);
  }
  if (seed)
    inputs[seed->name] =
        integers(seed->type, {2}, {static_cast<int64_t>(key), static_cast<int64_t>(counter)});
  return inputs;
}

std::optional<std::pair<std::string, Tensor>> GenerationInputs::maskUntil(int64_t end) const {
  if (!mask)
    return std::nullopt;
  std::vector<int64_t> visible;
  for (int64_t row = 0; row < batch; ++row)
    for (int64_t at = 0; at < end; ++at)
      visible.push_back(at >= padding[static_cast<size_t>(row)]);
  return std::pair(mask->name, integers(mask->type, {batch, end}, visible));
}

bool GenerationInputs::hasPadding() const {
  return std::any_of(padding.begin(), padding.end(), [](int64_t count) { return count > 0; });
}

/// Of text a token's positions in time, height and width, as multimodal models rotate by them, are alike:
/// how many the graph takes; 0: what it takes is something else.
int64_t GenerationInputs::kindsOfPositions() const {
  const DimShape &shape = positions->shape;
  if (shape.size() == 2)
    return 1;
  return shape.size() == 3 && shape[0].isStatic() ? shape[0].value() : 0;
}

/// How many positions a run takes.
Status GenerationInputs::findPieces(const GenerateOptions &options) {
  if (ids->shape[0].isStatic() && ids->shape[0].value() != batch)
    return badInput(fmt::format("the graph takes {} prompts, not {}", ids->shape[0].value(), batch));
  chunk = options.chunk > 0 ? options.chunk : width;
  if (!ids->shape[1].isStatic())
    return {};
  if (ids->shape[1].value() != 1)
    return badInput(
        fmt::format("the graph takes {} tokens at a time; generating needs one that takes any number, or 1",
                    ids->shape[1].value()));
  chunk = 1;
  return {};
}

Status GenerationInputs::addOther(const Port &port, const std::vector<Port> &outputs,
                                  const std::vector<Program::Cache> &caches, const GenerateOptions &options) {
  if (&port == ids || &port == mask || &port == positions || &port == cachePosition || &port == seed)
    return {};
  std::string present = presentNamed(port.name);
  for (const Program::Cache &cache : caches)
    if (cache.past == port.name)
      present = cache.present;
  const Port *result = present.empty() ? nullptr : find(outputs, present);
  auto given = options.inputs.find(port.name);
  if (!result) {
    if (given == options.inputs.end())
      return badInput(fmt::format(
          "input {} is neither token ids, mask, positions nor a cache: give it a value", port.name));
    others[port.name] = given->second;
    return {};
  }
  Past past{port.name, present, port.type, {}, {}};
  for (size_t axis = 0; axis < port.shape.size(); ++axis)
    if (!port.shape[axis].isStatic() && port.shape[axis] != ids->shape[0] && !past.axis &&
        (axis >= result->shape.size() || !(result->shape[axis] == port.shape[axis])))
      past.axis = axis;
  for (size_t axis = 0; axis < port.shape.size(); ++axis) {
    const Dim &dim = port.shape[axis];
    const bool isGiven = given != options.inputs.end() && given->second.shape().size() == port.shape.size();
    if (past.axis == axis)
      past.shape.push_back(0);
    else if (dim.isStatic())
      past.shape.push_back(dim.value());
    else if (axis == 0)
      past.shape.push_back(batch);
    else if (isGiven)
      past.shape.push_back(given->second.shape()[axis]);
    else
      return badInput(
          fmt::format("input {}: how long {} is does not follow from the graph: give an example of it",
                      port.name, dim.str()));
  }
  pasts.push_back(std::move(past));
  return {};
}

} // namespace fusion
