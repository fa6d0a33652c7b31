// Overlaps resolved by benefit.
#include "passes/fuse/Candidate.h"

#include "llvm/ADT/EquivalenceClasses.h"

namespace fusion {

namespace {
constexpr size_t exactLimit = 16;

/// Depth-first search over take / leave; conflicts are bit masks.
struct ExactChoice {
  llvm::ArrayRef<double> scores;
  llvm::ArrayRef<uint32_t> conflicts;
  double best = -1;
  uint32_t bestSet = 0;

  void search(size_t index, uint32_t taken, uint32_t blocked, double score) {
    if (index == scores.size()) {
      if (score > best) {
        best = score;
        bestSet = taken;
      }
      return;
    }
    if (!(blocked >> index & 1))
      search(index + 1, taken | 1u << index, blocked | conflicts[index], score + scores[index]);
    search(index + 1, taken, blocked, score);
  }
};
} // namespace

llvm::SmallVector<size_t> chooseCandidates(llvm::ArrayRef<Candidate> candidates) {
  llvm::EquivalenceClasses<size_t> components;
  llvm::DenseMap<mlir::Operation *, size_t> owner;
  for (size_t i = 0; i < candidates.size(); ++i) {
    components.insert(i);
    for (mlir::Operation *op : candidates[i].ops)
      if (auto [entry, fresh] = owner.try_emplace(op, i); !fresh)
        components.unionSets(entry->second, i);
  }
  llvm::SmallVector<size_t> chosen;
  for (const auto &entry : components) {
    if (!entry->isLeader())
      continue;
    llvm::SmallVector<size_t> members(components.member_begin(*entry), components.member_end());
    llvm::sort(members);
    if (members.size() <= exactLimit) {
      llvm::SmallVector<double> scores;
      llvm::SmallVector<uint32_t> conflicts(members.size(), 0);
      for (size_t i = 0; i < members.size(); ++i) {
        scores.push_back(candidates[members[i]].score);
        for (size_t j = 0; j < members.size(); ++j)
          if (i != j && candidates[members[i]].overlaps(candidates[members[j]]))
            conflicts[i] |= 1u << j;
      }
      ExactChoice choice{scores, conflicts};
      choice.search(0, 0, 0, 0);
      for (size_t i = 0; i < members.size(); ++i)
        if (choice.bestSet >> i & 1)
          chosen.push_back(members[i]);
      continue;
    }
    llvm::sort(members, [&](size_t a, size_t b) {
      return std::pair(-candidates[a].score, a) < std::pair(-candidates[b].score, b);
    });
    llvm::SmallVector<size_t> taken;
    for (size_t index : members)
      if (candidates[index].score >= 0 && llvm::none_of(taken, [&](size_t other) { return candidates[index].overlaps(candidates[other]); }))
        taken.push_back(index);
    chosen.append(taken);
  }
  llvm::sort(chosen);
  return chosen;
}

} // namespace fusion
