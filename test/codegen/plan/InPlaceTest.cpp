// Caches that are extended in a buffer with room.
#include "PlanChecks.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

/// `past` with room for `capacity` positions along `axis` of [b, 2, p, 32], or of [b, p, 2, 32] for axis 1.
std::string extended(const std::string &type, int axis, const std::string &fresh, const std::string &body,
                     const std::string &results, const std::string &resultTypes) {
  const std::string dims = axis == 2 ? R"("b", 2, "p", 32)" : R"("b", "p", 2, 32)",
                    storage = axis == 2 ? R"("b", 2, 12, 32)" : R"("b", 12, 2, 32)",
                    shape = axis == 2 ? "?x2x?x32" : "?x?x2x32";
  return fmt::format(R"(
    func.func @main(%past: tensor<{0}x{1}> {{nn.name = "past", nn.dims = [{2}], nn.storage = [{3}]}},
                    %x: {4} {{nn.name = "x"{5}}}) -> (tensor<{0}x{1}> {{nn.name = "present", nn.alias = 0 : i64}}{6}) {{
      {7}
      return {8} : tensor<{0}x{1}>{6}
    }})",
                     shape, type, dims, storage, fresh,
                     axis == 2 ? R"(, nn.dims = ["b", "n", 64])" : R"(, nn.dims = ["b", "n", 2, 32])",
                     resultTypes, body, results);
}

const std::string heads = R"(
      %r = nn.reshape %x {shape = ["b", "n", 2, 32]} : (tensor<?x?x64xTYPE>) -> tensor<?x?x2x32xTYPE>
      %t = nn.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x32xTYPE>) -> tensor<?x2x?x32xTYPE>
      %c = nn.concat %past, %t {axis = 2 : i64} : (tensor<?x2x?x32xTYPE>, tensor<?x2x?x32xTYPE>) -> tensor<?x2x?x32xTYPE>
)";

std::string typed(std::string text, const std::string &type) {
  for (size_t at; (at = text.find("TYPE")) != std::string::npos;)
    text.replace(at, 4, type);
  return text;
}

TEST(InPlace, ExtendsEveryType) {
  for (const char *type : {"f32", "f16", "bf16", "i64", "i8", "i1"})
    for (auto [batch, past, fresh] :
         {std::tuple(2, 5, 3), std::tuple(1, 0, 12), std::tuple(3, 11, 1), std::tuple(0, 2, 2)})
      check(extended(type, 2, typed("tensor<?x?x64xTYPE>", type), typed(heads, type), "%c", ""),
            {.symbols = {{"b", batch}, {"p", past}, {"n", fresh}}, .launches = 1});
}

/// Who reads the past or the result reads it where it lies.
TEST(InPlace, ReadersLookThroughStrides) {
  const std::string readers = R"(
      %f = nn.neg %c : (tensor<?x2x?x32xf32>) -> tensor<?x2x?x32xf32>
      %g = nn.neg %past : (tensor<?x2x?x32xf32>) -> tensor<?x2x?x32xf32>
      %s = nn.reduce %c {kind = "sum", axes = array<i64: 3>, keepdims = false} : (tensor<?x2x?x32xf32>) -> tensor<?x2x?xf32>
)";
  check(extended("f32", 2, "tensor<?x?x64xf32>", typed(heads, "f32") + readers, "%c, %f, %g, %s",
                 ", tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?xf32>"),
        {.symbols = {{"b", 2}, {"p", 5}, {"n", 3}}, .launches = 4});
}

TEST(InPlace, PositionsFirstAndTwoParts) {
  const std::string body = R"(
      %n = nn.neg %x : (tensor<?x?x2x32xf16>) -> tensor<?x?x2x32xf16>
      %c = nn.concat %past, %x, %n {axis = 1 : i64} : (tensor<?x?x2x32xf16>, tensor<?x?x2x32xf16>, tensor<?x?x2x32xf16>) -> tensor<?x?x2x32xf16>
)";
  check(extended("f16", 1, "tensor<?x?x2x32xf16>", body, "%c", ""),
        {.symbols = {{"b", 2}, {"p", 5}, {"n", 3}}, .launches = 2});
}

/// Only what is new counts as traffic, and the kernel has no use for the past.
TEST(InPlace, WritesOnlyWhatIsNew) {
  auto module = parse(extended("f16", 2, "tensor<?x?x64xf16>", typed(heads, "f16"), "%c", ""));
  ASSERT_TRUE(module);
  auto plan = buildPlan(mainOf(*module), {});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->launches().size(), 1u);
  const SymbolValues symbols = {{"b", 2}, {"p", 5}, {"n", 3}};
  EXPECT_EQ(*plan->launches()[0]->bytesWritten.evaluate(symbols), 2 * 2 * 3 * 32 * 2);
  EXPECT_EQ(*plan->launches()[0]->bytesRead.evaluate(symbols), 2 * 2 * 3 * 32 * 2);
  ASSERT_EQ(plan->outputs.size(), 1u);
  EXPECT_EQ(plan->outputs[0].buffer, plan->inputs[0].buffer);
  EXPECT_EQ(plan->outputs[0].strides, plan->inputs[0].strides);
  EXPECT_EQ(shapeString(plan->buffers[plan->inputs[0].buffer].shape),
            shapeString(DimShape{Dim::symbol("b"), 2, 12, 32}));
  auto again = programPlanFromJson(toJson(*plan));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->outputs[0].strides, plan->outputs[0].strides);
}

