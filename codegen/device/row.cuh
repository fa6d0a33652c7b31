#pragma once

#include "early_launch.cuh"
#include "moments.cuh"
#include "row_accumulators.cuh"
#include "unaligned.cuh"
#include "vectors.cuh"

// Kernels over rows: a few lanes, a block or a cluster of blocks share a row, take vectors of neighbouring
// columns, and pass over the row as often as there are reductions that need each other. What a thread reads
// or computes in one pass it keeps in registers for the next ones, where the row is short enough; else each
// pass reads the row again.
//
// row_kernel() is given the body, which works on one vector of columns at a time:
//
//   struct Body {
//     struct Row { ... };  // what the thread has once for its row: pointers, accumulators, scalars
//     struct Live { ... }; // arrays by chunk: vectors that live in registers between passes
//
//     i64 rows() const;
//     i64 width() const;                          // columns; called where a thread does not hold its row
//     Row row(i64 index) const;                   // with its pointers set
//     i64 misalignment(const Row &) const;        // if shifted: elements from an aligned address to the row
//
//     void choose(When, Row &) const;                                  // finds rows of tables
//     void request(When, const RowChunk &, const Row &, Live &) const; // loads before the first pass
//     void scalars(When, Row &) const;                                 // loads of one value per row
//     void prefetch(When, const Row &) const;                          // has the L2 fetch this row
//
//     void pass(Pass<P>, const RowChunk &, Row &, Live &) const;       // accumulates, keeps and stores
//     void finish(Pass<P>, const Thread &, Row &, Live &) const;       // totals, and what follows from them
//     void store_row(Row &) const;                                     // by one thread: one value per row
//   };
//
// Any of choose, request, scalars, prefetch, finish and store_row may be missing.

struct RowConfig {
  static constexpr int threads = 128;      // of a block
  static constexpr int threadsPerRow = 32; // a power of two up to 32, or all of the block
  static constexpr int vector = 1;         // neighbouring columns that a thread takes at once
  static constexpr int chunks = 0; // vectors of its row that a thread holds in registers; 0: it holds none
  static constexpr i64 width = 0;  // columns of a row; 0: known at run time, for rows that are not held
  static constexpr int passes = 1;
  static constexpr int cluster = 1; // blocks that share a row; `chunks` is then for one block doing it all
  static constexpr bool shifted = false; // vectors begin where memory is aligned, not where the row begins
  static constexpr i64 prefetchDistance = 0; // rows between the one that is read and the one prefetched
  static constexpr bool loadsFirst = false; // all loads are issued before the next kernel may start
  static constexpr bool launches = true;    // lets the next kernel start
  static constexpr int earlyBlocks = 0;     // and early where the grid has no more blocks; 0: always
  static constexpr bool waitsLast = false;  // for kernels before it only when all is done: its caller waits
};

// When a load is issued: before pdl_wait(), for constants and what the kernel just before does not write, or
// after it.
struct BeforeWait {};
struct AfterWait {};
template <int P>
struct Pass {};

// A vector of the thread's columns.
struct RowChunk {
  int k;       // which of those that the thread holds; 0 if it holds none
  i64 column;  // the first column
  bool inside; // whether it belongs to the row; threads beyond the end repeat its first vector
  bool writes; // whether the thread stores it: inside, and of a row of the tensor
};

// A thread and the row that it works on.
template <class Config>
struct RowThread {
  static constexpr int blocks = cluster_blocks<Config::cluster>; // that work on a row
  static constexpr int chunks = Config::chunks / blocks;
  static constexpr bool held = Config::chunks > 0, wholeBlock = Config::threadsPerRow > 32;
  static constexpr int rowsPerBlock = Config::threads / Config::threadsPerRow;
  static constexpr int lanes = wholeBlock ? 32 : Config::threadsPerRow;
  static constexpr i64 stride =
      (i64)Config::vector * Config::threadsPerRow * blocks; // from one vector to the next
  static constexpr bool guarded = held && !Config::shifted && chunks * stride != Config::width;
  static constexpr int elements = chunks * Config::vector;
  static_assert(Config::cluster == 1 || (wholeBlock && !guarded && !Config::shifted),
                "a cluster shares its row evenly");

  i64 thread, row;    // the thread's place among those of its row
  bool active = true; // false: beyond the last row, which the thread repeats
  i64 last = 0;       // if guarded: the column of the last vector, or 0 if that is beyond the end
  bool inside = true; // and whether it is not
  i64 shift = 0;      // if shifted: elements of the first vector that lie before the row

