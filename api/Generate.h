// Generates tokens: the prompts run in chunks, then each step continues from the caches of the step before.
#pragma once

#include "api/Fusion.h"

namespace fusion {

struct GenerateOptions {
  int64_t tokens = 1;              ///< how many are generated for each prompt
  int64_t chunk = 0;               ///< positions of the prompts in one run; 0: all, or what the graph accepts
  std::optional<int64_t> endToken; ///< a prompt ends with it
  uint64_t seed = 0;               ///< of the random numbers
  NamedTensors inputs;             ///< all inputs but token ids, mask, positions and empty caches
  /// Called with each token as soon as it is on the host, in the order of the steps and then of the prompts.
  /// An error ends the generation. With it, tokens are brought to the host after each step.
  std::function<Status(size_t prompt, int64_t token)> onToken;
};

struct Generation {
  std::vector<std::vector<int64_t>> tokens; ///< of each prompt; up to the end token, if there is one
  double firstMicroseconds = 0;             ///< from the prompts to the first tokens on the host
  double restMicroseconds = 0;              ///< … and from there to the last ones
  int64_t steps = 0;                        ///< after the first
};

/// The graph of `program` was loaded with LoadOptions::sampling. It has inputs `input_ids` [batch, sequence]
/// and caches (those of Program::caches(), else those named `past…` and `present…`), and perhaps
/// `attention_mask`, `position_ids`, also [n, batch, sequence] of multimodal models, all alike, and
/// `cache_position` [sequence], the rows of the caches. Prompts of different lengths are padded in front,
/// which the mask hides. Between steps tokens stay on the device. Errors: an input that the graph lacks or
/// that is not given (BadInput), and those of Program::run.
Result<Generation> generate(Program &program, const std::vector<std::vector<int64_t>> &prompts,
                            const GenerateOptions &options);

/// The inputs of the generation's largest run, without contents: see CompileOptions::largestRun.
Result<NamedTensors> largestRunOf(const Graph &graph, const std::vector<std::vector<int64_t>> &prompts,
                                  const GenerateOptions &options);

/// "generate: 32 tokens for each of 4 prompts: the first after …", a line.
std::string describe(const Generation &generation);

} // namespace fusion
