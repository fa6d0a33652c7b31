#pragma once
// The token that sampling.cuh draws, by kernels that follow each other, in which Config::parts blocks share a
// long row: the largest score; rounds of bins, two for each cut; the sums of weights; the place. As all is in
// integers behind one difference and one product, how a row is shared out changes nothing. What may be among
// `count` scores is listed, mostly few of a part, and later kernels look at these alone.
//
// Config, Body: as in sampling.cuh; Config::parts: 2 to 32; Config::words: of 64 bits, that are kept of a row.
// Only sample_place needs seed and put. `memory`: so many words for each row, which these kernels share.

#include "sampling.cuh"

// Between two kernels: what is kept of a row, and what the next round of bins is to find.
struct SampleState {
  u32 cut = maxDrop - 1, first = 0;
  u64 wanted = 0; ///< in the bins of `first`; 0: no cut is to be found there
};

constexpr i64 mostListed = 511; // scores of a part

template <class Config>
struct SampleMemory {
  static constexpr int rounds = 2 * ((Config::count > 0) + (Config::share > 0));
  static constexpr i64 ofState = 2,
                       sumsOfRow = (i64)Config::parts * (Config::threads / 32),
                       ofList = Config::count > 0 ? mostListed + 1 : 0,
                       words = Config::parts * (1 + ofList) + sumsOfRow + ofState * (rounds + 1) +
                               (i64)rounds * dropBins;
  static_assert(words == Config::words, "memory for as much as is kept of a row");
  u64 *row;

  DEVICE SampleMemory(i32 *memory, i64 index) : row(reinterpret_cast<u64 *>(memory) + index * words) {}
  DEVICE u64 *largest() const { return row; }
  DEVICE u64 *sums() const { return row + Config::parts; } ///< of each part those of each warp
  /// What a part may keep of `count` scores: how many, or more than fit, then place and drop of each.
  DEVICE u64 *list(i64 part) const { return state_of(rounds + 1) + part * ofList; }
  DEVICE u64 *bins(int round) const { return row + (words - (i64)(rounds - round) * dropBins); }
  DEVICE u64 *state_of(int round) const { return sums() + (sumsOfRow + ofState * round); }
  DEVICE SampleState state(int round) const {
    const u64 *from = state_of(round);
    SampleState state;
    const u64 both = load(from);
    state.cut = (u32)both;
    state.first = (u32)(both >> 32);
    state.wanted = load(from + 1);
    return state;
  }
  DEVICE void set_state(int round, const SampleState &state) const {
    u64 *to = state_of(round);
    store(to, state.cut | (u64)state.first << 32);
    store(to + 1, state.wanted);
  }
};

// A block's part of a row.
template <class Config, class Body>
struct SamplePart {
  using Memory = SampleMemory<Config>;
  using Row = Sampler<Config, Body>;
  static_assert(Config::parts >= 2 && Config::parts <= 32, "lanes look at what all parts have");
  static DEVICE constexpr bool counts_in(int round) { return Config::count > 0 && round < 2; }
  Body body;
  i64 row, part, begin, end, length;
  Memory memory;

  DEVICE SamplePart(const Body &of, i32 *to, i64 row, i64 part, i64 length)
      : body(of), row(row), part(part), length(length), memory(to, row) {
    body.begin_row(row);
    begin = first_of(part);
    end = first_of(part + 1);
  }
  DEVICE i64 first_of(i64 number) const {
    const i64 first = Row::part_of(length, Config::parts) * number;
    return first < length ? first : length;
  }
  /// Of warp `warp` of part `number`.
  DEVICE i64 first_of_warp(i64 number, i64 warp) const {
    const i64 first = first_of(number), end = first_of(number + 1);
    const i64 from = first + Row::part_of(end - first, Row::warps) * warp;
    return from < end ? from : end;
  }
  DEVICE Row with_largest() const {
    const u32 lane = lane_id();
    f32 best = -inf_f32();
    if (lane < (u32)Config::parts)
      best = f32_of_bits((u32)load(memory.largest() + lane));
    return Row{body, length, lanes_max<32>(best)};
  }