TEST(InPlace, AnAliasThatNothingExtendsIsAnError) {
  EXPECT_EQ(
      planError(extended("f32", 2, "tensor<?x?x64xf32>",
                         "%c = nn.neg %past : (tensor<?x2x?x32xf32>) -> tensor<?x2x?x32xf32>", "%c", "")),
      "result present: nn.alias says that it extends argument 0, but no op that writes a cache does that");
}

/// Rows of `fresh` new positions that start at another place in each batch entry.
NamedTensors rowsFrom(std::vector<int64_t> starts, int64_t fresh) {
  const auto batch = static_cast<int64_t>(starts.size());
  std::vector<int64_t> rows;
  for (int64_t start : starts)
    for (int64_t i = 0; i < fresh; ++i)
      rows.push_back(start + i);
  return {{"rows", Tensor::of<int64_t>(DType::I64, {batch, 1, fresh, 1}, std::span<const int64_t>(rows))}};
}

/// nn.cache_write of [b, 2, n, 32] into [b, 2, p, 32], with room for 12 positions if `inPlace`. `fresh` is
/// what makes %t.
std::string placed(const std::string &type, bool grows, bool inPlace, const std::string &fresh) {
  const std::string cache = "tensor<?x2x?x32x" + type + ">";
  return fmt::format(R"(
    func.func @main(%past: {0} {{nn.name = "past", nn.dims = ["b", 2, "p", 32]{1}}},
                    %x: tensor<?x?x64x{2}> {{nn.name = "x", nn.dims = ["b", "n", 64]}},
                    %cos: tensor<1x1x?x16x{2}> {{nn.name = "cos", nn.dims = [1, 1, "n", 16]}},
                    %rows: tensor<?x1x?x1xi64> {{nn.name = "rows", nn.dims = ["b", 1, "n", 1]}})
        -> ({0} {{nn.name = "present"{3}}}) {{
      %r = nn.reshape %x {{shape = ["b", "n", 2, 32]}} : (tensor<?x?x64x{2}>) -> tensor<?x?x2x32x{2}>
      %t = nn.transpose %r {{perm = array<i64: 0, 2, 1, 3>}} : (tensor<?x?x2x32x{2}>) -> {0}
      %y = fusion.group "rope_kv_write" schedule "{4}" (%old = %past, %new = %t, %c = %cos, %at = %rows)
          : ({0}, {0}, tensor<1x1x?x16x{2}>, tensor<?x1x?x1xi64>) -> {0} {{
        {5}
        %w = nn.cache_write %old, %f, %at {{axis = 2 : i64, grows = {6}}} : ({0}, {0}, tensor<?x1x?x1xi64>) -> {0}
        fusion.yield %w : {0}
      }}
      return %y : {0}
    }})",
                     cache, inPlace ? R"(, nn.storage = ["b", 2, 12, 32])" : "", type,
                     inPlace ? ", nn.alias = 0 : i64" : "", inPlace ? "row" : "pointwise",
                     fmt::format(fmt::runtime(fresh), cache, type), grows);
}

/// New rows go where the data says, behind the past, over it, and around its end.
TEST(InPlace, RowsThatDataPlaces) {
  const std::string negated = "%f = nn.neg %new : ({0}) -> {0}";
  const std::string rotated = "%f = nn.rope %new, %c, %c {{interleaved = false, rotary_dim = 32 : i64}} : "
                              "({0}, tensor<1x1x?x16x{1}>, tensor<1x1x?x16x{1}>) -> {0}";
  for (const char *type : {"f32", "f16", "bf16"})
    for (bool inPlace : {true, false})
      for (bool grows : {true, false})
        for (const std::string &fresh : {negated, rotated})
          for (auto [starts, count] :
               {std::pair(std::vector<int64_t>{5}, 1), std::pair(std::vector<int64_t>{5, 0, 3}, 1),
                std::pair(std::vector<int64_t>{1, 5, 4, 2}, 3)})
            check(placed(type, grows, inPlace, fresh),
                  {.symbols = {{"b", static_cast<int64_t>(starts.size())}, {"p", 5}, {"n", count}},
                   .inputs = rowsFrom(starts, count),
                   .tolerance = std::string(type) == "f32" ? 1e-6 : 1e-3,
                   .launches = 1,
                   .targets = Targets::One});
}

/// A row that does not exist is left out: nothing is written outside of the cache.
TEST(InPlace, RowsOutsideAreLeftOut) {
  for (bool inPlace : {true, false})
    check(placed("f16", false, inPlace, "%f = nn.neg %new : ({0}) -> {0}"),
          {.symbols = {{"b", 3}, {"p", 5}, {"n", 2}}, .inputs = rowsFrom({-1, 4, 9}, 2), .launches = 1});
}

} // namespace
} // namespace fusion::test
