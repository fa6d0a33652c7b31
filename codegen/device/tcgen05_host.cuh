#pragma once

#include "machine.cuh"

// tcgen05, emulated: the emulator has the tensor memory, decodes the descriptors, lets products and loads end
// when somebody waits for them, and fails where a wait, a fence, a commit or a free is missing.

/// The emulator takes lanes together; all bring the same.
DEVICE void tcgen05_together(u32 same) {
  const u8 *slots = warp_operation(fusion_emulation::WarpOperation::TensorMemory, &same, 4, nullptr);
  u32 first;
  copy_bytes(&first, slots, 4);
  if (first != same)
    machine->fail(emulated_thread, "lanes of a warp name different places of tensor memory");
}
DEVICE void tcgen05_allocate(u32 *to, u32 columns) {
  tcgen05_together(columns);
  if (lane_id() == 0)
    *to = machine->allocateTensor(emulated_thread, columns);
  tcgen05_together(columns);
}
DEVICE void tcgen05_free(u32 address, u32 columns) {
  tcgen05_together(address);
  if (lane_id() == 0)
    machine->freeTensor(emulated_thread, address, columns);
  tcgen05_together(columns);
}
DEVICE void tcgen05_relinquish() {
  tcgen05_together(0);
  if (lane_id() == 0)
    machine->relinquishTensor(emulated_thread);
}

/// The place in the block's dynamic shared memory.
DEVICE u32 tcgen05_address(const void *shared) {
  return (u32)(reinterpret_cast<const u8 *>(shared) - dynamic_shared());
}

DEVICE bool elect_one() {
  warp_barrier();
  return lane_id() == 0;
}

template <class T>
DEVICE void tcgen05_multiply(u32 d, u64 a, u64 b, u32 instruction, bool add) {
  using fusion_emulation::TensorKind;
  const TensorKind kind = sizeof(T) == 2       ? TensorKind::F16
                          : is_narrow_float<T> ? TensorKind::F8
                                               : TensorKind::I8;
  const fusion_emulation::TensorProduct product{a, b, d, instruction, kind, add};
  machine->multiplyTensor(emulated_thread, &product);
}
DEVICE void tcgen05_commit(u64 *barrier) { machine->commitProducts(emulated_thread, barrier); }
DEVICE void tcgen05_fence_before_sync() { machine->fenceTensor(emulated_thread, false); }
DEVICE void tcgen05_fence_after_sync() { machine->fenceTensor(emulated_thread, true); }

DEVICE void tcgen05_load(u32 (&to)[4][4], u32 address) {
  tcgen05_together(address);
  machine->loadTensor(emulated_thread, address, 4, &to[0][0]);
}
DEVICE void tcgen05_wait_loads() {
  tcgen05_together(0);
  machine->awaitTensorLoads(emulated_thread);
}
