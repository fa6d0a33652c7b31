#include "passes/fuse/CandidatePool.h"
#include "ir/dialect/Dialect.h"
#include "passes/fuse/Propose.h"

#include "llvm/ADT/SetVector.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace mlir;

namespace fusion {

namespace {
/// What a kernel launch costs, in bytes of memory traffic: about half a microsecond at 4 TB/s.
constexpr double launchBytes = 2 << 20;

/// The values of the symbols that the candidate's operands and results speak of.
SymbolValues sizesOf(const Candidate &candidate, const Traffic &traffic) {
  SymbolValues own;
  GroupPorts ports = portsOf(candidate.ops, candidate.clones);
  for (const SmallVector<Value> *values : {&ports.inputs, &ports.outputs})
    for (Value value : *values)
      for (const Dim &dim : traffic.shapes[value])
        for (const std::string &symbol : dim.symbols())
          if (auto size = traffic.sizes.find(symbol); size != traffic.sizes.end())
            own.insert(*size);
  return own;
}

/// The part of each replaced op that goes with the candidate: as much as of its readers are inside.
llvm::DenseMap<Operation *, double> sharesOf(const Candidate &candidate) {
  llvm::DenseMap<Operation *, double> shares;
  for (Operation *op : candidate.ops)
    shares[op] = 1;
  for (Operation *clone : llvm::reverse(candidate.clones)) {
    double inside = 0, uses = 0;
    for (OpOperand &use : clone->getUses()) {
      inside += shares.lookup(use.getOwner());
      ++uses;
    }
    shares[clone] = llvm::is_contained(candidate.replaced, clone) ? inside / uses : 0;
  }
  return shares;
}
} // namespace

std::optional<size_t> CandidatePool::consider(Candidate candidate) {
  const auto found = candidate.isUsers ? 0 : static_cast<unsigned>(candidate.ops.size());
  return consider(std::move(candidate), found);
}

// Where no schedule takes the ops that decode operands, the candidate goes without.
std::optional<size_t> CandidatePool::consider(Candidate candidate, unsigned opsFound) {
  Candidate decoding = withDecoding(candidate);
  if (decoding.body().size() == candidate.body().size() || candidate.isForOperands)
    return add(std::move(decoding), opsFound);
  auto schedule = oracle.schedule(decoding.body(), portsOf(decoding.ops, decoding.clones));
  if (schedule)
    return add(std::move(decoding), opsFound);
  const char *const family =
      llvm::isa<nn::AttentionOp>(candidate.root) ? "scaled_attention" : "scaled_matmul";
  sites.see(candidate.root, family);
  sites.miss(candidate.root, family, opsFound,
             "no schedule with the decoding of its operands: " + schedule.error().message);
  return add(std::move(candidate), opsFound);
}

std::optional<size_t> CandidatePool::add(Candidate candidate, unsigned opsFound) {
  Operation *root = candidate.root;
  const std::string pattern = candidate.pattern;
  llvm::sort(candidate.ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  Key key{pattern, {candidate.ops.begin(), candidate.ops.end()}};
  key.second.push_back(nullptr);
  llvm::append_range(key.second, candidate.clones);
  // PDL matches are not injective: (q, k) and (k, q) are one candidate.
  auto [entry, fresh] = known.try_emplace(std::move(key), Known{root});
  Known &fate = entry->second;
  const SmallVector<Operation *> ops = candidate.ops;
  if (fresh) {
    if (auto reason = whyNot(candidate)) {
      fate.refusal = *reason;
      fate.wouldSave = traffic.saving(candidate.ops, candidate.clones);
    } else {
      fate.number = candidates.size();
      candidates.push_back(std::move(candidate));
    }
  }
  if (!fate.number)
    sites.miss(root, pattern, opsFound, fate.refusal, {ops, fate.wouldSave});
  else if (fate.root != root)
    sites.miss(root, pattern, opsFound, "the same ops are a candidate from " + siteName(fate.root));
  return fate.number;
}

std::optional<std::string> CandidatePool::whyNot(Candidate &candidate) {
  if (auto reason = whyNotConvex(candidate.ops, candidate.clones))
    return reason;
  GroupPorts ports = portsOf(candidate.ops, candidate.clones);
  auto schedule = oracle.schedule(candidate.body(), ports);
  if (!schedule)
    return "no schedule: " + schedule.error().message;
  const SmallVector<GroupPorts> parts = oracle.parts(candidate.body(), ports, *schedule);
  if (parts.empty() && !candidate.unmeasurable.empty())
    return candidate.unmeasurable;
  if (!options.profit && !candidate.unproven.empty() && !llvm::is_contained(options.only, candidate.pattern))
    return candidate.unproven;
  if (!parts.empty())
    candidate.unproven.clear(); // each run takes what measured faster
  candidate.schedule = *schedule;
  score(candidate, parts.empty() ? ArrayRef(ports) : parts,
        oracle.kernels(candidate.body(), ports, *schedule, traffic.sizes));
  if (!parts.empty())
    candidate.score += 1; // as much as groups of the parts, and more where it measures faster
  if (candidate.isUsers)
    candidate.score += 1; // than a built-in family's of the same ops
  remark::analysis(candidate.root->getLoc(), remarkOf(candidate.pattern))
      << remark::reason("candidate at {0} for schedule {1}", siteName(candidate.root), candidate.schedule)
      << remark::metric("Ops", candidate.ops.size()) << remark::metric("BytesSaved", candidate.bytesSaved);
  return std::nullopt;
}

int64_t CandidatePool::bytesOf(Operation *op) {
  auto [entry, fresh] = unfusedBytes.try_emplace(op, 0);
  if (fresh)
    entry->second = llvm::isa<GroupOp>(op) ? traffic.launch(op) : traffic.unfused(op);
  return entry->second;
}

double CandidatePool::costOf(Operation *op) {
  const bool isFree =
      nn::isStored(op) || isBodyConstant(op) || oracle.isView(op) || op->hasTrait<OpTrait::IsTerminator>();
  if (isFree)
    return 0;
  auto [entry, fresh] = unfusedKernels.try_emplace(op, 0);
  if (fresh)
    entry->second = oracle.kernels(op, traffic.sizes);
  return static_cast<double>(bytesOf(op)) + static_cast<double>(entry->second) * launchBytes;
}

void CandidatePool::score(Candidate &candidate, ArrayRef<GroupPorts> kernels, int64_t launches) {
  candidate.bytesMoved = 0;
  for (const GroupPorts &ports : kernels)
    candidate.bytesMoved += traffic.bytes(ports.inputs, ports.outputs);
  candidate.bytesSaved = -candidate.bytesMoved;
  candidate.score = -static_cast<double>(candidate.bytesMoved) - static_cast<double>(launches) * launchBytes;
  for (Operation *op : candidate.ops) {
    candidate.bytesSaved += oracle.isView(op) ? 0 : bytesOf(op);
    candidate.score += costOf(op);
  }
  if (candidate.replaced.empty())
    return;
  const llvm::DenseMap<Operation *, double> shares = sharesOf(candidate);
  for (Operation *op : candidate.replaced)
    candidate.shared += shares.lookup(op) * costOf(op);
}

SmallVector<size_t> CandidatePool::choose(llvm::function_ref<bool(size_t)> mayTake, bool shared) const {
  std::vector<double> scores;
  for (const auto &[index, candidate] : llvm::enumerate(candidates))
    scores.push_back(mayTake(index) ? candidate.score + (shared ? candidate.shared : 0) : -1);
  return chooseCandidates(candidates, scores);
}

double CandidatePool::worth(ArrayRef<size_t> chosen, Block &block) {
  double total = 0;
  if (options.profit) {
    for (size_t index : chosen)
      total += candidates[index].score;
    return total;
  }
  llvm::DenseSet<Operation *> inside, needed;
  for (size_t index : chosen) {
    const Candidate &candidate = candidates[index];
    total -= static_cast<double>(candidate.bytesMoved) + launchBytes;
    inside.insert_range(candidate.ops);
    for (Operation *op : candidate.body())
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp();
            producer && !llvm::is_contained(candidate.clones, producer))
          needed.insert(producer);
  }
  for (Operation &op : llvm::reverse(block)) {
    if (!inside.contains(&op)) {
      if (!needed.contains(&op) && !op.hasTrait<OpTrait::IsTerminator>())
        continue;
      for (Value operand : op.getOperands())
        if (Operation *producer = operand.getDefiningOp())
          needed.insert(producer);
    }
    if (!inside.contains(&op))
      total -= costOf(&op);
  }
  return total;
}

void CandidatePool::measure() {
  if (!options.profit || measured == candidates.size())
    return;
  MutableArrayRef<Candidate> fresh = MutableArrayRef(candidates).drop_front(measured);
  std::vector<Result<ProfitOracle::Times>> times =
      options.profit->measure(fresh, traffic.shapes, traffic.sizes);
  for (auto [candidate, time] : llvm::zip(fresh, times)) {
    std::optional<std::string> slower;
    if (time) {
      candidate.fusedTime = time->fused;
      candidate.unfusedTime = time->unfused;
      slower = whySlower(*time, sizesOf(candidate, traffic));
      // Equal within the noise: one kernel is still better than several.
      candidate.score = std::max(scoreOfSaving(time->unfused - time->fused), 1.0);
      candidate.noise = scoreOfSaving(noiseOf(time->unfused));
    } else {
      report.unmeasured.push_back(
          {siteName(candidate.root), candidate.pattern + ": " + time.error().message});
      if (!candidate.unproven.empty())
        slower = candidate.unproven;
    }
    candidate.shared = 0;
    if (!slower)
      continue;
    sites.miss(candidate.root, candidate.pattern, ~0u, *slower);
    candidate.score = -std::numeric_limits<double>::infinity();
  }
  measured = candidates.size();
  preferLarger();
  preferMatmulsToNorms();
}

/// Of a group and a larger one that saves more bytes, the noise of a measurement does not choose the smaller.
void CandidatePool::preferLarger() {
  auto holds = [](const Candidate &larger, const Candidate &smaller) {
    return larger.ops.size() > smaller.ops.size() && larger.bytesSaved > smaller.bytesSaved &&
           llvm::all_of(smaller.ops, [&](Operation *op) { return llvm::is_contained(larger.ops, op); });
  };
  std::vector<size_t> bySize(candidates.size());
  std::iota(bySize.begin(), bySize.end(), size_t(0));
  llvm::sort(bySize, [&](size_t a, size_t b) {
    return std::pair(candidates[a].ops.size(), a) < std::pair(candidates[b].ops.size(), b);
  });
  llvm::DenseMap<Operation *, llvm::SmallVector<size_t>> before; // candidates with the op, the smaller first
  for (size_t index : bySize) {
    Candidate &larger = candidates[index];
    llvm::SmallSetVector<size_t, 8> others;
    for (Operation *op : larger.ops) {
      others.insert(before[op].begin(), before[op].end());
      before[op].push_back(index);
    }
    for (size_t other : others)
      if (const Candidate &smaller = candidates[other]; holds(larger, smaller) &&
                                                        smaller.score >= larger.score &&
                                                        smaller.score - larger.score <= larger.noise)
        larger.score = smaller.score + 1;
    compareTimes(larger, others.getArrayRef());
  }
  for (Candidate &whole : candidates)
    if (whole.choosesInRuns && whole.score >= 0)
      preferToParts(whole);
}

/// A group and those of its parts that have all of its ops, by the times of their kernels: what each saves
/// was measured beside kernels of its ops alone, whose times in a row are less than their sum. Of a group
/// that saves more bytes the noise of a measurement does not choose the parts.
void CandidatePool::compareTimes(Candidate &whole, ArrayRef<size_t> others) {
  if (whole.fusedTime <= 0 || whole.score < 0)
    return;
  llvm::SmallVector<const Candidate *> parts;
  for (size_t index : others) {
    const Candidate &part = candidates[index];
    if (part.fusedTime > 0 && part.score >= 0 && part.ops.size() < whole.ops.size() &&
        llvm::all_of(part.ops, [&](Operation *op) { return llvm::is_contained(whole.ops, op); }))
      parts.push_back(&part);
  }
  llvm::stable_sort(parts, [](const Candidate *a, const Candidate *b) { return a->score > b->score; });
  llvm::SmallPtrSet<Operation *, 16> taken;
  double score = 0, time = 0;
  int64_t bytesSaved = 0;
  for (const Candidate *part : parts) {
    if (llvm::any_of(part->ops, [&](Operation *op) { return taken.contains(op); }))
      continue;
    taken.insert(part->ops.begin(), part->ops.end());
    score += part->score;
    time += part->fusedTime;
    bytesSaved += part->bytesSaved;
  }
  if (llvm::any_of(whole.ops, [&](Operation *op) { return !taken.contains(op) && costOf(op) > 0; }))
    return;
  const double gain = time - whole.fusedTime;
  if (std::abs(gain) > noiseOf(time))
    whole.score = std::max(score + scoreOfSaving(gain), 0.0);
  else if (whole.bytesSaved > bytesSaved)
    whole.score = std::max(whole.score, score + 1);
}

/// Of an add between a matmul and a norm, a small difference does not choose the norm's group: with the add
/// inside, the matmul's kernel can sum up squares for the norm (codegen/NormedMatmul.h), which saves about as
/// much of a step of 9 to 32 rows, and none of these times show.
void CandidatePool::preferMatmulsToNorms() {
  const double small = scoreOfSaving(0.5);
  auto holds = [](const Candidate &candidate, auto isWanted) {
    return llvm::any_of(candidate.ops, isWanted);
  };
  llvm::DenseMap<Operation *, llvm::SmallVector<size_t>> norms; // by their add
  for (auto [index, candidate] : llvm::enumerate(candidates))
    if (candidate.score >= 0 && holds(candidate, llvm::IsaPred<nn::RmsNormOp>) &&
        !holds(candidate, llvm::IsaPred<nn::MatmulOp>))
      for (Operation *op : candidate.ops)
        if (llvm::isa<nn::AddOp>(op))
          norms[op].push_back(index);
  for (Candidate &matmul : candidates) {
    if (matmul.score < 0 || !holds(matmul, llvm::IsaPred<nn::MatmulOp>) ||
        holds(matmul, llvm::IsaPred<nn::RmsNormOp>))
      continue;
    for (Operation *op : matmul.ops)
      for (size_t index : norms.lookup(op))
        if (const Candidate &norm = candidates[index];
            norm.score >= matmul.score && norm.score - matmul.score <= small)
          matmul.score = norm.score + 1;
  }
}

/// Over all groups of its parts together.
void CandidatePool::preferToParts(Candidate &whole) const {
  std::vector<double> scores;
  for (const Candidate &part : candidates) {
    const bool isPart =
        part.ops.size() < whole.ops.size() &&
        llvm::all_of(part.ops, [&](Operation *op) { return llvm::is_contained(whole.ops, op); });
    scores.push_back(isPart ? part.score : -1);
  }
  double parts = 0;
  for (size_t index : chooseCandidates(candidates, scores))
    parts += scores[index];
  if (parts >= whole.score && parts - whole.score <= whole.noise)
    whole.score = parts + 1;
}

} // namespace fusion
