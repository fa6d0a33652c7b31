#include "passes/fuse/Fuse.h"

#include "ir/dialect/Types.h"
#include "passes/fuse/Grow.h"
#include "passes/fuse/ReportGraph.h"
#include "passes/fuse/Select.h"
#include "patterns/Matcher.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <set>

using namespace mlir;

namespace fusion {

namespace {
/// The op across ranks that the pattern wants, where the block has none: such a pattern has no candidate
/// roots there.
std::optional<StringRef> absentCollective(const FusionPattern &pattern, Block &block) {
  StringRef collective = nn::AllReduceOp::getOperationName();
  bool wanted = false;
  for (auto op : pdl::PatternOp(pattern.pattern).getBodyRegion().getOps<pdl::OperationOp>())
    wanted |= op.getOpName() == collective;
  if (!wanted || !block.getOps<nn::AllReduceOp>().empty())
    return std::nullopt;
  return collective;
}

/// Erases ops whose results have no readers. `erased` are keys only.
void eraseDead(func::FuncOp function, llvm::DenseSet<Operation *> *erased = nullptr) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op)) {
      if (erased)
        erased->insert(&op);
      op.erase();
    }
}

/// Rounds until nothing is left to group: in each all families propose, and the set that saves most is
/// committed.
class Fuser {
public:
  Fuser(func::FuncOp function, const PatternSet &patterns, const FuseOptions &options, ScheduleOracle &oracle,
        FusionReport &report)
      : function(function), patterns(patterns), options(options), oracle(oracle), report(report) {}

  Status run() {
    auto drawn = drawNodes(function, oracle, report.before);
    if (!drawn)
      return drawn.error();
    Result<size_t> committed = round();
    while (committed && *committed > 0) {
      isFirstRound = false;
      committed = round();
    }
    if (!committed)
      return committed.error();
    if (Status status = dissolveRefused(); !status)
      return status;
    recordMisses(*drawn);
    auto fused = drawFused(function, oracle, *drawn, report);
    if (!fused)
      return fused.error();
    std::map<SiteName, std::vector<size_t>> places;
    for (auto &[op, index] : *fused)
      for (const SiteName &entry : made.lookup(op).entries)
        places[entry].push_back(index);
    placeSites(report, std::move(places));
    return {};
  }

private:
  std::vector<std::string> names() const { return fusionNames(patterns); }

  /// The number of groups made.
  Result<size_t> round() {
    auto shapes = nn::SymbolicShapes::compute(function);
    if (failed(shapes))
      return badInput("shapes do not fit together");
    oracle.begin(function, *shapes);
    const Traffic traffic{*shapes, nominalSizes(function), oracle};
    CandidatePool pool(options, oracle, traffic, sites, report);
    collect(pool, traffic);
    Selection selection =
        selectCandidates(pool, {function.getBody().front(), traffic, oracle}, rest(),
                         [&](const Candidate &candidate) { see(candidate.root, candidate.pattern); });
    restMisses = std::move(selection.restMisses);
    const size_t committed = commitAll(pool.all(), std::move(selection.chosen));
    eraseDead(function, &settled); // whose clones took their place; no candidate points at them any more
    return committed;
  }

  void collect(CandidatePool &pool, const Traffic &traffic) {
    matchPatterns(pool, traffic);
    const ProposalContext context{function.getBody().front(), traffic, oracle};
    const std::vector<Candidate> found = pool.all().vec();
    for (auto more : {growGroups, proposeBranchNorms, proposeRopes, proposeRotationPairs, proposeGates})
      for (Candidate &candidate : more(context, found))
        if (options.tries(candidate.pattern))
          consider(std::move(candidate), pool);
    for (const Proposer &proposer : proposers())
      if (options.tries(proposer.family.str()) && !isRest(proposer))
        collect(proposer, pool, traffic);
  }

