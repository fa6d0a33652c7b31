// Writes one kernel's text: indentation, parameters, sizes that may be known only at run time.
#pragma once

#include "codegen/Schedule.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/StringMap.h"

#include <map>

namespace fusion {

/// C++ spelling of an element type in emitted source: f16, bf16, f32, i64, bool, f8e4m3, …
llvm::StringRef sourceType(DType type);

class KernelWriter {
public:
  /// `inputs`: the views of the region's inputs, for a schedule that reads packed ones (readsPacked).
  explicit KernelWriter(const Region &region, llvm::ArrayRef<View> inputs = {}) : region(region), views(inputs) {}

  /// Appends a line at the current indentation; "}" lines leave a level, lines ending in "{" enter one.
  void line(const llvm::Twine &text);
  void blank();
  /// `// nn.rms_norm  model.layers.0.input_layernorm` above the code of an op.
  void comment(mlir::Operation *op);

  /// The pointer parameter of an input or output (made on first use): `in0`, `out1`; for a packed input
  /// `packed<u8>(in0)`, which is used like a pointer to its elements.
  std::string input(unsigned index);
  std::string output(unsigned index);
  /// The pointer parameter of this rank's Exchange.
  std::string exchange();
  /// An expression for a size: a literal if static, else an i64 parameter (one for each distinct Dim).
  std::string size(const Dim &dim);
  /// A line at file scope, in front of the kernel.
  void declare(const llvm::Twine &text);
  /// A constant table at file scope; returns its name.
  std::string table(DType type, llvm::ArrayRef<std::string> literals);
  /// A fresh local name with this stem: `x3`.
  std::string fresh(llvm::StringRef stem);

  /// Linear index expression `offset + Σ index[i] * stride[i]` for a view; zero strides and unit factors
  /// vanish.
  std::string address(const View &view, llvm::ArrayRef<std::string> index);
  /// Row-major linear index for a contiguous shape.
  std::string address(const DimShape &shape, llvm::ArrayRef<std::string> index);
  /// Lines that split `linear` into one variable per dim of `shape` (row-major); returns their names ("0" for
  /// size 1). `narrow`: `linear` is below 2^32, so that the divisions, slow in 64 bits, are done in 32.
  llvm::SmallVector<std::string> delinearize(const std::string &linear, const DimShape &shape,
                                             bool narrow = false);

  /// Assembles signature and body. The kernel is named `<schedule>_<hash of the text without comments>`, so
  /// that kernels that differ in comments only have one name.
  /// `residentBlocks`: how many blocks must fit on a multiprocessor; 0 leaves the registers to the compiler.
  /// `clusterBlocks`: how many blocks form a cluster.
  KernelDraft finish(llvm::StringRef schedule, uint32_t blockThreads, uint32_t residentBlocks = 0,
                     uint32_t clusterBlocks = 1);

private:
  const Region &region;
  llvm::ArrayRef<View> views;
  std::string body, tables;
  unsigned indent = 1;
  llvm::StringMap<unsigned> stems;
  /// For each input, output and run-time size that the text names: its parameter.
  std::map<unsigned, KernelPlan::Parameter> inputs, outputs;
  std::optional<KernelPlan::Parameter> exchanged;
  std::vector<std::pair<Dim, KernelPlan::Parameter>> sizes;
};

} // namespace fusion
