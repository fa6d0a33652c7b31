// Plans in which a matmul sums up squares for the norm of its result, and the matmuls behind that normalise
// the rows themselves.
#include "PlanChecks.h"

#include "codegen/plan/Print.h"

#include <fmt/format.h>

#include <regex>

using namespace fusion;
using namespace fusion::test;

namespace {
using Link = Alternative::Link;

struct Case {
  std::string rows = "?";
  int inner = 192, width = 256, columns = 136; ///< of the first operand, the norm, the last result
  std::string type = "bf16", weight = "bf16", result = "%y";
  std::string norm = "nn.rms_norm %s, %g {eps = 1.0e-6 : f32}";
  bool transposes = false;
  std::string between = ""; ///< an op behind the norm
};

/// A tensor<…> of these sizes.
std::string tensor(const std::string &sizes, const std::string &type) {
  return "tensor<" + sizes + "x" + type + ">";
}

/// y = norm(x w + r) v, and what else `result` names.
std::string module(const Case &c) {
  const std::string x = tensor(fmt::format("{}x{}", c.rows, c.inner), c.type),
                    s = tensor(fmt::format("{}x{}", c.rows, c.width), c.type),
                    y = tensor(fmt::format("{}x{}", c.rows, c.columns), c.type),
                    w = tensor(fmt::format("{}x{}", c.inner, c.width), c.type),
                    v = tensor(c.transposes ? fmt::format("{}x{}", c.columns, c.width)
                                            : fmt::format("{}x{}", c.width, c.columns),
                               c.type),
                    g = tensor(std::to_string(c.width), c.weight);
  const std::string dims = c.rows == "?" ? fmt::format(" {{nn.dims = [\"n\", {}]}}", c.inner) : "";
  const std::string second = c.rows == "?" ? fmt::format(" {{nn.dims = [\"n\", {}]}}", c.width) : "";
  const bool returnsNorm = c.result == "%y, %n", returnsSum = c.result == "%y, %s";
  const std::string types = returnsNorm || returnsSum ? y + ", " + s : y;
  return fmt::format(R"(
  func.func @main(%x: {0}{1}, %r: {2}{3}, %w: {4}, %g: {5}, %v: {6}) -> ({7}) {{
    %s = fusion.group "matmul_epilogue" schedule "matmul" (%a = %x, %b = %w, %c = %r) : ({0}, {4}, {2}) -> {2} {{
      %m = nn.matmul %a, %b : ({0}, {4}) -> {2}
      %t = nn.add %m, %c : ({2}, {2}) -> {2}
      fusion.yield %t : {2}
    }}
    %n = {8} : ({2}, {5}) -> {2}
    {9}
    %y = nn.matmul %n, %v {{transpose_b = {10}}} : ({2}, {6}) -> {11}
    return {12} : {7}
  }})",
                     x, dims, s, second, w, g, v, types, c.norm, c.between, c.transposes, y, c.result);
}

std::vector<Link> links(const ProgramPlan &plan, size_t step) {
  std::vector<Link> found;
  for (const Alternative &alternative : plan.steps.at(step).alternatives)
    found.push_back(alternative.link);
  return found;
}
bool isLinked(const ProgramPlan &plan) {
  for (size_t step = 0; step < plan.steps.size(); ++step)
    for (Link link : links(plan, step))
      if (link != Link::None)
        return true;
  return false;
}
ProgramPlan planFor(const std::string &text, const PlanOptions &options = {.target = "sm_90a"}) {
  auto parsed = parse(text);
  auto plan = buildPlan(mainOf(*parsed), options);
  EXPECT_TRUE(bool(plan)) << plan.error().message;
  return plan ? *plan : ProgramPlan();
}

void run(const Case &c, int64_t n = 0) {
  SCOPED_TRACE(module(c));
  CheckOptions options{.tolerance = 1e-2, .targets = Targets::One};
  if (n > 0)
    options.symbols = {{"n", n}};
  EXPECT_TRUE(isLinked(planFor(module(c))));
  check(module(c), options);
}

TEST(PlanNorms, TheStepsOfNineToThirtyTwoRowsAreLinked) {
  const ProgramPlan plan = planFor(module({}));
  ASSERT_EQ(plan.steps.size(), 3u) << planText(plan);
  for (size_t step : {0u, 2u}) {
    std::vector<int64_t> ends;
    for (const Alternative &alternative : plan.steps[step].alternatives)
      if (alternative.link != Link::None) {
        EXPECT_EQ(alternative.link, step == 0 ? Link::First : Link::Last);
        ASSERT_TRUE(alternative.linked);
        EXPECT_EQ(alternative.variant, kernelVariant);
        ends.push_back(alternative.when.front().most);
      }
    EXPECT_EQ(ends, (std::vector<int64_t>{16, 32})) << planText(plan);
  }
  for (Link link : links(plan, 1))
    EXPECT_EQ(link, Link::Between);
  const std::string text = planText(plan);
  EXPECT_NE(text.find("summing up squares: "), std::string::npos) << text;
  EXPECT_NE(text.find("where squares have been summed up: "), std::string::npos) << text;
}

