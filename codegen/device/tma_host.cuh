#pragma once
#include "machine.cuh"
#include "tensor_map_abi.h"

// TMA, emulated: a tile comes when a thread waits for its mbarrier, until then its place holds NaN patterns;
// a store happens when it is waited for.
struct TensorMap : fusion_emulation::TensorMap {};
#define GRID_CONSTANT

DEVICE u8 *aligned_shared(u32) { return dynamic_shared(); }

DEVICE void mbarrier_init(u64 *barrier, u32 arrivals) {
  machine->initBarrier(emulated_thread, barrier, arrivals);
}
DEVICE void fence_mbarrier_init() { machine->publishBarriers(emulated_thread); }
DEVICE void mbarrier_arrive(u64 *barrier) { machine->arriveAtBarrier(emulated_thread, barrier, 0); }
DEVICE void mbarrier_arrive_expect(u64 *barrier, u32 bytes) {
  machine->arriveAtBarrier(emulated_thread, barrier, bytes);
}
DEVICE void mbarrier_arrive_after_copies(u64 *barrier) {
  cp_async_commit();
  cp_async_wait<0>();
  fence_proxy_async();
  mbarrier_arrive(barrier);
}
DEVICE void mbarrier_wait(u64 *barrier, u32 parity) {
  machine->awaitBarrier(emulated_thread, barrier, parity);
}

DEVICE void tma_prefetch_map(const TensorMap &) {}

template <class... Coordinates>
DEVICE void tma_load_tile(void *to, const TensorMap &map, u64 *barrier, Coordinates... coordinates) {
  const i32 place[] = {(i32)coordinates...};
  machine->loadTile(emulated_thread, to, &map, barrier, place, sizeof...(coordinates));
}
template <class... Coordinates>
DEVICE void tma_load_tile_once(void *to, const TensorMap &map, u64 *barrier, Coordinates... coordinates) {
  tma_load_tile(to, map, barrier, coordinates...);
}
DEVICE void bulk_load_once(void *to, const void *from, u32 bytes, u64 *barrier) {
  TensorMap row = {};
  row.base = static_cast<u8 *>(const_cast<void *>(from));
  row.shape[0] = bytes;
  row.box[0] = (unsigned short)bytes;
  row.elementStrides[0] = row.rank = row.elementBytes = 1;
  row.strides[0] = 1;
  tma_load_tile(to, row, barrier, 0);
}
template <class... Coordinates>
DEVICE void tma_store_tile(const TensorMap &map, const void *from, Coordinates... coordinates) {
  const i32 place[] = {(i32)coordinates...};
  machine->storeTile(emulated_thread, &map, from, place, sizeof...(coordinates));
}
DEVICE void tma_store_commit() { machine->commitStores(emulated_thread); }
template <int N> DEVICE void tma_store_wait() { machine->awaitStores(emulated_thread, N); }
