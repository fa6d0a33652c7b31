#pragma once
// What the templates of matrix multiplication (gemm_*.cuh, gemv*.cuh) share: the interface of their functors,
// where a block works, how quantised operands are decoded, and how the epilogue's results are stored.
//
// C[z] = A[z] B[z], of m x k and k x n elements; z counts the matrices of a batch. Up to eight B share one A:
// each block computes one of the matmuls, or, where Config::combined, all of them, whose accumulators one
// epilogue takes.
//
// Shape, the sizes:
//   m(), k(), n(matmul)
//
// A and B, operands seen as rows of k elements: A's rows are those of C, B's rows are C's columns:
//   element              type in memory
//   bits                 of an element in memory
//   quantised            elements are decoded where they are read
//   k_major              neighbours in memory are neighbours along k; else along the rows
//   k_per_scale          so many neighbours along k, from a multiple of it on, share scale and zero point
//   rows_per_scale       the same along the rows; 0: all
//   matrix(matmul, z)    pointer to the first element
//   row(matmul, i), depth(matmul, k)   offsets in elements; their sum is an element's
//   decoder(matmul, i, k)              function from an element to its value in a register
//
// Prologue, a NoPrologue where A is an operand in memory:
//   operator()(to)       waits for the kernels before this one and writes A's rows, of k elements each, to
//                        shared memory
//
// Epilogue, what follows the matmul, for N neighbouring columns of one row of all results (z m + row):
//   operator()(Matmul<I>, row, column, accumulators, store)
//                        accumulators[s] are Vec<T, N>, exact sums that the functor rounds. It calls
//                        store(pointer, Vec<T, N>) for each output; the template addresses it.
// Where a template reads ahead (gemm_ring.cuh, gemm_swap_ab.cuh), column is a multiple of N, and
//   operands(Matmul<I>, row, column)   what the epilogue reads of memory there
//   operator()(Matmul<I>, row, column, operands, accumulators, store)

#include "bytes.cuh"
#include "machine.cuh"
#include "math.cuh"
#include "vectors.cuh"

/// Which of the matmuls of one A an epilogue belongs to; the first of them where they are combined.
template <int Index>
struct Matmul {
  static constexpr int index = Index;
};

/// What a Config may leave out.
struct GemmConfig {
  static constexpr int matmuls = 1, exact_steps = 0;
  static constexpr int computed_boxes = 0; // of gemm_swap_ab: boxes of A that a block computes and keeps
  static constexpr int norm_warps = 0, norm_bytes = 0; // of gemm_swap_ab: that normalise rows of A
  static constexpr int kept_row = 0;                   // of expert_gemv
  static constexpr bool combined = false, batched = false;
  static constexpr bool scaled_steps = false, one_column_scale = false;
};

template <class Config>
constexpr int accumulators = Config::combined ? Config::matmuls : 1;
template <class Config>
constexpr bool side_by_side = Config::matmuls > 1 && !Config::combined;

struct NoPrologue {};
struct NoOperands {};
template <class Prologue>
constexpr bool has_prologue = !same_type<Prologue, NoPrologue>;

/// The warp's number in the block, which the compiler sees to be one for all of its lanes.
DEVICE int uniform_warp() { return shuffle_index((i32)thread_x() / 32, 0); }

DEVICE constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }

// Where a block works.
struct BlockPlace {
  i64 row = 0, column = 0; ///< its first ones
  int matmul = 0;
  i64 z = 0;
};

