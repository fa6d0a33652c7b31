// What the handlers of norms, rotary embedding and attention share.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

/// [batch, sequence, heads * size] as [batch, heads, sequence, size].
mlir::Value splitHeads(NodeImporter &node, mlir::Value x, int64_t heads);
/// The inverse.
mlir::Value mergeHeads(NodeImporter &node, mlir::Value x);

/// start, start + 1, … (`size` values of i64).
mlir::Value countFrom(NodeImporter &node, const Dim &start, const Dim &size);

/// What to do where a boolean must be known and is not, if one input of the graph decides it; else nothing.
/// The importer takes note of an input that is a boolean: the graph is then imported for both of its values.
std::string remedy(NodeImporter &node, mlir::Value condition);

/// Whether both are equal by what is known so far.
bool sameDim(NodeImporter &node, const Dim &left, const Dim &right);

/// Rows of a table [positions, width], with a dim of 1 put in for the heads: [batch, 1, sequence, width] for
/// indices [batch, sequence], [1, 1, sequence, width] for indices [sequence].
mlir::Value tableRows(NodeImporter &node, mlir::Value table, mlir::Value indices);
/// nn.rope of [batch, heads, sequence, size], or of [batch, sequence, heads, size] with fitting tables. Turns
/// twice the last dim of the tables.
mlir::Value rotate(NodeImporter &node, mlir::Value x, mlir::Value cos, mlir::Value sin, bool interleaved);

/// `condition` holds in addition to `kept` (null: everything).
mlir::Value both(NodeImporter &node, mlir::Value kept, mlir::Value condition);
/// The attention mask that keeps what `mask` keeps where `kept` holds; either may be null.
mlir::Value restrictMask(NodeImporter &node, mlir::Value mask, mlir::Value kept);

struct AttentionSettings {
  double scale = 0; ///< 0: 1 / sqrt(head size)
  bool causal = false;
  double softcap = 0;
  int64_t window = 0;
};
/// nn.attention in which a row without keys gives 0. `mask` may be null.
mlir::Value attend(NodeImporter &node, mlir::Value q, mlir::Value k, mlir::Value v, mlir::Value mask,
                   const AttentionSettings &settings);
/// The same with a score of each head that takes its share of every row and adds no value: `sink`, [heads], or
/// 0 where it is null.
mlir::Value attendWithSink(NodeImporter &node, mlir::Value q, mlir::Value k, mlir::Value v, mlir::Value mask,
                           mlir::Value sink, AttentionSettings settings);
/// 1 / sqrt(head size) of q, [batch, heads, queries, size]; fails if the size is not a number.
double defaultScale(NodeImporter &node, mlir::Value q);

/// Bytes [.., n] of two values each, the lower half first, as values [.., 2 n].
mlir::Value unpackedHalves(NodeImporter &node, mlir::Value bytes);

/// What GroupQueryAttention's caches hold: elements, codes of 8 bits, or codes of 4 bits, two to a byte.
class CodedCache {
public:
  /// `which`: 'k' or 'v', as attributes name the cache. Fails where it is not supported.
  CodedCache(NodeImporter &node, char which, unsigned pastInput, unsigned scaleInput);
  /// New elements as the cache holds them, and what a cache holds as elements of the query's type.
  mlir::Value encoded(mlir::Value x);
  mlir::Value decoded(mlir::Value cache);

private:
  NodeImporter &n;
  /// Codes of i8 as halves of bytes.
  mlir::Value packed(mlir::Value x);

  mlir::Type elements, codes; ///< codes: null if the cache holds elements
  bool isPacked = false;
  mlir::Value scale;          ///< of rank 0, or [heads, 1, size]
};

/// What GroupQueryAttention's caches that hold a window only contain. Rows past the resident ones are not
/// specified; here they stay as they were.
class WindowedCache {
public:
  /// `lengths`: of past and new tokens of each batch entry, less one.
  WindowedCache(NodeImporter &node, mlir::Value lengths, const Dim &batch, const Dim &queries,
                const Dim &capacity, int64_t window);
  /// Of the new tokens, [batch, queries].
  mlir::Value positions();
  /// The cache's rows and the new tokens', [batch, heads, capacity + queries, size].
  mlir::Value withNew(mlir::Value cache, mlir::Value fresh);
  /// Which of these each query sees, [batch, 1, queries, capacity + queries].
  mlir::Value visible(bool causal);
  /// The cache behind the step, of these.
  mlir::Value left(mlir::Value all);

private:
  NodeImporter &n;
  Dim batch, queries, capacity;
  int64_t window;
  mlir::Value past, pastRows, rows,
      first; ///< [batch, 1]: tokens before, where they lie; rows behind, the first's position
};

/// The bytes of initialiser `input` read as values of 4 or 8 bits, low half first.
mlir::Value packedWeight(NodeImporter &node, unsigned input, int64_t bits, const Shape &shape);
/// The same, of U4 or of a type of one byte.
mlir::Value packedWeight(NodeImporter &node, unsigned input, DType type, const Shape &shape);
/// Of FLOAT4E2M1 in the bytes of a u8 initialiser, as f8E4M3FN.
mlir::Value packedFloats(NodeImporter &node, unsigned input, const Shape &shape);
struct PrepackedShape {
  int64_t experts, rows, depth, bits;
  bool rowsTogether; ///< rows lie side by side in tiles along k, as for sm_80; for sm_90 each lies alone
};
/// [experts, rows, depth], of an initialiser in the order of onnxruntime's mixed GEMM for CUDA.
mlir::Value prepackedWeight(NodeImporter &node, unsigned input, PrepackedShape shape);
/// Indices of an integer input and of its zero point, which may be left out.
struct WithZeroPoint {
  unsigned value, zeroPoint;
};
/// The product of integers, each less its zero point, in i32.
mlir::Value integerMatmul(NodeImporter &node, WithZeroPoint left, WithZeroPoint right,
                          bool transposeLeft = false, bool transposeRight = false);
/// A scale as f32, of rank 0 where there is one for all, else for rows or columns.
mlir::Value scaleOperand(NodeImporter &node, unsigned input, bool byRow);
/// (value - zero point) * scale in f32, and saturate(round(x / scale) + zero point) with one scale, all given
/// by inputs.
mlir::Value dequantised(NodeImporter &node, unsigned value, unsigned scale, unsigned zeroPoint,
                        int64_t axis = -1);
mlir::Value quantised(NodeImporter &node, mlir::Value x, unsigned scale, unsigned zeroPoint);
/// f32 as u8 with one scale and zero point, from its range widened to include 0.
struct Dynamic {
  mlir::Value value, scale, zeroPoint;
};
Dynamic dynamicallyQuantised(NodeImporter &node, mlir::Value x);

/// What auto_pad puts at both ends of a dim; nothing where that needs sizes that are numbers.
std::optional<std::pair<Dim, Dim>> automaticPads(llvm::StringRef mode, const Dim &size, int64_t extent,
                                                 int64_t stride);

/// [batch, sizes…, channels] as [batch, channels, sizes…].
mlir::Value channelsFirst(NodeImporter &node, mlir::Value x);
/// The inverse.
mlir::Value channelsBehind(NodeImporter &node, mlir::Value x);

/// The activation that runtimes fuse under `name`; x itself without a name. `slope`: of LeakyRelu.
mlir::Value activation(NodeImporter &node, mlir::Value x, llvm::StringRef name, double slope);


} // namespace fusion::onnx
