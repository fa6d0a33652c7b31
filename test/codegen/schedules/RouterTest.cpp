// The choice of experts: see router.cuh.
#include "Harness.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace fusion::test {
namespace {

struct Form {
  int rows = 5, width = 33, count = 4;
  bool softmax = true;
  const char *weights = "divided"; ///< or "softmax", or "as they are"
  const char *type = "bf16";       ///< of the weights
  const char *scores = "f32";      ///< their type
  bool bias = false;               ///< the choice is by scores and a bias; the sum has a number more
  int groups = 1, kept = 1, summed = 1;
  const char *other = "0xFF800000"; ///< the scores of the groups that are not kept
  bool limitsWeights = false;       ///< weights are taken from what the limit leaves
};

std::string module(const Form &f) {
  const std::string x = fmt::format("tensor<{}x{}x{}>", f.rows, f.width, f.scores),
                    i = fmt::format("tensor<{}x{}xi64>", f.rows, f.count),
                    v = fmt::format("tensor<{}x{}x{}>", f.rows, f.count, f.scores),
                    w = fmt::format("tensor<{}x{}x{}>", f.rows, f.count, f.type),
                    one = fmt::format("tensor<{}x1x{}>", f.rows, f.scores);
  std::string body =
      f.softmax ? fmt::format("%s = nn.softmax %a {{axis = 1 : i64}} : ({0}) -> {0}\n", x) : "";
  const char *scores = f.softmax ? "%s" : "%a", *weight = "%v";
  const std::string b = fmt::format("tensor<{}x{}>", f.width, f.scores);
  if (f.bias)
    body += fmt::format("%c = nn.add {0}, %b : ({1}, {2}) -> {1}\n", scores, x, b);
  const char *chosen = f.bias ? "%c" : scores;
  if (f.groups > 1) {
    body += fmt::format("%l = nn.limit_groups {} {{groups = {} : i64, kept = {} : i64, summed = {} : i64, "
                        "other = {} : f32}} : ({}) -> {}\n",
                        chosen, f.groups, f.kept, f.summed, f.other, x, x);
    chosen = "%l";
    scores = f.limitsWeights ? chosen : scores;
  }
  body +=
      fmt::format("%i = nn.top_k {0} {{axis = 1 : i64, k = [{1}]}} : ({2}) -> {3}\n", chosen, f.count, x, i);
  body += fmt::format("%v = nn.gather_elements {0}, %i {{axis = 1 : i64}} : ({1}, {2}) -> {3}\n", scores, x,
                      i, v);
  if (f.weights[0] == 'd') {
    body += fmt::format(
        "%t = nn.reduce %v {{kind = \"sum\", axes = array<i64: 1>, keepdims = true}} : ({0}) -> {1}\n", v,
        one);
    if (f.bias)
      body += fmt::format("%n = nn.constant {{value = dense<0.5> : tensor<f32>}} : () -> tensor<f32>\n"
                          "%e = nn.add %t, %n : ({0}, tensor<f32>) -> {0}\n",
                          one);
    body += fmt::format("%d = nn.div %v, {2} : ({0}, {1}) -> {0}\n", v, one, f.bias ? "%e" : "%t");
    weight = "%d";
  } else if (f.weights[0] == 's') {
    body += fmt::format("%d = nn.softmax %v {{axis = 1 : i64}} : ({0}) -> {0}\n", v);
    weight = "%d";
  }
  body += fmt::format("%w = nn.cast {} : ({}) -> {}\n", weight, v, w);
  return fmt::format(R"(
    func.func @main(%x: {0}{4}) -> ({1}, {2}) {{
      %0, %1 = fusion.group "router" schedule "router" (%a = %x{5}) : ({0}{6}) -> ({1}, {2}) {{
        {3}
        fusion.yield %i, %w : {1}, {2}
      }}
      return %0, %1 : {1}, {2}
    }})",
                     x, i, w, body, f.bias ? ", %z: " + b : "", f.bias ? ", %b = %z" : "",
                     f.bias ? ", " + b : "");
}

void run(const Form &form, std::function<void(unsigned, Tensor &)> fill = {}) {
  const std::string source = check(
      routerSchedule(), {module(form), {}, std::string(form.type) == "f32" ? 2e-6 : 5e-3, std::move(fill)});
  EXPECT_NE(source.find("router<Config>"), std::string::npos);
}

TEST(Router, WidthsAndCounts) {
  for (int width : {1, 31, 128, 1000})
    for (int count : {1, 8, 32})
      if (count <= width)
        run({.rows = 3, .width = width, .count = count});
}

