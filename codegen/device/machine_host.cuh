#pragma once

#include "emulation_abi.h"
#include "narrow_floats.cuh"

// The machine, emulated: threads are fibers of the emulator, which gives the functions in `machine`.

// A frame must fit the stack of a fiber; the limit is a flag of the compiler's command line, too.
#if defined(__clang__)
#pragma clang diagnostic error "-Wframe-larger-than"
#else
#pragma GCC diagnostic error "-Wframe-larger-than=49152"
#endif

#define KERNEL(maxThreads) static void
#define KERNEL_RESIDENT(maxThreads, blocks) static void
#define CONSTANT static const
#define SHARED(T, name, count)                                                                               \
  static char name##_key;                                                                                    \
  T(&name)[count] = *reinterpret_cast<T(*)[count]>(emulated_shared_array(&name##_key, sizeof(T) * (count)))
#define __restrict__ __restrict

static thread_local fusion_emulation::Thread *emulated_thread;
static const fusion_emulation::Machine *machine;
// Both once per loaded library: the emulator's functions, and where the calling OS thread finds its fiber.
extern "C" void fusion_emulated_attach(const fusion_emulation::Machine *with) { machine = with; }
extern "C" fusion_emulation::Thread **fusion_emulated_thread() { return &emulated_thread; }

DEVICE void *emulated_shared_array(const void *key, u64 bytes) {
  return machine->sharedArray(emulated_thread, key, bytes);
}

// A divisor. Where it is zero, as the size of an empty dim, nobody uses the quotient, but the host would trap.
template <class T> DEVICE T nonzero(T divisor) { return divisor == 0 ? 1 : divisor; }

// Indices.
template <class T> DEVICE T *held_pointer(T *pointer) { return pointer; }
DEVICE u32 masked_xor(u32 value, u32 mask, u32 flips) { return (value & mask) ^ flips; }
DEVICE u32 held_value(u32 value) { return value; }
DEVICE u32 thread_x() { return emulated_thread->index[0]; }
DEVICE u32 thread_y() { return emulated_thread->index[1]; }
DEVICE u32 thread_z() { return emulated_thread->index[2]; }
DEVICE u32 block_x() { return emulated_thread->block->index[0]; }
DEVICE u32 block_y() { return emulated_thread->block->index[1]; }
DEVICE u32 block_z() { return emulated_thread->block->index[2]; }
DEVICE u32 block_dim_x() { return emulated_thread->block->dim[0]; }
DEVICE u32 block_dim_y() { return emulated_thread->block->dim[1]; }
DEVICE u32 block_dim_z() { return emulated_thread->block->dim[2]; }
DEVICE u32 grid_dim_x() { return emulated_thread->block->grid[0]; }
DEVICE u32 grid_dim_y() { return emulated_thread->block->grid[1]; }
DEVICE u32 grid_dim_z() { return emulated_thread->block->grid[2]; }
DEVICE u32 lane_id() { return emulated_thread->linear % 32u; }
DEVICE u32 warp_id() { return emulated_thread->linear / 32u; }

// Conversions of bits.
DEVICE f32 f32_of_f16(u16 bits) { return soft_f32_of_f16(bits); }
DEVICE u16 f16_of_f32(f32 value) { return soft_f16_of_f32(value); }
DEVICE f32 f32_of_bf16(u16 bits) { return soft_f32_of_bf16(bits); }
DEVICE u16 bf16_of_f32(f32 value) { return soft_bf16_of_f32(value); }
DEVICE f32 f32_of_e4m3(u8 bits) { return soft_f32_of_e4m3(bits); }
DEVICE u8 e4m3_of_f32(f32 value) { return soft_e4m3_of_f32(value); }
DEVICE f32 f32_of_e5m2(u8 bits) { return soft_f32_of_e5m2(bits); }
DEVICE u8 e5m2_of_f32(f32 value) { return soft_e5m2_of_f32(value); }
DEVICE f32 round_to_bf16(f32 value) { return f32_of_bf16(bf16_of_f32(value)); }
// An f32 has more than twice the digits, so that rounding its result once more changes nothing.
#define FUSION_PAIRS(T, name, symbol)                                                                        \
  DEVICE u32 T##_pair_##name(u32 a, u32 b) {                                                                 \
    const u16 low = T##_of_f32(f32_of_##T((u16)a) symbol f32_of_##T((u16)b));                                \
    const u16 high = T##_of_f32(f32_of_##T((u16)(a >> 16)) symbol f32_of_##T((u16)(b >> 16)));               \
    return low | (u32)high << 16;                                                                            \
  }
FUSION_PAIRS(f16, mul, *)
FUSION_PAIRS(f16, add, +)
FUSION_PAIRS(f16, sub, -)
FUSION_PAIRS(bf16, mul, *)
FUSION_PAIRS(bf16, add, +)
FUSION_PAIRS(bf16, sub, -)
#undef FUSION_PAIRS

// Memory. The device faults on an access that is not aligned to its size; so does this.
DEVICE void check_aligned(const void *address, u64 bytes) {
  const u64 unit = bytes > 16 ? 16 : bytes;
  if (__builtin_expect(reinterpret_cast<u64>(address) % unit != 0, 0))
    machine->fail(emulated_thread, "misaligned memory access");
  if (__builtin_expect(emulated_thread->block->pendingTiles != 0, 0))
    machine->checkAccess(emulated_thread, address, bytes);
}
template <class T> DEVICE T load(const T *from) {
  check_aligned(from, sizeof(T));
  return *from;
}
template <class T> DEVICE void store(T *to, T value) {
  check_aligned(to, sizeof(T));
  *to = value;
}
template <class T, int N> DEVICE Vec<T, N> load_vec(const T *from) {
  check_aligned(from, sizeof(T) * N);
  Vec<T, N> values;
  copy_bytes(&values, from, sizeof(T) * N);
  return values;
}
template <class T, int N> DEVICE Vec<T, N> load_readonly_vec(const T *from) { return load_vec<T, N>(from); }
template <class T, int N> DEVICE Vec<T, N> load_early_vec(const T *from) { return load_vec<T, N>(from); }
template <class T, int N> DEVICE Vec<T, N> load_lines_vec(const T *from) { return load_vec<T, N>(from); }
template <class T> DEVICE T load_early(const T *from) { return load(from); }
DEVICE void prefetch_range(const void *, const void *) {}
template <class T, int N> DEVICE Vec<T, N> load_stream_vec(const T *from) { return load_vec<T, N>(from); }
template <class T, int N> DEVICE void store_vec(T *to, Vec<T, N> values) {
  check_aligned(to, sizeof(T) * N);
  copy_bytes(to, &values, sizeof(T) * N);
}
template <class T, int N>
DEVICE void store_stream_vec(T *to, Vec<T, N> values) {
  store_vec<T, N>(to, values);
}

DEVICE u8 *dynamic_shared() { return emulated_thread->block->dynamicShared; }

// Waiting and exchanging.
DEVICE u8 *warp_operation(fusion_emulation::WarpOperation kind, const void *mine, u32 bytes,
                          void (*compute)(u8 *)) {
  return machine->warpOperation(emulated_thread, kind, mine, bytes, compute);
}
DEVICE void barrier() { machine->barrier(emulated_thread); }
DEVICE void warp_barrier() { warp_operation(fusion_emulation::WarpOperation::Barrier, nullptr, 0, nullptr); }

// The value of `lane`, or the own one when that lane lies outside the warp.
template <class T> DEVICE T exchange(T value, u32 lane) {
  const u8 *slots = warp_operation(fusion_emulation::WarpOperation::Shuffle, &value, sizeof(T), nullptr);
  if (lane >= 32u)
    return value;
  T other;
  copy_bytes(&other, slots + lane * fusion_emulation::slotBytes, sizeof(T));
  return other;
}
#define FUSION_SHUFFLES(T)                                                                                   \
  DEVICE T shuffle_xor(T value, int mask) { return exchange(value, lane_id() ^ (u32)mask); }                 \
  DEVICE T shuffle_down(T value, u32 delta) { return exchange(value, lane_id() + delta); }                   \
  DEVICE T shuffle_up(T value, u32 delta) { return exchange(value, lane_id() - delta); }                     \
  DEVICE T shuffle_index(T value, int lane) { return exchange(value, (u32)lane % 32u); }
FUSION_SHUFFLES(f32)
FUSION_SHUFFLES(f64)
FUSION_SHUFFLES(i32)
FUSION_SHUFFLES(u32)
FUSION_SHUFFLES(i64)
FUSION_SHUFFLES(u64)
#undef FUSION_SHUFFLES

#define FUSION_WARP_EXTREME(name, sign)                                                                      \
  DEVICE u32 name(u32 value) {                                                                               \
    for (int mask = 16; mask > 0; mask /= 2) {                                                               \
      const u32 other = shuffle_xor(value, mask);                                                            \
      value = other sign value ? other : value;                                                              \
    }                                                                                                        \
    return value;                                                                                            \
  }
FUSION_WARP_EXTREME(warp_largest, >)
FUSION_WARP_EXTREME(warp_least, <)
#undef FUSION_WARP_EXTREME
DEVICE int bit_count(u32 bits) { return __builtin_popcount(bits); }
DEVICE int first_bit(u32 bits) { return __builtin_ffs((int)bits) - 1; } // -1: none
// Lanes that the block does not have vote 0.
DEVICE u32 warp_ballot(bool condition) {
  const u32 mine = condition ? 1u : 0u;
  const u8 *slots = warp_operation(fusion_emulation::WarpOperation::Vote, &mine, 4, nullptr);
  u32 votes = 0;
  for (u32 lane = 0; lane < 32u; ++lane) {
    u32 vote;
    copy_bytes(&vote, slots + lane * fusion_emulation::slotBytes, 4);
    votes |= vote << lane;
  }
  return votes;
}
DEVICE bool warp_any(bool condition) { return warp_ballot(condition) != 0; }
DEVICE bool warp_all(bool condition) { return warp_ballot(!condition) == 0; }

// Arithmetic that the language lacks.
DEVICE f32 sqrt_(f32 x) { return __builtin_sqrtf(x); }
DEVICE f32 rsqrt_(f32 x) { return (f32)(1.0 / __builtin_sqrt((f64)x)); }
DEVICE f32 rsqrt_estimate(f32 x) { return rsqrt_(x); }
DEVICE f32 exp_(f32 x) { return __builtin_expf(x); }
DEVICE f32 exp2_(f32 x) { return __builtin_exp2f(x); }
DEVICE f32 exp2_near(f32 x) { return __builtin_exp2f(x); }
DEVICE f32 reciprocal_near(f32 x) { return 1.f / x; }
DEVICE f32 log_(f32 x) { return __builtin_logf(x); }
DEVICE f32 log1p_(f32 x) { return __builtin_log1pf(x); }
DEVICE f32 sin_(f32 x) { return __builtin_sinf(x); }
DEVICE f32 cos_(f32 x) { return __builtin_cosf(x); }
DEVICE f32 tanh_(f32 x) { return __builtin_tanhf(x); }
DEVICE f32 erf_(f32 x) { return __builtin_erff(x); }
DEVICE f32 pow_(f32 x, f32 y) { return __builtin_powf(x, y); }
DEVICE f32 fabs_(f32 x) { return __builtin_fabsf(x); }
DEVICE f32 floor_(f32 x) { return __builtin_floorf(x); }
DEVICE f32 ceil_(f32 x) { return __builtin_ceilf(x); }
DEVICE f32 rint_(f32 x) { return __builtin_rintf(x); }
DEVICE f32 fmod_(f32 x, f32 y) { return __builtin_fmodf(x, y); }
DEVICE f32 fma_(f32 x, f32 y, f32 z) { return __builtin_fmaf(x, y, z); }
DEVICE f32 max_nan(f32 a, f32 b) { return a != a || a > b || (a == b && !__builtin_signbit(a)) ? a : b; }
DEVICE f32 min_nan(f32 a, f32 b) { return a != a || a < b || (a == b && __builtin_signbit(a)) ? a : b; }
DEVICE f64 sqrt_(f64 x) { return __builtin_sqrt(x); }
DEVICE f64 rsqrt_(f64 x) { return 1.0 / __builtin_sqrt(x); }
DEVICE f64 exp_(f64 x) { return __builtin_exp(x); }
DEVICE f64 exp2_(f64 x) { return __builtin_exp2(x); }
DEVICE f64 log_(f64 x) { return __builtin_log(x); }
DEVICE f64 log1p_(f64 x) { return __builtin_log1p(x); }
DEVICE f64 sin_(f64 x) { return __builtin_sin(x); }
DEVICE f64 cos_(f64 x) { return __builtin_cos(x); }
DEVICE f64 tanh_(f64 x) { return __builtin_tanh(x); }
DEVICE f64 erf_(f64 x) { return __builtin_erf(x); }
DEVICE f64 pow_(f64 x, f64 y) { return __builtin_pow(x, y); }
DEVICE f64 fabs_(f64 x) { return __builtin_fabs(x); }
DEVICE f64 floor_(f64 x) { return __builtin_floor(x); }
DEVICE f64 ceil_(f64 x) { return __builtin_ceil(x); }
DEVICE f64 rint_(f64 x) { return __builtin_rint(x); }
DEVICE f64 fmod_(f64 x, f64 y) { return __builtin_fmod(x, y); }
DEVICE f64 fma_(f64 x, f64 y, f64 z) { return __builtin_fma(x, y, z); }

// Kernels run one after the other here.
DEVICE void pdl_wait() {}
DEVICE void pdl_launch_dependents() {}

// Asynchronous copies: the destination holds NaN patterns until the copy is waited for.
struct SharedPlace {
  u8 *address;
  DEVICE SharedPlace operator+(i32 bytes) const { return {address + bytes}; }
};
DEVICE SharedPlace shared_place(void *pointer) { return {static_cast<u8 *>(pointer)}; }
DEVICE void cp_async_first(SharedPlace shared, const void *global, u32 bytes) {
  machine->copyAsync(emulated_thread, shared.address, global, bytes);
}
DEVICE void cp_async_16(SharedPlace shared, const void *global, bool valid) {
  cp_async_first(shared, global, valid ? 16u : 0u);
}
DEVICE void cp_async_16(void *shared, const void *global, bool valid) {
  cp_async_16(shared_place(shared), global, valid);
}
DEVICE void cp_async_16(SharedPlace shared, const void *global) { cp_async_16(shared, global, true); }
DEVICE void cp_async_commit() { machine->commitCopies(emulated_thread); }
template <int N> DEVICE void cp_async_wait() { machine->awaitCopies(emulated_thread, N); }

// Matrix fragments. Matrix m's row r is where lane 8 m + r points; lane l receives two neighbours of row
// l / 4, or of column l / 4 when transposed.
template <int Matrices, bool Transposed>
DEVICE void load_matrices(u32 (&r)[Matrices], const void *sharedRow) {
  if (lane_id() < 8u * Matrices)
    machine->checkShared(emulated_thread, sharedRow, 16, "ldmatrix");
  const u8 *slots =
      warp_operation(fusion_emulation::WarpOperation::LoadMatrix, &sharedRow, sizeof(sharedRow), nullptr);
  const u32 lane = lane_id();
  for (u32 matrix = 0; matrix < Matrices; ++matrix) {
    u32 packed = 0;
    for (u32 half = 0; half < 2u; ++half) {
      const u32 along = 2u * (lane % 4u) + half;
      const u32 row = Transposed ? along : lane / 4u;
      const u32 column = Transposed ? lane / 4u : along;
      const u8 *address;
      copy_bytes(&address, slots + (8u * matrix + row) * fusion_emulation::slotBytes, sizeof(address));
      u16 element;
      copy_bytes(&element, address + 2u * column, 2);
      packed |= (u32)element << (16u * half);
    }
    r[matrix] = packed;
  }
  // Nobody overwrites the rows before every lane has read them.
  warp_operation(fusion_emulation::WarpOperation::LoadMatrix, nullptr, 0, nullptr);
}
DEVICE void ldmatrix_x4(u32 (&r)[4], const void *sharedRow) { load_matrices<4, false>(r, sharedRow); }
DEVICE void ldmatrix_x2(u32 (&r)[2], const void *sharedRow) { load_matrices<2, false>(r, sharedRow); }
DEVICE void ldmatrix_x4_trans(u32 (&r)[4], const void *sharedRow) { load_matrices<4, true>(r, sharedRow); }
DEVICE void ldmatrix_x2_trans(u32 (&r)[2], const void *sharedRow) { load_matrices<2, true>(r, sharedRow); }

DEVICE u32 transpose_matrix(u32 pair) {
  const u8 *slots = warp_operation(fusion_emulation::WarpOperation::Shuffle, &pair, 4, nullptr);
  const u32 row = lane_id() / 4u;
  u32 transposed = 0;
  for (u32 half = 0; half < 2u; ++half) {
    u32 other;
    copy_bytes(&other, slots + (4u * (2u * (lane_id() % 4u) + half) + row / 2u) * fusion_emulation::slotBytes,
               4);
    transposed |= (other >> (16u * (row % 2u)) & 0xffffu) << (16u * half);
  }
  return transposed;
}

// What a lane brings to a matrix product: registers as PTX lays them out.
struct matrix_lane {
  f32 d[4];
  u32 a[4], b[2];
};
// D[16][8] += A[16][16] B[16][8], with lane l holding of A rows l/4 (+8), columns 2(l%4) (+1, +8, +9); of B
// rows 2(l%4) (+1, +8, +9), column l/4; of D rows l/4 (+8), columns 2(l%4) (+1).
template <class T> void multiply_matrices(u8 *slots) {
  typedef f32 row8 __attribute__((vector_size(32)));
  f32 a[16][16];
  row8 b[16];
  row8 d[16];
  for (u32 lane = 0; lane < 32u; ++lane) {
    matrix_lane part;
    copy_bytes(&part, slots + lane * fusion_emulation::slotBytes, sizeof(part));
    const u32 group = lane / 4u, pair = 2u * (lane % 4u);
    for (u32 half = 0; half < 2u; ++half) {
      for (u32 i = 0; i < 4u; ++i) {
        const T element{(u16)(part.a[i] >> (16u * half))};
        a[group + 8u * (i % 2u)][pair + half + 8u * (i / 2u)] = to_f32(element);
      }
      for (u32 i = 0; i < 2u; ++i) {
        const T element{(u16)(part.b[i] >> (16u * half))};
        b[pair + half + 8u * i][group] = to_f32(element);
      }
      d[group][pair + half] = part.d[half];
      d[group + 8u][pair + half] = part.d[2u + half];
    }
  }
  for (u32 row = 0; row < 16u; ++row) {
    row8 sum = d[row];
    for (u32 k = 0; k < 16u; ++k)
      sum += a[row][k] * b[k];
    d[row] = sum;
  }
  for (u32 lane = 0; lane < 32u; ++lane) {
    const u32 group = lane / 4u, pair = 2u * (lane % 4u);
    const f32 mine[4] = {d[group][pair], d[group][pair + 1u], d[group + 8u][pair], d[group + 8u][pair + 1u]};
    copy_bytes(slots + lane * fusion_emulation::slotBytes, mine, sizeof(mine));
  }
}
template <class T> DEVICE void mma_m16n8k16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], T) {
  static_assert(same_type<T, f16> || same_type<T, bf16>, "f16 or bf16");
  matrix_lane mine;
  copy_bytes(mine.d, d, sizeof(mine.d));
  copy_bytes(mine.a, a, sizeof(mine.a));
  copy_bytes(mine.b, b, sizeof(mine.b));
  const u8 *slots = warp_operation(fusion_emulation::WarpOperation::MultiplyMatrix, &mine, sizeof(mine),
                                   multiply_matrices<T>);
  copy_bytes(d, slots + lane_id() * fusion_emulation::slotBytes, sizeof(d));
}

// Blocks run on several OS threads, so these are atomic here too.
DEVICE f32 atomic_add(f32 *to, f32 value) {
  check_aligned(to, 4);
  u32 *word = reinterpret_cast<u32 *>(to);
  u32 seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &seen, bits_of(f32_of_bits(seen) + value), false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return f32_of_bits(seen);
}
DEVICE u32 atomic_add(u32 *to, u32 value) {
  check_aligned(to, 4);
  return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
}
DEVICE void atomic_add(u64 *to, u64 value) {
  check_aligned(to, 8);
  __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
}
DEVICE void atomic_max(u64 *to, u64 value) {
  check_aligned(to, 8);
  u64 seen = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (seen < value &&
         !__atomic_compare_exchange_n(to, &seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
}
DEVICE void fence_device() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
