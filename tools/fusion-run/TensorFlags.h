// Tensors in files: inputs, expected outputs, and where outputs go.
#pragma once

#include "Options.h"

#include "api/Compare.h"
#include "api/Fusion.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/CommandLine.h"

#include <string>

namespace fusion {

struct GivenTensors {
  NamedTensors inputs, expected, exact;
};

/// The options that name files of tensors and say how outputs are compared.
class TensorFlags {
public:
  explicit TensorFlags(llvm::cl::OptionCategory &category);
  Status check(bool needsInputs) const;
  bool hasExpected() const { return !expectFile.empty(); }
  bool hasExact() const { return !exactFile.empty(); }
  const std::string &expectedFile() const { return expectFile; }

  /// `inputPorts`: what the graph takes, which is called if inputs are random.
  Result<GivenTensors> read(llvm::function_ref<Result<std::vector<Port>>()> inputPorts) const;
  /// A file of expected outputs that has none of the program's is an error. Names in it that may be mistakes
  /// are noted.
  Status checkNames(const GivenTensors &given, const Program &program) const;
  /// Those of `outputs` that are compared or written.
  NamedTensors wanted(const NamedTensors &outputs, const GivenTensors &given) const;
  Tolerance tolerance(const Report &report, const GivenTensors &given) const;
  Status write(const NamedTensors &outputs) const;

private:
  llvm::cl::opt<std::string> inputsFile, randomSizes, expectFile, exactFile, outputsFile;
  NumberOption<double> rtol, atol;
};

} // namespace fusion
