// What a row kernel computes, as a graph of scalar values: each value is one number per element, per group of
// elements, or per row. Norms, softmax, rope and quantisation are spelled out here in their exact roundings.
#pragma once

#include "codegen/Region.h"
#include "codegen/Schedule.h"
#include "ir/dialect/Types.h"
#include "ir/scalar/Graph.h"

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
  unsigned outer = 0;                   ///< into Graph::outerDims: what the row number is split into
  unsigned columnDims = 1;             ///< the last dims of the view, which make up the row
  llvm::SmallVector<int64_t> divisors; ///< per dim; a scale for every block has the block's size here
  Dim rowStep = 0; ///< elements between the rows that Store::row, or Node::chosen, counts
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
  int64_t headSize =
      0; ///< c counts from the start of its head, of so many columns; 0: from the start of the row
};

/// A value at which a kernel may stop: it is kept in a register, reduced, or read at another column. What
/// lies between nodes is the scalar graph's.
struct Node {
  enum class Kind : uint8_t {
    Load,
    Apply,   ///< arithmetic on the operands
    Divisor, ///< what dividing by the operand, an f32, takes: many quotients by one number cost one division
    Reduce,
    Move, ///< the operand at another column
  } kind = Kind::Apply;
  /// SumOfSquares: of f32; the squares are not rounded before they are added. Mean: of f32, over the row; of
  /// equal elements exactly their value.
  enum class Reduction : uint8_t { Sum, SumOfSquares, Mean, Max, Min, Product } reduction = Reduction::Sum;
  Level level = Level::Row;
  unsigned phase = 0;      ///< the earliest pass over the row in which it can be computed
  scalar::Value value;     ///< in Graph::scalars. Apply: made of the operands' values; else an input
  bool readsColumn = false; ///< Apply: beside what its operands do
  DType type = DType::F32; ///< as which it is held in a register
  mlir::Operation *op = nullptr;
  llvm::SmallVector<Node *, 3> operands;
  bool perGroup = false; ///< Reduce: over groups, not over the row
  Access access;         ///< Load
  std::string from;      ///< Load: an array of the block that holds the rows, if they are in no input
  bool summed =
      false; ///< Load: of the sum over ranks of what its operand loads, which is made before the passes
  Node *chosen = nullptr; ///< Load: an integer of the row, which says where in a table that lies
  Dim entries = 0;        ///< of that table
  ColumnMap map;          ///< Move
};

struct Store {
  Node *value = nullptr;
  Access access;
  std::string into;      ///< an array of the block that holds all rows, where that is not an output
  std::string intoType;  ///< of it, if that is no pointer
  std::string condition; ///< under which it is written; empty: always
  Node *row = nullptr;   ///< placed rows: an integer of the row
  std::optional<RowPlacement> placement; ///< what it means
};

struct Graph {
  scalar::Graph scalars;
  /// I64: the column of the element, from the start of the row; the columns of a row.
  scalar::Value column = scalars.input("column", DType::I64, scalar::Level::Element),
                columns = scalars.input("columns", DType::I64, scalar::Level::Kernel);
  std::deque<Node> nodes;
  std::vector<Store> stores;
  std::vector<DimShape> outerDims; ///< the ways in which the row number is split into indices
  Dim rows = 1, width = 1;
  int64_t groupSize = 0; ///< 0: no value per group
  int64_t headSize = 0;  ///< 0: no value whose row is split into heads
  bool batchInvariant = false; ///< KernelContext::batchInvariant
  bool rowMajor = false; ///< rows are numbered in the order of their dims; else as they lie in what is read
};

/// The graph of a region, or why it has none.
std::variant<Graph, std::string> buildGraph(const Region &region, const KernelContext &context);

} // namespace fusion::row