TEST(PlanNorms, GiveTheGraphsResults) {
  for (int64_t n : {8, 9, 16, 17, 32, 33})
    run({}, n);
  for (const char *type : {"bf16", "f16"})
    for (const char *rows : {"16", "31"})
      for (bool transposes : {false, true})
        run({.rows = rows, .type = type, .weight = type, .transposes = transposes});
}

/// Of 1, 3 and 16 sums a row; columns beyond a tile; clusters that share out K; more tiles than blocks.
TEST(PlanNorms, Widths) {
  for (int width : {64, 192, 1024})
    run({.rows = "32", .inner = 72, .width = width, .columns = 72});
  run({.rows = "9", .inner = 1096, .width = 2048, .columns = 64});
  run({.rows = "20", .inner = 64, .width = 64, .columns = 8712});
  run({.rows = "20",
       .inner = 64,
       .width = 12288,
       .columns = 64}); // the widest; two tiles of the first matmul at once
}

TEST(PlanNorms, WeightsOfOtherTypesAndWithABias) {
  for (const char *weight : {"bf16", "f32"})
    for (const char *norm :
         {"nn.rms_norm %s, %g {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}",
          "nn.rms_norm %s, %g {eps = 1.0e-2 : f32, scale_in = bf16}"})
      run({.rows = "24", .weight = weight, .result = "%y, %s", .norm = norm});
}

/// q, k and v of one norm, and a gated product in a group with its norm.
TEST(PlanNorms, GroupsBehindTheNorm) {
  const std::string head = R"(
  func.func @main(%x: S {nn.dims = ["n", 256]}, %w: tensor<256x256xbf16>, %g: tensor<256xbf16>, %u: U, %v: U, %t: T) -> )",
                    first = "    %s = nn.matmul %x, %w : (S, tensor<256x256xbf16>) -> S\n";
  std::string side = head + "(Y, Y, Z) {\n" + first + R"(
    %n = nn.rms_norm %s, %g {eps = 1.0e-6 : f32} : (S, tensor<256xbf16>) -> S
    %q, %k, %o = fusion.group "qkv_matmul" schedule "matmul" (%a = %n, %b = %u, %c = %v, %d = %t) : (S, U, U, T) -> (Y, Y, Z) {
      %0 = nn.matmul %a, %b : (S, U) -> Y
      %1 = nn.matmul %a, %c : (S, U) -> Y
      %2 = nn.matmul %a, %d : (S, T) -> Z
      fusion.yield %0, %1, %2 : Y, Y, Z
    }
    return %q, %k, %o : Y, Y, Z
  })",
              gated = head + "Y {\n" + first + R"(
    %q = fusion.group "norm_matmul" schedule "matmul_chain" (%e = %s, %f = %g, %b = %u, %c = %v) : (S, tensor<256xbf16>, U, U) -> Y {
      %a = nn.rms_norm %e, %f {eps = 1.0e-6 : f32} : (S, tensor<256xbf16>) -> S
      %0 = nn.matmul %a, %b : (S, U) -> Y
      %1 = nn.silu %0 : (Y) -> Y
      %2 = nn.matmul %a, %c : (S, U) -> Y
      %3 = nn.mul %1, %2 : (Y, Y) -> Y
      fusion.yield %3 : Y
    }
    return %q : Y
  })";
  for (std::string text : {side, gated}) {
    for (auto [name, type] : {std::pair("S", "tensor<?x256xbf16>"),
                              {"U", "tensor<256x192xbf16>"},
                              {"T", "tensor<256x64xbf16>"},
                              {"Y", "tensor<?x192xbf16>"},
                              {"Z", "tensor<?x64xbf16>"}})
      text = std::regex_replace(text, std::regex(fmt::format("\\b{}\\b", name)), type);
    SCOPED_TRACE(text);
    EXPECT_TRUE(isLinked(planFor(text)));
    for (int64_t n : {8, 12, 32, 40})
      check(text, {.symbols = {{"n", n}}, .tolerance = 1e-2, .targets = Targets::One});
  }
}

TEST(PlanNorms, NotWhereAnotherReadsWhatIsLeftOutOrNothingIsGained) {
  const Case linked{.rows = "32"};
  EXPECT_TRUE(isLinked(planFor(module(linked))));
  auto without = [](Case c, auto change) {
    change(c);
    SCOPED_TRACE(module(c));
    EXPECT_FALSE(isLinked(planFor(module(c))));
  };
  without(linked, [](Case &c) { c.result = "%y, %n"; });
  for (const char *rows : {"1", "8", "33", "300"})
    without(linked, [&](Case &c) { c.rows = rows; });
  without(linked, [](Case &c) { c.type = c.weight = "f32"; });
  without(linked, [](Case &c) { c.width = 200; }); // no whole tiles of columns
  without(linked, [](Case &c) { c.norm = "nn.layer_norm %s, %g {eps = 1.0e-6 : f32}"; });
  EXPECT_FALSE(isLinked(planFor(module(linked), {.target = "sm_80"})));
  EXPECT_FALSE(isLinked(planFor(module(linked), {.target = "sm_90a", .batchInvariant = true})));
}

} // namespace
