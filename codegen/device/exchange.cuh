#pragma once

#include "clusters.cuh"
#include "math.cuh"
#include "reduce.cuh"
#ifdef FUSION_EMULATED
#include "exchange_host.cuh"
#else
#include "exchange_cuda.cuh"
#endif

// Sums over ranks through memory that all of them reach: see codegen/device/exchange_abi.h. A word that is
// written in an area is never emptyWord, so that a waiting thread needs no other sign that it has come.

using Exchange = fusion_exchange::Exchange;

// What a rank knows of a collective. The others are counted from this rank on: others[i] is rank
// (rank + 1 + i) % Ranks. What it gets from others[i] lies in slot i of its area, so that what it sends there
// goes to slot Ranks - 2 - i.
template <int Ranks> struct CollectiveContext {
  Exchange *exchange;
  u32 rank;
  u8 *own, *others[Ranks > 1 ? Ranks - 1 : 1]; // this round's areas
  u32 round, cleared;
  u64 clearedBytes;
};

// Before the wait for earlier kernels: what never changes.
template <int Ranks> DEVICE CollectiveContext<Ranks> collective_context(Exchange *exchange) {
  CollectiveContext<Ranks> context;
  context.exchange = exchange;
  context.rank = exchange->rank;
  context.own = exchange->memory[context.rank];
#pragma unroll
  for (int i = 0; i < Ranks - 1; ++i)
    context.others[i] = exchange->memory[(context.rank + 1u + (u32)i) % (u32)Ranks];
  return context;
}
// After it: this round's areas.
template <int Ranks>
DEVICE void find_round(CollectiveContext<Ranks> &context) {
  const Exchange *exchange = context.exchange;
  const u32 round = load_now(&exchange->round);
  const u64 size = exchange->roundBytes;
  context.round = round;
  context.own += round * size;
#pragma unroll
  for (int i = 0; i < Ranks - 1; ++i)
    context.others[i] += round * size;
}
// The same, and what the round before has left to be cleared.
template <int Ranks>
DEVICE void begin_round(CollectiveContext<Ranks> &context) {
  const Exchange *exchange = context.exchange;
  const u64 used0 = load_now(&exchange->used[0]), used1 = load_now(&exchange->used[1]),
            used2 = load_now(&exchange->used[2]);
  find_round(context);
  context.cleared = context.round == 0 ? 2u : context.round - 1u;
  context.clearedBytes = context.round == 0 ? used2 : context.round == 1 ? used0 : used1;
}
// Clears the area of the round before. `index`, `count`: of this block among those that take part.
template <int Threads, int Ranks>
DEVICE void clear_last_round(const CollectiveContext<Ranks> &context, u32 index, u32 count) {
  Exchange *exchange = context.exchange;
  u8 *area = context.own + ((i64)context.cleared - (i64)context.round) * (i64)exchange->roundBytes;
  const u32 empty[4] = {fusion_exchange::emptyWord, fusion_exchange::emptyWord, fusion_exchange::emptyWord,
                        fusion_exchange::emptyWord};
  for (u64 at = ((u64)index * Threads + thread_x()) * 16u; at < context.clearedBytes;
       at += (u64)count * Threads * 16u)
    put_words<16>(area + at, empty);
}
// Counts this round once all blocks have come here; they have read which it is. `bytes`: how much of the own
// area is written in this round.
template <int Ranks>
DEVICE void count_round(const CollectiveContext<Ranks> &context, u32 count, u64 bytes) {
  Exchange *exchange = context.exchange;
  barrier();
  if (thread_x() == 0 && atomic_add(&exchange->finishedBlocks, 1u) == count - 1u) {
    exchange->used[context.cleared] = 0;
    exchange->used[context.round] = bytes;
    exchange->finishedBlocks = 0;
    store_now(&exchange->round, context.round == 2u ? 0u : context.round + 1u);
  }
}

