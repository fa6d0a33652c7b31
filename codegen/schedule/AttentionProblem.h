// What the attention kernels share: the sizes of the op, and the text of the pieces that depend on its attributes.
#pragma once

#include "codegen/KernelWriter.h"

namespace fusion::attention {

constexpr int64_t largestHead = 256;
/// Up to which numbers of pairs 8, 4 and 2 blocks share the keys of one: as many blocks as a large GPU has
/// multiprocessors, since more cost more than they bring.
constexpr int64_t pairLimits[] = {16, 32, 66};

/// An nn.attention and where its operands lie. The heads that share keys and values are rows of one problem: row r of a
/// key/value head is query r / group of its head r % group.
struct Problem {
  Problem(const Region &region, const KernelContext &context);

  const Region &region;
  const KernelContext &context;
  nn::AttentionOp op;
  Dim batch, heads, queries, kvHeads, keys;
  Dim group;                             ///< heads that share keys and values
  Dim rows;                              ///< queries * group
  int64_t depth = 0, valueDepth = 0;     ///< head sizes of the queries and keys, and of the values
  int64_t leastQueries = 0, mostQueries; ///< that the kernel is launched for
  int64_t mostPairs;                     ///< of batch entry and key/value head, likewise

  unsigned inputOf(mlir::Value operand) const;
  const View &view(mlir::Value operand) const;
  /// How many rows a key/value head has at most, if that is known.
  std::optional<int64_t> mostRows() const;
  Dim flops() const;
};

/// The reason why the region is no attention that these kernels compute, or nothing.
std::optional<std::string> refusal(const Region &region, const KernelContext &context);

/// Text of one kernel. `entry` and `kvHead` are variables of the kernel, which place() declares; the others are named
/// by arguments, which are variables too.
class Code {
public:
  Code(const Problem &problem, KernelWriter &writer) : problem(problem), op(problem.op), writer(writer) {}

  /// ` + index * stride`, or nothing for a zero stride.
  std::string term(const std::string &index, const Dim &stride);
  /// The element as an f32.
  std::string floatElement(mlir::Value operand, const std::string &pointer, const std::string &offset) const;
  /// The block's tile of `tileRows` rows, of which `block` (a u32) is the number: row0, kvHead, entry, lastRow, shift.
  void place(int64_t tileRows, const std::string &block = "block_x()");
  /// `keyRows` and `valueRows`: where those of entry and kvHead begin.
  void keyAndValueRows();
  /// The offset of column `c` of `row` in the queries.
  std::string queryOffset(const std::string &row, const std::string &c);
  /// The query and the head of a row.
  std::string queryOf(const std::string &row);
  std::string headOf(const std::string &row);
  /// `const T *name`: where a row's mask begins; nothing without a mask.
  void maskRow(const std::string &name, const std::string &head, const std::string &query);
  /// The element of a row's mask for `key`, which must be below the number of keys: an f32 or a bool.
  std::string maskElement(const std::string &maskRow, const std::string &key);
  /// Lines that make of the variable `s`, q·k, the final score for `key`: -inf where it is not kept. `masked`: the mask's
  /// element, looked at for keys below their number only.
  void finishScore(const std::string &s, const std::string &key, const std::string &query, const std::string &masked);
  /// `first` and `end`: the keys that rows row0 … row0 + tileRows - 1 look at.
  void keyBounds(int64_t tileRows);
  /// What a row's weighted sum is multiplied with, from its largest score and the sum of its weights.
  std::string share(const std::string &largest, const std::string &total);
  /// The offset in the output of column `c` of a row. The output is contiguous in the order of dims that a transpose
  /// behind asks for.
  std::string resultOffset(const std::string &head, const std::string &query, const std::string &c);

private:
  const Problem &problem;
  nn::AttentionOp op;
  KernelWriter &writer;
};

/// Any types, any number of rows.
KernelDraft emitFma(const Problem &problem);
/// The reason why matrix products cannot be used, or nothing.
std::optional<std::string> tensorRefusal(const Problem &problem);
KernelDraft emitTensor(const Problem &problem);
/// By the number of queries and of pairs, where only a run knows them.
std::vector<SizeRange> ranges(const Problem &problem);
/// For at most so many queries, whose rows are few.
int64_t decodeQueries(const Problem &problem);
/// For few rows: on tensor cores, where the types and the alignment of the operands allow it, and for any operands.
bool decodesOnTensorCores(const Problem &problem);
KernelDraft emitDecodeTensor(const Problem &problem);
KernelDraft emitDecodeFma(const Problem &problem);

} // namespace fusion::attention
