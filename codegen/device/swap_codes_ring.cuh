#pragma once
// Of gemm_swap_codes.cuh: what lies in shared memory, and the warps that fill it.

#include "code_pairs.cuh"
#include "gemm_swap_ab.cuh"

/// What SwapSums has to know of a Config that has no boxes of weights.
template <class Config>
struct SwapSumsConfig : Config {
  static constexpr int boxes = 1;
  static constexpr bool k_major = true;
};

/// `Config`:
///   type                 bf16 or f16, of A; B's elements are decoded to it
///   rows, tiles, stages, k_split, vector, weights_before_wait, matmuls, combined: as in swap_ab_ring.cuh
///   depth                of a step along K: 128, or 256 of codes of 4 bits
///   scale_depth          so many neighbours along k, from a multiple of it on, share scale and zero point:
///                        divides the depth, 16 at least; 0: all do
///   scale_fits           scales have the type `type`
///   groups               warpgroups that multiply
///   entries_at_once      `Weights` has decoders(matmul, i, k): those of a step, read at once
/// `Weights`: element, bits, decoder of gemm.cuh's B.
template <class Config, class Weights>
struct SwapCodes : SwapAB<SwapSumsConfig<Config>> {
  using Base = SwapAB<SwapSumsConfig<Config>>;
  using Decoder = decltype(static_cast<const Weights *>(nullptr)->decoder(0, 0, 0));
  using Pairs = CodePairs<typename Config::type, typename Weights::element, Weights::bits, Config::scale_fits,
                          typename Decoder::zero_type>;
  using Entry = typename Pairs::Entry;
  static constexpr int depth = Config::depth, groups_of_warps = Config::groups, bits = Weights::bits;
  static constexpr int code_bytes = depth * bits / 8, code_box = 64 * code_bytes; ///< of a row; of 64 rows
  static constexpr int row_boxes = depth / 64, row_box_bytes = 2 * Base::row_box;
  /// Of a row in a step, those of a tile's 64 rows side by side; 0: one holds for all of K.
  static constexpr int entries = Config::scale_depth > 0 ? depth / Config::scale_depth : 0;
  static constexpr int rows_at = Base::tiles * code_box, entries_at = rows_at + row_boxes * row_box_bytes;
  static constexpr int stage_bytes =
      (entries_at + Base::tiles * entries * 64 * (int)sizeof(Entry) + 1023) / 1024 * 1024;
  static constexpr u32 tile_bytes = entries_at; ///< that come by TMA
  static constexpr int threads = 128 * (groups_of_warps + 1), scale_warps = 3;
  /// Sums that a warpgroup, or a block of the cluster, hands over.
  static constexpr int group_parts = Base::tiles * Base::groups * Base::multipliers;
  static constexpr int cluster_parts = (Base::split - 1) * Base::own_groups * Base::tiles * Base::multipliers;
  static_assert(code_bytes == 64 || code_bytes == 128, "a swizzled line of codes");
  /// Each warpgroup gives a stage back when it has the next one, and its stages are its own: see
  /// for_own_steps().
  static_assert(Config::stages > groups_of_warps && Config::stages % groups_of_warps == 0,
                "stages of one warpgroup each");
};

/// Column `at` of a tile, as of C.
template <class Config>
DEVICE i64 column_of(const BlockPlace &place, int tile, int at) {
  return place.column + 64 * (tile % Config::tiles) + at;
}

/// Where the codes of row r of a tile lie, swizzled: vector c of 16 bytes is at this ^ c << 4, that of row
/// r + 8 eight lines further on.
template <int LineBytes>
DEVICE u32 codes_of_row(int r) {
  return (u32)(r * LineBytes + ((r * LineBytes / 128 & LineBytes / 16 - 1) << 4));
}

