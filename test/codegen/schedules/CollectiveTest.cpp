#include "Harness.h"
#include "RankHarness.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) {
  return type == "f16" ? 5e-4 : type == "bf16" ? 4e-3 : type == "f32" ? 2e-6 : 2e-2;
}

/// x, and r, w, b, s where the body uses them, of `width` columns; `n` rows.
struct Types {
  std::string x, weight;
  int64_t width, ranks;
  std::string matrix() const { return fmt::format("tensor<?x{}x{}>", width, x); }
  std::string vector() const { return fmt::format("tensor<{}x{}>", width, weight); }
};

/// A group of `body`, where %a is the addend, %r the residual, %w and %b parameters, %s a scale.
std::string group(const Types &types, const std::string &body, const std::string &yields,
                  const std::string &results) {
  const std::string m = types.matrix(), v = types.vector();
  const std::string dims = fmt::format("{{nn.dims = [\"n\", {}]}}", types.width);
  return fmt::format(
      R"(func.func @main(%x: {0} {2}, %res: {0} {2}, %weight: {1}, %bias: {1}, %scale: tensor<f32>) -> ({5})
      attributes {{nn.mesh = {{tp = {6} : i64}}}} {{
    %y:{7} = fusion.group "g" schedule "collective" (%a = %x, %r = %res, %w = %weight, %b = %bias, %s = %scale)
        : ({0}, {0}, {1}, {1}, tensor<f32>) -> ({5}) {{
      %0 = nn.all_reduce %a : ({0}) -> {0}
      {3}
      fusion.yield {4} : {5}
    }}
    return {8} : {5}
  }})",
      m, v, dims, body, yields, results, types.ranks, 1 + std::count(results.begin(), results.end(), '>') - 1,
      std::count(yields.begin(), yields.end(), '%') == 1   ? "%y#0"
      : std::count(yields.begin(), yields.end(), '%') == 2 ? "%y#0, %y#1"
                                                           : "%y#0, %y#1, %y#2");
}

const std::vector<SymbolValues> few = {{{"n", 3}}};

std::string addNorm(const Types &types, bool live = true) {
  const std::string m = types.matrix();
  return group(types,
               fmt::format("%1 = nn.add %0, %r : ({0}, {0}) -> {0}\n"
                           "%2 = nn.rms_norm %1, %w {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}",
                           m, types.vector()),
               live ? "%2, %1" : "%2", live ? m + ", " + m : m);
}

TEST(Collective, EveryTypeWidthAndNumberOfRanks) {
  int64_t ranks = 2;
  for (const char *type : {"bf16", "f16", "f32"})
    for (int64_t width : {8, 40, 129, 512, 1000, 2880, 4097}) {
      const Types types{type, type, width, ranks};
      checkRanks({addNorm(types, width % 2 == 0), {{{"n", 1}}, {{"n", 5}}}, toleranceOf(type)});
      ranks = ranks == 8 ? 2 : ranks == 4 ? 8 : ranks + 1;
    }
}

// Rows shared out to the blocks of a cluster, and those that are not.
TEST(Collective, LongRows) {
  for (int64_t width : {2048, 5120, 8192, 16384})
    for (int64_t ranks : {2, 4}) {
      const std::string source =
          checkRanks({addNorm({"bf16", "bf16", width, ranks}), few, toleranceOf("bf16")});
      EXPECT_NE(source.find("KERNEL_CLUSTER"), std::string::npos) << source;
    }
  checkRanks({addNorm({"f16", "f16", 6152, 3}), few, toleranceOf("f16")});
}

