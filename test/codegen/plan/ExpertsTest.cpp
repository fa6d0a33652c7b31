// Kernels of nn.expert_matmul by the number of tokens: one for few, several for many and for sums over slots.
#include "PlanChecks.h"

#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

struct Sizes {
  int hidden = 72, inner = 136, experts = 3, slots = 2;
  const char *type = "bf16";
  const char *weights = "bf16"; ///< type in which the slots are weighted and added up
};

/// silu(gate) * up of one matrix, then down, weighted, added up over the slots, plus x.
std::string module(const Sizes &s) {
  const std::string t = s.type, x = fmt::format("tensor<?x{}x{}>", s.hidden, t),
                    r = fmt::format("tensor<?x1x{}x{}>", s.hidden, t),
                    w = fmt::format("tensor<{}x{}x{}x{}>", s.experts, 2 * s.inner, s.hidden, t),
                    d = fmt::format("tensor<{}x{}x{}x{}>", s.experts, s.hidden, s.inner, t),
                    i = fmt::format("tensor<?x{}xi64>", s.slots),
                    c = fmt::format("tensor<?x{}x1x{}>", s.slots, s.weights),
                    p = fmt::format("tensor<?x{}x{}x{}>", s.slots, 2 * s.inner, t),
                    h = fmt::format("tensor<?x{}x{}x{}>", s.slots, s.inner, t),
                    o = fmt::format("tensor<?x{}x{}x{}>", s.slots, s.hidden, t),
                    m = fmt::format("tensor<?x{}x{}x{}>", s.slots, s.hidden, s.weights),
                    k = fmt::format("tensor<?x{}x{}>", s.hidden, s.weights);
  const bool casts = std::string(s.weights) != t;
  const std::string slice = fmt::format("sizes = [\"t\", {}, {}], steps = array<i64: 1, 1, 1>}} : ({}) -> {}",
                                        s.slots, s.inner, p, h);
  return fmt::format(
      R"(
func.func @main(%x: {0} {{nn.dims = ["t", {1}]}}, %w: {2}, %d: {3}, %i: {4} {{nn.dims = ["t", {5}]}},
                %c: {6} {{nn.dims = ["t", {5}, 1]}}) -> {0} {{
  %r = nn.reshape %x {{shape = ["t", 1, {1}]}} : ({0}) -> {7}
  %h = fusion.group "expert_matmul" schedule "experts" (%a = %r, %b = %w, %j = %i) : ({7}, {2}, {4}) -> {8} {{
    %p = nn.expert_matmul %a, %b, %j {{transpose_w = true}} : ({7}, {2}, {4}) -> {9}
    %g = nn.slice %p {{starts = [0, 0, 0], {10}
    %u = nn.slice %p {{starts = [0, 0, {11}], {10}
    %s = nn.silu %g : ({8}) -> {8}
    %q = nn.mul %s, %u : ({8}, {8}) -> {8}
    fusion.yield %q : {8}
  }}
  %y = fusion.group "expert_matmul" schedule "experts" (%a = %h, %b = %d, %j = %i, %v = %c, %z = %x) : ({8}, {3}, {4}, {6}, {0}) -> {0} {{
    %o = nn.expert_matmul %a, %b, %j {{transpose_w = true}} : ({8}, {3}, {4}) -> {12}{13}
    %n = nn.reduce %m {{kind = "sum", axes = array<i64: 1>, keepdims = false}} : ({14}) -> {15}{16}
    %e = nn.add %k, %z : ({0}, {0}) -> {0}
    fusion.yield %e : {0}
  }}
  return %y : {0}
}})",
      x, s.hidden, w, d, i, s.slots, c, r, h, p, slice, s.inner, o,
      casts ? fmt::format("\n    %f = nn.cast %o : ({0}) -> {1}\n    %m = nn.mul %f, %v : ({1}, {2}) -> {1}",
                          o, m, c)
            : fmt::format("\n    %m = nn.mul %o, %v : ({0}, {1}) -> {0}", o, c),
      m, k,
      casts ? fmt::format("\n    %k = nn.cast %n : ({}) -> {}", k, x)
            : fmt::format("\n    %k = nn.add %n, %z : ({0}, {0}) -> {0}", x));
}

TEST(Experts, AnyNumberOfTokens) {
  for (int tokens : {0, 1, 4, 11, 23, 33, 140})
    check(module({}), {.symbols = {{"t", tokens}},
                       .tolerance = 8e-3,
                       .targets = tokens == 140 ? Targets::All : Targets::One});
}

/// One block takes all tiles.
TEST(Experts, TilesOneAfterTheOther) {
  TargetInfo device = TargetInfo::standard();
  device.multiprocessors = 1;
  for (int tokens : {140, 400})
    check(module({.hidden = 328, .inner = 264}),
          {.symbols = {{"t", tokens}}, .tolerance = 8e-3, .device = device, .targets = Targets::One});
}

/// Tiles of an expert's rows are of any number of them: in eights, and in two or three tiles from 161 on.
TEST(Experts, SharesOfAnyNumberOfRows) {
  TargetInfo device = TargetInfo::standard();
  device.multiprocessors = 3;
  for (int tokens : {12, 37, 64, 127, 136, 149, 161, 250, 333})
    check(module({.hidden = 64, .inner = 72, .experts = 1, .slots = 1}),
          {.symbols = {{"t", tokens}}, .tolerance = 8e-3, .device = device, .targets = Targets::One});
}

/// Of many experts, and of more choices than the threads that put rows in order look at at once (32,768).
TEST(Experts, OrderOfTheRowsOfManyExperts) {
  for (auto [experts, tokens] : {std::pair(300, 1700), std::pair(1024, 5200), std::pair(7, 16700)})
    check(module({.hidden = 64, .inner = 72, .experts = experts}),
          {.symbols = {{"t", tokens}}, .tolerance = 8e-3, .targets = Targets::One});
}

/// Of many rows, also of matrices that lie by depth and with results that are not rounded.
TEST(Experts, ProductsOfManyRows) {
  for (bool transpose : {true, false})
    for (const char *type : {"bf16", "f32"})
      for (int tokens : {60, 167}) {
        const std::string y = fmt::format("tensor<?x2x136x{}>", type);
        const std::string text = fmt::format(
            R"(
func.func @main(%x: tensor<?x1x72xbf16> {{nn.dims = ["t", 1, 72]}}, %w: tensor<3x{0}xbf16>,
                %i: tensor<?x2xi64> {{nn.dims = ["t", 2]}}) -> {1} {{
  %y = fusion.group "expert_matmul" schedule "experts" (%a = %x, %b = %w, %j = %i) : (tensor<?x1x72xbf16>, tensor<3x{0}xbf16>, tensor<?x2xi64>) -> {1} {{
    %p = nn.expert_matmul %a, %b, %j {{transpose_w = {2}}} : (tensor<?x1x72xbf16>, tensor<3x{0}xbf16>, tensor<?x2xi64>) -> {1}
    %s = nn.silu %p : ({1}) -> {1}
    fusion.yield %s : {1}
  }}
  return %y : {1}
}})",
            transpose ? "136x72" : "72x136", y, transpose);
        check(text, {.symbols = {{"t", tokens}},
                     .tolerance = type[0] == 'f' ? 1e-5 : 8e-3,
                     .targets = Targets::One});
      }
}

/// What follows reads a bias of each expert and a number for each column of a row.
TEST(Experts, OperandsOfManyRows) {
  const std::string y = "tensor<?x2x264xbf16>", x = "tensor<?x1x72xbf16>", w = "tensor<3x264x72xbf16>",
                    i = "tensor<?x2xi64>", e = "tensor<3x264xbf16>",
                    types = "(" + x + ", " + w + ", " + i + ", " + e + ", " + y + ") -> " + y;
  const std::string text =
      "func.func @main(%x: " + x + " {nn.dims = [\"t\", 1, 72]}, %w: " + w + ", %i: " + i +
      " {nn.dims = [\"t\", 2]}, %e: " + e + ", %r: " + y + " {nn.dims = [\"t\", 2, 264]}) -> " + y +
      " {\n%y = fusion.group \"expert_matmul\" schedule \"experts\" (%a = %x, %b = %w, %j = %i, %c = %e, "
      "%s = %r) : " +
      types + " {\n%p = nn.expert_matmul %a, %b, %j {transpose_w = true} : (" + x + ", " + w + ", " + i +
      ") -> " + y + "\n%v = nn.gather %c, %j {axis = 0 : i64} : (" + e + ", " + i + ") -> " + y +
      "\n%q = nn.add %p, %v : (" + y + ", " + y + ") -> " + y + "\n%z = nn.add %q, %s : (" + y + ", " + y +
      ") -> " + y + "\nfusion.yield %z : " + y + "\n}\nreturn %y : " + y + "\n}";
  for (int tokens : {60, 400})
    check(text, {.symbols = {{"t", tokens}}, .tolerance = 8e-3, .targets = Targets::One});
}

TEST(Experts, WeightsOfAnotherType) {
  for (int tokens : {1, 60})
    check(module({.hidden = 264, .inner = 64, .experts = 2, .slots = 3, .type = "f16", .weights = "f32"}),
          {.symbols = {{"t", tokens}}, .tolerance = 1e-3, .targets = Targets::One});
}

TEST(Experts, OddSizes) {
  for (const char *type : {"bf16", "f32"})
    check(module({.hidden = 35, .inner = 21, .experts = 4, .slots = 1, .type = type, .weights = type}),
          {.symbols = {{"t", 9}}, .tolerance = type[0] == 'b' ? 8e-3 : 2e-6, .targets = Targets::One});
}

TEST(Experts, KernelsByTheNumberOfTokens) {
  auto module = parse(test::module({}));
  for (const char *target : {"sm_80", "sm_90a"}) {
    auto plan = buildPlan(mainOf(*module), {.target = target});
    ASSERT_TRUE(bool(plan)) << plan.error().message;
    const bool hasWarpgroups = std::string_view(target) == "sm_90a";
    const Step &products = plan->steps.front();
    EXPECT_EQ(products.alternatives.front().launches.size(), 1u);
    // Of one token, whose row lies in shared memory: nothing in front writes it.
    const KernelPlan &one = plan->kernels[products.alternatives.front().launches.back().kernel];
    EXPECT_NE(one.source.find("kept_row = 72"), std::string::npos) << one.source;
    EXPECT_EQ(products.alternatives.back().launches.size(), hasWarpgroups ? 2u : 1u);
    const KernelPlan &many = plan->kernels[products.alternatives.back().launches.back().kernel];
    // The second product reads the order of the rows that the first has made.
    EXPECT_EQ(plan->steps.back().alternatives.back().launches.size(), 2u);
    EXPECT_NE(many.source.find(hasWarpgroups ? "expert_sm90<" : "expert_mma<"), std::string::npos)
        << many.source;
  }
}

/// That of experts, but where rows are added up over the slots the kernels of many tokens begin one row
/// before those of the other products do.
class EarlySums : public Schedule {
public:
  llvm::StringRef name() const override { return expertSchedule().name(); }
  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    Result<SchedulePlan> made = expertSchedule().plan(region, context);
    if (made && llvm::any_of(region.ops, llvm::IsaPred<nn::ReduceOp>))
      made->split = [split = made->split] {
        std::vector<PlannedAlternative> all = split();
        for (size_t i = 1; i < all.size(); ++i)
          if (all[i].kernels.size() == 3 && all[i - 1].kernels.size() == 2) {
            --all[i - 1].when.front().most;
            --all[i].when.front().least;
          }
        return all;
      };
    return made;
  }
};

/// The order of the rows is made by a step only where that step runs, so that another reads it for the same
/// sizes or makes it by itself.
TEST(Experts, TheOrderOfRowsIsThereForTheSizesOfTheStepThatMadeIt) {
  const EarlySums early;
  auto module = parse(test::module({}));
  for (bool alike : {true, false}) {
    PlanOptions options;
    if (!alike)
      options.schedules = ScheduleSet({&early});
    auto plan = buildPlan(mainOf(*module), options);
    ASSERT_TRUE(bool(plan)) << plan.error().message;
    const Alternative &first = plan->steps.front().alternatives.back(),
                      &second = plan->steps.back().alternatives.back();
    EXPECT_EQ(first.when == second.when, alike);
    EXPECT_EQ(first.launches.size(), 2u);
    EXPECT_EQ(second.launches.size(), alike ? 2u : 3u);
  }
}

} // namespace
} // namespace fusion::test
