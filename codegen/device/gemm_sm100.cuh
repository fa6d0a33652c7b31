#pragma once
// Matrix multiplication of many rows by tcgen05 on sm_100a. A block stays and takes one tile of C after the
// other: 128 rows and some columns. One thread fills a ring in shared memory with tiles of A and B by TMA,
// 128 bytes along k at a time; one asks for their products, whose sums lie in tensor memory, twice: while a
// tile is multiplied, two warpgroups do the epilogue of the one before.
//
// `Config`:
//   type             of A and B: bf16 or f16; or of A, if it is a byte: f8 or an 8-bit integer
//   type_b           of B, where they are bytes
//   result           the type to which products are rounded before the epilogue takes them: 16 bits; or f32,
//                    or i32, where the epilogue takes the sums
//   tile_n           columns of C of a tile, for each accumulator: a multiple of 32; of all accumulators at
//                    most 256
//   stages           steps in the ring
//   vector           neighbours that the epilogue takes: up to 8, of f32 and i32 up to 2
//   k_major          neighbours in memory of B are neighbours along k, as those of bytes have to be; else
//                    along n, and tile_n is a multiple of 64
//   a_batched, b_batched, batched, matmuls, combined   see tma_tiles.cuh

#include "fragment_epilogue.cuh"
#include "ring_place.cuh"
#include "tcgen05.cuh"
#include "tma_tiles.cuh"

template <class Config, bool Bytes = sizeof(typename Config::type) == 1>
struct TypeOfB {
  using type = typename Config::type;
};
template <class Config>
struct TypeOfB<Config, true> {
  using type = typename Config::type_b;
};

template <class Config>
struct TensorRing {
  using T = typename Config::type;
  using U = typename TypeOfB<Config>::type;
  using Sum = typename mma_accumulator<sizeof(T) == 1 && !is_narrow_float<T>>::type;
  static constexpr int sums = accumulators<Config>, tile_n = Config::tile_n, stages = Config::stages;
  static constexpr int depth = 128 / (int)sizeof(T); ///< along k of a step
  static constexpr int a_size = 128 * depth, b_size = tile_n * depth, stage_size = a_size + sums * b_size;
  /// Warps: those of the epilogue, one that fills the ring, one that asks for products.
  static constexpr int finishers = 8, filler = 8, multiplier = 9, threads = 320;
  static constexpr u32 columns = sums * tile_n;             ///< of the sums of a tile
  static constexpr u32 second = columns <= 128 ? 128 : 256; ///< where those of the other tile begin
  static constexpr u32 allocated = 2 * second;
  static_assert(tile_n % 32 == 0 && columns <= 256, "two tiles of sums in 512 columns");
  static_assert(Config::k_major || (sizeof(T) == 2 && tile_n % 64 == 0), "panels of 64 elements of 16 bits");

  T *tiles;                                 ///< of each stage one of A and `sums` of B
  u64 *full, *empty, *multiplied, *drained; ///< mbarriers: of each stage two, of each tile of sums two

  DEVICE T *a(int stage) const { return tiles + stage * stage_size; }
  DEVICE T *b(int stage) const { return a(stage) + a_size; }
  /// By one thread.
  DEVICE void init() const {
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(full + i, 1);
      mbarrier_init(empty + i, 1);
    }
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(multiplied + i, 1);
      mbarrier_init(drained + i, finishers);
    }
    fence_mbarrier_init();
  }
};

/// By one thread.
template <class Config, class Shape, class... Map>
DEVICE void fill_tensor_ring(GemmTiles<Config, Shape> tiles, const TensorRing<Config> &ring, i32 steps,
                             const Map &...maps) {
  using Block = TensorRing<Config>;
  RingPlace at;
  while (tiles.next())
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
      u64 *full = ring.full + at.stage;
      mbarrier_arrive_expect(full, Block::stage_size * (u32)sizeof(typename Config::type));
      load_step<Config>(ring.a(at.stage), ring.b(at.stage), full, tiles, step * Block::depth, maps...);
      at.template advance<Block::stages>();
    }
  // Products arrive at mbarriers of this block as long as there are some: it does not end before them.
  for (int i = 0; i < Block::stages; ++i) {
    mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
    at.template advance<Block::stages>();
  }
}

