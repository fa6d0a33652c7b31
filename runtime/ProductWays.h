// Which matrix products of a plan a library computes: where it is faster on this device.
#pragma once

#include "runtime/Executor.h"
#include "runtime/Measure.h"

#include <map>
#include <string>
#include <vector>

namespace fusion {

/// What FUSION_MATMUL names (kernel, library), for tests and comparisons; an error for anything else.
Result<std::optional<ProductWay>> forcedWay();

/// Decisions hold for as many rows, and other sizes, as there are up to a power of two: each is made on the first run with
/// such sizes, by timing both ways on buffers of their own, and kept on disk. Not thread-safe; the plan must outlive it.
class ProductWays {
public:
  ProductWays(const ProgramPlan &plan, const ExecutorOptions &options);
  bool empty() const { return groups.empty(); }

  /// For these sizes. Ranks decide together, as the first one finds. Errors: FUSION_MATMUL asks for what is not there.
  Status decide(const SymbolValues &symbols, bool mayMeasure, const std::string &device);
  /// As decided last, for the products whose first launch is `begin`.
  bool byLibrary(size_t begin) const;
  /// For people: how many of the products a library computed in the run decided last and why; empty if no library could.
  std::string text() const;

  /// For tests: what kernels are timed on.
  void timeOn(BackendFactory factory) { makeBackend = std::move(factory); }

private:
  static constexpr size_t dims = 4; ///< m, n, k, and the number of matrices
  struct Group {
    size_t begin = 0, end = 0;
    uint32_t kind = 0;             ///< groups of one kind have the same launches, but for buffers
    std::array<uint32_t, dims> sizes = {};  ///< into `distinct`
    std::optional<SizeRange> when;
    uint32_t whenSize = 0;
    bool byLibrary = false;
  };
  /// A kind of group, and the sizes up to a power of two.
  using Key = std::pair<uint32_t, std::array<int, dims>>;
  struct Pending {
    Key key;
    size_t group;
  };

  uint32_t place(const Dim &dim);
  /// Whether the library may compute the group at these sizes, and under which key it is decided.
  std::optional<Key> keyOf(const Group &group, const std::vector<int64_t> &values) const;
  Status settle(std::vector<Pending> pending, const SymbolValues &symbols, bool mayMeasure, const std::string &device);
  void measure(std::vector<Pending> pending, const SymbolValues &symbols, const std::string &device);
  Status shareDecisions(const std::vector<Pending> &pending);

  const ProgramPlan &plan;
  const ExecutorOptions &options;
  BackendFactory makeBackend;
  std::vector<Group> groups;
  std::vector<Dim> distinct;
  std::map<Key, bool> decided;
  size_t candidates = 0, taken = 0; ///< of the groups, in the decision made last
  std::string why;                  ///< the library computes nothing, or by which one it does
};

} // namespace fusion
