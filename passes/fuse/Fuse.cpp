#include "passes/fuse/Fuse.h"

#include "ir/dialect/Types.h"
#include "passes/fuse/FuseSites.h"
#include "passes/fuse/Grow.h"
#include "patterns/Matcher.h"

#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <numeric>
#include <set>

using namespace mlir;

namespace fusion {

namespace {
/// What a kernel launch costs, in bytes of memory traffic: about half a microsecond at 4 TB/s.
constexpr double launchBytes = 2 << 20;

/// The op across ranks that the pattern wants, where the block has none: such a pattern has no candidate roots there.
std::optional<StringRef> absentCollective(const FusionPattern &pattern, Block &block) {
  StringRef collective = nn::AllReduceOp::getOperationName();
  bool wanted = false;
  for (auto op : pdl::PatternOp(pattern.pattern).getBodyRegion().getOps<pdl::OperationOp>())
    wanted |= op.getOpName() == collective;
  if (!wanted || !block.getOps<nn::AllReduceOp>().empty())
    return std::nullopt;
  return collective;
}

/// Ops whose results have no readers.
void eraseDead(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

class Fuser {
public:
  Fuser(func::FuncOp function, const PatternSet &patterns, const FuseOptions &options, ScheduleOracle &oracle,
        FusionReport &report)
      : function(function), patterns(patterns), options(options), oracle(oracle), report(report) {}

  /// The declarative families and the proposers that compete choose together; each other proposer works on what they
  /// and its predecessors left.
  Status run() {
    const DrawnNodes drawn = drawNodes(function, report.before);
    Status status = round([&](const Traffic &traffic) {
      collect(traffic);
      for (const Proposer &proposer : proposers())
        if (proposer.competes && enabled(proposer.family.str()))
          collect(proposer, traffic);
    });
    for (const Proposer &proposer : proposers())
      if (status && !proposer.competes && enabled(proposer.family.str()))
        status = round([&](const Traffic &traffic) { collect(proposer, traffic); });
    recordMisses();
    const DrawnNodes fused = drawNodes(function, report.after);
    for (auto &[op, index] : fused)
      if (auto group = llvm::dyn_cast<GroupOp>(op))
        for (Operation &member : group.getBody().front())
          if (auto node = drawn.find(&member); node != drawn.end())
            report.before[node->second].fusion = group.getPattern().str();
    for (auto &[root, line] : sites.missLines())
      if (auto node = drawn.find(root); node != drawn.end())
        report.before[node->second].missed.push_back(line);
    return status;
  }

private:
  std::vector<std::string> names() const { return fusionNames(patterns); }

  bool enabled(const std::string &name) const {
    return !llvm::is_contained(options.disabled, name) &&
           (options.only.empty() || llvm::is_contained(options.only, name));
  }

  Status round(llvm::function_ref<void(const Traffic &)> collectCandidates) {
    auto shapes = nn::SymbolicShapes::compute(function);
    if (failed(shapes))
      return badInput("shapes do not fit together");
    oracle.begin(function, *shapes);
    candidates.clear();
    const SymbolValues sizes = nominalSizes(function);
    collectCandidates(Traffic{*shapes, sizes, oracle});
    if (options.profit && !candidates.empty())
      measure(*shapes, sizes);
    commitBest();
    eraseDead(function); // whose clones took their place; between rounds no candidate points at them
    return {};
  }

  void collect(const Proposer &proposer, const Traffic &traffic) {
    Proposals proposals = proposer.propose({function.getBody().front(), traffic, oracle, candidates});
    for (auto &[root, reason] : proposals.misses) {
      sites.see(root, proposer.family.str());
      sites.miss(root, proposer.family.str(), 0, reason);
    }
    for (Candidate &candidate : proposals.candidates) {
      sites.see(candidate.root, candidate.pattern);
      consider(std::move(candidate), traffic);
    }
  }

  void collect(const Traffic &traffic) {
    std::vector<const FusionPattern *> wanted;
    for (const FusionPattern &pattern : patterns.patterns())
      if (auto collective = absentCollective(pattern, function.getBody().front()))
        absent[pattern.name] = "the graph has no " + collective->str();
      else if (enabled(pattern.name))
        wanted.push_back(&pattern);
    for (Operation &root : function.getBody().front())
      for (const FusionPattern *pattern : wanted)
        if (pattern->startsAt(&root))
          consider(*pattern, &root, traffic);
    const ProposalContext context{function.getBody().front(), traffic, oracle};
    const std::vector<Candidate> found = candidates;
    for (auto more : {growGroups, proposeBranchNorms, proposeRopes, proposeRotationPairs, proposeGates})
      for (Candidate &candidate : more(context, found))
        if (enabled(candidate.pattern)) {
          sites.see(candidate.root, candidate.pattern);
          consider(std::move(candidate), traffic);
        }
  }

  void consider(const FusionPattern &pattern, Operation *root, const Traffic &traffic) {
    sites.see(root, pattern.name);
    for (MatchResult &result : matchAll(pattern, root)) {
      if (!result.matched)
        return sites.miss(root, pattern.name, result.opsFound, result.reason);
      Candidate candidate;
      candidate.pattern = pattern.name;
      candidate.isUsers = !pattern.isBuiltin;
      candidate.root = root;
      candidate.ops = std::move(result.ops);
      consider(std::move(candidate), result.opsFound, traffic);
    }
  }

  /// A candidate of no pattern: all its ops were found. Where a user's pattern grew, the match itself says why it is missed.
  void consider(Candidate candidate, const Traffic &traffic) {
    const auto found = candidate.isUsers ? 0 : static_cast<unsigned>(candidate.ops.size());
    consider(std::move(candidate), found, traffic);
  }

  /// Matmuls take the ops that decode their operands along; where no schedule takes those, they go without.
  void consider(Candidate candidate, unsigned opsFound, const Traffic &traffic) {
    Candidate decoding = withDecoding(candidate);
    if (decoding.body().size() == candidate.body().size())
      return add(std::move(candidate), opsFound, traffic);
    if (candidate.pattern == "scaled_matmul")
      return add(std::move(decoding), opsFound, traffic);
    GroupPorts ports = portsOf(decoding.ops, decoding.clones);
    auto schedule = oracle.schedule(decoding.body(), ports);
    if (schedule)
      return add(std::move(decoding), opsFound, traffic);
    sites.see(candidate.root, "scaled_matmul");
    sites.miss(candidate.root, "scaled_matmul", opsFound,
         "no schedule with the decoding of its operands: " + schedule.error().message);
    add(std::move(candidate), opsFound, traffic);
  }

  /// Checks legality, asks for a schedule and scores.
  void add(Candidate candidate, unsigned opsFound, const Traffic &traffic) {
    Operation *root = candidate.root;
    llvm::sort(candidate.ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    // PDL matches are not injective: (q, k) and (k, q) are one candidate.
    for (const Candidate &other : candidates)
      if (other.pattern == candidate.pattern && other.ops == candidate.ops) {
        if (other.root != root)
          sites.miss(root, candidate.pattern, opsFound, "the same ops are a candidate from " + siteName(other.root));
        return;
      }
    if (auto reason = whyNotConvex(candidate.ops, candidate.clones))
      return sites.miss(root, candidate.pattern, opsFound, *reason);
    GroupPorts ports = portsOf(candidate.ops, candidate.clones);
    auto schedule = oracle.schedule(candidate.body(), ports);
    if (!schedule)
      return sites.miss(root, candidate.pattern, opsFound, "no schedule: " + schedule.error().message);
    if (!options.profit && !candidate.unproven.empty() && !llvm::is_contained(options.only, candidate.pattern))
      return sites.miss(root, candidate.pattern, opsFound, candidate.unproven);
    candidate.schedule = *schedule;
    candidate.bytesSaved =
        traffic.unfused(candidate.ops) - traffic.bytes(ports.inputs, ports.outputs);
    auto kernels = llvm::count_if(candidate.body(), [&](Operation *op) { return !oracle.isView(op); });
    candidate.score = static_cast<double>(candidate.bytesSaved) + launchBytes * static_cast<double>(kernels - 1);
    remark::analysis(root->getLoc(), remarkOf(candidate.pattern))
        << remark::reason("candidate at {0} for schedule {1}", siteName(root), candidate.schedule)
        << remark::metric("Ops", candidate.ops.size()) << remark::metric("BytesSaved", candidate.bytesSaved);
    candidates.push_back(std::move(candidate));
  }

  /// Scores candidates by the time that they save; those that save none are out. What cannot be measured keeps its
  /// score.
  void measure(const nn::SymbolicShapes &shapes, const SymbolValues &sizes) {
    std::vector<Result<ProfitOracle::Times>> times = options.profit->measure(candidates, shapes, sizes);
    std::vector<Candidate> kept;
    std::vector<double> noise; // of the score of each
    for (auto [candidate, time] : llvm::zip(candidates, times)) {
      double uncertain = 0;
      if (!time) {
        report.unmeasured.push_back({siteName(candidate.root), candidate.pattern + ": " + time.error().message});
        if (!candidate.unproven.empty()) {
          sites.miss(candidate.root, candidate.pattern, ~0u, candidate.unproven);
          continue;
        }
      } else if (auto reason = whySlower(*time, sizesOf(candidate, shapes, sizes))) {
        sites.miss(candidate.root, candidate.pattern, ~0u, *reason);
        continue;
      } else {
        // Equal within the noise: one kernel is still better than several.
        candidate.score = std::max(scoreOfSaving(time->unfused - time->fused), 1.0);
        uncertain = scoreOfSaving(noiseOf(time->unfused));
      }
      kept.push_back(std::move(candidate));
      noise.push_back(uncertain);
    }
    candidates = std::move(kept);
    preferLarger(noise);
  }

  /// Of a group and a larger one that saves more bytes, the noise of a measurement does not choose the smaller.
  void preferLarger(llvm::ArrayRef<double> noise) {
    auto holds = [](const Candidate &larger, const Candidate &smaller) {
      return larger.ops.size() > smaller.ops.size() && larger.bytesSaved > smaller.bytesSaved &&
             llvm::all_of(smaller.ops, [&](Operation *op) { return llvm::is_contained(larger.ops, op); });
    };
    std::vector<size_t> bySize(candidates.size());
    std::iota(bySize.begin(), bySize.end(), size_t(0));
    llvm::stable_sort(bySize, [&](size_t a, size_t b) { return candidates[a].ops.size() < candidates[b].ops.size(); });
    llvm::DenseMap<Operation *, llvm::SmallVector<size_t>> before; // candidates with the op, the smaller first
    for (size_t index : bySize) {
      Candidate &larger = candidates[index];
      llvm::SmallSetVector<size_t, 8> others;
      for (Operation *op : larger.ops) {
        others.insert(before[op].begin(), before[op].end());
        before[op].push_back(index);
      }
      for (size_t other : others)
        if (const Candidate &smaller = candidates[other];
            holds(larger, smaller) && smaller.score >= larger.score && smaller.score - larger.score <= noise[index])
          larger.score = smaller.score + 1;
    }
  }

  /// The values of the symbols that the candidate's operands and results speak of.
  static SymbolValues sizesOf(const Candidate &candidate, const nn::SymbolicShapes &shapes, const SymbolValues &sizes) {
    SymbolValues own;
    GroupPorts ports = portsOf(candidate.ops, candidate.clones);
    for (const SmallVector<Value> *values : {&ports.inputs, &ports.outputs})
      for (Value value : *values)
        for (const Dim &dim : shapes[value])
          for (const std::string &symbol : dim.symbols())
            if (auto size = sizes.find(symbol); size != sizes.end())
              own.insert(*size);
    return own;
  }

  /// Takes the best set; a candidate that a commit made impossible returns its ops to the losers.
  void commitBest() {
    std::vector<Candidate> pool = candidates;
    while (!pool.empty()) {
      SmallVector<size_t> chosen = chooseCandidates(pool);
      std::vector<Candidate> committed;
      bool refused = false;
      for (size_t index : chosen) {
        Candidate &candidate = pool[index];
        if (auto reason = whyNotConvex(candidate.ops, candidate.clones)) {
          sites.miss(candidate.root, candidate.pattern, ~0u, *reason);
          refused = true;
          candidate.ops.clear();
          continue;
        }
        FusionReport::Site site{siteName(candidate.root), {}, candidate.bytesSaved};
        for (Operation *op : candidate.body())
          site.ops.push_back(op->getName().getStringRef().str());
        remark::passed(candidate.root->getLoc(), remarkOf(candidate.pattern))
            << remark::reason("fused at {0}: {1}", site.location, llvm::join(site.ops, ", "))
            << remark::metric("BytesSaved", site.bytesSaved);
        for (auto &[root, pattern] : candidate.absorbed)
          if (enabled(pattern) && sites.fire(root, pattern))
            report.patterns[pattern].fired.push_back({siteName(root), site.ops, 0});
        report.patterns[candidate.pattern].fired.push_back(std::move(site));
        sites.fire(candidate.root, candidate.pattern);
        commit(candidate);
        committed.push_back(candidate);
      }
      std::vector<Candidate> left;
      for (const Candidate &candidate : pool) {
        if (candidate.ops.empty() || sites.hasFired(candidate.root, candidate.pattern))
          continue;
        auto winner = llvm::find_if(committed, [&](const Candidate &c) { return c.overlaps(candidate); });
        if (winner == committed.end())
          left.push_back(candidate);
        else
          sites.miss(candidate.root, candidate.pattern, ~0u,
               "dropped: overlaps " + winner->pattern + " at " + siteName(winner->root));
      }
      pool = std::move(left);
      if (!refused)
        break;
    }
    for (const Candidate &candidate : pool)
      sites.miss(candidate.root, candidate.pattern, ~0u,
           "no gain: it would read and write " + std::to_string(-candidate.bytesSaved) +
               " bytes more, which launching less does not make up for");
  }

  void recordMisses() {
    for (const std::string &name : names())
      if (enabled(name))
        report.patterns[name]; // a pattern without candidates is in the report too
    sites.recordMisses(report);
    for (auto &[name, reason] : absent)
      if (enabled(name))
        report.patterns[name].missed.push_back({"", reason});
    for (const std::string &name : names())
      if (!enabled(name))
        report.patterns[name].missed.push_back({"", "disabled by option"});
  }

  func::FuncOp function;
  const PatternSet &patterns;
  const FuseOptions &options;
  ScheduleOracle &oracle;
  FusionReport &report;
  std::vector<Candidate> candidates;
  FuseSites sites;
  std::map<std::string, std::string> absent; ///< patterns without candidate roots, and why
};

Status count(func::FuncOp function, ScheduleOracle &oracle, FusionReport &report, bool before) {
  auto shapes = nn::SymbolicShapes::compute(function);
  if (failed(shapes))
    return badInput("shapes do not fit together");
  oracle.begin(function, *shapes);
  Traffic traffic{*shapes, nominalSizes(function), oracle};
  SmallVector<Operation *> launches = oracle.launches(function);
  int64_t bytes = 0;
  llvm::MapVector<std::string, int64_t, std::map<std::string, unsigned>> layers;
  for (Operation *op : launches) {
    bytes += traffic.launch(op);
    if (std::string layer = layerOf(locationName(op->getLoc())); !layer.empty())
      ++layers[layer];
  }
  (before ? report.kernelsBefore : report.kernelsAfter) = static_cast<int64_t>(launches.size());
  (before ? report.bytesBefore : report.bytesAfter) = bytes;
  if (!before) {
    report.layers.clear();
    for (auto &[name, kernels] : layers)
      report.layers.push_back({name, kernels});
  }
  return {};
}
} // namespace

std::vector<std::string> fusionNames(const PatternSet &patterns) {
  std::vector<std::string> names = patterns.names();
  for (const Proposer &proposer : proposers())
    names.push_back(proposer.family.str());
  return names;
}

SymbolValues nominalSizes(func::FuncOp function) {
  SymbolValues values;
  for (BlockArgument argument : function.getArguments())
    for (const Dim &dim : nn::argumentDims(function, argument.getArgNumber()))
      for (const std::string &symbol : dim.symbols())
        values[symbol] = llvm::StringRef(symbol).contains_insensitive("batch") ? 1 : 128;
  return values;
}

Status fuse(func::FuncOp function, const PatternSet &patterns, const FuseOptions &options, ScheduleOracle &oracle,
            FusionReport &report) {
  for (const auto &[symbol, size] : nominalSizes(function))
    report.nominal[symbol] = size;
  eraseDead(function); // would fire, and cost what its kernel reads for it
  if (Status status = count(function, oracle, report, true); !status)
    return status;
  if (options.profit)
    report.profit = options.profit->description();
  if (Status status = Fuser(function, patterns, options, oracle, report).run(); !status)
    return status;
  return count(function, oracle, report, false);
}

Status describeUnfused(func::FuncOp function, ScheduleOracle &oracle, FusionReport &report) {
  for (const auto &[symbol, size] : nominalSizes(function))
    report.nominal[symbol] = size;
  if (Status status = count(function, oracle, report, true); !status)
    return status;
  return count(function, oracle, report, false);
}

} // namespace fusion
