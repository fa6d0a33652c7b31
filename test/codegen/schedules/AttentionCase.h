// Modules of one attention, for the tests of its kernels.
#pragma once

#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {

inline double toleranceOf(const std::string &type) {
  return type == "f16" ? 6e-4 : type == "bf16" ? 5e-3 : 3e-6;
}

struct Attention {
  std::string type = "f32";
  int heads = 4, kvHeads = 2, width = 32, valueWidth = 32;
  std::string mask;     ///< dims and element type, such as "?x1x?x?xi1"
  std::string maskDims; ///< such as `"b", 1, "q", "k"`
  std::string attributes = "scale = 0.25 : f32";
};

inline std::string module(const Attention &a) {
  const std::string q = fmt::format("tensor<?x{}x?x{}x{}>", a.heads, a.width, a.type);
  const std::string k = fmt::format("tensor<?x{}x?x{}x{}>", a.kvHeads, a.width, a.type);
  const std::string v = fmt::format("tensor<?x{}x?x{}x{}>", a.kvHeads, a.valueWidth, a.type);
  const std::string y = fmt::format("tensor<?x{}x?x{}x{}>", a.heads, a.valueWidth, a.type);
  const bool masked = !a.mask.empty();
  return fmt::format(R"(
    func.func @main(%q: {0} {{nn.dims = ["b", {4}, "q", {6}]}}, %k: {1} {{nn.dims = ["b", {5}, "k", {6}]}},
                    %v: {2} {{nn.dims = ["b", {5}, "k", {7}]}}{8}) -> {3} {{
      %y = nn.attention %q, %k, %v{9} {{{10}}} : ({0}, {1}, {2}{11}) -> {3}
      return %y : {3}
    }})",
                     q, k, v, y, a.heads, a.kvHeads, a.width, a.valueWidth,
                     masked ? fmt::format(", %m: tensor<{}> {{nn.dims = [{}]}}", a.mask, a.maskDims) : "",
                     masked ? ", %m" : "", a.attributes, masked ? fmt::format(", tensor<{}>", a.mask) : "");
}

/// Codes of 4 bits, %`name`c of `f32`, in the halves of the bytes %`bytes`: `stem` is their type up to the
/// last dim, `dims` are those of their pairs.
inline std::string unpacked(const std::string &name, const std::string &bytes, const std::string &stem,
                            const std::string &dims, int width) {
  const std::string half = fmt::format("{}{}xui8>", stem, width / 2),
                    wide = fmt::format("{}{}x", stem, width),
                    one = fmt::format("{}{}x1xui8>", stem, width / 2);
  return fmt::format(
      R"(
      %{0}15 = nn.constant {{value = dense<15> : tensor<ui8>}} : () -> tensor<ui8>
      %{0}16 = nn.constant {{value = dense<16> : tensor<ui8>}} : () -> tensor<ui8>
      %{0}8 = nn.constant {{value = dense<8.0> : tensor<f32>}} : () -> tensor<f32>
      %{0}h = nn.div %{1}, %{0}16 : ({2}, tensor<ui8>) -> {2}
      %{0}hr = nn.reshape %{0}h {{shape = [{5}, {6}, 1]}} : ({2}) -> {3}
      %{0}l = nn.and %{1}, %{0}15 : ({2}, tensor<ui8>) -> {2}
      %{0}lr = nn.reshape %{0}l {{shape = [{5}, {6}, 1]}} : ({2}) -> {3}
      %{0}lh = nn.concat %{0}lr, %{0}hr {{axis = 4 : i64}} : ({3}, {3}) -> {8}
      %{0}u = nn.reshape %{0}lh {{shape = [{5}, {7}]}} : ({8}) -> {4}ui8>
      %{0}f = nn.cast %{0}u : ({4}ui8>) -> {4}f32>
      %{0}c = nn.sub %{0}f, %{0}8 : ({4}f32>, tensor<f32>) -> {4}f32>
)",
      name, bytes, half, one, wide, dims, width / 2, width, fmt::format("{}{}x2xui8>", stem, width / 2));
}

inline SymbolValues sizes(int64_t batch, int64_t queries, int64_t keys) {
  return {{"b", batch}, {"q", queries}, {"k", keys}};
}

} // namespace fusion::test
