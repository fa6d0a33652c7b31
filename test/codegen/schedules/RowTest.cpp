#include "Harness.h"

#include <fmt/format.h>

#include <limits>

namespace fusion::test {
namespace {

/// Error of one rounding to the type, in relative L2, with some room for different sums.
double toleranceOf(const std::string &type) {
  return type == "f16" ? 5e-4 : type == "bf16" ? 4e-3 : type == "f32" ? 2e-6 : 2e-2;
}

std::string function(const std::string &arguments, const std::string &results, const std::string &body) {
  return "func.func @main(" + arguments + ") -> (" + results + ") {\n" + body + "\n}\n";
}
std::string symbolic(const std::string &name, const std::string &type, const std::string &dims) {
  return "%" + name + ": " + type + " {nn.dims = [" + dims + "]}";
}

TEST(Row, RmsNormInEveryTypeAndWidth) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int width : {1, 7, 33, 128, 129, 512, 1000, 2880, 4096}) {
      const std::string x = fmt::format("tensor<?x{}x{}>", width, type),
                        w = fmt::format("tensor<{}x{}>", width, type);
      check(rowSchedule(),
            {function(symbolic("x", x, fmt::format("\"rows\", {}", width)) + ", %w: " + w, x,
                      fmt::format("%y = nn.rms_norm %x, %w {{eps = 1.0e-6 : f32, weight_bias = 1.0 : f32}} "
                                  ": ({0}, {1}) -> {0}\nreturn %y : {0}",
                                  x, w)),
             {{"rows", 5}},
             toleranceOf(type)});
    }
}

TEST(Row, LongRows) {
  for (int width : {16384, 33000, 70001})
    check(rowSchedule(),
          {function(fmt::format("%x: tensor<2x{0}xbf16>, %w: tensor<{0}xbf16>, %b: tensor<{0}xbf16>", width),
                    fmt::format("tensor<2x{}xbf16>", width),
                    fmt::format("%y = nn.layer_norm %x, %w, %b {{eps = 1.0e-5 : f32}} : (tensor<2x{0}xbf16>, "
                                "tensor<{0}xbf16>, tensor<{0}xbf16>) -> tensor<2x{0}xbf16>\nreturn %y : "
                                "tensor<2x{0}xbf16>",
                                width)),
           {},
           toleranceOf("bf16")});
}

TEST(Row, LayerNormWithMixedTypes) {
  check(rowSchedule(),
        {function("%x: tensor<3x5x80xf16>, %w: tensor<80xf32>", "tensor<3x5x80xf16>",
                  "%y = nn.layer_norm %x, %w {eps = 1.0e-5 : f32} : (tensor<3x5x80xf16>, tensor<80xf32>) "
                  "-> tensor<3x5x80xf16>\nreturn %y : tensor<3x5x80xf16>"),
         {},
         toleranceOf("f16")});
  check(rowSchedule(),
        {function("%x: tensor<4x33xf64>, %w: tensor<33xf64>", "tensor<4x33xf64>",
                  "%y = nn.rms_norm %x, %w {eps = 1.0e-5 : f32} : (tensor<4x33xf64>, tensor<33xf64>) "
                  "-> tensor<4x33xf64>\nreturn %y : tensor<4x33xf64>"),
         {},
         1e-12});
}

TEST(Row, AddNormKeepsTheSum) {
  const std::string text = R"(
    func.func @main(%x: tensor<?x?x4096xbf16> {nn.dims = ["b", "s", 4096]},
                    %r: tensor<?x?x4096xbf16> {nn.dims = ["b", "s", 4096]}, %w: tensor<4096xbf16>)
        -> (tensor<?x?x4096xbf16>, tensor<?x?x4096xbf16>) {
      %norm, %sum = fusion.group "add_norm" schedule "row" (%a = %x, %c = %r, %v = %w)
          : (tensor<?x?x4096xbf16>, tensor<?x?x4096xbf16>, tensor<4096xbf16>)
          -> (tensor<?x?x4096xbf16>, tensor<?x?x4096xbf16>) {
        %0 = nn.add %a, %c : (tensor<?x?x4096xbf16>, tensor<?x?x4096xbf16>) -> tensor<?x?x4096xbf16>
        %1 = nn.rms_norm %0, %v {eps = 1.0e-6 : f32} : (tensor<?x?x4096xbf16>, tensor<4096xbf16>) -> tensor<?x?x4096xbf16>
        fusion.yield %1, %0 : tensor<?x?x4096xbf16>, tensor<?x?x4096xbf16>
      }
      return %norm, %sum : tensor<?x?x4096xbf16>, tensor<?x?x4096xbf16>
    })";
  const std::string source = check(rowSchedule(), {text, {{"b", 2}, {"s", 3}}, toleranceOf("bf16")});
  EXPECT_NE(source.find("load_vec<bf16, 8>"), std::string::npos);
  EXPECT_NE(source.find("// nn.rms_norm"), std::string::npos);
  check(rowSchedule(), {text, {{"b", 0}, {"s", 3}}});
}

