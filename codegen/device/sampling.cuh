#pragma once
// A token drawn from each row of scores. Behind one difference and one product in f32 all is in integers,
// whose sums do not depend on their order: whatever draws, with however many threads, draws the same token.

#include "math.cuh"
#include "reduce.cuh"

// How far a score lies below the largest, in units of 2^-16 powers of two of its weight. From maxDrop on a
// weight counts as none.
constexpr u32 dropUnits = 1u << 16, maxDrop = 40u << 16;
constexpr u32 dropBins = 2048; // of the high and then of the low bits of a drop

DEVICE u32 drop_of(f32 score, f32 largest, f32 scale) {
  if (score == largest)
    return 0;
  const f32 powers = (largest - score) * scale;
  return powers < 40.f ? (u32)(powers * (f32)dropUnits) : maxDrop; // a NaN is not below 40
}

// 2^(40 - drop / 2^16), within 2^10 of it: e^-z by its series, z and the result in units of 2^-32.
DEVICE u64 weight_of(u32 drop) {
  if (drop >= maxDrop)
    return 0;
  const u64 ln2 = 2977044472u, one = (u64)1 << 32;
  const u64 z = ((u64)(drop % dropUnits) << 16) * ln2 >> 32;
  u64 power = one;
#pragma unroll
  for (u32 term = 8; term > 0; --term)
    power = one - (u32)(z * power >> 32) / term;
  return (power << 8) >> (drop / dropUnits);
}

DEVICE u64 multiply_high(u64 a, u64 b) {
  const u64 low = (u64)(u32)a * (u32)b, mixed = (a >> 32) * (u32)b + (low >> 32);
  const u64 other = (u64)(u32)a * (b >> 32) + (u32)mixed;
  return (a >> 32) * (b >> 32) + (mixed >> 32) + (other >> 32);
}

// Two of the four words of Philox4x32-10 for a key and a counter.
DEVICE u64 philox(u64 key, u64 counter, u64 stream) {
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32);
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ k0;
    c2 = (u32)(a >> 32) ^ c3 ^ k1;
    c1 = (u32)b;
    c3 = (u32)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0 | (u64)c1 << 32;
}

// Config: threads   of a block, which takes a row
//         scale     log2(e) / temperature
//         count     so many of the largest scores are kept, and those equal to the last; 0: all
//         share     of those, the largest whose weights are so much of 2^64 together; 0: all
// Body:   begin_row(i64 row)
//         element(i64 at)      score `at` of the row, as f32
//         seed(i64 at)         the key and the counter of the draw
//         put(i64 row, i64 place)
template <class Config, class Body>
struct Sampler {
  static constexpr u32 warps = Config::threads / 32;
  static constexpr u32 bins = dropBins;
  static constexpr i64 batch = 8; // scores that a thread has on their way

  const Body &body;
  i64 length;
  f32 largest;

  // visit(drop) for each score of [begin, end) that this thread is to see, `step` apart.
  template <class Visit>
  DEVICE void walk(i64 begin, i64 end, i64 step, const Visit &visit) const {
    for (i64 at = begin; at < end; at += batch * step) {
      f32 score[batch];
#pragma unroll
      for (i64 i = 0; i < batch; ++i)
        score[i] = at + i * step < end ? body.element(at + i * step) : nan_f32();
#pragma unroll
      for (i64 i = 0; i < batch; ++i)
        visit(score[i]);
    }
  }

  DEVICE void find_largest() {
    f32 best = -inf_f32();
    walk(thread_x(), length, Config::threads, [&](f32 score) { best = score > best ? score : best; });
    largest = block_max<Config::threads>(best);
  }

  DEVICE u32 drop(f32 score) const { return drop_of(score, largest, Config::scale); }

  // The weights up to `cut` of each warp's part of [begin, end), then their sum.
  DEVICE u64 sum_parts(i64 begin, i64 end, i64 part, u32 cut, u64 (&parts)[warps]) const {
    const i64 from = begin + warp_id() * part, to = from + part < end ? from + part : end;
    u64 sum = 0;
    walk(from + lane_id(), to, 32, [&](f32 score) {
      const u32 below = drop(score);
      sum += below <= cut ? weight_of(below) : 0;
    });
    for (int mask = 16; mask > 0; mask /= 2) {
      const u64 other = shuffle_xor(sum, mask);
      sum += other;
    }
    barrier(); // what was there has been read
    if (lane_id() == 0)
      parts[warp_id()] = sum;
    barrier();
    u64 total = 0;
    for (u32 warp = 0; warp < warps; ++warp)
      total += parts[warp];
    return total;
  }

  // The bin in which the sum of the bins up to it reaches `want(sum of all)`, and in `left` what of that the
  // bins before it do not have; the last one, and 0, where no sum does.
  template <class Value, class Want>
  static DEVICE u32 find_bin(const Value &value, u64 (&parts)[warps], const Want &want, u64 &left) {
    SHARED(u64, found, 2);
    constexpr u32 part = bins / warps;
    u64 sum = 0;
    for (u32 i = lane_id(); i < part; i += 32)
      sum += value(warp_id() * part + i);
    for (int mask = 16; mask > 0; mask /= 2) {
      const u64 other = shuffle_xor(sum, mask);
      sum += other;
    }
    if (lane_id() == 0)
      parts[warp_id()] = sum;
    if (thread_x() == 0) {
      found[0] = bins - 1;
      found[1] = 0;
    }
    barrier();
    u64 before = 0, all = 0;
#pragma unroll 1
    for (u32 warp = 0; warp < warps; ++warp) {
      before += warp < warp_id() ? parts[warp] : 0;
      all += parts[warp];
    }
    const u64 wanted = want(all);
    if (before < wanted && wanted <= before + parts[warp_id()])
      for (u32 i = 0; i < part; i += 32) {
        u64 running = value(warp_id() * part + i + lane_id());
        const u64 own = running;
        for (u32 distance = 1; distance < 32; distance *= 2) {
          const u64 earlier = shuffle_up(running, distance);
          running += lane_id() >= distance ? earlier : 0;
        }
        const u64 until = before + running;
        if (until - own < wanted && wanted <= until) {
          found[0] = warp_id() * part + i + lane_id();
          found[1] = wanted - (until - own);
        }
        before += shuffle_index(running, 31);
      }
    barrier();
    const u32 bin = (u32)found[0];
    left = found[1];
    return bin;
  }

