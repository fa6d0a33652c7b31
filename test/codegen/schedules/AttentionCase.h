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

inline SymbolValues sizes(int64_t batch, int64_t queries, int64_t keys) {
  return {{"b", batch}, {"q", queries}, {"k", keys}};
}

} // namespace fusion::test