template <class Decoder, int N>
struct EachDecoder {
  Decoder at[N];
  DEVICE const Decoder &operator[](int i) const { return at[i]; }
};
/// The decoders of a step for one row of the weights.
template <class Config, class Weights>
DEVICE auto decoders_of_step(const Weights &weights, int matmul, i64 column, i64 step, i64 depth_of_all) {
  using Block = SwapCodes<Config, Weights>;
  if constexpr (Config::entries_at_once) {
    return weights.decoders(matmul, column, step * Block::depth);
  } else {
    EachDecoder<typename Block::Decoder, Block::entries> decoders;
#pragma unroll
    for (int block = 0; block < Block::entries; ++block) {
      const i64 k = step * Block::depth + block * Config::scale_depth;
      decoders.at[block] = weights.decoder(matmul, column, k < depth_of_all ? k : depth_of_all - 1);
    }
    return decoders;
  }
}

/// Prepares the scales of every third stage, a lane those of a column at a time. By a warp. It asks for the
/// first columns' before there is room for them.
template <class Config, class Weights, class Shape>
DEVICE void fill_scales(const Shape &shape, const Weights &weights, u8 *ring, u64 *full, u64 *empty,
                        const SwapWork &work, int which) {
  using Block = SwapCodes<Config, Weights>;
  using Entry = typename Block::Entry;
  using Decoders = decltype(decoders_of_step<Config>(weights, 0, 0, 0, 0));
  constexpr int columns = 64 * Block::tiles / 32; // of a lane
  constexpr int at_once = Config::entries_at_once || Block::entries < 4 ? columns
                          : Block::entries < 8                          ? larger(2, columns / 2)
                                                                        : 2;
  const int lane = (int)lane_id();
  for_own_steps<Config, Block>(
      shape, work, empty, which, [&](const BlockPlace &place, int step, int stage, const AwaitStage &await) {
        Entry *to = reinterpret_cast<Entry *>(ring + stage * Block::stage_bytes + Block::entries_at);
#pragma unroll
        for (int first = 0; first < columns; first += at_once) {
          Decoders decoders[at_once];
#pragma unroll
          for (int i = 0; i < at_once; ++i) {
            const int tile = (first + i) / 2, sum = tile / Config::tiles;
            const i64 column = column_of<Config>(place, tile, (first + i) % 2 * 32 + lane),
                      n = shape.n(place.matmul + sum);
            decoders[i] = decoders_of_step<Config>(weights, place.matmul + sum, column < n ? column : n - 1,
                                                   step, shape.k());
          }
          if (first == 0)
            await();
#pragma unroll
          for (int i = 0; i < at_once; ++i)
#pragma unroll
            for (int block = 0; block < Block::entries; ++block)
              to[((first + i) / 2 * Block::entries + block) * 64 + (first + i) % 2 * 32 + lane] =
                  Block::Pairs::prepare(decoders[i][block]);
        }
        warp_barrier();
        if (lane == 0)
          mbarrier_arrive(full + stage);
      });
}

/// Asks for codes and rows of A: see SwapStages.
template <class Config, class Weights>
struct CodeStages {
  using Block = SwapCodes<Config, Weights>;
  u8 *ring;
  u64 *full;

  template <class... Map>
  DEVICE void ask_weights(int stage, const BlockPlace &place, int step, const Map &...maps) const {
    mbarrier_arrive_expect(full + stage, Block::tile_bytes);
    u8 *to = ring + stage * Block::stage_bytes;
    auto ask = [&](int sum, const TensorMap &map) {
#pragma unroll
      for (int t = 0; t < Config::tiles; ++t)
        tma_load_tile_once(to + (sum * Config::tiles + t) * Block::code_box, map, full + stage,
                           step * Block::code_bytes, (i32)place.column + 64 * t);
    };
    for_matmuls_of<Config>(place, ask, maps...);
  }
  DEVICE void ask_rows(int stage, int step, const TensorMap &map) const {
#pragma unroll
    for (int b = 0; b < Block::row_boxes; ++b)
      tma_load_tile(ring + stage * Block::stage_bytes + Block::rows_at + b * Block::row_box_bytes, map,
                    full + stage, step * Block::depth + 64 * b, 0);
  }
};
