// What fused, and for everything that did not, why.
#pragma once

#include "mlir/IR/Operation.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fusion {

struct FusionReport {
  struct Site {
    std::string location;          ///< model.layers.0.input_layernorm
    std::vector<std::string> ops;  ///< nn.add, nn.rms_norm
    int64_t bytesSaved = 0;        ///< memory traffic, at the nominal sizes
    std::string assumes = {};      ///< what was taken for granted; empty: nothing
  };
  struct Miss {
    std::string location;
    std::string reason;            ///< names the operand or the guard
  };
  struct Pattern {
    std::vector<Site> fired;
    std::vector<Miss> missed;
  };
  struct Layer {
    std::string name;
    int64_t kernels = 0;
  };

  /// One op of the graph, or one group of them.
  struct Node {
    std::string label;                ///< nn.rms_norm, or the ops of a group
    std::string location, layer;
    std::string fusion;               ///< the group it is in, or is; empty: none
    std::vector<std::string> missed;  ///< "add_norm: reason"
    std::vector<size_t> inputs;       ///< nodes that make what it reads, without repeats
  };

  std::string model, target;
  /// What the target has and no kernel uses yet: "tcgen05", "TMA".
  std::vector<std::string> unusedFeatures;
  /// Why no kernels of the target compute the graph: the op and each schedule's reason. Empty where they do, or where
  /// nobody asked for a plan.
  std::string noPlan;
  std::map<std::string, Pattern> patterns;
  /// Decomposed spellings that became named ops, by the op's name: rms_norm, gelu, rope, attention. Nothing is saved by
  /// a raise itself.
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
  /// The graph in block order before and after fusion, constants and weights left out. For drawings: not part of json().
  std::vector<Node> before, after;

  std::string json() const;
  std::string markdown() const;
};

/// The inverse of json(); what is missing or malformed stays empty.
FusionReport reportFromJson(llvm::StringRef text);

} // namespace fusion