// A cluster has mbarriers for eight reductions of a row; with more, a row is one block's.
TEST(Collective, ReductionsOfLongRows) {
  const Types types{"f32", "f32", 2048, 2};
  const char *const ops[] = {"exp", "silu", "tanh", "sigmoid", "abs", "neg", "sin", "cos", "erf"};
  const std::string m = types.matrix(), total = "tensor<?x1xf32>";
  std::string body, sum = "%0";
  for (int i = 0; i < 9; ++i) {
    body += fmt::format("%e{0} = nn.{1} %0 : ({2}) -> {2}\n"
                        "%t{0} = nn.reduce %e{0} {{kind = \"sum\", axes = array<i64: 1>, keepdims = true}} : "
                        "({2}) -> {3}\n"
                        "%s{0} = nn.add {4}, %t{0} : ({5}, {3}) -> {5}\n",
                        i, ops[i], m, total, i == 0 ? "%t0" : sum, total);
    sum = fmt::format("%s{}", i);
    if (i < 7)
      continue;
    const std::string source = checkRanks(
        {group(types, body + fmt::format("%z = nn.mul %0, {} : ({}, {}) -> {}", sum, m, total, m), "%z", m),
         few, 1e-5});
    EXPECT_EQ(source.find("KERNEL_CLUSTER") != std::string::npos, i == 7) << source;
  }
}

TEST(Collective, CallsOfManyShapesOneAfterTheOther) {
  std::vector<SymbolValues> calls;
  for (int64_t rows : {3, 1, 37, 2, 0, 17, 16, 1, 1, 5, 33, 0, 4, 1, 8, 36, 2, 1, 3, 7})
    calls.push_back({{"n", rows}});
  checkRanks({addNorm({"bf16", "bf16", 96, 4}), calls, toleranceOf("bf16")});
  checkRanks({addNorm({"f32", "f32", 1024, 2}), calls, toleranceOf("f32")});
  checkRanks({addNorm({"f16", "f16", 33, 3}), calls, toleranceOf("f16")});
}

TEST(Collective, SumsAlone) {
  const Types types{"bf16", "bf16", 264, 3};
  const std::string m = types.matrix();
  checkRanks({group(types, "", "%0", m), few, toleranceOf("bf16")});
  checkRanks({group(types, fmt::format("%1 = nn.add %r, %0 : ({0}, {0}) -> {0}", m), "%1", m), few,
              toleranceOf("bf16")});
  // An op outside any group.
  checkRanks({"func.func @main(%x: tensor<2x3x40xf16>) -> tensor<2x3x40xf16> attributes {nn.mesh = {tp = 2 : "
              "i64}} {\n"
              "%0 = nn.all_reduce %x : (tensor<2x3x40xf16>) -> tensor<2x3x40xf16>\nreturn %0 : "
              "tensor<2x3x40xf16>\n}",
              {{}},
              toleranceOf("f16")});
}

TEST(Collective, Norms) {
  for (auto [type, weight] : {std::pair("bf16", "bf16"), {"f16", "f32"}, {"bf16", "f32"}, {"f32", "f32"}}) {
    const Types types{type, weight, 768, 4};
    const std::string m = types.matrix(), v = types.vector();
    // Gemma's, and the sum itself is the next residual.
    checkRanks({group(types,
                      fmt::format("%1 = nn.rms_norm %0, %w {{eps = 1.0e-6 : f32, weight_bias = 1.0 : f32}} : "
                                  "({0}, {1}) -> {0}",
                                  m, v),
                      "%1, %0", m + ", " + m),
                few, toleranceOf(type)});
    checkRanks(
        {group(types,
               fmt::format("%1 = nn.add %r, %0 : ({0}, {0}) -> {0}\n"
                           "%2 = nn.layer_norm %1, %w, %b {{eps = 1.0e-5 : f32}} : ({0}, {1}, {1}) -> {0}",
                           m, v),
               "%1, %2", m + ", " + m),
         few, toleranceOf(type)});
  }
}

