// fusion-fuzz: random graphs, each run unfused and fused, by the reference and as emitted kernels.
#include "Difference.h"
#include "Output.h"
#include "RandomGraph.h"
#include "Tool.h"
#include "Values.h"
#include "Wide.h"

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
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
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
cl::opt<std::string> folder("o", cl::desc("Folder for what failed, as lit tests (default .)"),
                            cl::value_desc("DIR"), cl::init("."), cl::cat(category));
NumberOption<double> slack("slack", "Errors allowed, in those of a few roundings", category,
                           {.unit = "X", .initial = 4, .least = 0});
cl::opt<bool> countFusions("count-fusions", cl::desc("Print in how many graphs each fusion and raise fired"),
                           cl::cat(category));
cl::opt<bool> printOnly("print", cl::desc("Print the graphs and run nothing"), cl::cat(category));

const std::string badlyMade = "is no graph: "; ///< a fault of this program
constexpr unsigned mostSeconds = 120;          ///< for one graph

/// Of the coarsest type that anything in the graph has: an f32 may have been bf16.
fuzz::Agreement agreementOf(mlir::func::FuncOp function, const NamedTensors &inputs, bool special) {
  fuzz::Agreement rule;
  rule.byRows = special;
  const bool hasTies = quantises(function);
  double coarsest = hasTies ? roundingTolerance(DType::I8, inputs) : 0;
  function.walk([&](mlir::Operation *op) {
    for (mlir::Value value : op->getResults())
      if (auto type = dtypeOf(mlir::getElementTypeOrSelf(value.getType())); type && isFloat(*type)) {
        coarsest = std::max(coarsest, roundingTolerance(*type, inputs));
        rule.smallest = std::max(rule.smallest, *type == DType::F16 ? 0x1p-22 : 0x1p-126);
      }
  });
  rule.tolerance = slack * coarsest;
  rule.steps = hasTies ? 1 + static_cast<int>(127 * coarsest) : 0;
  return rule;
}

/// One step of the narrowest float that the graph has, in bits of an f32: less would not be seen behind a
/// cast.
uint32_t narrowestStep(mlir::func::FuncOp function) {
  uint32_t step = 1;
  function.walk([&](mlir::Operation *op) {
    for (mlir::Value value : op->getResults())
      if (auto type = dtypeOf(mlir::getElementTypeOrSelf(value.getType())))
        step = std::max(step, *type == DType::BF16 ? 1u << 16 : *type == DType::F16 ? 1u << 13 : 1u);
  });
  return step;
}

/// One graph, and the ways in which it is computed.
class Ways {
public:
  Ways(const std::string &path, uint64_t seed) : path(path), special(fuzz::isSpecial(seed)) {}

  /// Reads and compiles the graph; `fired` gets the fusions that it is planned with.
  Status compileAll(std::string &fired) {
    auto graph = Graph::load(path);
    if (!graph)
      return Error{graph.error().kind, badlyMade + graph.error().message};
    // The graph as it stands: also without fusions a program is normalised and raised.
    context = makeContext();
    auto loaded = loadModule(*context, path, {});
    auto entry = loaded ? entryFunction(**loaded) : Result<mlir::func::FuncOp>(loaded.error());
    auto interpreter = entry ? Interpreter::create(*entry, "") : Result<Interpreter>(entry.error());
    if (!interpreter)
      return interpreter.error();
    module = std::move(*loaded);
    function = *entry;
    asWritten = std::move(*interpreter);
    for (const Port &port : graph->inputs())
      ports.push_back({port.name, port.type, port.shape});
    auto plan = explain(*graph, options(RunOn::Cpu), Emit::Plan);
    if (!plan)
      return plan.error();
    fired = firedIn(plan->report);
    // A raise may take numbers for finite; then its report says so.
    special = special && plan->report.json().find("\"assumes\"") == std::string::npos;
    // Whether a weight of attention or the tail of GELU is 0 or tiny is up to the kernel, and so is what an
    // infinite value makes of it.
    hasTails =
        plan->text.find("attention") != std::string::npos || plan->text.find("gelu") != std::string::npos;
    if (!plan->report.noPlan().empty())
      return badInput("no kernels: " + plan->report.noPlan());
    for (const auto &[way, where] :
         {std::pair{"fused, by the reference", RunOn::Cpu}, {"emitted", emittedOn()}}) {
      if (where == RunOn::Cpu && !programs.empty())
        continue;
      auto program = compile(*graph, options(where));
      if (!program)
        return program.error();
      programs.push_back({way, std::move(*program)});
    }
    return {};
  }

