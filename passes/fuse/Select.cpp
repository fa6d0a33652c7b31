#include "passes/fuse/Select.h"

#include <set>

using namespace mlir;

namespace fusion {

namespace {
using Numbers = SmallVector<size_t>;

/// What the others leave depends on which of them are taken. The rest is proposed for an untouched block, for
/// the best choice of the others, for the best ones without one of their families, and again while it changes
/// the choice. Each choice on the way is compared by what it is worth as a whole, since groups that compute
/// the same op again are not worth the sum of their scores.
class Selector {
public:
  Selector(CandidatePool &pool, const ProposalContext &context, const Proposer *rest,
           llvm::function_ref<void(const Candidate &)> see)
      : pool(pool), context(context), rest(rest), see(see) {}

  Selection run() {
    pool.measure();
    if (rest) {
      propose({});
      const Numbers others = pool.choose([&](size_t index) { return isOther(index); }, false);
      propose(others);
      std::set<std::string> families;
      for (size_t index : others)
        families.insert(pool.all()[index].pattern);
      for (const std::string &family : families)
        propose(pool.choose([&](size_t i) { return isOther(i) && pool.all()[i].pattern != family; }, false));
    }
    auto any = [](size_t) { return true; };
    for (size_t before = 0; std::exchange(before, pool.all().size()) != pool.all().size();)
      for (bool shared : {true, false}) {
        Numbers chosen = pool.choose(any, shared);
        compare(chosen);
        propose(std::move(chosen));
      }
    return std::move(best);
  }

private:
  bool isOther(size_t index) const { return !rest || pool.all()[index].pattern != rest->family; }

  /// Adds the rest that these leave, and compares what they make together.
  void propose(Numbers chosen) {
    llvm::erase_if(chosen, [&](size_t index) { return !isOther(index); });
    if (!rest || !asked.insert(chosen).second)
      return;
    llvm::DenseSet<Operation *> taken;
    for (size_t index : chosen)
      taken.insert_range(pool.all()[index].ops);
    Proposals proposals = rest->propose({context.block, context.traffic, context.oracle, pool.all(), &taken});
    if (chosen.empty())
      best.restMisses = std::move(proposals.misses);
    llvm::DenseSet<size_t> left;
    for (Candidate &candidate : proposals.candidates) {
      see(candidate);
      if (auto number = pool.consider(std::move(candidate)))
        left.insert(*number);
    }
    pool.measure();
    for (bool shared : {true, false})
      compare(pool.choose([&](size_t index) { return isOther(index) || left.contains(index); }, shared));
    const llvm::DenseSet<size_t> kept(chosen.begin(), chosen.end());
    compare(pool.choose([&](size_t index) { return kept.contains(index) || left.contains(index); }, true));
  }

  void compare(Numbers chosen) {
    const double worth = pool.worth(chosen, context.block);
    if (bestWorth && worth <= *bestWorth)
      return;
    bestWorth = worth;
    best.chosen = std::move(chosen);
  }

  CandidatePool &pool;
  const ProposalContext &context;
  const Proposer *rest;
  llvm::function_ref<void(const Candidate &)> see;
  Selection best;
  std::optional<double> bestWorth;
  std::set<Numbers> asked;
};
} // namespace

Selection selectCandidates(CandidatePool &pool, const ProposalContext &context, const Proposer *rest,
                           llvm::function_ref<void(const Candidate &)> see) {
  return Selector(pool, context, rest, see).run();
}

} // namespace fusion
