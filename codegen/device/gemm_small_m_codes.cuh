#pragma once
// Up to 32 rows of A times quantised weights on tensor cores, at the speed at which memory gives the codes.
// As in gemm_small_m.cuh the rows of B (the columns of C) are the 16 rows of mma.m16n8k16, the rows of A its
// 8 columns, and the order of k inside a sum is free: a lane decodes eight codes in whichever order takes the
// fewest instructions, and A lies in shared memory in that order, see code_rows.cuh.
//
// Each warp has a ring of its own in shared memory, which is filled from before the wait for the kernels in
// front on, see small_m_codes_ring.cuh. ldmatrix gives the lanes of a quad eight codes each of 32 neighbours
// along k. Where these share a scale, and B need not be rounded, integers are multiplied, and the scale with
// their sum. The warps of a block share out K of some tiles of 16 columns, and the tiles of the next turn are
// on their way while those of this one are added up.

#include "code_pairs.cuh"
#include "code_rows.cuh"
#include "early_launch.cuh"
#include "epilogue_operands.cuh"
#include "fragments.cuh"
#include "small_m_codes_ring.cuh"

/// `Config`:
///   type                 bf16 or f16, of A; B's elements are decoded to it
///   rows                 of A, at most: 1 to 8, 16, 24 or 32
///   warps, k_split       of a block; those that share out K of a tile
///   depth                of a step along K: 64 or 128 bytes of codes
///   stages               steps that a warp has on their way
///   scale_depth          so many neighbours along k, from a multiple of it on, share scale and zero point:
///                        divides the depth, 16 at least; 0: all do
///   scale_fits           scales have the type `type`
///   scales_sums          integers are multiplied, and the scale with the sum of 32 neighbours along k: of 4
///                        bits, scale_depth a multiple of 32, where B need not be rounded to its type
///   scale_words, zero_words   aligned words of 16 bytes that hold those of a step of a row of B; 0: they are
///                        no tensors along k
///   whole_steps          K is a multiple of a step
///   whole_tiles          there are 16 columns for each tile
///   whole_words          rows of scales and zero points begin and end with such words
///   vector               neighbouring columns that the epilogue takes
///   prologue_k           where a prologue computes A: K
///   weights_before_wait, launches_early, matmuls, combined
/// `B`: gemm.cuh's, rows at equal distances, and where scale_depth is not 0
///   scales, zeros(matmul, i, k)   a pointer to the entry of row i and k; NoZeroPoint or Alike
template <class Config, class Shape, class B>
struct SmallMCodes {
  using Ring = CodeRing<Config, Shape, B>;
  using T = typename Config::type;
  using Decoder = decltype(static_cast<const B *>(nullptr)->decoder(0, 0, 0));
  using Pairs = CodePairs<T, typename B::element, B::bits, Config::scale_fits, typename Decoder::zero_type>;
  using Entry = typename Pairs::Entry;
  static constexpr int sums = accumulators<Config>, groups = (Config::rows + 7) / 8;
  static constexpr int warps = Config::warps, k_split = Config::k_split, sides = warps / k_split;
  static constexpr bool has_entries = Ring::has_entries, scales_sums = Config::scales_sums;
  static constexpr int loads = Ring::row_vectors / 2,
                       units = 8 / B::bits; ///< ldmatrix a step, 32 codes of each
  /// Partial sums of a warp: 16 columns of each row; lanes that write at once meet every bank once.
  static constexpr int pitch = 20, part_floats = sums * groups * 8 * pitch;
  /// Vectors of the results of a tile, which the threads of its warps share out.
  static constexpr int per_row = 16 / Config::vector, side_threads = 32 * k_split;
  static constexpr int vectors = (Config::rows * per_row + side_threads - 1) / side_threads;
  /// Rows of A that lie in shared memory.
  static constexpr int held_rows = Config::rows < 8 ? Config::rows : groups * 8;
  /// Products one after the other wait for each other: every second one then has sums of its own.
  static constexpr int chains = scales_sums ? 1 : 2;
  static_assert(warps % k_split == 0, "tiles of whole warps");

  const Shape &shape;
  const B &b;
  const int warp = uniform_warp(), lane = (int)lane_id(), quad = lane % 4;
  const int side = warp / k_split, split = warp % k_split;
  const i32 steps, tiles;
  const typename Pairs::Masks masks;
  Ring ring;
  int stage = 0;                  ///< what is multiplied next
  i32 asked_turn = 0, asked_step; ///< what to ask for next
  bool asks = false;              ///< whether that turn has a tile for the warp
  f32 acc[chains][sums][groups][4];
  Decoder whole[has_entries ? 1 : sums][2]; ///< of rows l / 4 and l / 4 + 8, where they hold for all of K

