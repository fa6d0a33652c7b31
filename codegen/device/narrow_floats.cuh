#pragma once

#include "types.cuh"

// Narrow floats in plain arithmetic: what emulation uses, and the device where it lacks an instruction.

// f32 to a float of ExponentBits and MantissaBits, nearest even; above MaxCode (sign aside) becomes
// OverflowCode. Every step but the one rounding is exact.
template <int ExponentBits, int MantissaBits, u32 MaxCode, u32 OverflowCode, u32 NanCode>
DEVICE u32 narrow_float(f32 value) {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  constexpr int dropped = 23 - MantissaBits;
  constexpr u32 smallestNormal = (u32)(127 - bias + 1) << 23;
  const u32 bits = bits_of(value);
  const u32 sign = (bits >> 31) << (ExponentBits + MantissaBits);
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return sign | NanCode;
  u32 code;
  if (magnitude < smallestNormal) {
    // Adding 2^23 units of the last place rounds to a whole number of them, nearest even.
    const f32 units = f32_of_bits(magnitude) * f32_of_bits((u32)(127 + bias - 1 + MantissaBits) << 23);
    code = bits_of(units + 8388608.f) - 0x4b000000u;
  } else {
    const u32 odd = (magnitude >> dropped) & 1u;
    const u32 rounded = magnitude + ((1u << (dropped - 1)) - 1u) + odd;
    code = (rounded >> dropped) - ((u32)(127 - bias) << MantissaBits);
  }
  return sign | (code > MaxCode ? OverflowCode : code);
}

DEVICE u16 soft_f16_of_f32(f32 value) { return (u16)narrow_float<5, 10, 0x7bff, 0x7c00, 0x7e00>(value); }
DEVICE u8 soft_e4m3_of_f32(f32 value) { return (u8)narrow_float<4, 3, 0x7e, 0x7e, 0x7f>(value); }
DEVICE u8 soft_e5m2_of_f32(f32 value) { return (u8)narrow_float<5, 2, 0x7b, 0x7b, 0x7e>(value); }

DEVICE u16 soft_bf16_of_f32(f32 value) {
  const u32 bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (u16)((bits >> 16) | 0x40u);
  return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

DEVICE f32 soft_f32_of_f16(u16 bits) {
  const u32 sign = (u32)(bits & 0x8000u) << 16;
  const u32 shifted = (u32)(bits & 0x7fffu) << 13;
  const bool special = shifted >= 0x0f800000u; // infinity or NaN
  const u32 finite =
      bits_of(f32_of_bits(shifted) * 5.192296858534828e33f); // 2^112, the difference of the biases
  return f32_of_bits(sign | (special ? shifted | 0x7f800000u : finite));
}

DEVICE f32 soft_f32_of_bf16(u16 bits) { return f32_of_bits((u32)bits << 16); }

DEVICE f32 soft_f32_of_e4m3(u8 bits) {
  const u32 sign = (u32)(bits & 0x80u) << 24;
  const u32 magnitude = bits & 0x7fu;
  const u32 finite = bits_of(f32_of_bits(magnitude << 20) * 1.329227995784916e36f); // 2^120
  return f32_of_bits(sign | (magnitude == 0x7fu ? 0x7fc00000u : finite));
}

DEVICE f32 soft_f32_of_e5m2(u8 bits) { return soft_f32_of_f16((u16)((u32)bits << 8)); }
