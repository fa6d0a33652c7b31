// Writes an attention kernel around a template of codegen/device/attention_*.cuh: its Config and its Body,
// which attention_rows.cuh describes.
#pragma once

#include "codegen/body/KernelSource.h"
#include "codegen/schedule/AttentionProblem.h"

namespace fusion::attention {

/// How a kernel is launched.
struct Launch {
  int64_t tileRows = 0; ///< rows of a key/value head that a block takes, or the blocks of a cluster together
  int64_t warps = 0;    ///< of a block
  int64_t residentBlocks = 1; ///< on a multiprocessor: what the registers of a thread are limited for
  int64_t clusterBlocks = 1;
  int64_t dynamicSharedBytes = 0;
  std::string arguments = {}; ///< of the template after Body
  int64_t mostBlocks = 0;     ///< they stay and take several tiles each; 0: a block for each tile
  int64_t tileBlocks = 1;     ///< of a ragged problem: that share the sequences of a tile of tokens
  int64_t clusters = 1;       ///< that share the keys of a tile of rows
};

/// What a template calls of Body beyond what all do.
struct Needs {
  bool batch = false, columnStrides = false, score = true;
  bool operands = true; ///< queries, keys, values, and which of the keys count
};

/// The kernel that instantiates attention_`variant`, which stands in attention_`variant`.cuh.
class KernelBuilder {
public:
  KernelBuilder(const Problem &problem, llvm::StringRef variant, const Needs &needs);

  /// A member of Config that only this template has.
  template <class T>
  void config(std::string_view name, T value) {
    source.config.set(name, value);
  }
  void config(std::string_view name, double value); ///< an f32
  /// A comment in front of the kernel.
  void note(const std::string &text) { source.declare("// " + text + "\n"); }
  /// A tensor map of an operand: the parameter's name.
  std::string tensorMap(mlir::Value operand, TensorMapArgument map) {
    return source.tensorMap(inputOf(operand), std::move(map));
  }
  /// Memory of i32 that the kernels of the region share: the parameter's name.
  std::string scratch(const Dim &elements, bool written) { return source.scratch(elements, written); }
  /// Whether no kernel that may still run writes what limits the keys; last_key() and first_key() then read
  /// it past the L1.
  bool knowsBoundsEarly() const;
  KernelDraft finish(const Launch &launch);

private:
  void writeConfig();
  void writeOperands();
  void writeQueries();
  void writeRows(const char *name, const Stored &stored);
  void writeNewRows(const char *name, const Stored &stored);
  void writeTable();
  void writeMask();
  void writeBound(const char *name, const nn::KeyBound &bound, const char *exclusion);
  std::string rowOf(mlir::Value operand);
  void writeSink();
  void writeScore();
  void writeStore();
  /// `DEVICE i64 name() const`
  void count(const std::string &name, const Dim &dim);
  unsigned inputOf(mlir::Value operand) const;
  std::string input(mlir::Value operand) { return source.body.input(inputOf(operand)); }
  /// ` + index * stride`, or nothing for zero.
  std::string term(const std::string &index, const Dim &stride);
  std::string offset(const Dim &dim) { return dim == Dim(0) ? "" : " + " + source.body.size(dim); }

  const Problem &problem;
  nn::AttentionOp op;
  const std::string variant;
  const Needs needs;
  body::KernelSource source;
};

} // namespace fusion::attention