/// Asks for the products of a stage.
template <class Config>
DEVICE void multiply_stage(const TensorRing<Config> &ring, int stage, u32 sums, bool add) {
  using Block = TensorRing<Config>;
  using T = typename Config::type;
  constexpr u32 instruction = tcgen05_instruction<T, typename Block::U>(Block::tile_n, Config::k_major);
  constexpr u32 panel = Config::k_major ? 16 : 64 * 128;
  const u32 a = tcgen05_address(ring.a(stage)), b = tcgen05_address(ring.b(stage));
#pragma unroll
  for (u32 k = 0; k < 4; ++k) // 32 bytes along k; else 16 rows of 128
#pragma unroll
    for (u32 s = 0; s < (u32)Block::sums; ++s) {
      const u32 at = b + s * Block::b_size * (u32)sizeof(T) + k * (Config::k_major ? 32 : 16 * 128);
      tcgen05_multiply<T>(sums + s * Block::tile_n, tcgen05_descriptor(a + 32 * k, 16),
                          tcgen05_descriptor(at, panel), instruction, add || k > 0);
    }
}

/// By one thread.
template <class Config, class Shape>
DEVICE void multiply_tensor_tiles(GemmTiles<Config, Shape> tiles, const TensorRing<Config> &ring, i32 steps,
                                  u32 memory) {
  using Block = TensorRing<Config>;
  RingPlace at, sums;
  while (tiles.next()) {
    mbarrier_wait(ring.drained + sums.stage, sums.parity ^ 1);
    tcgen05_fence_after_sync();
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.full + at.stage, at.parity);
      tcgen05_fence_after_sync();
      multiply_stage(ring, at.stage, memory + sums.stage * Block::second, step > 0);
      tcgen05_commit(ring.empty + at.stage);
      at.template advance<Block::stages>();
    }
    tcgen05_commit(ring.multiplied + sums.stage);
    sums.template advance<2>();
  }
}

/// The epilogue of 32 columns of 16 rows of a tile, of every accumulator.
template <class Config, int I, class Epilogue>
struct TensorPiece {
  using Block = TensorRing<Config>;
  static constexpr int sums = Block::sums;
  static constexpr bool rounds = sizeof(typename Config::result) == 2;
  u32 word[sums][4][4];
  TilePlace place;
  ColumnOperands<Config, I, Epilogue> ahead[rounds ? 2 : 1];

  /// Asks for the sums, and for what the epilogue reads of memory.
  template <class Shape>
  DEVICE void load(const Shape &shape, const Epilogue &epilogue, u32 memory) {
#pragma unroll
    for (int s = 0; s < sums; ++s)
      tcgen05_load(word[s], memory + (u32)(s * Block::tile_n));
    if constexpr (rounds)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        ahead[h].load(epilogue, columns_of(shape, h));
  }
  /// When the sums have come.
  template <class Shape, class Scales>
  DEVICE void finish(const Shape &shape, const Scales &scales, const Epilogue &epilogue) const {
    typename Block::Sum acc[4 * sums][4];
    copy_bytes(acc, word, sizeof(acc));
    if constexpr (rounds) {
      const int behind = (i32)lane_id() % 4 * 2;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        u32 words[4 * sums];
#pragma unroll
        for (int i = 0; i < 4 * sums; ++i) {
          f32 pair[2];
#pragma unroll
          for (int e = 0; e < 2; ++e)
            pair[e] = scaled_total<Config>(scales, shape, place, i / 4, h, i % 4 * 8 + behind + e, 0,
                                           acc[i][2 * h + e]);
          words[i] = packed_pair<typename Config::result>(pair[0], pair[1]);
        }
#pragma unroll
        for (int i = 0; i < 4 * sums; i += 4)
          transpose_in_quad(words + i);
        ahead[h].finish(epilogue, columns_of(shape, h), words);
      }
    } else {
      finish_sums<Config, I>(shape, scales, epilogue, acc, place);
    }
  }

private:
  template <class Shape>
  DEVICE EightColumns columns_of(const Shape &shape, int h) const {
    const i64 columns = shape.n(I);
    return {place.row[h], place.column + (i32)lane_id() % 4 * 8, columns, columns};
  }
};

