#pragma once
// The epilogue of a matmul in front of a sum over ranks: it stores what the matmul's own does, and sends it
// to all ranks, this one too. The kernel behind it only waits: all_reduce_row.cuh, where isSent. That one
// starts when this one has waited for all before it, so that the kernel must not launch it earlier
// (early_launch.cuh).

#include "exchange.cuh"
#include "gemm.cuh"

/// Of rows of `rowBytes` in a slot.
template <int Ranks>
struct RowSender {
  CollectiveContext<Ranks> context;
  i64 rowBytes;
  u64 slotBytes;
};
/// Stores as `Store` does, and sends.
template <int Ranks, class Store>
struct SendingStore {
  const Store &store;
  const RowSender<Ranks> &sender;
  i64 row, column;
  template <class T, int N>
  DEVICE void operator()(T *to, const Vec<T, N> &values) const {
    static_assert(N * sizeof(T) % 4 == 0, "packets are seen word by word");
    send_to_all_and_own(sender.context, (u64)(row * sender.rowBytes + column * (i64)sizeof(T)),
                        sender.slotBytes, values);
    store(to, values);
  }
};

template <int Ranks, class Epilogue>
struct SendingEpilogue {
  Epilogue epilogue;
  RowSender<Ranks> sender;
  /// After pdl_wait().
  DEVICE void begin() { find_round(sender.context); }
  template <int I>
  DEVICE auto operands(Matmul<I> which, i64 row, i64 column) const {
    return epilogue.operands(which, row, column);
  }
  template <int I, class Operands, class S, int Width, class Store>
  DEVICE void operator()(Matmul<I> which, i64 row, i64 column, const Operands &operands,
                         const Vec<S, Width> (&sums)[1], const Store &store) const {
    epilogue(which, row, column, operands, sums, SendingStore<Ranks, Store>{store, sender, row, column});
  }
};
template <int Ranks, class Epilogue>
DEVICE SendingEpilogue<Ranks, Epilogue> sending_epilogue(const Epilogue &epilogue, Exchange *exchange,
                                                         i64 rowBytes, i64 slotBytes) {
  return SendingEpilogue<Ranks, Epilogue>{
      epilogue, RowSender<Ranks>{collective_context<Ranks>(exchange), rowBytes, (u64)slotBytes}};
}
template <int Ranks, class Epilogue>
DEVICE void begin_epilogue(SendingEpilogue<Ranks, Epilogue> &epilogue) {
  epilogue.begin();
}