  /// All of them at one size.
  Status run(int64_t b, int64_t s, int64_t p, std::mt19937 &random) {
    const NamedTensors inputs = fuzz::randomValues(ports, {{"b", b}, {"s", s}, {"p", p}}, values(), random);
    auto expected = asWritten->run(inputs);
    if (!expected) // such as a symbol that no input tells
      return Error{expected.error().kind, badlyMade + expected.error().message};
    const fuzz::Agreement rule = agreementOf(function, inputs, special);
    std::optional<std::map<std::string, fuzz::Evidence>> evidence;
    for (auto &[way, program] : programs) {
      auto outputs = program.run(inputs);
      if (!outputs)
        return Error{outputs.error().kind,
                     fmt::format("{}: b={} s={} p={}: {}", way, b, s, p, outputs.error().message)};
      for (const auto &[name, tensor] : *expected) {
        std::string text = fuzz::difference((*outputs)[name], tensor, rule);
        if (!text.empty() && slack > 0) {
          if (!evidence)
            evidence = gather(inputs, random);
          text = fuzz::difference((*outputs)[name], tensor, rule, (*evidence)[name]);
        }
        if (!text.empty())
          return Error{ErrorKind::AnswerIsNo,
                       fmt::format("{}: b={} s={} p={}: output {}: {}", way, b, s, p, name, text)};
      }
    }
    return {};
  }

private:
  /// Of emitted kernels: they choose the order of sums in f32, which must not overflow in any.
  std::optional<fuzz::SpecialValues> values() const {
    if (!special)
      return std::nullopt;
    return device == "cpu" ? fuzz::SpecialValues() : fuzz::SpecialValues{.tiny = hasTails, .largest = 1e9f};
  }
  static RunOn emittedOn() {
    return device == "cuda" ? RunOn::Cuda : device == "emulate" ? RunOn::Emulate : RunOn::Cpu;
  }
  CompileOptions options(RunOn where) const {
    CompileOptions options;
    options.target = {"sm_90a"};
    options.device = where;
    options.profit = ProfitMode::Model;
    options.assumeFinite = !special;
    return options;
  }
  static std::string firedIn(const Report &report) {
    std::string names;
    auto json = llvm::json::parse(report.json());
    const llvm::json::Object *object = json ? json->getAsObject() : nullptr;
    for (const char *kind : {"patterns", "raises"})
      if (const llvm::json::Object *all = object ? object->getObject(kind) : nullptr)
        for (const auto &[name, pattern] : *all) {
          const llvm::json::Object *fields = pattern.getAsObject();
          const auto fired = fields ? fields->getInteger("fired") : std::nullopt;
          names += fmt::format("{}{}={} ", kind[0] == 'r' ? "raise:" : "", name.str(), fired.value_or(0));
        }
    return names;
  }
  /// By output. What the wide graph's ops do not take leaves it without results.
  std::map<std::string, fuzz::Evidence> gather(const NamedTensors &inputs, std::mt19937 &random) {
    std::map<std::string, fuzz::Evidence> evidence;
    if (special)
      for (int i = 0; i < 4; ++i)
        if (auto outputs = asWritten->run(fuzz::shaken(inputs, narrowestStep(function), random)))
          for (auto &[name, tensor] : *outputs)
            evidence[name].shaken.push_back(tensor);
    if (auto outputs = fuzz::runWide(function, inputs))
      for (auto &[name, tensor] : *outputs)
        evidence[name].wide = tensor;
    return evidence;
  }

  const std::string path;
  bool special, hasTails = false;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  std::optional<Interpreter> asWritten;
  std::vector<PortShape> ports;
  std::vector<std::pair<const char *, Program>> programs;
};

/// Runs the graph in all ways at several sizes; the error says which way gives other numbers.
Status check(const std::string &path, uint64_t seed, std::string &fired) {
  Ways ways(path, seed);
  if (Status status = ways.compileAll(fired); !status)
    return status;
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (const auto &[b, s, p] : {std::array<int64_t, 3>{2, 5, 3}, {1, 1, 7}, {3, 8, 0}, {0, 4, 2}})
    if (Status status = ways.run(b, s, p, random); !status)
      return status;
  return {};
}

