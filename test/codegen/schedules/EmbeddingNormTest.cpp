// Rows of tables, chosen by numbers, and the norm of them in a row kernel.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) { return type == "f16" ? 5e-4 : type == "bf16" ? 4e-3 : 2e-6; }

bool has(const std::string &source, const std::string &part) {
  return source.find(part) != std::string::npos;
}

struct Form {
  int width;
  const char *type = "bf16", *ids = "i64";
  const char *norm = "rms_norm"; ///< or layer_norm
  bool leaves = true;            ///< the row itself is a result too
  bool scaled = false;           ///< Gemma: times a number
};

std::string module(const Form &f) {
  const std::string y = fmt::format("tensor<?x?x{}x{}>", f.width, f.type), ids = fmt::format("tensor<?x?x{}>", f.ids),
                    table = fmt::format("tensor<11x{}x{}>", f.width, f.type),
                    weight = fmt::format("tensor<{}x{}>", f.width, f.type),
                    types = f.leaves ? y + ", " + y : y;
  const std::string rows = f.scaled ? fmt::format("%f = nn.constant {{value = dense<7.5> : tensor<{1}>}} : () -> tensor<{1}>\n"
                                                  "%s = nn.mul %r, %f : ({0}, tensor<{1}>) -> {0}\n",
                                                  y, f.type)
                                    : "",
                    row = f.scaled ? "%s" : "%r";
  return fmt::format(R"(
    func.func @main(%i: {0} {{nn.dims = ["b", "s"]}}, %t: {1}, %w: {2}) -> ({3}) {{
      %o:{4} = fusion.group "embedding_norm" schedule "row" (%n = %i, %a = %t, %v = %w) : ({0}, {1}, {2}) -> ({3}) {{
        %r = nn.gather %a, %n {{axis = 0 : i64}} : ({1}, {0}) -> {5}
        {6}%y = nn.{7} {8}, %v {{eps = 1.0e-5 : f32}} : ({5}, {2}) -> {5}
        fusion.yield {9} : {3}
      }}
      return {10} : {3}
    }})",
                     ids, table, weight, types, f.leaves ? 2 : 1, y, rows, f.norm, row,
                     f.leaves ? row + ", %y" : "%y", f.leaves ? "%o#0, %o#1" : "%o#0");
}

std::string run(const Form &f, int batch, int tokens) {
  // Numbers of the table's entries, of which negative ones count from its end.
  auto fill = [](unsigned index, Tensor &tensor) {
    for (int64_t i = 0; index == 0 && i < tensor.size(); ++i)
      set(tensor, i, static_cast<double>((7 * i + 3) % 22 - 11));
  };
  const std::string source =
      check(rowSchedule(), {module(f), {{"b", batch}, {"s", tokens}}, toleranceOf(f.type), fill});
  EXPECT_TRUE(has(source, "gather_index(")) << source;
  return source;
}

TEST(EmbeddingNorm, TypesAndWidths) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int width : {1, 8, 33, 100, 256, 2048, 4104, 8192})
      for (const char *norm : {"rms_norm", "layer_norm"})
        run({width, type, "i64", norm, width != 2048}, 2, 3);
  for (const char *ids : {"i32", "i64"})
    for (bool scaled : {false, true})
      for (auto [batch, tokens] : {std::pair(1, 1), std::pair(1, 7), std::pair(5, 1), std::pair(3, 40)})
        run({512, "bf16", ids, "rms_norm", true, scaled}, batch, tokens);
}

/// Whole vectors of rows that lie at multiples of 16 bytes, single elements of others.
TEST(EmbeddingNorm, ReadsVectorsWhereRowsAllowIt) {
  EXPECT_TRUE(has(run({256}, 1, 2), "load_vec<bf16, 8>(row.from1"));
  EXPECT_FALSE(has(run({33}, 1, 2), "load_vec<bf16"));
}

