// Row kernels whose results stand in another order than their rows: the norm of all heads together, split
// into heads and rotated.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) {
  return type == "f16" ? 1e-3 : type == "bf16" ? 6e-3 : 4e-6;
}

struct Whole {
  std::string type = "bf16", table = "f32";
  int heads = 4, size = 32, rotary = 32, entries = 32; ///< entries: of the tables
  bool interleaved = false;
  std::string norm = "rms_norm", after = ""; ///< after: a line from %n to %m, else they are one
};

/// rope(transpose(reshape(norm(x)))) over [b, s, heads * size].
std::string module(const Whole &w) {
  const int width = w.heads * w.size;
  const std::string x = fmt::format("tensor<?x?x{}x{}>", width, w.type),
                    weight = fmt::format("tensor<{}x{}>", width, w.type),
                    r = fmt::format("tensor<?x?x{}x{}x{}>", w.heads, w.size, w.type),
                    y = fmt::format("tensor<?x{}x?x{}x{}>", w.heads, w.size, w.type),
                    t = fmt::format("tensor<?x1x?x{}x{}>", w.entries, w.table);
  return fmt::format(R"(
    func.func @main(%x: {0} {{nn.dims = ["b", "s", {5}]}}, %w: {1}, %cos: {4} {{nn.dims = ["b", 1, "s", {6}]}},
                    %sin: {4} {{nn.dims = ["b", 1, "s", {6}]}}) -> {3} {{
      %y = fusion.group "qk_norm_rope" schedule "row" (%a = %x, %v = %w, %c = %cos, %d = %sin) : ({0}, {1}, {4}, {4}) -> {3} {{
        %n = nn.{7} %a, %v {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}
        {8}
        %h = nn.reshape %{9} {{shape = ["b", "s", {10}, {11}]}} : ({0}) -> {2}
        %t = nn.transpose %h {{perm = array<i64: 0, 2, 1, 3>}} : ({2}) -> {3}
        %o = nn.rope %t, %c, %d {{compute = {12}, interleaved = {13}, rotary_dim = {14} : i64}} : ({3}, {4}, {4}) -> {3}
        fusion.yield %o : {3}
      }}
      return %y : {3}
    }})",
                     x, weight, r, y, t, width, w.entries, w.norm, w.after, w.after.empty() ? "n" : "m",
                     w.heads, w.size, w.table, w.interleaved ? "true" : "false", w.rotary);
}

TEST(RowForms, NormOfAllHeadsThenRope) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (bool interleaved : {false, true})
      for (auto [heads, size] : {std::pair(4, 32), {3, 20}, {4, 20}, {40, 128}, {5, 6}})
        for (int rotary : {size, size / 2 / 2 * 2})
          for (int entries : {rotary, rotary / 2}) {
            Whole w{type, heads == 40 ? type : "f32", heads, size, rotary, entries, interleaved};
            check(rowSchedule(), {module(w), {{"b", 2}, {"s", 3}}, toleranceOf(type), {}, entries == rotary});
          }
  check(rowSchedule(), {module({}), {{"b", 1}, {"s", 0}}});
}

TEST(RowForms, LayerNormAndScalarOpsBeforeTheSplit) {
  Whole w{"f16", "f16", 4, 32, 16, 16, false, "layer_norm",
          "%m = nn.relu %n : (tensor<?x?x128xf16>) -> tensor<?x?x128xf16>"};
  const std::string source = check(rowSchedule(), {module(w), {{"b", 1}, {"s", 5}}, toleranceOf("f16")});
  EXPECT_NE(source.find("load_vec<f16, 8>"), std::string::npos);
  EXPECT_NE(source.find("store_vec"), std::string::npos);
}

/// The heads stay after the tokens, and the plain norm leaves too.
TEST(RowForms, HeadsWithoutTranspose) {
  for (const char *type : {"bf16", "f32"})
    check(rowSchedule(), {fmt::format(R"(
    func.func @main(%x: tensor<7x192x{0}>, %w: tensor<192x{0}>, %b: tensor<48x{0}>) -> (tensor<7x4x48x{0}>, tensor<7x192x{0}>) {{
      %y:2 = fusion.group "heads" schedule "row" (%a = %x, %v = %w, %c = %b)
          : (tensor<7x192x{0}>, tensor<192x{0}>, tensor<48x{0}>) -> (tensor<7x4x48x{0}>, tensor<7x192x{0}>) {{
        %n = nn.rms_norm %a, %v {{eps = 1.0e-6 : f32}} : (tensor<7x192x{0}>, tensor<192x{0}>) -> tensor<7x192x{0}>
        %h = nn.reshape %n {{shape = [7, 4, 48]}} : (tensor<7x192x{0}>) -> tensor<7x4x48x{0}>
        %o = nn.add %h, %c : (tensor<7x4x48x{0}>, tensor<48x{0}>) -> tensor<7x4x48x{0}>
        fusion.yield %o, %n : tensor<7x4x48x{0}>, tensor<7x192x{0}>
      }}
      return %y#0, %y#1 : tensor<7x4x48x{0}>, tensor<7x192x{0}>
    }})",
                                      type),
                          {},
                          toleranceOf(type)});
}

