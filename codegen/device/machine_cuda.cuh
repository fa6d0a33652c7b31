#pragma once

#include "features.cuh"
#include "memory_cuda.cuh"
#include "narrow_floats.cuh"

// The machine, as CUDA for sm_80 and later.

// The compiler weighs a thread's registers against blocks that live on a multiprocessor together. Where it
// spills for the sake of more blocks, the kernel is compiled again with FUSION_ALL_REGISTERS
// (Nvrtc::compile).
#ifdef FUSION_ALL_REGISTERS
#define KERNEL(maxThreads) extern "C" __global__ void __launch_bounds__(maxThreads, 1)
#else
#define KERNEL(maxThreads) extern "C" __global__ void __launch_bounds__(maxThreads)
#endif
// As many registers as let `blocks` blocks live on a multiprocessor: where the compiler, left to itself,
// saves registers for more blocks and spills.
#define KERNEL_RESIDENT(maxThreads, blocks) extern "C" __global__ void __launch_bounds__(maxThreads, blocks)
#define CONSTANT __constant__ const
#define SHARED(T, name, count) alignas(16) __shared__ T name[count]

// A divisor: devices divide by zero, too, and nobody uses the quotient.
template <class T> DEVICE T nonzero(T divisor) { return divisor; }

// Indices.
DEVICE u32 thread_x() { return threadIdx.x; }
DEVICE u32 thread_y() { return threadIdx.y; }
DEVICE u32 thread_z() { return threadIdx.z; }
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE u32 block_dim_x() { return blockDim.x; }
DEVICE u32 block_dim_y() { return blockDim.y; }
DEVICE u32 block_dim_z() { return blockDim.z; }
DEVICE u32 grid_dim_x() { return gridDim.x; }
DEVICE u32 grid_dim_y() { return gridDim.y; }
DEVICE u32 grid_dim_z() { return gridDim.z; }
DEVICE u32 lane_id() {
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
// Warp number inside the block.
DEVICE u32 warp_id() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32u;
}

// Conversions of bits.
DEVICE f32 f32_of_f16(u16 bits) {
  f32 value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
// Two at once, one of them zero: the conversion of a single number runs at a quarter of the rate.
DEVICE u16 f16_of_f32(f32 value) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.f), "f"(value));
  return (u16)pair;
}
DEVICE f32 f32_of_bf16(u16 bits) { return soft_f32_of_bf16(bits); }
DEVICE u16 bf16_of_f32(f32 value) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.f), "f"(value));
  return (u16)pair;
}
#if HAS_F8_CONVERSIONS
DEVICE f32 f32_of_e4m3(u8 bits) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)bits));
  return f32_of_f16((u16)pair);
}
DEVICE f32 f32_of_e5m2(u8 bits) { return f32_of_f16((u16)((u32)bits << 8)); }
DEVICE u8 e4m3_of_f32(f32 value) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(value));
  return (u8)pair;
}
DEVICE u8 e5m2_of_f32(f32 value) {
  u16 pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(value));
  return (u8)pair;
}
#else
DEVICE f32 f32_of_e4m3(u8 bits) { return soft_f32_of_e4m3(bits); }
DEVICE f32 f32_of_e5m2(u8 bits) { return f32_of_f16((u16)((u32)bits << 8)); }
DEVICE u8 e4m3_of_f32(f32 value) { return soft_e4m3_of_f32(value); }
DEVICE u8 e5m2_of_f32(f32 value) { return soft_e5m2_of_f32(value); }
#endif

#define FUSION_PAIR(T, Bits, constraint, instruction)                                                       \
  template <> struct float_pair<T> {                                                                         \
    static constexpr bool converts = true;                                                                   \
    using bits = Bits;                                                                                       \
    static DEVICE Bits from_f32(f32 low, f32 high) {                                                         \
      Bits pair;                                                                                             \
      asm(instruction " %0, %1, %2;" : constraint(pair) : "f"(high), "f"(low));                              \
      return pair;                                                                                           \
    }                                                                                                        \
  };
FUSION_PAIR(f16, u32, "=r", "cvt.rn.f16x2.f32")
FUSION_PAIR(bf16, u32, "=r", "cvt.rn.bf16x2.f32")
#if HAS_F8_CONVERSIONS
FUSION_PAIR(f8e4m3, u16, "=h", "cvt.rn.satfinite.e4m3x2.f32")
FUSION_PAIR(f8e5m2, u16, "=h", "cvt.rn.satfinite.e5m2x2.f32")
#endif
#undef FUSION_PAIR

// Rounded to bf16: in the upper half of a register it is its own f32.
DEVICE f32 round_to_bf16(f32 value) { return f32_of_bits(float_pair<bf16>::from_f32(0.f, value)); }

