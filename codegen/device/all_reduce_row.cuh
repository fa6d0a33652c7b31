#pragma once

#include "exchange.cuh"
#include "row.cuh"

// Rows that start from a sum over ranks, without barriers between the ranks: a thread that waits for a row
// sees when it is there.
//
// One-shot: every rank sends its addends to all others, and each adds and normalises every row. Two-shot:
// block b of all ranks sends its addends to rank b % ranks (reduce-scatter), which adds, and sends to all
// (all-gather): either the sum, from which every rank goes on, or the row that it alone has normalised,
// which the others only store.
//
// Where the kernel before it has sent the addends, to this rank too (sending_epilogue.cuh), a one-shot kernel
// waits for them alone, and for that kernel when all is done. It starts when that one has waited itself: all
// kernels before are done then. What that one reads or stores, this one must not write.
//
// The body is that of row_kernel() with, besides:
//
//   struct Row { ...; AllReduceRow<Config> ranks; };
//   i64 blocks() const;             // that work on the rows
//   i64 slot_bytes() const;         // that a rank sends to another for the sum
//   i64 gather_slot_bytes() const;  // two-shot: and for the all-gather
//   i64 area_bytes() const;         // that a rank gets from all others
//   Vec<T, N> addend(const RowChunk &, const Row &, const Live &) const;
//   void set_sum(const RowChunk &, Live &, const Vec<T, N> &) const;
//
// and, if gathersRows:
//
//   void request(OfReducer, ...) const;               // what only the row's reducer reads
//   void gather(const RowChunk &, const Row &) const; // stores what the reducer has sent: by vector,
//   void gather(const Row &) const;                   // and once per row

struct AllReduceRowConfig : RowConfig {
  static constexpr int ranks = 1;
  static constexpr bool twoShot = false, gathersRows = false, isSent = false;
  static constexpr i64 rowBytes = 0, gatheredBytes = 0; // of a row in a slot, in each direction
};

struct OfReducer {};

template <class Config>
struct AllReduceRow {
  CollectiveContext<Config::ranks> context;
  u32 reducer;           // two-shot: the rank that adds the row
  i64 row, at, gatherAt; // where the row begins in a slot, in each direction
  u64 slotBytes, gatherSlotBytes;

  DEVICE bool reduces() const { return reducer == context.rank; }
  template <class Body>
  DEVICE void begin(const Body &body, const RowThread<Config> &thread, i64 block) {
    row = thread.row;
    slotBytes = (u64)body.slot_bytes();
    if constexpr (!Config::twoShot) {
      at = row * Config::rowBytes;
    } else {
      reducer = (u32)(block % Config::ranks);
      const i64 place = block / Config::ranks * thread.rowsPerBlock + (row - block * thread.rowsPerBlock);
      at = place * Config::rowBytes;
      gatherSlotBytes = (u64)body.gather_slot_bytes();
      gatherAt = body.slot_bytes() * (Config::ranks - 1) + place * Config::gatheredBytes;
    }
  }
  // Sends what the reducer has made of the row to all; returns what the others get.
  template <class T, int N>
  DEVICE Vec<T, N> gather(i64 offset, const Vec<T, N> &values) const {
    const Vec<T, N> sent = as_sent(values);
    send_to_all(context, gatherAt + offset, gatherSlotBytes, sent);
    return sent;
  }
  template <class T>
  DEVICE T gather(i64 offset, T value) const {
    return gather(offset, Vec<T, 1>{{value}})[0];
  }
  // What the reducer has sent.
  template <class T, int N>
  DEVICE Vec<T, N> gathered(i64 offset, const Vec<T, N> & = Vec<T, N>()) const {
    return receive_row<T, N>(context, reducer, gatherAt + offset, gatherSlotBytes, row);
  }
};

// Sends this rank's addends, and reads what only a reducer needs.
template <class Config, class Body>
DEVICE void send_addends(const Body &body, const RowThread<Config> &thread, typename Body::Row &row,
                         typename Body::Live &live) {
  using Thread = RowThread<Config>;
  using Vector = decltype(body.addend(thread.chunk(0), row, live));
  constexpr i64 bytes = sizeof(Vector) / Config::vector;
  const AllReduceRow<Config> &ranks = row.ranks;
  if constexpr (Config::twoShot)
    if (ranks.reduces()) {
      load_row<OfReducer, Config>(body, thread, row, live);
      return;
    }
#pragma unroll
  for (int k = 0; k < Thread::chunks; ++k) {
    const RowChunk chunk = thread.chunk(k);
    const auto mine = body.addend(chunk, row, live);
    if (!chunk.writes)
      continue;
    if constexpr (Config::twoShot)
      send_to_reducer(ranks.context, ranks.reducer, ranks.at + chunk.column * bytes, ranks.slotBytes, mine);
    else
      send_to_all(ranks.context, ranks.at + chunk.column * bytes, ranks.slotBytes, mine);
  }
}

