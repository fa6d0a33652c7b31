#pragma once
// Scales and zero points of quantised weights as asynchronous copies bring them: as the aligned words of 16
// bytes in which they lie. An entry is named by a pointer, const S * or packed<S>; Alike and NoZeroPoint are
// no entries in memory.

#include "gemm.cuh"

/// How many entries a word has, and the bytes of the last one that a range ends with.
template <class Pointer>
struct EntryWords {
  static constexpr i32 per_word = 1;
};
template <class S>
struct EntryWords<const S *> {
  static constexpr i32 per_word = 16 / (i32)sizeof(S);
};
template <class S>
struct EntryWords<packed<S>> {
  static constexpr i32 per_word = 32;
};

template <class S>
DEVICE const u8 *entry_byte(const S *entry) {
  return reinterpret_cast<const u8 *>(entry);
}
template <class S>
DEVICE const u8 *entry_byte(packed<S> entry) {
  return entry.bytes + (entry.at >> 1);
}
template <class S>
DEVICE const u8 *entry_end(const S *last) {
  return entry_byte(last) + sizeof(S);
}
template <class S>
DEVICE const u8 *entry_end(packed<S> last) {
  return entry_byte(last) + 1;
}

/// The number of an entry in its word.
template <class S>
DEVICE i32 place_in_word(const S *entry) {
  return (i32)((u64)entry_byte(entry) & 15u) / (i32)sizeof(S);
}
template <class S>
DEVICE i32 place_in_word(packed<S> entry) {
  return (i32)((u64)entry_byte(entry) & 15u) * 2 + (i32)(entry.at & 1);
}
template <class S>
DEVICE i32 place_in_word(Alike<S>) {
  return 0;
}
DEVICE i32 place_in_word(NoZeroPoint) { return 0; }

/// Asks for the words from that of entry `first` of a row on, which has `count`. `Whole`: rows begin and end
/// with words; else what is behind the last entry is zero.
template <int Words, bool Whole, class Pointer>
DEVICE void copy_entry_words(SharedPlace to, Pointer row, i32 first, i32 count) {
  constexpr i32 perWord = EntryWords<Pointer>::per_word;
  if constexpr (Whole) {
    const u8 *from = entry_byte(row) + first / perWord * 16;
#pragma unroll
    for (int w = 0; w < Words; ++w)
      cp_async_16(to + 16 * w, from + 16 * w);
  } else {
    const u8 *entry = entry_byte(row + first), *end = entry_end(row + (count - 1)),
             *from = entry - ((u64)entry & 15u);
#pragma unroll
    for (int w = 0; w < Words; ++w) {
      const i64 left = end - (from + 16 * w);
      cp_async_first(to + 16 * w, left > 0 ? from + 16 * w : from,
                     left <= 0   ? 0u
                     : left < 16 ? (u32)left
                                 : 16u);
    }
  }
}

/// Entry `index` of words that have come. `tag`: what names one.
template <class S>
DEVICE S entry_in(const u8 *words, i32 index, const S *) {
  return load(reinterpret_cast<const S *>(words) + index);
}
template <class S>
DEVICE S entry_in(const u8 *words, i32 index, packed<S>) {
  return load(packed<S>(reinterpret_cast<const S *>(words)) + index);
}
template <class S>
DEVICE S entry_in(const u8 *, i32, Alike<S> all) {
  return all.value;
}
DEVICE NoZeroPoint entry_in(const u8 *, i32, NoZeroPoint none) { return none; }

/// Scales `index` … of such words, as f32. `Whole`: a multiple of N, so that they are read as one vector.
template <bool Whole, int N, class S>
DEVICE void entries_in(const u8 *words, i32 index, const S *tag, Vec<f32, N> &to) {
  if constexpr (Whole && N * sizeof(S) <= 16) {
    const Vec<S, N> read = load_vec<S, N>(reinterpret_cast<const S *>(words) + index);
#pragma unroll
    for (int i = 0; i < N; ++i)
      to[i] = to_f32(read[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
      to[i] = to_f32(entry_in(words, index + i, tag));
  }
}
template <bool Whole, int N, class S>
DEVICE void entries_in(const u8 *, i32, Alike<S> all, Vec<f32, N> &to) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    to[i] = to_f32(all.value);
}
