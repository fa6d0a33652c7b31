#pragma once
// Up to 32 rows of A times quantised weights on tensor cores, at the speed at which memory gives the codes.
// As in gemm_small_m.cuh the rows of B (the columns of C) are the 16 rows of mma.m16n8k16, the rows of A its
// 8 columns, and the order of k inside a sum is free: a lane decodes the codes of a word in whichever order
// takes the fewest instructions, and A lies in shared memory in that order.
//
// Each warp has a ring of its own in shared memory, which its lanes fill by asynchronous copies from before
// the wait for the kernels in front on. A lane reads the codes that it has copied itself; only scales and
// zero points are other lanes'. The warps of a block share out K of some tiles of 16 columns, and the tiles
// of the next turn are on their way while those of this one are added up.

#include "code_pairs.cuh"
#include "early_launch.cuh"
#include "entry_words.cuh"
#include "epilogue_operands.cuh"
#include "fragments.cuh"

/// `Config`:
///   type                 bf16 or f16, of A; B's elements are decoded to it
///   rows                 of A, at most: 1 to 8, 16, 24 or 32
///   warps, k_split       of a block; those that share out K of a tile
///   depth                of a step along K: 128 or 256 codes of 4 bits, 64 or 128 of 8
///   stages               steps that a warp has on their way
///   scale_depth          so many neighbours along k, from a multiple of it on, share scale and zero point:
///                        divides the depth, 16 at least; 0: all do
///   scale_fits           scales have the type `type`
///   scale_words, zero_words   aligned words of 16 bytes that hold those of a step of a row of B; 0: they are
///                        no tensors along k
///   whole_steps          K is a multiple of a step
///   whole_words          rows of scales and zero points begin and end with such words
///   vector               neighbouring columns that the epilogue takes
///   weights_before_wait, launches_early, matmuls, combined
/// `B`: gemm.cuh's, and where scale_depth is not 0
///   scales, zeros(matmul, i, k)   a pointer to the entry of row i and k; NoZeroPoint or Alike
template <class Config, class Shape, class B>
struct SmallMCodes {
  using T = typename Config::type;
  using Decoder = decltype(static_cast<const B *>(nullptr)->decoder(0, 0, 0));
  using Pairs = CodePairs<T, typename B::element, B::bits, Config::scale_fits, typename Decoder::zero_type>;
  using Entry = typename Pairs::Entry;
  static constexpr int sums = accumulators<Config>, groups = (Config::rows + 7) / 8;
  static constexpr int warps = Config::warps, k_split = Config::k_split, sides = warps / k_split;
  static constexpr int lane_codes = 128 / B::bits, span = 4 * lane_codes; ///< in 16 bytes; of a quad's
  static constexpr int pieces = Config::depth / span, units = lane_codes / 8;
  static constexpr bool has_entries = Config::scale_depth > 0;
  /// Of a warp's stage: codes, then scales and zero points of 16 rows.
  static constexpr int code_bytes = 2 * pieces * 512, scale_row = Config::scale_words * 16,
                       zero_row = Config::zero_words * 16;
  static constexpr int sum_bytes = code_bytes + 16 * (scale_row + zero_row), stage_bytes = sums * sum_bytes;
  static constexpr int ring_bytes = Config::stages * stage_bytes;
  /// Partial sums of a warp: 16 columns of each row; lanes that write at once meet every bank once.
  static constexpr int pitch = 20, part_floats = sums * groups * 8 * pitch;
  /// Vectors of the results of a tile, which the threads of its warps share out.
  static constexpr int per_row = 16 / Config::vector, side_threads = 32 * k_split;
  static constexpr int vectors = (Config::rows * per_row + side_threads - 1) / side_threads;
  /// Rows of A that lie in shared memory.
  static constexpr int held_rows = Config::rows < 8 ? Config::rows : groups * 8;
  static_assert(pieces == 1 || pieces == 2, "one or two vectors of codes a lane");
  static_assert(warps % k_split == 0, "tiles of whole warps");

