#pragma once
// Operands of attention_decode_mma.cuh: its tiles, keys and values on their way to the products, queries.

#include "attention_codes.cuh"
#include "attention_decode.cuh"

template <class Config>
struct DecodeMma {
  static constexpr int rows = 8 * Config::row_tiles, tile_keys = 16;
  static constexpr int key_vectors = (Config::depth + 31) / 32; // that a lane has of each of its two keys
  static constexpr int value_vectors =
      (Config::value_depth + 63) / 64;                                // and of each of its four keys' values
  static constexpr int vectors = 2 * key_vectors + 4 * value_vectors; // that a lane reads at a time
  static constexpr int warp_vector_bytes = 32 * 8 * sizeof(typename Config::Key),
                       stage_bytes = vectors * warp_vector_bytes;
  static constexpr int waiting_bytes = Config::warps * Config::stages * stage_bytes;
  static constexpr int acc_bytes = WarpResults<Config, rows>::acc_bytes;
  static constexpr int shared_bytes = waiting_bytes > acc_bytes ? waiting_bytes : acc_bytes;
  // Accumulators of a lane: 4 value_vectors fragments of 16 x 8 for each tile of rows.
  static constexpr int fragments = 4 * value_vectors;
};

// In a product a lane has rows l / 4 (+ 8) and columns 2 (l % 4) (+ 1): here keys and rows of queries.
DEVICE int fragment_line() { return lane_of_warp() / 4; }
DEVICE int fragment_part() { return lane_of_warp() % 4; }
// Row i of the 2 row_tiles that a lane has scores of.
DEVICE int score_row(int i) { return i / 2 * 8 + fragment_part() * 2 + i % 2; }

// Keys and values on their way to the products: a lane's of 16 keys from j on. visit(index, from, inside) is
// called for each vector that it reads: first of its two keys, l / 4 (+ 8), then of the values of four, 2 (l
// % 4) (+ 1, + 8, + 9). The pointers move along with j: one addition a tile, where an address from j takes a
// product for each row. The primary template is for contiguous rows.
template <class Config, class T, bool Paged = is_paged<Config>>
struct DecodeOperands {
  const T *keys, *values; // where the lane's are of the tile that is visited next
  i64 key_stride, value_stride, end;

  template <class Body>
  DEVICE void start(const Body &body, const DecodeTile &tile, i64 j) {
    key_stride = body.key_stride();
    value_stride = body.value_stride();
    end = tile.keys.end;
    keys = body.key_rows(tile.entry, tile.kv_head) + (j + fragment_line()) * key_stride +
           fragment_part() * 8 / columns_of<T>;
    values = body.value_rows(tile.entry, tile.kv_head) + (j + 2 * fragment_part()) * value_stride +
             fragment_line() * 8 / columns_of<T>;
  }
  template <class Visit>
  DEVICE void visit_keys(i64 j, i64 step, Visit visit) {
    constexpr int count = DecodeMma<Config>::key_vectors;
    const int left = (int)(end - j);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool inside = fragment_line() + 8 * i < left;
#pragma unroll
      for (int c = 0; c < count; ++c)
        visit(i * count + c, keys + 8 * i * key_stride + c * 32 / columns_of<T>,
              inside && (Config::depth % 32 == 0 || c * 32 + fragment_part() * 8 < Config::depth));
    }
    keys += step * key_stride;
  }
  template <class Visit>
  DEVICE void visit_values(i64 j, i64 step, Visit visit) {
    constexpr int first = 2 * DecodeMma<Config>::key_vectors;
    const int left = (int)(end - j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = i / 2 * 8 + i % 2;
      const bool inside = 2 * fragment_part() + key < left;
#pragma unroll
      for (int c = 0; c < DecodeMma<Config>::value_vectors; ++c)
        visit(first + c * 4 + i, values + key * value_stride + c * 64 / columns_of<T>,
              inside &&
                  (Config::value_depth % 64 == 0 || c * 64 + fragment_line() * 8 < Config::value_depth));
    }
    values += step * value_stride;
  }
};
// In pages. Where 16 keys are always of one, its number is looked up a turn ahead; else each row's when it is
// read.
template <class Config, class T>
struct DecodeOperands<Config, T, true> {
  static constexpr bool one_page = Config::page_size % DecodeMma<Config>::tile_keys == 0;
  StoredRows<Config, T> keys, values;
  // Rows 0 of the pages at hand, and of the next ones.
  const T *key_page, *value_page, *next_keys, *next_values;
  i64 end;

