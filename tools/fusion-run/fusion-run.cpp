// fusion-run: run a graph and compare with expected outputs.
#include "Decode.h"
#include "Output.h"
#include "Tool.h"

#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"
#include "runtime/Bundle.h"
#include "runtime/api/Fusion.h"

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
cl::list<std::string> fuseDisable("fuse-disable", cl::CommaSeparated, cl::desc("Leave fusions out, by pattern name"),
                                  cl::value_desc("NAME,..."), cl::cat(category));
cl::opt<ProfitMode> profit("profit", cl::desc("What decides between fusions:"),
                           cl::values(clEnumValN(ProfitMode::Auto, "auto", "measured time on a GPU of the target, if there is one"),
                                      clEnumValN(ProfitMode::Model, "model", "memory traffic and launches saved"),
                                      clEnumValN(ProfitMode::Measure, "measure", "measured time, or an error")),
                           cl::init(ProfitMode::Auto), cl::cat(category));
cl::list<std::string> patternFiles("patterns", cl::desc("More patterns (.pdll or PDL .mlir); repeatable"),
                                   cl::value_desc("FILE"), cl::cat(category));
cl::opt<int64_t> kvCapacity("kv-capacity", cl::desc("Positions that key/value caches hold: they are extended in place"),
                            cl::value_desc("N"), cl::cat(category));
cl::opt<int> tensorParallel("tp", cl::desc("Divide the graph among N ranks: the first N GPUs, or threads on the host"),
                            cl::value_desc("N"), cl::init(1), cl::cat(category));
cl::opt<bool> vocabularyParallel("tp-vocabulary", cl::desc("With --tp: divide the embedding and the head too"),
                                 cl::cat(category));
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
cl::opt<bool> quiet("quiet", cl::desc("No progress on stderr"), cl::cat(category));

Status checkOptions() {
  if (inputFile.empty())
    return badInput("no INPUT; see fusion-run --help");
  if (inputsFile.empty())
    return badInput("no inputs: give --inputs=F.safetensors");
  if (!reportFile.empty() && !isReportFile(reportFile))
    return badInput("--report writes .json, .md or .html, not '" + reportFile + "'");
  if (vocabularyParallel && tensorParallel == 1)
    return badInput("--tp-vocabulary needs --tp");
  if (tensorParallel < 1)
    return badInput(fmt::format("--tp takes a number of ranks, not {}", tensorParallel.getValue()));
  if (kvCapacity.getNumOccurrences() && kvCapacity < 1)
    return badInput(fmt::format("--kv-capacity takes a number of positions, not {}", kvCapacity.getValue()));
  if (bench.getNumOccurrences() && bench < 1)
    return badInput(fmt::format("--bench takes a number of runs, not {}", bench.getValue()));
  if (decodeSteps.getNumOccurrences() && decodeSteps < 1)
    return badInput(fmt::format("--decode takes a number of steps, not {}", decodeSteps.getValue()));
  for (const cl::opt<double> *tolerance : {&rtol, &atol})
    if (tolerance->getNumOccurrences() && !(tolerance->getValue() >= 0))
      return badInput(fmt::format("--{} takes a tolerance, not {}", tolerance->ArgStr.str(), tolerance->getValue()));
  return {};
}

Result<RunOn> chosenDevice() {
  if (device == "auto")
    return RunOn::Auto;
  if (device == "cpu")
    return RunOn::Cpu;
  if (device == "cuda")
    return RunOn::Cuda;
  if (device == "emulate")
    return RunOn::Emulate;
  return badInput("--device takes auto, cpu, cuda or emulate, not '" + device + "'");
}

double defaultTolerance(DType type) {
  switch (type) {
  case DType::F16: return 2e-3;
  case DType::BF16: return 1.5e-2;
  case DType::F8E4M3: return 7e-2;
  case DType::F8E5M2: return 1.5e-1;
  default: return isFloat(type) ? 1e-5 : 0;
  }
}

struct Comparison {
  std::string text; ///< one line an output
  bool pass = true;
};

Comparison compareAll(const std::vector<Port> &ports, const NamedTensors &outputs, const NamedTensors &expected) {
  Comparison result;
  for (const Port &port : ports) {
    const Tensor &actual = outputs.at(port.name);
    auto want = expected.find(port.name);
    std::string head = fmt::format("{} {} {}", port.name, shapeString(actual.shape()), name(actual.type()));
    if (want == expected.end()) {
      result.text += head + " not expected\n";
      continue;
    }
    auto difference = compare(actual, want->second);
    if (!difference) {
      result.text += fmt::format("{} FAIL {}\n", head, difference.error().message);
      result.pass = false;
      continue;
    }
    double tolerance = rtol.getNumOccurrences() ? rtol : defaultTolerance(actual.type());
    bool good = difference->relativeL2 <= tolerance ||
                (atol.getNumOccurrences() && difference->maxAbs <= atol);
    result.pass &= good;
    result.text += fmt::format("{} max_abs {:.3g} rel_l2 {:.3g} {}\n", head, difference->maxAbs,
                               difference->relativeL2, good ? "PASS" : "FAIL");
  }
  return result;
}

std::string summary(const std::vector<Port> &ports, const NamedTensors &outputs) {
  std::string text;
  for (const Port &port : ports) {
    const Tensor &value = outputs.at(port.name);
    text += fmt::format("{} {} {}\n", port.name, shapeString(value.shape()), name(value.type()));
  }
  return text;
}

Result<Program> makeProgram() {
  CompileOptions options;
  auto on = chosenDevice();
  if (!on)
    return on.error();
  options.device = *on;
  options.fuse = !noFuse;
  options.disabledFusions = fuseDisable;
  options.patternFiles = patternFiles;
  options.profit = profit;
  options.tensorParallel = tensorParallel;
  options.vocabularyParallel = vocabularyParallel;
  options.kvCapacity = kvCapacity;
  options.cacheFolder = cacheFolder;
  if (llvm::sys::fs::is_directory(inputFile))
    return Program::open(inputFile, options);
  auto graph = Graph::load(inputFile, {.ranks = tensorParallel});
  if (!graph)
    return graph.error();
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
  auto program = makeProgram();
  if (!program)
    return program.error();
  if (!expectFile.empty() && !holdsOne(expected, program->outputs()))
    return badInput(expectFile + ": holds none of the graph's outputs");
  auto outputs = program->run(*inputs);
  if (!outputs)
    return outputs.error();
  const Report &report = program->report();
  const bool speaks = program->rank() == 0; // for all ranks
  if (!quiet && speaks)
    llvm::errs() << inputFile << " on " << program->device() << ": " << report.kernelsAfter() << " kernels, "
                 << report.kernelsBefore() << " without fusion\n";
  if (!quiet && speaks)
    for (const Ledger::Miss &miss : ledgerFromJson(report.json()).patterns["shard"].missed)
      if (miss.location.empty()) // of the graph as a whole
        llvm::errs() << inputFile << ": " << miss.reason << '\n';
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
    if (Status status = writeReport(reportFile, ledgerFromJson(report.json())); !status)
      return status;
  Comparison comparison;
  if (expectFile.empty())
    comparison.text = summary(program->outputs(), *outputs);
  else
    comparison = compareAll(program->outputs(), *outputs, expected);
  if (Status status = speaks ? writeOutput("-", comparison.text + steps + *timed) : Status(); !status)
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
  setQuiet(quiet);
  return runTool("fusion-run", run);
}
