// fusion-run: run a graph and compare with expected outputs.
#include "CompileFlags.h"
#include "Generating.h"
#include "Output.h"
#include "Ports.h"
#include "TensorFlags.h"
#include "Tool.h"

#include "api/Compare.h"
#include "api/Decode.h"
#include "api/Fusion.h"
#include "api/ReportTimes.h"
#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

#include <algorithm>

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory files("What goes in and comes out"), category("How it is compiled"), tokens("Generation"),
    costs("Time and memory");
cl::opt<std::string> inputFile(
    cl::Positional,
    cl::desc("INPUT: a graph, .onnx or .mlir, or a bundle; with --tp, {rank} in its name stands for "
             "each rank's own file"),
    cl::cat(files));
cl::opt<bool> describeOnly("describe",
                           cl::desc("Print inputs and outputs with types and dims, and run nothing"),
                           cl::cat(files));
TensorFlags tensors(files);
cl::opt<std::string> reportFile("report", cl::desc("Write the fusion report: .json, .md or .html"),
                                cl::value_desc("FILE"), cl::cat(files));
WordOption device("device", "Where the graph runs", "auto", category,
                  {{"auto", "on the GPU if there is one, else as cpu"},
                   {"cpu", "the reference on the host"},
                   {"cuda", "emitted kernels on a GPU"},
                   {"emulate", "emitted kernels on the host"}});
cl::opt<bool> noFuse("no-fuse", cl::desc("Leave all fusions out"), cl::cat(category));
CompileFlags flags(category);
VocabularyFlag vocabulary(category);
KernelFlag kernels(category);
GenerateFlags generating(tokens);
NumberOption<double> memoryLimit("memory-limit",
                                 "GiB of the device's memory that may be used (default: what is free)", costs,
                                 {.unit = "GIB", .what = "a number of GiB"});
NumberOption<int> bench("bench", "Time N runs; 100 without N", costs,
                        {.unit = "N", .what = "a number of runs", .least = 1, .bare = 100});
NumberOption<int>
    decodeSteps("decode",
                "With --kv-capacity: after the run time N more steps, each over the caches of the one before",
                costs, {.unit = "N", .what = "a number of steps", .least = 1});
cl::opt<bool> cold("cold", cl::desc("With --bench: time again, the GPU's cache emptied before each run"),
                   cl::cat(costs));
cl::opt<std::string> profileFile("profile", cl::desc("Time every kernel; write a Chrome trace"),
                                 cl::value_desc("FILE.json"), cl::cat(costs));
cl::opt<std::string>
    cacheFolder("cache", cl::desc("Folder for compiled kernels, plans and reports (default ~/.cache/fusion)"),
                cl::value_desc("DIR"), cl::cat(costs));

Status checkOptions() {
  if (inputFile.empty())
    return badInput("no INPUT; see fusion-run --help");
  if (Status status = generating.check(); !status)
    return status;
  for (const Status &status :
       {tensors.check(/*needsInputs=*/!describeOnly && !generating.isGiven()), checkReportFile(reportFile),
        vocabulary.check(flags), flags.check(), kernels.check()})
    if (!status)
      return status;
  if (generating.isGiven() && (decodeSteps > 0 || !profileFile.empty() || tensors.hasExact()))
    return badInput("--generate does not go with --decode, --profile and --expect-f32");
  if (memoryLimit.getNumOccurrences() && !(memoryLimit > 0))
    return badInput(fmt::format("--memory-limit takes a number of GiB, not {}", memoryLimit.getValue()));
  return {};
}

/// A line for each result, but for caches.
std::string summary(const Program &program, const NamedTensors &outputs) {
  std::string text;
  size_t caches = 0;
  for (const Port &port : program.outputs()) {
    const Tensor &value = outputs.at(port.name);
    if (port.name.starts_with("present"))
      ++caches;
    else
      text += fmt::format("{} {} {}\n", port.name, shapeString(value.shape()), name(value.type()));
  }
  return caches ? text + fmt::format("{} caches\n", caches) : text;
}

/// Compiles or opens INPUT. Lines about edited kernels go to `trials`.
/// What Optimum calls the input that chooses between a decoder with a past and one without.
const std::string cacheBranchName = "use_cache_branch";

bool branchesOnCache(const Graph &graph) {
  const std::vector<Port> inputs = graph.inputs();
  return std::any_of(inputs.begin(), inputs.end(), [](const Port &port) {
    return port.name == cacheBranchName && port.type == DType::Bool;
  });
}

