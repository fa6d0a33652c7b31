// What a generation's runs take in, but for caches and the tokens that steps choose.
#pragma once

#include "api/Generate.h"

namespace fusion {

/// What the ports say, and the inputs of each run.
class GenerationInputs {
public:
  using Prompts = std::vector<std::vector<int64_t>>;
  static Result<GenerationInputs> create(const std::vector<Port> &inputs, const std::vector<Port> &outputs,
                                         const std::vector<Program::Cache> &caches, const Prompts &prompts,
                                         const GenerateOptions &options);

  /// Those of a run of positions [begin, end): all but the caches, and but the ids from the end of the
  /// prompts on.
  NamedTensors at(int64_t begin, int64_t end, uint64_t key, uint64_t counter) const;
  /// Of these, the ones that say where its positions are, and what a draw is of. From step to step they keep
  /// their shapes.
  NamedTensors ofPositions(int64_t begin, int64_t end, uint64_t key, uint64_t counter) const;
  /// The mask of a run up to `end`; none if the graph takes none. Of prompts of one length all of it is 1.
  std::optional<std::pair<std::string, Tensor>> maskUntil(int64_t end) const;
  bool hasPadding() const;
  /// The same in all runs.
  const NamedTensors &constant() const { return others; }

  struct Past {
    std::string name, present;
    DType type;
    Shape shape;                ///< before the first position
    std::optional<size_t> axis; ///< that grows; of states none does
  };
  std::vector<Past> pasts;
  int64_t batch = 0, width = 0, chunk = 0;

private:
  int64_t kindsOfPositions() const;
  Status findPieces(const GenerateOptions &options);
  Status addOther(const Port &port, const std::vector<Port> &outputs,
                  const std::vector<Program::Cache> &caches, const GenerateOptions &options);

  Prompts prompts;
  std::vector<int64_t> padding; ///< positions before each prompt
  const Port *ids = nullptr, *mask = nullptr, *positions = nullptr, *cachePosition = nullptr, *seed = nullptr;
  NamedTensors others;
};

} // namespace fusion
