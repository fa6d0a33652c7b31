// fusion-run: run a graph and compare with expected outputs.
#include "CompileFlags.h"
#include "Output.h"
#include "Tool.h"

#include "api/Compare.h"
#include "api/Decode.h"
#include "api/Fusion.h"
#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Fusion options");
cl::opt<std::string> inputFile(cl::Positional, cl::desc("INPUT (.onnx, .mlir or a bundle; with --tp, {rank} in its name stands for each rank's own file)"), cl::cat(category));
cl::opt<std::string> inputsFile("inputs", cl::desc("Graph inputs by name"), cl::value_desc("F.safetensors"),
                                cl::cat(category));
cl::opt<std::string> expectFile("expect", cl::desc("Compare outputs by name; exit 1 if one is off"),
                                cl::value_desc("F.safetensors"), cl::cat(category));
cl::opt<std::string> outputsFile("outputs", cl::desc("Write the outputs"), cl::value_desc("F.safetensors"),
                                 cl::cat(category));
cl::opt<std::string> device("device", cl::desc("auto, cpu, cuda or emulate"), cl::init("auto"), cl::cat(category));
cl::opt<bool> noFuse("no-fuse", cl::desc("Leave all fusions out"), cl::cat(category));
CompileFlags flags(category);
VocabularyFlag vocabulary(category);
KernelFlag kernels(category);
cl::opt<double> rtol("rtol", cl::desc("Relative L2 tolerance (default by type: f32 1e-5, f16 2e-3, bf16 1.5e-2)"),
                     cl::cat(category));
cl::opt<double> atol("atol", cl::desc("An output whose largest absolute error is at most this passes too"),
                     cl::cat(category));
/// `--bench` alone is 100 runs.
struct RunCountParser : cl::parser<int> {
  using cl::parser<int>::parser;
  bool parse(cl::Option &option, llvm::StringRef name, llvm::StringRef text, int &value) {
    return cl::parser<int>::parse(option, name, text.empty() ? "100" : text, value);
  }
};
cl::opt<int, false, RunCountParser> bench("bench", cl::ValueOptional, cl::desc("Time N runs (default 100)"),
                                          cl::value_desc("N"), cl::init(0), cl::cat(category));
cl::opt<int> decodeSteps("decode", cl::desc("With --kv-capacity: after the run time N more steps, each over the caches of the one before"),
                         cl::value_desc("N"), cl::init(0), cl::cat(category));
cl::opt<bool> cold("cold", cl::desc("With --bench: time again, the GPU's cache emptied before each run"), cl::cat(category));
cl::opt<std::string> profileFile("profile", cl::desc("Time every kernel; write a Chrome trace"),
                                 cl::value_desc("FILE.json"), cl::cat(category));
cl::opt<std::string> reportFile("report", cl::desc("Write the fusion report: .json, .md or .html"),
                                cl::value_desc("FILE"), cl::cat(category));
cl::opt<std::string> cacheFolder("cache", cl::desc("Folder for compiled kernels, plans and reports"), cl::value_desc("DIR"),
                                 cl::cat(category));

Status checkOptions() {
  if (inputFile.empty())
    return badInput("no INPUT; see fusion-run --help");
  if (inputsFile.empty())
    return badInput("no inputs: give --inputs=F.safetensors");
  for (const Status &status : {checkReportFile(reportFile), vocabulary.check(flags), flags.check(), kernels.check()})
    if (!status)
      return status;
  if (bench.getNumOccurrences() && bench < 1)
    return badInput(fmt::format("--bench takes a number of runs, not {}", bench.getValue()));
  if (decodeSteps.getNumOccurrences() && decodeSteps < 1)
    return badInput(fmt::format("--decode takes a number of steps, not {}", decodeSteps.getValue()));
  for (const cl::opt<double> *tolerance : {&rtol, &atol})
    if (tolerance->getNumOccurrences() && !(tolerance->getValue() >= 0))
      return badInput(fmt::format("--{} takes a tolerance, not {}", tolerance->ArgStr.str(), tolerance->getValue()));
  return {};
}

Tolerance tolerance() {
  Tolerance tolerance;
  if (rtol.getNumOccurrences())
    tolerance.relative = rtol;
  if (atol.getNumOccurrences())
    tolerance.absolute = atol;
  return tolerance;
}

std::string summary(const std::vector<Port> &ports, const NamedTensors &outputs) {
  std::string text;
  for (const Port &port : ports) {
    const Tensor &value = outputs.at(port.name);
    text += fmt::format("{} {} {}\n", port.name, shapeString(value.shape()), name(value.type()));
  }
  return text;
}

