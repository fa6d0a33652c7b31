#pragma once
// The epilogue of a matmul that also finds the largest element of each row: it does what the matmul's own
// does, and each warp keeps the largest that it has seen of each row. place_of_largest, the next kernel, looks
// at what all warps have found.

#include "gemm.cuh"
#include "scan.cuh"

/// A value and its column in one number: of larger values a larger one, of equal values that of the first
/// column. A NaN is above all others; 0 is below all.
DEVICE u64 ranked(f32 value, i64 column) {
  const u32 bits = bits_of(value + 0.f); // zeros of both signs are equal
  const u32 order = is_nan(value) ? 0xffffffffu : bits >> 31 != 0u ? ~bits : bits | 0x80000000u;
  return (u64)order << 32 | (u64)(0xffffffffu - (u32)column);
}
DEVICE i64 column_of(u64 rank) { return (i64)(0xffffffffu - (u32)rank); }

/// Stores as `Store` does, and keeps the largest in `largest`, which lanes share.
template <class Store> struct LargestStore {
  const Store &store;
  u64 *largest;
  i64 column;
  template <class T, int N> DEVICE void operator()(T *to, const Vec<T, N> &values) const {
    (*this)(values);
    store(to, values);
  }
  template <class T> DEVICE void operator()(T *to, typename Same<T>::type value) const {
    (*this)(value);
    store(to, value);
  }
  // Where nothing else reads the elements.
  template <class T, int N> DEVICE void operator()(const Vec<T, N> &values) const {
    u64 best = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
      best = upper_of(best, ranked(held_as<f32>(values, i), column + i));
    offer(best);
  }
  template <class T> DEVICE void operator()(T value) const {
    offer(ranked(held_as<f32>(Vec<T, 1>{{value}}, 0), column));
  }

private:
  /// Seldom is one larger than what the warp has seen.
  DEVICE void offer(u64 rank) const {
    if (rank > *largest)
      atomic_max(largest, rank);
  }
};

/// Of at most `Rows` rows, by the first `Warps` warps of a block. `parts`: for each row what each of them has
/// found, of the whole grid, ranked: `perRow` of them.
template <int Rows, int Warps, class Epilogue> struct ArgMaxEpilogue {
  static constexpr u32 warps = Warps;
  Epilogue epilogue;
  u64 *parts;
  i64 perRow;
  u64 *largest = nullptr; ///< the warp's, by row

  DEVICE void begin() {
    SHARED(u64, found, warps * (u32)Rows);
    largest = found + warp_id() * (u32)Rows;
    for (u32 row = lane_id(); row < (u32)Rows; row += 32u)
      largest[row] = 0;
    warp_barrier();
  }
  template <int I>
  DEVICE auto operands(Matmul<I> which, i64 row, i64 column) const {
    return epilogue.operands(which, row, column);
  }
  template <int I, class Operands, class S, int Width, class Store>
  DEVICE void operator()(Matmul<I> which, i64 row, i64 column, const Operands &operands,
                         const Vec<S, Width> (&sums)[1], const Store &store) const {
    epilogue(which, row, column, operands, sums, LargestStore<Store>{store, largest + row, column});
  }
  DEVICE void end(i64 rows) const {
    warp_barrier();
    for (i64 row = lane_id(); row < rows; row += 32)
      put(row, largest[row]);
  }
  /// Where the first block of a cluster does the work of all.
  DEVICE void skip(i64 rows) const {
    for (i64 row = lane_id(); row < rows; row += 32)
      put(row, 0);
  }

private:
  DEVICE void put(i64 row, u64 rank) const {
    ::store(parts + row * perRow + block_x() * warps + warp_id(), rank);
  }
};
template <int Rows, int Warps, class Epilogue>
DEVICE ArgMaxEpilogue<Rows, Warps, Epilogue> arg_max_epilogue(const Epilogue &epilogue, i32 *parts,
                                                              i64 perRow) {
  return {epilogue, reinterpret_cast<u64 *>(parts), perRow};
}
template <int Rows, int Warps, class Epilogue>
DEVICE void begin_epilogue(ArgMaxEpilogue<Rows, Warps, Epilogue> &epilogue) {
  epilogue.begin();
}
template <int Rows, int Warps, class Epilogue>
DEVICE void end_epilogue(const ArgMaxEpilogue<Rows, Warps, Epilogue> &epilogue, i64 rows) {
  epilogue.end(rows);
}
template <int Rows, int Warps, class Epilogue>
DEVICE void skip_epilogue(const ArgMaxEpilogue<Rows, Warps, Epilogue> &epilogue, i64 rows) {
  epilogue.skip(rows);
}

/// The place of each row's largest, of Config::per_row ranked ones that warps have found. put(row, place)
/// stores it.
template <class Config, class Body>
DEVICE void place_of_largest(Body body, const i32 *parts, i64 rows) {
  constexpr u32 warps = Config::threads / 32;
  constexpr i64 perRow = Config::per_row, rounds = (perRow + 31) / 32;
  constexpr int batch = rounds < 24 ? (int)rounds : 24; // a lane's loads on their way: mostly all
  pdl_wait();
  pdl_launch_dependents();
  const u64 *ranks = reinterpret_cast<const u64 *>(parts);
  for (i64 row = block_x() * warps + warp_id(); row < rows; row += (i64)grid_dim_x() * warps) {
    u64 best = 0;
#pragma unroll 1
    for (i64 begin = lane_id(); begin < perRow; begin += 32 * batch) {
      u64 found[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        found[i] = begin + 32 * i < perRow ? load(ranks + row * perRow + (begin + 32 * i)) : 0;
#pragma unroll
      for (int i = 0; i < batch; ++i)
        best = upper_of(best, found[i]);
    }
    for (int mask = 16; mask > 0; mask /= 2)
      best = upper_of(best, shuffle_xor(best, mask));
    if (lane_id() == 0)
      body.put(row, best == 0 ? 0 : column_of(best));
  }
}
