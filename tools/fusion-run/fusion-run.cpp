// fusion-run: run a graph and compare with expected outputs.
#include "Output.h"

#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"
#include "runtime/Profile.h"
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
cl::OptionCategory category("fusion-run");
cl::opt<std::string> inputFile(cl::Positional, cl::Required, cl::desc("INPUT (.onnx, .mlir or a bundle)"),
                               cl::cat(category));
cl::opt<std::string> inputsFile("inputs", cl::Required, cl::desc("Graph inputs by name"),
                                cl::value_desc("F.safetensors"), cl::cat(category));
cl::opt<std::string> expectFile("expect", cl::desc("Compare outputs by name; exit 1 if one is off"),
                                cl::value_desc("F.safetensors"), cl::cat(category));
cl::opt<std::string> outputsFile("outputs", cl::desc("Write the outputs"), cl::value_desc("F.safetensors"),
                                 cl::cat(category));
cl::opt<std::string> device("device", cl::desc("auto, cpu, cuda or emulate"), cl::init("auto"), cl::cat(category));
cl::opt<bool> noFuse("no-fuse", cl::desc("Leave all fusions out"), cl::cat(category));
cl::list<std::string> fuseDisable("fuse-disable", cl::CommaSeparated, cl::desc("Leave fusions out, by pattern name"),
                                  cl::value_desc("NAME,..."), cl::cat(category));
cl::list<std::string> patternFiles("patterns", cl::desc("More patterns (.pdll or PDL .mlir); repeatable"),
                                   cl::value_desc("FILE"), cl::cat(category));
cl::opt<int> tensorParallel("tp", cl::desc("Ranks of tensor parallelism"), cl::init(1), cl::cat(category));
cl::opt<double> rtol("rtol", cl::desc("Relative L2 tolerance (default by type: f32 1e-5, f16 2e-3, bf16 1.5e-2)"),
                     cl::cat(category));
cl::opt<double> atol("atol", cl::desc("An output whose largest absolute error is at most this passes too"),
                     cl::cat(category));
cl::opt<int> bench("bench", cl::ValueOptional, cl::desc("Time N runs (default 100)"), cl::value_desc("N"),
                   cl::init(0), cl::cat(category));
cl::opt<std::string> profileFile("profile", cl::desc("Time every kernel; write a Chrome trace"),
                                 cl::value_desc("FILE.json"), cl::cat(category));
cl::opt<std::string> reportFile("report", cl::desc("Write the fusion report: .json, .md or .html"),
                                cl::value_desc("FILE"), cl::cat(category));
cl::opt<std::string> cacheFolder("cache", cl::desc("Folder for compiled kernels"), cl::value_desc("DIR"),
                                 cl::cat(category));
cl::opt<bool> quiet("quiet", cl::desc("No progress on stderr"), cl::cat(category));

int finish(const Error &error) {
  llvm::errs() << "fusion-run: " << error.message << "\n";
  return static_cast<int>(error.kind);
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

/// One line an output; true if all pass.
Result<bool> compareAll(const std::vector<Port> &ports, const NamedTensors &outputs, const NamedTensors &expected) {
  bool pass = true;
  size_t compared = 0;
  for (const Port &port : ports) {
    const Tensor &actual = outputs.at(port.name);
    auto want = expected.find(port.name);
    std::string head = fmt::format("{} {} {}", port.name, shapeString(actual.shape()), name(actual.type()));
    if (want == expected.end()) {
      fmt::print("{} not expected\n", head);
      continue;
    }
    ++compared;
    auto difference = compare(actual, want->second);
    if (!difference) {
      fmt::print("{} FAIL {}\n", head, difference.error().message);
      pass = false;
      continue;
    }
    double tolerance = rtol.getNumOccurrences() ? rtol : defaultTolerance(actual.type());
    bool good = difference->relativeL2 <= tolerance ||
                (atol.getNumOccurrences() && difference->maxAbs <= atol);
    pass &= good;
    fmt::print("{} max_abs {:.3g} rel_l2 {:.3g} {}\n", head, difference->maxAbs, difference->relativeL2,
               good ? "PASS" : "FAIL");
  }
  if (!compared)
    return badInput(expectFile + ": holds none of the graph's outputs");
  return pass;
}

void printSummary(const std::vector<Port> &ports, const NamedTensors &outputs) {
  for (const Port &port : ports) {
    const Tensor &value = outputs.at(port.name);
    fmt::print("{} {} {}\n", port.name, shapeString(value.shape()), name(value.type()));
  }
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
  options.tensorParallel = tensorParallel;
  options.cacheFolder = cacheFolder;
  if (llvm::sys::fs::is_directory(inputFile))
    return Program::open(inputFile, options);
  auto graph = Graph::load(inputFile);
  if (!graph)
    return graph.error();
  return compile(*graph, options);
}

Status timeRuns(Program &program, const NamedTensors &inputs) {
  if (bench.getNumOccurrences()) {
    auto times = program.bench(inputs, bench > 0 ? bench : 100);
    if (!times)
      return times.error();
    std::sort(times->begin(), times->end());
    fmt::print("bench: {} runs on {}, median {:.2f} us, fastest {:.2f} us\n", times->size(), program.device(),
               (*times)[times->size() / 2], times->front());
  }
  if (!profileFile.empty()) {
    auto times = program.profile(inputs);
    if (!times)
      return times.error();
    std::vector<LaunchTiming> timings;
    for (const KernelTime &time : *times)
      timings.push_back({time.kernel, time.schedule, time.fusion, time.location, time.microseconds, time.bytes,
                         time.flops});
    fmt::print("{}", profileTable(timings));
    return writeFileAtomically(profileFile, chromeTrace(timings));
  }
  return {};
}

Result<bool> run() {
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
  auto outputs = program->run(*inputs);
  if (!outputs)
    return outputs.error();
  const Report &report = program->report();
  if (!quiet)
    fmt::print(stderr, "{} on {}: {} kernels, {} without fusion\n", inputFile.getValue(), program->device(),
               report.kernelsAfter(), report.kernelsBefore());
  if (!outputsFile.empty())
    if (Status status = writeSafetensors(outputsFile, *outputs); !status)
      return status.error();
  if (!reportFile.empty())
    if (Status status = writeReport(reportFile, ledgerFromJson(report.json())); !status)
      return status.error();
  bool pass = true;
  if (expectFile.empty()) {
    printSummary(program->outputs(), *outputs);
  } else {
    auto same = compareAll(program->outputs(), *outputs, expected);
    if (!same)
      return same.error();
    pass = *same;
  }
  if (Status status = timeRuns(*program, *inputs); !status)
    return status.error();
  return pass;
}
} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  if (!cl::ParseCommandLineOptions(argc, argv, "fusion-run: run a graph, compare with expected outputs\n",
                                   &llvm::errs()))
    return static_cast<int>(ErrorKind::BadInput);
  setQuiet(quiet);
  if (!reportFile.empty() && !isReportFile(reportFile))
    return finish(badInput("--report writes .json, .md or .html, not '" + reportFile + "'"));
  auto pass = run();
  if (!pass)
    return finish(pass.error());
  return *pass ? 0 : static_cast<int>(ErrorKind::AnswerIsNo);
}
