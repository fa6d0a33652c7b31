#pragma once

#include "machine.cuh"

// By all lanes of a warp: so many columns, a power of two from 32 on, whose address goes to `to` in shared
// memory. Another block's may have to be freed first. All that was allocated is freed before the block ends.
DEVICE void tcgen05_allocate(u32 *to, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(to)),
               "r"(columns)
               : "memory");
}
DEVICE void tcgen05_free(u32 address, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
}
// The block allocates no more, so that others may.
DEVICE void tcgen05_relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

DEVICE u32 tcgen05_address(const void *shared) { return shared_address(shared); }

// One lane of a warp, all of whose lanes ask; the compiler sees that it is one.
DEVICE bool elect_one() {
  u32 elected;
  asm volatile("{\n"
               ".reg .pred chosen;\n"
               "elect.sync _|chosen, 0xffffffff;\n"
               "selp.u32 %0, 1, 0, chosen;\n"
               "}"
               : "=r"(elected));
  return elected != 0;
}

// By one thread: d (+)= A B of 32 bytes along k.
#define FUSION_TCGEN05(kind)                                                                                 \
  asm volatile("{\n"                                                                                         \
               ".reg .pred adds;\n"                                                                          \
               "setp.ne.b32 adds, %4, 0;\n"                                                                  \
               "tcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, adds;\n"                           \
               "}" ::"r"(d),                                                                                 \
               "l"(a), "l"(b), "r"(instruction), "r"((u32)add)                                               \
               : "memory")
template <class T>
DEVICE void tcgen05_multiply(u32 d, u64 a, u64 b, u32 instruction, bool add) {
  if constexpr (sizeof(T) == 2)
    FUSION_TCGEN05("f16");
  else if constexpr (is_narrow_float<T>)
    FUSION_TCGEN05("f8f6f4");
  else
    FUSION_TCGEN05("i8");
}
#undef FUSION_TCGEN05
// By the thread that has asked for the products: when they have ended one arrives at the mbarrier.
DEVICE void tcgen05_commit(u64 *barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}
DEVICE void tcgen05_fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DEVICE void tcgen05_fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// By all lanes of a warp: 16 rows of 32 columns, in the layout of the sums of mma.m16n8k16 (tcgen05.ld,
// .16x256b). Warp w of four reads lanes 32 w to 32 w + 31.
DEVICE void tcgen05_load(u32 (&to)[4][4], u32 address) {
  asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
               "%12, %13, %14, %15}, [%16];"
               : "=r"(to[0][0]), "=r"(to[0][1]), "=r"(to[0][2]), "=r"(to[0][3]), "=r"(to[1][0]),
                 "=r"(to[1][1]), "=r"(to[1][2]), "=r"(to[1][3]), "=r"(to[2][0]), "=r"(to[2][1]),
                 "=r"(to[2][2]), "=r"(to[2][3]), "=r"(to[3][0]), "=r"(to[3][1]), "=r"(to[3][2]),
                 "=r"(to[3][3])
               : "r"(address)
               : "memory");
}
DEVICE void tcgen05_wait_loads() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
