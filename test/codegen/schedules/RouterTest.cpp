// The choice of experts: see router.cuh.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

struct Form {
  int rows = 5, width = 33, count = 4;
  bool softmax = true;
  const char *weights = "divided"; ///< or "softmax", or "as they are"
  const char *type = "bf16";       ///< of the weights
};

std::string module(const Form &f) {
  const std::string x = fmt::format("tensor<{}x{}xf32>", f.rows, f.width), i = fmt::format("tensor<{}x{}xi64>", f.rows, f.count),
                    v = fmt::format("tensor<{}x{}xf32>", f.rows, f.count), w = fmt::format("tensor<{}x{}x{}>", f.rows, f.count, f.type),
                    one = fmt::format("tensor<{}x1xf32>", f.rows);
  std::string body = f.softmax ? fmt::format("%s = nn.softmax %a {{axis = 1 : i64}} : ({0}) -> {0}\n", x) : "";
  const char *scores = f.softmax ? "%s" : "%a", *weight = "%v";
  body += fmt::format("%i = nn.top_k {0} {{axis = 1 : i64, k = [{1}]}} : ({2}) -> {3}\n", scores, f.count, x, i);
  body += fmt::format("%v = nn.gather_elements {0}, %i {{axis = 1 : i64}} : ({1}, {2}) -> {3}\n", scores, x, i, v);
  if (f.weights[0] == 'd') {
    body += fmt::format("%t = nn.reduce %v {{kind = \"sum\", axes = array<i64: 1>, keepdims = true}} : ({0}) -> {1}\n", v, one);
    body += fmt::format("%d = nn.div %v, %t : ({0}, {1}) -> {0}\n", v, one);
    weight = "%d";
  } else if (f.weights[0] == 's') {
    body += fmt::format("%d = nn.softmax %v {{axis = 1 : i64}} : ({0}) -> {0}\n", v);
    weight = "%d";
  }
  body += fmt::format("%w = nn.cast {} : ({}) -> {}\n", weight, v, w);
  return fmt::format(R"(
    func.func @main(%x: {0}) -> ({1}, {2}) {{
      %0, %1 = fusion.group "router" schedule "router" (%a = %x) : ({0}) -> ({1}, {2}) {{
        {3}
        fusion.yield %i, %w : {1}, {2}
      }}
      return %0, %1 : {1}, {2}
    }})",
                     x, i, w, body);
}

void run(const Form &form, std::function<void(unsigned, Tensor &)> fill = {}) {
  const std::string source =
      check(routerSchedule(), {module(form), {}, std::string(form.type) == "f32" ? 2e-6 : 5e-3, std::move(fill)});
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
      run({.softmax = softmax, .weights = weights, .type = weights[0] == 'd' ? "f32" : softmax ? "f16" : "bf16"});
}

TEST(Router, EqualScoresInTheirOrder) {
  run({.width = 40, .count = 8, .softmax = false, .weights = "as they are"}, [](unsigned, Tensor &tensor) {
    for (int64_t i = 0; i < tensor.size(); ++i)
      set(tensor, i, static_cast<double>(i % 3));
  });
}

TEST(Router, SaysWhatItDoesNotTake) {
  EXPECT_EQ(refusal(routerSchedule(), R"(
    func.func @main(%x: tensor<4x8xf32>) -> tensor<4x2xi64> {
      %i = nn.top_k %x {axis = 1 : i64, k = [2]} : (tensor<4x8xf32>) -> tensor<4x2xi64>
      return %i : tensor<4x2xi64>
    })"),
            "no nn.top_k whose scores are taken");
  EXPECT_EQ(refusal(routerSchedule(), module({.width = 2000})), "more than 1024 scores, or 32 taken, or as many as a run says");
}

} // namespace
} // namespace fusion::test