TEST(Row, NormThenQuantise) {
  for (const char *quantised : {"f8E4M3FN", "i8"})
    for (int group : {0, 32, 128, 100}) {
      const int groups = group == 0 ? 1 : (1024 + group - 1) / group;
      const std::string q = fmt::format("tensor<?x1024x{}>", quantised),
                        s = fmt::format("tensor<?x{}xf32>", groups);
      const std::string text = fmt::format(R"(
    func.func @main(%x: tensor<?x1024xbf16> {{nn.dims = ["t", 1024]}}, %w: tensor<1024xbf16>) -> ({0}, {1}) {{
      %q, %s = fusion.group "norm_quant" schedule "row" (%a = %x, %v = %w)
          : (tensor<?x1024xbf16>, tensor<1024xbf16>) -> ({0}, {1}) {{
        %1 = nn.rms_norm %a, %v {{eps = 1.0e-6 : f32}} : (tensor<?x1024xbf16>, tensor<1024xbf16>) -> tensor<?x1024xbf16>
        %2, %3 = nn.dynamic_quantize %1 {{group_size = {2} : i64}} : (tensor<?x1024xbf16>) -> ({0}, {1})
        fusion.yield %2, %3 : {0}, {1}
      }}
      return %q, %s : {0}, {1}
    }})",
                                           q, s, group);
      if (group == 100)
        EXPECT_NE(refusal(rowSchedule(), text).find("group of 100"), std::string::npos);
      else
        check(rowSchedule(), {text, {{"t", 3}}, 2e-2});
    }
}

TEST(Row, DynamicQuantizeAlone) {
  auto zeroRow = [](unsigned, Tensor &tensor) {
    for (int i = 0; i < 200; ++i)
      set(tensor, i, 0);
  };
  for (int group : {0, 64})
    check(rowSchedule(),
          {function("%x: tensor<3x200xf16>",
                    fmt::format("tensor<3x200xf8E4M3FN>, tensor<3x{}xf32>", group ? 4 : 1),
                    fmt::format(
                        "%q, %s = nn.dynamic_quantize %x {{group_size = {1} : i64}} : (tensor<3x200xf16>) -> "
                        "(tensor<3x200xf8E4M3FN>, tensor<3x{0}xf32>)\nreturn %q, %s : "
                        "tensor<3x200xf8E4M3FN>, tensor<3x{0}xf32>",
                        group ? 4 : 1, group)),
           {},
           1e-6,
           zeroRow});
}

TEST(Row, SoftmaxOverDynamicKeysWithMask) {
  check(rowSchedule(), {R"(
    func.func @main(%x: tensor<?x4x?x?xf16> {nn.dims = ["b", 4, "q", "past + q"]},
                    %m: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "q", "past + q"]}) -> tensor<?x4x?x?xf16> {
      %y = fusion.group "softmax" schedule "row" (%a = %x, %c = %m)
          : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16> {
        %0 = nn.add %a, %c : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
        %1 = nn.softmax %0 {axis = 3 : i64} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
        fusion.yield %1 : tensor<?x4x?x?xf16>
      }
      return %y : tensor<?x4x?x?xf16>
    })",
                        {{"b", 2}, {"q", 3}, {"past", 40}},
                        toleranceOf("f16")});
}

TEST(Row, SoftmaxPropagatesNanAndInfinity) {
  auto fill = [](unsigned, Tensor &tensor) {
    set(tensor, 3, std::numeric_limits<double>::quiet_NaN());
    set(tensor, 45, -std::numeric_limits<double>::infinity());
    for (int i = 80; i < 120; ++i)
      set(tensor, i, -std::numeric_limits<double>::infinity());
  };
  for (const char *log : {"false", "true"})
    check(rowSchedule(),
          {function("%x: tensor<4x40xf32>", "tensor<4x40xf32>",
                    fmt::format("%y = nn.softmax %x {{axis = -1 : i64, log = {}}} : (tensor<4x40xf32>) -> "
                                "tensor<4x40xf32>\nreturn %y : tensor<4x40xf32>",
                                log)),
           {},
           2e-6,
           fill});
}

TEST(Row, SoftmaxAlongAnotherDim) {
  check(rowSchedule(),
        {function("%x: tensor<3x50x7xf32>", "tensor<3x50x7xf32>",
                  "%y = nn.softmax %x {axis = 1 : i64} : (tensor<3x50x7xf32>) -> tensor<3x50x7xf32>\n"
                  "return %y : tensor<3x50x7xf32>")});
}

