// Matrix products of a warpgroup, four warps in a row, on sm_90a: 64 rows of A and N columns of B, of which B, and A at
// will, stays in shared memory. Warp w of the group has rows 16 w … 16 w + 15 of the result, in the layout of
// mma.m16n8k16.
//
// A tile in shared memory lies in panels of 64 columns: rows of 128 bytes, in which piece c of 16 bytes of row r lies
// at place c ^ r % 8. A panel begins at a multiple of 1024 bytes. `at` may be the first row, or a column that is a
// multiple of 16 in it; or a row that is a multiple of 8.
DEVICE u64 wgmma_tile(const void *at, int panelBytes) {
  return (u64)((shared_address(at) & 0x3ffffu) >> 4) | (u64)(panelBytes >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
// d (+)= A Bᵀ of 16 columns of both: a and b are tiles.
#define WGMMA_ROWS(name, T, N, text, ...)                                                                    \
  DEVICE void name(f32(&d)[N / 8][4], u64 a, u64 b, bool add) {                                              \
    asm volatile(text : __VA_ARGS__ : "l"(a), "l"(b), "r"((u32)add));                                        \
  }
// d += A B of 16 rows of B, a tile; A in registers, in the layout of mma.m16n8k16.
#define WGMMA_COLUMNS(name, T, N, text, ...)                                                                 \
  DEVICE void name(f32(&d)[N / 8][4], const u32(&a)[4], u64 b) {                                             \
    asm volatile(text : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                   \
  }
// Before the first product that reads registers written since; products behind it belong together, up to a commit, and have ended after a wait.
DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
// Makes what this thread wrote to shared memory visible to products; then a barrier.
DEVICE void wgmma_publish() { asm volatile("fence.proxy.async;" ::: "memory"); }
// Registers of a product, before it begins and after it has finished: what computes with them stays on its side.
template <int N> DEVICE void wgmma_settle(f32 (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}
template <int N> DEVICE void wgmma_settle(u32 (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+r"(d[n][0]), "+r"(d[n][1]), "+r"(d[n][2]), "+r"(d[n][3])::"memory");
}
