// nn.expert_matmul: see expert.cuh.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

/// How rows choose their experts.
enum class Choice { Spread, One, OutOfRange };

struct Form {
  int tokens = 5, slots = 2, experts = 6, n = 40, k = 72;
  bool transpose = true;
  const char *type = "bf16";
  /// One matrix of gate and up, silu(gate) * up; else a product with weights of the slots.
  bool gated = true;
  bool shared = true; ///< the slots of a token read one row
  bool sum = false;   ///< of the weighted products over the slots, and an activation of it
  Choice choice = Choice::Spread;
  const char *index = "i64";
  bool bias = false; ///< of each expert, added to its product
};

std::string module(const Form &f) {
  const int width = f.gated ? 2 * f.n : f.n;
  const std::string x = fmt::format("tensor<{}x{}x{}x{}>", f.tokens, f.shared ? 1 : f.slots, f.k, f.type),
                    w = f.transpose ? fmt::format("tensor<{}x{}x{}x{}>", f.experts, width, f.k, f.type)
                                    : fmt::format("tensor<{}x{}x{}x{}>", f.experts, f.k, width, f.type),
                    i = fmt::format("tensor<{}x{}x{}>", f.tokens, f.slots, f.index),
                    p = fmt::format("tensor<{}x{}x{}x{}>", f.tokens, f.slots, width, f.type),
                    y = fmt::format("tensor<{}x{}x{}x{}>", f.tokens, f.slots, f.n, f.type),
                    s = fmt::format("tensor<{}x{}x1x{}>", f.tokens, f.slots, f.type);
  const std::string e = fmt::format("tensor<{}x{}x{}>", f.experts, width, f.type);
  const std::string bias = !f.bias ? "" : fmt::format(R"(
        %v = nn.gather %e0, %c {{axis = 0 : i64}} : ({0}, {1}) -> {2}
        %p = nn.add %q, %v : ({2}, {2}) -> {2})",
                                                      e, i, p);
  const std::string slice = fmt::format("sizes = [{}, {}, {}], steps = array<i64: 1, 1, 1>}} : ({}) -> {}",
                                        f.tokens, f.slots, f.n, p, y);
  const std::string tail = f.gated ? fmt::format(R"(
        %g = nn.slice %p {{starts = [0, 0, 0], {0}
        %u = nn.slice %p {{starts = [0, 0, {2}], {0}
        %a = nn.silu %g : ({1}) -> {1}
        %r = nn.mul %a, %u : ({1}, {1}) -> {1})",
                                                 slice, y, f.n)
                                   : fmt::format(R"(
        %{2} = nn.mul %p, %d : ({0}, {1}) -> {0})",
                                                 y, s, f.sum ? "m" : "r");
  const std::string added = fmt::format("tensor<{}x{}x{}>", f.tokens, f.n, f.type);
  const std::string sum = !f.sum ? "" : fmt::format(R"(
        %t = nn.reduce %m {{kind = "sum", axes = array<i64: 1>, keepdims = false}} : ({0}) -> {1}
        %r = nn.silu %t : ({1}) -> {1})",
                                                    y, added);
  return fmt::format(R"(
    func.func @main(%x: {0}, %w: {1}, %i: {2}, %s: {3}, %e: {8}) -> {4} {{
      %0 = fusion.group "g" schedule "experts" (%a0 = %x, %b = %w, %c = %i, %d = %s, %e0 = %e) : ({0}, {1}, {2}, {3}, {8}) -> {4} {{
        %{9} = nn.expert_matmul %a0, %b, %c {{transpose_w = {5}}} : ({0}, {1}, {2}) -> {6}{7}
        fusion.yield %r : {4}
      }}
      return %0 : {4}
    }})",
                     x, w, i, s, f.sum ? added : y, f.transpose, p, bias + tail + sum, e, f.bias ? "q" : "p");
}

/// Choices in [0, experts), some of them from the end where the index has a sign.
void choose(const Form &form, Tensor &index) {
  const bool isSigned = form.index[0] == 'i';
  for (int64_t i = 0; i < index.size(); ++i) {
    int64_t expert = form.choice == Choice::One ? form.experts - 1 : (i * 5 + i / 3) % form.experts;
    if (form.choice == Choice::OutOfRange)
      expert = i % 3 == 0 ? form.experts + 20 : i % 3 == 1 && isSigned ? -form.experts - 7 : expert;
    else if (isSigned && i % 4 == 1)
      expert -= form.experts;
    set(index, i, static_cast<double>(expert));
  }
}

std::string run(const Form &form, const char *name) {
  const double tolerance = std::string(form.type) == "f32" ? 2e-6 : 1.2e-2;
  const std::string source =
      check(expertSchedule(), {module(form), {}, tolerance, [&](unsigned index, Tensor &tensor) {
                                 if (index == 2)
                                   choose(form, tensor);
                               }});
  EXPECT_NE(source.find(std::string(name) + "<Config>"), std::string::npos) << source;
  return source;
}

