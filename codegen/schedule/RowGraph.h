// What a row kernel computes, as a graph of scalar values: each value is one number per element, per group of
// elements, or per row. Norms, softmax, rope and quantisation are spelled out here in their exact roundings.
#pragma once

#include "codegen/ScalarCode.h"

#include <deque>

namespace fusion::row {

/// How often a value differs: in every row, in every group of `groupSize` elements, in every element.
enum class Level : uint8_t { Row, Group, Element };

/// Where an input is read or an output written. The view has one dim for each leading dim of the row space,
/// then the dims that make up the row (one, unless a reduction runs over several).
struct Access {
  unsigned index = 0; ///< region input or output
  DType type = DType::F32;
  View view;
  unsigned lead = 0;                   ///< into Graph::leads: what the row number is split into
  unsigned columnDims = 1;             ///< the last dims of the view, which make up the row
  llvm::SmallVector<int64_t> divisors; ///< per dim; a scale for every block has the block's size here
};

/// Another column of the same row, for rotary embeddings.
struct ColumnMap {
  enum class Kind : uint8_t {
    HalfPartner, ///< c + half in the first half, c - half in the second, c beyond
    NextPartner, ///< c ^ 1
    HalfFold,    ///< c in the first half, c - half in the second, 0 beyond
    PairFold,    ///< c / 2, 0 beyond
    Clamp,       ///< c, 0 beyond
  } kind = Kind::Clamp;
  int64_t half = 0;     ///< half the rotary dim
  int64_t headSize = 0; ///< c counts from the start of its head, of so many columns; 0: from the start of the row
};

struct Node {
  enum class Kind : uint8_t { Load, Apply, Reduce, Move } kind = Kind::Apply;
  enum class Reduction : uint8_t { Sum, Max, Min, Product } reduction = Reduction::Sum;
  Level level = Level::Row;
  unsigned phase = 0;       ///< the earliest sweep over the row in which it can be computed
  std::string type = "f32"; ///< as which it is held in a register
  mlir::Operation *op = nullptr;
  /// Apply: the expression; $0, $1, … are operands and $c the column. Empty: scalarExpression(op).
  std::string text;
  llvm::SmallVector<Node *, 3> operands;
  bool perGroup = false; ///< Reduce: over groups, not over the row
  Access access;         ///< Load
  bool summed = false;   ///< Load: of the sum over ranks of what its operand loads, which is made before the sweeps
  ColumnMap map;         ///< Move
};

struct Store {
  Node *value = nullptr;
  Access access;
  std::string into;      ///< an array of the block that holds all rows, where that is not an output
  std::string condition; ///< under which it is written; empty: always
};

struct Graph {
  std::deque<Node> nodes;
  std::vector<Store> stores;
  std::vector<DimShape> leads; ///< the ways in which the row number is split into indices
  Dim rows = 1, width = 1;
  int64_t groupSize = 0; ///< 0: no value per group
  int64_t headSize = 0;  ///< 0: no value whose row is split into heads
};

/// The graph of a region, or why it has none.
std::variant<Graph, std::string> buildGraph(const Region &region, const KernelContext &context);

} // namespace fusion::row
