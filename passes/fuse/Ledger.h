// What fused, and for everything that did not, why.
#pragma once

#include "mlir/IR/Operation.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fusion {

struct Ledger {
  struct Site {
    std::string location;          ///< model.layers.0.input_layernorm
    std::vector<std::string> ops;  ///< nn.add, nn.rms_norm
    int64_t bytesSaved = 0;        ///< memory traffic, at the nominal sizes
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

  std::string model, target;
  std::map<std::string, Pattern> patterns;
  int64_t kernelsBefore = 0, kernelsAfter = 0;
  int64_t bytesBefore = 0, bytesAfter = 0;
  std::vector<Layer> layers;
  /// The sizes that stand for the symbolic dims in the byte counts.
  std::map<std::string, int64_t> nominal;

  std::string json() const;
  std::string markdown() const;
};

/// The inverse of json(); what is missing or malformed stays empty.
Ledger ledgerFromJson(llvm::StringRef text);

} // namespace fusion
