// Branch-free bit-level float conversions, written so that loops over them vectorise.
// Private to ir/base: everybody else calls DType.h.
#pragma once

#include <bit>
#include <cstdint>

namespace fusion::bits {

/// A narrow float format with subnormals whose exponent has the usual bias.
/// `maxCode` is the code (without sign) that anything larger becomes; `nanCode` the quiet NaN.
template <int MantissaBits, int Bias, uint32_t MaxCode, uint32_t NanCode, int Width>
struct Narrow {
  static constexpr int shift = 23 - MantissaBits;
  static constexpr uint32_t rebias = static_cast<uint32_t>(127 - Bias) << 23;
  static constexpr uint32_t smallestNormal = static_cast<uint32_t>(127 - Bias + 1) << 23;
  /// Adding this float leaves a subnormal of the format, rounded to nearest even, in the low mantissa bits.
  static constexpr uint32_t magic = static_cast<uint32_t>(127 + (1 - Bias - MantissaBits) + 23) << 23;

  static inline uint32_t encode(float value) {
    uint32_t all = std::bit_cast<uint32_t>(value);
    uint32_t sign = (all >> 31) << (Width - 1);
    uint32_t magnitude = all & 0x7fffffffu;
    uint32_t odd = (magnitude >> shift) & 1u;
    uint32_t normal = (magnitude - rebias + ((1u << (shift - 1)) - 1u) + odd) >> shift;
    float lifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(magic);
    uint32_t subnormal = std::bit_cast<uint32_t>(lifted) - magic;
    // `normal` is meaningless below the smallest normal (it wraps), `subnormal` above it.
    uint32_t code = magnitude < smallestNormal ? subnormal : normal;
    code = code > MaxCode ? MaxCode : code;
    code = magnitude > 0x7f800000u ? NanCode : code;
    return sign | code;
  }

  /// The IEEE formats: an exponent field of all ones means infinity or NaN.
  static inline float decodeIeee(uint32_t code) {
    uint32_t sign = (code >> (Width - 1)) << 31;
    uint32_t body = (code & ((1u << (Width - 1)) - 1u)) << shift;
    constexpr uint32_t exponentMask = ((1u << (Width - 1)) - (1u << MantissaBits)) << shift;
    uint32_t normal = body + rebias;
    uint32_t special = body | 0x7f800000u;
    float subnormal = std::bit_cast<float>(body + smallestNormal) - std::bit_cast<float>(smallestNormal);
    uint32_t exponent = body & exponentMask;
    uint32_t result = exponent == exponentMask ? special : normal;
    result = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : result;
    return std::bit_cast<float>(sign | result);
  }

  /// The formats without infinity: only the all-ones code is NaN.
  static inline float decodeFinite(uint32_t code) {
    uint32_t sign = (code >> (Width - 1)) << 31;
    uint32_t body = (code & ((1u << (Width - 1)) - 1u)) << shift;
    constexpr uint32_t exponentMask = ((1u << (Width - 1)) - (1u << MantissaBits)) << shift;
    constexpr uint32_t nanBody = ((1u << (Width - 1)) - 1u) << shift;
    float subnormal = std::bit_cast<float>(body + smallestNormal) - std::bit_cast<float>(smallestNormal);
    uint32_t result = (body & exponentMask) == 0 ? std::bit_cast<uint32_t>(subnormal) : body + rebias;
    result = body == nanBody ? 0x7fc00000u : result;
    return std::bit_cast<float>(sign | result);
  }
};

using Half = Narrow<10, 15, 0x7c00, 0x7e00, 16>;
using E4M3 = Narrow<3, 7, 0x7e, 0x7f, 8>;
using E5M2 = Narrow<2, 15, 0x7b, 0x7f, 8>;

inline float decodeHalf(uint16_t code) { return Half::decodeIeee(code); }
inline uint16_t encodeHalf(float value) { return static_cast<uint16_t>(Half::encode(value)); }
inline float decodeE4M3(uint8_t code) { return E4M3::decodeFinite(code); }
inline uint8_t encodeE4M3(float value) { return static_cast<uint8_t>(E4M3::encode(value)); }
inline float decodeE5M2(uint8_t code) { return E5M2::decodeIeee(code); }
inline uint8_t encodeE5M2(float value) { return static_cast<uint8_t>(E5M2::encode(value)); }

inline float decodeBFloat(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }
inline uint16_t encodeBFloat(float value) {
  uint32_t all = std::bit_cast<uint32_t>(value);
  uint32_t rounded = (all + 0x7fffu + ((all >> 16) & 1u)) >> 16;
  uint32_t quiet = (all >> 16) | 0x40u;
  return static_cast<uint16_t>((all & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

} // namespace fusion::bits