TEST(Row, ReductionsOfEveryKindAndType) {
  for (const char *kind : {"mean", "sum", "max", "min", "prod", "sum_square", "l1", "l2"})
    for (const char *type : {"f16", "f32", "f64", "i64", "i32"})
      for (const char *axes : {"2", "1", "0, 2", "0, 1, 2", "1, 2"}) {
        const std::string axesText = axes;
        auto has = [&](char c) { return axesText.find(c) != std::string::npos; };
        const std::string to =
            fmt::format("tensor<{}x{}x{}x{}>", has('0') ? 1 : 3, has('1') ? 1 : 5, has('2') ? 1 : 20, type);
        check(rowSchedule(),
              {function(fmt::format("%x: tensor<3x5x20x{}>", type), to,
                        fmt::format(
                            "%y = nn.reduce %x {{kind = \"{0}\", axes = array<i64: {1}>, keepdims = true}} : "
                            "(tensor<3x5x20x{2}>) -> {3}\nreturn %y : {3}",
                            kind, axes, type, to)),
               {},
               toleranceOf(std::string(type) == "f64" ? "f32" : type),
               {},
               std::string(kind) == "l2"});
      }
}

TEST(Row, ReductionsOfBooleansAndDynamicDims) {
  for (const char *kind : {"max", "min"})
    check(
        rowSchedule(),
        {function(symbolic("x", "tensor<?x?xi1>", "\"a\", \"b\""), "tensor<?xi1>",
                  fmt::format("%y = nn.reduce %x {{kind = \"{}\", axes = array<i64: 1>, keepdims = false}} : "
                              "(tensor<?x?xi1>) -> tensor<?xi1>\nreturn %y : tensor<?xi1>",
                              kind)),
         {{"a", 9}, {"b", 3}}});
  EXPECT_NE(refusal(rowSchedule(),
                    function("%x: tensor<3x3xi1>", "tensor<3xi1>",
                             "%y = nn.reduce %x {kind = \"sum\", axes = array<i64: 1>, keepdims = false} : "
                             "(tensor<3x3xi1>) -> tensor<3xi1>\nreturn %y : tensor<3xi1>"))
                .find("of i1"),
            std::string::npos);
}

/// Of a vector a scalar is left.
TEST(Row, ReductionsToAScalar) {
  for (const char *kind : {"sum", "max", "mean"})
    for (const char *type : {"f32", "f16", "bf16"})
      check(rowSchedule(),
            {function(
                 symbolic("x", fmt::format("tensor<?x{}>", type), "\"n\""), fmt::format("tensor<{}>", type),
                 fmt::format("%y = nn.reduce %x {{kind = \"{0}\", axes = array<i64: 0>, keepdims = false}} : "
                             "(tensor<?x{1}>) -> tensor<{1}>\nreturn %y : tensor<{1}>",
                             kind, type)),
             {{"n", 777}}});
}

TEST(Row, ReduceWithoutKeptDimsThenArithmetic) {
  check(rowSchedule(), {R"(
    func.func @main(%x: tensor<6x40xf32>, %s: tensor<6xf32>) -> (tensor<6xf32>, tensor<6x40xf32>) {
      %r, %y = fusion.group "mean" schedule "row" (%a = %x, %c = %s)
          : (tensor<6x40xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6x40xf32>) {
        %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
        %0 = nn.reduce %a {kind = "mean", axes = array<i64: 1>, keepdims = false} : (tensor<6x40xf32>) -> tensor<6xf32>
        %1 = nn.add %0, %eps : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
        %2 = nn.mul %1, %c : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
        %3 = nn.reshape %2 {shape = [6, 1]} : (tensor<6xf32>) -> tensor<6x1xf32>
        %4 = nn.sub %a, %3 : (tensor<6x40xf32>, tensor<6x1xf32>) -> tensor<6x40xf32>
        fusion.yield %2, %4 : tensor<6xf32>, tensor<6x40xf32>
      }
      return %r, %y : tensor<6xf32>, tensor<6x40xf32>
    })",
                        {},
                        5e-6});
}