  DEVICE SmallMCodes(const Shape &shape, const B &b, u8 *rings)
      : shape(shape), b(b), steps((i32)ceil_div(shape.k(), Config::depth)), tiles(tiles_of(shape)),
        ring(shape, b, rings), asked_step(split) {}

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
  /// What the rows of A have in shared memory, see code_rows.cuh.
  DEVICE i32 depth_of_all() const { return steps * Config::depth; }

  /// Asks for the first steps.
  DEVICE void begin() {
#pragma unroll 1
    for (int stage = 0; stage < Config::stages; ++stage)
      ask(stage);
  }
  /// Asks for the warp's next step, of the next turn after its last one.
  DEVICE void ask(int stage) {
    if (asked_step == split) {
      asks = has(asked_turn);
      if (asks)
        ring.move_to(place_of(asked_turn));
    }
    ring.ask(stage, asked_step, asks && asked_step < steps);
    asked_step += k_split;
    if (asked_step >= steps) {
      asked_step = split;
      ++asked_turn;
    }
  }
  /// Steps of a turn that are asked for, also where the warp has none of them.
  DEVICE i32 steps_of_turn() const { return steps > split ? (steps - split + k_split - 1) / k_split : 1; }

  /// Multiplies a turn's steps with A, at `rows`.
  DEVICE void multiply(i32 turn, const T *rows) {
    clear();
    const bool works = has(turn) && steps > split;
    if (works)
      find_entries(place_of(turn));
    const i32 count = steps_of_turn();
#pragma unroll 1
    for (i32 i = 0; i < count; ++i) {
      ring.wait();
      if (works)
        multiply_step(rows, split + i * k_split);
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
        for (int e = 0; e < 4; ++e) {
          f32 sum = acc[0][s][j][e];
          if constexpr (scales_sums)
            sum *= Pairs::integer_unit;
          else
            sum += acc[chains - 1][s][j][e];
          to[((s * groups + j) * 8 + quad * 2 + e % 2) * pitch + lane / 4 + e / 2 * 8] = sum;
        }
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
          acc[0][s][j][e] = acc[chains - 1][s][j][e] = 0.f;
  }

  DEVICE void find_entries(const BlockPlace &place) {
    ring.find_entries(place);
    if constexpr (!has_entries)
#pragma unroll
      for (int s = 0; s < sums; ++s)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          whole[s][h] = b.decoder(place.matmul + s, ring.weight_row(place, s, lane / 4 + 8 * h), 0);
  }
  template <int Count>
  struct Entries {
    Vec<f32, Count> scales;
    typename Decoder::zero_type zeros[Count];
  };
  /// From entry `index` of the step on, whose first one is entry `first` of its row; of row l / 4 + 8 h.
  template <int Count>
  DEVICE Entries<Count> entries_of(int s, int h, i32 first, i32 index) const {
    const u8 *const entries = ring.entries_of(stage, s);
    const int row = lane / 4 + 8 * h;
    const i32 scale = ring.scale_place(s, h, first, b.scales(0, 0, 0)) + index,
              zero = ring.zero_place(s, h, first, b.zeros(0, 0, 0)) + index;
    Entries<Count> read;
    entries_in<Config::whole_words>(entries + row * Ring::scale_row, scale, b.scales(0, 0, 0), read.scales);
#pragma unroll
    for (int i = 0; i < Count; ++i)
      read.zeros[i] =
          entry_in(entries + 16 * Ring::scale_row + row * Ring::zero_row, zero + i, b.zeros(0, 0, 0));
    return read;
  }

  DEVICE void multiply_step(const T *rows, i32 step) {
    const i32 first = has_entries ? Ring::first_entry(step) : 0;
    const i32 from = Ring::place_of_vector(lane % 16, lane / 16);
#pragma unroll 2 // more at once would take more registers
    for (int l = 0; l < loads; ++l) {
      // Word l % 4 of vector 2 l of rows l / 4 and l / 4 + 8, then of the vector behind.
      u32 words[sums][4];
#pragma unroll
      for (int s = 0; s < sums; ++s)
        ldmatrix_x4(words[s], ring.codes_of(stage, s) + (from ^ l * 32));
      const T *const right = rows + (step * Config::depth + l * units * 32 + quad * 8);
#pragma unroll
      for (int s = 0; s < sums; ++s)
        if constexpr (scales_sums)
          multiply_integers(words[s], right, s, first, l);
        else
          multiply_decoded(words[s], right, s, first, l);
    }
  }
  /// 64 codes along k: a lane's eight are codes less their zero point, exactly, and the sum of 32 is scaled.
  DEVICE void multiply_integers(const u32 (&words)[4], const T *right, int s, i32 first, int l) {
    constexpr int depth = has_entries ? Config::scale_depth : 64, count = depth < 64 ? 64 / depth : 1;
    Entries<count> entries[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if constexpr (has_entries)
        entries[h] = entries_of<count>(s, h, first, l * 64 / depth);
      else
        entries[h] = {{{whole[s][h].scale}}, {whole[s][h].zero}};
#pragma unroll
    for (int u = 0; u < units; ++u) {
      Vec<u32, 4> left[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        Pairs::integers(words[2 * u + h], entries[h].zeros[u % count], masks, left[h]);
#pragma unroll
      for (int j = 0; j < groups; ++j) {
        f32 part[4] = {0.f, 0.f, 0.f, 0.f};
        mma_vectors(part, left[0], left[1], right_of(right, j, u), T());
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc[0][s][j][e] = fma_(entries[e / 2].scales[u % count], part[e], acc[0][s][j][e]);
      }
    }
  }
  /// As many, decoded to the type.
  DEVICE void multiply_decoded(const u32 (&words)[4], const T *right, int s, i32 first, int l) {
    constexpr int per_unit = B::bits == 8 && Config::scale_depth == 16 ? 2 : 1;
#pragma unroll
    for (int u = 0; u < units; ++u) {
      Vec<u32, 4> left[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Entry entries[2];
#pragma unroll
        for (int i = 0; i < per_unit; ++i)
          if constexpr (has_entries) {
            const auto read = entries_of<1>(s, h, first,
                                            ((l * units + u) * 32 + (B::bits == 4 ? quad * 8 : i * 16)) /
                                                larger(Config::scale_depth, 1));
            entries[i] = Pairs::prepare(Decoder{read.scales[0], read.zeros[0]});
          } else {
            entries[i] = Pairs::prepare(whole[s][h]);
          }
        entries[1] = entries[per_unit - 1];
        const u32 codes[2] = {words[B::bits == 4 ? 2 * u + h : h], words[2 + h]};
        Pairs::pairs(codes, entries, masks, left[h]);
      }
#pragma unroll
      for (int j = 0; j < groups; ++j)
        mma_vectors(acc[(l * units + u) % chains][s][j], left[0], left[1], right_of(right, j, u), T());
    }
  }
  DEVICE Vec<u32, 4> right_of(const T *right, int j, int u) const {
    return load_vec<u32, 4>(reinterpret_cast<const u32 *>(
        right + (row_of_lane(j) * CodeRows<T, B::bits>::pitch(depth_of_all()) + u * 32)));
  }
  /// What comes of rows that are not there is not stored.
  DEVICE int row_of_lane(int group) const {
    return Config::rows % 8 == 0 ? group * 8 + lane / 4 : lane / 4 % Config::rows;
  }
};

/// `B` as SmallMCodes takes it. `Prologue`: NoPrologue, or what waits for the kernels before this one and
/// puts the rows of A into ComputedCodeRows, by all threads of the block.
template <class Config, class Shape, class A, class B, class Prologue, class Epilogue>
DEVICE void gemm_small_m_codes(const Shape &shape, const A &a, const B &b, const Prologue &prologue,
                               const Epilogue &epilogue) {
  using Block = SmallMCodes<Config, Shape, B>;
  using T = typename Config::type;
  constexpr int sums = Block::sums, threads = 32 * Block::warps;
  u8 *const shared = dynamic_shared();
  f32 *const parts = reinterpret_cast<f32 *>(shared + Block::warps * Block::Ring::bytes_of_warp);
  T *const rows = reinterpret_cast<T *>(parts + Block::warps * Block::part_floats);
  launch_before_wait<Config>();
  Block block(shape, b, shared);
  if (!Config::weights_before_wait)
    pdl_wait();
  block.begin();
  if constexpr (has_prologue<Prologue>) {
    constexpr i32 depth = (i32)ceil_div(Config::prologue_k, (i64)Config::depth) * Config::depth;
    const ComputedCodeRows<T, B::bits, Config::prologue_k, depth> computed{rows, 0};
    computed.clear_behind(Block::held_rows, threads);
    prologue(computed);
    launch_after_wait<Config>();
  } else {
    if (Config::weights_before_wait)
      pdl_wait();
    launch_after_wait<Config>();
    stage_rows<B::bits>(shape, a, rows, Block::held_rows, block.depth_of_all(), threads);
  }
  Epilogue begun = epilogue;
  begin_epilogue(begun);
  barrier();
  for (i32 turn = 0; block.first_tile(turn) < block.tiles; ++turn) {
    const BlockPlace place = block.place_of(turn);
    const i64 m = shape.m(), n = block.has(turn) ? shape.n(place.matmul) : 0;
    EpilogueOperands<Config, Epilogue, Block::vectors> operands;
    block.for_vectors([&](int number, int row, int column) {
      if (row < m && place.column + column < n)
        operands.read(number, begun, place, row, place.column + column);
    });
    block.multiply(turn, rows);
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
