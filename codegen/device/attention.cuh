#pragma once
// What attention kernels need of registers: matrix fragments straight from memory, weights of softmax in
// parts.

#include "bytes.cuh"
#include "math.cuh"
#include "reduce.cuh"

// Eight elements of 16 bits that lie together, as four registers; zeros where they are not `inside`.
template <class T>
DEVICE Vec<u32, 4> load_fragment(const T *from, bool inside) {
  Vec<u32, 4> words = Vec<u32, 4>();
  if (inside)
    words = load_stream_vec<u32, 4>(reinterpret_cast<const u32 *>(from));
  return words;
}
// Two f32 as the nearest pair of T and, as another, what that leaves of them: with both the products are
// those of f32.
template <class T>
DEVICE void split_pair(f32 low, f32 high, u32 &nearest, u32 &rest) {
  Vec<f32, 2> values;
  values[0] = low;
  values[1] = high;
  const Vec<T, 2> near = vec_from_f32<T>(values);
  values[0] = low - element_f32(near, 0);
  values[1] = high - element_f32(near, 1);
  const Vec<T, 2> left = vec_from_f32<T>(values);
  copy_bytes(&nearest, &near, 4);
  copy_bytes(&rest, &left, 4);
}
// The weight of a score next to the largest one, 0 where nothing is kept.
DEVICE f32 weight_of(f32 score, f32 largest) {
  return exp2_near((score - (largest == -inf_f32() ? 0.f : largest)) * 1.44269504f);
}
// Over the lanes l + 4 i, which hold one column of a matrix fragment; the same bits in each.
DEVICE f32 column_max(f32 value) {
#pragma unroll
  for (int mask = 4; mask < 32; mask *= 2) {
    const f32 other = shuffle_xor(value, mask);
    value = max_nan(value, other);
  }
  return value;
}
DEVICE f32 column_sum(f32 value) {
#pragma unroll
  for (int mask = 4; mask < 32; mask *= 2) {
    const f32 other = shuffle_xor(value, mask);
    value = value + other;
  }
  return value;
}
// Of Count values in each lane (a power of two up to 32) the sums over all lanes: lane l gets that of value l
// % Count.
template <int Count>
DEVICE f32 sum_each(f32 (&values)[Count]) {
  const int lane = (int)lane_id();
#pragma unroll
  for (int half = Count / 2; half > 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const f32 other = shuffle_xor(upper ? values[i] : values[i + half], half);
      values[i] = (upper ? values[i + half] : values[i]) + other;
    }
  }
  f32 sum = values[0];
#pragma unroll
  for (int mask = Count; mask < 32; mask *= 2) {
    const f32 other = shuffle_xor(sum, mask);
    sum = sum + other;
  }
  return sum;
}
// Some neighbouring elements as f32; zeros where they are not `inside`. `Written`: the kernel may have
// written them itself.
template <bool Written = false, class T, int N>
DEVICE void load_floats(f32 (&values)[N], const T *from, bool inside) {
  Vec<T, N> loaded = Vec<T, N>();
  if (inside)
    loaded = Written ? load_vec<T, N>(from) : load_stream_vec<T, N>(from);
#pragma unroll
  for (int i = 0; i < N; ++i)
    values[i] = element_f32(loaded, i);
}
