// Bulk conversions. Everything goes block by block through one of three wide forms: f32 (exact for the
// narrow floats), f64 (exact for all floats), 64-bit integers (exact for all integers).
#include "ir/base/DType.h"
#include "ir/base/FloatBits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__) && defined(__linux__)
#define FUSION_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FUSION_VECTORISED
#endif

namespace fusion {

namespace {

constexpr size_t blockSize = 1024;

// A macro, since target_clones does not apply to templates.
#define FUSION_LOOP(NAME, SOURCE, TARGET, EXPRESSION)                                                        \
  FUSION_VECTORISED void NAME(const SOURCE *__restrict source, TARGET *__restrict target, size_t count) {    \
    for (size_t i = 0; i < count; ++i)                                                                       \
      target[i] = EXPRESSION;                                                                                \
  }
FUSION_LOOP(decodeHalfs, uint16_t, float, bits::decodeHalf(source[i]))
FUSION_LOOP(encodeHalfs, float, uint16_t, bits::encodeHalf(source[i]))
FUSION_LOOP(decodeBFloats, uint16_t, float, bits::decodeBFloat(source[i]))
FUSION_LOOP(encodeBFloats, float, uint16_t, bits::encodeBFloat(source[i]))
FUSION_LOOP(decodeE4M3s, uint8_t, float, bits::decodeE4M3(source[i]))
FUSION_LOOP(encodeE4M3s, float, uint8_t, bits::encodeE4M3(source[i]))
FUSION_LOOP(decodeE5M2s, uint8_t, float, bits::decodeE5M2(source[i]))
FUSION_LOOP(encodeE5M2s, float, uint8_t, bits::encodeE5M2(source[i]))
FUSION_LOOP(widenFloats, float, double, source[i])
FUSION_LOOP(narrowDoubles, double, float, static_cast<float>(source[i]))
#undef FUSION_LOOP

template <class From, class To>
void castAll(const void *source, void *target, size_t count) {
  const From *from = static_cast<const From *>(source);
  To *to = static_cast<To *>(target);
  for (size_t i = 0; i < count; ++i)
    to[i] = static_cast<To>(from[i]);
}

bool fitsF32(DType type) { return isFloat(type) && type != DType::F64; }

/// The values of a float type that f32 holds exactly.
void widenToF32(DType from, const void *source, float *target, size_t count) {
  switch (from) {
  case DType::F16:
    return decodeHalfs(static_cast<const uint16_t *>(source), target, count);
  case DType::BF16:
    return decodeBFloats(static_cast<const uint16_t *>(source), target, count);
  case DType::F8E4M3:
    return decodeE4M3s(static_cast<const uint8_t *>(source), target, count);
  case DType::F8E5M2:
    return decodeE5M2s(static_cast<const uint8_t *>(source), target, count);
  default:
    std::memcpy(target, source, count * sizeof(float));
  }
}

void narrowFromF32(DType to, const float *source, void *target, size_t count) {
  switch (to) {
  case DType::F16:
    return encodeHalfs(source, static_cast<uint16_t *>(target), count);
  case DType::BF16:
    return encodeBFloats(source, static_cast<uint16_t *>(target), count);
  case DType::F8E4M3:
    return encodeE4M3s(source, static_cast<uint8_t *>(target), count);
  case DType::F8E5M2:
    return encodeE5M2s(source, static_cast<uint8_t *>(target), count);
  default:
    std::memcpy(target, source, count * sizeof(float));
  }
}

/// Integers and Bool, U64 as its bit pattern.
void loadIntegers(DType from, const void *source, int64_t *target, size_t count) {
  switch (from) {
  case DType::Bool:
    for (size_t i = 0; i < count; ++i)
      target[i] = static_cast<const uint8_t *>(source)[i] != 0;
    return;
  case DType::I4:
  case DType::I8:
    return castAll<int8_t, int64_t>(source, target, count);
  case DType::U4:
  case DType::U8:
    return castAll<uint8_t, int64_t>(source, target, count);
  case DType::I16:
    return castAll<int16_t, int64_t>(source, target, count);
  case DType::U16:
    return castAll<uint16_t, int64_t>(source, target, count);
  case DType::I32:
    return castAll<int32_t, int64_t>(source, target, count);
  case DType::U32:
    return castAll<uint32_t, int64_t>(source, target, count);
  default:
    std::memcpy(target, source, count * sizeof(int64_t));
  }
}

void storeIntegers(DType to, const int64_t *source, void *target, size_t count) {
  switch (to) {
  case DType::Bool:
    for (size_t i = 0; i < count; ++i)
      static_cast<uint8_t *>(target)[i] = source[i] != 0;
    return;
  case DType::I4:
    for (size_t i = 0; i < count; ++i) // sign-extends the low four bits
      static_cast<int8_t *>(target)[i] = static_cast<int8_t>(((source[i] & 15) ^ 8) - 8);
    return;
  case DType::U4:
    for (size_t i = 0; i < count; ++i)
      static_cast<uint8_t *>(target)[i] = static_cast<uint8_t>(source[i] & 15);
    return;
  case DType::I8:
  case DType::U8:
    return castAll<int64_t, uint8_t>(source, target, count);
  case DType::I16:
  case DType::U16:
    return castAll<int64_t, uint16_t>(source, target, count);
  case DType::I32:
  case DType::U32:
    return castAll<int64_t, uint32_t>(source, target, count);
  default:
    std::memcpy(target, source, count * sizeof(int64_t));
  }
}

/// Rounds so that a further rounding to at most 22 bits gives what one rounding would have given.
float roundToOdd(double value) {
  float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value)
    return nearest;
  if (std::isinf(nearest)) // every narrower format overflows here too
    return nearest;
  uint32_t all = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value))
    --all;
  return std::bit_cast<float>(all | 1u);
}