/// A warp's part of the tile's epilogue: 32 rows, and every other 32 columns.
template <class Config, int I = 0, class Shape, class Scales, class Epilogue>
DEVICE void finish_tensor_tile(const GemmTiles<Config, Shape> &tile, const Shape &shape, const Scales &scales,
                               const Epilogue &epilogue, u32 memory, u64 *drained) {
  using Block = TensorRing<Config>;
  if (side_by_side<Config> && tile.matmul != I) {
    if constexpr (side_by_side<Config> && I + 1 < Config::matmuls)
      finish_tensor_tile<Config, I + 1>(tile, shape, scales, epilogue, memory, drained);
    return;
  }
  const int warp = uniform_warp(), rows = warp % 4 * 32;
  const i64 columns = shape.n(I) - tile.column;
  const int end = rows >= tile.rows ? 0 : columns < Block::tile_n ? (int)columns : Block::tile_n;
  const u32 from = memory + ((u32)rows << 16);
  auto release = [&] { // the sums are read
    tcgen05_fence_before_sync();
    warp_barrier();
    if (lane_id() == 0)
      mbarrier_arrive(drained);
  };
  int column = warp / 4 * 32;
  if (column >= end)
    release();
#pragma unroll 1
  for (; column < end; column += 64) {
    TensorPiece<Config, I, Epilogue> piece[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      TilePlace &place = piece[half].place;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = rows + half * 16 + h * 8 + (i32)lane_id() / 4;
        place.row[h] = row < tile.rows ? tile.first() + row : -1;
      }
      place.column = tile.column + column;
      place.matmul = tile.matmul;
      piece[half].load(shape, epilogue, from + ((u32)half << 20) + (u32)column);
    }
    tcgen05_wait_loads();
    if (column + 64 >= end)
      release();
#pragma unroll
    for (int half = 0; half < 2; ++half)
      piece[half].finish(shape, scales, epilogue);
  }
}

/// A map for A, of boxes of 1 x 128 x depth, and one for the B of each matmul: of 1 x tile_n x depth, or,
/// where it is not k_major, 1 x 64 x 64.
template <class Config, class Shape, class Scales, class Epilogue, class... Map>
DEVICE void gemm_sm100(const Shape &shape, i64 batches, const Scales &scales, const Epilogue &epilogue,
                       const TensorMap &map_a, const Map &...maps) {
  using Block = TensorRing<Config>;
  static_assert(sizeof...(Map) == Config::matmuls, "a map for each matmul");
  SHARED(u64, full, Block::stages);
  SHARED(u64, empty, Block::stages);
  SHARED(u64, multiplied, 2);
  SHARED(u64, drained, 2);
  SHARED(u32, address, 1);
  const Block ring{reinterpret_cast<typename Config::type *>(aligned_shared(1024)), full, empty, multiplied,
                   drained};
  const int warp = uniform_warp();
  if (thread_x() == 0) {
    ring.init();
    tma_prefetch_map(map_a);
    (tma_prefetch_map(maps), ...);
  }
  if (warp == Block::multiplier) {
    tcgen05_allocate(address, Block::allocated);
    tcgen05_relinquish();
  }
  pdl_wait();
  pdl_launch_dependents();
  tcgen05_fence_before_sync();
  barrier();
  tcgen05_fence_after_sync();
  const u32 memory = *address;
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth);
  GemmTiles<Config, Shape> tiles(shape, batches);
  if (warp == Block::filler) {
    if (elect_one())
      fill_tensor_ring(tiles, ring, steps, map_a, maps...);
  } else if (warp == Block::multiplier) {
    if (elect_one())
      multiply_tensor_tiles(tiles, ring, steps, memory);
  } else {
    RingPlace sums;
    while (tiles.next()) {
      mbarrier_wait(multiplied + sums.stage, sums.parity);
      tcgen05_fence_after_sync();
      warp_barrier(); // loads are the whole warp's
      finish_tensor_tile<Config>(tiles, shape, scales, epilogue, memory + sums.stage * Block::second,
                                 drained + sums.stage);
      sums.template advance<2>();
    }
  }
  tcgen05_fence_before_sync();
  warp_barrier();
  barrier();
  tcgen05_fence_after_sync();
  if (warp == Block::multiplier)
    tcgen05_free(memory, Block::allocated);
}