  // After pdl_wait().
  template <class Body>
  DEVICE void start(const Body &body, const DecodeTile &tile, i64 j) {
    keys = stored_keys<Config>(body, tile.entry, tile.kv_head);
    values = stored_values<Config>(body, tile.entry, tile.kv_head);
    end = tile.keys.end;
    find_next(j);
  }
  DEVICE void find_next(i64 j) {
    if constexpr (one_page) {
      next_keys = j < end ? keys.page_of(j) : keys.first;
      next_values = j < end ? values.page_of(j) : values.first;
    }
  }
  DEVICE const T *row(const StoredRows<Config, T> &rows, const T *page, i64 j, int line, bool inside) const {
    if constexpr (one_page)
      return page + ((u32)j % (u32)Config::page_size + line) * rows.stride;
    else
      return inside ? rows.row(j + line) : rows.first;
  }
  // The keys of a turn are visited before its values, and both before those of the next.
  template <class Visit>
  DEVICE void visit_keys(i64 j, i64 step, Visit visit) {
    constexpr int count = DecodeMma<Config>::key_vectors;
    key_page = next_keys;
    value_page = next_values;
    const int left = (int)(end - j);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int line = fragment_line() + 8 * i;
      const bool inside = line < left;
      const T *const from = row(keys, key_page, j, line, inside) + fragment_part() * 8 / columns_of<T>;
#pragma unroll
      for (int c = 0; c < count; ++c)
        visit(i * count + c, from + c * 32 / columns_of<T>,
              inside && (Config::depth % 32 == 0 || c * 32 + fragment_part() * 8 < Config::depth));
    }
    find_next(j + step);
  }
  template <class Visit>
  DEVICE void visit_values(i64 j, i64, Visit visit) {
    constexpr int first = 2 * DecodeMma<Config>::key_vectors;
    const int left = (int)(end - j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int line = 2 * fragment_part() + i / 2 * 8 + i % 2;
      const bool inside = line < left;
      const T *const from = row(values, value_page, j, line, inside) + fragment_line() * 8 / columns_of<T>;
#pragma unroll
      for (int c = 0; c < DecodeMma<Config>::value_vectors; ++c)
        visit(first + c * 4 + i, from + c * 64 / columns_of<T>,
              inside &&
                  (Config::value_depth % 64 == 0 || c * 64 + fragment_line() * 8 < Config::value_depth));
    }
  }
};
// vector(i): what was visited as i of the 16 keys at hand, as it is stored. Tiles are visited in order, each
// `step` keys after the one before.
template <class Config, class T>
struct KeysInRegisters {
  DecodeOperands<Config, T> from;
  StoredVector<T> stored[DecodeMma<Config>::vectors];

  // `Past`: past the L1.
  template <bool Past = reads_own_rows<Config>>
  DEVICE void load_keys(i64 j, i64 step) {
    from.visit_keys(
        j, step, [&](int i, const T *at, bool inside) { stored[i] = load_stored<Past>(at, inside); });
  }
  template <bool Past = reads_own_rows<Config>>
  DEVICE void load_values(i64 j, i64 step) {
    from.visit_values(
        j, step, [&](int i, const T *at, bool inside) { stored[i] = load_stored<Past>(at, inside); });
  }
  DEVICE void start(i64 j, i64 step) {
    constexpr bool past = reads_own_rows<Config> || Config::keys_before_wait;
    load_keys<past>(j, step);
    load_values<past>(j, step);
  }
  DEVICE void await(i64) {}
  DEVICE StoredVector<T> vector(int i) const { return stored[i]; }
  // The loads of keys, of values of tile j have been issued.
  DEVICE void keys_used(i64 j, i64 step) { load_keys(j + step, step); }
  DEVICE void values_used(i64 j, i64 step) { load_values(j + step, step); }
  DEVICE void finish() {}
};
// New keys and values, of which a block has `count` in shared memory.
template <class Config, class T>
struct MadeKeys {
  StoredVector<T> stored[DecodeMma<Config>::vectors];

  // Of 16 of them, from `first` on.
  DEVICE void load(const MadeRows<Config> &made, int first, int count) {
    DecodeOperands<Config, T> from;
    from.key_stride = row_pitch<T, Config::depth>;
    from.value_stride = row_pitch<T, Config::value_depth>;
    from.end = count;
    from.keys =
        made.keys + (first + fragment_line()) * from.key_stride + fragment_part() * 8 / columns_of<T>;
    from.values =
        made.values + (first + 2 * fragment_part()) * from.value_stride + fragment_line() * 8 / columns_of<T>;
    auto take = [&](int i, const T *at, bool inside) {
      stored[i] = StoredVector<T>();
      if (inside)
        stored[i].words = load_vec<u32, StoredVector<T>::count>(reinterpret_cast<const u32 *>(at));
    };
    from.visit_keys(first, 0, take);
    from.visit_values(first, 0, take);
  }
  DEVICE StoredVector<T> vector(int i) const { return stored[i]; }
};
// Of elements: codes of the largest head still wait in registers.
template <class Config, class T>
struct KeysInSharedMemory {
  static_assert(!is_code<T>, "");
  using Shape = DecodeMma<Config>;
  DecodeOperands<Config, T> from;
  u8 *waiting;
  int stage;

