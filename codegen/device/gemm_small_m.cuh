#pragma once
// Up to 64 rows of A on tensor cores, at the speed at which memory gives B. B's rows (the columns of C) are
// the 16 rows of mma.m16n8k16, A's rows its 8 columns. The order of k inside a sum is free: a lane takes the
// 16 bytes that lie side by side in memory for what the instruction calls k = 2 q, 2 q + 1, 2 q + 8 and 2 q +
// 9, of both operands alike, so that B goes from memory to registers without shared memory between. Each warp
// keeps a ring of loads on its way; the warps of a block split K and add up their accumulators in the end.

#include "fragments.cuh"
#include "gemm.cuh"

/// `Config`:
///   type                      bf16 or f16, in which elements are multiplied; A's in memory
///   row_tiles, all_rows       of 8 rows of A; whether A is known to have all of them
///   tiles                     of 16 columns of C that a warp computes of each matmul
///   warps_n, k_split          warps of a block along n, and those that share out K
///   stages                    K steps whose loads a warp has in flight
///   whole_steps               K is a multiple of a step
///   weights_before_wait       loads of B are issued before the previous kernels have finished
///   matmuls, combined, batched
template <class Config, class Shape, class A, class B>
struct SmallM {
  using Type = typename Config::type;
  using Code = typename B::element;
  static constexpr int sums = accumulators<Config>, tiles = Config::tiles, stages = Config::stages;
  static constexpr int groups = Config::row_tiles;
  static constexpr bool k_major = B::k_major, decodes = B::quantised;
  static constexpr int bits = B::bits;                                ///< of an element of B
  static constexpr int depth = k_major ? larger(64, 512 / bits) : 32; ///< of a step along K
  static constexpr int vectors = k_major ? larger(2, 16 / bits) : 1;  ///< of 8 elements along k, in a step
  static constexpr int lane_k =
      k_major && decodes ? larger(8, 128 / bits) : 8;           ///< neighbours along k that a lane holds
  static constexpr int words = k_major ? 4 : tiles * bits / 16; ///< of 32 bits, of a load
  static constexpr int lines = k_major ? 2 * tiles : 8, loads = k_major && !decodes ? 2 : 1;
  static constexpr int columns = 16 * tiles * Config::warps_n; ///< of a block
  static constexpr int threads = 32 * Config::warps_n * Config::k_split;

  const Shape &shape;
  const A &a;
  const B &b;
  const int thread = (int)thread_x(), lane = thread % 32, group = lane / 4, quad = lane % 4;
  const int split = thread / 32 / Config::warps_n, side = thread / 32 % Config::warps_n;
  const BlockPlace place;
  const i64 end = shape.k();
  const Type *rows[groups];
  i64 column[k_major ? 2 * tiles : 1];               ///< the lane's columns of C, or the first of neighbours
  const u32 *weights[sums][k_major ? 2 * tiles : 1]; ///< K-major: where its first load of each column begins
  decltype(static_cast<const B *>(nullptr)->matrix(0, 0)) line[sums]; ///< else its part of the first line
  f32 sum[sums][tiles][groups][4] = {};
  Vec<u32, words> ring[sums][stages][lines][loads];

  DEVICE SmallM(const Shape &shape, const A &a, const B &b, const BlockPlace &place)
      : shape(shape), a(a), b(b), place(place) {
    const i64 n = shape.n(place.matmul), first = place.column + side * 16 * tiles;
    // What comes of rows of A and columns of C beyond the last is not stored.
    const Type *matrixA = a.matrix(0, place.z);
#pragma unroll
    for (int j = 0; j < groups; ++j) {
      const i64 row = Config::all_rows || j * 8 + group < shape.m() ? j * 8 + group : shape.m() - 1;
      rows[j] = matrixA + a.row(0, row) + quad * lane_k;
    }
    if constexpr (k_major) {
#pragma unroll
      for (int i = 0; i < 2 * tiles; ++i) {
        const i64 wanted = first + i * 8 + group;
        column[i] = wanted < n ? wanted : n - 1;
#pragma unroll
        for (int s = 0; s < sums; ++s)
          weights[s][i] = words_at(b.matrix(place.matmul + s, place.z) +
                                   (b.row(place.matmul + s, column[i]) + quad * lane_k));
      }
    } else {
      const i64 wanted = first + group * 2 * tiles;
      column[0] = wanted < n ? wanted : 0;
#pragma unroll
      for (int s = 0; s < sums; ++s)
        line[s] = b.matrix(place.matmul + s, place.z) + (b.depth(place.matmul + s, quad * 8) + column[0]);
    }
  }

  /// Asks for B's step at k.
  DEVICE void request(int stage, i64 k) {
#pragma unroll
    for (int i = 0; i < lines; ++i)
#pragma unroll
      for (int h = 0; h < loads; ++h)
#pragma unroll
        for (int s = 0; s < sums; ++s) {
          Vec<u32, words> &to = ring[s][stage][i][h];
          if constexpr (k_major) {
            constexpr int per_word = bits == 16 ? 1 : bits == 8 ? 2 : 3; // elements of a word, as a shift
            const bool inside = Config::whole_steps || k + h * 32 + quad * lane_k < end;
            to = inside ? load_lines_vec<u32, words>(weights[s][i] + (k + h * 32 >> per_word))
                        : Vec<u32, words>{};
          } else {
            const bool inside = Config::whole_steps || k + quad * 8 + i < end;
            to = inside ? load_lines_vec<u32, words>(words_at(line[s] + b.depth(place.matmul + s, k + i)))
                        : Vec<u32, words>{};
          }
        }
  }

