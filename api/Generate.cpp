#include "api/Generate.h"

#include "api/GenerationInputs.h"
#include "api/StepInputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace fusion {

namespace {
constexpr size_t stepsInFlight = 16; ///< whose tokens are brought to the host together

class Generator {
public:
  Generator(Program &program, const GenerationInputs &feed, const GenerateOptions &options)
      : program(program), feed(feed), options(options), steps(program, feed, options) {}

  Result<Generation> run() {
    generation.tokens.resize(static_cast<size_t>(feed.batch));
    const auto begin = std::chrono::steady_clock::now();
    for (const GenerationInputs::Past &past : feed.pasts)
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
    auto given = begin < feed.width ? feed.at(begin, end, options.seed, draws) : steps.at(begin, draws);
    if (!given)
      return given.error();
    NamedTensors inputs = std::move(*given);
    if (begin >= feed.width)
      inputs[std::string(tokenIdsName)] = next;
    for (auto &[name, cache] : caches)
      inputs[name] = std::move(cache);
    auto outputs = program.run(inputs, Results::Queued);
    if (!outputs)
      return outputs.error();
    for (const GenerationInputs::Past &past : feed.pasts)
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
  const GenerationInputs &feed;
  const GenerateOptions &options;
  StepInputs steps;
  Generation generation;
  NamedTensors caches;
  Tensor next;
  std::vector<Tensor> waiting;
  uint64_t draws = 0;
};
} // namespace

Result<Generation> generate(Program &program, const std::vector<std::vector<int64_t>> &prompts,
                            const GenerateOptions &options) {
  if (options.tokens < 1)
    return badInput(fmt::format("{} tokens to generate", options.tokens));
  const std::vector<Port> inputs = program.inputs();
  auto feed = GenerationInputs::create(inputs, program.outputs(), program.caches(), prompts, options);
  if (!feed)
    return feed.error();
  return Generator(program, *feed, options).run();
}

Result<NamedTensors> largestRunOf(const Graph &graph, const std::vector<std::vector<int64_t>> &prompts,
                                  const GenerateOptions &options) {
  auto feed = GenerationInputs::create(graph.inputs(), graph.outputs(), {}, prompts, options);
  if (!feed)
    return feed.error();
  const int64_t begin = (feed->width - 1) / feed->chunk * feed->chunk;
  NamedTensors inputs = feed->at(begin, feed->width, 0, 0);
  for (GenerationInputs::Past past : feed->pasts) {
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
