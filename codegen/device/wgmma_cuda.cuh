#pragma once

#include "machine.cuh"

// Matrix products of a warpgroup, four warps in a row, on sm_90a: 64 rows of A and N columns of B, of which
// B, and optionally A, stays in shared memory. Warp w of the group has rows 16 w ... 16 w + 15 of the result,
// in the layout of mma.m16n8k16.
//
// A tile in shared memory lies in panels of 64 columns: rows of 128 bytes, in which vector c of 16 bytes of
// row r lies at place c ^ r % 8. A panel begins at a multiple of 1024 bytes. `at` may be the first row, or a
// column that is a multiple of 16 in it; or a row that is a multiple of 8.
DEVICE u64 wgmma_descriptor(const void *at, int panel_bytes) {
  return (u64)((shared_address(at) & 0x3ffffu) >> 4) | (u64)(panel_bytes >> 4) << 16 |
         (u64)(1024 >> 4) << 32 | 1ull << 62;
}

// Of a place so many bytes further on, a multiple of 16, in a panel that lies alike. The address is the
// descriptor's lowest part and never carries into the next one.
DEVICE u64 wgmma_advance(u64 descriptor, u32 bytes) { return descriptor + (bytes >> 4); }

// The same descriptor, of which the compiler does not know what it was: places in a tile that are further on
// are then found again in each turn of a loop, where dozens of them would take as many registers.
DEVICE u64 wgmma_unknown(u64 descriptor) {
  asm volatile("" : "+l"(descriptor));
  return descriptor;
}

// The accumulators d of 64 x N, 8 registers for each 16 columns: their names in an instruction, and the
// operands.
#define FUSION_NAMES_8 "%0, %1, %2, %3"
#define FUSION_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FUSION_NAMES_32 FUSION_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FUSION_NAMES_48 FUSION_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FUSION_NAMES_64 FUSION_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FUSION_NAMES_80 FUSION_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FUSION_NAMES_96 FUSION_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FUSION_NAMES_112 FUSION_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FUSION_NAMES_128 FUSION_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FUSION_NAMES_136 FUSION_NAMES_128 ", %64, %65, %66, %67"
#define FUSION_NAMES_144 FUSION_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FUSION_NAMES_152 FUSION_NAMES_144 ", %72, %73, %74, %75"
#define FUSION_NAMES_160 FUSION_NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FUSION_NAMES_176 FUSION_NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FUSION_NAMES_192 FUSION_NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FUSION_NAMES_208 FUSION_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FUSION_NAMES_224 FUSION_NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FUSION_NAMES_240 FUSION_NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FUSION_NAMES_256 FUSION_NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define FUSION_FRAGMENT(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define FUSION_OPERANDS_8(d) FUSION_FRAGMENT(d[0])
#define FUSION_OPERANDS_16(d) FUSION_FRAGMENT(d[0]), FUSION_FRAGMENT(d[1])
#define FUSION_OPERANDS_32(d) FUSION_OPERANDS_16(d), FUSION_FRAGMENT(d[2]), FUSION_FRAGMENT(d[3])
#define FUSION_OPERANDS_48(d) FUSION_OPERANDS_32(d), FUSION_FRAGMENT(d[4]), FUSION_FRAGMENT(d[5])
#define FUSION_OPERANDS_64(d) FUSION_OPERANDS_48(d), FUSION_FRAGMENT(d[6]), FUSION_FRAGMENT(d[7])
#define FUSION_OPERANDS_80(d) FUSION_OPERANDS_64(d), FUSION_FRAGMENT(d[8]), FUSION_FRAGMENT(d[9])
#define FUSION_OPERANDS_96(d) FUSION_OPERANDS_80(d), FUSION_FRAGMENT(d[10]), FUSION_FRAGMENT(d[11])
#define FUSION_OPERANDS_112(d) FUSION_OPERANDS_96(d), FUSION_FRAGMENT(d[12]), FUSION_FRAGMENT(d[13])
#define FUSION_OPERANDS_128(d) FUSION_OPERANDS_112(d), FUSION_FRAGMENT(d[14]), FUSION_FRAGMENT(d[15])
#define FUSION_OPERANDS_136(d) FUSION_OPERANDS_128(d), FUSION_FRAGMENT(d[16])
#define FUSION_OPERANDS_144(d) FUSION_OPERANDS_128(d), FUSION_FRAGMENT(d[16]), FUSION_FRAGMENT(d[17])
#define FUSION_OPERANDS_152(d) FUSION_OPERANDS_144(d), FUSION_FRAGMENT(d[18])
#define FUSION_OPERANDS_160(d) FUSION_OPERANDS_144(d), FUSION_FRAGMENT(d[18]), FUSION_FRAGMENT(d[19])
#define FUSION_OPERANDS_176(d) FUSION_OPERANDS_160(d), FUSION_FRAGMENT(d[20]), FUSION_FRAGMENT(d[21])
#define FUSION_OPERANDS_192(d) FUSION_OPERANDS_176(d), FUSION_FRAGMENT(d[22]), FUSION_FRAGMENT(d[23])
#define FUSION_OPERANDS_208(d) FUSION_OPERANDS_192(d), FUSION_FRAGMENT(d[24]), FUSION_FRAGMENT(d[25])
#define FUSION_OPERANDS_224(d) FUSION_OPERANDS_208(d), FUSION_FRAGMENT(d[26]), FUSION_FRAGMENT(d[27])
#define FUSION_OPERANDS_240(d) FUSION_OPERANDS_224(d), FUSION_FRAGMENT(d[28]), FUSION_FRAGMENT(d[29])
#define FUSION_OPERANDS_256(d) FUSION_OPERANDS_240(d), FUSION_FRAGMENT(d[30]), FUSION_FRAGMENT(d[31])

