// Conversions against a slow model that only knows how to decode and to compare.
#include "ir/base/DType.h"

#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

using namespace fusion;

namespace {

struct Format {
  DType type;
  int width, mantissaBits;
  bool saturates;
  std::function<float(uint32_t)> decode;
  std::function<uint32_t(float)> encode;
};

const std::vector<Format> &formats() {
  static const std::vector<Format> all = {
      {DType::F16, 16, 10, false, [](uint32_t c) { return f16ToF32(static_cast<uint16_t>(c)); }, f32ToF16},
      {DType::BF16, 16, 7, false, [](uint32_t c) { return bf16ToF32(static_cast<uint16_t>(c)); }, f32ToBF16},
      {DType::F8E4M3, 8, 3, true, [](uint32_t c) { return f8e4m3ToF32(static_cast<uint8_t>(c)); },
       f32ToF8E4M3},
      {DType::F8E5M2, 8, 2, true, [](uint32_t c) { return f8e5m2ToF32(static_cast<uint8_t>(c)); },
       f32ToF8E5M2},
  };
  return all;
}

/// The value of a code from the definition of the format: an independent decoder.
double valueOf(const Format &format, uint32_t code) {
  int exponentBits = format.width - 1 - format.mantissaBits;
  int bias = (1 << (exponentBits - 1)) - 1;
  int mantissa = static_cast<int>(code & ((1u << format.mantissaBits) - 1));
  int exponent = static_cast<int>(code >> format.mantissaBits) & ((1 << exponentBits) - 1);
  double sign = code >> (format.width - 1) ? -1 : 1;
  bool topExponent = exponent == (1 << exponentBits) - 1;
  if (format.type == DType::F8E4M3 ? topExponent && mantissa == 7 : topExponent && mantissa != 0)
    return std::nan("");
  if (topExponent && format.type != DType::F8E4M3)
    return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0)
    return sign * std::ldexp(mantissa, 1 - bias - format.mantissaBits);
  return sign * std::ldexp(mantissa + (1 << format.mantissaBits), exponent - bias - format.mantissaBits);
}

/// The non-negative finite values of a format in order; their index is their code.
std::vector<double> positiveValues(const Format &format) {
  std::vector<double> values;
  for (uint32_t code = 0; code < (1u << (format.width - 1)); ++code)
    if (double value = valueOf(format, code); std::isfinite(value))
      values.push_back(value);
  return values;
}

/// Nearest even by search. `values` as above.
uint32_t slowEncode(const Format &format, const std::vector<double> &values, double input) {
  uint32_t sign = std::signbit(input) ? 1u << (format.width - 1) : 0;
  double magnitude = std::fabs(input);
  uint32_t last = static_cast<uint32_t>(values.size()) - 1;
  double step = values[last] - values[last - 1];
  if (magnitude >= values[last] + step / 2 || std::isinf(input))
    return sign | (format.saturates ? last : last + 1);
  auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  if (above == values.end())
    return sign | last;
  uint32_t high = static_cast<uint32_t>(above - values.begin());
  if (high == 0 || *above == magnitude)
    return sign | high;
  double toLow = magnitude - values[high - 1], toHigh = *above - magnitude;
  if (toLow == toHigh)
    return sign | (high % 2 == 0 ? high : high - 1);
  return sign | (toLow < toHigh ? high - 1 : high);
}

TEST(Conversion, EveryCodeDecodesByDefinitionAndRoundTrips) {
  for (const Format &format : formats())
    for (uint32_t code = 0; code < (1u << format.width); ++code) {
      double expected = valueOf(format, code);
      float decoded = format.decode(code);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(decoded)) << name(format.type) << " " << code;
        ASSERT_TRUE(std::isnan(format.decode(format.encode(decoded))));
        continue;
      }
      ASSERT_EQ(decoded, static_cast<float>(expected)) << name(format.type) << " " << code;
      ASSERT_EQ(std::signbit(decoded), std::signbit(expected));
      if (std::isfinite(expected) || !format.saturates)
        ASSERT_EQ(format.encode(decoded), code) << name(format.type);
    }
}