  // How many scores the rounds before have listed of the part; more than mostListed: no list holds them all.
  template <int Round>
  DEVICE u32 listed_before() const {
    if constexpr (Config::count > 0 && Round >= 2)
      return (u32)load(memory.list(part));
    else
      return (u32)mostListed + 1;
  }

  // The state in front of round `Round`, of which the round before has filled the bins.
  template <int Round>
  DEVICE SampleState state_before(u64 (&parts)[Row::warps]) const {
    if constexpr (Round == 0) {
      return SampleState();
    } else {
      constexpr int last = Round - 1;
      SampleState state = memory.state(last);
      if (last % 2 == 1 && state.wanted == 0) // no sum reached what was wanted
        return next(state);
      const u64 *from = memory.bins(last);
      const u64 known = state.wanted;
      u64 left = 0;
      const u32 bin = Row::find_bin([&](u32 at) { return load(from + at); }, parts,
                                    [&](u64 all) {
                                      if constexpr (last % 2 == 1)
                                        return known;
                                      else if constexpr (counts_in(last))
                                        return (u64)Config::count;
                                      else
                                        return Row::share_of(all);
                                    },
                                    left);
      if constexpr (last % 2 == 0) {
        state.first = bin;
        state.wanted = left;
        return state;
      } else {
        if (left > 0)
          state.cut = state.first * Row::bins + bin;
        return next(state);
      }
    }
  }
  static DEVICE SampleState next(SampleState state) {
    state.first = 0;
    state.wanted = 0;
    return state;
  }
  template <int Round>
  DEVICE SampleState pass_state(u64 (&parts)[Row::warps]) const {
    const SampleState state = state_before<Round>(parts);
    if (part == 0 && thread_x() == 0)
      memory.set_state(Round, state);
    return state;
  }
};

// Waits; the part of the block, of which Config::parts share a row.
template <class Config, class Body>
DEVICE SamplePart<Config, Body> part_of_block(const Body &body, i64 length, i32 *memory) {
  pdl_wait();
  pdl_launch_dependents();
  const u32 parts = (u32)Config::parts;
  return SamplePart<Config, Body>(body, memory, block_x() / parts, block_x() % parts, length);
}

template <class Config, class Body>
DEVICE void sample_largest(const Body &body, i64, i64 length, i32 *memory) {
  using Part = SamplePart<Config, Body>;
  const Part own = part_of_block<Config>(body, length, memory);
  const f32 best = typename Part::Row{own.body, length, 0.f}.largest_of(own.begin, own.end);
  if (thread_x() == 0)
    store(own.memory.largest() + own.part, (u64)bits_of(best));
  constexpr i64 bins = (i64)Part::Memory::rounds * Part::Row::bins;
  for (i64 i = own.part * Config::threads + thread_x(); i < bins; i += (i64)Config::parts * Config::threads)
    store(own.memory.bins(0) + i, (u64)0);
}

// Fills the bins of round Config::round.
template <class Config, class Body>
DEVICE void sample_bins(const Body &body, i64, i64 length, i32 *memory) {
  using Part = SamplePart<Config, Body>;
  using Row = typename Part::Row;
  constexpr int round = Config::round;
  SHARED(u64, parts, Row::warps);
  SHARED(u32, low, Row::bins);
  SHARED(u32, high, Row::bins);
  const Part own = part_of_block<Config>(body, length, memory);
  const SampleState state = own.template pass_state<round>(parts);
  constexpr bool counts = Part::counts_in(round), lists = counts && round == 1;
  if (round % 2 == 1 && state.wanted == 0) {
    if (lists && thread_x() == 0)
      store(own.memory.list(own.part), (u64)mostListed + 1); // all are kept
    return;
  }
  const Row sampler = own.with_largest();
  const u32 listed = own.template listed_before<round>();
  if (listed <= mostListed) {
    Row::clear_bins(low, high);
    for (u32 i = thread_x(); i < listed; i += Config::threads)
      if (const u32 below = (u32)load(own.memory.list(own.part) + 1 + i); below <= state.cut)
        Row::template add_drop<counts>(below, round % 2, state.first, low, high);
    barrier();
  } else {
    SHARED(u32, found, 1);
    if (thread_x() == 0)
      found[0] = 0;
    auto note = [&](u32 at, u32 below) {
      if constexpr (lists)
        if (const u32 i = atomic_add(&found[0], 1u); i < mostListed)
          store(own.memory.list(own.part) + 1 + i, (u64)at << 32 | below);
    };
    sampler.template add_to_bins<counts>(own.begin, own.end, round % 2, state.first, state.cut, low, high,
                                         note);
    if (lists && thread_x() == 0)
      store(own.memory.list(own.part), (u64)found[0]);
  }
  for (u32 bin = thread_x(); bin < Row::bins; bin += Config::threads)
    if (const u64 value = low[bin] | (u64)high[bin] << 32; value != 0)
      atomic_add(own.memory.bins(round) + bin, value);
}