// Adds up what the ranks have sent, or takes the sum from the row's reducer.
template <class Config, class Body>
DEVICE void sum_addends(const Body &body, const RowThread<Config> &thread, typename Body::Row &row,
                        typename Body::Live &live) {
  using Thread = RowThread<Config>;
  using Vector = decltype(body.addend(thread.chunk(0), row, live));
  constexpr i64 bytes = sizeof(Vector) / Config::vector;
  const AllReduceRow<Config> &ranks = row.ranks;
  auto total = [&](const RowChunk &chunk) {
    const u64 at = ranks.at + chunk.column * bytes;
    if constexpr (Config::isSent)
      return sum_of_packets<true>(ranks.context, at, ranks.slotBytes, Vector(), ranks.row);
    else
      return sum_of_packets(ranks.context, at, ranks.slotBytes, body.addend(chunk, row, live), ranks.row);
  };
  if constexpr (!Config::twoShot) {
#pragma unroll
    for (int k = 0; k < Thread::chunks; ++k)
      body.set_sum(thread.chunk(k), live, total(thread.chunk(k)));
  } else if (Config::gathersRows || ranks.reduces()) {
#pragma unroll
    for (int k = 0; k < Thread::chunks; ++k) {
      const RowChunk chunk = thread.chunk(k);
      const Vector sum = as_sent(total(chunk));
      if (!Config::gathersRows && chunk.writes)
        send_to_all(ranks.context, ranks.gatherAt + chunk.column * bytes, ranks.gatherSlotBytes, sum);
      body.set_sum(chunk, live, sum);
    }
  } else {
#pragma unroll
    for (int k = 0; k < Thread::chunks; ++k) {
      const RowChunk chunk = thread.chunk(k);
      body.set_sum(chunk, live, ranks.gathered(chunk.column * bytes, Vector()));
    }
  }
}

// Stores what the row's reducer has made of it.
template <class Config, class Body>
DEVICE void gather_row(const Body &body, const RowThread<Config> &thread, typename Body::Row &row) {
#pragma unroll
  for (int k = 0; k < RowThread<Config>::chunks; ++k)
    body.gather(thread.chunk(k), row);
  if (thread.is_first())
    body.gather(row);
}

template <class Config, class Body>
DEVICE void all_reduce_row_kernel(const Body &body, Exchange *exchange) {
  using Thread = RowThread<Config>;
  i64 block = block_x();
  u32 index = block_x(), count = (u32)body.blocks();
  if constexpr (Config::cluster > 1) { // the blocks of a cluster share a row
    if (block_x() % (u32)Config::cluster >= (u32)Thread::blocks)
      return;
    start_cluster_reductions<Config::threads, Config::cluster>();
    cluster_arrive_relaxed();
    block = block_x() / (u32)Config::cluster;
    index = (u32)block * (u32)Thread::blocks + cluster_rank();
    count *= (u32)Thread::blocks;
  }
  const Thread thread(block, body.rows());
  typename Body::Row row = body.row(thread.row);
  typename Body::Live live;
  begin_row<Config>(
      body, thread, row, live, [&] { row.ranks.context = collective_context<Config::ranks>(exchange); },
      [&] { begin_round(row.ranks.context); });
  row.ranks.begin(body, thread, block);
  if constexpr (!Config::isSent)
    send_addends<Config>(body, thread, row, live);
  clear_last_round<Config::threads>(row.ranks.context, index, count);
  if constexpr (!Config::isSent)
    count_round(row.ranks.context, count, (u64)body.area_bytes());
  if constexpr (Config::gathersRows)
    if (!row.ranks.reduces()) {
      gather_row<Config>(body, thread, row);
      if constexpr (Config::cluster > 1)
        cluster_wait();
      return;
    }
  sum_addends<Config>(body, thread, row, live);
  if constexpr (Config::cluster > 1)
    cluster_wait();
  row_passes<0, Config>(body, thread, row, live);
  // Whoever has sent a block its addends has read which round it is; now all have.
  if constexpr (Config::isSent) {
    count_round(row.ranks.context, count, (u64)body.area_bytes());
    pdl_wait();
  }
}
