// Tokens one after the other: the prompts in chunks, then each from the caches that the step before left.
#pragma once

#include "api/Fusion.h"

namespace fusion {

struct GenerateOptions {
  int64_t tokens = 1;              ///< to generate for each prompt
  int64_t chunk = 0;               ///< positions of the prompts in one run; 0: all, or what the graph takes
  std::optional<int64_t> endToken; ///< nothing follows it
  uint64_t seed = 0;               ///< of what is drawn
  NamedTensors inputs;             ///< inputs that are neither token ids, mask, positions nor empty caches
  /// Called with each token, step by step and in a step prompt by prompt, as soon as it is on the host; an
  /// error ends the generation. Tokens are brought to the host one step at a time then.
  std::function<Status(size_t prompt, int64_t token)> onToken;
};

struct Generation {
  std::vector<std::vector<int64_t>> tokens; ///< of each prompt; up to the end token, if there is one
  double firstMicroseconds = 0;             ///< from the prompts to the first tokens on the host
  double restMicroseconds = 0;              ///< … and from there to the last ones
  int64_t steps = 0;                        ///< after the first
};

/// `program` is of a graph with LoadOptions::sampling that has inputs `input_ids` [batch, sequence], caches
/// (see Program::Cache; else those whose names say so: `past…` and `present…`), and perhaps `attention_mask`
/// and `position_ids`. Prompts of different lengths are padded in front, under the mask. Tokens stay where
/// the program runs from step to step. Errors: what the graph lacks or takes besides (BadInput), and those of
/// Program::run.
Result<Generation> generate(Program &program, const std::vector<std::vector<int64_t>> &prompts,
                            const GenerateOptions &options);

/// Inputs of the largest of its runs, without contents: see CompileOptions::largestRun.
Result<NamedTensors> largestRunOf(const Graph &graph, const std::vector<std::vector<int64_t>> &prompts,
                                  const GenerateOptions &options);

/// "generate: 32 tokens for each of 4 prompts: the first after …", a line.
std::string describe(const Generation &generation);

} // namespace fusion