// Arithmetic on both halves of a register, each rounded once. Of the products and sums that bf16 has on sm_80
// only the fma, these are made of it.
#define FUSION_PAIRS(T, instruction, operands)                                                               \
  DEVICE u32 T(u32 a, u32 b) {                                                                               \
    u32 result;                                                                                              \
    asm(instruction " %0, " operands ";"                                                                     \
        : "=r"(result)                                                                                       \
        : "r"(a), "r"(b), "r"(0x3f803f80u), "r"(0xbf80bf80u), "r"(0x80008000u));                             \
    return result;                                                                                           \
  }
FUSION_PAIRS(f16_pair_mul, "mul.rn.f16x2", "%1, %2")
FUSION_PAIRS(f16_pair_add, "add.rn.f16x2", "%1, %2")
FUSION_PAIRS(f16_pair_sub, "sub.rn.f16x2", "%1, %2")
FUSION_PAIRS(bf16_pair_mul, "fma.rn.bf16x2", "%1, %2, %5") // - 0
FUSION_PAIRS(bf16_pair_add, "fma.rn.bf16x2", "%1, %3, %2") // 1 * a + b
FUSION_PAIRS(bf16_pair_sub, "fma.rn.bf16x2", "%2, %4, %1") // -1 * b + a
#undef FUSION_PAIRS

DEVICE u8 *dynamic_shared() {
  extern __shared__ uint4 dynamic_shared_memory[];
  return reinterpret_cast<u8 *>(dynamic_shared_memory);
}

