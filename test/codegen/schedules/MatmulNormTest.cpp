// A norm in the prologue of matmuls of a few rows.
#include "Harness.h"

#include <fmt/format.h>


namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) {
  return type == "f16" ? 1e-3 : type == "bf16" ? 8e-3 : 4e-6;
}

struct Case {
  std::string type = "f16";
  int rows = 1, k = 256, n = 96;
  bool transposed = true; ///< the weights are [n, k]
  std::string norm = "nn.rms_norm %s, %v {eps = 1.0e-6 : f32}";
  bool add = false, keep = false; ///< the residual add is in the prologue too; the sum leaves
  std::string weight = "";        ///< type of the norm's weight, if another
};

std::string matmul(const Case &c, const char *weight, int n) {
  return fmt::format("nn.matmul %h, %{} {{transpose_b = {}}} : (tensor<{}x{}x{}>, {}) -> tensor<{}x{}x{}>",
                     weight, c.transposed ? "true" : "false", c.rows, c.k, c.type,
                     c.transposed ? fmt::format("tensor<{}x{}x{}>", n, c.k, c.type)
                                  : fmt::format("tensor<{}x{}x{}>", c.k, n, c.type),
                     c.rows, n, c.type);
}

/// The norm %h and what `body` makes of it and of weights w0, w1 with n and m columns. `results`: names and
/// widths.
std::string module(const Case &c, int m, const std::string &body,
                   std::vector<std::pair<std::string, int>> results) {
  auto tensor = [&](int width) { return fmt::format("tensor<{}x{}x{}>", c.rows, width, c.type); };
  auto weight = [&](int n) {
    return c.transposed ? fmt::format("tensor<{}x{}x{}>", n, c.k, c.type)
                        : fmt::format("tensor<{}x{}x{}>", c.k, n, c.type);
  };
  if (c.keep)
    results.push_back({"s", c.k});
  const std::string x = tensor(c.k),
                    v = fmt::format("tensor<{}x{}>", c.k, c.weight.empty() ? c.type : c.weight);
  const bool biased = c.norm.find("%b") != std::string::npos;
  std::string types, names, out;
  for (size_t index = 0; index < results.size(); ++index) {
    const auto &result = results[index];
    const char *comma = index == 0 ? "" : ", ";
    types += comma + tensor(result.second);
    names += comma + ("%" + result.first);
    out += comma + fmt::format("%y#{}", index);
  }
  return fmt::format(R"(
    func.func @main(%x: {0}, %r: {0}, %p0: {1}, %p1: {1}, %q0: {2}, %q1: {3}) -> ({4}) {{
      %y:{5} = fusion.group "norm_matmul" schedule "matmul" (%a = %x, %c = %r, %v = %p0, %b = %p1, %w0 = %q0, %w1 = %q1)
          : ({0}, {0}, {1}, {1}, {2}, {3}) -> ({4}) {{
        %s = {6} : ({0}{7}) -> {0}
        %h = {8} : ({0}, {1}{9}) -> {0}
        {10}
        fusion.yield {11} : {4}
      }}
      return {12} : {4}
    }})",
                     x, v, weight(c.n), weight(m), types, results.size(),
                     c.add ? "nn.add %a, %c" : "nn.neg %a", c.add ? ", " + x : "", c.norm,
                     biased ? ", " + v : "", body, names, out);
}

std::string one(const Case &c) { return module(c, c.n, "%0 = " + matmul(c, "w0", c.n), {{"0", c.n}}); }

TEST(MatmulNorm, OneMatmul) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool transposed : {true, false})
      for (int rows : {1, 2, 3, 8})
        for (auto [k, n] : {std::pair(256, 96), {1024, 64}, {77, 5}, {1, 1}})
          check(matmulSchedule(),
                {one({type, rows, k, n, transposed}), {}, toleranceOf(type), {}, rows != 3});
}

/// All of the shared memory: the rows, the parts of wide strips and the reductions.
TEST(MatmulNorm, LongestRows) {
  check(matmulSchedule(), {one({"f16", 4, 4096, 8192, false}), {}, toleranceOf("f16"), {}, true});
  check(matmulSchedule(), {one({"f16", 4, 4096, 24, true}), {}, toleranceOf("f16"), {}, true});
}

