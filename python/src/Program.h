// A program's calls for Python.
#pragma once

#include "Values.h"

namespace fusion::python {

struct Program {
  explicit Program(fusion_program *made);
  /// Its threads may be letting go of Python's tensors.
  ~Program();
  Handle<fusion_program, fusion_program_destroy> handle;
  struct Output {
    nb::object name;
    bool isCache; ///< extends a cache where it lies
  };
  std::vector<Output> outputs;
  CallMemory memory;
};

/// Results by name: torch.Tensors if an input is one, on torch's current stream if it lies on a GPU; else
/// numpy arrays where numpy has them. Caches are fusion.Tensors. `typed`: see Arguments.
nb::dict call(Program &program, const nb::dict &inputs, nb::handle typed);
/// fusion.Tensors by name. `stream`: a cudaStream_t where the run is queued; none: it is waited for.
nb::dict run(Program &program, const nb::dict &inputs, std::optional<uintptr_t> stream);
nb::dict fetch(Program &program, const nb::dict &tensors);
std::vector<double> bench(Program &program, const nb::dict &inputs, int iterations, bool cold);
/// Table and trace.
std::pair<std::string, std::string> profile(Program &program, const nb::dict &inputs);
/// Tokens by prompt. `each(prompt, token)` may end the generation by returning what is true, or by raising.
std::vector<std::vector<int64_t>> generate(Program &program, const std::vector<std::vector<int64_t>> &prompts,
                                           int64_t tokens, std::optional<int64_t> endToken, int64_t chunk,
                                           uint64_t seed, const nb::dict &inputs, nb::object each);

} // namespace fusion::python