  /// Its candidates depend on what the others take.
  static bool isRest(const Proposer &proposer) { return proposer.propose == proposePointwise; }
  const Proposer *rest() const {
    auto *found = llvm::find_if(proposers(), isRest);
    return options.tries(found->family.str()) ? found : nullptr;
  }

  void matchPatterns(CandidatePool &pool, const Traffic &traffic) {
    std::vector<const FusionPattern *> wanted;
    for (const FusionPattern &pattern : patterns.patterns())
      if (auto collective = absentCollective(pattern, function.getBody().front()))
        absent[pattern.name] = "the graph has no " + collective->str();
      else if (options.tries(pattern.name))
        wanted.push_back(&pattern);
    for (Operation &root : function.getBody().front())
      for (const FusionPattern *pattern : wanted)
        if (pattern->startsAt(&root))
          match(*pattern, &root, pool, traffic);
  }

  void match(const FusionPattern &pattern, Operation *root, CandidatePool &pool, const Traffic &traffic) {
    see(root, pattern.name);
    for (MatchResult &result : matchAll(pattern, root)) {
      if (!result.matched) {
        FoundOps found;
        if (result.ops.size() > 1)
          found = {result.ops, traffic.saving(result.ops)};
        return sites.miss(root, pattern.name, result.opsFound, result.reason, std::move(found));
      }
      Candidate candidate;
      candidate.pattern = pattern.name;
      candidate.isUsers = !pattern.isBuiltin;
      candidate.root = root;
      candidate.ops = std::move(result.ops);
      pool.consider(std::move(candidate), result.opsFound);
    }
  }

  void collect(const Proposer &proposer, CandidatePool &pool, const Traffic &traffic) {
    Proposals proposals = proposer.propose({function.getBody().front(), traffic, oracle, pool.all()});
    for (Proposals::Miss &miss : proposals.misses) {
      const int64_t bytes = miss.found.size() > 1 ? traffic.saving(miss.found) : 0;
      see(miss.root, proposer.family.str());
      sites.miss(miss.root, proposer.family.str(), 0, miss.reason, {std::move(miss.found), bytes});
    }
    for (Candidate &candidate : proposals.candidates)
      consider(std::move(candidate), pool);
  }

  void consider(Candidate candidate, CandidatePool &pool) {
    see(candidate.root, candidate.pattern);
    pool.consider(std::move(candidate));
  }

  /// The graph as it was given says where a fusion could have been.
  void see(Operation *root, const std::string &pattern) {
    if (isFirstRound)
      sites.see(root, pattern);
  }

  /// Makes groups of the chosen ones; of those that the others make impossible, the next round proposes what
  /// still can be. Returns how many it made.
  size_t commitAll(ArrayRef<Candidate> all, SmallVector<size_t> chosen) {
    llvm::DenseMap<Operation *, size_t> winners;
    std::vector<bool> isSettled(all.size());
    size_t committed = 0;
    for (size_t index : clonersFirst(all, std::move(chosen))) {
      const Candidate &candidate = all[index];
      isSettled[index] = true;
      if (auto reason = whyNotNow(candidate)) {
        sites.miss(candidate.root, candidate.pattern, ~0u, *reason, {candidate.ops, candidate.bytesSaved});
        continue;
      }
      take(candidate);
      ++committed;
      for (Operation *op : candidate.ops)
        winners[op] = index;
    }
    for (size_t i = 0; i < all.size(); ++i)
      if (!isSettled[i] && !isLost(all[i], all, winners))
        missGain(all[i], committed == 0);
    return committed;
  }

  void missGain(const Candidate &candidate, bool isLastRound) {
    if (candidate.bytesSaved < 0 && candidate.score < 0)
      sites.miss(candidate.root, candidate.pattern, ~0u,
                 "no gain: it would read and write " + std::to_string(-candidate.bytesSaved) +
                     " bytes more, which launching less does not make up for");
    else if (isLastRound)
      sites.miss(candidate.root, candidate.pattern, ~0u,
                 "no gain: what it would compute again stays for other readers");
  }