TEST(ExpertMatmul, FewTokens) {
  for (bool transpose : {true, false})
    for (bool gated : {false, true})
      for (int tokens : {1, 5, 17})
        run({.tokens = tokens, .slots = tokens == 1 ? 8 : 3, .experts = 16, .transpose = transpose,
             .type = tokens == 5 ? "f16" : "bf16", .gated = gated, .shared = gated},
            tokens == 1 && transpose ? "expert_gemv" : "expert_small_m");
}

TEST(ExpertMatmul, OneToken) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (bool gated : {false, true}) {
      run({.tokens = 1, .slots = 8, .experts = 16, .type = type, .gated = gated}, "expert_gemv");
      run({.tokens = 1,
           .slots = 3,
           .experts = 16,
           .n = 6,
           .k = 2080,
           .type = type,
           .gated = gated,
           .shared = gated},
          "expert_gemv");
    }
  run({.tokens = 1, .slots = 4, .n = 800, .k = 264}, "expert_gemv");
  run({.tokens = 1, .slots = 32, .n = 33, .k = 1024, .gated = false, .choice = Choice::OutOfRange},
      "expert_gemv");
}

TEST(ExpertMatmul, SumOverSlotsOfAFewTokens) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (int slots : {1, 2, 3, 4, 8, 13})
      for (int tokens : {1, slots > 8 ? 2 : 4})
        run({.tokens = tokens,
             .slots = slots,
             .experts = 16,
             .n = slots == 3 ? 41 : 80,
             .k = slots < 4 ? 1312 : 328,
             .type = type,
             .gated = false,
             .shared = false,
             .sum = true},
            "expert_gemv_sum");
  run({.tokens = 1,
       .slots = 8,
       .n = 2048,
       .k = 24,
       .gated = false,
       .sum = true,
       .choice = Choice::OutOfRange},
      "expert_gemv_sum");
}

TEST(ExpertMatmul, BiasOfEachExpert) {
  const char *const names[] = {"expert_gemv", "expert_small_m", "expert_mma"};
  for (auto [tokens, name] : {std::pair(1, names[0]), std::pair(5, names[1]), std::pair(150, names[2])}) {
    const int experts = tokens == 150 ? 3 : 6;
    run({.tokens = tokens, .experts = experts, .gated = false, .shared = false, .bias = true}, name);
    run({.tokens = tokens, .experts = experts, .gated = false, .choice = Choice::OutOfRange, .bias = true},
        name);
  }
  run({.tokens = 1, .slots = 3, .gated = false, .shared = false, .sum = true, .bias = true},
      "expert_gemv_sum");
  run({.tokens = 4, .type = "f32", .gated = false, .bias = true}, "expert_fma");
}

TEST(ExpertMatmul, SharesOfRows) {
  for (int slots : {1, 2, 5, 8})
    for (bool gated : {false, true})
      run({.tokens = 7, .slots = slots, .experts = 4, .gated = gated}, "expert_small_m");
}

TEST(ExpertMatmul, ManyTokens) {
  for (bool transpose : {true, false})
    for (bool gated : {false, true})
      run({.tokens = 150,
           .slots = 2,
           .experts = 3,
           .transpose = transpose,
           .type = gated ? "f16" : "bf16",
           .gated = gated,
           .shared = gated},
          "expert_mma");
}

TEST(ExpertMatmul, SizesThatNoVectorReads) {
  for (int n : {7, 33})
    for (int k : {5, 71})
      for (int tokens : {1, 9, 70})
        run({.tokens = tokens, .n = n, .k = k, .transpose = n == 7}, "expert_mma");
}

TEST(ExpertMatmul, F32) {
  for (int tokens : {1, 6, 90})
    for (bool transpose : {true, false})
      for (bool gated : {false, true})
        run({.tokens = tokens, .n = 37, .k = 29, .transpose = transpose, .type = "f32", .gated = gated},
            "expert_fma");
}

TEST(ExpertMatmul, AllRowsToOneExpert) {
  for (const char *index : {"i64", "i32", "ui8"})
    for (int tokens : {1, 20})
      run({.tokens = tokens, .slots = 2, .choice = Choice::One, .index = index},
          tokens == 1 ? "expert_gemv" : "expert_small_m");
  run({.tokens = 150, .experts = 2, .choice = Choice::One}, "expert_mma");
}

TEST(ExpertMatmul, ChoicesOutOfRange) {
  for (const char *index : {"i64", "i32", "ui8"})
    run({.choice = Choice::OutOfRange, .index = index}, "expert_small_m");
}

/// Experts' matrices that are decoded as they are read.
struct Codes {
  const char *type = "i8";
  std::string scale; ///< its shape; empty: one for all
  int axis = -1, block = 0;
  bool zero = false;
};

