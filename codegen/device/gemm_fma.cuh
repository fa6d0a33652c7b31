#pragma once
// Matrix multiplication without tensor cores: f32 and f64 exactly, integers that wrap, and elements that are
// decoded. Tiles of A and B pass through shared memory; each thread computes 4 x 4 elements.

#include "gemm.cuh"

/// `Config`: accumulator (f32, f64, u32 or u64), matmuls, combined, batched, vector (results that a thread
/// stores at once: 1, 2 or 4, a divisor of every n).
struct GemmFma {
  static constexpr int tile = 64, depth = 16, threads = 256;
  static constexpr int pitch = tile + 4; ///< 16-byte rows, banks shifted
};

/// Fills a tile, which lies as [k][row], from row `first` and k0 on; zeros beyond the edge.
template <class T, class Operand, class Matrix>
DEVICE void load_fma_tile(T *tile, const Operand &operand, int matmul, const Matrix &matrix, i64 first,
                          i64 rows, i64 k0, i64 k) {
#pragma unroll
  for (int i = 0; i < GemmFma::tile * GemmFma::depth / GemmFma::threads; ++i) {
    const int e = i * GemmFma::threads + (int)thread_x();
    // Neighbouring threads read what lies side by side in memory.
    const int r = Operand::k_major ? e / GemmFma::depth : e % GemmFma::tile;
    const int c = Operand::k_major ? e % GemmFma::depth : e / GemmFma::tile;
    T value = 0;
    if (first + r < rows && k0 + c < k) {
      const auto element = load(matrix + (operand.row(matmul, first + r) + operand.depth(matmul, k0 + c)));
      const auto decoded = operand.decoder(matmul, first + r, k0 + c)(element);
      if constexpr (is_wide_float<T>)
        value = (T)decoded;
      else // through the signed type, which keeps the sign of narrow ones
        value = sizeof(T) == 4 ? (T)(i32)decoded : (T)(i64)decoded;
    }
    tile[c * GemmFma::pitch + r] = value;
  }
}

/// A block of 256 threads computes 64 x 64 elements of C, each thread 4 x 4 of them.
template <class Config, class Shape, class A, class B>
struct FmaBlock {
  using T = typename Config::accumulator;
  static constexpr int sums = accumulators<Config>, tile = GemmFma::tile, depth = GemmFma::depth,
                       pitch = GemmFma::pitch;

  const Shape &shape;
  const int row = (int)thread_x() / 16 * 4, column = (int)thread_x() % 16 * 4; ///< the thread's in the tile
  const BlockPlace place;
  T sum[sums][4][4] = {};

  DEVICE FmaBlock(const Shape &shape, const BlockPlace &place) : shape(shape), place(place) {}

  DEVICE void accumulate(const A &a, const B &b, T *tileA, T *tileB) {
    const auto matrixA = a.matrix(0, place.z);
    for (i64 k0 = 0; k0 < shape.k(); k0 += depth) {
      load_fma_tile<T>(tileA, a, 0, matrixA, place.row, shape.m(), k0, shape.k());
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        const int matmul = place.matmul + s;
        load_fma_tile<T>(tileB + s * depth * pitch, b, matmul, b.matrix(matmul, place.z), place.column,
                         shape.n(matmul), k0, shape.k());
      }
      barrier();
#pragma unroll
      for (int k = 0; k < depth; ++k) {
        const Vec<T, 4> left = load_vec<T, 4>(tileA + k * pitch + row);
#pragma unroll
        for (int s = 0; s < sums; ++s)
          multiply(sum[s], left, load_vec<T, 4>(tileB + (s * depth + k) * pitch + column));
      }
      barrier();
    }
  }

  template <class Epilogue, class Which>
  DEVICE void store(const Epilogue &epilogue, Which which) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; j += Config::vector) {
        const i64 m = place.row + row + i, n = place.column + column + j;
        if (m >= shape.m() || n >= shape.n(Which::index))
          continue;
        Vec<T, Config::vector> totals[sums];
#pragma unroll
        for (int s = 0; s < sums; ++s)
#pragma unroll
          for (int v = 0; v < Config::vector; ++v)
            totals[s][v] = sum[s][i][j + v];
        finish<Config>(epilogue, which, shape, place.z, m, n, totals);
      }
  }

private:
  static DEVICE void multiply(T (&sum)[4][4], const Vec<T, 4> &left, const Vec<T, 4> &right) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (is_wide_float<T>)
          sum[i][j] = fma_(left[i], right[j], sum[i][j]);
        else
          sum[i][j] += left[i] * right[j];
      }
  }
};

template <class Config, class Shape, class A, class B, class Epilogue>
DEVICE void gemm_fma(const Shape &shape, const A &a, const B &b, const Epilogue &epilogue) {
  using Block = FmaBlock<Config, Shape, A, B>;
  using T = typename Config::accumulator;
  SHARED(T, tileA, Block::depth * Block::pitch);
  SHARED(T, tileB, Block::sums * Block::depth * Block::pitch);
  Block block(shape, place_in_tiles<Config, Block::tile, Block::tile>(shape));
  pdl_wait();
  pdl_launch_dependents();
  block.accumulate(a, b, tileA, tileB);
  store_matmul<Config>(block, epilogue, block.place.matmul);
}
