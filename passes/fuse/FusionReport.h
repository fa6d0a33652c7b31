// What fused, and for everything that did not, why.
#pragma once

#include "ir/base/Layers.h"

#include "mlir/IR/Operation.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fusion {

struct FusionReport {
  struct Site {
    std::string location;            ///< model.layers.0.input_layernorm
    std::vector<std::string> ops;    ///< nn.add, nn.rms_norm
    int64_t bytesSaved = 0;          ///< memory traffic, at the nominal sizes
    std::string assumes = {};        ///< what was taken for granted; empty: nothing
    std::optional<size_t> node = {}; ///< the group, in `after`
    /// Microseconds of the one kernel, and of the kernels of its ops by themselves; 0: not measured.
    double fusedTime = 0, unfusedTime = 0;
  };
  struct Miss {
    std::string location;
    std::string reason; ///< names the operand or the guard
    /// What the ops that were found would save as one kernel, beyond what the groups save that they are in
    /// now. 0: nothing, or one op alone was found.
    int64_t bytes = 0;
    std::optional<size_t> node = {}; ///< the root, in `before`
  };
  struct Pattern {
    std::vector<Site> fired;
    std::vector<Miss> missed;
    bool applies = false; ///< it fired, or two ops at least of what it wants stand together somewhere
  };
  struct Layer {
    std::string name;
    int64_t kernels = 0;
  };

  /// One op of the graph, or one group of them.
  struct Node {
    std::vector<std::string> ops;     ///< nn.rms_norm, or the ops of a group
    std::string location, result;     ///< `result`: "f16 [batch, 64]", the first one's
    int64_t bytes = 0;                ///< that a kernel of its own moves; 0 for views
    std::string fusion;               ///< the group it is in, or is; empty: none
    std::optional<size_t> group = {}; ///< of a node of `before` that is in a group: that one in `after`
    std::vector<size_t> inputs;       ///< nodes that make what it reads, without repeats
  };
  /// Which parts of the graph repeat.
  struct Structure {
    std::vector<std::string> layers;
    std::vector<size_t> alike; ///< for each layer the first one like it, in both graphs
    std::vector<Fold> folds;
    std::vector<std::optional<size_t>> before, after; ///< the layer of each node
  };

  std::string model, target;
  /// What the target has and no kernel uses yet: "tcgen05", "TMA".
  std::vector<std::string> unusedFeatures;
  /// Why no kernels of the target compute the graph: the op and each schedule's reason. Empty where they do,
  /// or where no plan was requested.
  std::string noPlan;
  std::map<std::string, Pattern> patterns;
  /// Decomposed spellings that became named ops, by the op's name: rms_norm, gelu, rope, attention. Nothing
  /// is saved by a raise itself.
  std::map<std::string, Pattern> raises;
  int64_t kernelsBefore = 0, kernelsAfter = 0;
  int64_t bytesBefore = 0, bytesAfter = 0;
  std::vector<Layer> layers;
  /// How the choice among candidates was made: "modelled", or "measured on NVIDIA H200 (sm_90a)".
  std::string profit = "modelled";
  /// Candidates that were modelled although others were measured, and why.
  std::vector<Miss> unmeasured;
  /// The sizes that stand for the symbolic dims in the byte counts.
  std::map<std::string, int64_t> nominal;
  /// The graph in block order before and after fusion, constants and weights left out.
  std::vector<Node> before, after;
  Structure structure;

  /// Writes the entries of an array.
  using WriteEntries = llvm::function_ref<void(llvm::json::OStream &)>;
  /// See docs/report.schema.json. A plan has the two arrays.
  std::string json(WriteEntries kernelSources = {}, WriteEntries launches = {}) const;
  std::string markdown() const;
};

/// Of json(): counts up when a reader of the old form would misread the new one; keys may be added without.
inline constexpr int64_t reportVersion = 1;

/// The inverse of json(), but for nodes' ops, results, bytes and inputs; what is missing or malformed stays
/// empty.
FusionReport reportFromJson(llvm::StringRef text);

} // namespace fusion
