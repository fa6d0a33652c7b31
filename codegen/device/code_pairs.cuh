#pragma once
// Two neighbouring codes at a time, to bf16 or f16 in the two halves of a register: (q - zero point) * scale,
// rounded once to the type, with the bits that Dequantise in gemm.cuh gives.
//
// u is the code, or for signed ones the code + 8 or + 128, and Z the zero point of u: integers below 16 or
// 256.
// - In f16, 1024 + u is 0x6400 | u, and 1024 + 16 u is 0x6400 | u << 4. A sum, or an fma with the factor 1 or
//   1 / 16, and the addend -1024 - Z or -64 - Z, makes u - Z: all are integers below 2048, or multiples of 1
//   / 16 below 128, so nothing is rounded. f8 are exact in f16. From there they go to f32, are multiplied and
//   rounded to T, as Dequantise does it.
// - Scales of the type f16 = T are multiplied in f16: u - Z has at most 8 digits, an f8 4, and the scale 11.
// The
//   f32 product in Dequantise is exact then, and its rounding to T is the one that a product in T has.
// - So do those of 4 bits of the type bf16 = T, where u - Z has at most 5 digits and the scale 8. In the
// lower
//   half, 128 + u is 0x4300 | u, and 128 + Z an integer of 8 digits: u - Z is exact. The upper half holds u
//   << 4, of which a bf16 would take the eighth bit for the exponent's last one. But 0x0000 | u << 4 is u
//   2^-129 for all 16 u, for subnormal numbers are as far apart as those of the next exponent. Times 2^127,
//   less Z / 4, that is (u - Z) / 4: exact. Its factor is 4 times the scale, which is exact below 2^126.
// Subnormal numbers are kept throughout, as PTX says of fma.rn.bf16x2 and .f16x2.

#include "bytes.cuh"
#include "gemm.cuh"

#ifdef FUSION_EMULATED
#include "code_pairs_host.cuh"
#else
#include "code_pairs_cuda.cuh"
#endif

/// `Code` and Bits, of the elements in memory; whether scales have the type T; Zero, of the zero point, see
/// Dequantise.
template <class T, class Code, int Bits, bool ScaleFits, class Zero>
struct CodePairs {
  static constexpr bool is_f8 = is_narrow_float<Code>, has_zero = is_zero_point<Zero>;
  static constexpr bool is_bf16 = same_type<T, bf16>;
  static constexpr bool in_pairs = ScaleFits && (Bits == 4 || !is_bf16);     ///< multiplied in T
  static constexpr u32 middle = same_type<Code, i8> ? 1u << (Bits - 1) : 0u; ///< u of code 0
  static constexpr int words = Bits / 4;                                     ///< of 8 neighbouring codes
  static constexpr int entry_words = is_f8 ? 1 : 2;
  using Entry = Vec<u32, entry_words>; ///< what scale and zero point are prepared to
  static_assert(Bits == 4 || Bits == 8, "codes of half a byte or of one");
  static_assert(!is_f8 || (Bits == 8 && !has_zero), "f8 has no zero points");

  static DEVICE Entry prepare(const Dequantise<T, Zero> &decoder) {
    Entry entry;
    entry[0] = in_pairs ? factors(decoder.scale) : bits_of(decoder.scale);
    if constexpr (!is_f8) {
      f32 zero = (f32)middle;
      if constexpr (has_zero)
        zero = (f32)((i32)middle + (i32)decoder.zero);
      entry[1] = addends(zero);
    }
    return entry;
  }

  /// Codes 2 q and 2 q + 1 of the eight in `codes`. `q` is the lane's number in its quad.
  static DEVICE u32 pair(const u32 *codes, u32 q, const Entry &entry) {
    if constexpr (in_pairs && is_bf16) {
      const u32 twice =
          permute_bytes(codes[0], 0x43u, 0x5040u + 0x0101u * q); // 0x00, the byte, 0x43, the byte
      const u32 u = (twice & 0x00f0ff0fu) ^ (middle | middle << 20);
      return bf16_pair_mul(bf16_pair_fma(u, 0x7f003f80u, entry[1]), entry[0]); // 2^127 and 1
    } else {
      return scaled(exact(codes, q, entry), entry);
    }
  }

