#pragma once
#include "machine.cuh"

// A kernel's parameter: `const GRID_CONSTANT TensorMap map`.
struct alignas(64) TensorMap {
  u64 words[16];
};
#define GRID_CONSTANT __grid_constant__

// The block's dynamic shared memory from the first multiple of `alignment` bytes on: there must be so much
// more of it.
DEVICE u8 *aligned_shared(u32 alignment) {
  u8 *memory = dynamic_shared();
  return memory + (alignment - shared_address(memory) % alignment) % alignment;
}

// An mbarrier in shared memory completes a phase when `arrivals` threads have arrived and all bytes have come
// that they said to expect. Phases have parity 0, 1, 0, ...
DEVICE void mbarrier_init(u64 *barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
// By the thread that has initialised mbarriers, before a barrier of the block.
DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbarrier_arrive(u64 *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
DEVICE void mbarrier_arrive_expect(u64 *barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// Arrives when all copies that this thread has issued by cp_async_16() have come. No thread waits for that.
DEVICE void mbarrier_arrive_after_copies(u64 *barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Until the phase of this parity has completed.
DEVICE void mbarrier_wait(u64 *barrier, u32 parity) {
  u32 done;
  do
    asm volatile("{\n"
                 ".reg .pred completed;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 completed, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, completed;\n"
                 "}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  while (!done);
}

DEVICE void tma_prefetch_map(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The tile at these coordinates, as large as the map's box, all of whose bytes count for the mbarrier.
#define FUSION_TMA_LOAD "shared::cluster.global.tile.mbarrier::complete_tx::bytes"
DEVICE void tma_load_tile(void *to, const TensorMap &map, u64 *barrier, i32 c0) {
  asm volatile("cp.async.bulk.tensor.1d." FUSION_TMA_LOAD
               " [%0], [%1, {%3}], [%2];" ::"r"(shared_address(to)),
               "l"(&map), "r"(shared_address(barrier)), "r"(c0)
               : "memory");
}
DEVICE void tma_load_tile(void *to, const TensorMap &map, u64 *barrier, i32 c0, i32 c1) {
  asm volatile("cp.async.bulk.tensor.2d." FUSION_TMA_LOAD
               " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
               "l"(&map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
               : "memory");
}
DEVICE void tma_load_tile(void *to, const TensorMap &map, u64 *barrier, i32 c0, i32 c1, i32 c2) {
  asm volatile("cp.async.bulk.tensor.3d." FUSION_TMA_LOAD
               " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
               "l"(&map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
DEVICE void tma_load_tile(void *to, const TensorMap &map, u64 *barrier, i32 c0, i32 c1, i32 c2, i32 c3) {
  asm volatile("cp.async.bulk.tensor.4d." FUSION_TMA_LOAD
               " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
               "l"(&map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
constexpr u64 evict_first = 0x12f0000000000000ull; // as createpolicy makes it
// The same for memory that is not read again: the L2 evicts it first.
DEVICE void tma_load_tile_once(void *to, const TensorMap &map, u64 *barrier, i32 c0, i32 c1) {
  asm volatile("cp.async.bulk.tensor.2d." FUSION_TMA_LOAD
               ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
               "l"(&map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "l"(evict_first)
               : "memory");
}
// Neighbouring bytes, a multiple of 16, from and to multiples of 16; also memory that is not read again.
DEVICE void bulk_load_once(void *to, const void *from, u32 bytes, u64 *barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
               " [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(evict_first)
               : "memory");
}
#undef FUSION_TMA_LOAD

// What generic writes have put there comes after fence_proxy_async() by the writers, and a barrier.
DEVICE void tma_store_tile(const TensorMap &map, const void *from, i32 c0, i32 c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(c0), "r"(c1)
               : "memory");
}
DEVICE void tma_store_tile(const TensorMap &map, const void *from, i32 c0, i32 c1, i32 c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most N groups of this thread still read shared memory. Before a thread ends none may.
template <int N>
DEVICE void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
