#pragma once
// A token drawn from each row of scores. Weights are integers, whose sums do not depend on their order, and
// each follows from its score by operations that round alike everywhere: whatever draws, with however many
// threads, draws the same token.

#include "math.cuh"
#include "reduce.cuh"
#include "vectors.cuh"

// How far a score lies below the largest, in units of 2^-16 powers of two of its weight. From maxDrop on a
// weight counts as none.
constexpr u32 dropUnits = 1u << 16, maxDrop = 40u << 16;
constexpr u32 dropBins = 2048; // of the high and then of the low bits of a drop

DEVICE u32 drop_of(f32 score, f32 largest, f32 scale) {
  const f32 units = (largest - score) * scale;
  const u32 drop = units < (f32)maxDrop ? (u32)units : maxDrop; // a NaN is not below
  return score == largest ? 0 : drop;
}

// 2^(40 - drop / 2^16), less than 2^-23 of it off: 2^(1 - f) of the fraction f by a polynomial in f - 1/2, of
// which 24 bits are kept (for all f: test/reference/SampleTest.cpp).
DEVICE u64 weight_of(u32 drop) {
  if (drop >= maxDrop)
    return 0;
  const f32 t = f32_of_bits(0x3f800000u | (drop % dropUnits) << 7) - 1.5f;
  f32 power = fma_(0.000218657849f, t, -0.00189510675f);
  power = fma_(power, t, 0.0136019858f);
  power = fma_(power, t, -0.0784934834f);
  power = fma_(power, t, 0.339731574f);
  power = fma_(power, t, -0.980258167f);
  power = fma_(power, t, 1.41421354f);
  return (u64)(bits_of(power) - 0x3f000000u) << 16 >> (drop / dropUnits);
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
//         scale     2^16 log2(e) / temperature
//         count     so many of the largest scores are kept, and those equal to the last; 0: all
//         share     of those, the largest whose weights are so much of 2^64 together; 0: all
//         width     scores that are loaded at once; divides the length
//         Count     u32, or i64 where 32 bits may not hold the length
// Body:   begin_row(i64 row)
//         elements(i64 at, f32 (&)[width])  the scores from `at` on, a multiple of width
//         seed(i64 at)         the key and the counter of the draw
//         put(i64 row, i64 place)
template <class Config, class Body>
struct Sampler {
  static constexpr u32 warps = Config::threads / 32;
  static constexpr u32 bins = dropBins;
  static constexpr int width = Config::width; // up to 16, of scores of a byte
  static constexpr int batch = width < 4 ? 4 / width : width < 8 ? 8 / width : 1; // loads on their way

  const Body &body;
  i64 length;
  f32 largest;

  // A part of `of` as large as the others, but for the last ones: whole loads.
  static DEVICE i64 part_of(i64 scores, i64 of) { return (scores + of * width - 1) / (of * width) * width; }

  // take(scores, at) for each `width` of [begin, end) that thread `thread` of `threads` is to see, `at` from
  // begin (its low 32 bits). Multiples of width.
  template <class Take>
  DEVICE void walk_vectors(i64 begin, i64 end, u32 thread, u32 threads, const Take &take) const {
    using Count = typename Config::Count;
    const Count count = end > begin ? (Count)(end - begin) : 0, step = (Count)threads * width;
#pragma unroll 1
    for (Count at = (Count)thread * width; at < count; at += batch * step) {
      f32 score[batch][width];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (at + i * step < count)
          body.elements(begin + (at + i * step), score[i]);
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (at + i * step < count)
          take(score[i], (u32)(at + i * step));
    }
  }
  // visit(score, at) for those whose drops may be `cut` or less: of most vectors no score is that near.
  template <class Visit>
  DEVICE void walk(i64 begin, i64 end, u32 thread, u32 threads, u32 cut, const Visit &visit) const {
    // More than all differences whose product with the scale, rounded, is below cut + 1.
    const f32 furthest = (f32)(cut + 2) / Config::scale * 1.00001f;
    walk_vectors(begin, end, thread, threads, [&](const f32(&score)[width], u32 at) {
      bool any = false;
#pragma unroll
      for (int j = 0; j < width; ++j)
        any = any || !(largest - score[j] > furthest); // infinite ones, too, whose difference is a NaN
      if (any)
#pragma unroll
        for (int j = 0; j < width; ++j)
          visit(score[j], at + j);
    });
  }

  // Of [begin, end), by all threads of the block, which have it.
  DEVICE f32 largest_of(i64 begin, i64 end) const {
    f32 best = -inf_f32();
    walk_vectors(begin, end, thread_x(), Config::threads, [&](const f32(&score)[width], u32) {
#pragma unroll
      for (int j = 0; j < width; ++j)
        best = score[j] > best ? score[j] : best;
    });
    return block_max<Config::threads>(best);
  }

  DEVICE u32 drop(f32 score) const { return drop_of(score, largest, Config::scale); }

  DEVICE u64 weight(f32 score, u32 cut) const {
    const u32 below = drop(score);
    return below <= cut ? weight_of(below) : 0;
  }
  // The weights up to `cut` of [begin, end), by a warp.
  DEVICE u64 sum_of_warp(i64 begin, i64 end, u32 cut) const {
    u64 sum = 0;
    walk(begin, end, lane_id(), 32, cut, [&](f32 score, u32) { sum += weight(score, cut); });
    for (int mask = 16; mask > 0; mask /= 2) {
      const u64 other = shuffle_xor(sum, mask);
      sum += other;
    }
    return sum;
  }
  // Of each warp's `part` of [begin, end), then of all.
  DEVICE u64 sum_parts(i64 begin, i64 end, i64 part, u32 cut, u64 (&parts)[warps]) const {
    const i64 from = begin + warp_id() * part, to = from + part < end ? from + part : end;
    const u64 sum = sum_of_warp(from, to, cut);
    barrier(); // what was there has been read
    if (lane_id() == 0)
      parts[warp_id()] = sum;
    barrier();
    u64 total = 0;
#pragma unroll 4
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

  // Of a round: by the high bits of drops, or, of those whose high bits are `first`, by the low ones.
  template <bool Counts>
  static DEVICE void add_drop(u32 below, int round, u32 first, u32 (&low)[bins], u32 (&high)[bins]) {
    if (round == 1 && below / bins != first)
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
  }
  static DEVICE void clear_bins(u32 (&low)[bins], u32 (&high)[bins]) {
    for (u32 bin = thread_x(); bin < bins; bin += Config::threads)
      low[bin] = high[bin] = 0;
    barrier();
  }

  // Adds the scores from `begin` to `end` up to `cut` to the bins of a round. note(at, drop) for those that
  // may be among what is kept of what the round looks at.
  template <bool Counts, class Note>
  DEVICE void add_to_bins(i64 begin, i64 end, int round, u32 first, u32 cut, u32 (&low)[bins],
                          u32 (&high)[bins], const Note &note) const {
    clear_bins(low, high);
    const u32 last = round == 0 ? cut : first * bins + bins - 1; // of the drops that are looked at
    walk(begin, end, thread_x(), Config::threads, last < cut ? last : cut, [&](f32 score, u32 at) {
      const u32 below = drop(score);
      if (below > cut || below > last || below >= maxDrop)
        return;
      note(at, below);
      add_drop<Counts>(below, round, first, low, high);
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
      add_to_bins<Counts>(0, length, round, first, cut, low, high, [](u32, u32) {});
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

  // Of 32 weights, each lane's, the lane at which their sum exceeds `drawn`, from which what is before it is
  // taken; all of them together exceed it.
  static DEVICE u32 lane_of(u64 weight, u64 &drawn) {
    u64 running = weight;
    for (u32 distance = 1; distance < 32; distance *= 2) {
      const u64 earlier = shuffle_up(running, distance);
      running += lane_id() >= distance ? earlier : 0;
    }
    const u32 lane = first_bit(warp_ballot(running > drawn));
    drawn -= shuffle_index(running - weight, lane);
    return lane;
  }
  // The first place of [begin, end) at which the weights up to `cut` come to more than `drawn`, which all of
  // them together do. By a warp.
  DEVICE i64 find_place(i64 begin, i64 end, u64 drawn, u32 cut) const {
#pragma unroll 1
    while (end - begin > width) {
      const i64 part = part_of(end - begin, 32), from = begin + lane_id() * part;
      u64 sum = 0;
      walk(from, from + part < end ? from + part : end, 0, 1, cut,
           [&](f32 score, u32) { sum += weight(score, cut); });
      begin += lane_of(sum, drawn) * part;
      end = begin + part < end ? begin + part : end;
    }
    f32 score[width];
    body.elements(begin, score);
    i64 place = begin;
    u64 sum = 0;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      sum += weight(score[j], cut);
      place += sum <= drawn ? 1 : 0;
    }
    return place;
  }

  static DEVICE u64 share_of(u64 total) {
    const u64 wanted = multiply_high(total, Config::share);
    return wanted > 0 ? wanted : 1;
  }

  // Up to which sum of weights row `row` looks.
  DEVICE u64 drawn_of(i64 row, u64 total) const {
    return multiply_high(philox((u64)body.seed(0), (u64)body.seed(1), (u64)row), total);
  }

  // The first warp has it.
  DEVICE i64 draw(i64 row) {
    SHARED(u64, parts, warps);
    SHARED(u32, low, bins);
    SHARED(u32, high, bins);
    const i64 part = part_of(length, warps);
    largest = largest_of(0, length);
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
    if (warp_id() > 0)
      return 0;
    u64 drawn = drawn_of(row, total);
    const i64 from = lane_of(lane_id() < warps ? parts[lane_id()] : 0, drawn) * part;
    return find_place(from, from + part < length ? from + part : length, drawn, cut);
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
