// Runs the graph on the reference, on the host: its ops one by one, of several ranks each in a thread.
#include "api/Compilation.h"
#include "api/ExecutionBackend.h"
#include "api/RankReference.h"
#include "codegen/ChooseSchedule.h"
#include "ir/dialect/SymbolicShapes.h"

#include <chrono>

namespace fusion {

namespace {
class ReferenceExecution : public ExecutionBackend {
public:
  explicit ReferenceExecution(int ranks, std::shared_ptr<WeightFiles> weights = nullptr)
      : ranks(ranks), weights(std::move(weights)) {}

  std::optional<Error> whyNotMeasured() const override {
    return environment("fusions cannot be measured: the program does not run on a GPU");
  }

  Result<std::vector<DimEquality>> equalities(Compilation &compilation) const override {
    auto lowered = compilation.lowered();
    if (!lowered)
      return lowered.error();
    auto shapes = nn::SymbolicShapes::compute(lowered->entry);
    if (failed(shapes))
      return badInput("shapes do not fit together");
    std::vector<DimEquality> equalities;
    for (const nn::SymbolicShapes::Equality &equality : shapes->equalities())
      equalities.push_back({equality.left, equality.right, describeOp(equality.op)});
    return equalities;
  }

  std::unique_ptr<ExecutionBackend> another() const override {
    return ranks > 1 ? nullptr : std::make_unique<ReferenceExecution>(ranks, weights);
  }

  Status load(Compilation &compilation) override {
    auto lowered = compilation.lowered();
    if (!lowered)
      return lowered.error();
    graph = std::move(*lowered);
    if (ranks > 1) {
      auto made = RankReference::create(graph.entry, graph.weightFolder);
      if (!made)
        return made.error();
      group.emplace(std::move(*made));
      return {};
    }
    if (!weights)
      weights = std::make_shared<WeightFiles>(graph.weightFolder);
    auto made = Interpreter::create(graph.entry, weights, Interpreter::Options());
    if (!made)
      return made.error();
    interpreter.emplace(std::move(*made));
    return {};
  }

  Status open(const std::string &folder, Bundle) override {
    return environment(folder + ": a bundle holds kernels only; run it with a GPU or with device emulate");
  }

  Result<NamedTensors> run(const NamedTensors &inputs, Results) override {
    return group ? group->run(inputs) : interpreter->run(inputs);
  }
  Result<NamedTensors> enqueue(const NamedTensors &inputs, void *) override {
    return run(inputs, Results::Host);
  }

  Result<NamedTensors> fetch(const NamedTensors &tensors) override {
    NamedTensors copies;
    for (const auto &[name, tensor] : tensors)
      copies[name] = tensor.device().kind == Device::Kind::Host ? tensor.dense() : tensor;
    return copies;
  }

  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool) override {
    std::vector<double> times;
    for (int i = -3; i < iterations; ++i) {
      auto start = std::chrono::steady_clock::now();
      if (auto outputs = run(inputs, Results::Host); !outputs)
        return outputs.error();
      std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
      if (i >= 0)
        times.push_back(taken.count());
    }
    return times;
  }

  Result<Profile> profile(const NamedTensors &) override {
    return badInput("the CPU reference has no kernels to profile; use a GPU or emulation");
  }
  RunStatistics statistics() const override { return {}; }
  std::string device() const override { return "cpu reference"; }
  const ProgramPlan *plan() const override { return nullptr; }
  std::vector<PortShard> inputs() const override {
    return group ? group->inputs() : std::vector<PortShard>();
  }
  std::vector<PortShard> outputs() const override {
    return group ? group->outputs() : std::vector<PortShard>();
  }

private:
  const int ranks;
  std::shared_ptr<WeightFiles> weights; ///< of all variants
  LoweredGraph graph;                   ///< before what points into it
  std::optional<RankReference> group;
  std::optional<Interpreter> interpreter;
};
} // namespace

std::unique_ptr<ExecutionBackend> makeReferenceExecution(int ranks) {
  return std::make_unique<ReferenceExecution>(ranks);
}

} // namespace fusion
