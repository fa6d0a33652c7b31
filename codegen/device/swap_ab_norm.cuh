#pragma once
// The RMS norm in front of gemm_swap_ab where the sums of squares of A's rows are there already: the kernel
// before has stored them (squares_epilogue.cuh). TMA brings rows of A as they are; warps of their own
// normalise them in the ring, before they are multiplied.
//
// Norm:
//   Weight               type of the norm's weight
//   weight()             pointer to it, which no kernel before this one writes, at a multiple of 16 bytes
//   parts                sums of squares of each row, one of every 64 columns of A
//   squares              pointer to them, row after row
//   scale(sum)           what multiplies a row whose squares sum up so
//   normalise(x, scale, weights)   of 8 neighbours: Vec<type, 8>

#include "meet.cuh"
#include "proxy.cuh"
#include "swap_ab_ring.cuh"

/// One of the warps that normalise. Teams of four take stages in turn. Of each box of a stage, 64 elements
/// along k of each row, a warp of the team has groups of 8 rows, always the same ones; where there are fewer
/// groups than warps, some of the boxes.
template <class Config, class Norm>
struct NormWarp {
  using Block = SwapAB<Config>;
  using T = typename Config::type;
  using Weight = typename Norm::Weight;
  static constexpr int warps = 4, teams = Block::norm_warps / warps, groups = Block::groups;
  static constexpr int warps_abreast = groups < warps ? groups : warps; ///< with other groups of rows
  static constexpr int own_groups = groups / warps_abreast;
  static constexpr int every_box = warps / warps_abreast; ///< its boxes: one of so many
  static constexpr int own_boxes = (Block::boxes + every_box - 1) / every_box;
  static constexpr int parts = Norm::parts, width = parts % 16 == 0 ? 4 : 1;
  static constexpr int own_parts =
      (parts / width + 3) / 4; ///< vectors of a row that each of four lanes adds up
  const Norm &norm;
  Weight *weights;          ///< in shared memory, of all columns that the block's steps may have
  int team, number;         ///< of the warp in its team
  f32 scale[own_groups][2]; ///< of rows lane / 8 and lane / 8 + 4 of a group

  /// Before B is asked for, behind which the weights would come late. Beyond K they are zero, as A is there.
  DEVICE void ask_weights(const SwapWork &work, i64 k) const {
    constexpr int at_once = 16 / (int)sizeof(Weight);
    const i64 first = (i64)work.first * Block::depth;
    for (int i = (32 * (team * warps + number) + (int)lane_id()) * at_once; i < work.steps * Block::depth;
         i += 32 * Block::norm_warps * at_once) {
      const bool is_there = first + i < k;
      cp_async_16(weights + i, norm.weight() + (is_there ? first + i : 0), is_there);
    }
    cp_async_commit();
  }
  /// The scales of its rows, each found by four lanes; then the weights are there, too. `met`: an mbarrier of
  /// these warps.
  DEVICE void find_scales(i64 m, u64 *met) {
    const int lane = (int)lane_id();
    Vec<f32, width> part[own_groups][own_parts];
#pragma unroll
    for (int g = 0; g < own_groups; ++g) {
      const i64 row = first_row(g) + lane / 4;
      const f32 *from = norm.squares + row * parts;
#pragma unroll
      for (int i = 0; i < own_parts; ++i) {
        const int at = (4 * i + lane % 4) * width;
        part[g][i] = row < m && at < parts ? load_vec<f32, width>(from + at) : Vec<f32, width>{};
      }
    }
    cp_async_wait<0>();
    u32 phase = 0;
    meet_warps(met, phase);
#pragma unroll
    for (int g = 0; g < own_groups; ++g) {
      f32 sum = 0.f;
#pragma unroll
      for (int i = 0; i < own_parts; ++i)
#pragma unroll
        for (int e = 0; e < width; ++e)
          sum += part[g][i][e];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      const f32 found = norm.scale(sum);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        scale[g][half] = shuffle_index(found, lane / 8 * 4 + 16 * half);
    }
  }
  /// Its part of a stage's rows, which lie as TMA swizzles them. `k`: the step's first column, from the
  /// block's first.
  DEVICE void normalise(T *stage_rows, int k) const {
    const int lane = (int)lane_id(), chunk = lane % 8;
    Vec<T, 8> x[own_boxes][own_groups][2];
    Vec<Weight, 8> weight[own_boxes];
    auto place = [&](int b, int g, int half) {
      const int row = first_row(g) + 4 * half + lane / 8;
      return stage_rows + box(b) * Block::row_box + row * 64 + (chunk ^ row % 8) * 8;
    };
#pragma unroll
    for (int b = 0; b < own_boxes; ++b)
      if (has(b)) {
        weight[b] = load_vec<Weight, 8>(weights + k + box(b) * 64 + 8 * chunk);
#pragma unroll
        for (int g = 0; g < own_groups; ++g)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            x[b][g][half] = load_vec<T, 8>(place(b, g, half));
      }
#pragma unroll
    for (int b = 0; b < own_boxes; ++b)
      if (has(b))
#pragma unroll
        for (int g = 0; g < own_groups; ++g)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            store_vec<T, 8>(place(b, g, half), norm.normalise(x[b][g][half], scale[g][half], weight[b]));
  }

private:
  DEVICE int box(int b) const { return b * every_box + number / warps_abreast; }
  DEVICE bool has(int b) const { return Block::boxes % every_box == 0 || box(b) < Block::boxes; }
  DEVICE int first_row(int g) const { return 8 * (g * warps_abreast + number % warps_abreast); }
};

struct NoNormWarp {};
template <class Config, class Norm>
DEVICE auto norm_warp(const Norm &norm, typename Config::type *weights, int number) {
  if constexpr (Config::norm_warps > 0)
    return NormWarp<Config, Norm>{
        norm, reinterpret_cast<typename Norm::Weight *>(weights), number / 4, number % 4, {}};
  else
    return NoNormWarp();
}
/// The mbarriers of stages' rows that are normalised, and of those that have come. By a warp.
template <class Block>
DEVICE void init_stages(u64 *ready, u64 *full_rows) {
  if (lane_id() < (u32)Block::stages) {
    mbarrier_init(ready + lane_id(), 4);
    mbarrier_init(full_rows + lane_id(), 1);
  }
  fence_mbarrier_init();
}

/// Normalises rows of the block's steps, by a warp whose scales are known. A stage is always the same team's:
/// see for_own_steps().
template <class Warp, class T>
DEVICE void normalise_rows(const Warp &warp, T *ring, u64 *full_rows, u64 *ready, const SwapWork &work) {
  using Block = typename Warp::Block;
  RingPlace at;
  for (i64 tile = work.tile; tile < work.tiles; tile += work.stride)
#pragma unroll 1
    for (int step = 0; step < work.steps; ++step, at.template advance<Block::stages>()) {
      if (at.stage % Warp::teams != warp.team)
        continue;
      mbarrier_wait(full_rows + at.stage, at.parity);
      warp.normalise(ring + at.stage * Block::stage_size + Block::weights_size, step * Block::depth);
      fence_proxy_async();
      warp_barrier();
      if (lane_id() == 0)
        mbarrier_arrive(ready + at.stage);
    }
}
