// Sums over ranks through memory that all of them reach: see codegen/device/exchange_abi.h. A word that is written in an
// area is never emptyWord, so that whoever waits for it needs no other sign that it is there.

using Exchange = fusion_exchange::Exchange;

// What a rank knows of a collective. The others are counted from this rank on: others[i] is rank (rank + 1 + i) % Ranks.
// What it gets from others[i] lies in slot i of its area, so that what it sends there goes to slot Ranks - 2 - i.
template <int Ranks> struct Meeting {
  Exchange *exchange;
  u32 rank;
  u8 *own, *others[Ranks > 1 ? Ranks - 1 : 1]; // this round's areas
  u32 round, cleared;
  u64 clearedBytes;
};

// Before the wait for earlier kernels: what never changes.
template <int Ranks> DEVICE Meeting<Ranks> meet_ranks(Exchange *exchange) {
  Meeting<Ranks> meeting;
  meeting.exchange = exchange;
  meeting.rank = exchange->rank;
  meeting.own = exchange->memory[meeting.rank];
#pragma unroll
  for (int i = 0; i < Ranks - 1; ++i)
    meeting.others[i] = exchange->memory[(meeting.rank + 1u + (u32)i) % (u32)Ranks];
  return meeting;
}
// After it: this round's areas, and what the round before has left to be cleared.
template <int Ranks> DEVICE void begin_round(Meeting<Ranks> &meeting) {
  const Exchange *exchange = meeting.exchange;
  const u32 round = load_now(&exchange->round);
  const u64 size = exchange->roundBytes, used0 = exchange->used[0], used1 = exchange->used[1], used2 = exchange->used[2];
  meeting.round = round;
  meeting.cleared = round == 0 ? 2u : round - 1u;
  meeting.clearedBytes = round == 0 ? used2 : round == 1 ? used0 : used1;
  meeting.own += round * size;
#pragma unroll
  for (int i = 0; i < Ranks - 1; ++i)
    meeting.others[i] += round * size;
}
// Clears the area of the round before, and counts this round once all blocks have read which it is. `index`, `count`: of
// this block among those that take part. `bytes`: how much of the own area is written in this round.
template <int Threads, int Ranks> DEVICE void end_round(const Meeting<Ranks> &meeting, u32 index, u32 count, u64 bytes) {
  Exchange *exchange = meeting.exchange;
  u8 *area = meeting.own + ((i64)meeting.cleared - (i64)meeting.round) * (i64)exchange->roundBytes;
  const u32 empty[4] = {fusion_exchange::emptyWord, fusion_exchange::emptyWord, fusion_exchange::emptyWord,
                        fusion_exchange::emptyWord};
  for (u64 at = ((u64)index * Threads + thread_x()) * 16u; at < meeting.clearedBytes; at += (u64)count * Threads * 16u)
    put_words<16>(area + at, empty);
  barrier();
  if (thread_x() == 0 && atomic_add(&exchange->finishedBlocks, 1u) == count - 1u) {
    exchange->used[meeting.cleared] = 0;
    exchange->used[meeting.round] = bytes;
    exchange->finishedBlocks = 0;
    store_now(&exchange->round, meeting.round == 2u ? 0u : meeting.round + 1u);
  }
}

