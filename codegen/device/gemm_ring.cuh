#pragma once
// The main loop of matrix products on sm_90a. A block stays and takes one tile of C after the other: 128 rows
// and some columns. One warpgroup fills a ring in shared memory with tiles of A and B, 64 elements along k at
// a time; two others multiply 64 rows each. A finished tile is rounded and parked in registers: its epilogue
// is done piece by piece while the products of the next tile run.
//
// `Config`:
//   type             bf16 or f16, of A and B; or of A, if it is a byte: f8 or an 8-bit integer
//   type_b           of B, where they are bytes
//   result           the type to which products are rounded before the epilogue takes them: 16 bits; or f32,
//                    or i32, where the epilogue takes the sums, and follows the products at once
//   tile_n           columns of C of a tile, for each accumulator: a multiple of 16; of all accumulators at
//                    most 256
//   stages           steps in the ring, of 64 elements along k, or 128 bytes
//   vector           neighbours that the epilogue takes: up to 8, of f32 and i32 up to 2
//   k_major          neighbours in memory of B are neighbours along k, as those of bytes have to be; else
//                    along n, and tile_n is a multiple of 64
//   exact_steps      0; of f8 the steps whose products tensor cores add up, before they are added in f32
//   scaled_steps     scales of bytes differ from step to step: they multiply the sums of each
//   one_column_scale   with these, all columns of a tile's accumulator have one scale at a step
//   matmuls, combined
//
// Who fills the ring says of each tile where it lies; who multiplies asks
//
// Rows:
//   operator()(i)    which row of C row i of a tile's `first` and on is

#include "parked_tile.cuh"
#include "step_scales.cuh"

/// In wgmma_bytes.cuh, which kernels of bytes include.
template <class A, class B, class Sum, int Fragments>
DEVICE void wgmma_byte_rows(Sum (&d)[Fragments][4], u64 a, u64 b, bool add);

/// Of stage 0, for a warpgroup's 64 rows.
struct FirstDescriptors {
  u64 a, b;
};
template <class Config>
DEVICE FirstDescriptors first_descriptors(const Ring<Config> &ring, int row) {
  return {wgmma_descriptor(ring.a(0) + row * Ring<Config>::depth, 1024), wgmma_descriptor(ring.b(0), 1024)};
}

/// Starts the products of a stage: 64 rows from `row` on.
template <class Config, class Sum, int Fragments>
DEVICE void start_products(Sum (&acc)[Fragments][4], const Ring<Config> &ring, const FirstDescriptors &first,
                           int stage, int row, bool add) {
  using T = typename Config::type;
  constexpr int depth = Ring<Config>::depth, each = 32 / (int)sizeof(T);
  const T *tile_a = ring.a(stage) + row * depth, *tile_b = ring.b(stage);
  const u32 place = (u32)(stage * Ring<Config>::stage_size);
  warpgroup_arrive();
#pragma unroll
  for (int k = 0; k < depth; k += each) {
    // Sums of 16-bit types take the registers that `first` lies in.
    if constexpr (Ring<Config>::bytes)
      wgmma_byte_rows<T, typename Config::type_b>(acc, wgmma_advance(first.a, place + (u32)k),
                                                  wgmma_advance(first.b, place + (u32)k), add || k > 0);
    else if constexpr (Config::k_major)
      wgmma_rows<T>(acc, wgmma_descriptor(tile_a + k, 1024), wgmma_descriptor(tile_b + k, 1024),
                    add || k > 0);
    else
      wgmma_rows_by_depth<T>(acc, wgmma_descriptor(tile_a + k, 1024),
                             wgmma_descriptor(tile_b + k * 64, 64 * 128), add || k > 0);
  }
  warpgroup_commit();
}

/// A tile's products are sums: parks them, or does what follows.
template <class Config, class Sums, class Shape, class Scales, class Epilogue>
DEVICE void leave_tile(ParkedTile<Config, Epilogue> &parked, const Shape &shape, const Scales &scales,
                       const Epilogue &epilogue, const Sums &sums, const TilePlace &place) {
  if constexpr (Ring<Config>::parks)
    parked.take(sums, place, shape, scales);
  else
    finish_sums<Config>(shape, scales, epilogue, sums, place);
}