double integerToDouble(int64_t value, bool isUnsigned) {
  return isUnsigned ? static_cast<double>(static_cast<uint64_t>(value)) : static_cast<double>(value);
}

/// As integerToDouble, but rounded to odd where it is inexact, for a further rounding.
double integerToOddDouble(int64_t value, bool isUnsigned) {
  bool negative = !isUnsigned && value < 0;
  uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (magnitude >> 53)
    magnitude = (magnitude & ~uint64_t{0x7ff}) | ((magnitude & 0x7ff) != 0 ? 0x800 : 0);
  double result = static_cast<double>(magnitude);
  return negative ? -result : result;
}

void storeDoubles(DType to, const double *source, void *target, size_t count) {
  if (to == DType::F64) {
    std::memcpy(target, source, count * sizeof(double));
    return;
  }
  float block[blockSize];
  if (to == DType::F32)
    return narrowDoubles(source, static_cast<float *>(target), count);
  for (size_t i = 0; i < count; ++i)
    block[i] = roundToOdd(source[i]);
  narrowFromF32(to, block, target, count);
}

struct IntegerRange {
  double low, end; ///< the values are in [low, end)
  int64_t lowest, highest;
};
IntegerRange rangeOf(DType type) {
  int width = type == DType::I4 || type == DType::U4 ? 4 : static_cast<int>(8 * byteSize(type));
  if (isSignedInteger(type)) {
    int64_t highest = width == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (width - 1)) - 1;
    return {-std::ldexp(1.0, width - 1), std::ldexp(1.0, width - 1), -highest - 1, highest};
  }
  int64_t highest = width == 64 ? -1 : (int64_t{1} << width) - 1; // U64: the bit pattern
  return {0.0, std::ldexp(1.0, width), 0, highest};
}

/// Truncates toward zero and saturates; NaN becomes 0. Bool: `!= 0`.
void doublesToIntegers(DType to, const double *source, int64_t *target, size_t count) {
  if (to == DType::Bool) {
    for (size_t i = 0; i < count; ++i)
      target[i] = source[i] != 0;
    return;
  }
  IntegerRange range = rangeOf(to);
  for (size_t i = 0; i < count; ++i) {
    double value = source[i];
    if (std::isnan(value))
      target[i] = 0;
    else if (value >= range.end)
      target[i] = range.highest;
    else if (value <= range.low)
      target[i] = range.lowest;
    else
      target[i] =
          value < 0 ? static_cast<int64_t>(value) : static_cast<int64_t>(static_cast<uint64_t>(value));
  }
}

void convertBlock(DType from, const void *source, DType to, void *target, size_t count) {
  float floats[blockSize];
  double doubles[blockSize];
  int64_t integers[blockSize];
  if (fitsF32(from) && fitsF32(to)) {
    widenToF32(from, source, floats, count);
    return narrowFromF32(to, floats, target, count);
  }
  if (!isFloat(from)) {
    loadIntegers(from, source, integers, count);
    if (!isFloat(to))
      return storeIntegers(to, integers, target, count);
    bool isUnsigned = from == DType::U64;
    if (to == DType::F32) { // one rounding, straight from the integer
      for (size_t i = 0; i < count; ++i)
        floats[i] = isUnsigned ? static_cast<float>(static_cast<uint64_t>(integers[i]))
                               : static_cast<float>(integers[i]);
      std::memcpy(target, floats, count * sizeof(float));
      return;
    }
    for (size_t i = 0; i < count; ++i)
      doubles[i] = to == DType::F64 ? integerToDouble(integers[i], isUnsigned)
                                    : integerToOddDouble(integers[i], isUnsigned);
    return storeDoubles(to, doubles, target, count);
  }
  if (from == DType::F64) {
    std::memcpy(doubles, source, count * sizeof(double));
  } else {
    widenToF32(from, source, floats, count);
    widenFloats(floats, doubles, count);
  }
  if (isFloat(to))
    return storeDoubles(to, doubles, target, count);
  doublesToIntegers(to, doubles, integers, count);
  storeIntegers(to, integers, target, count);
}

} // namespace

void convert(DType from, const void *source, DType to, void *target, size_t count) {
  if (count == 0)
    return;
  if (from == to && from != DType::Bool) {
    std::memcpy(target, source, count * byteSize(from));
    return;
  }
  if (to == DType::F32 && fitsF32(from))
    return widenToF32(from, source, static_cast<float *>(target), count);
  if (from == DType::F32 && fitsF32(to))
    return narrowFromF32(to, static_cast<const float *>(source), target, count);
  const char *read = static_cast<const char *>(source);
  char *write = static_cast<char *>(target);
  for (size_t done = 0; done < count; done += blockSize)
    convertBlock(from, read + done * byteSize(from), to, write + done * byteSize(to),
                 std::min(blockSize, count - done));
}

void convertToF32(DType from, const void *source, float *target, size_t count) {
  convert(from, source, DType::F32, target, count);
}

void convertFromF32(DType to, const float *source, void *target, size_t count) {
  convert(DType::F32, source, to, target, count);
}

} // namespace fusion