/// Leading dims in another order: a norm for each head, then the transpose that attention wants.
TEST(RowForms, NormThenTransposeThenRope) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (int size : {16, 7, 128})
      check(rowSchedule(), {fmt::format(R"(
    func.func @main(%x: tensor<2x3x4x{1}x{0}>, %w: tensor<{1}x{0}>, %cos: tensor<3x{2}x{0}>, %sin: tensor<3x{2}x{0}>) -> tensor<2x4x3x{1}x{0}> {{
      %y = fusion.group "qk_norm_rope" schedule "row" (%a = %x, %v = %w, %c = %cos, %d = %sin)
          : (tensor<2x3x4x{1}x{0}>, tensor<{1}x{0}>, tensor<3x{2}x{0}>, tensor<3x{2}x{0}>) -> tensor<2x4x3x{1}x{0}> {{
        %n = nn.rms_norm %a, %v {{eps = 1.0e-6 : f32}} : (tensor<2x3x4x{1}x{0}>, tensor<{1}x{0}>) -> tensor<2x3x4x{1}x{0}>
        %t = nn.transpose %n {{perm = array<i64: 0, 2, 1, 3>}} : (tensor<2x3x4x{1}x{0}>) -> tensor<2x4x3x{1}x{0}>
        %o = nn.rope %t, %c, %d {{interleaved = false, rotary_dim = {2} : i64}}
            : (tensor<2x4x3x{1}x{0}>, tensor<3x{2}x{0}>, tensor<3x{2}x{0}>) -> tensor<2x4x3x{1}x{0}>
        fusion.yield %o : tensor<2x4x3x{1}x{0}>
      }}
      return %y : tensor<2x4x3x{1}x{0}>
    }})",
                                        type, size, size / 2 * 2),
                            {},
                            toleranceOf(type)});
}

TEST(RowForms, Refusals) {
  auto reason = [](const std::string &after, const std::string &result) {
    return refusal(rowSchedule(), fmt::format(R"(
    func.func @main(%x: tensor<7x192xf32>, %w: tensor<192xf32>, %b: tensor<48xf32>) -> {1} {{
      %y = fusion.group "heads" schedule "row" (%a = %x, %v = %w, %c = %b)
          : (tensor<7x192xf32>, tensor<192xf32>, tensor<48xf32>) -> {1} {{
        %n = nn.rms_norm %a, %v {{eps = 1.0e-6 : f32}} : (tensor<7x192xf32>, tensor<192xf32>) -> tensor<7x192xf32>
        %h = nn.reshape %n {{shape = [7, 4, 48]}} : (tensor<7x192xf32>) -> tensor<7x4x48xf32>
        {0}
        fusion.yield %o : {1}
      }}
      return %y : {1}
    }})",
                                              after, result));
  };
  EXPECT_NE(reason("%o = nn.rms_norm %h, %c {eps = 1.0e-6 : f32} : (tensor<7x4x48xf32>, tensor<48xf32>) -> "
                   "tensor<7x4x48xf32>",
                   "tensor<7x4x48xf32>")
                .find("nn.rms_norm along a dim that is not the row"),
            std::string::npos);
  EXPECT_NE(
      reason(
          "%t = nn.transpose %h {perm = array<i64: 0, 2, 1>} : (tensor<7x4x48xf32>) -> tensor<7x48x4xf32>\n"
          "%o = nn.relu %t : (tensor<7x48x4xf32>) -> tensor<7x48x4xf32>",
          "tensor<7x48x4xf32>")
          .find("nn.transpose of the last dim"),
      std::string::npos);
  EXPECT_NE(reason("%o = nn.reduce %h {kind = \"sum\", axes = array<i64: 2>, keepdims = true} : "
                   "(tensor<7x4x48xf32>) -> tensor<7x4x1xf32>",
                   "tensor<7x4x1xf32>"),
            "");
}

} // namespace
} // namespace fusion::test
