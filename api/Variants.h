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

/// Most runs share one program. A run in which a symbol is 1 that the graph takes for equal to a dim that is
/// not 1 gets the program of the graph in which that symbol is known to be 1. Of a graph of which an input
/// decides which branch runs, each branch has programs of its own. Each is compiled when the first such run
/// comes, which a note on stderr says, and kept.
///
/// None of the kind that sizes choose are made of a graph that was given as text, of a bundle, where there
/// are several ranks, and where rows are to be the same in every run. Thread-safe.
class Variants {
public:
  /// All that are made are kept, so that sizes choose between no more than these and the shared one.
  static constexpr size_t most = 8;

  /// Compiles the one of `options.largestRun`, or the one that most runs share.
  static Result<std::unique_ptr<Variants>> create(const Graph &graph, const CompileOptions &options);
  /// One program, loaded already, for all runs.
  explicit Variants(std::unique_ptr<ExecutionBackend> loaded, Report report);
  ~Variants();

  class Chosen;
  /// The one for these inputs, compiled now if it is the first of its kind, once the results that others
  /// still compute are there. `stream`: that the run will be queued on; nothing: the program's own. `inputs`
  /// outlive what is returned. Errors: an index out of range, a variant too many, one that the machine cannot
  /// compile or hold.
  Result<Chosen> choose(const NamedTensors &inputs, std::optional<void *> stream = std::nullopt);
  /// Copies on the host, after everything queued so far.
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  /// Copies where runs read them, but of inputs that choose() looks into.
  Result<NamedTensors> place(const NamedTensors &tensors);

  /// The one that create() compiled.
  ExecutionBackend &first() const;
  const Report &report() const;
  /// Of all together.
  RunStatistics statistics() const;

private:
  using Ones = std::set<std::string>; ///< symbols that are 1
  struct Variant;
  struct Family;
  struct Choice;

  Variants(const CompileOptions &options, bool mayMeasure);
  static std::unique_ptr<Choice> choiceOf(const Graph &graph, const std::string &what);
  static bool decides(const Choice &at, const std::string &input);
  /// Those of the branch that the inputs decide for; `rest` gets the inputs without those that do, if there
  /// are any.
  Result<Family *> familyOf(const NamedTensors &inputs, std::optional<NamedTensors> &rest, bool isOnStream);
  /// The one for these inputs, loaded or not. Where they fit none that could be made, the shared one, which
  /// has the words for what is wrong.
  Result<Variant *> find(Family &family, const NamedTensors &inputs);
  Result<Variant *> sharedOf(Family &family);
  /// Null where there can be no such variant.
  Result<Variant *> planned(Family &family, const Ones &ones, const std::string &what);
  Result<std::unique_ptr<Variant>> plan(const Graph &graph, const std::string &what) const;
  Status load(Variant &variant);
  /// Until what others than `variant` have queued elsewhere than on `queue` is done.
  Status waitForOthers(const Variant *variant, void *queue);

  CompileOptions options;
  const bool mayMeasure = false;
  std::unique_ptr<Choice> choice;
  std::unique_ptr<ExecutionBackend> backend;        ///< until the first takes it
  Variant *front = nullptr;                         ///< the first
  std::atomic<Variant *> last = nullptr;            ///< that ran, or the first
  std::mutex making;                                ///< one at a time
  mutable std::shared_mutex access;                 ///< to families, and to …
  std::vector<Variant *> loaded;                    ///< … all that can run
  std::mutex queueing;                              ///< access to …
  std::vector<std::pair<Variant *, void *>> queued; ///< … what may still run, and the stream it is on
};

class Variants::Chosen {
public:
  ExecutionBackend *operator->() const;
  /// What it runs on: the inputs, but for those that decided for it.
  const NamedTensors &inputs() const { return rest ? *rest : given; }
  /// Says that its run has been queued and may not be done.
  void isQueued() const;

private:
  friend class Variants;
  Chosen(Variants &owner, Variant &variant, void *queue, const NamedTensors &given,
         std::optional<NamedTensors> rest)
      : owner(owner), variant(variant), queue(queue), given(given), rest(std::move(rest)) {}
  Variants &owner;
  Variant &variant;
  void *queue;
  const NamedTensors &given;
  std::optional<NamedTensors> rest;
};

} // namespace fusion