template <class Config, class Body>
DEVICE void sample_sums(const Body &body, i64, i64 length, i32 *memory) {
  using Part = SamplePart<Config, Body>;
  using Row = typename Part::Row;
  SHARED(u64, parts, Row::warps);
  const Part own = part_of_block<Config>(body, length, memory);
  const SampleState state = own.template pass_state<Part::Memory::rounds>(parts);
  u64 *const sums = own.memory.sums() + own.part * Row::warps;
  if (const u32 listed = own.template listed_before<Part::Memory::rounds>(); listed <= mostListed) {
    SHARED(u64, sum, Row::warps);
    if (thread_x() < Row::warps)
      sum[thread_x()] = 0;
    barrier();
    const u32 each = (u32)Row::part_of(own.end - own.begin, Row::warps);
    for (u32 i = thread_x(); i < listed; i += Config::threads) {
      const u64 one = load(own.memory.list(own.part) + 1 + i);
      if ((u32)one <= state.cut)
        atomic_add(&sum[(u32)(one >> 32) / each], weight_of((u32)one));
    }
    barrier();
    if (thread_x() < Row::warps)
      store(sums + thread_x(), sum[thread_x()]);
    return;
  }
  const i64 from = own.first_of_warp(own.part, warp_id()), to = own.first_of_warp(own.part, warp_id() + 1);
  const u64 sum = own.with_largest().sum_of_warp(from, to, state.cut);
  if (lane_id() == 0)
    store(sums + warp_id(), sum);
}

// By the first warp of a block for each row.
template <class Config, class Body>
DEVICE void sample_place(const Body &body, i64, i64 length, i32 *memory) {
  using Part = SamplePart<Config, Body>;
  using Row = typename Part::Row;
  pdl_wait();
  pdl_launch_dependents();
  if (warp_id() > 0)
    return;
  const Part own(body, memory, block_x(), 0, length);
  const Row sampler = own.with_largest();
  const u32 lane = lane_id();
  u64 sum = 0; // of part `lane`
#pragma unroll 4
  for (u32 warp = 0; warp < Row::warps; ++warp)
    sum += lane < (u32)Config::parts ? load(own.memory.sums() + (lane * Row::warps + warp)) : 0;
  u64 total = sum;
  for (int mask = 16; mask > 0; mask /= 2) {
    const u64 other = shuffle_xor(total, mask);
    total += other;
  }
  i64 place = 0; // if there are nothing but NaNs
  if (total != 0) {
    u64 drawn = sampler.drawn_of(own.row, total);
    const i64 part = Row::lane_of(sum, drawn);
    const u64 of_warp = lane < Row::warps ? load(own.memory.sums() + (part * Row::warps + lane)) : 0;
    const i64 warp = Row::lane_of(of_warp, drawn);
    place = sampler.find_place(own.first_of_warp(part, warp), own.first_of_warp(part, warp + 1), drawn,
                               own.memory.state(Part::Memory::rounds).cut);
  }
  if (lane == 0)
    own.body.put(own.row, place);
}
