// SparseAttention: queries see blocks of keys that tables name, which are known at import. The caches are
// buffers of full capacity.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

// Inputs.
enum : unsigned {
  pastKeyInput = 3,
  pastValueInput,
  rowsInput,
  columnsInput,
  totalLengthInput, ///< of the longest entry
  lengthsInput,
  cosInput,
  sinInput,
};

class SparseAttention {
public:
  explicit SparseAttention(NodeImporter &node) : n(node) {}

  void import() {
    if (!splitInputs())
      return;
    // The last token of each entry is the last of its keys: [batch, sequence].
    Value lengths = n.reshape(n.cast(n.operand(lengthsInput), n.i64Type()), {batch, Dim(1)});
    const Value start = n.build<nn::MaxOp>({n.sub(lengths, number(sequence)), n.scalar(n.i64Type(), 0)});
    const Value positions = n.add(start, countFrom(n, 0, sequence));
    rotateHeads(positions);
    const Value keys = written(pastKeyInput, k, positions), values = written(pastValueInput, v, positions);
    const Value table = blockTable();
    if (n.failed())
      return;
    const Value queries = n.reshape(positions, {batch, Dim(1), sequence, Dim(1)});
    Value kept = n.build<nn::LessEqualOp>({countFrom(n, 0, capacity), queries});
    kept = n.build<nn::AndOp>({visible(table, positions), kept});
    AttentionSettings settings;
    settings.scale = n.floatAttribute("scale", 0);
    n.result(0, mergeHeads(n, attend(n, q, keys, values, kept, settings)));
    n.result(1, keys);
    n.result(2, values);
  }

private:
  Value number(const Dim &dim) { return n.dimConstant({dim}, {}, n.i64Type()); }

  bool splitInputs() {
    heads = n.intAttribute("num_heads", 0);
    const int64_t keyHeads = n.intAttribute("kv_num_heads", 0);
    block = n.intAttribute("sparse_block_size", 0);
    if (n.failed() || heads < 1 || keyHeads < 1 || block < 1 || n.rank(0) != 3 || n.rank(pastKeyInput) != 4 ||
        n.rank(pastValueInput) != 4 || n.has(1) != n.has(2)) {
      n.fail("needs num_heads, kv_num_heads, sparse_block_size, a query of rank 3 and caches of rank 4");
      return false;
    }
    Value packed = n.operand(0), key = n.optionalOperand(1), value = n.optionalOperand(2);
    if (!n.has(1)) {
      const auto size = n.shape(0)[2].dividedBy(heads + 2 * keyHeads);
      if (!size) {
        n.fail("a packed query of " + shapeString(n.shape(0)) + " does not divide into heads");
        return false;
      }
      key = n.slice(packed, 2, *size * heads, *size * keyHeads);
      value = n.slice(packed, 2, *size * (heads + keyHeads), *size * keyHeads);
      packed = n.slice(packed, 2, 0, *size * heads);
    }
    q = splitHeads(n, packed, heads);
    k = splitHeads(n, key, keyHeads);
    v = splitHeads(n, value, keyHeads);
    batch = n.shape(0)[0];
    sequence = n.shape(0)[1];
    capacity = n.shape(pastKeyInput)[2];
    return !n.failed();
  }

  void rotateHeads(Value positions) {
    const bool interleaved = n.intAttribute("rotary_interleaved", 0) != 0;
    if (n.intAttribute("do_rotary", 0) == 0)
      return;
    if (!n.has(cosInput) || !n.has(sinInput))
      return n.fail("do_rotary needs cos_cache and sin_cache");
    const Value cos = tableRows(n, n.operand(cosInput), positions),
                sin = tableRows(n, n.operand(sinInput), positions);
    q = rotate(n, q, cos, sin, interleaved);
    k = rotate(n, k, cos, sin, interleaved);
  }

  Value written(unsigned past, Value fresh, Value positions) {
    const Value rows = n.reshape(positions, {batch, Dim(1), sequence, Dim(1)});
    return n.build<nn::CacheWriteOp>({n.operand(past), fresh, rows},
                                     {n.i64("axis", 2), n.flag("grows", false)});
  }

  /// Which blocks of keys each block of queries sees: [layouts, blocks, blocks] of i1.
  Value blockTable() {
    const std::vector<int64_t> rows = n.requireConstants(rowsInput, "block_row_indices"),
                               columns = n.requireConstants(columnsInput, "block_col_indices");
    const DimShape rowShape = n.shape(rowsInput), columnShape = n.shape(columnsInput);
    if (n.failed())
      return {};
    if (rowShape.size() != 2 || columnShape.size() != 2 || rowShape[0].value() < 1 ||
        rowShape[1].value() < 2 || !(rowShape[0] == columnShape[0]) || heads % rowShape[0].value() != 0) {
      n.fail("block_row_indices of " + shapeString(rowShape) + " and block_col_indices of " +
             shapeString(columnShape) + " for " + Twine(heads) + " heads");
      return {};
    }
    layouts = rowShape[0].value();
    blocks = rowShape[1].value() - 1;
    const int64_t perLayout = columnShape[1].value();
    Tensor table = Tensor::zeros(DType::Bool, {layouts, blocks, blocks});
    for (int64_t layout = 0; layout < layouts; ++layout)
      for (int64_t row = 0; row < blocks; ++row) {
        const auto at = static_cast<size_t>(layout * (blocks + 1) + row);
        for (int64_t i = rows[at]; i < rows[at + 1]; ++i) {
          const int64_t column =
              i >= 0 && i < perLayout ? columns[static_cast<size_t>(layout * perLayout + i)] : -1;
          if (column < 0 || column >= blocks) {
            n.fail("block_col_indices name no block for row " + Twine(row) + " of layout " + Twine(layout));
            return {};
          }
          table.as<uint8_t>()[(layout * blocks + row) * blocks + column] = 1;
        }
      }
    return n.constant(table);
  }

  /// The table for each query and key, heads taking the layouts in turn: [batch, heads, sequence, capacity].
  Value visible(Value table, Value positions) {
    const Value size = n.scalar(n.i64Type(), static_cast<double>(block));
    const Value rows = n.build<nn::GatherOp>({table, n.div(positions, size)}, n.i64("axis", 1));
    Value all = n.build<nn::GatherOp>({rows, n.div(countFrom(n, 0, capacity), size)}, n.i64("axis", 3));
    all = n.transpose(all, {1, 0, 2, 3}); // from [layouts, batch, sequence, capacity]
    if (layouts == 1)
      return all;
    const int64_t turns = heads / layouts;
    all = n.reshape(all, {batch, Dim(1), Dim(layouts), sequence, capacity});
    all = n.expand(all, {batch, Dim(turns), Dim(layouts), sequence, capacity});
    return n.reshape(all, {batch, Dim(heads), sequence, capacity});
  }

  NodeImporter &n;
  int64_t heads = 0, block = 0, layouts = 1, blocks = 0;
  Value q, k, v; ///< [batch, heads, sequence, size]
  Dim batch, sequence, capacity;
};

} // namespace

void registerSparseAttention(HandlerTable &table) {
  table.add("com.microsoft", "SparseAttention", 1, 11, [](NodeImporter &n) {
    for (unsigned index : {pastKeyInput, pastValueInput, rowsInput, columnsInput, lengthsInput})
      if (!n.has(index))
        return n.fail("input " + Twine(index) + " is missing");
    SparseAttention(n).import();
  });
}

} // namespace fusion::onnx