  // Adds the scores from `begin` to `end` up to `cut` to the bins of a round: by the high bits of their drops,
  // or, of those whose high bits are `first`, by the low ones.
  template <bool Counts>
  DEVICE void add_to_bins(i64 begin, i64 end, int round, u32 first, u32 cut, u32 (&low)[bins],
                          u32 (&high)[bins]) const {
    for (u32 bin = thread_x(); bin < bins; bin += Config::threads)
      low[bin] = high[bin] = 0;
    barrier();
    walk(begin + thread_x(), end, Config::threads, [&](f32 score) {
      const u32 below = drop(score);
      if (below > cut || below >= maxDrop || (round == 1 && below / bins != first))
        return;
      const u32 bin = round == 0 ? below / bins : below % bins;
      if constexpr (Counts) {
        atomic_add(&low[bin], 1u);
      } else {
        const u64 weight = weight_of(below);
        const u32 mine = (u32)weight, carried = atomic_add(&low[bin], mine) + mine < mine ? 1u : 0u;
        if (const u32 above = (u32)(weight >> 32) + carried; above != 0)
          atomic_add(&high[bin], above);
      }
    });
    barrier();
  }

  // The smallest drop for which the scores up to it, or their weights, are `wanted` together; `cut` if all up
  // to that are less.
  template <bool Counts>
  DEVICE u32 find_cut(u64 wanted, u32 cut, u32 (&low)[bins], u32 (&high)[bins], u64 (&parts)[warps]) const {
    u32 first = 0;
#pragma unroll
    for (int round = 0; round < 2; ++round) {
      add_to_bins<Counts>(0, length, round, first, cut, low, high);
      auto value = [&](u32 bin) { return low[bin] | (u64)high[bin] << 32; };
      const u64 before = wanted;
      const u32 bin = find_bin(value, parts, [&](u64) { return before; }, wanted);
      if (wanted == 0) // no sum reaches it
        return cut;
      first = round == 0 ? bin : first * bins + bin;
      barrier();
    }
    return first;
  }

  // The first place of [begin, end) at which the weights up to `cut` come to more than `drawn`, which all of
  // them together do.
  DEVICE i64 find_place(i64 begin, i64 end, u64 drawn, u32 cut, u64 (&parts)[warps]) const {
    while (end - begin > 32) {
      const i64 part = (end - begin + warps - 1) / warps;
      sum_parts(begin, end, part, cut, parts);
      u32 warp = 0;
      for (; warp + 1 < warps && drawn >= parts[warp]; ++warp)
        drawn -= parts[warp];
      begin += warp * part;
      end = begin + part < end ? begin + part : end;
    }
    u64 running = begin + lane_id() < end ? element_weight(begin + lane_id(), cut) : 0;
    for (u32 distance = 1; distance < 32; distance *= 2) {
      const u64 earlier = shuffle_up(running, distance);
      running += lane_id() >= distance ? earlier : 0;
    }
    const u32 above = warp_ballot(running > drawn);
    return begin + (above == 0 ? 0 : bit_count((above & (0u - above)) - 1u));
  }

  DEVICE u64 element_weight(i64 at, u32 cut) const {
    const u32 below = drop(body.element(at));
    return below <= cut ? weight_of(below) : 0;
  }

  static DEVICE u64 share_of(u64 total) {
    const u64 wanted = multiply_high(total, Config::share);
    return wanted > 0 ? wanted : 1;
  }

  // Up to which sum of weights row `row` looks.
  DEVICE u64 drawn_of(i64 row, u64 total) const {
    return multiply_high(philox((u64)body.seed(0), (u64)body.seed(1), (u64)row), total);
  }

  DEVICE i64 draw(i64 row) {
    SHARED(u64, parts, warps);
    SHARED(u32, low, bins);
    SHARED(u32, high, bins);
    const i64 part = (length + warps - 1) / warps;
    find_largest();
    u32 cut = maxDrop - 1;
    if constexpr (Config::count > 0)
      cut = find_cut<true>(Config::count, cut, low, high, parts);
    u64 total = sum_parts(0, length, part, cut, parts);
    if constexpr (Config::share > 0) {
      cut = find_cut<false>(share_of(total), cut, low, high, parts);
      total = sum_parts(0, length, part, cut, parts);
    }
    if (total == 0) // nothing but NaNs
      return 0;
    return find_place(0, length, drawn_of(row, total), cut, parts);
  }
};

template <class Config, class Body>
DEVICE void sample(Body body, i64 rows, i64 length) {
  pdl_wait();
  pdl_launch_dependents();
  for (i64 row = block_x(); row < rows; row += grid_dim_x()) {
    body.begin_row(row);
    const i64 place = Sampler<Config, Body>{body, length, 0.f}.draw(row);
    if (thread_x() == 0)
      body.put(row, place);
  }
}