  /// Who computes an op again comes before who takes it.
  static SmallVector<size_t> clonersFirst(ArrayRef<Candidate> all, SmallVector<size_t> chosen) {
    llvm::DenseMap<Operation *, unsigned> cloners;
    for (size_t index : chosen)
      for (Operation *op : all[index].clones)
        ++cloners[op];
    SmallVector<size_t> ordered;
    for (bool more = true; more;) {
      more = false;
      SmallVector<size_t> later;
      for (size_t index : chosen) {
        if (llvm::any_of(all[index].ops, [&](Operation *op) { return cloners.lookup(op) > 0; })) {
          later.push_back(index);
          continue;
        }
        more = true;
        ordered.push_back(index);
        for (Operation *op : all[index].clones)
          --cloners[op];
      }
      chosen = std::move(later);
    }
    ordered.append(chosen); // that compute ops of each other: the first is taken
    return ordered;
  }

  static std::optional<std::string> whyNotNow(const Candidate &candidate) {
    for (Operation *op : candidate.clones)
      if (op->getBlock() != candidate.ops.front()->getBlock())
        return "dropped: " + shownName(op) + ", which it would compute too, went into another group";
    return whyNotConvex(candidate.ops, candidate.clones);
  }

  void take(const Candidate &candidate) {
    FusionReport::Site site{siteName(candidate.root), {}, candidate.bytesSaved};
    site.fusedTime = candidate.fusedTime;
    site.unfusedTime = candidate.unfusedTime;
    for (Operation *op : candidate.body())
      site.ops.push_back(op->getName().getStringRef().str());
    remark::passed(candidate.root->getLoc(), remarkOf(candidate.pattern))
        << remark::reason("fused at {0}: {1}", site.location, llvm::join(site.ops, ", "))
        << remark::metric("BytesSaved", site.bytesSaved);
    Made taken;
    for (auto &[root, pattern] : candidate.absorbed)
      if (options.tries(pattern) && sites.fire(root, pattern)) {
        taken.sites.push_back({root, pattern});
        taken.entries.push_back({pattern, siteName(root)});
        report.patterns[pattern].fired.push_back({siteName(root), site.ops, 0});
      }
    taken.entries.push_back({candidate.pattern, site.location});
    taken.sites.push_back({candidate.root, candidate.pattern});
    taken.bytesSaved = candidate.bytesSaved;
    report.patterns[candidate.pattern].fired.push_back(std::move(site));
    sites.fire(candidate.root, candidate.pattern);
    settled.insert_range(candidate.ops);
    sites.group(candidate.ops, candidate.bytesSaved);
    made[commit(candidate)] = std::move(taken);
  }

  /// A candidate was asked about before its neighbours became groups, which changes what is known of its
  /// values: groups that their schedules no longer take go back, until all that are left are taken.
  Status dissolveRefused() {
    for (bool more = true; more;) {
      more = false;
      auto shapes = nn::SymbolicShapes::compute(function);
      if (failed(shapes))
        return badInput("shapes do not fit together");
      oracle.begin(function, *shapes);
      SmallVector<std::pair<GroupOp, std::string>> refused;
      for (auto group : function.getBody().front().getOps<GroupOp>())
        if (isMadeHere(group))
          if (auto reason = oracle.refusal(group))
            refused.push_back({group, *reason});
      for (auto &[group, reason] : refused) {
        more = true;
        forget(group,
               "dropped: as a group, schedule " + group.getSchedule().str() + " refuses it: " + reason);
        dissolve(group);
      }
    }
    return {};
  }

  bool isMadeHere(GroupOp group) const {
    return made.contains(group.getOperation());
  }

