#include "TensorFlags.h"

#include "Output.h"
#include "Ports.h"

#include "ir/base/PlainText.h"
#include "ir/base/Progress.h"
#include "ir/base/Safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace cl = llvm::cl;

namespace fusion {

TensorFlags::TensorFlags(cl::OptionCategory &category)
    : inputsFile("inputs", cl::desc("Graph inputs by name"), cl::value_desc("F.safetensors"),
                 cl::cat(category)),
      randomSizes(
          "random-inputs", cl::ValueOptional,
          cl::desc("Run on random inputs; dims that are not given are 1 if they are a batch, else 16"),
          cl::value_desc("DIM:SIZE,..."), cl::cat(category)),
      expectFile("expect", cl::desc("Compare outputs by name; exit 1 if one is off"),
                 cl::value_desc("F.safetensors"), cl::cat(category)),
      exactFile(
          "expect-f32",
          cl::desc("The same outputs without roundings: an output passes that is as near to them as the "
                   "expected one"),
          cl::value_desc("F.safetensors"), cl::cat(category)),
      outputsFile("outputs", cl::desc("Write the outputs"), cl::value_desc("F.safetensors"),
                  cl::cat(category)),
      rtol(
          "rtol",
          "Relative L2 tolerance (default by type and depth: for two layers f32 1e-5, f16 2e-3, bf16 1.5e-2)",
          category, {.unit = "X", .what = "a tolerance", .least = 0}),
      atol("atol", "An output whose largest absolute error is at most this passes too", category,
           {.unit = "X", .what = "a tolerance", .least = 0}) {}

Status TensorFlags::check(bool needsInputs) const {
  if (inputsFile.empty() && !randomSizes.getNumOccurrences() && needsInputs)
    return badInput(
        "no inputs: give --inputs=F.safetensors, or --random-inputs; --describe prints what the graph takes");
  if (!inputsFile.empty() && randomSizes.getNumOccurrences())
    return badInput("--inputs and --random-inputs: give one of them");
  return {};
}

Result<GivenTensors> TensorFlags::read(llvm::function_ref<Result<std::vector<Port>>()> inputPorts) const {
  GivenTensors given;
  for (auto [file, tensors] :
       {std::pair(&inputsFile, &given.inputs), {&expectFile, &given.expected}, {&exactFile, &given.exact}}) {
    if (file->empty())
      continue;
    auto read = readSafetensors(*file);
    if (!read)
      return read.error();
    *tensors = std::move(*read);
  }
  if (!randomSizes.getNumOccurrences())
    return given;
  auto ports = inputPorts();
  if (!ports)
    return ports.error();
  auto random = randomInputsBy(randomSizes, *ports);
  if (!random)
    return random.error();
  given.inputs = std::move(*random);
  return given;
}

/// The tensors that have the name of no port.
static std::vector<std::string> unknownNames(const NamedTensors &tensors, const std::vector<Port> &ports) {
  std::vector<std::string> names;
  for (const auto &[name, tensor] : tensors)
    if (std::none_of(ports.begin(), ports.end(), [&](const Port &port) { return port.name == name; }))
      names.push_back(plainText(name));
  return names;
}

Status TensorFlags::checkNames(const GivenTensors &given, const Program &program) const {
  for (auto [file, tensors] : {std::pair(&expectFile, &given.expected), {&exactFile, &given.exact}}) {
    if (file->empty())
      continue;
    const std::vector<std::string> others = unknownNames(*tensors, program.outputs());
    if (others.size() == tensors->size())
      return badInput(*file + ": holds none of the graph's outputs");
    const bool lacksSome = std::any_of(program.outputs().begin(), program.outputs().end(),
                                       [&](const Port &port) { return !tensors->contains(port.name); });
    if (!others.empty() && lacksSome && program.rank() == 0) // perhaps they go by other names
      note(fmt::format("{} is compared with nothing in {}: the graph has no output of that name",
                       fmt::join(others, ", "), file->getValue()));
  }
  return {};
}

NamedTensors TensorFlags::wanted(const NamedTensors &outputs, const GivenTensors &given) const {
  NamedTensors wanted;
  for (const auto &[name, tensor] : outputs)
    if (!outputsFile.empty() || given.expected.contains(name) || given.exact.contains(name))
      wanted[name] = tensor;
  return wanted;
}

Tolerance TensorFlags::tolerance(const Report &report, const GivenTensors &given) const {
  Tolerance tolerance;
  tolerance.layers = report.layers();
  tolerance.exact = given.exact.empty() ? nullptr : &given.exact;
  if (rtol.getNumOccurrences())
    tolerance.relative = rtol;
  if (atol.getNumOccurrences())
    tolerance.absolute = atol;
  return tolerance;
}

Status TensorFlags::write(const NamedTensors &outputs) const {
  return outputsFile.empty() ? Status() : writeSafetensors(outputsFile, outputs);
}

} // namespace fusion