TEST(Conversion, RoundsToNearestEvenAroundEveryMidpoint) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const Format &format : formats()) {
    std::vector<double> values = positiveValues(format);
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      float middle = static_cast<float>((values[i] + values[i + 1]) / 2);
      for (float near : {middle, std::nextafter(middle, infinity), std::nextafter(middle, -infinity)})
        for (float input : {near, -near})
          ASSERT_EQ(format.encode(input), slowEncode(format, values, input))
              << name(format.type) << " " << input;
    }
  }
}

TEST(Conversion, RoundsRandomBitPatterns) {
  std::mt19937 random(1);
  for (const Format &format : formats()) {
    std::vector<double> values = positiveValues(format);
    for (int i = 0; i < 300000; ++i) {
      float input = std::bit_cast<float>(static_cast<uint32_t>(random()));
      if (std::isnan(input))
        ASSERT_TRUE(std::isnan(format.decode(format.encode(input))));
      else
        ASSERT_EQ(format.encode(input), slowEncode(format, values, input))
            << name(format.type) << " " << input;
    }
  }
}

TEST(Conversion, OverflowNaNAndInfinity) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32ToF16(65519.0f), 0x7bff);
  EXPECT_EQ(f32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(f32ToF16(-1e30f), 0xfc00);
  EXPECT_EQ(f32ToBF16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32ToBF16(std::bit_cast<float>(0x7f800001u)) & 0x7fc0, 0x7fc0);
  EXPECT_EQ(f32ToF8E4M3(449.0f), 0x7e);
  EXPECT_EQ(f32ToF8E4M3(infinity), 0x7e);
  EXPECT_EQ(f32ToF8E4M3(-1e30f), 0xfe);
  EXPECT_EQ(f32ToF8E5M2(61440.0f), 0x7b);
  EXPECT_EQ(f32ToF8E5M2(-infinity), 0xfb);
  EXPECT_EQ(roundTo(DType::F8E4M3, 1e9f), 448.0f);
  EXPECT_EQ(roundTo(DType::F32, 1.1f), 1.1f);
}

TEST(Conversion, BulkIsScalar) {
  std::mt19937 random(2);
  for (size_t count : {0, 1, 7, 1023, 1025, 5000}) {
    std::vector<float> inputs(count);
    for (float &input : inputs)
      input = std::bit_cast<float>(static_cast<uint32_t>(random()));
    for (const Format &format : formats()) {
      std::vector<uint16_t> codes(count + 1, 0xabcd);
      convertFromF32(format.type, inputs.data(), codes.data(), count);
      std::vector<float> back(count + 1, 7.0f);
      convertToF32(format.type, codes.data(), back.data(), count);
      for (size_t i = 0; i < count; ++i) {
        uint32_t code = format.width == 8 ? reinterpret_cast<const uint8_t *>(codes.data())[i] : codes[i];
        ASSERT_EQ(code, format.encode(inputs[i]));
        ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(format.decode(code)));
      }
      ASSERT_EQ(codes[count], 0xabcd); // nothing is written past the end
      ASSERT_EQ(back[count], 7.0f);
    }
  }
}

template <class From, class To>
To convertOne(DType from, From value, DType to) {
  To result{};
  convert(from, &value, to, &result, 1);
  return result;
}