  /// Takes what the group was out of the report.
  void forget(GroupOp group, const std::string &reason) {
    const Made taken = made.lookup(group.getOperation());
    made.erase(group.getOperation());
    for (Operation &op : group.getBody().front()) {
      settled.erase(&op);
      sites.ungroup(&op);
    }
    for (auto &[root, pattern] : taken.sites)
      sites.unfire(root, pattern, reason, taken.bytesSaved);
    for (auto &[pattern, location] : taken.entries) {
      auto &fired = report.patterns[pattern].fired;
      auto entry =
          llvm::find_if(fired, [&](const FusionReport::Site &site) { return site.location == location; });
      if (entry != fired.end())
        fired.erase(entry);
    }
  }

  /// Whether it overlaps what was taken, and says so.
  bool isLost(const Candidate &candidate, ArrayRef<Candidate> all,
              const llvm::DenseMap<Operation *, size_t> &winners) {
    llvm::SmallSetVector<size_t, 4> overlapped;
    for (Operation *op : candidate.ops)
      if (auto winner = winners.find(op); winner != winners.end())
        overlapped.insert(winner->second);
    if (overlapped.empty())
      return false;
    double score = 0;
    std::string reason = "dropped: overlaps ";
    for (size_t index : overlapped) {
      reason += (score > 0 ? " and " : "") + all[index].pattern + " at " + siteName(all[index].root);
      score += all[index].score;
    }
    if (score > candidate.score)
      reason += overlapped.size() > 1 ? ", which save more" : ", which saves more";
    sites.miss(candidate.root, candidate.pattern, ~0u, reason, {candidate.ops, candidate.bytesSaved});
    return true;
  }

  void recordMisses(const DrawnNodes &drawn) {
    for (const std::string &name : names())
      if (options.tries(name))
        report.patterns[name]; // a pattern without candidates is in the report too
    for (const Proposals::Miss &miss : restMisses) {
      sites.see(miss.root, rest()->family.str());
      sites.miss(miss.root, rest()->family.str(), 0, miss.reason);
    }
    std::set<std::string> forRest;
    for (const Proposer &proposer : proposers())
      if (proposer.isForRest)
        forRest.insert(proposer.family.str());
    sites.recordMisses(report, drawn, [&](Operation *root, const std::string &pattern) {
      return !forRest.contains(pattern) || !settled.contains(root);
    });
    for (auto &[name, reason] : absent)
      if (options.tries(name))
        report.patterns[name].missed.push_back({"", reason});
    for (const std::string &name : names())
      if (!options.tries(name))
        report.patterns[name].missed.push_back({"", "disabled by option"});
  }

  func::FuncOp function;
  const PatternSet &patterns;
  const FuseOptions &options;
  ScheduleOracle &oracle;
  FusionReport &report;
  FuseSites sites;
  bool isFirstRound = true;
  /// What the report says of a group.
  struct Made {
    SmallVector<std::pair<Operation *, std::string>> sites;
    SmallVector<SiteName> entries;
    int64_t bytesSaved = 0;
  };
  llvm::DenseMap<Operation *, Made> made;
  llvm::DenseSet<Operation *> settled;        ///< in a group, or gone; keys only
  std::vector<Proposals::Miss> restMisses;    ///< of the last round
  std::map<std::string, std::string> absent;  ///< patterns without candidate roots, and why
};

} // namespace

std::vector<std::string> fusionNames(const PatternSet &patterns) {
  std::vector<std::string> names = patterns.names();
  for (const Proposer &proposer : proposers())
    names.push_back(proposer.family.str());
  return names;
}

Status fuse(func::FuncOp function, const PatternSet &patterns, const FuseOptions &options,
            ScheduleOracle &oracle, FusionReport &report) {
  for (const auto &[symbol, size] : nominalSizes(function))
    report.nominal[symbol] = size;
  eraseDead(function); // would fire, and cost what its kernel reads for it
  if (Status status = countLaunches(function, oracle, report, true); !status)
    return status;
  if (options.profit)
    report.profit = options.profit->description();
  if (Status status = Fuser(function, patterns, options, oracle, report).run(); !status)
    return status;
  return countLaunches(function, oracle, report, false);
}

} // namespace fusion