template <class T, int N> struct wgmma_instruction;
// a0 ...: the numbers of the operands after the accumulators. orders: whether A, and B, lie by depth.
#define FUSION_WGMMA_SHARED(function, T, N, a0, a1, a2, orders)                                              \
    static DEVICE void function(f32 (&d)[N / 8][4], u64 a, u64 b, bool add) {                                \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #a2 ", 0; wgmma.mma_async.sync.aligned.m64n" #N         \
                   "k16.f32." #T "." #T " {" FUSION_NAMES_##N "}, %" #a0 ", %" #a1 ", p, 1, 1, " orders ";}" \
                   : FUSION_OPERANDS_##N(d)                                                                  \
                   : "l"(a), "l"(b), "r"((u32)add));                                                         \
    }
#define FUSION_WGMMA_REGISTERS(function, T, N, a0, a1, a2, a3, a4, order)                                    \
    static DEVICE void function(f32 (&d)[N / 8][4], const u32 (&a)[4], u64 b) {                              \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" FUSION_NAMES_##N         \
                   "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4 ", 1, 1, 1, " order ";"              \
                   : FUSION_OPERANDS_##N(d)                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                    \
    }
#define FUSION_WGMMA(T, N, a0, a1, a2, a3, a4)                                                               \
  template <> struct wgmma_instruction<T, N> {                                                               \
    FUSION_WGMMA_SHARED(shared, T, N, a0, a1, a2, "0, 0")                                                    \
    FUSION_WGMMA_SHARED(transposed, T, N, a0, a1, a2, "1, 0")                                                \
    FUSION_WGMMA_SHARED(by_depth, T, N, a0, a1, a2, "0, 1")                                                  \
    FUSION_WGMMA_REGISTERS(registers, T, N, a0, a1, a2, a3, a4, "0")                                         \
    FUSION_WGMMA_REGISTERS(registers_by_depth, T, N, a0, a1, a2, a3, a4, "1")                                \
  };
