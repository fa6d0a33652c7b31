// An attention as its kernels see it, and which kernel is made for it.
#pragma once

#include "codegen/Schedule.h"
#include "ir/dialect/AttentionSink.h"
#include "ir/dialect/JoinedColumns.h"
#include "ir/dialect/KeyBounds.h"
#include "ir/dialect/PagedKeys.h"
#include "ir/dialect/Types.h"

namespace fusion::attention {

constexpr int64_t largestHead = 256; ///< that a warp's registers hold
constexpr int64_t latentRows = 64;   ///< of a tile where heads are larger
/// Up to which numbers of pairs of batch entry and key/value head 8, 4, 2 and 1 blocks have the keys of one:
/// no more blocks than a large GPU has multiprocessors, since more cost more than they bring.
constexpr int64_t pairLimits[] = {16, 32, 66, 132};
/// Up to `mostPairs` pairs so many blocks of a cluster, and clusters, have the keys of one. The blocks need
/// all of a multiprocessor's shared memory; an H200 has room for as many of their clusters at once.
struct LatentShare {
  int64_t mostPairs, blocks, clusters;
};
constexpr LatentShare latentShares[] = {{1, 8, 8},  {2, 8, 7},  {4, 8, 3},  {7, 8, 2},
                                        {15, 8, 1}, {22, 5, 1}, {39, 3, 1}, {66, 2, 1}};
/// What the kernel is chosen for where it must not depend on their number: four blocks.
constexpr int64_t pairsOfAnyBatch = pairLimits[0] + 1;

/// Keys or values as they are stored.
struct Stored {
  mlir::Value tensor; ///< an input of the region: the operand, or the codes that it is made of
  mlir::Value scale;  ///< of the codes, an input too; null if they are elements
  bool byHead = false,
       byColumn = false;   ///< each key/value head, each column of a head has a scale of its own
  DType type;              ///< of what is stored
  bool packed = false;     ///< codes of 4 bits, two to an element of `tensor`
  mlir::Value second = {}; ///< of the last columns, where `tensor` has only the first: an input too
  /// Where rows lie in pages: `tensor` is what is gathered from.
  std::optional<nn::PagedKeys> paging = {};
  int64_t bits() const { return packed ? 4 : 8 * static_cast<int64_t>(byteSize(type)); }
  /// So many columns, which are whole elements, in elements of `tensor`.
  int64_t elementsOf(int64_t columns) const { return packed ? columns / 2 : columns; }
  /// From one head's scale to the next one's.
  Dim headStride(const View &scales) const {
    return scales.strides[scales.strides.size() - (scales.strides.size() == 1 ? 1 : 3)];
  }
};

struct MadeHeads;

/// An nn.attention and where its operands lie. The heads that share keys and values are rows of one problem:
/// row r of a key/value head is query r / group of its head r % group.
struct Problem {
  Problem(const Region &region, const KernelContext &context);
  Problem(const Region &, const KernelContext &&) = delete; ///< it refers to the context

  const Region &region;
  const KernelContext &context;
  nn::AttentionOp op;
  std::optional<nn::AttentionSink> sink; ///< whose operands take the place of those of the op
  Stored storedKeys, storedValues;
  /// Of the keys that each query looks at, where the region computes a mask that says no more.
  std::optional<nn::KeyBounds> bounds;
  /// Where the queries' columns lie in two inputs.
  std::optional<nn::JoinedColumns> joinedQueries;
  mlir::Value mask;             ///< an input of the region, or null
  mlir::Value table, sequences; ///< of pages: nn::PagedKeys, inputs of the region; null: there are none
  int64_t pageSize = 0;         ///< rows of a page
  mlir::Value keysOfOp() const { return sink ? sink->keys : nn::AttentionOp(op).getK(); }
  /// An input of the region: the queries, or their first columns.
  mlir::Value firstQueries() const {
    return joinedQueries ? joinedQueries->first : mlir::Value(nn::AttentionOp(op).getQ());
  }
  mlir::Value valuesOfOp() const { return sink ? sink->values : nn::AttentionOp(op).getV(); }
  Dim batch, heads, queries, kvHeads, keys;
  Dim group;                             ///< heads that share keys and values
  Dim rows;                              ///< queries * group
  int64_t depth = 0, valueDepth = 0;     ///< head sizes of the queries and keys, and of the values
  int64_t leastQueries = 0, mostQueries; ///< that the kernel is launched for
  /// Of batch entry and key/value head, where heads are large also of a tile of their rows: what the blocks
  /// of a cluster take together.
  Dim pairs;
  int64_t mostPairs; ///< likewise
  /// Entries are tokens, and those of one sequence are taken together, as queries of one entry.
  bool isRagged = false;
  /// The last keys and values, and queries that are not there, where the kernel makes them itself. The inputs
  /// are then those of `made->parts.attention`.
  const MadeHeads *made = nullptr;

  /// Whether scales, if each column has one, can be read 16 bytes at a time.
  bool readsScales(const Stored &stored) const;
  unsigned inputOf(mlir::Value operand) const;
  const View &view(mlir::Value operand) const;
  /// [entries, heads, rows, columns] as they are stored; of pages, [pages, heads, rows of a page, columns].
  View storedView(const Stored &stored) const;
  /// The dims of the attention's result in the order in which they are stored.
  llvm::SmallVector<int64_t> resultOrder() const;
  /// Whether heads are larger than the kernels of registers take: latent attention's over its cache.
  bool isLatent() const { return depth > largestHead || valueDepth > largestHead; }
  /// Whether keys or values are codes.
  bool hasCodes() const { return storedKeys.scale || storedValues.scale; }
  /// How many rows a key/value head has at most, if that is known.
  std::optional<int64_t> mostRows() const;
  Dim flops() const;
};

/// The reason why the region is no attention that these kernels compute, or nothing.
std::optional<std::string> refusal(const Region &region, const KernelContext &context);

/// By the number of queries and of pairs, where only a run knows them.
std::vector<Predicate> predicates(const Problem &problem);
/// For at most so many queries, whose rows are few.
int64_t decodeQueries(const Problem &problem);
/// For so many of them a kernel of its own has one tile of rows, where that of them all has two; 0: there is
/// none.
int64_t oneTileQueries(const Problem &problem);

/// Why kernels cannot take the tokens of a sequence together, or nothing.
std::optional<std::string> raggedRefusal(const Problem &problem);

/// Kernels of few rows: on tensor cores, where types and alignment of the operands allow it, else on FMA
/// units.
KernelDraft emitDecode(const Problem &problem);
/// Whether a kernel of a few rows that makes new keys and values reads them where it makes them.
bool keepsNewRows(const Problem &problem);
/// Kernels of any number of rows, likewise.
KernelDraft emitPrefill(const Problem &problem, bool pagesByTma = false);
/// Whether TMA can copy the pages of such a kernel, box by box.
bool copiesPagesByTma(const Problem &problem);

} // namespace fusion::attention