  const Shape &shape;
  const B &b;
  const int warp = uniform_warp(), lane = (int)lane_id(), quad = lane % 4;
  const int side = warp / k_split, split = warp % k_split;
  const i32 steps, tiles;
  u8 *const ring; ///< the warp's
  const SharedPlace ring_place = shared_place(ring);
  const typename Pairs::Masks masks;
  i32 asked_turn = 0, asked_step; ///< what to ask for next
  const u8 *asked[sums][2];       ///< the lane's codes in rows l / 4 and l / 4 + 8 of that turn
  EntryPointers<B, has_entries> asked_entries[sums]; ///< of row lane % 16
  bool asks = false;                                 ///< whether the turn has a tile for the warp
  /// Products one after the other wait for each other: every second one has sums of its own.
  f32 acc[2][sums][groups][4];
  Entry whole[has_entries ? 1 : sums][2];  ///< of the lane's two rows, where they hold for all of K
  i32 scale_at[sums][2], zero_at[sums][2]; ///< of the first entries in their words of 16 bytes, not whole

  DEVICE SmallMCodes(const Shape &shape, const B &b, u8 *rings)
      : shape(shape), b(b), steps((i32)ceil_div(shape.k(), Config::depth)), tiles(tiles_of(shape)),
        ring(rings + uniform_warp() * ring_bytes), asked_step(split) {}

  static DEVICE i32 tiles_of(const Shape &shape) {
    i64 count = 0;
#pragma unroll
    for (int i = 0; i < (side_by_side<Config> ? Config::matmuls : 1); ++i)
      count += ceil_div(shape.n(i), 16);
    return (i32)count;
  }
  /// The tile of the block's first warps in a turn; there are as many turns as it is one.
  DEVICE i32 first_tile(i32 turn) const { return ((i32)block_x() + turn * (i32)grid_dim_x()) * sides; }
  DEVICE bool has(i32 turn) const { return first_tile(turn) + side < tiles; }
  DEVICE BlockPlace place_of(i32 turn) const {
    BlockPlace place;
    place_columns<Config, 16>(place, shape, first_tile(turn) + side);
    return place;
  }
  /// Row r of a tile of the weights; beyond the last one that one again.
  DEVICE i64 column_of(const BlockPlace &place, int sum, int r) const {
    const i64 column = place.column + r, n = shape.n(place.matmul + sum);
    return column < n ? column : n - 1;
  }

  // The rows of A in shared memory: of what a quad reads at once, vector u of 8 of lane q is at 4 u + q. Rows
  // are whole lines and a half apart, so that the eight lanes of two rows meet every bank once.
  DEVICE i32 depth_of_all() const { return steps * Config::depth; }
  DEVICE i32 row_pitch() const { return depth_of_all() + 32; }
  static DEVICE i32 place_of_chunk(i32 chunk) {
    const i32 in_span = chunk % (4 * units);
    return (chunk - in_span + in_span % units * 4 + in_span / units) * 8;
  }
  /// Asks for the first steps.
  DEVICE void begin() {
#pragma unroll 1
    for (int stage = 0; stage < Config::stages; ++stage)
      ask(stage);
  }
  /// Asks for the warp's next step, of the next turn after its last one. Always commits a group.
  DEVICE void ask(int stage) {
    if (asked_step == split)
      move_to(asked_turn);
    if (asks && asked_step < steps)
      copy_step(ring_place + stage * stage_bytes, asked_step);
    asked_step += k_split;
    if (asked_step >= steps) {
      asked_step = split;
      ++asked_turn;
    }
    cp_async_commit();
  }
  /// Steps of a turn that are asked for, also where the warp has none of them.
  DEVICE i32 steps_of_turn() const { return steps > split ? (steps - split + k_split - 1) / k_split : 1; }

