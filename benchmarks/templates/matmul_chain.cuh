#pragma once
// The kernel of matmul_chain.cu: a thread of each block streams the weights of all layers through shared memory
// and waits for no results; rows of A are asked for by another thread, as soon as all blocks have told in a
// counter that they are there.

#include "gemm.cuh"
#include "gemm_swap_ab.cuh"

namespace chain {

constexpr int width = 2048, inner = 8192, heads = 3072, layers = 16;
constexpr int tiles_of_heads = heads / 64;
constexpr int parts = 4, head_parts = 2; ///< blocks that share out K of a tile
constexpr int blocks = 128, box = 64 * 64, weights_of_stage = 2 * box;

enum Counter { Output, OutputNorm, Gate, Down, DownNorm, Heads, Mixed, Counters };
constexpr int counter_pitch = 32; ///< each in a line of its own

struct Maps {
  TensorMap output, gate, up, down, heads; ///< of weights: layers side by side
  TensorMap mixed, normed, activated;      ///< of rows
};
struct Buffers {
  bf16 *x, *mixed, *normed, *activated; ///< rows of width, but of inner in activated
  f32 *sums, *head_sums;                ///< [parts][rows][columns]
  const bf16 *scale;                    ///< of all norms
  u32 *counters;
};

/// A matmul's share of a block. Steps are of 128 bytes along k of two tiles, or of 256 bytes of one.
struct Share {
  bool any;
  int tile, part, steps;
};
DEVICE Share share_of(Counter matmul, int block) {
  switch (matmul) {
  case Output:
    return {true, block / parts, block % parts, width / parts / 128};
  case Gate:
    return {true, block, 0, width / 64};
  case Down:
    return {true, block / parts, block % parts, inner / parts / 128};
  default:
    return {block < tiles_of_heads * head_parts, block / head_parts, block % head_parts,
            width / head_parts / 128};
  }
}
/// Calls `visit(layer, matmul, share)` for what a block multiplies, in order.
template <class Visit>
DEVICE void for_matmuls(int block, const Visit &visit) {
#pragma unroll 1
  for (int layer = 0; layer < layers; ++layer) {
    constexpr Counter order[] = {Output, Gate, Down, Heads};
#pragma unroll
    for (Counter matmul : order) {
      const Share share = share_of(matmul, block);
      if (share.any)
        visit(layer, matmul, share);
    }
  }
}

DEVICE void tell(u32 *counter) {
  asm volatile("fence.proxy.async;\n"
               "red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter)
               : "memory");
}
DEVICE void await(const u32 *counter, u32 count) {
  u32 seen;
  do
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  while (seen < count);
  asm volatile("fence.proxy.async;" ::: "memory");
}
/// Of the warps that multiply.
DEVICE void meet_multipliers() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

/// `Rows`: of A, a multiple of 8. `OnTheirWay`: stages of weights that are asked for at a time. `Waits`: for
/// results, that they are right.
template <int Rows, int Stages, int RowStages, int OnTheirWay, bool Waits>
struct Chain {
  static constexpr int groups = Rows / 8, row_box = Rows * 64, rows_of_stage = 2 * row_box;
  static constexpr u32 shared = Stages * weights_of_stage * 2 + RowStages * rows_of_stage * 2 + 1024;

  const Maps &maps;
  const Buffers &buffers;
  const int m;
  bf16 *ring, *row_ring;
  u64 *full, *empty, *rows_full, *rows_empty;

  DEVICE u32 *counter(int layer, Counter which) const {
    return buffers.counters + (layer * Counters + which) * counter_pitch;
  }
  DEVICE u32 count_of(Counter which) const {
    switch (which) {
    case Output:
    case Gate:
    case Down:
      return blocks;
    case Heads:
      return tiles_of_heads * head_parts;
    default:
      return (u32)m;
    }
  }
  DEVICE void await_all(int layer, Counter which) const {
    if (Waits)
      await(counter(layer, which), count_of(which));
  }