/// Compiles or opens INPUT. Lines about edited kernels go to `trials`.
Result<Program> makeProgram(const NamedTensors &inputs, std::string &trials) {
  CompileOptions options = flags.options(Target::current());
  const std::optional<RunOn> on = runOnNamed(device.getValue());
  if (!on)
    return badInput("--device takes auto, cpu, cuda or emulate, not '" + device + "'");
  options.device = *on;
  options.fuse = !noFuse;
  options.vocabularyParallel = vocabulary.value;
  options.kernels = kernels.files();
  options.cacheFolder = cacheFolder;
  LoadOptions loading = flags.loading();
  if (llvm::sys::fs::is_directory(inputFile))
    return loading.dims.empty() ? Program::open(inputFile, options)
                                : badInput("--dim is for graphs: the sizes of a bundle are given to fusion-compile");
  loading.ranks = options.tensorParallel;
  auto graph = Graph::load(inputFile, loading);
  if (!graph)
    return graph.error();
  if (!options.kernels.empty()) {
    auto tried = tryKernels(*graph, options, inputs);
    if (!tried)
      return tried.error();
    for (const KernelTrial &trial : *tried)
      trials += trial.text();
  }
  return compile(*graph, options);
}

/// Times the runs and leaves in `outputs` what the timed launches compute. The lines to print, or nothing.
Result<std::string> timeRuns(Program &program, const NamedTensors &inputs, NamedTensors &outputs) {
  std::string text;
  for (bool emptied : {false, true}) {
    if (!bench.getNumOccurrences() || (emptied && !cold))
      break;
    auto times = program.bench(inputs, bench, emptied);
    if (!times)
      return times.error();
    std::sort(times->begin(), times->end());
    const std::string why = program.statistics().whyOneByOne;
    text += fmt::format("bench{}: {} runs on {}, median {:.2f} us, fastest {:.2f} us{}\n", emptied ? ", cold" : "",
                        times->size(), program.device(), (*times)[times->size() / 2], times->front(),
                        why.empty() ? "" : ", launched one by one: " + why);
  }
  if (text.empty())
    return text;
  outputs.clear(); // its memory is free for the same launches again
  auto again = program.run(inputs);
  if (!again)
    return again.error();
  outputs = std::move(*again);
  return text;
}

Status profile(Program &program, const NamedTensors &inputs) {
  if (profileFile.empty())
    return {};
  auto profile = program.profile(inputs);
  if (!profile)
    return profile.error();
  if (program.rank() != 0)
    return {};
  if (Status status = writeFileAtomically(profileFile, profile->chromeTrace); !status)
    return status;
  return writeOutput("-", profile->table);
}

bool holdsOne(const NamedTensors &tensors, const std::vector<Port> &ports) {
  return std::any_of(ports.begin(), ports.end(), [&](const Port &port) { return tensors.contains(port.name); });
}

Status run() {
  if (Status status = checkOptions(); !status)
    return status;
  auto inputs = readSafetensors(inputsFile);
  if (!inputs)
    return inputs.error();
  NamedTensors expected;
  if (!expectFile.empty()) {
    auto read = readSafetensors(expectFile);
    if (!read)
      return read.error();
    expected = std::move(*read);
  }
  std::string trials;
  auto program = makeProgram(*inputs, trials);
  if (!program)
    return program.error();
  if (!expectFile.empty() && !holdsOne(expected, program->outputs()))
    return badInput(expectFile + ": holds none of the graph's outputs");
  auto outputs = program->run(*inputs);
  if (!outputs)
    return outputs.error();
  const Report &report = program->report();
  const bool speaks = program->rank() == 0; // for all ranks
  if (!flags.quiet && speaks)
    llvm::errs() << inputFile << " on " << program->device() << ": " << report.kernelsAfter() << " kernels, "
                 << report.kernelsBefore() << " without fusion\n";
  if (!flags.quiet && speaks)
    for (const std::string &remark : report.remarks())
      llvm::errs() << inputFile << ": " << remark << '\n';
  std::string steps;
  if (decodeSteps > 0) {
    NamedTensors last = *inputs, left = *outputs;
    auto times = decode(*program, last, left, decodeSteps);
    if (!times)
      return times.error();
    steps = describe(*times, program->statistics());
  }
  auto timed = timeRuns(*program, *inputs, *outputs);
  if (!timed)
    return timed.error();
  outputs = program->fetch(*outputs); // caches lie where the program runs
  if (!outputs)
    return outputs.error();
  if (!outputsFile.empty() && speaks)
    if (Status status = writeSafetensors(outputsFile, *outputs); !status)
      return status;
  if (!reportFile.empty() && speaks)
    if (Status status = report.write(reportFile); !status)
      return status;
  Comparison comparison;
  if (expectFile.empty())
    comparison.text = summary(program->outputs(), *outputs);
  else
    comparison = compareOutputs(program->outputs(), *outputs, expected, tolerance());
  if (Status status = speaks ? writeOutput("-", trials + comparison.text + steps + *timed) : Status(); !status)
    return status;
  if (Status status = profile(*program, *inputs); !status)
    return status;
  return comparison.pass ? Status() : Error{ErrorKind::AnswerIsNo, ""}; // said by the lines above
}
} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  prepareOptions("fusion-run", category);
  if (!parseOptions(argc, argv, "fusion-run", "run a graph, compare with expected outputs"))
    return static_cast<int>(ErrorKind::BadInput);
  setQuiet(flags.quiet);
  return runTool("fusion-run", run);
}