  /// Multiplies a turn's steps with A, at `rows`, from `stage` on.
  DEVICE void multiply(i32 turn, const T *rows, int &stage) {
    clear();
    const bool works = has(turn) && steps > split;
    if (works)
      find_entries(place_of(turn));
    const i32 count = steps_of_turn();
#pragma unroll 1
    for (i32 i = 0; i < count; ++i) {
      cp_async_wait<Config::stages - 1>();
      warp_barrier();
      if (works)
        multiply_step(ring + stage * stage_bytes, rows, split + i * k_split);
      warp_barrier();
      ask(stage);
      stage = stage + 1 < Config::stages ? stage + 1 : 0;
    }
  }

  /// Hands over the warp's sums: lane l has rows l / 4 and l / 4 + 8 of the tile's columns, and of A 2 (l %
  /// 4) and the one behind.
  DEVICE void put(f32 *parts) const {
    f32 *to = parts + warp * part_floats;
#pragma unroll
    for (int s = 0; s < sums; ++s)
#pragma unroll
      for (int j = 0; j < groups; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          to[((s * groups + j) * 8 + quad * 2 + e % 2) * pitch + lane / 4 + e / 2 * 8] =
              acc[0][s][j][e] + acc[1][s][j][e];
  }

  /// Visits the thread's vectors of a tile: number, row, column in the tile.
  template <class Visit>
  DEVICE void for_vectors(const Visit &visit) const {
#pragma unroll
    for (int i = 0; i < vectors; ++i) {
      const int v = i * side_threads + split * 32 + lane;
      if (vectors * side_threads == Config::rows * per_row || v < Config::rows * per_row)
        visit(i, v / per_row, v % per_row * Config::vector);
    }
  }
  /// The sums of all warps of the tile, in their order.
  DEVICE void take(const f32 *parts, int row, int column, Vec<f32, Config::vector> (&to)[sums]) const {
    const f32 *from = parts + side * k_split * part_floats + row * pitch + column;
#pragma unroll
    for (int s = 0; s < sums; ++s) {
      to[s] = load_vec<f32, Config::vector>(from + s * groups * 8 * pitch);
#pragma unroll
      for (int w = 1; w < k_split; ++w) {
        const auto part = load_vec<f32, Config::vector>(from + w * part_floats + s * groups * 8 * pitch);
#pragma unroll
        for (int e = 0; e < Config::vector; ++e)
          to[s][e] += part[e];
      }
    }
  }
  /// Until all warps of a tile are here.
  static DEVICE void meet() {
    if constexpr (k_split == 1)
      warp_barrier();
    else
      barrier();
  }

private:
  DEVICE void clear() {
#pragma unroll
    for (int s = 0; s < sums; ++s)
#pragma unroll
      for (int j = 0; j < groups; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc[0][s][j][e] = acc[1][s][j][e] = 0.f;
  }

  DEVICE void move_to(i32 turn) {
    asks = has(turn);
    if (!asks)
      return;
    const BlockPlace place = place_of(turn);
#pragma unroll
    for (int s = 0; s < sums; ++s)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int matmul = place.matmul + s;
        asked[s][h] = entry_byte(b.matrix(matmul, 0) +
                                 (b.row(matmul, column_of(place, s, lane / 4 + 8 * h)) + quad * lane_codes));
        if constexpr (has_entries) {
          asked_entries[s].scales = b.scales(matmul, column_of(place, s, lane % 16), 0);
          asked_entries[s].zeros = b.zeros(matmul, column_of(place, s, lane % 16), 0);
        }
      }
  }
  DEVICE void copy_step(SharedPlace to, i32 step) const {
    const i32 k = step * Config::depth;
#pragma unroll
    for (int s = 0; s < sums; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const u8 *from = asked[s][h] + k * B::bits / 8;
#pragma unroll
        for (int p = 0; p < pieces; ++p) {
          const SharedPlace vector = to + (s * sum_bytes + (2 * p + h) * 512 + lane * 16);
          if constexpr (Config::whole_steps)
            cp_async_16(vector, from + p * 64);
          else
            cp_async_16(vector, from + p * 64, k + p * span + quad * lane_codes < shape.k());
        }
      }
      if constexpr (has_entries)
        copy_entries(to + (s * sum_bytes + code_bytes), s, k);
    }
  }
  /// Each lane copies the scales, or the zero points, of a row.
  DEVICE void copy_entries(SharedPlace to, int s, i32 k) const {
    const int row = lane % 16;
    const i32 first = k / larger(B::k_per_scale, 1);
    if (lane < 16)
      copy_entry_words<Config::scale_words, Config::whole_words>(
          to + row * scale_row, asked_entries[s].scales, first, entries_of_row());
    else if constexpr (Config::zero_words > 0)
      copy_entry_words<Config::zero_words, Config::whole_words>(
          to + (16 * scale_row + row * zero_row), asked_entries[s].zeros, first, entries_of_row());
  }
  DEVICE i32 entries_of_row() const { return ((i32)shape.k() - 1) / larger(B::k_per_scale, 1) + 1; }

