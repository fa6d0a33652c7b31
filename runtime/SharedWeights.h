// Weights that several programs on one device have in common: each is there once.
#pragma once

#include "codegen/plan/ProgramPlan.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fusion {

/// Knows where the programs have them, and keeps none itself. Thread-safe.
class SharedWeights {
public:
  struct Place {
    void *address = nullptr;
    std::shared_ptr<void> owner; ///< of what is there
  };

  /// For each buffer of `plan`, where a program has the same contents; null where none has.
  std::vector<Place> find(const ProgramPlan &plan, int rank) const;
  /// Where rank `rank`'s program has its own, by buffer.
  void add(const ProgramPlan &plan, int rank, const std::vector<Place> &places);

private:
  struct Known {
    void *address;
    std::weak_ptr<void> owner;
  };
  mutable std::mutex mutex;
  std::map<std::string, Known> known; ///< by what names the contents
};

/// Leaves in a preparation (see preparationOf) what these of its results need.
void keepResults(ProgramPlan &preparation, const std::set<BufferId> &wanted);

} // namespace fusion