TEST(Collective, Quantised) {
  for (const char *to : {"f8E4M3FN", "i8"})
    for (int64_t width : {512, 2048}) {
      const Types types{"bf16", "bf16", width, 2};
      const std::string m = types.matrix(), v = types.vector(), q = fmt::format("tensor<?x{}x{}>", width, to);
      const std::string norm =
          fmt::format("%1 = nn.add %0, %r : ({0}, {0}) -> {0}\n"
                      "%2 = nn.rms_norm %1, %w {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}\n",
                      m, v);
      // An element at the edge of two steps may take either: the sums differ in their last digits.
      checkRanks(
          {group(types, norm + fmt::format("%3 = nn.quantize %2, %s : ({0}, tensor<f32>) -> {1}", m, q),
                 "%3, %1", q + ", " + m),
           few, 2e-2, [](int64_t, unsigned index, Tensor &tensor) {
             if (index == 4)
               set(tensor, 0, 0.03125);
           }});
      for (int64_t size : {int64_t(0), int64_t(128)}) {
        const std::string scales = fmt::format("tensor<?x{}xf32>", size ? width / size : 1);
        checkRanks(
            {group(types,
                   norm +
                       fmt::format(
                           "%3, %4 = nn.dynamic_quantize %2 {{group_size = {2} : i64}} : ({0}) -> ({1}, {3})",
                           m, q, size, scales),
                   "%3, %4, %1", q + ", " + scales + ", " + m),
             few, 2e-2});
      }
    }
}

// The residual is scattered before and after; ranks gather normalised rows.
TEST(Collective, NormalisedRowsAreGathered) {
  const std::vector<SymbolValues> calls = {{{"n", 1}}, {{"n", 7}},  {{"n", 0}},
                                           {{"n", 2}}, {{"n", 13}}, {{"n", 4}}};
  auto check = [&](const Types &types, const std::string &body, const std::string &yields,
                   const std::string &results, std::vector<bool> scattered, double tolerance) {
    const std::string source = checkRanks({group(types, body, yields, results), calls, tolerance,
                                           [](int64_t, unsigned index, Tensor &tensor) {
                                             if (index == 4)
                                               set(tensor, 0, 0.03125);
                                           },
                                           scattered});
    EXPECT_NE(source.find("row.ranks.gather("), std::string::npos) << source;
  };
  auto norm = [](const Types &types) {
    return fmt::format("%1 = nn.add %0, %r : ({0}, {0}) -> {0}\n%2 = nn.rms_norm %1, %w {{eps = 1.0e-6 : "
                       "f32}} : ({0}, {1}) -> {0}\n",
                       types.matrix(), types.vector());
  };
  for (auto [type, width, ranks] :
       {std::tuple("bf16", 1024, 2), {"f16", 1000, 3}, {"f32", 8192, 4}, {"bf16", 517, 3}}) {
    const Types types{type, type, width, ranks};
    check(types, norm(types), "%2, %1", types.matrix() + ", " + types.matrix(), {false, true},
          toleranceOf(type));
    check(types, norm(types), "%2", types.matrix(), {false}, toleranceOf(type)); // the sum is dead
  }
  int64_t ranks = 2;
  for (const char *to : {"f8E4M3FN", "f8E5M2"})
    for (int64_t width : {1024, 8192}) {
      const Types types{"bf16", "bf16", width, ranks};
      ranks = ranks == 4 ? 2 : ranks + 1;
      const std::string m = types.matrix(), q = fmt::format("tensor<?x{}x{}>", width, to);
      check(types, norm(types) + fmt::format("%3 = nn.quantize %2, %s : ({0}, tensor<f32>) -> {1}", m, q),
            "%3, %1", q + ", " + m, {false, true}, 3e-2);
      for (int64_t size : {int64_t(0), int64_t(128)}) {
        const std::string scales = fmt::format("tensor<?x{}xf32>", size ? width / size : 1);
        check(types,
              norm(types) +
                  fmt::format(
                      "%3, %4 = nn.dynamic_quantize %2 {{group_size = {2} : i64}} : ({0}) -> ({1}, {3})", m,
                      q, size, scales),
              "%3, %4, %1", q + ", " + scales + ", " + m, {false, false, true}, 3e-2);
      }
    }
}

