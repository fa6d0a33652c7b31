#pragma once
// Keys and values as they are stored: as elements, or as codes of 8 bits of which each element is code * scale,
// rounded to the type of the queries. A Body whose Config::Key or Value is a type of codes also has
//   f32 key_scale(kv_head), value_scale(kv_head)
// Both are to be called after pdl_wait().

#include "attention.cuh"

template <class Stored>
constexpr bool is_code = sizeof(Stored) == 1;
// The type of the elements that products take.
template <class Config, class Stored, bool Codes = is_code<Stored>>
struct product_type {
  using type = Stored;
};
template <class Config, class Stored>
struct product_type<Config, Stored, true> {
  using type = typename Config::Query;
};

template <class Config, class Body>
DEVICE f32 key_scale(const Body &body, i64 kv_head) {
  if constexpr (is_code<typename Config::Key>)
    return body.key_scale(kv_head);
  else
    return 1.f;
}
template <class Config, class Body>
DEVICE f32 value_scale(const Body &body, i64 kv_head) {
  if constexpr (is_code<typename Config::Value>)
    return body.value_scale(kv_head);
  else
    return 1.f;
}

// An element from what is stored of it.
template <class Config, class Stored>
DEVICE f32 stored_element(f32 stored, f32 scale) {
  if constexpr (is_code<Stored>)
    return round_to<typename Config::Query>(stored * scale);
  else
    return stored;
}

// Eight neighbours as they are stored; zeros where they are not `inside`.
template <class Stored>
struct StoredVector {
  Vec<u32, 2 * sizeof(Stored)> words;
};
template <class Stored>
DEVICE StoredVector<Stored> load_stored(const Stored *from, bool inside) {
  constexpr int count = 2 * (int)sizeof(Stored);
  StoredVector<Stored> vector = StoredVector<Stored>();
  if (inside)
    vector.words = load_stream_vec<u32, count>(reinterpret_cast<const u32 *>(from));
  return vector;
}
// The same as four registers of pairs of T.
template <class T, class Stored>
DEVICE Vec<u32, 4> elements_of(const StoredVector<Stored> &vector, f32 scale) {
  if constexpr (!is_code<Stored>) {
    return vector.words;
  } else {
    Vec<u32, 4> pairs;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      f32 codes[4];
      decode_bytes<Stored>(codes, vector.words[w]);
      pairs[2 * w] = packed_pair<T>(codes[0] * scale, codes[1] * scale);
      pairs[2 * w + 1] = packed_pair<T>(codes[2] * scale, codes[3] * scale);
    }
    return pairs;
  }
}
