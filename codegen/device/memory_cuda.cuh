#pragma once

#include "features.cuh"
#include "types.cuh"

// Loads and stores: one access per call up to 16 bytes; larger vectors are several accesses of 16 bytes.

template <int Bytes> struct access_type;
template <> struct access_type<1> {
  using type = unsigned char;
};
template <> struct access_type<2> {
  using type = unsigned short;
};
template <> struct access_type<4> {
  using type = unsigned int;
};
template <> struct access_type<8> {
  using type = uint2;
};
template <> struct access_type<16> {
  using type = uint4;
};
template <class T, int N> struct vector_access {
  static constexpr int bytes = sizeof(T) * N;
  static constexpr int vectors = bytes > 16 ? bytes / 16 : 1;
  using vector = typename access_type<(bytes > 16 ? 16 : bytes)>::type;
  vector raw[vectors];

  DEVICE Vec<T, N> unpack() const {
    Vec<T, N> values;
    copy_bytes(&values, raw, bytes);
    return values;
  }
  DEVICE void pack(const Vec<T, N> &values) { copy_bytes(raw, &values, bytes); }
};

template <class T> DEVICE T load(const T *from) { return *from; }
template <class T> DEVICE void store(T *to, T value) { *to = value; }

template <class T, int N> DEVICE Vec<T, N> load_vec(const T *from) {
  vector_access<T, N> access;
  using vector = typename vector_access<T, N>::vector;
#pragma unroll
  for (int i = 0; i < access.vectors; ++i)
    access.raw[i] = reinterpret_cast<const vector *>(from)[i];
  return access.unpack();
}
// For global memory that nothing writes while the kernel runs.
template <class T, int N> DEVICE Vec<T, N> load_readonly_vec(const T *from) {
  vector_access<T, N> access;
  using vector = typename vector_access<T, N>::vector;
#pragma unroll
  for (int i = 0; i < access.vectors; ++i)
    access.raw[i] = __ldg(reinterpret_cast<const vector *>(from) + i);
  return access.unpack();
}
// Before pdl_wait(), for global memory that the kernel just before does not write: past the L1, where lines
// may have stayed from before it was written.
template <class T, int N> DEVICE Vec<T, N> load_early_vec(const T *from) {
  vector_access<T, N> access;
  using vector = typename vector_access<T, N>::vector;
#pragma unroll
  for (int i = 0; i < access.vectors; ++i)
    access.raw[i] = __ldcg(reinterpret_cast<const vector *>(from) + i);
  return access.unpack();
}
template <class T> DEVICE T load_early(const T *from) { return load_early_vec<T, 1>(from)[0]; }
// The same for memory of which other lanes, or the same ones soon, want the rest of each line of 128 bytes:
// it comes from memory at once. Of up to 16 bytes.
DEVICE void load_line(unsigned int &to, const unsigned int *from) {
  asm volatile("ld.global.cg.L2::128B.u32 %0, [%1];" : "=r"(to) : "l"(from));
}
DEVICE void load_line(uint2 &to, const uint2 *from) {
  asm volatile("ld.global.cg.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "l"(from));
}
DEVICE void load_line(uint4 &to, const uint4 *from) {
  asm volatile("ld.global.cg.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "l"(from));
}
template <class T, int N> DEVICE Vec<T, N> load_lines_vec(const T *from) {
  static_assert(sizeof(T) * N <= 16, "one access");
  vector_access<T, N> access;
  load_line(access.raw[0], reinterpret_cast<const typename vector_access<T, N>::vector *>(from));
  return access.unpack();
}
// For global memory that is read once.
template <class T, int N> DEVICE Vec<T, N> load_stream_vec(const T *from) {
  vector_access<T, N> access;
  using vector = typename vector_access<T, N>::vector;
#pragma unroll
  for (int i = 0; i < access.vectors; ++i)
    access.raw[i] = __ldcs(reinterpret_cast<const vector *>(from) + i);
  return access.unpack();
}
template <class T, int N> DEVICE void store_vec(T *to, Vec<T, N> values) {
  vector_access<T, N> access;
  using vector = typename vector_access<T, N>::vector;
  access.pack(values);
#pragma unroll
  for (int i = 0; i < access.vectors; ++i)
    reinterpret_cast<vector *>(to)[i] = access.raw[i];
}
// For global memory that is not read again soon.
template <class T, int N> DEVICE void store_stream_vec(T *to, Vec<T, N> values) {
  vector_access<T, N> access;
  using vector = typename vector_access<T, N>::vector;
  access.pack(values);
#pragma unroll
  for (int i = 0; i < access.vectors; ++i)
    __stcs(reinterpret_cast<vector *>(to) + i, access.raw[i]);
}

// Has the L2 fetch what soon is read: only a hint, which may name memory that a kernel still writes. Whole
// words of 16 bytes between the two ends, fewer than 2^32 bytes.
DEVICE void prefetch_range(const void *from, const void *end) {
#if HAS_TMA
  const u64 first = (reinterpret_cast<u64>(from) + 15u) & ~(u64)15u,
            last = reinterpret_cast<u64>(end) & ~(u64)15u;
  if (first < last)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"((u32)(last - first)));
#endif
}
