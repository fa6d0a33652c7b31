#pragma once
// The ring of a warp of gemm_small_m_codes: codes, scales and zero points of some steps along K, which its
// lanes bring by asynchronous copies, 16 bytes of codes each, and the aligned words in which a row's entries
// lie. Tiles of so few rows by TMA took longer (benchmarks/notes-launch.md).

#include "entry_words.cuh"

template <class Config, class Shape, class B>
struct CodeRing {
  static constexpr int sums = accumulators<Config>, stages = Config::stages;
  /// Bytes of a row of codes, in vectors of 16, which lie so that eight rows of one meet every bank once.
  static constexpr int row_bytes = Config::depth * B::bits / 8, row_vectors = row_bytes / 16;
  static constexpr int vector_codes = 128 / B::bits;
  static constexpr bool has_entries = Config::scale_depth > 0, has_zeros = Config::zero_words > 0;
  static constexpr int scale_row = Config::scale_words * 16, zero_row = Config::zero_words * 16;
  /// Of 16 rows.
  static constexpr int code_bytes = 16 * row_bytes, entry_bytes = 16 * (scale_row + zero_row);
  static constexpr int sum_bytes = code_bytes + entry_bytes, stage_bytes = sums * sum_bytes,
                       bytes_of_warp = stages * stage_bytes;
  static constexpr int copied_rows = 32 / row_vectors, copies = 16 / copied_rows; ///< by all lanes at once
  static_assert(row_bytes == 64 || row_bytes == 128, "a quarter or an eighth of the lanes for a row");

  const Shape &shape;
  const B &b;
  const int lane = (int)lane_id();
  u8 *const ring; ///< the warp's
  const SharedPlace place_of_ring = shared_place(ring);
  const u8 *asked[sums];     ///< vector lane % row_vectors of row lane / row_vectors of the tile
  i32 matmul = 0, row[sums]; ///< whose entries the lane copies
  i32 rows_left[sums];       ///< of the tile from the lane's row of codes on, where not whole_tiles
  i32 scale_at[sums][2], zero_at[sums][2]; ///< of entry 0 of a lane's rows in its word, where not whole_words

  DEVICE CodeRing(const Shape &shape, const B &b, u8 *rings)
      : shape(shape), b(b), ring(rings + uniform_warp() * bytes_of_warp) {}

  DEVICE const u8 *codes_of(int stage, int sum) const {
    return ring + (stage * stage_bytes + sum * sum_bytes);
  }
  /// Scales of the rows, then zero points.
  DEVICE const u8 *entries_of(int stage, int sum) const { return codes_of(stage, sum) + code_bytes; }
  /// Where vector v of row r lies.
  static DEVICE constexpr i32 place_of_vector(i32 r, i32 v) {
    return r * row_bytes + (v ^ (row_bytes == 128 ? r % 8 : r / 2 % 4)) * 16;
  }
  /// The first of a step's entries.
  static DEVICE i32 first_entry(i32 step) { return step * Config::depth / larger(B::k_per_scale, 1); }
  /// Row r of a tile of the weights; behind the last one that one again.
  DEVICE i64 weight_row(const BlockPlace &place, int sum, int r) const {
    const i64 at = place.column + r, n = shape.n(place.matmul + sum);
    return at < n ? at : n - 1;
  }

  /// Of what to ask for.
  DEVICE void move_to(const BlockPlace &place) {
    matmul = place.matmul;
#pragma unroll
    for (int s = 0; s < sums; ++s) {
      asked[s] = entry_byte(b.matrix(matmul + s, 0) + (b.row(matmul + s, place.column + lane / row_vectors) +
                                                       lane % row_vectors * vector_codes));
      rows_left[s] = (i32)(shape.n(matmul + s) - place.column) - lane / row_vectors;
      row[s] = (i32)weight_row(place, s, lane % 16);
    }
  }
  /// Always commits a group.
  DEVICE void ask(int stage, i32 step, bool asks) const {
    if (asks)
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        const SharedPlace to = place_of_ring + (stage * stage_bytes + s * sum_bytes);
        copy_codes(to, s, step);
        if constexpr (has_entries)
          copy_entries(to + code_bytes, s, first_entry(step));
      }
    cp_async_commit();
  }
  /// For the stage that was asked for first.
  DEVICE void wait() const {
    cp_async_wait<stages - 1>();
    warp_barrier();
  }

  /// For entries of rows l / 4 and l / 4 + 8 of the tile.
  DEVICE void find_entries(const BlockPlace &place) {
    if constexpr (has_entries && !Config::whole_words)
#pragma unroll
      for (int s = 0; s < sums; ++s)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const i64 at = weight_row(place, s, lane / 4 + 8 * h);
          scale_at[s][h] = place_in_word(b.scales(place.matmul + s, at, 0));
          zero_at[s][h] = place_in_word(b.zeros(place.matmul + s, at, 0));
        }
  }
  /// Where entry `first` lies in the words of the step that begins with it.
  template <class Scale>
  DEVICE i32 scale_place(int s, int h, i32 first, Scale) const {
    return ((Config::whole_words ? 0 : scale_at[s][h]) + first) % EntryWords<Scale>::per_word;
  }
  template <class Zero>
  DEVICE i32 zero_place(int s, int h, i32 first, Zero) const {
    return ((Config::whole_words ? 0 : zero_at[s][h]) + first) % EntryWords<Zero>::per_word;
  }

private:
  DEVICE void copy_codes(SharedPlace to, int s, i32 step) const {
    const i32 k = step * Config::depth;
    const u8 *from = asked[s] + k * B::bits / 8;
    const i64 distance = (b.row(0, copied_rows) - b.row(0, 0)) * B::bits / 8;
#pragma unroll
    for (int c = 0; c < copies; ++c) {
      if constexpr (Config::whole_steps && Config::whole_tiles)
        cp_async_16(to + place_of_copy(c), from + c * distance);
      else
        cp_async_16(to + place_of_copy(c), from + c * distance,
                    (Config::whole_steps || k + lane % row_vectors * vector_codes < shape.k()) &&
                        (Config::whole_tiles || c * copied_rows < rows_left[s]));
    }
  }
  /// Where the lane's vector of copy c lies; written so that copies differ by constants.
  DEVICE i32 place_of_copy(int c) const {
    const i32 first = place_of_vector(lane / row_vectors, lane % row_vectors);
    return (row_bytes == 128 && c % 2 ? first ^ 64 : first) + c * copied_rows * row_bytes;
  }
  /// Each lane copies the scales, or the zero points, of a row.
  DEVICE void copy_entries(SharedPlace to, int s, i32 first) const {
    if (lane < 16)
      copy_entry_words<Config::scale_words, Config::whole_words>(
          to + lane * scale_row, b.scales(matmul + s, row[s], 0), first, entries_of_row());
    else if constexpr (has_zeros)
      copy_entry_words<Config::zero_words, Config::whole_words>(
          to + (16 * scale_row + (lane - 16) * zero_row), b.zeros(matmul + s, row[s], 0), first,
          entries_of_row());
  }
  DEVICE i32 entries_of_row() const { return ((i32)shape.k() - 1) / larger(B::k_per_scale, 1) + 1; }
};
