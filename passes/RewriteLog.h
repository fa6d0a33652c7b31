// What the rewrites of normalise and raise replaced and by what, kept so that both can be run and compared.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <set>
#include <string>
#include <vector>

namespace fusion {

class ShapeTable;

struct Rewrite {
  std::string name;     ///< the op that was made, "rms_norm", or "nn.pow rewritten" where none was raised
  std::string location; ///< of the op that was replaced
  bool raises = false;  ///< into an op that may round less often than the ops it replaces
  /// Functions @before and @after of the same arguments and results. The arguments are what the new ops read,
  /// with `nn.dims`; a last one, which is not read, has one dim for each symbol.
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// Collects what a ShapeTable hears of while a Scope is alive. Equal rewrites, as the layers of a model have,
/// are kept once. Used from one thread.
class RewriteLog {
public:
  const std::vector<Rewrite> &rewrites() const { return kept; }

  class Scope {
  public:
    explicit Scope(RewriteLog &log);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    RewriteLog *outer;
  };

private:
  friend void recordRewrite(mlir::Operation *, mlir::ValueRange, ShapeTable &);
  void record(mlir::Operation *before, mlir::ValueRange after, ShapeTable &shapes);

  std::vector<Rewrite> kept;
  std::set<std::string> seen;
};

/// Records, in the log in scope if any, that the results of `before` are about to be replaced by `after`,
/// whose producers exist already.
void recordRewrite(mlir::Operation *before, mlir::ValueRange after, ShapeTable &shapes);

} // namespace fusion
