#pragma once
// Matrix multiplication on tensor cores by mma.sync: tiles of A and B pass through shared memory, two at a
// time, while warps multiply the pair before. Elements are 16-bit floats (m16n8k16), or bytes (m16n8k32),
// which are multiplied as they lie in memory:
//
// of dequantised operands, f32(qa sa) f32(qb sb) summed in f32, the kernel computes (sum of (qa - za) (qb -
// zb)) sa sb. Integer sums are exact, f8 sums are in f32, and the scales, which are one for all of k,
// multiply the sum.

#include "fragments.cuh"
#include "gemm_tiles.cuh"

/// `Config`:
///   type               bf16 or f16, in which elements are multiplied; of bytes, void: each operand has its
///   own tile_m, tile_n     of a block warps_m, warps_n   that share it out copy_a, copy_b     how tiles are
///   filled vector             2 where every n is even, else 1: results that a thread stores at once matmuls,
///   combined, batched
template <class T, class Element>
struct tile_element {
  using type = T;
};
template <class Element>
struct tile_element<void, Element> {
  using type = Element;
};

/// A matrix of ones: by it, the sums of rows, which zero points multiply.
DEVICE void ones_in_bytes(u32 (&a)[4], u32 (&b)[2]) { a[0] = a[1] = a[2] = a[3] = b[0] = b[1] = 0x01010101u; }

template <class Config, class Shape, class A, class B>
struct GemmMma {
  static constexpr bool bytes = same_type<typename Config::type, void>;
  using TypeA = typename tile_element<typename Config::type, typename A::element>::type;
  using TypeB = typename tile_element<typename Config::type, typename B::element>::type;
  using DecoderA = decltype(static_cast<const A *>(nullptr)->decoder(0, 0, 0));
  using DecoderB = decltype(static_cast<const B *>(nullptr)->decoder(0, 0, 0));
  static constexpr bool zero_a = bytes && DecoderA::has_zero, zero_b = bytes && DecoderB::has_zero;
  using Sum = typename mma_accumulator<bytes && !is_narrow_float<TypeA>>::type;

  static constexpr int threads = 32 * Config::warps_m * Config::warps_n, sums = accumulators<Config>;
  static constexpr int vector = bytes ? 16 : 8; ///< elements of 16 bytes
  static constexpr int depth = 4 * vector;      ///< of a tile along k
  static constexpr int warp_m = Config::tile_m / Config::warps_m, warp_n = Config::tile_n / Config::warps_n;
  static constexpr int tiles_m = warp_m / 16, tiles_n = warp_n / 8; ///< of a warp, each by one instruction
  /// ldmatrix transposes elements of 16 bits only: tiles of bytes always lie as [n][k].
  static constexpr bool by_depth = !B::k_major && !bytes;
  using TileA = OperandTile<A, TypeA, Config::tile_m, depth, false, Config::copy_a, threads>;
  using TileB = OperandTile<B, TypeB, Config::tile_n, depth, by_depth, Config::copy_b, threads>;

  const Shape &shape;
  const A &a;
  const B &b;
  const int lane = (int)thread_x() % 32, warp = (int)thread_x() / 32;
  const int row = warp / Config::warps_n * warp_m,
            column = warp % Config::warps_n * warp_n; ///< the warp's in the tile
  const BlockPlace place;
  Sum sum[sums][tiles_m][tiles_n][4] = {};
  Sum sum_a[zero_b ? tiles_m : 1][4] = {};       ///< of A's rows, which B's zero point multiplies
  Sum sum_b[sums][zero_a ? tiles_n : 1][4] = {}; ///< of B's rows, which A's zero point multiplies

  DEVICE GemmMma(const Shape &shape, const A &a, const B &b, const BlockPlace &place)
      : shape(shape), a(a), b(b), place(place) {}

  /// C's tile, of all k.
  DEVICE void accumulate(TypeA *tiles_a, TypeB *tiles_b) {
    const TileA tile_a{a, 0, a.matrix(0, place.z), place.row, shape.m(), shape.k()};
    const i64 steps = ceil_div(shape.k(), depth);
    // Step s loads tile s and multiplies tile s - 1.
    for (i64 step = 0; step <= steps; ++step) {
      if (step < steps) {
        const int stage = (int)(step % 2);
        tile_a.load(tiles_a + stage * TileA::size, step * depth);
#pragma unroll
        for (int s = 0; s < sums; ++s) {
          const int matmul = place.matmul + s;
          const TileB tile_b{b, matmul, b.matrix(matmul, place.z), place.column, shape.n(matmul), shape.k()};
          tile_b.load(tiles_b + (2 * s + stage) * TileB::size, step * depth);
        }
      }
      cp_async_commit();
      if (step > 0) {
        cp_async_wait<1>();
        barrier();
        const int stage = (int)((step - 1) % 2);
        multiply(tiles_a + stage * TileA::size, tiles_b + stage * TileB::size);
        barrier();
      }
    }
  }

