#pragma once
// What a kernel of a few rows does before it looks at keys, where its Config says `makes_heads`: its block
// makes, of what the matmuls before it left, the new keys and values of its key/value head, into the cache,
// and, where it says `makes_queries`, the tile's queries, into shared memory. Each is a row of a row body
// (row.cuh): copied, or rotated, with norms.
//
// All blocks of a cluster, and those of the head's other tiles, make the same keys and values. Where the new
// ones come last, and a lane has registers for what it reads, they stay in shared memory (keeps_new_rows).
// Else all write the same bytes to the same places, after pdl_wait(). So a block needs no other: after its
// barrier it reads what it wrote itself, or the same bytes from another one. It reads them by loads that stay
// behind the barrier and come from where stores go (load_lines_vec, load_vec, cp.async).

#include "attention_decode.cuh"
#include "row.cuh"

// `warps` warps of the block, from `first_warp` on, make `count` rows; own row i of them is row number(i) of
// the body.
template <class RowConfig, class Body, class Number>
DEVICE void rows_of_warps(const Body &body, int first_warp, int warps, int count, const Number &number) {
  using Thread = RowThread<RowConfig>;
  static_assert(!Thread::wholeBlock && !RowConfig::shifted, "a row has lanes");
  constexpr int rows = 32 / Thread::lanes; // that a warp makes at once
  const int warp = warp_of_block() - first_warp;
  if (warp < 0 || warp >= warps)
    return;
#pragma unroll 1
  for (int first = warp * rows; first < count; first += warps * rows) {
    const int own = first + lane_of_warp() / Thread::lanes;
    Thread thread(0, 1);
    thread.active = own < count;
    thread.row = number(thread.active ? own : count - 1);
    typename Body::Row row = body.row(thread.row);
    typename Body::Live live;
    load_row<BeforeWait, RowConfig>(body, thread, row, live);
    load_row<AfterWait, RowConfig>(body, thread, row, live);
    row_passes<0, RowConfig>(body, thread, row, live);
  }
}
// The first `count` rows of a tile, by all warps but the last two. number(entry, head, query): of the body's
// rows.
template <class Config, class RowConfig, class Body, class Number>
DEVICE void make_queries(const Body &body, const DecodeTile &tile, int count, int group,
                         const Number &number) {
  rows_of_warps<RowConfig>(body, 0, Config::warps - 2, count, [&](int own) {
    const int row = (int)tile.row0 + own;
    return number(tile.entry, tile.kv_head * group + row % group, row / group);
  });
}
// The `count` new rows of a cache, by one warp. number(entry, head, position), from the first new one.
template <class RowConfig, class Body, class Number>
DEVICE void make_new_rows(const Body &body, const DecodeTile &tile, int warp, i64 count,
                          const Number &number) {
  rows_of_warps<RowConfig>(body, warp, 1, (int)count,
                           [&](int own) { return number(tile.entry, tile.kv_head, (i64)own); });
}