TEST(Collective, ReshapesThatAreViews) {
  checkRanks(
      {R"(func.func @main(%x: tensor<4x2x128xbf16>, %r: tensor<8x128xbf16>, %w: tensor<128xbf16>) -> tensor<8x128xbf16>
      attributes {nn.mesh = {tp = 2 : i64}} {
    %y = fusion.group "g" schedule "collective" (%a = %x, %b = %r, %v = %w)
        : (tensor<4x2x128xbf16>, tensor<8x128xbf16>, tensor<128xbf16>) -> tensor<8x128xbf16> {
      %0 = nn.all_reduce %a : (tensor<4x2x128xbf16>) -> tensor<4x2x128xbf16>
      %1 = nn.reshape %0 {shape = [8, 128]} : (tensor<4x2x128xbf16>) -> tensor<8x128xbf16>
      %2 = nn.add %1, %b : (tensor<8x128xbf16>, tensor<8x128xbf16>) -> tensor<8x128xbf16>
      %3 = nn.rms_norm %2, %v {eps = 1.0e-6 : f32} : (tensor<8x128xbf16>, tensor<128xbf16>) -> tensor<8x128xbf16>
      fusion.yield %3 : tensor<8x128xbf16>
    }
    return %y : tensor<8x128xbf16>
  })",
       {{}},
       toleranceOf("bf16")});
}

// What looks like an empty word is sent as another NaN, and zeros keep their sign.
TEST(Collective, NumbersThatAreNoNumbers) {
  for (const char *type : {"bf16", "f16", "f32"}) {
    const Types types{type, type, 64, 2};
    const std::string source = checkRanks({group(types, "", "%0", types.matrix()), few, toleranceOf(type),
                                           [](int64_t rank, unsigned index, Tensor &tensor) {
                                             if (index != 0)
                                               return;
                                             auto *bytes = tensor.as<unsigned char>();
                                             std::fill_n(bytes, 16,
                                                         rank == 0 ? 0xff : 0); // NaN with all bits set
                                             for (int64_t i = 16; i < 32; ++i)
                                               set(tensor, i, -0.0);
                                           }});
    EXPECT_NE(source, "");
  }
}

TEST(Collective, ARankThatDoesNotComeIsNamed) {
  const std::string text =
      "func.func @main(%x: tensor<3x40xf16>) -> tensor<3x40xf16> attributes {nn.mesh = {tp = 2 : i64}} {\n"
      "%0 = nn.all_reduce %x : (tensor<3x40xf16>) -> tensor<3x40xf16>\nreturn %0 : tensor<3x40xf16>\n}";
  for (CollectiveAlgorithm algorithm : {CollectiveAlgorithm::OneShot, CollectiveAlgorithm::TwoShot}) {
    const fusion_exchange::Failure failure = failureAlone(text, algorithm);
    EXPECT_EQ(failure.happened, 1u);
    EXPECT_EQ(failure.awaited, 1u);
    EXPECT_EQ(failure.phase, 1u);
    EXPECT_LT(failure.row, 3u);
  }
}

TEST(Collective, Refusals) {
  EXPECT_EQ(
      refusal(collectiveSchedule(),
              R"(func.func @main(%x: tensor<4xi1>) -> tensor<4xi1> attributes {nn.mesh = {tp = 2 : i64}} {
    %0 = nn.all_reduce %x : (tensor<4xi1>) -> tensor<4xi1>
    return %0 : tensor<4xi1>
  })"),
      "nn.all_reduce of i1");
  EXPECT_EQ(
      refusal(collectiveSchedule(),
              R"(func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.mesh = {tp = 2 : i64}} {
    %y = fusion.group "g" schedule "collective" (%a = %x) : (tensor<4xf32>) -> tensor<4xf32> {
      %0 = nn.exp %a : (tensor<4xf32>) -> tensor<4xf32>
      %1 = nn.all_reduce %0 : (tensor<4xf32>) -> tensor<4xf32>
      fusion.yield %1 : tensor<4xf32>
    }
    return %y : tensor<4xf32>
  })"),
      "nn.all_reduce of what the same kernel computes");
  EXPECT_EQ(refusal(collectiveSchedule(),
                    R"(func.func @main(%x: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {
    %y = fusion.group "g" schedule "collective" (%a = %x, %b = %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
      %0 = nn.all_reduce %a {group = "tp"} : (tensor<4xf32>) -> tensor<4xf32>
      %1 = nn.all_reduce %b {group = "ep"} : (tensor<4xf32>) -> tensor<4xf32>
      %2 = nn.add %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      fusion.yield %2 : tensor<4xf32>
    }
    return %y : tensor<4xf32>
  })"),
            "several sums over ranks");
}

} // namespace
} // namespace fusion::test
