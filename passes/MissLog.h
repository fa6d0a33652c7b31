// Why a pattern that began to match did not fire.
#pragma once

#include "mlir/IR/Operation.h"

#include <string>
#include <vector>

namespace fusion {

struct Miss {
  std::string pattern;  ///< such as "rms_norm"
  std::string location; ///< module path of the root, as locationName gives it
  std::string reason;   ///< names the operand or guard that failed
};

/// A decomposed spelling that became a named op.
struct Raised {
  std::string op;       ///< such as "rms_norm"
  std::string location; ///< of the last op replaced
  std::string root;     ///< that op's name: nn.mul
  std::string assumes;  ///< what it takes for granted, and what changes in the last bits; empty: nothing
};

/// Collects misses in the order noted: one of a root and pattern, with the last reason, and none of a root
/// that was raised in the end. Used from one thread.
class MissLog {
public:
  void note(mlir::Operation *root, llvm::StringRef pattern, std::string reason);
  std::vector<Miss> misses() const;
  void noteRaised(mlir::Operation *root, llvm::StringRef op, std::string assumes);
  const std::vector<Raised> &raised() const { return raises; }

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
  struct Note {
    mlir::Operation *root; ///< may be gone; its address may have come back with another op's location
    Miss miss;
    bool raised = false;
  };
  Note *find(mlir::Operation *root, llvm::StringRef pattern);

  std::vector<Note> notes;
  std::vector<Raised> raises;
};

/// Notes a near miss in the log in scope, if any, and as an MLIR "missed" remark of category "raise".
void noteMiss(mlir::Operation *root, llvm::StringRef pattern, std::string reason);

/// Notes that `root` is about to be replaced by an op `op`, in the log in scope and as a "passed" remark.
void noteRaised(mlir::Operation *root, llvm::StringRef op, std::string assumes = {});

} // namespace fusion
