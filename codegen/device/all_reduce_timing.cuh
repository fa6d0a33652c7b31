#pragma once

#include "exchange.cuh"
#include "prelude.cuh"

// All-reduces of bf16 that do nothing else. The runtime times them to find out which algorithm is the fastest
// for messages of which size. A row is what a block works on: its threads have Config::vectors vectors each,
// as in the kernels of programs.
//
// Config: ranks, threads, vectors, and Gathered, the type of the elements that two-shot gathers: bf16 for
// sums, f8e4m3 for rows half as long, as a norm with a quantisation after it leaves them.

struct AllReduceMessage {
  const bf16 *from;
  bf16 *to;
  i64 slotBytes;       // that a rank sends to another for the sum
  i64 gatherSlotBytes; // two-shot: and for the all-gather
  i64 areaBytes;       // that a rank gets from all others
};

template <class Config>
struct TimedAllReduce {
  static constexpr int elements = Config::threads * Config::vectors * 8; // of a row
  CollectiveContext<Config::ranks> context;
  AllReduceMessage message;
  Vec<bf16, 8> mine[Config::vectors];

  // The first element of the thread's vector k, in its row.
  static DEVICE i64 place(int k) { return (thread_x() + k * Config::threads) * 8; }
  DEVICE const bf16 *source(int k) const { return message.from + (i64)block_x() * elements + place(k); }
  DEVICE bf16 *target(int k) const { return message.to + (i64)block_x() * elements + place(k); }

  DEVICE void begin(const AllReduceMessage &given, Exchange *exchange) {
    message = given;
#pragma unroll
    for (int k = 0; k < Config::vectors; ++k)
      mine[k] = load_early_vec<bf16, 8>(source(k));
    context = collective_context<Config::ranks>(exchange);
    pdl_wait();
    begin_round(context);
    pdl_launch_dependents();
  }
  DEVICE void end() {
    clear_last_round<Config::threads>(context, block_x(), grid_dim_x());
    count_round(context, grid_dim_x(), message.areaBytes);
  }
  // The sum of the thread's vector k; its row begins at byte `row` of a slot.
  DEVICE Vec<bf16, 8> sum(i64 row, int k) const {
    return sum_of_packets(context, row + place(k) * 2, message.slotBytes, mine[k], block_x());
  }
};

template <class Config>
DEVICE void timed_one_shot(const AllReduceMessage &message, Exchange *exchange) {
  TimedAllReduce<Config> work;
  work.begin(message, exchange);
  const i64 row = (i64)block_x() * work.elements * 2;
#pragma unroll
  for (int k = 0; k < Config::vectors; ++k)
    send_to_all(work.context, row + work.place(k) * 2, message.slotBytes, work.mine[k]);
  work.end();
#pragma unroll
  for (int k = 0; k < Config::vectors; ++k)
    store_vec(work.target(k), work.sum(row, k));
}

template <class T>
DEVICE Vec<T, 8> gathered_of(const Vec<bf16, 8> &sum) {
  if constexpr (same_type<T, bf16>) {
    return sum;
  } else {
    Vec<f32, 8> wide;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      wide[i] = element_f32(sum, i);
    return as_sent(vec_from_f32<T>(wide));
  }
}

template <class Config>
DEVICE void timed_two_shot(const AllReduceMessage &message, Exchange *exchange) {
  using T = typename Config::Gathered;
  TimedAllReduce<Config> work;
  work.begin(message, exchange);
  const u32 reducer = block_x() % (u32)Config::ranks;
  const i64 first = (i64)(block_x() / (u32)Config::ranks) * work.elements, row = first * 2;
  const i64 gathered = message.slotBytes * (Config::ranks - 1) + first * (i64)sizeof(T);
  if (reducer != work.context.rank) {
#pragma unroll
    for (int k = 0; k < Config::vectors; ++k)
      send_to_reducer(work.context, reducer, row + work.place(k) * 2, message.slotBytes, work.mine[k]);
  }
  work.end();
  if (reducer != work.context.rank) {
    // Rows of narrower elements begin where those of bf16 do.
    T *to = reinterpret_cast<T *>(message.to + (i64)block_x() * work.elements);
#pragma unroll
    for (int k = 0; k < Config::vectors; ++k)
      store_vec(to + work.place(k),
                receive_row<T, 8>(work.context, reducer, gathered + work.place(k) * (i64)sizeof(T),
                                  message.gatherSlotBytes, block_x()));
    return;
  }
#pragma unroll
  for (int k = 0; k < Config::vectors; ++k) {
    const Vec<bf16, 8> sum = as_sent(work.sum(row, k));
    send_to_all(work.context, gathered + work.place(k) * (i64)sizeof(T), message.gatherSlotBytes,
                gathered_of<T>(sum));
    store_vec(work.target(k), sum);
  }
}
