#pragma once
// Few rows with the product that makes their scores: a cluster of blocks has a row, each block some of its
// scores, and the first block routes it.

#include "clusters.cuh"
#include "gemv_warp.cuh"
#include "router.cuh"
#include "tma.cuh"

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
  // Of the first block: all sums, and the mbarrier that counts them.
  SHARED(f32, partial, k_split * width);
  SHARED(u64, arrived, 1);
  const i64 row = block_x() / (u32)Config::cluster;
  const int rank = blocks > 1 ? (int)cluster_rank() : 0, split = (int)warp_id() % k_split,
            lane = (int)lane_id();
  int column = (rank * groups + (int)warp_id() / k_split) * columns;
  if (blocks > 1 && rank == 0 && thread_x() == 0) {
    mbarrier_init(arrived, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect(arrived, (u32)sizeof(f32) * k_split * width);
  }
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
      send_in_cluster(&partial[split * width + column + lane], 0, arrived, totals[0][0]);
  }
  if constexpr (blocks == 1)
    barrier();
  if (rank != 0 || warp_id() != 0)
    return;
  if constexpr (blocks > 1)
    mbarrier_wait(arrived, 0);
  body.begin_row(row);
  route_row<Config>(body, row, [&](i64 at) {
    Vec<f32, 1> totals[1] = {};
#pragma unroll
    for (int w = 0; w < k_split; ++w)
      totals[0][0] += partial[w * width + at];
    f32 score;
    scores(Matmul<0>(), row, at, totals, TakeValue{score});
    return body.score(score);
  });
}
