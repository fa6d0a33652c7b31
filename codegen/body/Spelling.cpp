#include "codegen/body/Spelling.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace fusion::body {

using scalar::Kind;

std::string spelling(DType type) {
  switch (type) {
  case DType::Bool:
    return "bool";
  case DType::I4:
    return "i8";
  case DType::U4:
    return "u8";
  case DType::F8E4M3:
    return "f8e4m3";
  case DType::F8E5M2:
    return "f8e5m2";
  case DType::I8:
    return "i8";
  case DType::U8:
    return "u8";
  case DType::I16:
    return "i16";
  case DType::U16:
    return "u16";
  case DType::I32:
    return "i32";
  case DType::U32:
    return "u32";
  case DType::I64:
    return "i64";
  case DType::U64:
    return "u64";
  case DType::F16:
    return "f16";
  case DType::BF16:
    return "bf16";
  case DType::F32:
    return "f32";
  case DType::F64:
    return "f64";
  }
  return "";
}

std::string integerLiteral(DType type, int64_t value) {
  auto wrap = [&](std::string text) { return value < 0 ? "(" + text + ")" : text; };
  switch (type) {
  case DType::Bool:
    return value ? "true" : "false";
  case DType::I64:
    return value == INT64_MIN ? "(-9223372036854775807ll - 1)" : wrap(std::to_string(value) + "ll");
  case DType::U64:
    return std::to_string(static_cast<uint64_t>(value)) + "ull";
  case DType::U32:
    return std::to_string(static_cast<uint32_t>(value)) + "u";
  case DType::I32:
    return value == INT32_MIN ? "(-2147483647 - 1)" : wrap(std::to_string(value));
  default:
    return fmt::format("({}){}", spelling(type), wrap(std::to_string(value)));
  }
}

std::string literal(DType type, double value) {
  const bool wide = type == DType::F64;
  if (std::isnan(value))
    return wide ? "(f64)nan_f32()" : "nan_f32()";
  if (std::isinf(value))
    return fmt::format("({}{}inf_f32())", wide ? "(f64)" : "", value < 0 ? "-" : "");
  // The shortest digits that read back as the same number.
  std::string digits = wide ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (digits.find_first_of(".e") == std::string::npos)
    digits += ".0";
  if (!wide)
    digits += "f";
  return digits[0] == '-' ? "(" + digits + ")" : digits;
}

const char *pairFunction(Kind kind) { return kind == Kind::Mul ? "mul" : kind == Kind::Add ? "add" : "sub"; }

std::string loadElement(DType element, std::string_view pointer, std::string_view index, bool early) {
  const std::string text = fmt::format("{}({} + {})", early ? "load_early" : "load", pointer, index);
  return scalar::isNarrow(element) ? fmt::format("to_f32({})", text) : text;
}

std::string toElement(DType element, std::string_view value) {
  return fmt::format("{}from_f32<{}>({})", scalar::losesInfinity(element) ? "exact_" : "", spelling(element),
                     value);
}

std::string toVector(DType element, std::string_view values) {
  return fmt::format("{}vec_from_f32<{}>({})", scalar::losesInfinity(element) ? "exact_" : "",
                     spelling(element), values);
}

std::string storeElement(DType element, std::string_view pointer, std::string_view index,
                         std::string_view value) {
  const std::string text =
      scalar::isNarrow(element) ? toElement(element, value) : std::string(value);
  return fmt::format("store({} + {}, {})", pointer, index, text);
}

} // namespace fusion::body