/// What the two warpgroups do that multiply.
template <class Config, class Shape, class Rows, class Scales, class Epilogue>
DEVICE void multiply_tiles(const Ring<Config> &ring, const Shape &shape, const Rows &rows,
                           const Scales &scales, const Epilogue &epilogue) {
  using Block = Ring<Config>;
  using Parked = ParkedTile<Config, Epilogue>;
  constexpr int fragments = Block::sums * Block::tile_n / 8;
  constexpr bool scaled = Config::scaled_steps, adds = Config::exact_steps > 0 || scaled;
  const int group = uniform_warp() / 4, first_row = first_row_of_thread(group);
  const FirstDescriptors first = first_descriptors(ring, group * 64);
  u64 *const full = scaled ? held_pointer(ring.full) : ring.full;
  u64 *const empty = scaled ? held_pointer(ring.empty) : ring.empty;
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth);
  RingPlace at;
  int before = 0, number = 0;
  Parked parked;
  typename Block::Sum acc[fragments][4];
  f32 exact[adds ? fragments : 1][4];
  auto release = [&] { // nothing reads the step before any more
    if (lane_id() == 0)
      mbarrier_arrive(empty + before);
  };
  auto advance = [&] {
    before = at.stage;
    at.template advance<Block::stages>();
  };
  auto wait = [&] { mbarrier_wait(full + at.stage, at.parity); };
  auto start = [&](bool add) {
    if constexpr (!scaled) // else it has been waited for
      wait();
    start_products<Config>(acc, ring, first, at.stage, group * 64, add);
  };
  // Until the products before these have ended, of which there are some.
  auto complete_before = [&](bool some) {
    warpgroup_wait<1>();
    if (some)
      release();
    advance();
  };
  auto complete = [&] {
    warpgroup_wait<0>();
    fence_operand(acc);
    release();
  };
  TilePlace place;
  auto add_exactly = [&](bool add) {
#pragma unroll
    for (int i = 0; i < (adds ? fragments : 0); ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        exact[i][e] = add ? exact[i][e] + (f32)acc[i][e] : (f32)acc[i][e];
  };
  // The products that run, of one step: while one warpgroup adds, the tensor cores multiply for the other.
  // Waits for the next step before, since nothing hides that wait behind.
  auto add_scaled = [&] {
    if constexpr (scaled) {
      StepScales<Config> by;
      by.load(ring.scales(at.stage), first_row);
      warp_barrier();
      advance();
      complete();
      wait();
      by.add(exact, acc);
    }
  };
  while (true) {
    wait();
    const TileOfC tile = ring.place[number];
    number = number + 1 < Block::places ? number + 1 : 0;
    const i32 count = shuffle_index(tile.rows, 0); // the compiler sees that it is one for all lanes
    if (count > 0 && group * 64 >= count) {        // none for this warpgroup
      for (i32 step = 0; step < steps; ++step) {
        wait();
        warp_barrier();
        advance();
        release();
      }
      continue;
    }
    warp_barrier(); // products are the whole warp's
    // Of the tile before, what does not fit behind the steps of this one.
    if constexpr (Block::parks) {
      const int behind = count > 0 ? steps / Parked::group * Parked::group : 0;
      parked.read_first(shape, epilogue);
#pragma unroll 1
      while (parked.left() > behind) {
#pragma unroll
        for (int piece = 0; piece < Parked::group; ++piece) {
          parked.read_next(shape, epilogue, piece);
          parked.finish_piece(shape, epilogue, piece);
        }
        parked.next_group(shape, epilogue);
      }
    }
    if (count == 0)
      break;
    place = place_of(tile, rows, group);
    i32 step = 0;
    if constexpr (scaled) {
#pragma unroll
      for (int i = 0; i < fragments; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          exact[i][e] = 0.f;
    }
    if constexpr (Block::parks)
#pragma unroll 1
      while (parked.left() > 0) {
        const bool some = !adds && step > 0;
#pragma unroll
        for (int piece = 0; piece < Parked::group; ++piece) {
          start(!scaled && (piece > 0 || some));
          // Not before the wgmma, which would wait for these loads.
          parked.read_next(shape, epilogue, piece);
          if constexpr (!scaled)
            complete_before(piece > 0 || some);
          parked.finish_piece(shape, epilogue, piece);
          if constexpr (scaled)
            add_scaled();
        }
        parked.next_group(shape, epilogue);
        if constexpr (adds && !scaled) {
          complete();
          add_exactly(step > 0);
        }
        step += Parked::group;
      }
    if constexpr (scaled) {
#pragma unroll 1
      for (; step < steps; ++step) {
        start(false);
        add_scaled();
      }
      leave_tile<Config>(parked, shape, Unscaled(), epilogue, exact, place);
    } else if constexpr (adds) {
      while (step < steps) {
        constexpr int most = Config::exact_steps;
        const i32 begin = step, end = steps - begin < most ? steps : begin + most;
#pragma unroll 1
        for (; step < end; ++step) {
          start(step > begin);
          complete_before(step > begin);
        }
        complete();
        add_exactly(begin > 0);
      }
      leave_tile<Config>(parked, shape, scales, epilogue, exact, place);
    } else {
#pragma unroll 1
      for (; step < steps; ++step) {
        start(step > 0);
        complete_before(step > 0);
      }
      complete();
      leave_tile<Config>(parked, shape, scales, epilogue, acc, place);
    }
  }
}