/// The columns that tile `tile` begins with, counted through all matmuls of all batches.
template <class Config, int TileN, class Shape>
DEVICE void place_columns(BlockPlace &place, const Shape &shape, i64 tile) {
  if constexpr (Config::batched) {
    const i64 tiles = ceil_div(shape.n(0), TileN);
    place.z = tile / tiles;
    tile = tile % tiles;
  }
  if constexpr (side_by_side<Config>) {
    i64 first = 0, end = 0;
#pragma unroll
    for (int i = 0; i + 1 < Config::matmuls; ++i) {
      end += ceil_div(shape.n(i), TileN);
      if (tile >= end) {
        place.matmul = i + 1;
        first = end;
      }
    }
    tile -= first;
  }
  place.column = tile * TileN;
}
/// A grid of tiles, in which blocks that read the same rows of B are neighbours.
template <class Config, int TileM, int TileN, class Shape>
DEVICE BlockPlace place_in_tiles(const Shape &shape) {
  BlockPlace place;
  const i64 block = block_x(), tiles = ceil_div(shape.m(), TileM);
  place.row = block % tiles * TileM;
  place_columns<Config, TileN>(place, shape, block / tiles);
  return place;
}
/// Blocks that compute all rows of some columns.
template <class Config, int TileN, class Shape>
DEVICE BlockPlace place_in_columns(const Shape &shape) {
  BlockPlace place;
  place_columns<Config, TileN>(place, shape, block_x());
  return place;
}

/// T, which a call does not deduce from the argument.
template <class T>
struct Same {
  using type = T;
};
/// Stores N neighbours of a row-major result, or a single element.
template <int N>
struct StoreAt {
  i64 index;
  bool inside = true; ///< else nothing is stored
  template <class T>
  DEVICE void operator()(T *to, const Vec<T, N> &values) const {
    if (inside)
      store_vec<T, N>(to + index, values);
  }
  template <class T>
  DEVICE void operator()(T *to, typename Same<T>::type value) const {
    static_assert(N == 1, "as many values as the template has neighbours");
    if (inside)
      ::store(to + index, value);
  }
};

/// What an epilogue does after pdl_wait() and before its first row: see sending_epilogue.cuh.
template <class Epilogue>
DEVICE void begin_epilogue(Epilogue &) {}
/// What its warps do after their last row, of so many rows: see arg_max_epilogue.cuh.
template <class Epilogue>
DEVICE void end_epilogue(const Epilogue &, i64) {}
/// The same in a block that leaves its work to another one.
template <class Epilogue>
DEVICE void skip_epilogue(const Epilogue &, i64) {}

/// Whether it also sums up squares of a block's tiles: see squares_epilogue.cuh.
template <class Epilogue>
constexpr bool sums_squares = false;

/// Runs the epilogue of a matmul for N neighbours of a row of batch z, all inside of C, and stores.
template <class Config, class Which, int N, class T, class Shape, class Epilogue>
DEVICE void finish(const Epilogue &epilogue, Which which, const Shape &shape, i64 z, i64 row, i64 column,
                   const Vec<T, N> (&sums)[accumulators<Config>]) {
  const i64 line = Config::batched ? z * shape.m() + row : row;
  epilogue(which, line, column, sums, StoreAt<N>{line * shape.n(Which::index) + column});
}
/// The same for the block's matmul.
template <class Config, int Index = 0, int N, class T, class Shape, class Epilogue>
DEVICE void finish(const Epilogue &epilogue, const BlockPlace &place, const Shape &shape, i64 row, i64 column,
                   const Vec<T, N> (&sums)[accumulators<Config>]) {
  if (!side_by_side<Config> || place.matmul == Index)
    finish<Config>(epilogue, Matmul<Index>(), shape, place.z, row, column, sums);
  if constexpr (side_by_side<Config> && Index + 1 < Config::matmuls)
    finish<Config, Index + 1>(epilogue, place, shape, row, column, sums);
}
/// Calls `block.store(epilogue, Matmul<I>())` for the block's matmul I, so that its loops know which one it
/// is.
template <class Config, int Index = 0, class Block, class Epilogue>
DEVICE void store_matmul(const Block &block, const Epilogue &epilogue, int matmul) {
  if (!side_by_side<Config> || matmul == Index)
    block.store(epilogue, Matmul<Index>());
  if constexpr (side_by_side<Config> && Index + 1 < Config::matmuls)
    store_matmul<Config, Index + 1>(block, epilogue, matmul);
}

