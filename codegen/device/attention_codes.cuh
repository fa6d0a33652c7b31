#pragma once
// Keys and values as they are stored: as elements, or as codes of 8 or 4 bits of which each element is code *
// scale, rounded to the type of the queries. A Config whose Key or Value is a type of codes also has
//   key_scales_by_column, value_scales_by_column    each column of a head has a scale of its own
// and its Body
//   f32 key_scale(kv_head), value_scale(kv_head)              one scale for a head, or
//   const f32 *key_scales(kv_head), *value_scales(kv_head)    its columns' scales
// which are to be called after pdl_wait().

#include "attention_pages.cuh"

// Codes from -8 to 7 of two neighbouring columns, each with 8 added, the lower half first.
struct i4_pair {
  u8 bits;
};
template <class Stored>
constexpr bool is_code = sizeof(Stored) == 1;
// Columns that are one Stored.
template <class Stored>
constexpr int columns_of = same_type<Stored, i4_pair> ? 2 : 1;
// The type of the elements that products take.
template <class Config, class Stored, bool Codes = is_code<Stored>>
struct product_type {
  using type = Stored;
};
template <class Config, class Stored>
struct product_type<Config, Stored, true> {
  using type = typename Config::Query;
};

// What the codes of a head are multiplied with. `eight` neighbours are read 16 bytes at a time.
template <bool ByColumn>
struct CodeScale {
  f32 one;
  DEVICE f32 of(int) const { return one; }
  DEVICE Vec<f32, 8> eight(int) const { return Vec<f32, 8>{one, one, one, one, one, one, one, one}; }
};
template <>
struct CodeScale<true> {
  const f32 *columns;
  DEVICE f32 of(int column) const { return load(columns + column); }
  DEVICE Vec<f32, 8> eight(int column) const { return load_vec<f32, 8>(columns + column); }
};
template <class Config, bool Codes>
struct scales_of_columns {
  static constexpr bool keys = false, values = false;
};
template <class Config>
struct scales_of_columns<Config, true> {
  static constexpr bool keys = Config::key_scales_by_column, values = Config::value_scales_by_column;
};
template <class Config>
constexpr bool has_codes = is_code<typename Config::Key> || is_code<typename Config::Value>;
template <class Config>
using KeyScale = CodeScale<scales_of_columns<Config, has_codes<Config>>::keys>;
template <class Config>
using ValueScale = CodeScale<scales_of_columns<Config, has_codes<Config>>::values>;

template <class Config, class Body>
DEVICE KeyScale<Config> key_scale(const Body &body, i64 kv_head) {
  if constexpr (!is_code<typename Config::Key>)
    return {1.f};
  else if constexpr (Config::key_scales_by_column)
    return {body.key_scales(kv_head)};
  else
    return {body.key_scale(kv_head)};
}
template <class Config, class Body>
DEVICE ValueScale<Config> value_scale(const Body &body, i64 kv_head) {
  if constexpr (!is_code<typename Config::Value>)
    return {1.f};
  else if constexpr (Config::value_scales_by_column)
    return {body.value_scales(kv_head)};
  else
    return {body.value_scale(kv_head)};
}

// An element from what is stored of it.
template <class Config, class Stored, class Scale>
DEVICE f32 stored_element(f32 stored, const Scale &scale, int column) {
  if constexpr (is_code<Stored>)
    return round_to<typename Config::Query>(stored * scale.of(column));
  else
    return stored;
}

DEVICE f32 code_of(i4_pair pair, int column) { return (f32)((pair.bits >> column % 2 * 4 & 15) - 8); }
// What is stored of column `column` of a row, as f32.
template <class Stored>
DEVICE f32 load_column(const Stored *row, int column, i64 column_stride) {
  if constexpr (columns_of<Stored> == 1)
    return to_f32(load(row + column * column_stride));
  else
    return code_of(i4_pair{load(&row->bits + column / 2 * column_stride)}, column);
}
// The same of some neighbours, all of a Stored's columns or one; zeros where they are not `inside`.
// `Written`: the kernel may have written them itself.
template <bool Written = false, class Stored, int N>
DEVICE void load_columns(f32 (&values)[N], const Stored *row, int column, i64 column_stride, bool inside) {
  if constexpr (columns_of<Stored> == 1) {
    load_floats<Written>(values, row + column * column_stride, inside);
  } else if constexpr (N == 1) {
    values[0] = inside ? load_column(row, column, column_stride) : 0.f;
  } else {
    Vec<u8, N / 2> pairs = Vec<u8, N / 2>();
    if (inside)
      pairs = Written ? load_vec<u8, N / 2>(&row->bits + column / 2 * column_stride)
                      : load_stream_vec<u8, N / 2>(&row->bits + column / 2 * column_stride);
#pragma unroll
    for (int i = 0; i < N; ++i)
      values[i] = inside ? code_of(i4_pair{pairs[i / 2]}, i) : 0.f;
  }
}

// Eight neighbours as they are stored; zeros where they are not `inside`.
template <class Stored>
struct StoredVector {
  static constexpr int count = 2 * (int)sizeof(Stored) / columns_of<Stored>;
  Vec<u32, count> words;
};
// `Past`: past the L1 and where it stands, as the kernel may have written it itself, or reads it before
// pdl_wait(). load_stream_vec may be moved in front of a barrier.
template <bool Past = false, class Stored>
DEVICE StoredVector<Stored> load_stored(const Stored *from, bool inside) {
  constexpr int count = StoredVector<Stored>::count;
  StoredVector<Stored> vector = StoredVector<Stored>();
  if constexpr (columns_of<Stored> == 2)
    vector.words[0] = 0x88888888u;
  if (inside)
    vector.words = Past ? load_lines_vec<u32, count>(reinterpret_cast<const u32 *>(from))
                        : load_stream_vec<u32, count>(reinterpret_cast<const u32 *>(from));
  return vector;
}
// The same as four registers of pairs of T. Their first column is one of the head.
template <class T, class Stored, class Scale>
DEVICE Vec<u32, 4> elements_of(const StoredVector<Stored> &vector, const Scale &scale, int column) {
  if constexpr (!is_code<Stored>) {
    return vector.words;
  } else if constexpr (columns_of<Stored> == 2) {
    const Vec<f32, 8> scales = scale.eight(column);
    const u32 even = vector.words[0] & 0x0f0f0f0fu, odd = vector.words[0] >> 4 & 0x0f0f0f0fu;
    Vec<u32, 4> pairs;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // In the last byte of 2^23 a byte counts units.
      const f32 low = f32_of_bits(permute_bytes(even, 0x4b000000u, 0x7540u | (u32)i)) - 8388616.f;
      const f32 high = f32_of_bits(permute_bytes(odd, 0x4b000000u, 0x7540u | (u32)i)) - 8388616.f;
      pairs[i] = packed_pair<T>(low * scales[2 * i], high * scales[2 * i + 1]);
    }
    return pairs;
  } else {
    const Vec<f32, 8> scales = scale.eight(column);
    Vec<u32, 4> pairs;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      f32 codes[4];
      decode_bytes<Stored>(codes, vector.words[w]);
      pairs[2 * w] = packed_pair<T>(codes[0] * scales[4 * w], codes[1] * scales[4 * w + 1]);
      pairs[2 * w + 1] = packed_pair<T>(codes[2] * scales[4 * w + 2], codes[3] * scales[4 * w + 3]);
    }
    return pairs;
  }
}