TEST(Row, NormOfStridedHeadsThenRope) {
  for (const char *interleaved : {"false", "true"})
    for (int rotary : {64, 32})
      for (int table : {rotary, rotary / 2}) {
        const std::string t = fmt::format("tensor<?x1x?x{}xbf16>", table);
        check(rowSchedule(), {fmt::format(R"(
    func.func @main(%qkv: tensor<?x?x640xbf16> {{nn.dims = ["b", "s", 640]}}, %w: tensor<64xbf16>,
                    %cos: {0} {{nn.dims = ["b", 1, "s", {1}]}}, %sin: {0} {{nn.dims = ["b", 1, "s", {1}]}})
        -> tensor<?x6x?x64xbf16> {{
      %h = nn.slice %qkv {{starts = [0, 0, 128], sizes = ["b", "s", 384], steps = array<i64: 1, 1, 1>}}
          : (tensor<?x?x640xbf16>) -> tensor<?x?x384xbf16>
      %r = nn.reshape %h {{shape = ["b", "s", 6, 64]}} : (tensor<?x?x384xbf16>) -> tensor<?x?x6x64xbf16>
      %q = nn.transpose %r {{perm = array<i64: 0, 2, 1, 3>}} : (tensor<?x?x6x64xbf16>) -> tensor<?x6x?x64xbf16>
      %y = fusion.group "qk_norm_rope" schedule "row" (%a = %q, %v = %w, %c = %cos, %d = %sin)
          : (tensor<?x6x?x64xbf16>, tensor<64xbf16>, {0}, {0}) -> tensor<?x6x?x64xbf16> {{
        %0 = nn.rms_norm %a, %v {{eps = 1.0e-6 : f32}} : (tensor<?x6x?x64xbf16>, tensor<64xbf16>) -> tensor<?x6x?x64xbf16>
        %1 = nn.rope %0, %c, %d {{interleaved = {2}, rotary_dim = {3} : i64}}
            : (tensor<?x6x?x64xbf16>, {0}, {0}) -> tensor<?x6x?x64xbf16>
        fusion.yield %1 : tensor<?x6x?x64xbf16>
      }}
      return %y : tensor<?x6x?x64xbf16>
    }})",
                                          t, table, interleaved, rotary),
                              {{"b", 2}, {"s", 3}},
                              toleranceOf("bf16")});
      }
}

TEST(Row, QuantizeWithScalesPerTensorRowColumnAndBlock) {
  auto positive = [](unsigned index, Tensor &tensor) {
    for (int64_t i = 0; index == 1 && i < tensor.size(); ++i)
      set(tensor, i, 0.02 + 0.01 * static_cast<double>(i % 7));
  };
  struct Form {
    const char *scale, *attributes;
  };
  for (Form form : {Form{"tensor<f32>", ""}, Form{"tensor<6xf32>", "axis = 0 : i64"},
                    Form{"tensor<64xf32>", "axis = 1 : i64"},
                    Form{"tensor<6x4xf32>", "axis = 1 : i64, block_size = 16 : i64"},
                    Form{"tensor<3x64xf32>", "axis = 0 : i64, block_size = 2 : i64"}})
    for (const char *type : {"i8", "f8E4M3FN"}) {
      check(
          rowSchedule(),
          {function(
               fmt::format("%x: tensor<6x64xf32>, %s: {}", form.scale), fmt::format("tensor<6x64x{}>", type),
               fmt::format("%y = nn.quantize %x, %s {{{0}}} : (tensor<6x64xf32>, {1}) -> tensor<6x64x{2}>\n"
                           "return %y : tensor<6x64x{2}>",
                           form.attributes, form.scale, type)),
           {},
           1e-6,
           positive});
      check(rowSchedule(),
            {function(fmt::format("%x: tensor<6x64x{}>, %s: {}", type, form.scale), "tensor<6x64xf16>",
                      fmt::format(
                          "%y = nn.dequantize %x, %s {{{0}}} : (tensor<6x64x{2}>, {1}) -> tensor<6x64xf16>\n"
                          "return %y : tensor<6x64xf16>",
                          form.attributes, form.scale, type)),
             {},
             1e-6,
             positive});
    }
}

TEST(Row, RefusalsNameTheReason) {
  EXPECT_NE(refusal(rowSchedule(), function("%a: tensor<4x8xf32>, %b: tensor<8x4xf32>", "tensor<4x4xf32>",
                                            "%y = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<8x4xf32>) -> "
                                            "tensor<4x4xf32>\nreturn %y : tensor<4x4xf32>"))
                .find("nn.matmul is not arithmetic along rows"),
            std::string::npos);
  EXPECT_NE(refusal(rowSchedule(), R"(!x = tensor<4x128xf32> !t = tensor<4x64xf32>
    func.func @main(%x: !x, %cos: !t, %sin: !t) -> !x {
      %y = fusion.group "g" schedule "row" (%a = %x, %c = %cos, %s = %sin) : (!x, !t, !t) -> !x {
        %q, %scales = nn.dynamic_quantize %a {group_size = 32 : i64} : (!x) -> (tensor<4x128xi8>, tensor<4x4xf32>)
        %f = nn.cast %q : (tensor<4x128xi8>) -> !x
        %o = nn.rope %f, %c, %s {interleaved = false, rotary_dim = 128 : i64} : (!x, !t, !t) -> !x
        fusion.yield %o : !x
      }
      return %y : !x
    })")
                .find("a rotary embedding of values that are scaled per group"),
            std::string::npos);
}

} // namespace
} // namespace fusion::test