  DEVICE RowThread(i64 block, i64 rows) {
    if constexpr (wholeBlock) {
      thread = Config::cluster > 1 ? cluster_rank() * (u32)Config::threads + thread_x() : thread_x();
      row = block;
    } else {
      thread = thread_x() % (u32)Config::threadsPerRow;
      const i64 place = block * rowsPerBlock + thread_x() / (u32)Config::threadsPerRow;
      active = place < rows;
      row = active ? place : rows - 1;
    }
    if constexpr (guarded) {
      const i64 end = (chunks - 1) * stride + thread * Config::vector;
      inside = end < Config::width;
      last = inside ? end : 0;
    }
  }
  DEVICE bool is_first() const { return active && thread == 0; }
  DEVICE i64 column(int k) const {
    const i64 own = k * stride + thread * Config::vector - shift;
    return guarded && k == chunks - 1 ? last : own;
  }
  DEVICE RowChunk chunk(int k) const {
    const bool in = !guarded || k < chunks - 1 || inside;
    return RowChunk{k, column(k), in, active && in};
  }

  // Every thread of the row gets the result. Site: another for each call, as for block_sum.
  template <int Site, class Op, class T>
  DEVICE T total(const Accumulator<Op, T> &mine) const {
    if constexpr (same_type<T, f32> && !same_type<Op, Product>) {
      if constexpr (Config::cluster > 1)
        return Op::template cluster<Config::threadsPerRow, Site, Config::cluster>(mine.value);
      else if constexpr (wholeBlock)
        return Op::template block<Config::threadsPerRow, Site>(mine.value);
      else
        return Op::template lanes<Config::threadsPerRow>(mine.value);
    } else {
      static_assert(!wholeBlock, "a row of one warp");
      T value = mine.value;
#pragma unroll
      for (int mask = Config::threadsPerRow / 2; mask > 0; mask /= 2) {
        const T other = shuffle_xor(value, mask);
        value = Op::combine(value, other);
      }
      return value;
    }
  }
  // The same over groups of so many columns, which lie in neighbouring lanes.
  template <int Group, class Op, int Chunks>
  DEVICE void finish_groups(Accumulator<Op, f32> (&groups)[Chunks]) const {
#pragma unroll
    for (int k = 0; k < Chunks; ++k)
      groups[k].value = Op::template lanes<Group / Config::vector>(groups[k].value);
  }

  // The mean of a row of `width`.
  template <int Site, bool Wide>
  DEVICE f32 total(const Accumulator<Mean<Wide>, f32> &mine, f32 width) const {
    if constexpr (held && Config::cluster == 1) {
      return total<Site>(moments(mine)).mean;
    } else { // the mean of the distances from a mean that was rounded
      const f32 own = mine.mean(), count = (f32)mine.count;
      const f32 near = total<Site>(Accumulator<Sum, f32>{count * own}) / width;
      return near + total<Site + 64>(Accumulator<Sum, f32>{count * (own - near)}) / width;
    }
  }
  // From the thread's elements to moments about a mean: of its own elements where all threads have as many,
  // else of those that the row's threads in its warp have, of which the first has the most.
  template <bool Wide>
  DEVICE RowMoments moments(const Accumulator<Mean<Wide>, f32> &mine) const {
    RowMoments result;
    if constexpr (!guarded && !Config::shifted) {
      result.mean = mine.template mean_of<elements>();
    } else {
      const f32 own = mine.mean(), count = (f32)mine.count;
      const f32 first = shuffle_index(own, (int)(lane_id() / (u32)lanes * (u32)lanes));
      const f32 apart = lanes_sum<lanes>(count * (own - first));
      result.count = lanes_sum<lanes>(count);
      result.mean = result.count > 0.f ? first + apart / result.count : 0.f;
    }
    return result;
  }
  template <int Site>
  DEVICE Moments total(const RowMoments &mine) const {
    constexpr bool even = !guarded && !Config::shifted;
    Moments warp;
    if constexpr (even)
      warp = lanes_moments<lanes, elements>(mine.mean, mine.squares);
    else
      warp = Moments{mine.mean, lanes_sum<lanes>(mine.squares)};
    if constexpr (wholeBlock)
      return block_moments<Config::threadsPerRow, Site, even>(even ? (f32)(lanes * elements) : mine.count,
                                                              warp, (f32)(1.0 / (f64)Config::width));
    else
      return warp;
  }
};

// Which of the functions that may be missing a body has.
template <class T>
DEVICE T &any_of_type();
template <class Body, class When, class = void>
constexpr bool has_choose = false;
template <class Body, class When>
constexpr bool has_choose<
    Body, When, decltype(any_of_type<const Body>().choose(When(), any_of_type<typename Body::Row>()))> =
    true;
template <class Body, class When, class = void>
constexpr bool has_scalars = false;
template <class Body, class When>
constexpr bool has_scalars<
    Body, When, decltype(any_of_type<const Body>().scalars(When(), any_of_type<typename Body::Row>()))> =
    true;
template <class Body, class When, class = void>
constexpr bool has_requests = false;
template <class Body, class When>
constexpr bool
    has_requests<Body, When,
                 decltype(any_of_type<const Body>().request(When(), any_of_type<const RowChunk>(),
                                                            any_of_type<const typename Body::Row>(),
                                                            any_of_type<typename Body::Live>()))> = true;
