// Why a pattern that began to match did not fire.
#pragma once

#include "mlir/IR/Operation.h"

#include <set>
#include <string>
#include <vector>

namespace fusion {

struct Miss {
  std::string pattern;  ///< such as "rms_norm"
  std::string location; ///< module path of the root, as locationName gives it
  std::string reason;   ///< names the operand or guard that failed
};

/// Collects misses in the order noted; a repeated one is kept once. Used from one thread.
class MissLog {
public:
  void note(mlir::Operation *root, llvm::StringRef pattern, std::string reason);
  const std::vector<Miss> &misses() const { return notes; }

  /// While it lives, noteMiss on this thread goes to `log`. Scopes nest.
  class Scope {
  public:
    explicit Scope(MissLog &log);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    MissLog *outer;
  };

private:
  std::vector<Miss> notes;
  std::set<std::string> seen;
};

/// Notes a near miss in the log in scope, if any, and as an MLIR "missed" remark of category "raise".
void noteMiss(mlir::Operation *root, llvm::StringRef pattern, std::string reason);

} // namespace fusion
