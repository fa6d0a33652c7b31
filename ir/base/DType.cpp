#include "ir/base/DType.h"

#include "ir/base/FloatBits.h"

#include <array>

namespace fusion {

namespace {
struct TypeFacts {
  std::string_view name;
  uint8_t bytes;
};
constexpr std::array<TypeFacts, 17> typeFacts{{
    {"i1", 1},
    {"i8", 1},
    {"ui8", 1},
    {"i16", 2},
    {"ui16", 2},
    {"i32", 4},
    {"ui32", 4},
    {"i64", 8},
    {"ui64", 8},
    {"f8E4M3FN", 1},
    {"f8E5M2", 1},
    {"f16", 2},
    {"bf16", 2},
    {"f32", 4},
    {"f64", 8},
    {"i4", 1},
    {"ui4", 1},
}};
const TypeFacts &facts(DType type) { return typeFacts[static_cast<size_t>(type)]; }
} // namespace

size_t byteSize(DType type) { return facts(type).bytes; }

bool isFloat(DType type) { return type >= DType::F8E4M3 && type <= DType::F64; }

bool isInteger(DType type) { return type != DType::Bool && !isFloat(type); }

bool isSignedInteger(DType type) {
  return type == DType::I4 || type == DType::I8 || type == DType::I16 || type == DType::I32 ||
         type == DType::I64;
}

std::string_view name(DType type) { return facts(type).name; }

std::optional<DType> dtypeFromName(std::string_view mlirName) {
  for (size_t i = 0; i < typeFacts.size(); ++i)
    if (typeFacts[i].name == mlirName)
      return static_cast<DType>(i);
  return std::nullopt;
}

float f16ToF32(uint16_t bits) { return bits::decodeHalf(bits); }
uint16_t f32ToF16(float value) { return bits::encodeHalf(value); }
float bf16ToF32(uint16_t bits) { return bits::decodeBFloat(bits); }
uint16_t f32ToBF16(float value) { return bits::encodeBFloat(value); }
float f8e4m3ToF32(uint8_t bits) { return bits::decodeE4M3(bits); }
uint8_t f32ToF8E4M3(float value) { return bits::encodeE4M3(value); }
float f8e5m2ToF32(uint8_t bits) { return bits::decodeE5M2(bits); }
uint8_t f32ToF8E5M2(float value) { return bits::encodeE5M2(value); }

float roundTo(DType type, float value) {
  switch (type) {
  case DType::F16:
    return f16ToF32(f32ToF16(value));
  case DType::BF16:
    return bf16ToF32(f32ToBF16(value));
  case DType::F8E4M3:
    return f8e4m3ToF32(f32ToF8E4M3(value));
  case DType::F8E5M2:
    return f8e5m2ToF32(f32ToF8E5M2(value));
  default:
    return value;
  }
}

} // namespace fusion
