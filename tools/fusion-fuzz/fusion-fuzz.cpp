// fusion-fuzz: random graphs, each run unfused and fused, by the reference and as emitted kernels.
#include "Difference.h"
#include "Output.h"
#include "RandomGraph.h"
#include "Tool.h"
#include "Trials.h"
#include "Values.h"
#include "Wide.h"

#include "api/Fusion.h"
#include "api/Lower.h"
#include "api/Trial.h"
#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"
#include "ir/reference/Reference.h"

#include "ir/dialect/Types.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

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
NumberOption<uint64_t> jobs("jobs", "Graphs side by side (default one a core, 1 with --device=emulate)",
                            category, {.unit = "N", .least = 1});
cl::opt<std::string> folder("o", cl::desc("Folder for what failed, as lit tests (default .)"),
                            cl::value_desc("DIR"), cl::init("."), cl::cat(category));
NumberOption<double> slack("slack", "Errors allowed, in those of a few roundings", category,
                           {.unit = "X", .initial = 4, .least = 0});
cl::opt<bool> countFusions("count-fusions", cl::desc("Print in how many graphs each fusion and raise fired"),
                           cl::cat(category));
cl::opt<bool> printOnly("print", cl::desc("Print the graphs and run nothing"), cl::cat(category));
cl::opt<bool> quiet("quiet", cl::desc("No progress on stderr"), cl::cat(category));

const std::string badlyMade = "is no graph: "; ///< a fault of this program

/// Graphs that a process checks: on a GPU several share its context.
uint64_t mostOfAProcess() { return device == "cuda" ? 25 : 1; }