#define FUSION_WGMMA_TYPES(...) FUSION_WGMMA(f16, __VA_ARGS__) FUSION_WGMMA(bf16, __VA_ARGS__)
FUSION_WGMMA_TYPES(8, 4, 5, 6, 7, 8)
FUSION_WGMMA_TYPES(16, 8, 9, 10, 11, 12)
FUSION_WGMMA_TYPES(32, 16, 17, 18, 19, 20)
FUSION_WGMMA_TYPES(48, 24, 25, 26, 27, 28)
FUSION_WGMMA_TYPES(64, 32, 33, 34, 35, 36)
FUSION_WGMMA_TYPES(80, 40, 41, 42, 43, 44)
FUSION_WGMMA_TYPES(96, 48, 49, 50, 51, 52)
FUSION_WGMMA_TYPES(112, 56, 57, 58, 59, 60)
FUSION_WGMMA_TYPES(128, 64, 65, 66, 67, 68)
FUSION_WGMMA_TYPES(136, 68, 69, 70, 71, 72)
FUSION_WGMMA_TYPES(144, 72, 73, 74, 75, 76)
FUSION_WGMMA_TYPES(152, 76, 77, 78, 79, 80)
FUSION_WGMMA_TYPES(160, 80, 81, 82, 83, 84)
FUSION_WGMMA_TYPES(176, 88, 89, 90, 91, 92)
FUSION_WGMMA_TYPES(192, 96, 97, 98, 99, 100)
FUSION_WGMMA_TYPES(208, 104, 105, 106, 107, 108)
FUSION_WGMMA_TYPES(224, 112, 113, 114, 115, 116)
FUSION_WGMMA_TYPES(240, 120, 121, 122, 123, 124)
FUSION_WGMMA_TYPES(256, 128, 129, 130, 131, 132)
#undef FUSION_WGMMA_TYPES
#undef FUSION_WGMMA
#undef FUSION_WGMMA_REGISTERS
#undef FUSION_WGMMA_SHARED
#undef FUSION_FRAGMENT

// d (+)= A B^T of 16 columns of both, whose tiles have these descriptors. N: 8, 136, 152, or a multiple of 16.
template <class T, int Fragments> DEVICE void wgmma_rows(f32 (&d)[Fragments][4], u64 a, u64 b, bool add) {
  wgmma_instruction<T, 8 * Fragments>::shared(d, a, b, add);
}
// The same, but A's tile has a row for each k, of 64 elements.
template <class T, int Fragments>
DEVICE void wgmma_transposed(f32 (&d)[Fragments][4], u64 a, u64 b, bool add) {
  wgmma_instruction<T, 8 * Fragments>::transposed(d, a, b, add);
}
// d (+)= A B of 16 columns of A and 16 rows of B. N: multiples of 64.
template <class T, int Fragments>
DEVICE void wgmma_rows_by_depth(f32 (&d)[Fragments][4], u64 a, u64 b, bool add) {
  wgmma_instruction<T, 8 * Fragments>::by_depth(d, a, b, add);
}
// d += A B of 16 rows of B, a tile; A in registers, in the layout of mma.m16n8k16.
template <class T, int Fragments>
DEVICE void wgmma_columns(f32 (&d)[Fragments][4], const u32 (&a)[4], u64 b) {
  wgmma_instruction<T, 8 * Fragments>::registers_by_depth(d, a, b);
}
// d += A B^T of 16 columns of both: A in registers likewise, B a tile in rows. The registers of A may be
// written again when the product has ended.
template <class T, int Fragments>
DEVICE void wgmma_registers(f32 (&d)[Fragments][4], const u32 (&a)[4], u64 b) {
  wgmma_instruction<T, 8 * Fragments>::registers(d, a, b);
}
// Before the first product that reads registers written since; products after it belong together, up to a
// commit.
DEVICE void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all but the last Pending commits have ended.
template <int Pending> DEVICE void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Registers of each thread of the warpgroup from here on, a multiple of 8: what some leave others take.
template <int N>
DEVICE void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
DEVICE void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
// Stores matrices of 8 x 8 elements of 16 bits, in the layout of a product's result, transposed: column r of
// matrix m goes where lane 8 m + r points, 16 bytes.
DEVICE void stmatrix_x4_trans(void *sharedRow, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(sharedRow)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
// Registers of a product, before it begins and after it has ended: what computes with them stays on its side.
template <int N> DEVICE void fence_operand(f32 (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}
template <int N> DEVICE void fence_operand(u32 (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+r"(d[n][0]), "+r"(d[n][1]), "+r"(d[n][2]), "+r"(d[n][3])::"memory");
}
template <int N> DEVICE void fence_operand(i32 (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+r"(d[n][0]), "+r"(d[n][1]), "+r"(d[n][2]), "+r"(d[n][3])::"memory");
}
