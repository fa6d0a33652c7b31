// How the threads of a block share the rows.
#pragma once

#include "codegen/schedule/RowGraph.h"

#include <map>

namespace fusion::row {

struct Layout {
  uint32_t blockThreads = 128;
  uint32_t threadsPerRow = 32; ///< a power of two up to 32, or all of the block
  int64_t vector = 1;          ///< neighbouring elements that a thread takes at once
  /// The row's values stay in registers between passes; otherwise each pass computes them anew from
  /// memory.
  bool inRegisters = false;
  int64_t chunks = 0; ///< in registers: vectors that a thread holds of its row
  /// So many blocks share a row where the machine has clusters; elsewhere the first of them does the others'
  /// work, too, and `chunks` is what a thread holds then. Only where the threads hold the row evenly.
  uint32_t clusterBlocks = 1;
  /// Rows whose length is no multiple of the vectors: a row's vectors begin where the memory does that is
  /// aligned for them, up to vector - 1 elements before its first, and end as far after its last. Then all
  /// its elements' accesses are as isContiguousRow() says, or element by element.
  bool shifted = false;
  /// Rows between the one that a block reads and the one that it has the L2 fetch; 0: it leaves that to the
  /// loads.
  int64_t prefetchDistance = 0;

  bool inCluster() const { return clusterBlocks > 1; }
  uint32_t rowsPerBlock() const { return blockThreads / threadsPerRow; }
  bool wholeBlock() const { return threadsPerRow > 32; }
  int64_t stride() const {
    return vector * threadsPerRow;
  } ///< columns from one vector of a thread to its next
  /// In registers: the vectors may reach beyond the row.
  bool guarded(int64_t width) const { return !shifted && chunks * threadsPerRow * vector != width; }
};

/// Which values one pass computes and a later one needs.
struct PassPlan {
  std::vector<std::vector<const Node *>> reductions; ///< by pass
  std::vector<std::vector<const Store *>> stores;    ///< by pass; those per row after all passes
  std::vector<const Store *> rowStores;
  std::map<const Node *, unsigned> live; ///< and the pass that computes it
  /// Sums of squares about a mean, and the sum that gives the mean: both are reduced at once, at the end of
  /// the former's pass.
  std::map<const Node *, const Node *> moments;
};
PassPlan planPasses(const Graph &graph, bool inRegisters, bool inCluster = false);

/// True if each thread's accesses through `access` can be vectors of `vector` elements.
bool isVectorAccess(const Access &access, int64_t vector);

/// Whether the elements lie one row of `width` after the other, from a multiple of `vector` elements on.
bool isContiguousRow(const Access &access, const Dim &width, int64_t vector);

// Measured on an H200: where as much is written as read, asking the L2 for rows as wholes, a little ahead of
// the blocks, gives 2 to 3 %; where less is written, nothing. What lies more than three times as far is
// evicted, by what is written, before it is used.
inline constexpr int64_t prefetchBytes = 3 << 20;
/// Whether a load reads each row once, all of it.
bool isPrefetched(const Graph &graph, const Node &load);
/// Bytes of a row that such loads read, if as much is written.
int64_t bytesFetched(const Graph &graph);

/// The layout for this graph, or why there is none. `range`: of the rows that it is for; null: any number.
/// `blockThreads`: what the blocks must have, as they are shared with other rows; 0: free.
std::variant<Layout, std::string> chooseLayout(const Graph &graph, const SizeRange *range = nullptr,
                                               uint32_t blockThreads = 0);

/// Numbers of rows for which the best layouts differ; empty: one for all.
std::vector<SizeRange> rowRanges(const Graph &graph, const Layout &layout);

/// The layout where each block of `blockThreads` has all rows, at most `mostRows`. A thread has registers for
/// `mostHeld` values between passes.
Layout layoutWithin(const Graph &graph, int64_t mostRows, uint32_t blockThreads, int64_t mostHeld);

/// f32 sum, max or min: the prelude's block reductions do those.
bool isPlainReduction(const Node &node);

} // namespace fusion::row
