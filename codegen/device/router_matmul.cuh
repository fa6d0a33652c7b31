#pragma once
// Few rows with the product that makes their scores: a cluster of blocks has a row, each block some of its
// scores, and the first block routes it.

#include "clusters.cuh"
#include "gemv_warp.cuh"
#include "router.cuh"

/// `Config`: those of GemvWarp and of route_row, and
///   cluster            blocks that share a row
/// `scores`: an epilogue that hands out what the scalar ops in front of the scores begin with.
/// Body: begin_row(row); score(value), those ops; what route_row needs.
template <class Config, class Shape, class A, class B, class Scores, class Body>
DEVICE void router_matmul(const Shape &shape, const A &a, const B &b, const Scores &scores, Body body) {
  constexpr int blocks = cluster_blocks<Config::cluster>, width = Config::width, columns = Config::columns,
                k_split = Config::k_split, groups = Config::warps / k_split,
                at_once = columns * groups * blocks;
  static_assert(width % columns == 0 && Config::warps % k_split == 0, "whole groups of columns and warps");
  if (blocks == 1 && block_x() % (u32)Config::cluster != 0)
    return;
  SHARED(f32, partial, k_split * width); // of the first block
  const i64 row = block_x() / (u32)Config::cluster;
  const int rank = blocks > 1 ? (int)cluster_rank() : 0, split = (int)warp_id() % k_split,
            lane = (int)lane_id();
  int column = (rank * groups + (int)warp_id() / k_split) * columns;
  cluster_arrive();
  if (!Config::weights_before_wait)
    pdl_wait();
  GemvWarp<Config, Shape, A, B> work(shape, a, b, split);
  if (column < width) {
    work.move_to(b, 0, column);
    work.request_first();
  }
  if (Config::weights_before_wait)
    pdl_wait();
  pdl_launch_dependents();
  cluster_wait(); // until the first block has started
#pragma unroll 1
  for (; column < width; column += at_once) {
    f32 sum[columns][1] = {};
    work.multiply(row, sum, [&] {
      const bool more = column + at_once < width;
      if (more)
        work.move_to(b, 0, column + at_once);
      return more;
    });
    Vec<f32, 1> totals[1];
    column_sums(sum, totals);
    if (lane < columns)
      store_in_cluster(&partial[split * width + column + lane], 0, totals[0][0]);
  }
  cluster_arrive();
  cluster_wait();
  if (rank != 0)
    return;
  constexpr int threads = 32 * Config::warps;
  for (int i = (int)thread_x(); i < width; i += threads) {
    Vec<f32, 1> totals[1] = {};
#pragma unroll
    for (int w = 0; w < k_split; ++w)
      totals[0][0] += partial[w * width + i];
    scores(Matmul<0>(), row, (i64)i, totals, TakeValue{partial[i]});
  }
  barrier();
  if (warp_id() != 0)
    return;
  body.begin_row(row);
  route_row<Config>(body, row, [&](i64 at) { return body.score(partial[at]); });
}
