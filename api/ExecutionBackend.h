// Where programs run: the one interface of the reference, the emulation, one GPU and several ranks.
#pragma once

#include "api/Fusion.h"
#include "codegen/plan/ProgramPlan.h"
#include "ir/base/BindSymbols.h"
#include "runtime/Bundle.h"
#include "runtime/collective/Shards.h"

namespace fusion {

class Compilation;

/// Made for one program: load() or open() once, then run. What a backend cannot do is an error of one line.
class ExecutionBackend {
public:
  /// For `ranks` ranks, on the device and with the cache of `options`, by whose leave processes are ranks.
  /// Errors: variables of a launcher that contradict each other, a rank that is none (BadInput).
  static Result<std::unique_ptr<ExecutionBackend>> create(const CompileOptions &options, int ranks);
  virtual ~ExecutionBackend() = default;

  /// Why no measurement can choose between fusions for what runs here; nothing if it can.
  virtual std::optional<Error> whyNotMeasured() const = 0;
  /// Dims that runs of what load() takes from `compilation` need equal.
  virtual Result<std::vector<DimEquality>> equalities(Compilation &compilation) const = 0;
  /// Takes what it runs from `compilation`: the graph or its plan.
  virtual Status load(Compilation &compilation) = 0;
  /// One like it that has nothing loaded yet, for a variant of the graph. Null where there can be only one.
  virtual std::unique_ptr<ExecutionBackend> another() const { return nullptr; }
  /// Before load(): all that another() makes from here on have one copy of weights that are the same.
  virtual void shareWeights() {}
  /// The kernels of the bundle in `folder`, which are compiled already.
  virtual Status open(const std::string &folder, Bundle bundle) = 0;

  // As in Program.
  virtual Result<NamedTensors> run(const NamedTensors &inputs, Results where) = 0;
  virtual Result<NamedTensors> enqueue(const NamedTensors &inputs, void *stream) = 0;
  virtual Result<NamedTensors> fetch(const NamedTensors &tensors) = 0;
  virtual Result<NamedTensors> place(const NamedTensors &tensors) { return tensors; }
  /// Waits until all that was queued is done.
  virtual Status synchronize() { return {}; }
  virtual Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold) = 0;
  virtual Result<Profile> profile(const NamedTensors &inputs) = 0;
  virtual RunStatistics statistics() const = 0;
  virtual std::string device() const = 0;
  virtual int rank() const { return 0; }

  /// What it runs; null where there are no kernels.
  virtual const ProgramPlan *plan() const = 0;
  /// How the graph's inputs and outputs lie over the ranks.
  virtual std::vector<PortShard> inputs() const = 0;
  virtual std::vector<PortShard> outputs() const = 0;
};

/// One class each; see ExecutionBackend::create.
std::unique_ptr<ExecutionBackend> makeReferenceExecution(int ranks);

} // namespace fusion
