#pragma once

#include "math.cuh"
#include "proxy.cuh"

// Products of a warpgroup, emulated: every warp computes its rows at the call, so that a missing
// warpgroup_wait() is not found; a missing fence_proxy_async(), or wait for a tile, is. A tile is its place
// in the block's dynamic shared memory, whose begin counts as a multiple of 1024, and the bytes of a panel.
DEVICE u64 wgmma_descriptor(const void *at, int panel_bytes) {
  return (u64)(reinterpret_cast<const u8 *>(at) - dynamic_shared()) | (u64)panel_bytes << 32;
}
DEVICE u64 wgmma_advance(u64 descriptor, u32 bytes) { return descriptor + bytes; }
DEVICE u64 wgmma_unknown(u64 descriptor) { return descriptor; }
// What lies at a place of a tile, as the asynchronous proxy reads it.
template <class Bits> DEVICE Bits swizzled_bits(u64 place) {
  const u8 *from = dynamic_shared() + (place ^ (place >> 7 & 7u) << 4);
  check_async_read(from, sizeof(Bits), "wgmma");
  Bits bits;
  copy_bytes(&bits, from, sizeof(Bits));
  return bits;
}
DEVICE u32 swizzled_element(u64 place) { return swizzled_bits<u16>(place); }
// The elements of A, 16 x 16, that this thread has. Element (row, k) lies at row * Row + k * Depth bytes.
template <u32 Row, u32 Depth> DEVICE void swizzled_rows(u32 (&first)[4], u64 a) {
  const u32 group = lane_id() / 4u, pair = 2u * (lane_id() % 4u);
  const u64 rows = (u64)(u32)a + warp_id() % 4u * 16u * Row;
  for (u32 i = 0; i < 4u; ++i) {
    const u64 place = rows + (group + 8u * (i % 2u)) * Row + (pair + 8u * (i / 2u)) * Depth;
    first[i] = swizzled_element(place) | swizzled_element(place + Depth) << 16;
  }
}
template <int Fragments> DEVICE void clear_unless(bool add, f32 (&d)[Fragments][4]) {
  for (u32 n = 0; !add && n < (u32)Fragments; ++n)
    d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0.f;
}
template <class T, int Fragments>
DEVICE void wgmma_registers(f32 (&d)[Fragments][4], const u32 (&a)[4], u64 b) {
  const u32 group = lane_id() / 4u, pair = 2u * (lane_id() % 4u);
  for (u32 n = 0; n < (u32)Fragments; ++n) {
    u32 second[2];
    for (u32 i = 0; i < 2u; ++i) {
      const u64 place = (u64)(u32)b + (8u * n + group) * 128u + (pair + 8u * i) * 2u;
      second[i] = swizzled_element(place) | swizzled_element(place + 2u) << 16;
    }
    mma_m16n8k16(d[n], a, second, T());
  }
}
template <class T, u32 Row, u32 Depth, int Fragments>
DEVICE void wgmma_tiles(f32 (&d)[Fragments][4], u64 a, u64 b, bool add) {
  u32 first[4];
  swizzled_rows<Row, Depth>(first, a);
  clear_unless(add, d);
  wgmma_registers<T>(d, first, b);
}
template <class T, int Fragments> DEVICE void wgmma_rows(f32 (&d)[Fragments][4], u64 a, u64 b, bool add) {
  wgmma_tiles<T, 128, 2>(d, a, b, add);
}
template <class T, int Fragments>
DEVICE void wgmma_transposed(f32 (&d)[Fragments][4], u64 a, u64 b, bool add) {
  wgmma_tiles<T, 2, 128>(d, a, b, add);
}
template <class T, int Fragments>
DEVICE void wgmma_columns(f32 (&d)[Fragments][4], const u32 (&a)[4], u64 b) {
  const u32 group = lane_id() / 4u, pair = 2u * (lane_id() % 4u);
  for (u32 n = 0; n < (u32)Fragments; ++n) {
    u32 second[2];
    const u32 column = 8u * n + group;
    for (u32 i = 0; i < 2u; ++i) {
      const u64 place = (u64)(u32)b + column / 64u * (b >> 32) + column % 64u * 2u + (pair + 8u * i) * 128u;
      second[i] = swizzled_element(place) | swizzled_element(place + 128u) << 16;
    }
    mma_m16n8k16(d[n], a, second, T());
  }
}
template <class T, int Fragments>
DEVICE void wgmma_rows_by_depth(f32 (&d)[Fragments][4], u64 a, u64 b, bool add) {
  u32 first[4];
  swizzled_rows<128, 2>(first, a);
  clear_unless(add, d);
  wgmma_columns<T>(d, first, b);
}
template <int Matrices> DEVICE void store_transposed(void *sharedRow, const u32 (&r)[Matrices]) {
  struct Lane {
    u8 *row;
    u32 pairs[Matrices];
  } mine{static_cast<u8 *>(sharedRow), {}};
  if (lane_id() < 8u * Matrices)
    machine->checkShared(emulated_thread, sharedRow, 16, "stmatrix");
  copy_bytes(mine.pairs, r, sizeof(r));
  const u8 *slots =
      warp_operation(fusion_emulation::WarpOperation::StoreMatrix, &mine, sizeof(mine), nullptr);
  if (lane_id() < 8u * Matrices) {
    const u32 matrix = lane_id() / 8u, column = lane_id() % 8u;
    for (u32 row = 0; row < 8u; ++row) {
      Lane other;
      copy_bytes(&other, slots + (4u * row + column / 2u) * fusion_emulation::slotBytes, sizeof(other));
      const u16 element = (u16)(other.pairs[matrix] >> (16u * (column % 2u)));
      copy_bytes(mine.row + 2u * row, &element, 2);
    }
  }
  warp_operation(fusion_emulation::WarpOperation::StoreMatrix, nullptr, 0, nullptr);
}
DEVICE void stmatrix_x4_trans(void *sharedRow, const u32 (&r)[4]) { store_transposed(sharedRow, r); }
DEVICE void warpgroup_arrive() {}
DEVICE void warpgroup_commit() {}
template <int Pending> DEVICE void warpgroup_wait() {}
template <int> DEVICE void more_registers() {}
template <int> DEVICE void fewer_registers() {}
template <int N> DEVICE void fence_operand(f32 (&)[N][4]) {}
template <int N> DEVICE void fence_operand(u32 (&)[N][4]) {}
template <int N> DEVICE void fence_operand(i32 (&)[N][4]) {}
