// The inputs of a generation's steps, of many steps at a time where the program reads them.
#pragma once

#include "api/GenerationInputs.h"

namespace fusion {

/// A copy to the device between two steps would leave it idle for 2 to 3 µs. So it has positions, cache rows
/// and draws of many steps at once, a mask of ones, of which each step takes what it needs, and what is the
/// same in all steps. Masks with padding, and what runs look into for indices out of range, come from the
/// host.
class StepInputs {
public:
  /// `program` and `inputs` must outlive it, and it the runs.
  StepInputs(Program &program, const GenerationInputs &inputs, const GenerateOptions &options)
      : program(program), inputs(inputs), options(options) {}

  /// Those of the step at `position`, behind the prompts: all but caches and ids. Asked for one position
  /// after the other; `counter` grows by 1 with each.
  Result<NamedTensors> at(int64_t position, uint64_t counter);

private:
  struct Table {
    DType type;
    Shape shape;    ///< of each step's
    int64_t pitch;  ///< bytes from one step's to the next one's
    Tensor entries; ///< as bytes
  };
  Status placeConstant();
  Status fillTables(int64_t position, uint64_t counter);

  Program &program;
  const GenerationInputs &inputs;
  const GenerateOptions &options;
  NamedTensors constant;
  std::optional<std::pair<std::string, Tensor>> ones; ///< the longest mask
  std::map<std::string, Table> tables;
  std::vector<Tensor> earlier; ///< of tables that queued runs may still read
  int64_t begin = 0, end = 0;  ///< the positions in `tables`
};

} // namespace fusion
