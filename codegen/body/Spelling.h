// How types, literals and single elements are written in emitted source.
#pragma once

#include "ir/scalar/Graph.h"

#include <string>
#include <string_view>

namespace fusion::body {

/// C++ spelling of an element type in emitted source: f16, bf16, f32, i64, bool, f8e4m3, …
std::string spelling(DType type);
/// A literal that round-trips: `9.99999997e-07f`, `inf_f32()`, `true`, `42ll`; negative ones in parentheses.
std::string literal(DType type, double value);
/// The same for integer types and bool, exact over the whole range (unsigned types: the bits).
std::string integerLiteral(DType type, int64_t value);

/// `to_f32(load(in0 + i))`: an element as registers hold it. `early`: by load_early.
std::string loadElement(DType element, std::string_view pointer, std::string_view index, bool early = false);
/// `from_f32<f16>(x)`: the element of a narrow float that a register holds, rounded by this where it is not
/// yet; only what would lose infinities is rounded before.
std::string toElement(DType element, std::string_view value);
/// The same for a vector: `vec_from_f32<f16>(y)`.
std::string toVector(DType element, std::string_view values);
/// `store(out0 + i, from_f32<f16>(x))`: the statement, without semicolon, that stores what a register holds.
std::string storeElement(DType element, std::string_view pointer, std::string_view index,
                         std::string_view value);
/// `mul` of Kind::Mul: the functions for pairs are called mul_to and mul_vec.
const char *pairFunction(scalar::Kind kind);

} // namespace fusion::body