/// BERT: three tables, of which one is read alike for all sequences, and one is of f32.
TEST(EmbeddingNorm, SumsOfTables) {
  for (int width : {64, 768})
    check(rowSchedule(), {fmt::format(R"(
    func.func @main(%i: tensor<?x?xi64> {{nn.dims = ["b", "s"]}}, %j: tensor<?x?xi32> {{nn.dims = ["b", "s"]}},
                    %p: tensor<1x?xi64> {{nn.dims = [1, "s"]}}, %t: tensor<9x{0}xf32>, %u: tensor<2x{0}xf32>,
                    %x: tensor<6x{0}xf32>, %w: tensor<{0}xf32>, %b: tensor<{0}xf32>) -> (tensor<?x?x{0}xf32>) {{
      %o = fusion.group "embedding_norm" schedule "row" (%a0 = %i, %a1 = %j, %a2 = %p, %b0 = %t, %b1 = %u, %b2 = %x, %v = %w, %c = %b)
          : (tensor<?x?xi64>, tensor<?x?xi32>, tensor<1x?xi64>, tensor<9x{0}xf32>, tensor<2x{0}xf32>, tensor<6x{0}xf32>,
             tensor<{0}xf32>, tensor<{0}xf32>) -> (tensor<?x?x{0}xf32>) {{
        %0 = nn.gather %b0, %a0 {{axis = 0 : i64}} : (tensor<9x{0}xf32>, tensor<?x?xi64>) -> tensor<?x?x{0}xf32>
        %1 = nn.gather %b1, %a1 {{axis = 0 : i64}} : (tensor<2x{0}xf32>, tensor<?x?xi32>) -> tensor<?x?x{0}xf32>
        %2 = nn.gather %b2, %a2 {{axis = 0 : i64}} : (tensor<6x{0}xf32>, tensor<1x?xi64>) -> tensor<1x?x{0}xf32>
        %3 = nn.add %0, %1 : (tensor<?x?x{0}xf32>, tensor<?x?x{0}xf32>) -> tensor<?x?x{0}xf32>
        %4 = nn.add %3, %2 : (tensor<?x?x{0}xf32>, tensor<1x?x{0}xf32>) -> tensor<?x?x{0}xf32>
        %5 = nn.layer_norm %4, %v, %c {{eps = 1.0e-5 : f32}} : (tensor<?x?x{0}xf32>, tensor<{0}xf32>, tensor<{0}xf32>) -> tensor<?x?x{0}xf32>
        fusion.yield %5 : tensor<?x?x{0}xf32>
      }}
      return %o : tensor<?x?x{0}xf32>
    }})",
                                      width),
                          {{"b", 2}, {"s", 5}},
                          2e-6,
                          [](unsigned index, Tensor &tensor) {
                            const int64_t entries = index == 0 ? 9 : index == 1 ? 2 : 6;
                            for (int64_t i = 0; index < 3 && i < tensor.size(); ++i)
                              set(tensor, i, static_cast<double>((5 * i + 2) % entries));
                          }});
}

TEST(EmbeddingNorm, Refusals) {
  auto of = [](const char *gather) {
    return refusal(rowSchedule(), fmt::format(R"(
    func.func @main(%i: tensor<4x6xi64>, %t: tensor<9x6xf32>, %w: tensor<6xf32>) -> tensor<4x6xf32> {{
      %o = fusion.group "g" schedule "row" (%n = %i, %a = %t, %v = %w) : (tensor<4x6xi64>, tensor<9x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> {{
        {}
        fusion.yield %y : tensor<4x6xf32>
      }}
      return %o : tensor<4x6xf32>
    }})",
                                              gather));
  };
  EXPECT_EQ(of(R"(%s = nn.slice %n {starts = [0, 0], sizes = [4, 1], steps = array<i64: 1, 1>} : (tensor<4x6xi64>) -> tensor<4x1xi64>
        %j = nn.reshape %s {shape = [4]} : (tensor<4x1xi64>) -> tensor<4xi64>
        %r = nn.gather %a, %j {axis = 0 : i64} : (tensor<9x6xf32>, tensor<4xi64>) -> tensor<4x6xf32>
        %y = nn.rms_norm %r, %v {eps = 1.0e-5 : f32} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>)"),
            "");
  EXPECT_EQ(of(R"(%k = nn.neg %n : (tensor<4x6xi64>) -> tensor<4x6xi64>
        %s = nn.slice %k {starts = [0, 0], sizes = [4, 1], steps = array<i64: 1, 1>} : (tensor<4x6xi64>) -> tensor<4x1xi64>
        %j = nn.reshape %s {shape = [4]} : (tensor<4x1xi64>) -> tensor<4xi64>
        %r = nn.gather %a, %j {axis = 0 : i64} : (tensor<9x6xf32>, tensor<4xi64>) -> tensor<4x6xf32>
        %y = nn.rms_norm %r, %v {eps = 1.0e-5 : f32} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>)"),
            "nn.gather of other than rows of a table");
}

} // namespace
} // namespace fusion::test