// A vector as it travels: accesses of up to 16 bytes.
template <class T, int N> struct Packet {
  static constexpr int bytes = sizeof(T) * N, access = bytes > 16 ? 16 : bytes, accesses = bytes / access;
  static constexpr int wordsOfAccess = (access + 3) / 4;
  static constexpr u32 empty = access == 1 ? 0xffu : access == 2 ? 0xffffu : fusion_exchange::emptyWord;
  // A NaN of every element type, with other bits.
  static constexpr u32 instead = sizeof(T) == 1 ? (access == 1 ? 0x7fu : access == 2 ? 0x7f7fu : 0x7f7f7f7fu)
                                 : sizeof(T) == 2 ? (access == 2 ? 0x7fffu : 0x7fff7fffu)
                                                  : 0x7fffffffu;
  u32 words[accesses][wordsOfAccess];

  DEVICE void pack(const Vec<T, N> &values) {
#pragma unroll
    for (int i = 0; i < accesses; ++i) {
      words[i][0] = 0;
      copy_bytes(words[i], reinterpret_cast<const u8 *>(&values) + i * access, access);
#pragma unroll
      for (int j = 0; j < wordsOfAccess; ++j)
        words[i][j] = words[i][j] == empty ? instead : words[i][j];
    }
  }
  DEVICE Vec<T, N> unpack() const {
    Vec<T, N> values;
#pragma unroll
    for (int i = 0; i < accesses; ++i)
      copy_bytes(reinterpret_cast<u8 *>(&values) + i * access, words[i], access);
    return values;
  }
  DEVICE void put(u8 *to) const {
#pragma unroll
    for (int i = 0; i < accesses; ++i)
      put_words<access>(to + i * access, words[i]);
  }
  DEVICE void get(const u8 *from) {
#pragma unroll
    for (int i = 0; i < accesses; ++i)
      get_words<access>(words[i], from + i * access);
  }
  DEVICE bool is_here() const {
    bool here = true;
#pragma unroll
    for (int i = 0; i < accesses; ++i)
#pragma unroll
      for (int j = 0; j < wordsOfAccess; ++j)
        here = here && words[i][j] != empty;
    return here;
  }
};