  /// B's vectors h of the step at k, of each of the lane's columns 8 neighbours along k.
  DEVICE void weights_of(Vec<u32, 4> (&to)[2 * tiles], int s, int stage, int h, i64 k) {
    if constexpr (decodes) {
      const i64 wanted = k_major ? k + quad * lane_k + h * 8 : k + quad * 8;
      const i64 at = Config::whole_steps || wanted < end ? wanted : 0;
#pragma unroll
      for (int i = 0; i < 2 * tiles; ++i) {
        const auto decode =
            decoder_along_k<8>(b, place.matmul + s, k_major ? column[k_major ? i : 0] : column[0] + i, at);
        Vec<Type, 8> values;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          if constexpr (k_major)
            values[e] = from_f32<Type>(decode(e, quantised_at<Code, bits>(ring[s][stage][i][0], h * 8 + e)));
          else
            values[e] = from_f32<Type>(decode(e, quantised_at<Code, bits>(ring[s][stage][e][0], i)));
        }
        copy_bytes(&to[i], &values, 16);
      }
    } else if constexpr (k_major) {
#pragma unroll
      for (int i = 0; i < 2 * tiles; ++i)
        to[i] = ring[s][stage][i][h];
    } else { // neighbours along n become neighbours along k
#pragma unroll
      for (int i = 0; i < tiles; ++i)
        transpose_lines(to[2 * i], to[2 * i + 1], ring[s][stage], i);
    }
  }

  /// Multiplies the step at k, which `stage` holds.
  DEVICE void multiply(int stage, i64 k) {
#pragma unroll
    for (int h = 0; h < vectors; ++h) {
      Vec<u32, 4> right[sums][2 * tiles];
#pragma unroll
      for (int s = 0; s < sums; ++s)
        weights_of(right[s], s, stage, h, k);
#pragma unroll
      for (int j = 0; j < groups; ++j) {
        const i64 at = k + h * (decodes ? 8 : 32);
        const bool inside = Config::whole_steps || at + quad * lane_k < end;
        const Vec<u32, 4> left = inside ? load_vec<u32, 4>(words_at(rows[j] + at)) : Vec<u32, 4>{};
#pragma unroll
        for (int i = 0; i < tiles; ++i)
#pragma unroll
          for (int s = 0; s < sums; ++s)
            mma_vectors(sum[s][i][j], right[s][2 * i], right[s][2 * i + 1], left, Type());
      }
    }
  }

  /// All steps of the warp's part of K.
  DEVICE void accumulate() {
    constexpr i64 step = Config::k_split * depth;
    if (!Config::weights_before_wait)
      pdl_wait();
#pragma unroll
    for (int u = 0; u < stages; ++u) {
      const i64 k = split * depth + u * step;
      if (k < end)
        request(u, k);
    }
    if (Config::weights_before_wait)
      pdl_wait();
#pragma unroll 1
    for (i64 start = split * depth; start < end; start += stages * step) {
#pragma unroll
      for (int u = 0; u < stages; ++u) {
        const i64 k = start + u * step, next = k + stages * step;
        if (k < end)
          multiply(u, k);
        if (next < end)
          request(u, next);
      }
    }
  }

  /// Adds up what the warps have, as many groups of rows at a time as fit in shared memory, and stores.
  template <class Epilogue>
  DEVICE void reduce_and_store(const Epilogue &epilogue) {
    constexpr int pitch = columns + 4; // lanes that write at once meet every bank once
    constexpr int at_once = groups_at_once(pitch), plane = Config::k_split * at_once * 8 * pitch;
    SHARED(f32, partial, sums * plane);
#pragma unroll
    for (int part = 0; part < groups; part += at_once) {
      if (part > 0)
        barrier();
        // Lane l holds columns l / 4 (+ 8) and rows 2 (l % 4) (+ 1) of every 16 x 8 tile.
#pragma unroll
      for (int i = 0; i < tiles; ++i)
#pragma unroll
        for (int j = 0; j < at_once; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int c = k_major ? i * 16 + group + e / 2 * 8 : group * 2 * tiles + i * 2 + e / 2;
            const int at = (split * at_once * 8 + j * 8 + quad * 2 + e % 2) * pitch + side * 16 * tiles + c;
#pragma unroll
            for (int s = 0; s < sums; ++s)
              partial[s * plane + at] = sum[s][i][part + j][e];
          }
      barrier();
      for (int i = thread; i < at_once * 8 * columns; i += threads) {
        const int r = i / columns, c = i % columns;
        const i64 m = part * 8 + r, n = place.column + c;
        Vec<f32, 1> totals[sums];
#pragma unroll
        for (int s = 0; s < sums; ++s) {
          f32 total = 0.f;
#pragma unroll
          for (int w = 0; w < Config::k_split; ++w)
            total += partial[s * plane + (w * at_once * 8 + r) * pitch + c];
          totals[s][0] = total;
        }
        if ((Config::all_rows || m < shape.m()) && n < shape.n(place.matmul))
          finish<Config>(epilogue, place, shape, m, n, totals);
      }
    }
  }

private:
  static DEVICE constexpr int groups_at_once(int pitch) {
    int count = groups;
    while (count > 1 && (sums * Config::k_split * count * 8 * pitch * 4 > 24 << 10 || groups % count != 0))
      --count;
    return count;
  }
};

template <class Config, class Shape, class A, class B, class Epilogue>
DEVICE void gemm_small_m(const Shape &shape, const A &a, const B &b, const Epilogue &epilogue) {
  using Block = SmallM<Config, Shape, A, B>;
  Block block(shape, a, b, place_in_columns<Config, Block::columns>(shape));
  block.accumulate();
  // Not before: blocks of the next kernel, waiting, would take the place of this one's that still have to
  // start.
  pdl_launch_dependents();
  block.reduce_and_store(epilogue);
}