  DEVICE void stream_weights() const {
    RingPlace at, oldest;
    int asked = 0;
    bool again = false;
    for_matmuls((int)block_x(), [&](int layer, Counter matmul, const Share &share) {
#pragma unroll 1
      for (int step = 0; step < share.steps; ++step) {
        if (again)
          mbarrier_wait(empty + at.stage, at.parity ^ 1);
        if (asked == OnTheirWay) {
          mbarrier_wait(full + oldest.stage, oldest.parity);
          oldest.template advance<Stages>();
        } else {
          ++asked;
        }
        mbarrier_arrive_expect(full + at.stage, weights_of_stage * 2);
        bf16 *to = ring + at.stage * weights_of_stage;
        if (matmul == Gate) {
          tma_load_tile_once(to, maps.gate, full + at.stage, 64 * step, layer * inner + 64 * share.tile);
          tma_load_tile_once(to + box, maps.up, full + at.stage, 64 * step, layer * inner + 64 * share.tile);
        } else {
          const TensorMap &map = matmul == Output ? maps.output : matmul == Down ? maps.down : maps.heads;
          const int k = (share.part * share.steps + step) * 128;
          const int row = layer * (matmul == Heads ? heads : width) + 64 * share.tile;
          tma_load_tile_once(to, map, full + at.stage, k, row);
          tma_load_tile_once(to + box, map, full + at.stage, k + 64, row);
        }
        at.template advance<Stages>();
        again = again || at.stage == 0;
      }
    });
  }

  DEVICE void ask_rows() const {
    RingPlace at;
    bool again = false;
    for_matmuls((int)block_x(), [&](int layer, Counter matmul, const Share &share) {
      if (matmul == Output && layer > 0)
        await_all(layer - 1, Mixed);
      else if (matmul == Gate)
        await_all(layer, OutputNorm);
      else if (matmul == Down)
        await_all(layer, Gate);
      else if (matmul == Heads)
        await_all(layer, DownNorm);
      const TensorMap &map = matmul == Output ? maps.mixed : matmul == Down ? maps.activated : maps.normed;
      const int boxes = matmul == Gate ? 1 : 2;
#pragma unroll 1
      for (int step = 0; step < share.steps; ++step) {
        if (again)
          mbarrier_wait(rows_empty + at.stage, at.parity ^ 1);
        mbarrier_arrive_expect(rows_full + at.stage, (u32)boxes * row_box * 2);
        for (int b = 0; b < boxes; ++b)
          tma_load_tile(row_ring + at.stage * rows_of_stage + b * row_box, map, rows_full + at.stage,
                        ((share.part * share.steps + step) * boxes + b) * 64, 0);
        at.template advance<RowStages>();
        again = again || at.stage == 0;
      }
    });
  }

  DEVICE void multiply() const {
    RingPlace at, rows_at;
    for_matmuls_and_rows(at, rows_at);
  }

private:
  using Sums = f32[2][groups][4];

