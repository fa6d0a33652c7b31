#include "ir/scalar/Quantize.h"

#include <utility>

namespace fusion::scalar {

/// Both in the wider of their float types: f32 or f64.
static std::pair<Value, Value> widened(Graph &g, Value a, Value b) {
  const DType type = g.type(a) == DType::F64 || g.type(b) == DType::F64 ? DType::F64 : DType::F32;
  return {g.convertRegister(type, a), g.convertRegister(type, b)};
}

Value quantized(Graph &g, DType to, Value x, Value scale, Value zero) {
  const auto [dividend, divisor] = widened(g, x, scale);
  const Value quotient = g.type(dividend) == DType::F64
                             ? g.convertRegister(DType::F32, g.div(dividend, divisor))
                             : g.quotient(dividend, divisor);
  if (isFloat(to))
    return g.convert(to, quotient);
  Value whole = g.call("rint_", {quotient});
  if (zero)
    whole = g.add(whole, g.convertRegister(DType::F32, zero));
  if (to == DType::I4 || to == DType::U4) {
    whole = g.call("max_nan", {whole, g.like(whole, to == DType::I4 ? -8 : 0)});
    whole = g.call("min_nan", {whole, g.like(whole, to == DType::I4 ? 7 : 15)});
  }
  return g.convertRegister(to, whole); // which saturates
}

Value dequantized(Graph &g, DType to, Value q, Value scale, Value zero) {
  Value shifted = g.convertRegister(DType::F32, q);
  if (zero)
    shifted = g.sub(shifted, g.convertRegister(DType::F32, zero));
  const auto [value, factor] = widened(g, shifted, scale);
  return g.convert(to, g.mul(value, factor));
}

} // namespace fusion::scalar