  DEVICE void find_entries(const BlockPlace &place) {
#pragma unroll
    for (int s = 0; s < sums; ++s)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int matmul = place.matmul + s;
        const i64 column = column_of(place, s, lane / 4 + 8 * h);
        if constexpr (has_entries && !Config::whole_words) {
          scale_at[s][h] = place_in_word(b.scales(matmul, column, 0));
          zero_at[s][h] = place_in_word(b.zeros(matmul, column, 0));
        } else if constexpr (!has_entries) {
          whole[s][h] = Pairs::prepare(b.decoder(matmul, column, 0));
        }
      }
  }
  /// Scale and zero point `index` of the step, of one of the lane's rows, whose first of the step is entry
  /// `first` of the row.
  DEVICE Entry entry_of(const u8 *entries, int s, int h, i32 first, i32 index) const {
    using Scale = decltype(b.scales(0, 0, 0));
    using Zero = decltype(b.zeros(0, 0, 0));
    constexpr i32 scales = EntryWords<Scale>::per_word, zeros = EntryWords<Zero>::per_word;
    const int row = lane / 4 + 8 * h;
    const auto scale =
        entry_in(entries + row * scale_row,
                 ((Config::whole_words ? 0 : scale_at[s][h]) + first) % scales + index, b.scales(0, 0, 0));
    const auto zero =
        entry_in(entries + 16 * scale_row + row * zero_row,
                 ((Config::whole_words ? 0 : zero_at[s][h]) + first) % zeros + index, b.zeros(0, 0, 0));
    return Pairs::prepare(Decoder{to_f32(scale), zero});
  }

  DEVICE void multiply_step(const u8 *stage, const T *rows, i32 step) {
    const i32 first = has_entries ? step * Config::depth / larger(B::k_per_scale, 1) : 0;
    constexpr int per_unit = has_entries && Config::scale_depth < lane_codes ? units : 1;
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      Vec<u32, 4> codes[sums][2];
      Entry entries[sums][2][per_unit];
#pragma unroll
      for (int s = 0; s < sums; ++s)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          codes[s][h] = load_vec<u32, 4>(
              reinterpret_cast<const u32 *>(stage + s * sum_bytes + (2 * p + h) * 512 + lane * 16));
#pragma unroll
          for (int u = 0; u < per_unit; ++u)
            if constexpr (has_entries)
              entries[s][h][u] =
                  entry_of(stage + s * sum_bytes + code_bytes, s, h, first,
                           (p * span + quad * lane_codes + u * 8) / larger(Config::scale_depth, 1));
            else
              entries[s][h][u] = whole[s][h];
        }