// A vector as it travels: pieces of up to 16 bytes.
template <class T, int N> struct Parcel {
  static constexpr int bytes = sizeof(T) * N, piece = bytes > 16 ? 16 : bytes, pieces = bytes / piece;
  static constexpr int wordsOfPiece = (piece + 3) / 4;
  static constexpr u32 empty = piece == 1 ? 0xffu : piece == 2 ? 0xffffu : fusion_exchange::emptyWord;
  // A NaN of every element type, with other bits.
  static constexpr u32 instead = sizeof(T) == 1 ? (piece == 1 ? 0x7fu : piece == 2 ? 0x7f7fu : 0x7f7f7f7fu)
                                 : sizeof(T) == 2 ? (piece == 2 ? 0x7fffu : 0x7fff7fffu)
                                                  : 0x7fffffffu;
  u32 words[pieces][wordsOfPiece];

  DEVICE void pack(const Vec<T, N> &values) {
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      words[i][0] = 0;
      copy_bytes(words[i], reinterpret_cast<const u8 *>(&values) + i * piece, piece);
#pragma unroll
      for (int j = 0; j < wordsOfPiece; ++j)
        words[i][j] = words[i][j] == empty ? instead : words[i][j];
    }
  }
  DEVICE Vec<T, N> unpack() const {
    Vec<T, N> values;
#pragma unroll
    for (int i = 0; i < pieces; ++i)
      copy_bytes(reinterpret_cast<u8 *>(&values) + i * piece, words[i], piece);
    return values;
  }
  DEVICE void put(u8 *to) const {
#pragma unroll
    for (int i = 0; i < pieces; ++i)
      put_words<piece>(to + i * piece, words[i]);
  }
  DEVICE void get(const u8 *from) {
#pragma unroll
    for (int i = 0; i < pieces; ++i)
      get_words<piece>(words[i], from + i * piece);
  }
  DEVICE bool is_here() const {
    bool here = true;
#pragma unroll
    for (int i = 0; i < pieces; ++i)
#pragma unroll
      for (int j = 0; j < wordsOfPiece; ++j)
        here = here && words[i][j] != empty;
    return here;
  }
};

// How long a wait lasts. Called after each look that was in vain; true ends the wait. The clock and the device's own flag are
// looked at now and then, the host's memory every ten milliseconds: if all threads read that at once it takes most of one,
// and a rank that lags so must not make the others do the same.
struct Patience {
  u32 looks = 0;
  u64 since = 0, asked = 0;
};
DEVICE bool gives_up(Patience &wait, Exchange *exchange, u32 awaited, u32 phase, u32 row) {
  pause();
  if (++wait.looks % looksPerCheck != 0)
    return false;
  const u64 now = nanoseconds();
  if (wait.since == 0)
    wait.since = wait.asked = now;
  if (load_now(&exchange->gaveUp) != 0)
    return true;
  if (now - wait.asked < 10000000u && now - wait.since < exchange->patience)
    return false;
  wait.asked = now;
  if (load_now(&exchange->failure->happened) != 0) {
    store_now(&exchange->gaveUp, 1u);
    return true;
  }
  if (now - wait.since < exchange->patience)
    return false;
  if (first_to_set(&exchange->gaveUp)) {
    store_now(&exchange->failure->awaited, awaited);
    store_now(&exchange->failure->phase, phase);
    store_now(&exchange->failure->row, row);
    fence_system();
    store_now(&exchange->failure->happened, 1u);
  }
  return true;
}

// Sends `values` to all others, `at` bytes into this rank's slots of `slotBytes` each.
template <int Ranks, class T, int N>
DEVICE void send_to_all(const Meeting<Ranks> &meeting, u64 at, u64 slotBytes, const Vec<T, N> &values) {
  Parcel<T, N> parcel;
  parcel.pack(values);
#pragma unroll
  for (int i = 0; i < Ranks - 1; ++i)
    parcel.put(meeting.others[i] + (u64)(Ranks - 2 - i) * slotBytes + at);
}

// The same to `owner`, another rank, alone.
template <int Ranks, class T, int N>
DEVICE void send_to_owner(const Meeting<Ranks> &meeting, u32 owner, u64 at, u64 slotBytes, const Vec<T, N> &values) {
  const u32 place = (owner + (u32)Ranks - 1u - meeting.rank) % (u32)Ranks;
  u8 *area = meeting.others[0];
#pragma unroll
  for (int i = 1; i < Ranks - 1; ++i)
    area = place == (u32)i ? meeting.others[i] : area;
  Parcel<T, N> parcel;
  parcel.pack(values);
  parcel.put(area + ((u64)Ranks - 2u - place) * slotBytes + at);
}
// What `owner`, another rank, has sent to all.
template <class T, int N, int Ranks>
DEVICE Vec<T, N> row_of_owner(const Meeting<Ranks> &meeting, u32 owner, u64 at, u64 slotBytes, i64 row) {
  const u32 place = (owner + (u32)Ranks - 1u - meeting.rank) % (u32)Ranks;
  const u8 *from = meeting.own + place * slotBytes + at;
  Parcel<T, N> parcel;
  Patience wait;
  for (;;) {
    parcel.get(from);
    if (parcel.is_here() || gives_up(wait, meeting.exchange, owner, 2u, (u32)row))
      break;
  }
  return parcel.unpack();
}