template <class Body, class When, class = void>
constexpr bool has_prefetch = false;
template <class Body, class When>
constexpr bool has_prefetch<Body, When,
                            decltype(any_of_type<const Body>().prefetch(
                                When(), any_of_type<const typename Body::Row>()))> = true;
template <class Body, class Thread, class P, class = void>
constexpr bool has_finish = false;
template <class Body, class Thread, class P>
constexpr bool has_finish<Body, Thread, P,
                          decltype(any_of_type<const Body>().finish(P(), any_of_type<const Thread>(),
                                                                    any_of_type<typename Body::Row>(),
                                                                    any_of_type<typename Body::Live>()))> =
    true;
template <class Body, class = void>
constexpr bool has_store_row = false;
template <class Body>
constexpr bool
    has_store_row<Body, decltype(any_of_type<const Body>().store_row(any_of_type<typename Body::Row>()))> =
        true;

// What is requested before the passes: first the row's own loads, then rows that the L2 fetches as wholes.
template <class When, class Config, class Body>
DEVICE void load_row(const Body &body, const RowThread<Config> &thread, typename Body::Row &row,
                     typename Body::Live &live) {
  if constexpr (has_choose<Body, When>)
    body.choose(When(), row);
  if constexpr (has_requests<Body, When>)
#pragma unroll
    for (int k = 0; k < RowThread<Config>::chunks; ++k)
      body.request(When(), thread.chunk(k), row, live);
  if constexpr (has_scalars<Body, When>)
    body.scalars(When(), row);
}
template <class When, class Config, class Body>
DEVICE void prefetch_row(const Body &body, const RowThread<Config> &thread) {
  if constexpr (has_prefetch<Body, When>)
    if (thread.thread == 0 && thread.row + Config::prefetchDistance < body.rows())
      body.prefetch(When(), body.row(thread.row + Config::prefetchDistance));
}

template <int P, class Config, class Body>
DEVICE void row_passes(const Body &body, const RowThread<Config> &thread, typename Body::Row &row,
                       typename Body::Live &live) {
  if constexpr (P < Config::passes) {
    if constexpr (RowThread<Config>::held) {
#pragma unroll
      for (int k = 0; k < RowThread<Config>::chunks; ++k)
        body.pass(Pass<P>(), thread.chunk(k), row, live);
    } else {
      const i64 width = body.width();
      for (i64 column = thread.thread * Config::vector - thread.shift; column < width;
           column += RowThread<Config>::stride)
        body.pass(Pass<P>(), RowChunk{0, column, true, thread.active}, row, live);
    }
    if constexpr (has_finish<Body, RowThread<Config>, Pass<P>>)
      body.finish(Pass<P>(), thread, row, live);
    row_passes<P + 1, Config>(body, thread, row, live);
  } else if constexpr (has_store_row<Body>) {
    if (thread.is_first())
      body.store_row(row);
  }
}

// All that comes before the passes. `runBefore` and `runAfter` run before and after pdl_wait().
template <class Config, class Body, class RunBefore, class RunAfter>
DEVICE void begin_row(const Body &body, const RowThread<Config> &thread, typename Body::Row &row,
                      typename Body::Live &live, const RunBefore &runBefore, const RunAfter &runAfter) {
  const bool early = Config::earlyBlocks == 0 || grid_dim_x() <= u32(Config::earlyBlocks);
  if constexpr (Config::launches)
    launch_before_wait<Config>(early);
  load_row<BeforeWait, Config>(body, thread, row, live);
  prefetch_row<BeforeWait, Config>(body, thread);
  runBefore();
  if constexpr (!Config::waitsLast)
    pdl_wait();
  runAfter();
  // No load moves after the launch: left alone, the assembler spares registers and waits for memory twice.
  // Where a second pass keeps registers busy, the prefetch does not either: its addresses would take two
  // more. Of a single pass it is measured to be faster after the launch.
  constexpr bool prefetchesFirst = Config::loadsFirst && Config::passes > 1;
  if constexpr (Config::loadsFirst)
    load_row<AfterWait, Config>(body, thread, row, live);
  if constexpr (prefetchesFirst)
    prefetch_row<AfterWait, Config>(body, thread);
  if constexpr (Config::launches)
    launch_after_wait<Config>(early);
  if constexpr (!Config::loadsFirst)
    load_row<AfterWait, Config>(body, thread, row, live);
  if constexpr (!prefetchesFirst)
    prefetch_row<AfterWait, Config>(body, thread);
}

// `block`: which of the blocks that work on these rows this is.
template <class Config, class Body>
DEVICE void row_kernel(const Body &body, i64 block = block_x()) {
  RowThread<Config> thread(block, body.rows());
  typename Body::Row row = body.row(thread.row);
  typename Body::Live live;
  if constexpr (Config::shifted)
    thread.shift = body.misalignment(row);
  begin_row<Config>(
      body, thread, row, live, [] {}, [] {});
  row_passes<0, Config>(body, thread, row, live);
}