Result<Program> makeProgram(const NamedTensors &inputs, const std::vector<std::vector<int64_t>> &prompts,
                            std::string &trials) {
  CompileOptions options = flags.options(Target::current());
  options.device = *runOnNamed(device.getValue());
  options.fuse = !noFuse;
  options.vocabularyParallel = vocabulary.value;
  options.kernels = kernels.files();
  options.cacheFolder = cacheFolder;
  options.memoryLimit = static_cast<size_t>(memoryLimit * (1 << 30));
  LoadOptions loading = flags.loading();
  if (llvm::sys::fs::is_directory(inputFile)) {
    if (!loading.dims.empty())
      return badInput("--dim is for graphs: the sizes of a bundle are given to fusion-compile");
    if (!loading.constantTexts.empty())
      return badInput("--constant is for graphs: what a bundle's inputs are is told to fusion-compile");
    return Program::open(inputFile, options);
  }
  loading.ranks = options.tensorParallel;
  if (generating.isGiven()) {
    if (!loading.sampling)
      loading.sampling.emplace();
    loading.sampling->keepsLogits = false; // nobody is given them
  }
  auto graph = Graph::load(inputFile, loading);
  if (graph && generating.isGiven() && branchesOnCache(*graph) && !inputs.contains(cacheBranchName)) {
    loading.constantTexts[cacheBranchName] = "true"; // of the prompts, too: their past is empty
    graph = Graph::load(inputFile, loading);
  }
  if (!graph)
    return graph.error();
  if (options.tensorParallel == 1 && generating.isGiven()) {
    auto largest = largestRunOf(*graph, prompts, generating.options(inputs));
    if (!largest)
      return largest.error();
    options.largestRun = std::move(*largest);
  } else if (options.tensorParallel == 1) {
    options.largestRun = inputs;
  }
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
    text += fmt::format("bench{}: {} runs on {}, median {:.2f} us, fastest {:.2f} us{}\n",
                        emptied ? ", cold" : "", times->size(), program.device(), (*times)[times->size() / 2],
                        times->front(), why.empty() ? "" : ", launched one by one: " + why);
  }
  if (text.empty())
    return text;
  outputs.clear(); // its memory is free for the same launches again
  auto again = program.run(inputs, Results::Device);
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
  if (!reportFile.empty())
    if (Status status = withTimes(program.report(), *profile).write(reportFile); !status)
      return status;
  return writeOutput("-", profile->table);
}

/// What the graph takes and gives, without compiling it.
Result<std::pair<std::vector<Port>, std::vector<Port>>> portsOfInput() {
  if (llvm::sys::fs::is_directory(inputFile)) {
    CompileOptions options;
    options.device = RunOn::Emulate; // needs no GPU
    auto program = Program::open(inputFile, options);
    if (!program)
      return program.error();
    return std::pair(program->inputs(), program->outputs());
  }
  LoadOptions loading = flags.loading();
  loading.ranks = flags.tensorParallel;
  auto graph = Graph::load(inputFile, loading);
  if (!graph)
    return graph.error();
  return std::pair(graph->inputs(), graph->outputs());
}

/// What was given on the command line, read.
struct Given : GivenTensors {
  std::vector<std::vector<int64_t>> prompts;
};

Result<Given> readFiles() {
  auto read = tensors.read([]() -> Result<std::vector<Port>> {
    auto ports = portsOfInput();
    return ports ? Result(std::move(ports->first)) : ports.error();
  });
  if (!read)
    return read.error();
  Given given{std::move(*read), {}};
  if (generating.isGiven()) {
    auto prompts = generating.promptsOf(given.inputs);
    if (!prompts)
      return prompts.error();
    given.prompts = std::move(*prompts);
    if (tensors.hasExpected() && !given.expected.contains("tokens"))
      return badInput(tensors.expectedFile() + ": holds no tokens");
  }
  return given;
}

/// For people, on stderr.
void sayWhatRuns(const Program &program) {
  if (flags.quiet || program.rank() != 0)
    return;
  const Report &report = program.report();
  llvm::errs() << inputFile << " on " << program.device() << ": " << report.kernelsAfter() << " kernels, "
               << report.kernelsBefore() << " without fusion\n";
  for (const std::string &remark : report.remarks())
    llvm::errs() << inputFile << ": " << remark << '\n';
}