// Elements as f32, or as integers, exactly.
template <class T>
DEVICE auto exact_value(T element) {
  if constexpr (is_narrow_float<T>)
    return to_f32(element);
  else
    return element;
}

// Decoders.
struct Exact {
  static constexpr bool has_zero = false;
  template <class T>
  DEVICE T scaled(T sum) const {
    return sum;
  }
  template <class T>
  DEVICE auto operator()(T element) const {
    return exact_value(element);
  }
};
struct NoZeroPoint {};
template <class T>
constexpr bool is_zero_point = !same_type<T, NoZeroPoint>;
/// (q - zero point) * scale, rounded to T.
template <class T, class Zero = NoZeroPoint>
struct Dequantise {
  using zero_type = Zero;
  static constexpr bool has_zero = is_zero_point<Zero>;
  f32 scale;
  Zero zero;
  /// For sums of elements without their zero point.
  template <class S>
  DEVICE f32 scaled(S sum) const {
    return (f32)sum * scale;
  }
  template <class Q>
  DEVICE f32 operator()(Q q) const {
    f32 value = (f32)exact_value(q);
    if constexpr (has_zero)
      value = value - (f32)zero;
    return round_to<T>(value * scale);
  }
};
/// The decoders of neighbouring blocks along k, whose scales and zero points were read at once.
template <class Decoder, class Scales, class Zeros>
struct Decoders {
  Scales scales;
  Zeros zeros;
  DEVICE Decoder operator[](int block) const {
    if constexpr (Decoder::has_zero)
      return {to_f32(scales[block]), zeros[block]};
    else
      return {to_f32(scales[block]), {}};
  }
};
template <class Decoder, class Scales, class Zeros>
DEVICE Decoders<Decoder, Scales, Zeros> decoders_of(const Scales &scales, const Zeros &zeros) {
  return {scales, zeros};
}
/// One for all blocks.
template <class T>
struct Alike {
  T value;
  DEVICE T operator[](int) const { return value; }
};
/// q - zero point, as integers that wrap.
template <class Zero = NoZeroPoint>
struct Shift {
  static constexpr bool has_zero = is_zero_point<Zero>;
  Zero zero;
  template <class S>
  DEVICE S scaled(S sum) const {
    return sum;
  }
  template <class Q>
  DEVICE i32 operator()(Q q) const {
    if constexpr (has_zero)
      return (i32)((u32)q - (u32)zero);
    else
      return (i32)q;
  }
};

/// What tensor cores sum in.
template <bool Integers>
struct mma_accumulator {
  using type = f32;
};
template <>
struct mma_accumulator<true> {
  using type = i32;
};

// Functors for the most common sizes, operands and epilogues.

