// The programs of one graph: for facts that only a run knows, a program that was compiled for them.
#pragma once

#include "api/Fusion.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>

namespace fusion {

class ExecutionBackend;
struct GraphSource;

/// Most runs share one program. A run in which a symbol is 1 that the graph takes for equal to a dim that is
/// not 1 gets the program of the graph in which that symbol is known to be 1. Each is compiled when the first
/// such run comes, which a note on stderr says, and kept. Not of a graph that was given as text, of a bundle,
/// where there are several ranks, and where rows are to be the same in every run: they have the one program.
/// Thread-safe.
class Variants {
public:
  /// A program keeps all that it has made, so it makes no more than these.
  static constexpr size_t most = 8;

  /// Compiles the one of `options.largestRun`, or the one that most runs share.
  static Result<std::unique_ptr<Variants>> create(const Graph &graph, const CompileOptions &options);
  /// One program, loaded already, for all runs.
  explicit Variants(std::unique_ptr<ExecutionBackend> loaded, Report report);
  ~Variants();

  class Chosen;
  /// The one for these inputs, compiled now if it is the first of its kind, once the results that others
  /// still compute are there. `stream`: that the run will be queued on; nothing: the program's own. Errors: an
  /// index out of range, a variant too many, one that the machine cannot compile or hold.
  Result<Chosen> choose(const NamedTensors &inputs, std::optional<void *> stream = std::nullopt);
  /// Copies on the host, after everything queued so far.
  Result<NamedTensors> fetch(const NamedTensors &tensors);

  /// The one that create() compiled.
  ExecutionBackend &first() const;
  const Report &report() const;
  /// Of all together.
  RunStatistics statistics() const;

private:
  using Ones = std::set<std::string>; ///< symbols that are 1
  struct Variant;

  Variants(const CompileOptions &options, bool mayMeasure);
  /// The one for these inputs, loaded or not. Where they fit none that could be made, the shared one, which
  /// has the words for what is wrong.
  Result<Variant *> find(const NamedTensors &inputs);
  /// Null where there can be no such variant.
  Result<Variant *> planned(const Ones &ones, const std::string &what);
  Result<std::unique_ptr<Variant>> plan(const Graph &graph) const;
  Status load(Variant &variant);
  /// Until what others than `variant` have queued elsewhere than on `queue` is done.
  Status waitForOthers(const Variant *variant, void *queue);

  CompileOptions options;
  const bool mayMeasure = false;
  std::shared_ptr<const GraphSource> source;       ///< null: there is one program
  std::unique_ptr<ExecutionBackend> backend;       ///< until the first takes it
  std::map<Ones, std::unique_ptr<Variant>> all;    ///< null: there can be none
  Variant *shared = nullptr, *front = nullptr;     ///< that of no ones; the first
  std::atomic<Variant *> last = nullptr;           ///< that ran, or the first
  mutable std::shared_mutex access;                ///< to `all`
  std::mutex making;                               ///< one at a time
  std::mutex queueing;                             ///< access to …
  std::vector<std::pair<Variant *, void *>> queued; ///< … what may still run, and the stream it is on
};

class Variants::Chosen {
public:
  ExecutionBackend *operator->() const;
  /// Says that its run has been queued and may not be done.
  void isQueued() const;

private:
  friend class Variants;
  Chosen(Variants &owner, Variant &variant, void *queue) : owner(owner), variant(variant), queue(queue) {}
  Variants &owner;
  Variant &variant;
  void *queue;
};

} // namespace fusion
