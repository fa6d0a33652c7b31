#pragma once
// Keys and values of attention_decode_mma.cuh that come through a ring of the block's shared memory, by bulk
// copies: each warp has Config::ring tiles of it, and asks for the next one where it has read one. The rows
// of a head lie one after the other.

#include "attention_decode_operands.cuh"
#include "ring_place.cuh"

template <class Config, class T>
struct KeysInRing {
  static_assert(!is_code<T> && !is_paged<Config> && !reads_own_rows<Config>, "");
  using Shape = DecodeMma<Config>;
  static constexpr int tile_keys = Shape::tile_keys, stages = Config::ring;
  static constexpr u32 key_bytes = Config::depth * (u32)sizeof(T), // of a row
      value_bytes = Config::value_depth * (u32)sizeof(T), tile_bytes = tile_keys * (key_bytes + value_bytes);
  struct Rows {
    const T *keys, *values; // of key 0
    i64 end;
    template <class Body>
    DEVICE void start(const Body &body, const DecodeTile &tile, i64) {
      keys = body.key_rows(tile.entry, tile.kv_head);
      values = body.value_rows(tile.entry, tile.kv_head);
    }
  } from;
  u8 *tiles;
  u64 *full;
  RingPlace at;

  // Of the tile from key j on, if there is one, by one lane.
  DEVICE void request(i64 j, int stage) const {
    if (j >= from.end)
      return;
    const u32 count = from.end - j < tile_keys ? (u32)(from.end - j) : (u32)tile_keys;
    u8 *keys = tiles + stage * tile_bytes;
    mbarrier_arrive_expect(full + stage, count * (key_bytes + value_bytes));
    bulk_load_once(keys, from.keys + j * Config::depth, count * key_bytes, full + stage);
    bulk_load_once(keys + tile_keys * key_bytes, from.values + j * Config::value_depth, count * value_bytes,
                   full + stage);
  }
  DEVICE void start(i64 j, i64 step) {
    SHARED(u64, barriers, Config::warps * stages);
    full = barriers + warp_of_block() * stages;
    tiles = dynamic_shared() + warp_of_block() * (stages * tile_bytes);
    if (lane_of_warp() == 0) {
#pragma unroll
      for (int stage = 0; stage < stages; ++stage)
        mbarrier_init(full + stage, 1);
      fence_mbarrier_init();
#pragma unroll
      for (int stage = 0; stage < stages; ++stage)
        request(j + stage * step, stage);
    }
    warp_barrier();
  }
  // Weights of keys that are not there are zero; their values are made so too, as others may be no numbers.
  DEVICE void await(i64 j) {
    mbarrier_wait(full + at.stage, at.parity);
    const int count = (int)(from.end - j);
    if (count < tile_keys) {
      T *values = reinterpret_cast<T *>(tiles + at.stage * tile_bytes + tile_keys * key_bytes);
      for (int i = count * Config::value_depth + lane_of_warp() * 8; i < tile_keys * Config::value_depth;
           i += 32 * 8)
        store_vec(values + i, Vec<T, 8>{});
      warp_barrier();
    }
  }
  // As DecodeOperands::visit_keys and visit_values number them.
  DEVICE StoredVector<T> vector(int i) const {
    constexpr int of_keys = 2 * Shape::key_vectors;
    const u8 *tile = tiles + at.stage * tile_bytes;
    auto load = [](const u8 *row, int column) {
      return StoredVector<T>{
          load_vec<u32, 4>(reinterpret_cast<const u32 *>(row + (u32)column * (u32)sizeof(T)))};
    };
    if (i < of_keys) {
      const int column = i % Shape::key_vectors * 32 + fragment_part() * 8;
      const u8 *row = tile + (u32)(fragment_line() + i / Shape::key_vectors * 8) * key_bytes;
      if (Config::depth % 32 == 0 || column < Config::depth)
        return load(row, column);
      return StoredVector<T>();
    }
    const int column = (i - of_keys) / 4 * 64 + fragment_line() * 8, of_tile = (i - of_keys) % 4;
    const u8 *row = tile + tile_keys * key_bytes +
                    (u32)(2 * fragment_part() + of_tile / 2 * 8 + of_tile % 2) * value_bytes;
    if (Config::value_depth % 64 == 0 || column < Config::value_depth)
      return load(row, column);
    return StoredVector<T>();
  }
  DEVICE void keys_used(i64, i64) {}
  DEVICE void values_used(i64 j, i64 step) {
    warp_barrier(); // all lanes have read the tile
    if (lane_of_warp() == 0)
      request(j + stages * step, at.stage);
    at.template advance<stages>();
  }
  DEVICE void finish() {}
};
template <class Config, class T>
struct decode_stream<Config, T, KeysWait::InRing> {
  using type = KeysInRing<Config, T>;
};
