#pragma once
// The vectors of neighbouring columns that a thread of gemm_swap_ab stores of a tile, and what is read of
// memory for them: asked for before the products, it comes meanwhile.

#include "epilogue_operands.cuh"
#include "scaled_sums.cuh"
#include "swap_ab_parts.cuh"

/// Where a thread has so few that what is read for all of them stays in registers.
template <class Config>
constexpr bool few_vectors = SwapAB<Config>::vectors <= 4;

/// Visits those of a tile, and of as many groups of 8 rows as lie in shared memory at once, from the block's
/// own group `part` on: the number among all of the thread's, row and column there, row of C, column of the
/// block.
template <class Config, class Visit>
DEVICE void for_vectors(int tile, int part, int rank, const Visit &visit) {
  using Block = SwapAB<Config>;
  constexpr int count = Block::staged_vectors, turns = (count + 31) / 32, per_row = 16 / Config::vector;
  constexpr int unrolled = few_vectors<Config> ? turns : 1; // all places at once take registers
  const int warp = (int)thread_x() / 32;
#pragma unroll unrolled
  for (int turn = 0; turn < turns; ++turn) {
    const int i = 32 * turn + (int)lane_id(), r = i / per_row, c = i % per_row * Config::vector;
    if (count % 32 == 0 || i < count)
      visit(tile * (Block::vectors / Config::tiles) + part / Block::staged_groups * turns + turn, r, c,
            ((part + r / 8) * Block::split + rank) * 8 + r % 8, 64 * tile + 16 * warp + c);
  }
}

/// Scales that differ along k have multiplied the sums step by step.
template <class Config, class Scales>
DEVICE auto scales_after_steps(const Scales &scales) {
  if constexpr (Config::scaled_steps)
    return Unscaled();
  else
    return scales;
}

/// What the epilogue reads for a thread's vectors, and the scales of their sums. Of many vectors it is read
/// when it is needed.
template <class Config, class Scales, class Epilogue, bool MakesHeads = makes_heads<Epilogue>>
struct SwapOperands {
  using Block = SwapAB<Config>;
  static constexpr int vectors = Block::vectors, width = Config::vector, sums = Block::sums;
  static constexpr bool few = few_vectors<Config>;
  static constexpr bool reads_ahead = few && vectors * (side_by_side<Config> ? Config::matmuls : 1) <= 4;
  static constexpr bool scales_ahead = few && vectors * sums * width <= 16;
  EpilogueOperands<Config, Epilogue, reads_ahead ? vectors : 1> operands;
  ScalesOf<Scales, width> factors[scales_ahead ? vectors : 1][sums];

  template <class Shape>
  DEVICE void read(const Shape &shape, const Scales &scales, const Epilogue &epilogue,
                   const BlockPlace &place, int rank) {
    const i64 m = shape.m(), n = shape.n(place.matmul);
    auto take = [&](int number, int, int, i64 row, int column_of_block) {
      const i64 column = place.column + column_of_block;
      if (row >= m || column >= n)
        return;
      if constexpr (reads_ahead)
        operands.read(number, epilogue, place, row, column);
      if constexpr (scales_ahead)
        read_scales(factors[number], scales, place, row, column);
    };
    if constexpr (reads_ahead || scales_ahead)
#pragma unroll
      for (int tile = 0; tile < Config::tiles; ++tile)
#pragma unroll
        for (int part = 0; part < Block::own_groups; part += Block::staged_groups)
          for_vectors<Config>(tile, part, rank, take);
  }
  /// The epilogue of vector `number`.
  template <class Shape, class Total>
  DEVICE void finish(int number, const Shape &shape, const Scales &scales, const Epilogue &epilogue,
                     const BlockPlace &place, i64 row, i64 column, const Vec<Total, width> (&exact)[sums]) {
    ScalesOf<Scales, width> late[sums];
    if constexpr (!scales_ahead)
      read_scales(late, scales, place, row, column);
    Vec<decltype(late[0].scaled(0, exact[0][0])), width> results[sums];
#pragma unroll
    for (int s = 0; s < sums; ++s)
#pragma unroll
      for (int v = 0; v < width; ++v)
        results[s][v] = (scales_ahead ? factors[number] : late)[s].scaled(v, exact[s][v]);
    if constexpr (!reads_ahead)
      operands.read(0, epilogue, place, row, column);
    operands.finish(reads_ahead ? number : 0, epilogue, shape, place, row, column, results);
  }

private:
  static DEVICE void read_scales(ScalesOf<Scales, width> (&to)[sums], const Scales &scales,
                                 const BlockPlace &place, i64 row, i64 column) {
#pragma unroll
    for (int s = 0; s < sums; ++s)
      to[s].read(scales, place.matmul + s, row, column);
  }
};
/// Heads are made of the block's tile, not of a thread's vectors.
template <class Config, class Scales, class Epilogue>
struct SwapOperands<Config, Scales, Epilogue, true> {
  template <class Shape>
  DEVICE void read(const Shape &, const Scales &, const Epilogue &, const BlockPlace &, int) {}
};