  /// Of a gate and up: two tiles; else the sums of two halves of each step, added.
  DEVICE void products(Sums &sums, RingPlace &at, RingPlace &rows_at, int steps, bool two_tiles) const {
    const bool leads = lane_id() == 0;
    int before = 0, rows_before = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(full + at.stage, at.parity);
      mbarrier_wait(rows_full + rows_at.stage, rows_at.parity);
      const u64 weights = wgmma_descriptor(ring + at.stage * weights_of_stage, 1024);
      const u64 rows = wgmma_descriptor(row_ring + rows_at.stage * rows_of_stage, 1024);
      const u64 other_rows = two_tiles ? rows : wgmma_advance(rows, row_box * 2);
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        wgmma_rows<bf16>(sums[0], wgmma_advance(weights, k * 32), wgmma_advance(rows, k * 32), step + k > 0);
        wgmma_rows<bf16>(sums[1], wgmma_advance(weights, box * 2 + k * 32), wgmma_advance(other_rows, k * 32),
                         step + k > 0);
      }
      warpgroup_commit();
      warpgroup_wait<1>();
      if (step > 0 && leads) {
        mbarrier_arrive(empty + before);
        mbarrier_arrive(rows_empty + rows_before);
      }
      before = at.stage;
      rows_before = rows_at.stage;
      at.template advance<Stages>();
      rows_at.template advance<RowStages>();
    }
    warpgroup_wait<0>();
    fence_operand(sums[0]);
    fence_operand(sums[1]);
    if (leads) {
      mbarrier_arrive(empty + before);
      mbarrier_arrive(rows_empty + rows_before);
    }
  }

  /// Calls `store(row, column, first sum, second)`.
  template <class Store>
  DEVICE void for_sums(const Sums &sums, int tile, const Store &store) const {
    const int warp = (int)thread_x() / 32, lane = (int)lane_id();
#pragma unroll
    for (int j = 0; j < groups; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 8 * j + lane % 4 * 2 + e % 2, column = 64 * tile + 16 * warp + lane / 4 + e / 2 * 8;
        if (row < m)
          store(row, column, sums[0][j][e], sums[1][j][e]);
      }
  }
  DEVICE void tell_all(int layer, Counter which) const {
    meet_multipliers();
    if (thread_x() == 0)
      tell(counter(layer, which));
  }
  DEVICE void meet_after(int layer, Counter which) const {
    if (thread_x() == 0)
      await_all(layer, which);
    meet_multipliers();
  }

  DEVICE void for_matmuls_and_rows(RingPlace &at, RingPlace &rows_at) const {
    const int block = (int)block_x(), row = block * m / blocks;
    const bool has_row = block == (row * blocks + m - 1) / m && row < m; // spread over the blocks
#pragma unroll 1
    for (int layer = 0; layer < layers; ++layer) {
      matmul(layer, Output, at, rows_at);
      if (has_row)
        add_and_norm(layer, Output, OutputNorm, row);
      matmul(layer, Gate, at, rows_at);
      matmul(layer, Down, at, rows_at);
      if (has_row)
        add_and_norm(layer, Down, DownNorm, row);
      matmul(layer, Heads, at, rows_at);
      if (has_row)
        mix(layer, row);
    }
  }

  DEVICE void matmul(int layer, Counter which, RingPlace &at, RingPlace &rows_at) const {
    const Share share = share_of(which, (int)block_x());
    if (!share.any)
      return;
    Sums sums;
    products(sums, at, rows_at, share.steps, which == Gate);
    if (which == Gate)
      for_sums(sums, share.tile, [&](int row, int column, f32 gate, f32 up) {
        const f32 g = to_f32(from_f32<bf16>(gate)), u = to_f32(from_f32<bf16>(up));
        buffers.activated[row * inner + column] = from_f32<bf16>(g / (1.f + __expf(-g)) * u);
      });
    else
      for_sums(sums, share.tile, [&](int row, int column, f32 first, f32 second) {
        const int columns = which == Heads ? heads : width;
        f32 *to = which == Heads ? buffers.head_sums : buffers.sums;
        to[((i64)share.part * m + row) * columns + column] = first + second;
      });
    tell_all(layer, which);
  }

  DEVICE void add_and_norm(int layer, Counter after, Counter which, int row) const {
    constexpr int each = width / 128;
    SHARED(f32, squares, 4);
    f32 x[each], square = 0;
    bf16 *residual = buffers.x + row * width;
#pragma unroll
    for (int i = 0; i < each; i += 4) {
      const Vec<bf16, 4> old = load_vec<bf16, 4>(residual + i * 128 + (int)thread_x() * 4);
      for (int v = 0; v < 4; ++v)
        x[i + v] = to_f32(old[v]);
    }
    meet_after(layer, after);
#pragma unroll
    for (int i = 0; i < each; i += 4) {
      const int column = i * 128 + (int)thread_x() * 4;
      Vec<f32, 4> part[parts];
      for (int p = 0; p < parts; ++p)
        part[p] = load_vec<f32, 4>(buffers.sums + ((i64)p * m + row) * width + column);
      Vec<bf16, 4> rounded;
      for (int v = 0; v < 4; ++v) {
        const f32 sum = part[0][v] + part[1][v] + part[2][v] + part[3][v];
        rounded[v] = from_f32<bf16>(x[i + v] + to_f32(from_f32<bf16>(sum)));
        x[i + v] = to_f32(rounded[v]);
        square += x[i + v] * x[i + v];
      }
      store_vec<bf16, 4>(residual + column, rounded);
    }
    for (int distance = 16; distance > 0; distance /= 2)
      square += __shfl_xor_sync(~0u, square, distance);
    if (lane_id() == 0)
      squares[thread_x() / 32] = square;
    meet_multipliers();
    const f32 factor = rsqrtf((squares[0] + squares[1] + squares[2] + squares[3]) / width + 1e-5f);
#pragma unroll
    for (int i = 0; i < each; i += 4) {
      const int column = i * 128 + (int)thread_x() * 4;
      const Vec<bf16, 4> scale = load_vec<bf16, 4>(buffers.scale + column);
      Vec<bf16, 4> normed;
      for (int v = 0; v < 4; ++v)
        normed[v] = from_f32<bf16>(to_f32(from_f32<bf16>(x[i + v] * factor)) * to_f32(scale[v]));
      store_vec<bf16, 4>(buffers.normed + row * width + column, normed);
    }
    tell_all(layer, which);
  }
  /// In the place of attention: the rows of the next layer are the first heads.
  DEVICE void mix(int layer, int row) const {
    meet_after(layer, Heads);
    for (int column = (int)thread_x() * 4; column < width; column += 512) {
      Vec<bf16, 4> mixed;
      const Vec<f32, 4> a = load_vec<f32, 4>(buffers.head_sums + (i64)row * heads + column),
                        b = load_vec<f32, 4>(buffers.head_sums + ((i64)m + row) * heads + column);
      for (int v = 0; v < 4; ++v)
        mixed[v] = from_f32<bf16>(a[v] + b[v]);
      store_vec<bf16, 4>(buffers.mixed + row * width + column, mixed);
    }
    tell_all(layer, Mixed);
  }
};