TEST(MatmulNorm, EveryNorm) {
  for (const char *norm :
       {"nn.layer_norm %s, %v {eps = 1.0e-5 : f32}", "nn.layer_norm %s, %v, %b {eps = 1.0e-5 : f32}",
        "nn.rms_norm %s, %v {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}"})
    for (const char *weight : {"", "f32"})
      for (bool transposed : {true, false})
        for (int rows : {1, 5})
          check(matmulSchedule(), {one({"bf16", rows, 320, 48, transposed, norm, false, false, weight}),
                                   {},
                                   toleranceOf("bf16")});
}

/// One block writes the sum.
TEST(MatmulNorm, ResidualAddInThePrologue) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool transposed : {true, false})
      for (bool keep : {true, false})
        for (int rows : {1, 4, 8}) {
          Case c{type, rows, 512, 200, transposed};
          c.add = true;
          c.keep = keep;
          const std::string source = check(matmulSchedule(), {one(c), {}, toleranceOf(type)});
          EXPECT_EQ(source.find("block_x() == 0") != std::string::npos, keep);
        }
}

TEST(MatmulNorm, ProductsSideBySide) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool transposed : {true, false})
      for (int rows : {1, 6}) {
        Case c{type, rows, 256, 96, transposed};
        c.add = c.keep = true;
        check(matmulSchedule(),
              {module(c, 33, "%0 = " + matmul(c, "w0", 96) + "\n%1 = " + matmul(c, "w1", 33),
                      {{"0", 96}, {"1", 33}}),
               {},
               toleranceOf(type)});
      }
}

TEST(MatmulNorm, GatedProducts) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool transposed : {true, false})
      for (int rows : {1, 4}) {
        Case c{type, rows, 256, 96, transposed};
        const std::string y = fmt::format("tensor<{}x96x{}>", rows, type);
        check(matmulSchedule(),
              {module(c, 96,
                      "%0 = " + matmul(c, "w0", 96) + "\n%1 = " + matmul(c, "w1", 96) +
                          fmt::format(
                              "\n%2 = nn.silu %0 : ({0}) -> {0}\n%3 = nn.mul %2, %1 : ({0}, {0}) -> {0}", y),
                      {{"3", 96}}),
               {},
               3 * toleranceOf(type)});
      }
}

/// The normalised rows leave too, for a reader that is no matmul.
TEST(MatmulNorm, NormLeaves) {
  for (bool transposed : {true, false}) {
    Case c{"f16", 3, 128, 40, transposed};
    check(matmulSchedule(),
          {module(c, 40, "%0 = " + matmul(c, "w0", 40), {{"0", 40}, {"h", 128}}), {}, toleranceOf("f16")});
  }
}

TEST(MatmulNorm, Refusals) {
  auto reason = [](const Case &c) { return refusal(matmulSchedule(), one(c)); };
  EXPECT_NE(reason({"f16", 9, 64, 64}).find("rows of 128 bytes is for 1 to 8 rows: here there are 9"),
            std::string::npos);
  EXPECT_NE(reason({"f16", 0, 64, 64}).find("here there are 0"), std::string::npos);
  EXPECT_NE(reason({"f16", 8, 4096, 64}).find("is for 1 to 4 rows: here there are 8"), std::string::npos);
  EXPECT_NE(
      reason({"f64", 1, 64, 64, true, "nn.rms_norm %s, %v {eps = 1.0e-6 : f32}"}).find("kernel for few rows"),
      std::string::npos);
  EXPECT_NE(reason({"f16", 1, 64, 64, true, "nn.mul %s, %v"}).find("computed in the region"),
            std::string::npos);
  Case c{"f16", 1, 64, 64};
  const std::string residual =
      module(c, 64,
             "%0 = " + matmul(c, "w0", 64) +
                 "\n%1 = nn.add %0, %s : (tensor<1x64xf16>, tensor<1x64xf16>) -> tensor<1x64xf16>",
             {{"1", 64}});
  EXPECT_NE(refusal(matmulSchedule(), residual).find("nn.add reads what the prologue"), std::string::npos);
}

} // namespace
} // namespace fusion::test