TEST(Router, WeightsOfEachKind) {
  for (bool softmax : {true, false})
    for (const char *weights : {"divided", "softmax", "as they are"})
      run({.softmax = softmax,
           .weights = weights,
           .type = weights[0] == 'd' ? "f32"
                   : softmax         ? "f16"
                                     : "bf16"});
}

// Weights are rounded to the scores' type before they are widened.
TEST(Router, NarrowScores) {
  for (const char *scores : {"bf16", "f16"})
    for (const char *weights : {"softmax", "as they are"})
      run({.softmax = false, .weights = weights, .type = "f32", .scores = scores});
  EXPECT_NE(refusal(routerSchedule(), module({.scores = "bf16"})), "");
  EXPECT_NE(refusal(routerSchedule(), module({.softmax = false, .scores = "bf16"})), "");
}

TEST(Router, EqualScoresInTheirOrder) {
  for (int width : {40, 128, 300})
    for (int values : {3, 40})
      run({.width = width, .count = 8, .softmax = false, .weights = "as they are"},
          [values](unsigned, Tensor &tensor) {
            for (int64_t i = 0; i < tensor.size(); ++i)
              set(tensor, i, static_cast<double>(i % values));
          });
}

// The bias is as large as the scores, so that the choice is another one than without it.
TEST(Router, ChoiceByScoresAndABias) {
  for (int width : {4, 33, 128, 1000})
    for (bool softmax : {true, false})
      for (const char *weights : {"divided", "as they are"})
        run({.rows = 3, .width = width, .softmax = softmax, .weights = weights, .type = "f32", .bias = true});
  EXPECT_EQ(refusal(routerSchedule(),
                    module({.softmax = false, .weights = "as they are", .scores = "bf16", .bias = true})),
            "scores with a bias that are not f32");
}

// Groups of whole warps, of parts of one and of parts of two; fewer elements kept than are taken.
TEST(Router, ChoiceFromTheBestGroups) {
  struct Groups {
    int width, groups, kept, summed, count;
  };
  for (const Groups &g : {Groups{256, 8, 4, 2, 8},
                          {160, 8, 3, 1, 6},
                          {66, 6, 2, 3, 5},
                          {32, 32, 5, 1, 4},
                          {64, 2, 1, 2, 8},
                          {12, 4, 1, 2, 5},
                          {1024, 4, 2, 2, 32}})
    for (bool bias : {false, true})
      for (bool limitsWeights : {false, true})
        run({.rows = 6,
             .width = g.width,
             .count = g.count,
             .softmax = limitsWeights || !bias,
             .weights = limitsWeights ? "as they are" : "divided",
             .type = "f32",
             .bias = bias && !limitsWeights,
             .groups = g.groups,
             .kept = g.kept,
             .summed = g.summed,
             .other = limitsWeights ? "0.0" : "0xFF800000",
             .limitsWeights = limitsWeights});
}

// NaN and infinities of both signs, zeros of both signs, and equal scores everywhere.
TEST(Router, GroupsOfSpecialAndEqualScores) {
  for (int summed : {1, 2})
    for (bool special : {false, true})
      run({.rows = 40,
           .width = 24,
           .softmax = false,
           .weights = "as they are",
           .type = "f32",
           .groups = 6,
           .kept = 2,
           .summed = summed,
           .other = "-2.0",
           .limitsWeights = true},
          [special](unsigned, Tensor &tensor) {
            constexpr double infinity = std::numeric_limits<double>::infinity();
            const double values[] = {0., -0., 1., -1., infinity, -infinity, std::nan("")};
            for (int64_t i = 0; i < tensor.size(); ++i)
              set(tensor, i, values[static_cast<size_t>(i * 7919 % 1013 % (special ? 7 : 4))]);
          });
}

/// With the matmul that makes the scores, and a bias.
struct Product {
  int rows = 1, width = 128, count = 8, k = 264;
  const char *type = "bf16";
  bool bias = false, softmax = true;
  int groups = 1;
};