template <int Rows, int Stages, int RowStages, int OnTheirWay, bool Waits>
__global__ __launch_bounds__(192, 1) void run(const GRID_CONSTANT Maps maps, Buffers buffers, int m) {
  SHARED(u64, full, Stages);
  SHARED(u64, empty, Stages);
  SHARED(u64, rows_full, RowStages);
  SHARED(u64, rows_empty, RowStages);
  bf16 *ring = reinterpret_cast<bf16 *>(aligned_shared(1024));
  if (thread_x() == 0) {
    for (int i = 0; i < Stages; ++i) {
      mbarrier_init(full + i, 1);
      mbarrier_init(empty + i, 4);
    }
    for (int i = 0; i < RowStages; ++i) {
      mbarrier_init(rows_full + i, 1);
      mbarrier_init(rows_empty + i, 4);
    }
    fence_mbarrier_init();
  }
  barrier();
  const Chain<Rows, Stages, RowStages, OnTheirWay, Waits> chain{
      maps, buffers, m, ring, ring + Stages * weights_of_stage, full, empty, rows_full, rows_empty};
  const int warp = shuffle_index((i32)thread_x() / 32, 0);
  if (warp < 4)
    chain.multiply();
  else if (lane_id() == 0 && warp == 4)
    chain.stream_weights();
  else if (lane_id() == 0)
    chain.ask_rows();
}

} // namespace chain
