#include "api/Decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

namespace fusion {
namespace {

/// `count` times more of the last elements along the axis.
Tensor lengthened(const Tensor &tensor, size_t axis, int64_t count) {
  const Tensor from = tensor.dense();
  Shape shape = from.shape();
  const Shape all = shape;
  shape[axis] += count;
  Tensor to = Tensor::uninitialized(from.type(), shape);
  const auto rows = static_cast<size_t>(elementCount(std::span(all).first(axis)));
  const size_t item = static_cast<size_t>(elementCount(std::span(all).subspan(axis + 1))) *
                      byteSize(from.type()),
               before = item * static_cast<size_t>(all[axis]),
               after = item * static_cast<size_t>(shape[axis]);
  for (size_t row = 0; row < rows; ++row) {
    std::byte *target = to.as<std::byte>() + row * after;
    std::memcpy(target, from.as<std::byte>() + row * before, before);
    for (size_t done = before; done < after && before > 0; done += item)
      std::memcpy(target + done, target + before - item, item);
  }
  return to;
}

/// How long the caches were and are, by the axis in which the first of them that grows did: states do not.
struct Growth {
  int64_t before = 0, after = 0;
  std::string past; ///< the cache's name as an input
  size_t axis = 0;
};
Growth growthOf(const std::vector<Program::Cache> &caches, const NamedTensors &inputs,
                const NamedTensors &outputs) {
  for (const Program::Cache &cache : caches) {
    const Shape &past = inputs.at(cache.past).shape(), &present = outputs.at(cache.present).shape();
    for (size_t axis = 0; axis < past.size(); ++axis)
      if (past[axis] != present[axis])
        return {past[axis], present[axis], cache.past, axis};
  }
  return {};
}

/// The dims that grow with the caches: those that the graph calculates from the caches' length, or, where it
/// says so of none, those that are as long as the caches became and have nothing to do with what the caches'
/// shapes are made of, as the batch and the number of new tokens have.
void lengthenOthers(const Program &program, const Growth &growth, const std::vector<Program::Cache> &caches,
                    NamedTensors &inputs) {
  const std::vector<Port> ports = program.inputs();
  std::set<std::string> length;
  for (const Port &port : ports)
    if (port.name == growth.past)
      length = port.shape[growth.axis].symbols();
  auto isCache = [&](const Port &port) {
    return std::any_of(caches.begin(), caches.end(),
                       [&](const Program::Cache &cache) { return cache.past == port.name; });
  };
  auto speaksOf = [](const Dim &dim, const std::set<std::string> &names) {
    const std::set<std::string> symbols = dim.symbols();
    return std::any_of(symbols.begin(), symbols.end(),
                       [&](const std::string &symbol) { return names.count(symbol) > 0; });
  };
  auto grows = [&](const Dim &dim) { return speaksOf(dim, length); };
  std::set<std::string> others;
  for (const Port &port : program.outputs())
    if (std::any_of(caches.begin(), caches.end(),
                    [&](const Program::Cache &cache) { return cache.present == port.name; }))
      for (const Dim &dim : port.shape)
        others.merge(dim.symbols());
  const bool says = std::any_of(ports.begin(), ports.end(), [&](const Port &port) {
    return !isCache(port) && std::any_of(port.shape.begin(), port.shape.end(), grows);
  });
  for (const Port &port : ports) {
    Tensor &tensor = inputs.at(port.name);
    if (tensor.device().kind != Device::Kind::Host || isCache(port))
      continue;
    for (size_t axis = 0; axis < port.shape.size(); ++axis)
      if (!port.shape[axis].isStatic() && tensor.shape()[axis] == growth.after &&
          (says ? grows(port.shape[axis]) : !speaksOf(port.shape[axis], others)))
        tensor = lengthened(tensor, axis, growth.after - growth.before);
  }
}

double middle(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

} // namespace

Result<DecodeTimes> decode(Program &program, NamedTensors &inputs, NamedTensors &outputs, int steps) {
  const std::vector<Program::Cache> caches = program.caches();
  if (caches.empty())
    return badInput("steps need caches that are extended in place: --kv-capacity");
  DecodeTimes times;
  for (int step = 0; step < steps; ++step) {
    lengthenOthers(program, growthOf(caches, inputs, outputs), caches, inputs);
    for (const Program::Cache &cache : caches)
      inputs[cache.past] = outputs.at(cache.present);
    outputs.clear();
    const auto begin = std::chrono::steady_clock::now();
    auto results = program.run(inputs, Results::Device);
    const auto end = std::chrono::steady_clock::now();
    if (!results)
      return results.error();
    outputs = std::move(*results);
    times.host.push_back(program.statistics().hostMicroseconds);
    times.whole.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  return times;
}

std::string describe(const DecodeTimes &times, const RunStatistics &statistics) {
  return fmt::format(
      "decode: {} steps, host median {:.1f} us, whole median {:.1f} us; shapes planned {} times, changed {} "
      "times, {} speculated; graphs recorded {} times, replayed {} times, {} kernels changed{}\n",
      times.host.size(), middle(times.host), middle(times.whole), statistics.plans, statistics.updates,
      statistics.speculated, statistics.recordings, statistics.replays, statistics.changedLaunches,
      statistics.whyOneByOne.empty() ? "" : "; the last run launched one by one: " + statistics.whyOneByOne);
}

} // namespace fusion