// How long a wait lasts. Called after each look that was in vain; true ends the wait. The clock and the
// device's own flag are looked at now and then, the host's memory every ten milliseconds: if all threads read
// that at once it takes most of one, and a rank that lags so must not make the others do the same.
struct SpinTimeout {
  u32 looks = 0;
  u64 since = 0, asked = 0;
};
DEVICE bool times_out(SpinTimeout &wait, Exchange *exchange, u32 awaited, u32 phase, u32 row) {
  pause();
  if (++wait.looks % looksPerCheck != 0)
    return false;
  const u64 now = nanoseconds();
  if (wait.since == 0)
    wait.since = wait.asked = now;
  if (load_now(&exchange->gaveUp) != 0)
    return true;
  if (now - wait.asked < 10000000u && now - wait.since < exchange->spinTimeout)
    return false;
  wait.asked = now;
  if (load_now(&exchange->failure->happened) != 0) {
    store_now(&exchange->gaveUp, 1u);
    return true;
  }
  if (now - wait.since < exchange->spinTimeout)
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
DEVICE void send_to_all(const CollectiveContext<Ranks> &context, u64 at, u64 slotBytes,
                        const Vec<T, N> &values) {
  Packet<T, N> packet;
  packet.pack(values);
#pragma unroll
  for (int i = 0; i < Ranks - 1; ++i)
    packet.put(context.others[i] + (u64)(Ranks - 2 - i) * slotBytes + at);
}

// The same, and to this rank itself: what its sum waits for as it does for what the others send. Behind the
// others' slots.
template <int Ranks, class T, int N>
DEVICE void send_to_all_and_own(const CollectiveContext<Ranks> &context, u64 at, u64 slotBytes,
                                const Vec<T, N> &values) {
  send_to_all(context, at, slotBytes, values);
  Packet<T, N> packet;
  packet.pack(values);
  packet.put(context.own + (u64)(Ranks - 1) * slotBytes + at);
}

// The same to `reducer`, another rank, alone.
template <int Ranks, class T, int N>
DEVICE void send_to_reducer(const CollectiveContext<Ranks> &context, u32 reducer, u64 at, u64 slotBytes,
                            const Vec<T, N> &values) {
  const u32 place = (reducer + (u32)Ranks - 1u - context.rank) % (u32)Ranks;
  u8 *area = context.others[0];
#pragma unroll
  for (int i = 1; i < Ranks - 1; ++i)
    area = place == (u32)i ? context.others[i] : area;
  Packet<T, N> packet;
  packet.pack(values);
  packet.put(area + ((u64)Ranks - 2u - place) * slotBytes + at);
}
// What `reducer`, another rank, has sent to all.
template <class T, int N, int Ranks>
DEVICE Vec<T, N> receive_row(const CollectiveContext<Ranks> &context, u32 reducer, u64 at, u64 slotBytes,
                             i64 row) {
  const u32 place = (reducer + (u32)Ranks - 1u - context.rank) % (u32)Ranks;
  const u8 *from = context.own + place * slotBytes + at;
  Packet<T, N> packet;
  SpinTimeout wait;
  for (;;) {
    packet.get(from);
    if (packet.is_here() || times_out(wait, context.exchange, reducer, 2u, (u32)row))
      break;
  }
  return packet.unpack();
}

// What the others make of `values`: all ranks go on with the same bits.
template <class T, int N> DEVICE Vec<T, N> as_sent(const Vec<T, N> &values) {
  Packet<T, N> packet;
  packet.pack(values);
  return packet.unpack();
}

// The sum of `mine` and what the others have sent, in f32 in the order of the ranks, rounded once. OwnIsSent:
// instead of `mine` what send_to_all_and_own() has sent to this rank.
template <bool OwnIsSent = false, int Ranks, class T, int N>
DEVICE Vec<T, N> sum_of_packets(const CollectiveContext<Ranks> &context, u64 at, u64 slotBytes,
                                const Vec<T, N> &mine, i64 row) {
  Packet<T, N> parts[Ranks - 1], own; // in the order of the ranks
  SpinTimeout wait;
  if constexpr (!OwnIsSent)
    own.pack(mine);
  for (;;) {
    u32 missing = Ranks, awaited = context.rank;
    if constexpr (OwnIsSent) {
      own.get(context.own + (u64)(Ranks - 1) * slotBytes + at);
      missing = own.is_here() ? missing : (u32)Ranks + 1u;
    }
#pragma unroll
    for (int i = 0; i < Ranks - 1; ++i) {
      const u32 slot = (u32)i < context.rank ? (u32)(Ranks - 1 + i) - context.rank : (u32)i - context.rank;
      parts[i].get(context.own + slot * slotBytes + at);
    }
#pragma unroll
    for (int i = 0; i < Ranks - 1; ++i)
      missing = parts[i].is_here() ? missing : (u32)i;
    if (missing < (u32)Ranks)
      awaited = missing < context.rank ? missing : missing + 1u;
    if (missing == (u32)Ranks || times_out(wait, context.exchange, awaited, 1u, (u32)row))
      break;
  }
  Vec<f32, N> sums;
#pragma unroll
  for (int rank = 0; rank < Ranks; ++rank) {
    Packet<T, N> part = own;
#pragma unroll
    for (int i = 0; i < own.accesses; ++i)
#pragma unroll
      for (int j = 0; j < own.wordsOfAccess; ++j) {
        if (rank < Ranks - 1)
          part.words[i][j] = (u32)rank < context.rank ? parts[rank].words[i][j] : part.words[i][j];
        if (rank > 0)
          part.words[i][j] = (u32)rank > context.rank ? parts[rank - 1].words[i][j] : part.words[i][j];
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
