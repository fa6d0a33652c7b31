#pragma once
// Products of a few routed rows without tensor cores. Every row reads its expert's matrix itself, and no
// block looks for the rows of an expert: that pays where two rows seldom choose the same. B's rows (the
// columns of C) are contiguous along k. A warp computes some neighbouring columns of one row at a time, and
// what it multiplies next, of the next columns too, is on its way meanwhile.

#include "expert.cuh"
#include "gemv_warp.cuh"

/// The most rows, or slots: a lane of a warp knows the expert of each.
constexpr int most_gemv_rows = 32;

/// Moves to columns of an expert.
template <class Warp, class B>
DEVICE void move_to_expert(Warp &warp, const B &b, i64 expert, i64 column) {
  B own = b;
  own.expert = expert;
  warp.move_to(own, expert, column);
}

/// The expert of row `first + lane` of `count`.
template <class Routing>
DEVICE i32 expert_of_lane(const Routing &routing, i64 first, i64 count) {
  const i64 lane = lane_id();
  return lane < count ? (i32)expert_of(routing, first + lane) : 0;
}

/// `Config`: see GemvWarp, and
///   kept_row          elements of the one row of A that all rows are, which no kernel just before writes: it
///                     lies in shared memory before the experts are known; 0: rows are read where they are
/// All columns of all rows, in equal parts for the warps of the grid. There are most_gemv_rows at most.
template <class Config, class Shape, class A, class B, class Routing, class Epilogue>
DEVICE void expert_gemv(const Shape &shape, const A &a, const B &b, const Routing &routing,
                        const Epilogue &epilogue) {
  constexpr int columns = Config::columns;
  static_assert(Config::k_split == 1, "a warp has whole columns");
  using Warp = GemvWarp<Config, Shape, A, B>;
  const u32 tiles = (u32)(shape.n(0) / columns), all = (u32)routing.rows() * tiles;
  const u32 warps = grid_dim_x() * Config::warps, warp = block_x() * Config::warps + warp_id();
  const u32 share = all / warps, left = all % warps;
  u32 at = warp * share + (warp < left ? warp : left);
  const u32 end = at + share + (warp < left ? 1 : 0);
  constexpr int threads = 32 * Config::warps, length = Config::vector;
  using Element = typename A::element;
  SHARED(Element, kept, Config::kept_row > 0 ? Config::kept_row : length);
  if constexpr (Config::kept_row > 0) {
    for (int k = (int)thread_x() * length; k < Config::kept_row; k += threads * length)
      store_vec<Element, length>(kept + k, load_early_vec<Element, length>(a.matrix(0, 0) + k));
    barrier();
  }
  if (!Config::weights_before_wait)
    pdl_wait();
  const i32 experts = expert_of_lane(routing, 0, routing.rows());
  Warp work(shape, a, b, 0);
  auto move = [&](u32 to) {
    move_to_expert(work, b, shuffle_index(experts, (int)(to / tiles)), (i64)(to % tiles) * columns);
  };
  if (at < end) {
    move(at);
    work.request_first();
  }
  if (Config::weights_before_wait)
    pdl_wait();
  pdl_launch_dependents(); // all blocks are on the GPU at once
#pragma unroll 1
  for (; at < end; ++at) {
    f32 sum[columns][Warp::sums] = {};
    const i64 row = at / tiles, column = (i64)(at % tiles) * columns;
    const auto advance = [&] {
      const bool more = at + 1 < end;
      if (more)
        move(at + 1);
      return more;
    };
    if constexpr (Config::kept_row > 0)
      work.multiply([&](i64 k) { return load_vec<Element, length>(kept + k); }, sum, advance);
    else
      work.multiply(row, sum, advance);
    Vec<f32, 1> totals[Warp::sums];
    column_sums(sum, totals);
    if ((int)lane_id() < columns)
      finish<Config>(epilogue, Matmul<0>(), shape, 0, row, column + lane_id(), totals);
  }
}

/// The same with the sum over a token's slots. A block has some columns of a token; its warps share out the
/// slots, which are added up in order.
/// `Config` also has: slots, most_gemv_rows at most.
/// `products`: the epilogue of the products; it hands out one value of a row and column.
/// `epilogue`: that of the sum.
template <class Config, class Shape, class A, class B, class Routing, class Products, class Epilogue>
DEVICE void expert_gemv_sum(const Shape &shape, const A &a, const B &b, const Routing &routing,
                            const Products &products, const Epilogue &epilogue) {
  constexpr int columns = Config::columns, slots = Config::slots, k_split = Config::k_split,
                strides = Config::warps / k_split;
  using Warp = GemvWarp<Config, Shape, A, B>;
  static_assert(Warp::sums == 1 && columns <= 32 && Config::warps % k_split == 0, "a sum of one product");
  SHARED(f32, partial, slots * k_split * columns);
  const u32 tiles = (u32)(shape.n(0) / columns);
  const i64 token = block_x() / tiles, column = (i64)(block_x() % tiles) * columns;
  const int split = (int)warp_id() % k_split, lane = (int)lane_id();
  int slot = (int)warp_id() / k_split;
  if (!Config::weights_before_wait)
    pdl_wait();
  const i32 experts = expert_of_lane(routing, token * slots, slots);
  Warp work(shape, a, b, split);
  if (slot < slots) {
    move_to_expert(work, b, shuffle_index(experts, slot), column);
    work.request_first();
  }
  if (Config::weights_before_wait)
    pdl_wait();
  pdl_launch_dependents();
#pragma unroll 1
  for (; slot < slots; slot += strides) {
    f32 sum[columns][1] = {};
    work.multiply(token * slots + slot, sum, [&] {
      const bool more = slot + strides < slots;
      if (more)
        move_to_expert(work, b, shuffle_index(experts, slot + strides), column);
      return more;
    });
    Vec<f32, 1> totals[1];
    column_sums(sum, totals);
    if constexpr (k_split == 1) // loads of scalar ops are waited for here, while others multiply
      if (lane < columns)
        products(Matmul<0>(), token * slots + slot, column + lane, totals, TakeValue{totals[0][0]});
    if (lane < columns)
      partial[(slot * k_split + split) * columns + lane] = totals[0][0];
  }
  barrier();
  if constexpr (k_split > 1) {
    constexpr int threads = 32 * Config::warps;
#pragma unroll 1
    for (int i = (int)thread_x(); i < slots * columns; i += threads) {
      f32 *of = partial + (i / columns * k_split * columns + i % columns);
      Vec<f32, 1> totals[1] = {};
#pragma unroll
      for (int w = 0; w < k_split; ++w)
        totals[0][0] += of[w * columns];
      products(Matmul<0>(), token * slots + i / columns, column + i % columns, totals, TakeValue{of[0]});
    }
    barrier();
  }
  if ((int)thread_x() < columns) {
    Vec<f32, 1> total[1] = {};
#pragma unroll
    for (int s = 0; s < slots; ++s)
      total[0][0] += partial[s * k_split * columns + thread_x()];
    const i64 at = column + thread_x();
    epilogue(Matmul<0>(), token, at, total, StoreAt<1>{token * shape.n(0) + at});
  }
}