#pragma unroll
      for (int u = 0; u < units; ++u) {
        Vec<u32, 4> left[sums][2];
#pragma unroll
        for (int s = 0; s < sums; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            Pairs::pairs(&codes[s][h][u * 4 / units], entries[s][h][per_unit > 1 ? u : 0], masks, left[s][h]);
#pragma unroll
        for (int j = 0; j < groups; ++j) {
          const Vec<u32, 4> right = load_vec<u32, 4>(reinterpret_cast<const u32 *>(
              rows + (row_of_lane(j) * row_pitch() + step * Config::depth + p * span + (4 * u + quad) * 8)));
#pragma unroll
          for (int s = 0; s < sums; ++s)
            mma_vectors(acc[u % 2][s][j], left[s][0], left[s][1], right, T());
        }
      }
    }
  }
  /// What comes of rows that are not there is not stored.
  DEVICE int row_of_lane(int group) const {
    return Config::rows % 8 == 0 ? group * 8 + lane / 4 : lane / 4 % Config::rows;
  }
};

/// Copies the rows of A to `to`; those that are not there are the last one again.
template <class Block, class Shape, class A>
DEVICE void stage_rows(const Block &block, const Shape &shape, const A &a, typename Block::T *to) {
  using T = typename Block::T;
  const i32 k = (i32)shape.k(), m = (i32)shape.m(), per_row = block.depth_of_all() / 8;
  for (i32 i = (i32)thread_x(); i < Block::held_rows * per_row; i += 32 * Block::warps) {
    const i32 row = i / per_row, chunk = i % per_row;
    Vec<T, 8> values{};
    if (chunk * 8 < k)
      values = load_vec<T, 8>(a.matrix(0, 0) + (a.row(0, row < m ? row : m - 1) + chunk * 8));
    Block::Pairs::order(values);
    store_vec<T, 8>(to + (row * block.row_pitch() + Block::place_of_chunk(chunk)), values);
  }
}

/// `B` as SmallMCodes takes it.
template <class Config, class Shape, class A, class B, class Epilogue>
DEVICE void gemm_small_m_codes(const Shape &shape, const A &a, const B &b, const Epilogue &epilogue) {
  using Block = SmallMCodes<Config, Shape, B>;
  using T = typename Config::type;
  constexpr int sums = Block::sums;
  u8 *const shared = dynamic_shared();
  f32 *const parts = reinterpret_cast<f32 *>(shared + Block::warps * Block::ring_bytes);
  T *const rows = reinterpret_cast<T *>(parts + Block::warps * Block::part_floats);
  launch_before_wait<Config>();
  Block block(shape, b, shared);
  if (!Config::weights_before_wait)
    pdl_wait();
  block.begin();
  if (Config::weights_before_wait)
    pdl_wait();
  launch_after_wait<Config>();
  stage_rows(block, shape, a, rows);
  Epilogue begun = epilogue;
  begin_epilogue(begun);
  barrier();
  int stage = 0;
  for (i32 turn = 0; block.first_tile(turn) < block.tiles; ++turn) {
    const BlockPlace place = block.place_of(turn);
    const i64 m = shape.m(), n = block.has(turn) ? shape.n(place.matmul) : 0;
    EpilogueOperands<Config, Epilogue, Block::vectors> operands;
    block.for_vectors([&](int number, int row, int column) {
      if (row < m && place.column + column < n)
        operands.read(number, begun, place, row, place.column + column);
    });
    block.multiply(turn, rows, stage);
    Block::meet(); // the parts of the turn before have been read
    block.put(parts);
    Block::meet();
    block.for_vectors([&](int number, int row, int column) {
      if (row >= m || place.column + column >= n)
        return;
      Vec<f32, Config::vector> totals[sums];
      block.take(parts, row, column, totals);
      operands.finish(number, begun, shape, place, row, place.column + column, totals);
    });
  }
  cp_async_wait<0>();
  end_epilogue(begun, shape.m());
}