/// What happened to a graph in a process of its own.
struct Outcome {
  std::string fired;   ///< name=times …
  std::string problem; ///< empty if all agree
};

/// Checks the graph in a process of its own, which may crash or hang. An error if it was not tried.
Result<Outcome> checkApart(const std::string &text, uint64_t seed) {
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
    std::string said;
    const Status status = check(file.path(), seed, said);
    said += "\n" + (status ? std::string() : status.error().message);
    (void)!write(ends[1], said.data(), said.size());
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
  const size_t line = said.find('\n');
  Outcome outcome{said.substr(0, line), line == std::string::npos ? "" : said.substr(line + 1)};
  if (WIFSIGNALED(status))
    outcome.problem = WTERMSIG(status) == SIGALRM ? fmt::format("no answer after {} s", mostSeconds)
                                                  : fmt::format("ended by signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) == static_cast<int>(ErrorKind::Environment))
    return environment(outcome.problem);
  else if (WEXITSTATUS(status) != 0 && outcome.problem.empty())
    outcome.problem = "failed";
  return outcome;
}

/// As small as it can be made while something is wrong with it, and what is.
std::pair<fuzz::RandomGraph, std::string> reduced(fuzz::RandomGraph graph, std::string problem,
                                                  uint64_t seed) {
  for (bool more = true; more;) {
    more = false;
    for (fuzz::RandomGraph &less : fuzz::smallerGraphs(graph))
      if (auto other = checkApart(less.text(), seed);
          other && !other->problem.empty() &&
          (other->problem.starts_with(badlyMade) == problem.starts_with(badlyMade))) {
        graph = std::move(less);
        problem = std::move(other->problem);
        more = true;
        break;
      }
  }
  return {graph, problem};
}

/// In how many graphs, and how often, each fusion and raise fired.
class Statistics {
public:
  void count(const std::string &fired) {
    std::istringstream words(fired);
    for (std::string word; words >> word;) {
      const size_t end = word.find('=');
      const size_t times = std::stoul(word.substr(end + 1));
      auto &[graphs, all] = counts[word.substr(0, end)];
      graphs += times > 0;
      all += times;
    }
  }
  std::string table() const {
    std::string text = fmt::format("{:<34} {:>7} {:>7}\n", "fusion", "graphs", "times");
    for (const auto &[name, count] : counts)
      text += fmt::format("{:<34} {:>7} {:>7}\n", name, count.first, count.second);
    return text;
  }

private:
  std::map<std::string, std::pair<size_t, size_t>> counts;
};

Status run() {
  setQuiet(true);
  if (!inputFile.empty()) {
    std::string fired;
    return check(inputFile, firstSeed, fired);
  }
  size_t failures = 0;
  Statistics statistics;
  for (uint64_t seed = firstSeed; seed < firstSeed + count; ++seed) {
    const fuzz::RandomGraph graph = fuzz::randomGraph(seed);
    if (printOnly) {
      if (Status status = writeOutput("-", fmt::format("// seed {}\n{}", seed, graph.text())); !status)
        return status;
      continue;
    }
    const Result<Outcome> outcome = checkApart(graph.text(), seed);
    if (!outcome)
      return outcome.error();
    const auto &[fired, problem] = *outcome;
    statistics.count(fired);
    if (problem.empty())
      continue;
    ++failures;
    const auto [small, why] = reduced(graph, problem, seed);
    const std::string path = fmt::format("{}/fuzz-{}.mlir", folder.getValue(), seed);
    const std::string head = fmt::format("// RUN: fusion-fuzz %s --seed={}{}\n\n", seed,
                                         device == "cpu" ? "" : " --device=" + device);
    if (Status status = writeFileAtomically(path, head + small.text()); !status)
      return status;
    llvm::errs() << path << ": " << why << "\n";
  }
  if (countFusions)
    if (Status status = writeOutput("-", statistics.table()); !status)
      return status;
  if (failures > 0)
    return Error{ErrorKind::AnswerIsNo,
                 fmt::format("{} of {} graphs are computed wrongly", failures, count.getValue())};
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
