// Overlaps resolved by benefit: the set of disjoint candidates with the largest total score.
#include "passes/fuse/Candidate.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <unordered_map>

using namespace mlir;

namespace fusion {

namespace {
/// Sets that are looked at beside each other. Few candidates reach over a place of a graph, so that their
/// sets are far fewer and the choice is exact; beyond it the best so many go on, and what takes the largest
/// scores first may be better.
constexpr size_t mostSets = 512;

/// Walks over the candidates by their first op. A state is the best choice among those seen with one set of
/// taken candidates that later ones overlap: what else was taken does not matter any more.
class Choice {
public:
  Choice(ArrayRef<Candidate> candidates, ArrayRef<double> scores, std::vector<size_t> order)
      : candidates(candidates), scores(scores), order(std::move(order)) {
    findConflicts();
    states.push_back({});
  }

  SmallVector<size_t> run() {
    for (size_t step = 0; step < order.size(); ++step)
      decide(step);
    SmallVector<size_t> chosen;
    for (size_t link = states.front().last; link != none; link = links[link].before)
      chosen.push_back(order[links[link].step]);
    if (isExact)
      return chosen;
    SmallVector<size_t> largest = largestFirst();
    return total(largest) > total(chosen) ? largest : chosen;
  }

private:
  static constexpr size_t none = ~size_t(0);
  using Steps = SmallVector<size_t, 8>;
  struct State {
    Steps open; ///< taken candidates that a later one overlaps, in order
    double score = 0;
    size_t numbers = 0; ///< the sum of those taken: of equal scores, the one of earlier candidates is better
    size_t last = none; ///< the link of the last one taken
  };
  struct Link {
    size_t step, before;
  };

  SmallVector<size_t> largestFirst() const {
    std::vector<size_t> ranked = order;
    llvm::sort(ranked,
               [&](size_t a, size_t b) { return std::pair(-scores[a], a) < std::pair(-scores[b], b); });
    SmallVector<size_t> chosen;
    llvm::DenseSet<Operation *> taken;
    for (size_t index : ranked)
      if (llvm::none_of(candidates[index].ops, [&](Operation *op) { return taken.contains(op); })) {
        chosen.push_back(index);
        taken.insert_range(candidates[index].ops);
      }
    return chosen;
  }

  double total(ArrayRef<size_t> chosen) const {
    double sum = 0;
    for (size_t index : chosen)
      sum += scores[index];
    return sum;
  }

  static bool isBetter(const State &a, const State &b) {
    return a.score > b.score || (a.score == b.score && a.numbers < b.numbers);
  }

  void findConflicts() {
    earlier.resize(order.size());
    until.resize(order.size());
    llvm::DenseMap<Operation *, Steps> holders;
    for (size_t step = 0; step < order.size(); ++step) {
      llvm::SmallSetVector<size_t, 16> overlapped;
      for (Operation *op : candidates[order[step]].ops) {
        Steps &steps = holders[op];
        overlapped.insert(steps.begin(), steps.end());
        steps.push_back(step);
      }
      earlier[step].assign(overlapped.begin(), overlapped.end());
      until[step] = step;
      for (size_t other : overlapped)
        until[other] = step;
    }
  }

  void decide(size_t step) {
    next.clear();
    index.clear();
    for (const State &state : states) {
      auto isOpen = [&](size_t other) { return llvm::is_contained(state.open, other); };
      if (llvm::none_of(earlier[step], isOpen)) {
        State with = state;
        with.score += scores[order[step]];
        with.numbers += order[step];
        with.last = links.size();
        links.push_back({step, state.last});
        with.open.push_back(step);
        keep(std::move(with), step);
      }
      keep(state, step);
    }
    if (next.size() > mostSets) {
      llvm::sort(next, [](const State &a, const State &b) {
        return isBetter(a, b) || (!isBetter(b, a) && ArrayRef(a.open) < ArrayRef(b.open));
      });
      next.resize(mostSets);
      isExact = false;
    }
    std::swap(states, next);
  }

  /// Of states with the same open candidates the better one stays.
  void keep(State state, size_t step) {
    llvm::erase_if(state.open, [&](size_t taken) { return until[taken] <= step; });
    SmallVector<size_t, 1> &alike = index[llvm::hash_combine_range(state.open.begin(), state.open.end())];
    for (size_t other : alike)
      if (next[other].open == state.open) {
        if (isBetter(state, next[other]))
          next[other] = std::move(state);
        return;
      }
    alike.push_back(next.size());
    next.push_back(std::move(state));
  }

  ArrayRef<Candidate> candidates;
  ArrayRef<double> scores;
  std::vector<size_t> order;
  std::vector<Steps> earlier;  ///< by step: those before that it overlaps
  std::vector<size_t> until;   ///< by step: the last that overlaps it
  std::vector<Link> links;
  std::vector<State> states, next;
  bool isExact = true;
  std::unordered_map<size_t, SmallVector<size_t, 1>> index; ///< of `next`, by the hash of the open ones
};
} // namespace

/// Candidates that overlap, directly or through others, each set in the order of `indices`.
static SmallVector<std::vector<size_t>, 0> components(ArrayRef<Candidate> candidates,
                                                      ArrayRef<size_t> indices) {
  llvm::EquivalenceClasses<size_t> classes;
  llvm::DenseMap<Operation *, size_t> holder;
  for (size_t index : indices) {
    classes.insert(index);
    for (Operation *op : candidates[index].ops)
      if (auto [entry, fresh] = holder.try_emplace(op, index); !fresh)
        classes.unionSets(entry->second, index);
  }
  llvm::MapVector<size_t, std::vector<size_t>> sets;
  for (size_t index : indices)
    sets[classes.getLeaderValue(index)].push_back(index);
  return llvm::map_to_vector<0>(sets, [](auto &entry) { return std::move(entry.second); });
}

SmallVector<size_t> chooseCandidates(ArrayRef<Candidate> candidates, ArrayRef<double> scores) {
  std::vector<size_t> order;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (scores[i] >= 0)
      order.push_back(i);
  llvm::sort(order, [&](size_t a, size_t b) {
    Operation *first = candidates[a].ops.front(), *other = candidates[b].ops.front();
    return first == other ? a < b : first->isBeforeInBlock(other);
  });
  SmallVector<size_t> chosen;
  for (std::vector<size_t> &component : components(candidates, order))
    chosen.append(Choice(candidates, scores, std::move(component)).run());
  llvm::sort(chosen);
  return chosen;
}

} // namespace fusion