// What the others make of `values`: all ranks go on with the same bits.
template <class T, int N> DEVICE Vec<T, N> as_sent(const Vec<T, N> &values) {
  Parcel<T, N> parcel;
  parcel.pack(values);
  return parcel.unpack();
}

// The sum of `mine` and what the others have sent, in f32 in the order of the ranks, rounded once.
template <int Ranks, class T, int N>
DEVICE Vec<T, N> sum_of_parts(const Meeting<Ranks> &meeting, u64 at, u64 slotBytes, const Vec<T, N> &mine, i64 row) {
  Parcel<T, N> parts[Ranks - 1]; // in the order of the ranks
  Patience wait;
  for (;;) {
    u32 missing = Ranks;
#pragma unroll
    for (int i = 0; i < Ranks - 1; ++i) {
      const u32 slot = (u32)i < meeting.rank ? (u32)(Ranks - 1 + i) - meeting.rank : (u32)i - meeting.rank;
      parts[i].get(meeting.own + slot * slotBytes + at);
    }
#pragma unroll
    for (int i = 0; i < Ranks - 1; ++i)
      missing = parts[i].is_here() ? missing : (u32)i;
    if (missing == Ranks ||
        gives_up(wait, meeting.exchange, missing < meeting.rank ? missing : missing + 1u, 1u, (u32)row))
      break;
  }
  Parcel<T, N> own;
  own.pack(mine);
  Vec<f32, N> sums;
#pragma unroll
  for (int rank = 0; rank < Ranks; ++rank) {
    Parcel<T, N> part = own;
#pragma unroll
    for (int i = 0; i < own.pieces; ++i)
#pragma unroll
      for (int j = 0; j < own.wordsOfPiece; ++j) {
        if (rank < Ranks - 1)
          part.words[i][j] = (u32)rank < meeting.rank ? parts[rank].words[i][j] : part.words[i][j];
        if (rank > 0)
          part.words[i][j] = (u32)rank > meeting.rank ? parts[rank - 1].words[i][j] : part.words[i][j];
      }
    const Vec<T, N> addends = part.unpack();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const f32 addend = element_f32(addends, i);
      sums[i] = rank == 0 ? addend : sums[i] + addend;
    }
  }
  if constexpr (same_type<T, f32>)
    return sums;
  else
    return vec_from_f32<T>(sums);
}

// Reductions over the blocks of a cluster that share a row, of Threads threads each; every thread gets the result. What
// the warps of all blocks have found is written to each block's own scratch, so that one barrier is enough.
#define FUSION_CLUSTER_REDUCTION(name, inBlock, lanes, combine, empty)                                        \
  template <int Threads, int Site, int Blocks> DEVICE f32 name(f32 value) {                                   \
    if constexpr (cluster_blocks<Blocks> == 1) {                                                              \
      return inBlock<Threads, Site>(value);                                                                   \
    } else {                                                                                                  \
      constexpr int warps = Threads / 32, all = warps * Blocks;                                               \
      SHARED(f32, scratch, (all + 3) / 4 * 4);                                                                \
      const f32 mine = lanes<32>(value);                                                                      \
      const u32 lane = thread_x() % 32u;                                                                      \
      if (lane < (u32)Blocks)                                                                                 \
        store_in_cluster(&scratch[cluster_rank() * warps + thread_x() / 32u], lane, mine);                    \
      cluster_arrive();                                                                                       \
      cluster_wait();                                                                                         \
      f32 total = lane < (u32)all ? scratch[lane] : empty;                                                    \
      _Pragma("unroll") for (int i = 32; i < all; i += 32) {                                                  \
        const f32 other = lane + i < (u32)all ? scratch[lane + i] : empty;                                    \
        total = combine;                                                                                      \
      }                                                                                                       \
      return lanes<32>(total);                                                                                \
    }                                                                                                         \
  }
FUSION_CLUSTER_REDUCTION(cluster_sum, block_sum, lanes_sum, total + other, 0.f)
FUSION_CLUSTER_REDUCTION(cluster_max, block_max, lanes_max, max_nan(total, other), -inf_f32())
FUSION_CLUSTER_REDUCTION(cluster_min, block_min, lanes_min, min_nan(total, other), inf_f32())
#undef FUSION_CLUSTER_REDUCTION
