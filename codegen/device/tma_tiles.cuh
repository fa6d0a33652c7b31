#pragma once
// Tiles of C that a block takes one after the other, 128 rows and Config::tile_n columns, and how one thread
// asks TMA for what they are made of, in tiles of 128 bytes along k.
//
// `Config`:
//   type, tile_n, k_major  see gemm_ring.cuh
//   a_batched, b_batched   A, or B, is another one for each z; else the same
//   batched, matmuls, combined

#include "gemm.cuh"
#include "tma.cuh"

template <class Config, class Shape>
struct GemmTiles {
  static constexpr int tile_m = 128, tile_n = Config::tile_n;
  /// So many tiles along m pass along n together: what they read stays in the L2.
  static constexpr i32 band = 16;
  const Shape &shape;
  const i32 high, wide;                       ///< tiles along m, and along n, of all matmuls
  const i32 all;                              ///< tiles of all batches
  i32 tile;                                   ///< the next one
  i32 row = 0, column = 0, z = 0, matmul = 0; ///< the tile's first
  i32 rows = 0;

  DEVICE GemmTiles(const Shape &shape, i64 batches)
      : shape(shape), high((i32)ceil_div(shape.m(), tile_m)), wide(tiles_along_n(shape)),
        all(high * wide * (i32)batches), tile((i32)block_x()) {}

  DEVICE bool next() {
    if (tile >= all)
      return false;
    i32 at = tile;
    if constexpr (Config::batched) {
      z = tile / (high * wide);
      at -= z * high * wide;
    }
    const i32 bands = at / (band * wide), in_band = at - bands * band * wide, left = high - bands * band,
              lines = left < band ? left : band, across = in_band / lines;
    row = (bands * band + in_band - across * lines) * tile_m;
    place_column(across);
    const i64 behind = shape.m() - row;
    rows = behind < tile_m ? (i32)behind : tile_m;
    tile += (i32)grid_dim_x();
    return true;
  }
  /// Of all rows of all batches, the tile's first.
  DEVICE i32 first() const { return z * (i32)shape.m() + row; }

private:
  static DEVICE i32 tiles_along_n(const Shape &shape) {
    i64 tiles = 0;
#pragma unroll
    for (int i = 0; i < (side_by_side<Config> ? Config::matmuls : 1); ++i)
      tiles += ceil_div(shape.n(i), tile_n);
    return (i32)tiles;
  }
  DEVICE void place_column(i32 across) {
    matmul = 0;
    if constexpr (side_by_side<Config>) {
      i32 end = 0, first = 0;
#pragma unroll
      for (int i = 0; i + 1 < Config::matmuls; ++i) {
        end += (i32)ceil_div(shape.n(i), tile_n);
        if (across >= end) {
          matmul = i + 1;
          first = end;
        }
      }
      across -= first;
    }
    column = across * tile_n;
  }
};

/// Asks for columns from `column` on of a matrix B, from k on.
template <class Config>
DEVICE void load_columns(typename Config::type *to, const TensorMap &map, u64 *full, i32 k, i32 column,
                         i32 z) {
  constexpr int depth = 128 / (int)sizeof(typename Config::type);
  if constexpr (Config::k_major) {
    tma_load_tile(to, map, full, k, column, z);
  } else {
#pragma unroll
    for (int panel = 0; panel < Config::tile_n / 64; ++panel)
      tma_load_tile(to + panel * 64 * depth, map, full, column + panel * 64, k, z);
  }
}

/// Asks for a tile's rows of A and columns of B, or of each B where they are combined, from k on.
template <class Config, class Shape, class... Map>
DEVICE void load_step(typename Config::type *a, typename Config::type *b, u64 *full,
                      const GemmTiles<Config, Shape> &tiles, i32 k, const TensorMap &map_a,
                      const Map &...maps) {
  constexpr int b_size = Config::tile_n * 128 / (int)sizeof(typename Config::type);
  tma_load_tile(a, map_a, full, k, tiles.row, Config::a_batched ? tiles.z : 0);
  int number = 0;
  auto load = [&](const TensorMap &map) {
    const int mine = number++;
    if (!side_by_side<Config> || mine == tiles.matmul)
      load_columns<Config>(b + (side_by_side<Config> ? 0 : mine * b_size), map, full, k, tiles.column,
                           Config::b_batched ? tiles.z : 0);
  };
  (load(maps), ...);
}