  DEVICE void request(i64 j, i64 step, u8 *to) {
    auto copy = [&](int i, const T *at, bool inside) {
      cp_async_16(to + i * Shape::warp_vector_bytes, at, inside);
    };
    from.visit_keys(j, step, copy);
    from.visit_values(j, step, copy);
    cp_async_commit();
  }
  DEVICE void start(i64 j, i64 step) {
    waiting =
        dynamic_shared() + warp_of_block() * (Config::stages * Shape::stage_bytes) + lane_of_warp() * 16;
    stage = 0;
#pragma unroll
    for (int i = 0; i < Config::stages; ++i)
      request(j + i * step, step, waiting + i * Shape::stage_bytes);
  }
  DEVICE void await(i64) { cp_async_wait<Config::stages - 1>(); }
  DEVICE StoredVector<T> vector(int i) const {
    return {load_vec<u32, 4>(
        reinterpret_cast<const u32 *>(waiting + stage * Shape::stage_bytes + i * Shape::warp_vector_bytes))};
  }
  DEVICE void keys_used(i64, i64) {}
  DEVICE void values_used(i64 j, i64 step) {
    request(j + Config::stages * step, step, waiting + stage * Shape::stage_bytes);
    stage = stage + 1 < Config::stages ? stage + 1 : 0;
  }
  DEVICE void finish() { cp_async_wait<0>(); } // for the shared memory, which is needed for something else
};
// Where keys and values wait for their products. InRing: attention_decode_ring.cuh.
enum class KeysWait { InRegisters, InSharedMemory, InRing };
template <class Config>
constexpr KeysWait keys_wait = Config::ring > 0     ? KeysWait::InRing
                               : Config::stages > 0 ? KeysWait::InSharedMemory
                                                    : KeysWait::InRegisters;
template <class Config, class T, KeysWait = keys_wait<Config>>
struct decode_stream {
  using type = KeysInRegisters<Config, T>;
};
template <class Config, class T>
struct decode_stream<Config, T, KeysWait::InSharedMemory> {
  using type = KeysInSharedMemory<Config, T>;
};

// Row 8 n + l / 4's columns 8 (l % 4) ... + 7 of every 32: in registers, where there is room, else in shared
// memory.
template <class Config>
struct DecodeQueries {
  static constexpr int key_vectors = DecodeMma<Config>::key_vectors, count = Config::row_tiles * key_vectors;
  static constexpr bool in_registers = count <= 4;
  Vec<u32, 4> words[in_registers ? count : 1];
  u32 *shared;

  template <class Body>
  DEVICE static Vec<u32, 4> read(const Body &body, const DecodeTile &tile, const MadeRows<Config> &made,
                                 int n, int c) {
    using T = typename Config::Query;
    const i64 row = row_or_last(tile, tile.row0 + (n * 8 + fragment_line()));
    const int column = c * 32 + fragment_part() * 8;
    if constexpr (Config::makes_queries) {
      Vec<u32, 4> words = Vec<u32, 4>();
      if (Config::depth % 32 == 0 || column < Config::depth)
        words = load_vec<u32, 4>(reinterpret_cast<const u32 *>(made.query(tile, row) + column));
      return words;
    } else if constexpr (Config::queries_aligned) {
      return load_fragment(body.query(tile.entry, head_of(body, tile, row), query_of(body, row), column),
                           Config::depth % 32 == 0 || column < Config::depth);
    } else {
      const i64 head = head_of(body, tile, row), query = query_of(body, row);
      Vec<T, 8> elements = Vec<T, 8>();
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (column + e < Config::depth)
          elements[e] = load(body.query(tile.entry, head, query, column + e));
      Vec<u32, 4> vector;
      copy_bytes(&vector, &elements, 16);
      return vector;
    }
  }
  // `made`: what make_heads() returned.
  template <class Body>
  DEVICE void start(const Body &body, const DecodeTile &tile, const MadeRows<Config> &made) {
    if constexpr (in_registers) {
#pragma unroll
      for (int i = 0; i < count; ++i)
        words[i] = read(body, tile, made, i / key_vectors, i % key_vectors);
    } else {
      SHARED(u32, query_words, count * 128);
      shared = query_words;
      if (warp_of_block() == 0) {
#pragma unroll
        for (int i = 0; i < count; ++i)
          store_vec(shared + (i * 32 + lane_of_warp()) * 4,
                    read(body, tile, made, i / key_vectors, i % key_vectors));
      }
      barrier();
    }
  }
  DEVICE Vec<u32, 4> vector(int n, int c) const {
    if constexpr (in_registers)
      return words[n * key_vectors + c];
    else
      return load_vec<u32, 4>(shared + ((n * key_vectors + c) * 32 + lane_of_warp()) * 4);
  }
};