// Waiting and exchanging. Every thread of the block, or every lane of the warp, takes part.
DEVICE void barrier() { __syncthreads(); }
DEVICE void warp_barrier() { __syncwarp(); }
#define FUSION_SHUFFLES(T)                                                                                   \
  DEVICE T shuffle_xor(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }              \
  DEVICE T shuffle_down(T value, u32 delta) { return __shfl_down_sync(0xffffffffu, value, delta); }          \
  DEVICE T shuffle_up(T value, u32 delta) { return __shfl_up_sync(0xffffffffu, value, delta); }              \
  DEVICE T shuffle_index(T value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
FUSION_SHUFFLES(f32)
FUSION_SHUFFLES(f64)
FUSION_SHUFFLES(i32)
FUSION_SHUFFLES(u32)
FUSION_SHUFFLES(i64)
FUSION_SHUFFLES(u64)
#undef FUSION_SHUFFLES
DEVICE bool warp_any(bool condition) { return __any_sync(0xffffffffu, condition); }
DEVICE bool warp_all(bool condition) { return __all_sync(0xffffffffu, condition); }
DEVICE int bit_count(u32 bits) { return __popc(bits); }
DEVICE int first_bit(u32 bits) { return __ffs((int)bits) - 1; } // -1: none
DEVICE u32 warp_largest(u32 value) { return __reduce_max_sync(0xffffffffu, value); }
DEVICE u32 warp_least(u32 value) { return __reduce_min_sync(0xffffffffu, value); }
DEVICE u32 warp_ballot(bool condition) { return __ballot_sync(0xffffffffu, condition); }

// Arithmetic that the language lacks.
DEVICE f32 sqrt_(f32 x) { return __fsqrt_rn(x); }
DEVICE f32 rsqrt_(f32 x) { return __frsqrt_rn(x); }
DEVICE f32 rsqrt_estimate(f32 x) {
  f32 estimate;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  return estimate;
}
DEVICE f32 exp_(f32 x) { return expf(x); }
DEVICE f32 exp2_(f32 x) { return exp2f(x); }
// To about 2 in the last place; results below the smallest normal number become 0.
DEVICE f32 exp2_near(f32 x) {
  f32 power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
DEVICE f32 reciprocal_near(f32 x) {
  f32 inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
DEVICE f32 log_(f32 x) { return logf(x); }
DEVICE f32 log1p_(f32 x) { return log1pf(x); }
DEVICE f32 sin_(f32 x) { return sinf(x); }
DEVICE f32 cos_(f32 x) { return cosf(x); }
DEVICE f32 tanh_(f32 x) { return tanhf(x); }
DEVICE f32 erf_(f32 x) { return erff(x); }
DEVICE f32 pow_(f32 x, f32 y) { return powf(x, y); }
DEVICE f32 fabs_(f32 x) { return fabsf(x); }
DEVICE f32 floor_(f32 x) { return floorf(x); }
DEVICE f32 ceil_(f32 x) { return ceilf(x); }
DEVICE f32 rint_(f32 x) { return rintf(x); }
DEVICE f32 fmod_(f32 x, f32 y) { return fmodf(x, y); }
DEVICE f32 fma_(f32 x, f32 y, f32 z) { return __fmaf_rn(x, y, z); }
DEVICE f32 max_nan(f32 a, f32 b) {
  f32 larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
DEVICE f32 min_nan(f32 a, f32 b) {
  f32 smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}
DEVICE f64 sqrt_(f64 x) { return sqrt(x); }
DEVICE f64 rsqrt_(f64 x) { return 1.0 / sqrt(x); }
DEVICE f64 exp_(f64 x) { return exp(x); }
DEVICE f64 exp2_(f64 x) { return exp2(x); }
DEVICE f64 log_(f64 x) { return log(x); }
DEVICE f64 log1p_(f64 x) { return log1p(x); }
DEVICE f64 sin_(f64 x) { return sin(x); }
DEVICE f64 cos_(f64 x) { return cos(x); }
DEVICE f64 tanh_(f64 x) { return tanh(x); }
DEVICE f64 erf_(f64 x) { return erf(x); }
DEVICE f64 pow_(f64 x, f64 y) { return pow(x, y); }
DEVICE f64 fabs_(f64 x) { return fabs(x); }
DEVICE f64 floor_(f64 x) { return floor(x); }
DEVICE f64 ceil_(f64 x) { return ceil(x); }
DEVICE f64 rint_(f64 x) { return rint(x); }
DEVICE f64 fmod_(f64 x, f64 y) { return fmod(x, y); }
DEVICE f64 fma_(f64 x, f64 y, f64 z) { return fma(x, y, z); }

// Programmatic dependent launch: wait before touching memory that an earlier kernel writes. Most kernels let
// the next one start once they have waited themselves: then all but the kernel just before have finished when
// it starts. After those that do so earlier (early_launch.cuh) the ones before them may run, too: see
// KernelContext::independent.
DEVICE void pdl_wait() {
#if HAS_PROGRAMMATIC_LAUNCH
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void pdl_launch_dependents() {
#if HAS_PROGRAMMATIC_LAUNCH
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The same pointer, which the compiler does not compute anew wherever it is used.
template <class T> DEVICE T *held_pointer(T *pointer) {
  asm("" : "+l"(pointer));
  return pointer;
}

// (value & mask) ^ flips, in one instruction.
DEVICE u32 masked_xor(u32 value, u32 mask, u32 flips) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(value), "r"(mask), "r"(flips));
  return result;
}
// The same value, likewise held.
DEVICE u32 held_value(u32 value) {
  asm("" : "+r"(value));
  return value;
}

DEVICE u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }
// A place in shared memory in 32 bits: what is added to it is one instruction, or none, and a loop of copies
// has fewer.
struct SharedPlace {
  u32 address;
  DEVICE SharedPlace operator+(i32 bytes) const { return {address + (u32)bytes}; }
};
DEVICE SharedPlace shared_place(const void *pointer) { return {shared_address(pointer)}; }
// Asynchronous copies of 16 bytes from global to shared memory: the first so many, then zeros; all or none;
// all.
DEVICE void cp_async_first(SharedPlace shared, const void *global, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared.address), "l"(global), "r"(bytes)
               : "memory");
}
DEVICE void cp_async_16(SharedPlace shared, const void *global, bool valid) {
  cp_async_first(shared, global, valid ? 16u : 0u);
}
DEVICE void cp_async_16(void *shared, const void *global, bool valid) {
  cp_async_16(shared_place(shared), global, valid);
}
DEVICE void cp_async_16(SharedPlace shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared.address), "l"(global) : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N committed groups of this thread are on their way.
template <int N> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Matrix fragments, in the layouts of PTX's ldmatrix and mma.m16n8k16.
DEVICE void ldmatrix_x4(u32 (&r)[4], const void *sharedRow) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(sharedRow))
               : "memory");
}
DEVICE void ldmatrix_x2(u32 (&r)[2], const void *sharedRow) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(sharedRow))
               : "memory");
}
DEVICE void ldmatrix_x4_trans(u32 (&r)[4], const void *sharedRow) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(sharedRow))
               : "memory");
}
DEVICE void ldmatrix_x2_trans(u32 (&r)[2], const void *sharedRow) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(sharedRow))
               : "memory");
}
// A matrix of 8 x 8 elements of 16 bits, of whose row l / 4 lane l holds the neighbours 2 (l % 4) (+1),
// transposed.
DEVICE u32 transpose_matrix(u32 pair) {
  u32 transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}
#define FUSION_MMA(T)                                                                                        \
  DEVICE void mma_m16n8k16(f32(&d)[4], const u32(&a)[4], const u32(&b)[2], T) {                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T ".f32 "                                  \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                        \
  }
FUSION_MMA(f16)
FUSION_MMA(bf16)
#undef FUSION_MMA

DEVICE f32 atomic_add(f32 *to, f32 value) { return atomicAdd(to, value); }
DEVICE u32 atomic_add(u32 *to, u32 value) { return atomicAdd(to, value); }
DEVICE void atomic_add(u64 *to, u64 value) { atomicAdd(to, value); }
DEVICE void atomic_max(u64 *to, u64 value) { atomicMax(to, value); }
DEVICE void fence_device() { __threadfence(); }