std::string quantised(const Form &f, const Codes &codes) {
  auto tensor = [](const std::string &shape, const char *type) {
    return shape.empty() ? fmt::format("tensor<{}>", type) : fmt::format("tensor<{}x{}>", shape, type);
  };
  const std::string shape = f.transpose ? fmt::format("{}x{}x{}", f.experts, f.n, f.k)
                                        : fmt::format("{}x{}x{}", f.experts, f.k, f.n);
  const std::string x = fmt::format("tensor<{}x1x{}x{}>", f.tokens, f.k, f.type),
                    q = tensor(shape, codes.type), s = tensor(codes.scale, f.type),
                    z = tensor(codes.scale, codes.type), w = tensor(shape, f.type),
                    i = fmt::format("tensor<{}x{}xi64>", f.tokens, f.slots),
                    y = fmt::format("tensor<{}x{}x{}x{}>", f.tokens, f.slots, f.n, f.type);
  return fmt::format(R"(
    func.func @main(%x: {0}, %w: {1}, %i: {2}, %s: {3}, %z: {4}) -> {5} {{
      %0 = fusion.group "g" schedule "experts" (%a = %x, %b = %w, %c = %i, %d = %s{6}) : ({0}, {1}, {2}, {3}{7}) -> {5} {{
        %e = nn.dequantize %b, %d{8} {{axis = {9} : i64, block_size = {10} : i64}} : ({1}, {3}{7}) -> {11}
        %p = nn.expert_matmul %a, %e, %c {{transpose_w = {12}}} : ({0}, {11}, {2}) -> {5}
        %r = nn.relu %p : ({5}) -> {5}
        fusion.yield %r : {5}
      }}
      return %0 : {5}
    }})",
                     x, q, i, s, z, y, codes.zero ? ", %f = %z" : "", codes.zero ? ", " + z : "",
                     codes.zero ? ", %f" : "", codes.axis, codes.block, w, f.transpose);
}

void runQuantised(const Form &form, const Codes &codes, const char *name) {
  const double tolerance = std::string(form.type) == "f32" ? 3e-6 : 1.2e-2;
  const std::string source =
      check(expertSchedule(), {quantised(form, codes), {}, tolerance, [&](unsigned index, Tensor &tensor) {
                                 if (index == 2)
                                   choose(form, tensor);
                                 for (int64_t i = 0; index == 3 && i < tensor.size(); ++i)
                                   set(tensor, i, 0.01 + 0.001 * static_cast<double>(i * 7 % 13));
                               }});
  EXPECT_NE(source.find(std::string(name) + "<Config>"), std::string::npos) << source;
}

TEST(ExpertMatmul, QuantisedMatrices) {
  for (const char *type : {"i8", "i4", "ui8", "f8E4M3FN"})
    for (int tokens : {type[1] == '8' ? 1 : 9, 150}) {
      const Form form{.tokens = tokens, .experts = 4, .n = 24, .k = 64, .type = tokens == 9 ? "f16" : "bf16"};
      const char *name = tokens == 150 ? "expert_mma" : "expert_small_m";
      const bool isFloat = type[0] == 'f';
      runQuantised(form, {type, "4x24x2", 2, 32}, name);      // blocks along k
      runQuantised(form, {type, "4", 0, 0, !isFloat}, name);  // one for each expert
      runQuantised(form, {type, "24", 1, 0, !isFloat}, name); // the same for all experts
      runQuantised(form, {type, ""}, name);
    }
}

TEST(ExpertMatmul, QuantisedMatricesByRows) {
  for (int tokens : {1, 110}) {
    Form form{.tokens = tokens, .experts = 3, .n = 40, .k = 48, .transpose = false};
    runQuantised(form, {"i8", "3x3x40", 1, 16}, tokens == 1 ? "expert_small_m" : "expert_mma");
    form = {.tokens = tokens, .experts = 3, .n = 19, .k = 33, .type = "f32"};
    runQuantised(form, {"i8", "3", 0, 0, true}, "expert_fma");
  }
}

TEST(ExpertMatmul, SaysWhatItDoesNotTake) {
  const char *text = R"(
    func.func @main(%x: tensor<5x1x8xf32>, %w: tensor<?x4x8xf32> {nn.dims = ["e", 4, 8]}, %i: tensor<5x2xi64>) -> tensor<5x2x4xf32> {
      %y = nn.expert_matmul %x, %w, %i {transpose_w = true} : (tensor<5x1x8xf32>, tensor<?x4x8xf32>, tensor<5x2xi64>) -> tensor<5x2x4xf32>
      return %y : tensor<5x2x4xf32>
    })";
  EXPECT_EQ(refusal(expertSchedule(), text), "a number of experts that is known at run time only");
}

} // namespace
} // namespace fusion::test
