#include "Motifs.h"

#include <fmt/format.h>

namespace fusion::fuzz {
namespace {

/// Of a type of 8 bits, by given scales or those of the data. The quantised values leave, or what they stand
/// for.
void quantized(GraphBuilder &b, int x) {
  const std::string to = b.random.of({"i8", "f8E4M3FN", "i8", "f8E5M2", "ui8"});
  if (b.random.chance(50) && to != "ui8") {
    const bool grouped = (b.last(x) == "64" || b.last(x) == "128") && b.random.chance(50);
    const std::string groups = grouped ? b.last(x) == "64" ? "2" : "4" : "1";
    b.buildAll("dynamic_quantize", {x}, {b.of(x, to), {"f32", b.withLast(x, groups).dims}},
               grouped ? " {group_size = 32 : i64}" : "");
    return;
  }
  const std::string scales = b.random.chance(70) ? "f32" : b.typeOf(x).element;
  const bool columns = b.random.chance(20);
  const int scale = b.input({scales, columns ? std::vector{b.last(x)} : std::vector<std::string>{}}, "scale");
  const std::string attributes = columns ? " {axis = -1 : i64}" : "";
  std::vector<int> scaling = {scale};
  if (!to.starts_with("f8") && b.random.chance(40))
    scaling.push_back(b.input({to, b.typeOf(scale).dims}, "zero"));
  auto with = [&](int value) {
    std::vector<int> operands = {value};
    operands.insert(operands.end(), scaling.begin(), scaling.end());
    return operands;
  };
  const int codes = b.build("quantize", with(x), b.of(x, to), attributes);
  if (b.random.chance(40))
    b.keep(b.build("dequantize", with(b.maybeShared(codes)), b.typeOf(x), attributes));
}

} // namespace

/// A norm or a gated activation, with a sum before it at times, and its quantisation.
void normQuantized(GraphBuilder &b) {
  int x = b.any();
  if (b.random.chance(25)) {
    quantized(b, b.maybeShared(b.binary("mul", b.activation(x), b.residual(x))));
    return;
  }
  if (b.random.chance(50)) {
    x = b.maybeShared(b.binary("add", x, b.residual(x)));
    if (b.random.chance(50))
      b.keep(x);
  }
  int y = b.maybeShared(b.norm(x));
  if (b.random.chance(20))
    y = b.cast(y, b.random.of({"f16", "bf16", "f32"}));
  quantized(b, y);
}

/// A matmul by a weight of 8 or 4 bits, of whole columns or blocks of them.
void scaledMatmul(GraphBuilder &b) {
  const std::string element = b.random.of({"f32", "f16", "bf16"}), rows = b.random.of({"b", "5", "1"});
  int x = b.input({element, {rows, "64"}});
  const std::string code = b.random.of({"i8", "ui8", "f8E4M3FN"}), columns = b.random.of({"32", "24", "7"});
  const bool blocks = b.random.chance(50), transposed = b.random.chance(50);
  Type weight = {code, {"64", columns}}, scales = {element, {columns}};
  if (transposed)
    weight.dims = {columns, "64"};
  std::string attributes = fmt::format(" {{axis = {} : i64}}", transposed ? 0 : 1);
  if (blocks) {
    scales.dims =
        transposed ? std::vector<std::string>{columns, "2"} : std::vector<std::string>{"2", columns};
    attributes = fmt::format(" {{axis = {} : i64, block_size = 32 : i64}}", transposed ? 1 : 0);
  }
  std::vector<int> operands = {b.input(weight, code.starts_with("f8") ? "" : "code"),
                               b.input(scales, "scale")};
  if (code == "ui8" && b.random.chance(70))
    operands.push_back(b.input({code, scales.dims}, "zero"));
  const int w = b.maybeShared(b.build("dequantize", operands, {element, weight.dims}, attributes));
  if (b.random.chance(25)) {
    const std::vector<int> quantising = {x, b.input({"f32", {}}, "scale")};
    const int codes = b.build("quantize", quantising, {"i8", {rows, "64"}});
    x = b.build("dequantize", {codes, quantising[1]}, {element, {rows, "64"}});
  }
  const int y = b.maybeShared(
      b.build("matmul", {x, w}, {element, {rows, columns}}, transposed ? " {transpose_b = true}" : ""));
  b.keep(b.random.chance(40) ? b.activation(y) : y);
}

/// Codes less their zero points, multiplied as integers, and scaled.
void integerMatmul(GraphBuilder &b) {
  const std::string rows = b.random.of({"b", "5"}), columns = b.random.of({"32", "6"}),
                    code = b.random.of({"ui8", "i8"});
  auto widened = [&](const Type &type, const std::string &role) {
    const int x = b.input(type, role);
    return b.build("cast", {x}, {"i32", type.dims});
  };
  int a = widened({code, {rows, "64"}}, "code");
  if (b.random.chance(60)) {
    const int zero = widened({code, {}}, "zero");
    a = b.random.chance(85) ? b.build("sub", {a, zero}, b.typeOf(a)) : b.build("sub", {zero, a}, b.typeOf(a));
  }
  const int w = widened({"i8", {"64", columns}}, "code");
  const int y = b.maybeShared(b.build("matmul", {a, w}, {"i32", {rows, columns}}));
  if (b.random.chance(70))
    b.keep(b.binary("mul", b.cast(y, "f32"), b.input({"f32", {columns}}, "scale")));
}

} // namespace fusion::fuzz
