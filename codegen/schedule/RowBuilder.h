// Builds row::Graph from a region; used by RowGraph.cpp and RowOps.cpp only.
#pragma once

#include "codegen/InputView.h"
#include "codegen/schedule/RowNodes.h"

#include <map>

namespace fusion::row {

/// The indices of a value: leading dims as in Graph::outerDims[outer], then `width` columns
/// unless the row dim was reduced away (`dropped`). A value of a smaller shape broadcasts into it.
struct Space {
  unsigned outer = 0;
  Dim width = 1; ///< the last dim: the row, the head, or the entries of a rotary table
  bool dropped = false;
  unsigned form = 0; ///< into Builder's forms
};

/// How a value's dims are made of the row space's: the leading dims, then the row, or heads and the columns
/// of a head. The last stays the last.
struct Form {
  bool heads = false;
  llvm::SmallVector<unsigned> order; ///< for each dim of the value, which of those it is; empty: as they are
  friend bool operator==(const Form &a, const Form &b) { return a.heads == b.heads && a.order == b.order; }
};

class Builder : NodeMaker {
public:
  Builder(const Region &region, const KernelContext &context) : region(region), context(context) {}
  std::variant<Graph, std::string> build();

private:
  // RowGraph.cpp
  bool findRowSpace();
  std::optional<Graph> buildPermuted();
  bool addOutput(unsigned index);
  bool isDropped(mlir::Value value);
  Node *value(mlir::Value value, Space space);
  Node *scatteredRows(mlir::Value rows, size_t rank, const Space &space);
  Node *load(unsigned input, const View &view, const Space &space, llvm::ArrayRef<int64_t> divisors = {});
  Node *gathered(nn::GatherOp op, const Space &space);
  Node *reshaped(mlir::Operation *op, const Space &space);
  std::optional<std::pair<unsigned, View>> viewOf(mlir::Value value) const {
    return inputView(region, context, value);
  }
  // RowAddend.cpp
  /// If `value` is a sum over ranks, or a reshape of one: where the addend lies, with the dims of `value`.
  std::optional<std::pair<unsigned, View>> addendOf(mlir::Value value);
  Node *sumOverRanks(mlir::Value value, unsigned input, const View &view, const Space &space);
  // RowForms.cpp
  unsigned form(Form form);
  /// The form of a computed value: that of the reshapes and transposes between it and the row's values.
  unsigned formOf(mlir::Value value);
  /// The dims of the row space of a value of `shape`: leading dims, then its columns.
  DimShape rowDims(llvm::ArrayRef<Dim> shape, unsigned form) const;
  unsigned columnDims(unsigned form) const { return forms[form].heads ? 2 : 1; }
  /// Whether the reshape splits the row into heads.
  bool splitsHeads(mlir::Operation *reshape);
  Node *transposed(nn::TransposeOp op, const Space &space);
  /// The strides of a view in the order of the row space, and the row's as one dim where heads follow each
  /// other.
  void arrange(Access &access, unsigned form) const;

  // RowOps.cpp
  Node *lower(mlir::Operation *op, unsigned result, const Space &space);
  Node *lowerReduce(nn::ReduceOp op, Node *x);
  Node *lowerSoftmax(nn::SoftmaxOp op, Node *x);
  Node *lowerRmsNorm(nn::RmsNormOp op, const Space &space);
  Node *lowerLayerNorm(nn::LayerNormOp op, const Space &space);
  Node *lowerRope(nn::RopeOp op, const Space &space);
  Node *inverseRoot(mlir::Operation *op, Node *squares, const llvm::APFloat &eps);
  Node *quotient(mlir::Operation *op, llvm::ArrayRef<Node *> operands, Formula formula);
  Node *lowerQuantize(mlir::Operation *op, const Space &space);
  Node *lowerDynamicQuantize(nn::DynamicQuantizeOp op, unsigned result, const Space &space);
  Node *quantisationOperand(mlir::Value operand, mlir::Value like, int64_t axis, int64_t blockSize,
                            const Space &space);

  const Region &region;
  const KernelContext &context;
  struct Key {
    void *value;
    unsigned outer;
    bool dropped;
    Dim width;
    unsigned form;
    friend bool operator<(const Key &a, const Key &b) {
      return std::tie(a.value, a.outer, a.dropped, a.width, a.form) <
             std::tie(b.value, b.outer, b.dropped, b.width, b.form);
    }
  };
  std::map<Key, Node *> known;
  std::vector<Form> forms = std::vector<Form>(1);
};

} // namespace fusion::row
