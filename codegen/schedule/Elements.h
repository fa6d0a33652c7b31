// Code for single elements of a region's values: what an element depends on is recomputed through index
// functions.
#pragma once

#include "codegen/KernelWriter.h"

#include <map>

namespace fusion {

/// One i64 per dim: the name of a local or an integer literal.
using ElementIndex = llvm::SmallVector<std::string>;

/// Registers' literals of a constant's elements; one for a splat.
std::vector<std::string> constantLiterals(nn::ConstantOp op);

class ElementCode {
public:
  ElementCode(const Region &region, const KernelContext &context, KernelWriter &writer)
      : region(region), context(context), writer(writer) {}

  /// Writes what is needed and returns the name or literal that holds the element in its register type.
  /// Repeated requests for one element give the same name.
  std::string value(mlir::Value value, const ElementIndex &index);

  /// What is written between these two is forgotten at the end: it stands in a block of its own.
  void enterBlock() { known.emplace_back(); }
  void leaveBlock() { known.pop_back(); }

  /// Why an op has no such code, or nothing.
  static std::optional<std::string> refuses(mlir::Operation *op, const KernelContext &context);

private:
  std::string compute(mlir::Operation *op, const ElementIndex &index);
  std::string scalar(mlir::Operation *op, const ElementIndex &index);
  std::string constant(mlir::Operation *op, const ElementIndex &index);
  std::string iota(mlir::Operation *op, const ElementIndex &index);
  ElementIndex throughReshape(mlir::Operation *op, const ElementIndex &index);
  ElementIndex throughSlice(mlir::Operation *op, const ElementIndex &index);
  std::string concat(mlir::Operation *op, const ElementIndex &index);
  std::string pad(mlir::Operation *op, const ElementIndex &index);
  std::string trilu(mlir::Operation *op, const ElementIndex &index);
  std::string gather(mlir::Operation *op, const ElementIndex &index);
  std::string gatherElements(mlir::Operation *op, const ElementIndex &index);
  std::string gatherNd(mlir::Operation *op, const ElementIndex &index);
  std::string rope(mlir::Operation *op, const ElementIndex &index);
  std::string quantize(mlir::Operation *op, const ElementIndex &index);
  std::string dequantize(mlir::Operation *op, const ElementIndex &index);

  /// The operand's element under numpy broadcasting of its shape to a result indexed by `index`.
  std::string broadcastOperand(mlir::Value operand, const ElementIndex &index);
  std::string scaleOperand(mlir::Operation *op, unsigned operand, const ElementIndex &index);
  /// A place along a dim of size `count` from an integer element.
  std::string place(mlir::Value indices, const ElementIndex &index, const Dim &count);
  /// `const TYPE stemN = expression;`
  std::string local(llvm::StringRef type, llvm::StringRef stem, const llvm::Twine &expression);
  std::string add(const std::string &a, const std::string &b);
  std::string multiply(const std::string &a, const std::string &b);
  /// A variable that `then` or `otherwise` sets, depending on `condition`; both run in blocks of their own.
  std::string choose(llvm::StringRef type, llvm::StringRef stem, const std::string &condition,
                     llvm::function_ref<std::string()> then, llvm::function_ref<std::string()> otherwise);

  const Region &region;
  const KernelContext &context;
  KernelWriter &writer;
  /// A value (or none) and an index or expression, with the name that stands for it; one map for each open
  /// block.
  using Key = std::pair<const void *, std::string>;
  using Known = std::map<Key, std::string>;
  const std::string *find(const Key &key) const;
  std::vector<Known> known = std::vector<Known>(1);
  llvm::DenseMap<mlir::Operation *, std::string> tables;
};

} // namespace fusion
