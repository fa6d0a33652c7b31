// Element types and their conversions: the one place where rounding is defined on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fusion {

enum class DType : uint8_t {
  Bool, I8, U8, I16, U16, I32, U32, I64, U64,
  F8E4M3, ///< MLIR f8E4M3FN: no infinity, largest 448
  F8E5M2, F16, BF16, F32, F64,
  I4, U4, ///< one value a byte on the host (sign- or zero-extended); packed only inside weight files
};

/// Bytes of one element in memory (I4/U4: 1).
size_t byteSize(DType type);
bool isFloat(DType type);
bool isInteger(DType type);          ///< signed or unsigned, not Bool
bool isSignedInteger(DType type);
/// MLIR's spelling: i1, i8, ui8, f8E4M3FN, bf16, …
std::string_view name(DType type);
std::optional<DType> dtypeFromName(std::string_view mlirName);

// Scalar conversions. To a narrower float: round to nearest even; f8 saturates at its largest finite
// value (as CUDA's __NV_SATFINITE), NaN stays NaN; f16/bf16 overflow to infinity.
float f16ToF32(uint16_t bits);
uint16_t f32ToF16(float value);
float bf16ToF32(uint16_t bits);
uint16_t f32ToBF16(float value);
float f8e4m3ToF32(uint8_t bits);
uint8_t f32ToF8E4M3(float value);
float f8e5m2ToF32(uint8_t bits);
uint8_t f32ToF8E5M2(float value);
/// `value` rounded to `type` and back: what an op whose result has that type produces. Floats only.
float roundTo(DType type, float value);

// Bulk forms, vectorised where the machine can. `count` elements; the ranges do not overlap.
void convertToF32(DType from, const void *source, float *target, size_t count);
void convertFromF32(DType to, const float *source, void *target, size_t count);
/// Any type to any type with C semantics for integers (wrap), saturation for f8, truncation toward
/// zero for float → integer (saturating, NaN → 0, as PTX cvt.rzi), `!= 0` for Bool.
void convert(DType from, const void *source, DType to, void *target, size_t count);

} // namespace fusion