void sayMemory(const Program &program) {
  const RunStatistics statistics = program.statistics();
  if (statistics.peakBytes > 0 && program.rank() == 0)
    note(fmt::format("memory: at most {:.1f} MiB at once, of which weights {:.1f}, temporaries {:.1f}",
                     static_cast<double>(statistics.peakBytes) / (1 << 20),
                     static_cast<double>(statistics.weightBytes) / (1 << 20),
                     static_cast<double>(statistics.temporaryBytes) / (1 << 20)));
}

Status writeFiles(const Program &program, const NamedTensors &outputs) {
  if (program.rank() != 0)
    return {};
  if (Status status = tensors.write(outputs); !status)
    return status;
  return reportFile.empty() ? Status() : program.report().write(reportFile);
}

Status runGenerate(Program &program, const Given &given) {
  const GenerateOptions options = generating.options(given.inputs);
  for (int i = 0; i < bench; ++i) // the first one plans shapes and records graphs
    if (auto warm = generate(program, given.prompts, options); !warm)
      return warm.error();
  auto generation = generate(program, given.prompts, options);
  if (!generation)
    return generation.error();
  const NamedTensors tokens = tokensTensor(*generation);
  if (Status status = writeFiles(program, tokens); !status)
    return status;
  bool pass = true;
  std::string text =
      tensors.hasExpected() ? compareTokens(tokens, given.expected, pass) : tokensText(*generation);
  sayMemory(program);
  if (Status status = program.rank() == 0 ? writeOutput("-", text + describe(*generation)) : Status();
      !status)
    return status;
  return pass ? Status() : Error{ErrorKind::AnswerIsNo, ""}; // said by the lines above
}

Status runOnce(Program &program, const Given &given) {
  auto outputs = program.run(given.inputs, Results::Device);
  if (!outputs)
    return outputs.error();
  sayWhatRuns(program);
  std::string steps;
  if (decodeSteps > 0) {
    NamedTensors last = given.inputs, left = *outputs;
    auto times = decode(program, last, left, decodeSteps);
    if (!times)
      return times.error();
    steps = describe(*times, program.statistics());
  }
  auto timed = timeRuns(program, given.inputs, *outputs);
  if (!timed)
    return timed.error();
  auto fetched = program.fetch(tensors.wanted(*outputs, given)); // where ranks are processes, by all of them
  if (!fetched)
    return fetched.error();
  if (Status status = writeFiles(program, *fetched); !status)
    return status;
  Comparison comparison;
  if (tensors.hasExpected() || tensors.hasExact())
    comparison = compareOutputs(program.outputs(), *fetched, given.expected,
                                tensors.tolerance(program.report(), given));
  else
    comparison.text = summary(program, *outputs);
  sayMemory(program);
  if (Status status = program.rank() == 0 ? writeOutput("-", comparison.text + steps + *timed) : Status();
      !status)
    return status;
  if (Status status = profile(program, given.inputs); !status)
    return status;
  return comparison.pass ? Status() : Error{ErrorKind::AnswerIsNo, ""}; // said by the lines above
}

Status run() {
  setQuiet(flags.quiet);
  if (Status status = checkOptions(); !status)
    return status;
  if (describeOnly) {
    auto ports = portsOfInput();
    return ports ? writeOutput("-", describePorts(ports->first, ports->second)) : Status(ports.error());
  }
  auto given = readFiles();
  if (!given)
    return given.error();
  std::string trials;
  auto program = makeProgram(given->inputs, given->prompts, trials);
  if (!program)
    return program.error();
  if (Status status = program->rank() == 0 && !trials.empty() ? writeOutput("-", trials) : Status(); !status)
    return status;
  if (generating.isGiven()) {
    sayWhatRuns(*program);
    return runGenerate(*program, *given);
  }
  if (Status status = tensors.checkNames(*given, *program); !status)
    return status;
  return runOnce(*program, *given);
}
} // namespace

int main(int argc, char **argv) {
  return toolMain(
      argc, argv,
      {.name = "fusion-run",
       .purpose = "run a graph, compare with expected outputs",
       .description =
           "Compiles a graph, or opens a bundle of fusion-compile, runs it on tensors from a file and "
           "compares the outputs with expected ones, writes them, times the run or generates tokens.",
       .categories = {&files, &category, &tokens, &costs}},
      run);
}