/// A T for each of N matmuls. No array: compilers find the constants in one too late to unroll loops along k,
/// and keep one that a run-time index chooses from in memory.
template <class T, int N>
struct PerMatmul {
  T first;
  PerMatmul<T, N - 1> others;
  DEVICE T at(int matmul) const { return matmul == 0 ? first : others.at(matmul - 1); }
};
template <class T>
struct PerMatmul<T, 1> {
  T first;
  DEVICE T at(int) const { return first; }
};
template <i64 First, i64... Others>
DEVICE constexpr i64 nth(int matmul) {
  if constexpr (sizeof...(Others) == 0)
    return First;
  else
    return matmul == 0 ? First : nth<Others...>(matmul - 1);
}
struct Sizes {
  i64 rows, columns, depth;
  DEVICE i64 m() const { return rows; }
  DEVICE i64 n(int) const { return columns; }
  DEVICE i64 k() const { return depth; }
};
/// Of several matmuls side by side.
template <i64... Columns>
struct SizesPerMatmul {
  i64 rows, depth;
  DEVICE i64 m() const { return rows; }
  DEVICE i64 n(int matmul) const { return nth<Columns...>(matmul); }
  DEVICE i64 k() const { return depth; }
};
/// What matrices have in common whose elements are not quantised.
template <class T, bool KMajor>
struct PlainMatrix {
  using element = T;
  static constexpr bool quantised = false, k_major = KMajor;
  static constexpr int bits = 8 * (int)sizeof(T), k_per_scale = 0, rows_per_scale = 0;
  DEVICE Exact decoder(int, i64, i64) const { return {}; }
};
/// `stride` elements lie between rows, or, where it is not K-major, between neighbours along k.
template <class T, bool KMajor>
struct Matrix : PlainMatrix<T, KMajor> {
  const T *data;
  i64 stride;
  DEVICE Matrix(const T *data, i64 stride) : data(data), stride(stride) {}
  DEVICE const T *matrix(int, i64) const { return data; }
  DEVICE i64 row(int, i64 i) const { return KMajor ? i * stride : i; }
  DEVICE i64 depth(int, i64 k) const { return KMajor ? k : k * stride; }
};
/// The B of several matmuls, with a stride for each.
template <class T, bool KMajor, i64... Strides>
struct Matrices : PlainMatrix<T, KMajor> {
  PerMatmul<const T *, sizeof...(Strides)> data;
  template <class... Pointer>
  DEVICE explicit Matrices(Pointer... data) : data{data...} {}
  DEVICE const T *matrix(int matmul, i64) const { return data.at(matmul); }
  DEVICE i64 row(int matmul, i64 i) const { return KMajor ? scaled<Strides...>(matmul, i) : i; }
  DEVICE i64 depth(int matmul, i64 k) const { return KMajor ? k : scaled<Strides...>(matmul, k); }

private:
  /// The choice is between products, not of a factor: that takes fewer registers.
  template <i64 First, i64... Others>
  static DEVICE i64 scaled(int matmul, i64 index) {
    if constexpr (sizeof...(Others) == 0)
      return index * First;
    else
      return matmul == 0 ? index * First : scaled<Others...>(matmul - 1, index);
  }
};
/// The epilogue of N matmuls without one: their sums, rounded.
template <class T, int N = 1>
struct StoreRounded {
  PerMatmul<T *, N> to;
  template <int I, class S, int Width, class Store>
  DEVICE void operator()(Matmul<I>, i64, i64, const Vec<S, Width> (&sums)[1], const Store &store) const {
    Vec<T, Width> values;
#pragma unroll
    for (int i = 0; i < Width; ++i)
      values[i] = convert<T>(sums[0][i]);
    store(to.at(I), values);
  }
  template <int I>
  DEVICE NoOperands operands(Matmul<I>, i64, i64) const {
    return {};
  }
  template <int I, class S, int Width, class Store>
  DEVICE void operator()(Matmul<I> which, i64 row, i64 column, const NoOperands &,
                         const Vec<S, Width> (&sums)[1], const Store &store) const {
    (*this)(which, row, column, sums, store);
  }
};

/// Decodes neighbours along k of a row: the e-th one, an element, to its value.
template <class Decoder>
struct DecodeAlike {
  Decoder decode;
  template <class T>
  DEVICE auto operator()(int, T element) const {
    return decode(element);
  }
};
template <class Operand>
struct DecodeEach {
  const Operand &operand;
  int matmul;
  i64 row, k;
  template <class T>
  DEVICE auto operator()(int e, T element) const {
    return operand.decoder(matmul, row, k + e)(element);
  }
};
/// For N neighbours from k on, a multiple of N. A scale that they share is read once.
template <int N, class Operand>
DEVICE auto decoder_along_k(const Operand &operand, int matmul, i64 row, i64 k) {
  if constexpr (Operand::k_per_scale % N == 0) {
    using Decoder = decltype(operand.decoder(matmul, row, k));
    return DecodeAlike<Decoder>{operand.decoder(matmul, row, k)};
  } else {
    return DecodeEach<Operand>{operand, matmul, row, k};
  }
}