  template <class Epilogue, class Which>
  DEVICE void store(const Epilogue &epilogue, Which which) const {
    // Lane l holds rows l / 4 (+ 8) and columns 2 (l % 4) (+ 1) of every 16 x 8 tile.
#pragma unroll
    for (int i = 0; i < tiles_m; ++i)
#pragma unroll
      for (int j = 0; j < tiles_n; ++j)
#pragma unroll
        for (int e = 0; e < 4; e += Config::vector) {
          const i64 m = place.row + row + i * 16 + lane / 4 + e / 2 * 8;
          const i64 n = place.column + column + j * 8 + lane % 4 * 2 + e % 2;
          if (m < shape.m() && n < shape.n(Which::index))
            finish_fragment(epilogue, which, i, j, e, m, n);
        }
  }

private:
  /// The product of a pair of tiles in shared memory; those of the second B and on lie two tiles apart.
  DEVICE void multiply(const TypeA *tile_a, const TypeB *tile_b) {
#pragma unroll
    for (int k = 0; k < depth; k += 2 * vector) {
      u32 left[tiles_m][4];
#pragma unroll
      for (int i = 0; i < tiles_m; ++i)
        ldmatrix_x4(left[i], tile_a + (row + i * 16 + lane % 16) * TileA::pitch + k + lane / 16 * vector);
      if constexpr (zero_b) {
        u32 ones_a[4], ones_b[2];
        ones_in_bytes(ones_a, ones_b);
#pragma unroll
        for (int i = 0; i < tiles_m; ++i)
          mma(sum_a[i], left[i], ones_b);
      }
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        u32 right[tiles_n][2];
        load_right(right, tile_b + 2 * s * TileB::size, k);
        if constexpr (zero_a) {
          u32 ones_a[4], ones_b[2];
          ones_in_bytes(ones_a, ones_b);
#pragma unroll
          for (int j = 0; j < tiles_n; ++j)
            mma(sum_b[s][j], ones_a, right[j]);
        }
#pragma unroll
        for (int i = 0; i < tiles_m; ++i)
#pragma unroll
          for (int j = 0; j < tiles_n; ++j)
            mma(sum[s][i][j], left[i], right[j]);
      }
    }
  }
  DEVICE void load_right(u32 (&right)[tiles_n][2], const TypeB *tile, int k) const {
#pragma unroll
    for (int j = 0; j < tiles_n; j += 2) {
      u32 pair[4];
      if constexpr (by_depth)
        ldmatrix_x4_trans(pair, tile + (k + lane % 16) * TileB::pitch + column + j * 8 + lane / 16 * 8);
      else
        ldmatrix_x4(pair, tile + (column + j * 8 + lane / 16 * 8 + lane % 8) * TileB::pitch + k +
                              lane / 8 % 2 * vector);
      right[j][0] = pair[0];
      right[j][1] = pair[1];
      right[j + 1][0] = pair[2];
      right[j + 1][1] = pair[3];
    }
  }
  static DEVICE void mma(Sum (&d)[4], const u32 (&left)[4], const u32 (&right)[2]) {
    if constexpr (bytes)
      mma_m16n8k32(d, left, right, TypeA(), TypeB());
    else
      mma_m16n8k16(d, left, right, TypeA());
  }

  /// The sum with zero points and scales applied.
  DEVICE auto total(int s, int i, int j, int e, i64 m, i64 n) const {
    if constexpr (!bytes) {
      return sum[s][i][j][e];
    } else {
      const DecoderA decode_a = a.decoder(0, m, 0);
      const DecoderB decode_b = b.decoder(place.matmul + s, n, 0);
      Sum shifted = sum[s][i][j][e];
      if constexpr (zero_a || zero_b) { // integers wrap
        u32 whole = (u32)shifted;
        if constexpr (zero_a)
          whole -= (u32)decode_a.zero * (u32)sum_b[s][j][e];
        if constexpr (zero_b)
          whole -= (u32)decode_b.zero * (u32)sum_a[i][e];
        if constexpr (zero_a && zero_b)
          whole += (u32)shape.k() * (u32)decode_a.zero * (u32)decode_b.zero;
        shifted = (Sum)(i32)whole;
      }
      return decode_b.scaled(decode_a.scaled(shifted));
    }
  }
  template <class Epilogue, class Which>
  DEVICE void finish_fragment(const Epilogue &epilogue, Which which, int i, int j, int e, i64 m,
                              i64 n) const {
    using Total = decltype(total(0, 0, 0, 0, 0, 0));
    Vec<Total, Config::vector> totals[sums];
#pragma unroll
    for (int s = 0; s < sums; ++s)
#pragma unroll
      for (int v = 0; v < Config::vector; ++v)
        totals[s][v] = total(s, i, j, e + v, m, n + v);
    finish<Config>(epilogue, which, shape, place.z, m, n, totals);
  }
};

template <class Config, class Shape, class A, class B, class Epilogue>
DEVICE void gemm_mma(const Shape &shape, const A &a, const B &b, const Epilogue &epilogue) {
  using Block = GemmMma<Config, Shape, A, B>;
  SHARED(typename Block::TypeA, tiles_a, 2 * Block::TileA::size);
  SHARED(typename Block::TypeB, tiles_b, 2 * Block::sums * Block::TileB::size);
  Block block(shape, a, b, place_in_tiles<Config, Config::tile_m, Config::tile_n>(shape));
  pdl_wait();
  pdl_launch_dependents();
  block.accumulate(tiles_a, tiles_b);
  store_matmul<Config>(block, epilogue, block.place.matmul);
}