std::string withProduct(const Product &f) {
  auto tensor = [](const std::string &shape, const char *type) {
    return fmt::format("tensor<{}x{}>", shape, type);
  };
  const std::string x = tensor(fmt::format("{}x{}", f.rows, f.k), f.type),
                    w = tensor(fmt::format("{}x{}", f.width, f.k), f.type),
                    b = tensor(std::to_string(f.width), f.type),
                    p = tensor(fmt::format("{}x{}", f.rows, f.width), f.type),
                    s = tensor(fmt::format("{}x{}", f.rows, f.width), "f32"),
                    i = tensor(fmt::format("{}x{}", f.rows, f.count), "i64"),
                    v = tensor(fmt::format("{}x{}", f.rows, f.count), "f32");
  const bool casts = std::string(f.type) != "f32";
  return fmt::format(R"(
    func.func @main(%x: {0}, %w: {1}, %b: {2}) -> ({3}, {4}) {{
      %0, %1 = fusion.group "router" schedule "router" (%a = %x, %e = %w, %d = %b) : ({0}, {1}, {2}) -> ({3}, {4}) {{
        %p = nn.matmul %a, %e {{transpose_b = true}} : ({0}, {1}) -> {5}
        {7}
        {8}
        {9}
        {11}
        %i = nn.top_k %{12} {{axis = 1 : i64, k = [{10}]}} : ({6}) -> {3}
        %v = nn.gather_elements %t, %i {{axis = 1 : i64}} : ({6}, {3}) -> {4}
        %r = nn.softmax %v {{axis = 1 : i64}} : ({4}) -> {4}
        fusion.yield %i, %r : {3}, {4}
      }}
      return %0, %1 : {3}, {4}
    }})",
                     x, w, b, i, v, p, s,
                     f.bias ? fmt::format("%q = nn.add %p, %d : ({0}, {1}) -> {0}", p, b) : "",
                     casts ? fmt::format("%s = nn.cast %{} : ({}) -> {}", f.bias ? "q" : "p", p, s) : "",
                     fmt::format("%t = nn.{0} %{1} {2} : ({3}) -> {3}", f.softmax ? "softmax" : "neg",
                                 casts    ? "s"
                                 : f.bias ? "q"
                                          : "p",
                                 f.softmax ? "{axis = 1 : i64}" : "", s),
                     f.count,
                     f.groups == 1 ? ""
                                   : fmt::format("%l = nn.limit_groups %t {{groups = {0} : i64, kept = 2 : "
                                                 "i64, summed = 2 : i64, other = 0xFF800000 : f32}} : ({1}) "
                                                 "-> {1}",
                                                 f.groups, s),
                     f.groups == 1 ? "t" : "l");
}

void runWithProduct(const Product &form) {
  const std::string source =
      check(routerSchedule(), {withProduct(form), {}, 5e-3, [](unsigned index, Tensor &tensor) {
                                 fillRandom(tensor, index + 7);
                                 for (int64_t i = 0; index == 1 && i < tensor.size(); ++i)
                                   set(tensor, i, 0.001 * static_cast<double>(i * 7919 % 1009 - 504));
                               }});
  EXPECT_NE(source.find("router_matmul<Config>"), std::string::npos) << source;
}

TEST(Router, WithTheMatmulOfTheScores) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (bool bias : {false, true})
      runWithProduct({.rows = bias ? 3 : 1, .type = type, .bias = bias, .softmax = !bias});
}

TEST(Router, WithTheMatmulAndGroups) {
  for (bool softmax : {true, false})
    runWithProduct({.rows = 2, .softmax = softmax, .groups = 8});
}

TEST(Router, WithMatmulsOfManyWidths) {
  for (int width : {4, 8, 60, 256, 384})
    for (int k : {8, 2048, 2880})
      runWithProduct({.rows = 2, .width = width, .count = 4, .k = k, .type = width == 60 ? "f16" : "bf16"});
}

TEST(Router, SaysWhatItDoesNotTake) {
  EXPECT_EQ(refusal(routerSchedule(), R"(
    func.func @main(%x: tensor<4x8xf32>) -> tensor<4x2xi64> {
      %i = nn.top_k %x {axis = 1 : i64, k = [2]} : (tensor<4x8xf32>) -> tensor<4x2xi64>
      return %i : tensor<4x2xi64>
    })"),
            "no nn.top_k whose scores are taken");
  EXPECT_EQ(refusal(routerSchedule(), module({.width = 80, .groups = 40})),
            "more than 32 groups, or 1024 elements");
  EXPECT_EQ(refusal(routerSchedule(),
                    module({.softmax = false, .weights = "as they are", .scores = "bf16", .groups = 3})),
            "groups of elements that are not f32");
  EXPECT_EQ(refusal(routerSchedule(), module({.width = 2000})),
            "more than 1024 scores, or 32 taken, or as many as a run says");
}

} // namespace
} // namespace fusion::test
