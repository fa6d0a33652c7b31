#include "api/Generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace fusion {

namespace {
constexpr std::string_view maskName = "attention_mask", positionsName = "position_ids",
                           cachePositionName = "cache_position";
constexpr size_t stepsInFlight = 16; ///< whose tokens are brought to the host together

using Prompts = std::vector<std::vector<int64_t>>;

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

/// What the ports say, and the inputs of each run.
class Feed {
public:
  static Result<Feed> create(const std::vector<Port> &inputs, const std::vector<Port> &outputs,
                             const std::vector<Program::Cache> &caches, const Prompts &prompts,
                             const GenerateOptions &options) {
    Feed feed;
    feed.prompts = prompts;
    feed.batch = static_cast<int64_t>(prompts.size());
    if (prompts.empty())
      return badInput("there is no prompt to go on from");
    for (const std::vector<int64_t> &prompt : prompts)
      feed.width = std::max(feed.width, static_cast<int64_t>(prompt.size()));
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].empty())
        return badInput(fmt::format("prompt {} is empty", i));
      feed.padding.push_back(feed.width - static_cast<int64_t>(prompts[i].size()));
    }
    feed.ids = find(inputs, tokenIdsName);
    feed.mask = find(inputs, maskName);
    feed.positions = find(inputs, positionsName);
    if (const Port *rows = find(inputs, cachePositionName); rows && rows->shape.size() == 1)
      feed.cachePosition = rows;
    feed.seed = find(inputs, sampleSeedName);
    if (!find(outputs, nextTokensName))
      return badInput("the graph chooses no tokens: load it with a way of sampling");
    if (!feed.ids || feed.ids->shape.size() != 2 || !isInteger(feed.ids->type))
      return badInput(
          fmt::format("generating needs an input {} of integers, [batch, sequence]", tokenIdsName));
    if (Status status = feed.findPieces(options); !status)
      return status.error();
    if (feed.positions && feed.kindsOfPositions() == 0)
      return badInput(fmt::format("generating needs {} of [batch, sequence], or a number of such in front",
                                  positionsName));
    for (const Port &port : inputs)
      if (Status status = feed.addOther(port, outputs, caches, options); !status)
        return status.error();
    if (feed.pasts.empty())
      return badInput("generating needs caches: inputs called past… that become results called present…");
    const bool pads =
        std::any_of(feed.padding.begin(), feed.padding.end(), [](int64_t count) { return count > 0; });
    if (pads && (!feed.mask || !feed.positions))
      return badInput(
          fmt::format("prompts of different lengths need inputs {} and {}", maskName, positionsName));
    return feed;
  }

  /// Those of a run of positions [begin, end): all but the caches, and but the ids from the end of the
  /// prompts on.
  NamedTensors at(int64_t begin, int64_t end, uint64_t key, uint64_t counter) const {
    NamedTensors inputs = others;
    const int64_t count = end - begin;
    std::vector<int64_t> tokens, places, visible;
    for (int64_t row = 0; row < batch; ++row) {
      const int64_t pad = padding[static_cast<size_t>(row)];
      for (int64_t at = begin; at < end; ++at) {
        tokens.push_back(
            at < pad || at >= width ? 0 : prompts[static_cast<size_t>(row)][static_cast<size_t>(at - pad)]);
        places.push_back(std::max<int64_t>(at - pad, 0));
      }
      for (int64_t at = 0; mask && at < end; ++at)
        visible.push_back(at >= pad);
    }
    if (begin < width)
      inputs[ids->name] = integers(ids->type, {batch, count}, tokens);
    if (positions) {
      Shape shape = {batch, count};
      std::vector<int64_t> ofAllKinds;
      for (int64_t kind = 0; kind < kindsOfPositions(); ++kind)
        ofAllKinds.insert(ofAllKinds.end(), places.begin(), places.end());
      if (positions->shape.size() == 3)
        shape.insert(shape.begin(), kindsOfPositions());
      inputs[positions->name] = integers(positions->type, std::move(shape), ofAllKinds);
    }
    if (cachePosition) {
      std::vector<int64_t> rows(static_cast<size_t>(count));
      std::iota(rows.begin(), rows.end(), begin);
      inputs[cachePosition->name] = integers(cachePosition->type, {count}, rows);
    }
    if (mask)
      inputs[mask->name] = integers(mask->type, {batch, end}, visible);
    if (seed)
      inputs[seed->name] =
          integers(seed->type, {2}, {static_cast<int64_t>(key), static_cast<int64_t>(counter)});
    return inputs;
  }

  struct Past {
    std::string name, present;
    DType type;
    Shape shape;                ///< before the first position
    std::optional<size_t> axis; ///< that grows; of states none does
  };
  std::vector<Past> pasts;
  int64_t batch = 0, width = 0, chunk = 0;

