#pragma once
// Matrix products of the fifth generation of tensor cores (tcgen05, sm_100a): one thread asks for them, the
// operands stay in shared memory and the sums in tensor memory, 128 lanes of 512 columns of 32 bits.
//
// What orders them (PTX ISA 9.0, 9.7.16.6): products of one thread to the same sums follow each other;
// others who read the sums, or overwrite operands, wait for an mbarrier that a commit behind the products
// names. Loads of sums end at tcgen05_wait_loads(). Between threads tcgen05_fence_before_sync() goes before
// what tells the other thread, and tcgen05_fence_after_sync() after its wait.

#include "proxy.cuh"
#include "tma.cuh"

/// The field of an address, or of a distance, in a descriptor (9.7.16.4.1, matrix-descriptor-encode).
DEVICE u64 tcgen05_field(u32 bytes) { return (u64)((bytes & 0x3ffffu) >> 4); }

/// Describes a tile in shared memory that TMA has swizzled by 128 bytes (9.7.16.4.1, table 40): bits 0 to 13
/// the address, 16 to 29 the leading and 32 to 45 the stride dimension's byte offset, 46 to 48 the constant
/// 1, 61 to 63 the swizzle, 2 for 128 bytes. A tile lies in panels of rows of 128 bytes, at multiples of
/// 1024. Where it is K-major the stride is that of 8 rows, 1024, and the leading one is not used, while `at`
/// may be 32 bytes further on along k. Else rows count along k, eight of them are 1024 bytes, too, and the
/// leading one is the distance of panels (9.7.16.3.1 to 9.7.16.3.3).
DEVICE u64 tcgen05_descriptor(u32 address, u32 panel_bytes) {
  return tcgen05_field(address) | tcgen05_field(panel_bytes) << 16 | tcgen05_field(1024) << 32 | 1ull << 46 |
         2ull << 61;
}

/// An operand's type in the instruction's descriptor (9.7.16.4.2, table 42).
template <class T>
constexpr u32 tcgen05_type = 0; // f16, f8e4m3, u8
template <>
constexpr u32 tcgen05_type<bf16> = 1;
template <>
constexpr u32 tcgen05_type<f8e5m2> = 1;
template <>
constexpr u32 tcgen05_type<i8> = 1;
/// Describes products of 128 rows of A, K-major, and n columns of B (9.7.16.4.2, table 42): bits 4 and 5 the
/// type of the sums, 1 f32, 2 i32; 7 to 9 that of A, 10 to 12 of B; 16 that B is not K-major; 17 to 22 n / 8,
/// 24 to 28 m / 16.
template <class A, class B>
DEVICE constexpr u32 tcgen05_instruction(int n, bool k_major) {
  constexpr bool integers = sizeof(A) == 1 && !is_narrow_float<A>;
  return (integers ? 2u : 1u) << 4 | tcgen05_type<A> << 7 | tcgen05_type<B> << 10 |
         (k_major ? 0u : 1u) << 16 | (u32)n / 8u << 17 | 128u / 16u << 24;
}

#ifdef FUSION_EMULATED
#include "tcgen05_host.cuh"
#else
#include "tcgen05_cuda.cuh"
#endif