  /// What takes codes out of a word. As constants the compiler would load them anew for each.
  struct Masks {
    const u32 low = held_value(0x000f000fu), high = held_value(0x00f000f0u);
  };
  /// Eight codes at once, for sums in which the order of k is free: pair i has, of 4 bits, codes i and i + 4,
  /// so that a mask takes them from where they are, and of 8 bits 2 i and 2 i + 1. `entries`: of the first
  /// and of the last four.
  static DEVICE void pairs(const u32 *codes, const Entry (&entries)[2], const Masks &masks, Vec<u32, 4> &to) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[i] = Bits == 8 ? pair(codes, (u32)i, entries[i / 2]) : distant_pair(codes[0], i, entries[0], masks);
  }
  /// The same of 4 bits less their zero point, not scaled, over `integer_unit`: exact in T.
  static DEVICE void integers(u32 word, Zero zero, const Masks &masks, Vec<u32, 4> &to) {
    static_assert(Bits == 4, "less their zero point those of 8 bits are not exact in bf16");
    u32 z = middle;
    if constexpr (has_zero)
      z = (u32)((i32)middle + (i32)zero);
    if constexpr (is_bf16) {
      // One shift for two pairs: (128 + u) / 4 - (128 + Z) / 4, and u 2^-129 * 2^127 - Z / 4.
      const u32 low = both(0xc200u | z), high = bf16_pair_add(low, both(0x4200u)); // 32
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 shifted = i < 2 ? word : word >> 8;
        to[i] =
            i % 2 == 0
                ? bf16_pair_fma(masked_xor(shifted, masks.low, both(0x4300u | middle)), both(0x3e80u), low)
                : bf16_pair_fma(masked_xor(shifted, masks.high, both(middle << 4)), both(0x7f00u), high);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[i] = exact_pair(word, i, both(0xe400u | z), both(0xd400u | z << 4), masks);
    }
  }
  static constexpr f32 integer_unit = is_bf16 ? 4.f : 1.f;

private:
  /// Codes i and i + 4 of a word.
  static DEVICE u32 distant_pair(u32 word, int i, const Entry &entry, const Masks &masks) {
    if constexpr (in_pairs && is_bf16) {
      const u32 u = masked_xor(word >> 4 * i, masks.low, both(0x4300u | middle));
      return bf16_pair_mul(bf16_pair_add(u, lower_twice(entry[1])), lower_twice(entry[0]));
    } else {
      const u32 values =
          exact_pair(word, i, lower_twice(entry[1]), permute_bytes(entry[1], 0u, 0x3232u), masks);
      return scaled(values, entry);
    }
  }
  /// Codes i and i + 4 of a word less their zero point, in f16. `low`, `high`: twice -1024 - Z and -64 - Z.
  static DEVICE u32 exact_pair(u32 word, int i, u32 low, u32 high, const Masks &masks) {
    const u32 shifted = i < 2 ? word : word >> 8; // one shift for two pairs
    if (i % 2 == 0)
      return f16_pair_add(masked_xor(shifted, masks.low, both(0x6400u | middle)), low);
    return f16_pair_fma(masked_xor(shifted, masks.high, both(0x6400u | middle << 4)), both(0x2c00u), // 1 / 16
                        high);
  }
  static DEVICE u32 lower_twice(u32 word) { return permute_bytes(word, 0u, 0x1010u); }
  /// Codes less their zero points, in f16, times the scale.
  static DEVICE u32 scaled(u32 values, const Entry &entry) {
    if constexpr (in_pairs)
      return f16_pair_mul(values, entry[0]);
    const f32 scale = f32_of_bits(entry[0]);
    return packed_pair<T>(f32_of_f16((u16)values) * scale, f32_of_f16((u16)(values >> 16)) * scale);
  }
  static DEVICE u32 both(u32 half) { return half | half << 16; }
  template <class S>
  static DEVICE u32 bits16(f32 value) {
    return (u32)from_f32<S>(value).bits;
  }
  static DEVICE u32 factors(f32 scale) {
    const u32 twice = both(bits16<T>(scale));
    return is_bf16 ? bf16_pair_mul(twice, 0x40803f80u) : twice; // 4 and 1
  }
  static DEVICE u32 addends(f32 zero) {
    if constexpr (Bits == 8)
      return both(bits16<f16>(-1024.f - zero));
    else if constexpr (in_pairs && is_bf16)
      return bits16<bf16>(-128.f - zero) | bits16<bf16>(-0.25f * zero) << 16;
    else
      return bits16<f16>(-1024.f - zero) | bits16<f16>(-64.f - zero) << 16;
  }
  /// The codes less their zero point, in f16.
  static DEVICE u32 exact(const u32 *codes, u32 q, const Entry &entry) {
    if constexpr (Bits == 4) {
      const u32 twice =
          permute_bytes(codes[0], 0x64u, 0x4040u + 0x0101u * q); // 0x64, the byte, 0x64, the byte
      return f16_pair_fma((twice & 0xfff0ff0fu) ^ (middle | middle << 20), 0x2c003c00u,
                          entry[1]); // 1 / 16 and 1
    } else {
      const u32 two = permute_bytes(codes[0], codes[1], 0x0010u + 0x0022u * q); // in the lower half
      if constexpr (is_f8)
        return f16_pair_of<Code>(two);
      else
        return f16_pair_add(permute_bytes(two, 0x64u, 0x4140u) ^ both(middle), entry[1]);
    }
  }
};