private:
  /// Of text a token's positions in time, height and width, as multimodal models rotate by them, are alike:
  /// how many the graph takes; 0: what it takes is something else.
  int64_t kindsOfPositions() const {
    const DimShape &shape = positions->shape;
    if (shape.size() == 2)
      return 1;
    return shape.size() == 3 && shape[0].isStatic() ? shape[0].value() : 0;
  }

  /// How many positions a run takes.
  Status findPieces(const GenerateOptions &options) {
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

  Status addOther(const Port &port, const std::vector<Port> &outputs,
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

  Prompts prompts;
  std::vector<int64_t> padding; ///< positions before each prompt
  const Port *ids = nullptr, *mask = nullptr, *positions = nullptr, *cachePosition = nullptr, *seed = nullptr;
  NamedTensors others;
};

class Generator {
public:
  Generator(Program &program, const Feed &feed, const GenerateOptions &options)
      : program(program), feed(feed), options(options) {}

  Result<Generation> run() {
    generation.tokens.resize(static_cast<size_t>(feed.batch));
    const auto begin = std::chrono::steady_clock::now();
    for (const Feed::Past &past : feed.pasts)
      caches[past.name] = Tensor::zeros(past.type, past.shape);
    int64_t at = 0;
    while (at < feed.width) {
      const int64_t end = std::min(at + feed.chunk, feed.width);
      if (Status status = step(at, end, /*isLast=*/end == feed.width); !status)
        return status.error();
      at = end;
    }
    if (Status status = collect(); !status)
      return status.error();
    const auto first = std::chrono::steady_clock::now();
    for (int64_t done = 1; done < options.tokens && !allEnded(); ++done, ++at, ++generation.steps) {
      if (Status status = step(at, at + 1, /*isLast=*/true); !status)
        return status.error();
      // One step stays behind: the device has it to do meanwhile.
      if (options.onToken || waiting.size() > stepsInFlight)
        if (Status status = collect(1); !status)
          return status.error();
    }
    if (Status status = collect(); !status)
      return status.error();
    const auto last = std::chrono::steady_clock::now();
    generation.firstMicroseconds = std::chrono::duration<double, std::micro>(first - begin).count();
    generation.restMicroseconds = std::chrono::duration<double, std::micro>(last - first).count();
    return std::move(generation);
  }

private:
  /// Runs positions [begin, end); `isLast`: of a prompt, or of one that is finished, so that a token is
  /// chosen.
  Status step(int64_t begin, int64_t end, bool isLast) {
    NamedTensors inputs = feed.at(begin, end, options.seed, draws);
    if (begin >= feed.width)
      inputs[std::string(tokenIdsName)] = next;
    for (auto &[name, cache] : caches)
      inputs[name] = std::move(cache);
    auto outputs = program.run(inputs, Results::Queued);
    if (!outputs)
      return outputs.error();
    for (const Feed::Past &past : feed.pasts)
      caches[past.name] = std::move(outputs->at(past.present));
    if (isLast) {
      next = std::move(outputs->at(std::string(nextTokensName)));
      waiting.push_back(next);
      ++draws;
    }
    return {};
  }

  /// Brings the tokens of the steps since the last time to the host, but for the last `left` ones.
  Status collect(size_t left = 0) {
    const size_t count = waiting.size() - std::min(left, waiting.size());
    NamedTensors named;
    for (size_t i = 0; i < count; ++i)
      named[std::to_string(i)] = waiting[i];
    auto fetched = program.fetch(named);
    if (!fetched)
      return fetched.error();
    for (size_t i = 0; i < count; ++i) {
      const std::vector<int64_t> tokens = fetched->at(std::to_string(i)).toInts();
      for (size_t row = 0; row < tokens.size(); ++row)
        if (!hasEnded(row)) {
          generation.tokens[row].push_back(tokens[row]);
          if (options.onToken)
            if (Status status = options.onToken(row, tokens[row]); !status)
              return status;
        }
    }
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<int64_t>(count));
    return {};
  }

  bool hasEnded(size_t row) const {
    const std::vector<int64_t> &tokens = generation.tokens[row];
    return options.endToken && !tokens.empty() && tokens.back() == *options.endToken;
  }
  bool allEnded() const {
    std::vector<size_t> rows(generation.tokens.size());
    std::iota(rows.begin(), rows.end(), size_t(0));
    return std::all_of(rows.begin(), rows.end(), [&](size_t row) { return hasEnded(row); });
  }

  Program &program;
  const Feed &feed;
  const GenerateOptions &options;
  Generation generation;
  NamedTensors caches;
  Tensor next;
  std::vector<Tensor> waiting;
  uint64_t draws = 0;
};
} // namespace

Result<Generation> generate(Program &program, const Prompts &prompts, const GenerateOptions &options) {
  if (options.tokens < 1)
    return badInput(fmt::format("{} tokens to generate", options.tokens));
  const std::vector<Port> inputs = program.inputs();
  auto feed = Feed::create(inputs, program.outputs(), program.caches(), prompts, options);
  if (!feed)
    return feed.error();
  return Generator(program, *feed, options).run();
}

Result<NamedTensors> largestRunOf(const Graph &graph, const Prompts &prompts,
                                  const GenerateOptions &options) {
  auto feed = Feed::create(graph.inputs(), graph.outputs(), {}, prompts, options);
  if (!feed)
    return feed.error();
  const int64_t begin = (feed->width - 1) / feed->chunk * feed->chunk;
  NamedTensors inputs = feed->at(begin, feed->width, 0, 0);
  for (Feed::Past past : feed->pasts) {
    if (past.axis)
      past.shape[*past.axis] = begin;
    inputs[past.name] = Tensor::wrap(past.type, past.shape, nullptr, nullptr);
  }
  return inputs;
}

std::string describe(const Generation &generation) {
  size_t tokens = 0;
  for (const std::vector<int64_t> &row : generation.tokens)
    tokens += row.size();
  std::string text = fmt::format("generate: {} tokens of {} prompts, the first after {:.1f} us", tokens,
                                 generation.tokens.size(), generation.firstMicroseconds);
  if (generation.steps > 0)
    text += fmt::format(", then one in {:.1f} us, {:.1f} tokens a second",
                        generation.restMicroseconds / static_cast<double>(generation.steps),
                        1e6 * static_cast<double>(generation.steps) *
                            static_cast<double>(generation.tokens.size()) / generation.restMicroseconds);
  return text + "\n";
}

} // namespace fusion
