// fusion-fuzz: random graphs, each run unfused and fused, by the reference and as emitted kernels.
#include "Output.h"
#include "RandomGraph.h"
#include "Tool.h"

#include "api/Fusion.h"
#include "api/Lower.h"
#include "api/Trial.h"
#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"
#include "ir/base/TemporaryPath.h"
#include "ir/reference/Reference.h"

#include "ir/dialect/Types.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Options");
cl::opt<std::string> inputFile(cl::Positional, cl::desc("[GRAPH.mlir]: this graph instead of random ones"),
                               cl::cat(category));
NumberOption<uint64_t> firstSeed("seed", "Of the first graph", category, {.unit = "N", .initial = 1});
NumberOption<uint64_t> count("count", "How many graphs", category, {.unit = "N", .initial = 100});
WordOption device("device", "Which kernels run beside the reference", "cpu", category,
                  {{"cpu", "none"},
                   {"emulate", "the emitted ones, on the host"},
                   {"cuda", "the emitted ones, on a GPU"}});
cl::opt<std::string> folder("o", cl::desc("Folder for what failed, as lit tests (default .)"), cl::value_desc("DIR"), cl::init("."),
                            cl::cat(category));
NumberOption<double> slack("slack", "Errors allowed, in those of a few roundings", category,
                           {.unit = "X", .initial = 4, .least = 0});
cl::opt<bool> printOnly("print", cl::desc("Print the graphs and run nothing"), cl::cat(category));

const std::string badlyMade = "is no graph: "; ///< a fault of this program
constexpr unsigned mostSeconds = 120; ///< for one graph

/// Why `actual` is not what was expected; empty if it is. Values that are not finite must be the same.
std::string difference(const Tensor &actual, const Tensor &expected, double tolerance) {
  if (actual.type() != expected.type() || actual.shape() != expected.shape())
    return fmt::format("{} {} instead of {} {}", shapeString(actual.shape()), name(actual.type()), shapeString(expected.shape()),
                       name(expected.type()));
  const std::vector<float> a = actual.toFloats(), e = expected.toFloats();
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(e[i]) || !std::isfinite(a[i])) {
      if (!(std::isnan(a[i]) && std::isnan(e[i])) && a[i] != e[i])
        return fmt::format("element {} is {} instead of {}", i, a[i], e[i]);
      continue;
    }
    const double gap = double{a[i]} - double{e[i]};
    error += gap * gap;
    norm += double{e[i]} * double{e[i]};
  }
  const double relative = std::sqrt(error / std::max(norm, 1e-12));
  return relative <= tolerance ? "" : fmt::format("relative L2 distance {:.3g}, {:.3g} is allowed", relative, tolerance);
}

/// Of the coarsest type that anything in the graph has: an f32 may have been bf16.
double roundingOf(mlir::ModuleOp module, const NamedTensors &inputs) {
  double coarsest = 0;
  module.walk([&](mlir::Operation *op) {
    for (mlir::Value value : op->getResults())
      if (auto type = dtypeOf(mlir::getElementTypeOrSelf(value.getType())); type && isFloat(*type))
        coarsest = std::max(coarsest, roundingTolerance(*type, inputs));
  });
  return coarsest;
}

/// Runs the graph in all ways at several sizes; the error says which way gives other numbers.
Status check(const std::string &path, uint64_t seed) {
  auto graph = Graph::load(path);
  if (!graph)
    return Error{graph.error().kind, badlyMade + graph.error().message};
  // The graph as it stands: also without fusions a program is normalised and raised.
  auto context = makeContext();
  auto module = loadModule(*context, path, {});
  auto entry = module ? entryFunction(**module) : Result<mlir::func::FuncOp>(module.error());
  auto asWritten = entry ? Interpreter::create(*entry, "") : Result<Interpreter>(entry.error());
  if (!asWritten)
    return asWritten.error();
  auto compiled = [&](RunOn where) {
    CompileOptions options;
    options.device = where;
    options.profit = ProfitMode::Model;
    return compile(*graph, options);
  };
  auto fused = compiled(RunOn::Cpu);
  if (!fused)
    return fused.error();
  auto plan = explain(*graph, {.target = {"sm_90a"}, .profit = ProfitMode::Model}, Emit::Plan);
  if (!plan)
    return plan.error();
  if (!plan->report.noPlan().empty())
    return badInput("no kernels: " + plan->report.noPlan());
  std::optional<Result<Program>> emitted;
  if (device != "cpu")
    emitted = compiled(device == "cuda" ? RunOn::Cuda : RunOn::Emulate);
  if (emitted && !*emitted)
    return emitted->error();
  std::vector<PortShape> ports;
  for (const Port &port : graph->inputs())
    ports.push_back({port.name, port.type, port.shape});
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (const auto &[b, s] : {std::pair<int64_t, int64_t>{2, 5}, {1, 1}, {3, 8}, {0, 4}}) {
    const NamedTensors inputs = randomInputs(ports, SymbolValues{{"b", b}, {"s", s}}, TrialValues{0.5f, 4.f}, random);
    auto expected = asWritten->run(inputs);
    if (!expected)
      return expected.error();
    auto agrees = [&](Program &program, const char *way) -> Status {
      auto outputs = program.run(inputs);
      if (!outputs)
        return Error{outputs.error().kind, fmt::format("{}: b={} s={}: {}", way, b, s, outputs.error().message)};
      for (const auto &[name, tensor] : *expected) {
        const double tolerance = slack * roundingOf(**module, inputs);
        if (std::string text = difference((*outputs)[name], tensor, tolerance); !text.empty())
          return Error{ErrorKind::AnswerIsNo, fmt::format("{}: b={} s={}: output {}: {}", way, b, s, name, text)};
      }
      return {};
    };
    if (Status status = agrees(*fused, "fused, by the reference"); !status)
      return status;
    if (emitted)
      if (Status status = agrees(**emitted, "emitted"); !status)
        return status;
  }
  return {};
}