unsigned cores() { return std::max(1u, std::thread::hardware_concurrency()); }

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
    // Caches are extended in place where there are any.
    capacity = 64;
    auto plan = explain(*graph, options(RunOn::Cpu), Emit::Plan);
    if (!plan && plan.error().message.find("a capacity for key/value caches") != std::string::npos) {
      capacity = 0;
      plan = explain(*graph, options(RunOn::Cpu), Emit::Plan);
    }
    if (!plan)
      return plan.error();
    fired = firedIn(plan->report);
    // A raise may take numbers for finite; then its report says so.
    special = special && plan->report.json().find("\"assumes\"") == std::string::npos;
    // Whether a weight of attention or the tail of GELU is 0 or tiny is up to the kernel, and so is what an
    // infinite value makes of it.
    hasGelu = plan->text.find("gelu") != std::string::npos;
    // Of two sums that are nearly alike a rounding decides which is the largest.
    choosesPlaces = plan->text.find("matmul_arg_max") != std::string::npos;
    hasTails = hasGelu || plan->text.find("attention") != std::string::npos;
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
    fuzz::Agreement rule = agreementOf(function, inputs, special);
    if (hasGelu) // 1 + erf(x) and 1 + tanh(x) have the roundings of 1, also where they are near 0
      rule.smallest = std::max(rule.smallest, 0x1p-20);
    std::optional<std::map<std::string, fuzz::Evidence>> evidence;
    for (auto &[way, program] : programs) {
      auto outputs = program.run(inputs);
      if (outputs && capacity > 0) // caches stay where they are
        outputs = program.fetch(*outputs);
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
  /// Of emitted kernels: they choose the order of sums in f32, which must not overflow in any, nor be what
  /// is left of two large ones.
  std::optional<fuzz::SpecialValues> values() const {
    if (!special)
      return std::nullopt;
    return device == "cpu" ? fuzz::SpecialValues()
                           : fuzz::SpecialValues{.tiny = hasTails, .cancel = false, .largest = 1e9f};
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
    options.kvCapacity = capacity;
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
    for (int i = 0; (special || choosesPlaces) && i < 4; ++i)
      if (auto outputs = asWritten->run(fuzz::shaken(inputs, narrowestStep(function), random)))
        for (auto &[name, tensor] : *outputs)
          if (special || !isFloat(tensor.type()))
            evidence[name].shaken.push_back(tensor);
    if (hasGelu)
      if (auto outputs = fuzz::runWithoutTails(function, inputs))
        for (auto &[name, tensor] : *outputs)
          evidence[name].shaken.push_back(tensor);
    if (auto outputs = fuzz::runWide(function, inputs))
      for (auto &[name, tensor] : *outputs)
        evidence[name].wide = tensor;
    return evidence;
  }

  const std::string path;
  bool special, hasTails = false, hasGelu = false, choosesPlaces = false;
  int64_t capacity = 0; ///< of caches
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

/// As small as it can be made while something is wrong with it, and what is.
std::pair<fuzz::RandomGraph, std::string> reduced(fuzz::RandomGraph graph, std::string problem,
                                                  uint64_t seed) {
  for (bool more = true; more;) {
    more = false;
    for (fuzz::RandomGraph &less : fuzz::smallerGraphs(graph)) {
      fuzz::Trials alone(check, cores());
      auto other = alone.start({{seed, less.text()}}) ? alone.next() : environment("not tried");
      if (!other || other->second.problem.empty() ||
          other->second.problem.starts_with(badlyMade) != problem.starts_with(badlyMade))
        continue;
      graph = std::move(less);
      problem = std::move(other->second.problem);
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

/// Makes the graph as small as it fails, writes it as a test and says so.
Status writeFind(uint64_t seed, const std::string &problem) {
  const auto [small, why] = reduced(fuzz::randomGraph(seed), problem, seed);
  const std::string path = fmt::format("{}/fuzz-{}.mlir", folder.getValue(), seed);
  const std::string head = fmt::format("// RUN: fusion-fuzz %s --seed={}{}\n\n", seed,
                                       device == "cpu" ? "" : " --device=" + device);
  std::error_code ignored; // writing says what is wrong
  std::filesystem::create_directories(folder.getValue(), ignored);
  if (Status status = writeFileAtomically(path, head + small.text()); !status)
    return status;
  // On a terminal over the bar of the progress.
  llvm::errs() << (llvm::sys::Process::StandardErrIsDisplayed() ? "\r\033[K" : "") << path << ": " << why
               << "\n";
  return {};
}

Status printGraphs() {
  for (uint64_t seed = firstSeed; seed < firstSeed + count; ++seed)
    if (Status status = writeOutput("-", fmt::format("// seed {}\n{}", seed, fuzz::randomGraph(seed).text()));
        !status)
      return status;
  return {};
}

/// Checks all graphs, several side by side. How many are computed wrongly.
Result<size_t> checkAll(Statistics &statistics) {
  const size_t sideBySide = jobs > 0 ? jobs() : device == "emulate" ? 1 : cores();
  fuzz::Trials trials(check, std::max(1u, static_cast<unsigned>(cores() / sideBySide)));
  Progress progress("check graphs", static_cast<int64_t>(count()));
  size_t failures = 0;
  const uint64_t end = firstSeed + count;
  for (uint64_t seed = firstSeed, done = 0; done < count; ++done) {
    while (seed < end && trials.running() < sideBySide) {
      std::vector<fuzz::GraphText> graphs;
      const uint64_t most = std::clamp<uint64_t>((end - seed) / (2 * sideBySide), 1, mostOfAProcess());
      for (; seed < end && graphs.size() < most; ++seed)
        graphs.push_back({seed, fuzz::randomGraph(seed).text()});
      if (Status status = trials.start(graphs); !status)
        return status.error();
    }
    const auto ended = trials.next();
    if (!ended)
      return ended.error();
    const auto &[which, outcome] = *ended;
    statistics.count(outcome.fired);
    if (!outcome.problem.empty()) {
      ++failures;
      if (Status status = writeFind(which, outcome.problem); !status)
        return status.error();
    }
    progress.step(fmt::format("seed {}, {} computed wrongly", which, failures));
  }
  return failures;
}

Status run() {
  setQuiet(quiet || !inputFile.empty());
  if (!inputFile.empty()) {
    std::string fired;
    return check(inputFile, firstSeed, fired);
  }
  if (printOnly)
    return printGraphs();
  Statistics statistics;
  const Result<size_t> failures = checkAll(statistics);
  if (!failures)
    return failures.error();
  if (countFusions)
    if (Status status = writeOutput("-", statistics.table()); !status)
      return status;
  if (*failures > 0)
    return Error{ErrorKind::AnswerIsNo,
                 fmt::format("{} of {} graphs are computed wrongly", *failures, count.getValue())};
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
