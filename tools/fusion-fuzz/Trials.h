// Graphs that are checked in processes of their own, several side by side.
#pragma once

#include "ir/base/Result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fusion::fuzz {

/// What happened to a graph.
struct Outcome {
  std::string fired;   ///< name=times …
  std::string problem; ///< empty if all agree
};

/// Checks the graph of a file; `fired` gets the fusions that it is planned with. Called in another process,
/// which it may crash or hang.
using Check = std::function<Status(const std::string &path, uint64_t seed, std::string &fired)>;

class Trials {
public:
  /// `threads`: for each process; FUSION_THREADS goes before.
  Trials(Check check, unsigned threads);
  ~Trials(); ///< ends what still runs

  /// Starts a process. Errors: there is no place for the graph's file, or no process (Environment).
  Status start(const std::string &text, uint64_t seed);
  size_t running() const { return trials.size(); }
  /// The graph that ends next, and what happened to it. One must be running. An error if it was not tried.
  Result<std::pair<uint64_t, Outcome>> next();

private:
  struct Trial;
  static constexpr unsigned mostSeconds = 120; ///< for one graph
  static Result<Outcome> outcomeOf(Trial &trial);

  Check check;
  unsigned threads;
  std::vector<std::unique_ptr<Trial>> trials;
};

} // namespace fusion::fuzz
