#pragma once
// Heads of a tile of gemm_swap_ab, as rows of a row body: rotations, norms of a head, writes to a cache.

#include "gemm_swap_ab.cuh"
#include "row.cuh"

/// A row body over heads of the tile at `column` of the matmul, `Width` columns each, of those `heads` that
/// begin at `first` of its columns. The block has those groups of 8 of `rows` rows that are its own, every
/// Split-th from `rank` on. `number(row, head)`: of the body's rows.
template <class RowConfig, class Config, i64 Width, class Body, class Number>
DEVICE void heads_of_tile(const Body &body, const BlockPlace &place, i64 first, i64 heads, i64 rows,
                          int rank, const Number &number) {
  using Block = SwapAB<Config>;
  using Thread = RowThread<RowConfig>;
  static_assert(RowConfig::threads == Block::multipliers && !Thread::wholeBlock, "a head has lanes");
  const i64 begin = (place.column - first) / Width, end = (place.column + Block::columns - first) / Width;
  const i64 least = place.column > first ? begin : 0, most = end < heads ? end : heads;
  if (place.column + Block::columns <= first || least >= most)
    return;
  const u32 count = (u32)(most - least);
  const u32 groups = ((u32)ceil_div(rows, 8) + (u32)Block::split - 1u - (u32)rank) / (u32)Block::split;
  const u32 units = groups * 8u * count;
#pragma unroll 1
  for (u32 block = 0; block * (u32)Thread::rowsPerBlock < units; ++block) {
    Thread thread(block, units);
    const u32 own = (u32)thread.row / count, head = (u32)thread.row % count;
    const i64 row = ((i64)(own / 8u) * Block::split + rank) * 8 + own % 8u;
    thread.active = thread.active && row < rows;
    thread.row = number(row < rows ? row : rows - 1, least + head);
    typename Body::Row values = body.row(thread.row);
    typename Body::Live live;
    load_row<BeforeWait, RowConfig>(body, thread, values, live);
    load_row<AfterWait, RowConfig>(body, thread, values, live);
    row_passes<0, RowConfig>(body, thread, values, live);
  }
}
