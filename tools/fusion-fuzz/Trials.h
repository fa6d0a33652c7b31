// Graphs that are checked in other processes, several side by side.
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

/// A graph's text, and the seed that it is checked with.
struct GraphText {
  uint64_t seed;
  std::string text;
};

class Trials {
public:
  /// `threads`: for each process; FUSION_THREADS goes before.
  Trials(Check check, unsigned threads);
  ~Trials(); ///< ends what still runs

  /// Starts a process that checks these one after the other: they share what a process costs, such as a
  /// GPU's context. After one that fails or crashes the next have a new process.
  /// Errors: there is no place for the graphs' files, or no process (Environment).
  Status start(const std::vector<GraphText> &graphs);
  size_t running() const { return trials.size(); } ///< processes
  /// The graph that ends next, and what happened to it. One must be running. An error if it was not tried,
  /// or if there is no process for those after it.
  Result<std::pair<uint64_t, Outcome>> next();

private:
  struct Trial;
  static constexpr unsigned mostSeconds = 120; ///< for one graph
  Status launch(Trial &trial);
  Result<std::pair<uint64_t, Outcome>> finish(size_t which, const Outcome &outcome);

  Check check;
  unsigned threads;
  bool hasAnswered = false; ///< one of the graphs
  std::vector<std::unique_ptr<Trial>> trials;
};

} // namespace fusion::fuzz