/// The same in a process of its own, which may crash or hang. What is wrong; empty if nothing is. An error if
/// it was not tried.
Result<std::string> checkApart(const std::string &text, uint64_t seed) {
  std::error_code failure;
  const auto temporary = std::filesystem::temp_directory_path(failure);
  if (failure)
    return environment("there is no folder for temporary files; set TMPDIR");
  const TemporaryPath file((temporary / fmt::format("fusion-fuzz-{}.mlir", getpid())).string());
  if (Status status = writeFileAtomically(file.path(), text); !status)
    return environment(status.error().message + "; set TMPDIR");
  int ends[2];
  if (pipe(ends) != 0)
    return environment(std::string("no pipe: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return environment(std::string("no process: ") + std::strerror(errno));
  }
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    alarm(mostSeconds);
    close(ends[0]);
    const Status status = check(file.path(), seed);
    if (!status)
      (void)!write(ends[1], status.error().message.data(), status.error().message.size());
    _exit(status ? 0 : static_cast<int>(status.error().kind));
  }
  close(ends[1]);
  std::string said;
  char bytes[4096];
  for (ssize_t length = 0; (length = read(ends[0], bytes, sizeof bytes)) > 0;)
    said.append(bytes, static_cast<size_t>(length));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM ? fmt::format("no answer after {} s", mostSeconds)
                                       : fmt::format("ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) == static_cast<int>(ErrorKind::Environment))
    return environment(said);
  return WEXITSTATUS(status) == 0 ? std::string() : said.empty() ? "failed" : said;
}

/// As small as it can be made while something is wrong with it, and what is.
std::pair<fuzz::RandomGraph, std::string> reduced(fuzz::RandomGraph graph, std::string problem, uint64_t seed) {
  for (bool more = true; more;) {
    more = false;
    for (fuzz::RandomGraph &less : fuzz::smallerGraphs(graph))
      if (auto other = checkApart(less.text(), seed);
          other && !other->empty() && (other->starts_with(badlyMade) == problem.starts_with(badlyMade))) {
        graph = std::move(less);
        problem = std::move(*other);
        more = true;
        break;
      }
  }
  return {graph, problem};
}

Status run() {
  setQuiet(true);
  if (!inputFile.empty())
    return check(inputFile, firstSeed);
  size_t failures = 0;
  for (uint64_t seed = firstSeed; seed < firstSeed + count; ++seed) {
    const fuzz::RandomGraph graph = fuzz::randomGraph(seed);
    if (printOnly) {
      if (Status status = writeOutput("-", fmt::format("// seed {}\n{}", seed, graph.text())); !status)
        return status;
      continue;
    }
    auto problem = checkApart(graph.text(), seed);
    if (!problem)
      return problem.error();
    if (problem->empty())
      continue;
    ++failures;
    const auto [small, why] = reduced(graph, *problem, seed);
    const std::string path = fmt::format("{}/fuzz-{}.mlir", folder.getValue(), seed);
    const std::string head = fmt::format("// RUN: fusion-fuzz %s --seed={}{}\n\n", seed, device == "cpu" ? "" : " --device=" + device);
    if (Status status = writeFileAtomically(path, head + small.text()); !status)
      return status;
    llvm::errs() << path << ": " << why << "\n";
  }
  if (failures > 0)
    return Error{ErrorKind::AnswerIsNo, fmt::format("{} of {} graphs are computed wrongly", failures, count.getValue())};
  if (printOnly)
    return {};
  return writeOutput("-", fmt::format("{} graphs, seeds {} to {}: all agree\n", count.getValue(),
                                      firstSeed.getValue(), firstSeed + count - 1));
}
} // namespace

int main(int argc, char **argv) {
  return toolMain(
      argc, argv,
      {.name = "fusion-fuzz",
       .purpose = "compare random graphs, fused and emitted, with the reference",
       .description =
           "Makes random graphs, runs each unfused and fused, and writes what differs, made as small as "
           "it can be, as a test.",
       .categories = {&category}},
      run);
}