TEST(Conversion, WideTypesRoundOnce) {
  std::mt19937_64 random(3);
  for (const Format &format : formats()) {
    std::vector<double> values = positiveValues(format);
    for (int i = 0; i < 100000; ++i) {
      // Just beside a midpoint, where rounding to f32 first would land on it.
      size_t at = random() % (values.size() - 1);
      double middle = (values[at] + values[at + 1]) / 2;
      for (double input : {std::nextafter(middle, 1e300), std::nextafter(middle, -1e300), -middle}) {
        uint16_t code = convertOne<double, uint16_t>(DType::F64, input, format.type);
        ASSERT_EQ(code, slowEncode(format, values, input)) << name(format.type) << " " << input;
      }
    }
  }
  // 2^62 + 2^54 is a midpoint of bf16; one more must go up although f64 cannot hold it.
  int64_t middle = (int64_t{1} << 62) + (int64_t{1} << 54);
  EXPECT_EQ((convertOne<int64_t, uint16_t>(DType::I64, middle, DType::BF16)), 0x5e80);
  EXPECT_EQ((convertOne<int64_t, uint16_t>(DType::I64, middle + 1, DType::BF16)), 0x5e81);
  EXPECT_EQ((convertOne<int64_t, uint16_t>(DType::I64, -middle - 1, DType::BF16)), 0xde81);
  EXPECT_EQ((convertOne<int64_t, float>(DType::I64, 16777217, DType::F32)), 16777216.0f);
  EXPECT_EQ((convertOne<uint64_t, double>(DType::U64, ~uint64_t{0}, DType::F64)), 18446744073709551616.0);
}

TEST(Conversion, FloatToIntegerTruncatesAndSaturates) {
  auto toByte = [](float value) { return convertOne<float, int8_t>(DType::F32, value, DType::I8); };
  EXPECT_EQ(toByte(-1.9f), -1);
  EXPECT_EQ(toByte(1e9f), 127);
  EXPECT_EQ(toByte(-1e9f), -128);
  EXPECT_EQ(toByte(std::nanf("")), 0);
  EXPECT_EQ((convertOne<float, uint8_t>(DType::F32, -3.0f, DType::U8)), 0);
  EXPECT_EQ((convertOne<float, uint8_t>(DType::F32, 300.0f, DType::U8)), 255);
  EXPECT_EQ((convertOne<float, int8_t>(DType::F32, -9.0f, DType::I4)), -8);
  EXPECT_EQ((convertOne<float, uint8_t>(DType::F32, 16.0f, DType::U4)), 15);
  EXPECT_EQ((convertOne<float, int64_t>(DType::F32, 1e30f, DType::I64)), INT64_MAX);
  EXPECT_EQ((convertOne<float, int64_t>(DType::F32, -1e30f, DType::I64)), INT64_MIN);
  EXPECT_EQ((convertOne<float, uint64_t>(DType::F32, 1e19f, DType::U64)), 9999999980506447872ull);
  EXPECT_EQ((convertOne<float, uint64_t>(DType::F32, 1e30f, DType::U64)), UINT64_MAX);
  EXPECT_EQ((convertOne<float, uint8_t>(DType::F32, 0.25f, DType::Bool)), 1);
  EXPECT_EQ((convertOne<float, uint8_t>(DType::F32, -0.0f, DType::Bool)), 0);
}

TEST(Conversion, IntegersWrap) {
  EXPECT_EQ((convertOne<int32_t, int8_t>(DType::I32, 200, DType::I8)), -56);
  EXPECT_EQ((convertOne<int32_t, uint8_t>(DType::I32, -1, DType::U8)), 255);
  EXPECT_EQ((convertOne<int32_t, int8_t>(DType::I32, 9, DType::I4)), -7);
  EXPECT_EQ((convertOne<int8_t, uint64_t>(DType::I8, -1, DType::U64)), UINT64_MAX);
  EXPECT_EQ((convertOne<uint8_t, int32_t>(DType::Bool, 17, DType::I32)), 1);
  EXPECT_EQ((convertOne<int64_t, uint8_t>(DType::I64, int64_t{1} << 40, DType::Bool)), 1);
}

TEST(Conversion, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::U4); ++i) {
    DType type = static_cast<DType>(i);
    EXPECT_EQ(dtypeFromName(name(type)), type);
  }
  EXPECT_EQ(name(DType::F8E4M3), "f8E4M3FN");
  EXPECT_FALSE(dtypeFromName("f7"));
}

} // namespace
