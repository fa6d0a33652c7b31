// Attention with a sink: a score of each head that takes its share of every row and adds no value.
#include "AttentionCase.h"
#include "Parsed.h"

namespace fusion::test {
namespace {

struct Sunk {
  std::string type = "bf16";
  std::string mask; ///< "": none; "bounds", or the element type of a mask that is given
  std::string attributes = "scale = 0.2 : f32";
  bool coded = false; ///< keys and values of f8, each head with a scale
  int width = 64, heads = 8, kvHeads = 2;
};

std::string module(const Sunk &c) {
  std::string arguments, bindings, types, body;
  auto add = [&](const std::string &name, const std::string &type, const std::string &dims) {
    arguments += fmt::format("{}%{}: {} {{nn.dims = [{}]}}", arguments.empty() ? "" : ", ", name, type, dims);
    bindings += fmt::format("{}%{}_ = %{}", bindings.empty() ? "" : ", ", name, name);
    types += (types.empty() ? "" : ", ") + type;
  };
  const std::string q = fmt::format("tensor<?x{}x?x{}x{}>", c.heads, c.width, c.type);
  const std::string kv = fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, c.width, c.type);
  const std::string stored =
      fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, c.width, c.coded ? "f8E4M3FN" : c.type);
  add("q", q, fmt::format(R"("b", {}, "q", {})", c.heads, c.width));
  for (const char *name : {"k", "v"})
    add(name, stored, fmt::format(R"("b", {}, "k", {})", c.kvHeads, c.width));
  add("s", fmt::format("tensor<1x{}x1x1xf32>", c.heads), fmt::format("1, {}, 1, 1", c.heads));
  if (c.coded) {
    const std::string scale = fmt::format("tensor<{}xf32>", c.kvHeads);
    for (const char *name : {"k", "v"}) {
      add(fmt::format("{}s", name), scale, fmt::to_string(c.kvHeads));
      body += fmt::format("%{0}d = nn.dequantize %{0}_, %{0}s_ {{axis = 1 : i64}} : ({1}, {2}) -> {3}\n",
                          name, stored, scale, kv);
    }
  }
  const std::string all = fmt::format("tensor<1x{}x1x?xf32>", c.heads);
  std::string mask, wide, scores = all;
  if (c.mask == "bounds") {
    add("p", "tensor<?x1x?x1xi64>", R"("b", 1, "q", 1)");
    mask = "tensor<?x1x?x?xi1>";
    body += R"(
        %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
        %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
        %n = nn.iota %zero, %one {size = ["k"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
        %m_ = nn.less_equal %n, %p_ : (tensor<?xi64>, tensor<?x1x?x1xi64>) -> tensor<?x1x?x?xi1>
)";
  } else if (!c.mask.empty()) {
    mask = fmt::format("tensor<?x1x?x?x{}>", c.mask);
    add("m", mask, R"("b", 1, "q", "k")");
  }
  auto front = [&](const std::string &result, const std::string &x, const std::string &type, int axis,
                   const std::string &element, const std::string &number) {
    const std::string low = axis == 2 ? "0, 0, 1, 0" : "0, 0, 0, 1";
    body += fmt::format(
        "%{0}0 = nn.constant {{value = dense<{1}> : tensor<{2}>}} : () -> tensor<{2}>\n"
        "%{0} = nn.pad %{3}, %{0}0 {{low = [{4}], high = [0, 0, 0, 0]}} : ({5}, tensor<{2}>) -> {5}\n",
        result, number, element, x, low, type);
  };
  front("kp", c.coded ? "kd" : "k_", kv, 2, c.type, "0.0");
  front("vp", c.coded ? "vd" : "v_", kv, 2, c.type, "0.0");
  body += fmt::format(R"(
        %none = nn.constant {{value = dense<0.0> : tensor<f32>}} : () -> tensor<f32>
        %zeros = nn.expand %none {{shape = [1, {0}, 1, "k"]}} : (tensor<f32>) -> {1}
        %all = nn.concat %s_, %zeros {{axis = 3 : i64}} : (tensor<1x{0}x1x1xf32>, {1}) -> {1}
)",
                      c.heads, all);
  std::string name = "%all";
  if (!mask.empty()) {
    const bool chooses = mask.ends_with("xi1>");
    scores = fmt::format("tensor<?x{}x?x?xf32>", c.heads);
    front("mp", "m_", mask, 3, chooses ? "i1" : c.mask, chooses ? "true" : "0.0");
    std::string padded = "%mp";
    if (!chooses && c.mask != "f32") {
      body += fmt::format("%mc = nn.cast %mp : ({}) -> tensor<?x1x?x?xf32>\n", mask);
      padded = "%mc";
    }
    if (chooses)
      body +=
          fmt::format("%low = nn.constant {{value = dense<0xFF800000> : tensor<f32>}} : () -> tensor<f32>\n"
                      "%sum = nn.where {}, %all, %low : ({}, {}, tensor<f32>) -> {}\n",
                      padded, mask, all, scores);
    else
      body += fmt::format("%sum = nn.add {}, %all : (tensor<?x1x?x?xf32>, {}) -> {}\n", padded, all, scores);
    name = "%sum";
  }
  return fmt::format(R"(
    func.func @main({0}) -> {1} {{
      %y = fusion.group "sink_attention" schedule "attention" ({2}) : ({3}) -> {1} {{
        {4}
        %r = nn.attention %q_, %kp, %vp, {5} {{{6}}} : ({1}, {7}, {7}, {8}) -> {1}
        fusion.yield %r : {1}
      }}
      return %y : {1}
    }})",
                     arguments, q, bindings, types, body, name, c.attributes, kv, scores);
}

/// Sinks far below, among and far above the scores; limits of which some leave no key.
auto filled(int64_t keys) {
  return [keys](unsigned index, Tensor &tensor) {
    fillRandom(tensor, index + 5);
    for (int64_t i = 0; i < tensor.size(); ++i)
      if (tensor.type() == DType::I64)
        set(tensor, i, static_cast<double>(i * 37 % (keys + 4) - 2));
      else if (index == 3)
        set(tensor, i, i % 4 == 0 ? -90 : i % 4 == 1 ? 0.5 : i % 4 == 2 ? 3 : 60);
  };
}

std::string run(const Sunk &c, int64_t batch, int64_t queries, int64_t keys, uint32_t arch = 90) {
  return check(attentionSchedule(),
               {module(c), sizes(batch, queries, keys), toleranceOf(c.type), filled(keys), true, arch});
}

TEST(AttentionSink, FewQueries) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (auto [batch, queries, keys] :
         {std::tuple(1, 1, 133), std::tuple(5, 1, 700), std::tuple(3, 4, 70), std::tuple(2, 2, 0)})
      run({.type = type}, batch, queries, keys);
}

TEST(AttentionSink, ManyQueries) {
  const std::string causal = "scale = 0.2 : f32, causal = true, zero_masked_rows = true";
  for (auto [arch, kernel] :
       {std::pair(90u, "attention_prefill_tma<"), std::pair(80u, "attention_prefill_mma<")})
    for (auto [queries, keys] : {std::pair(40, 150), std::pair(300, 300), std::pair(70, 0)})
      EXPECT_NE(run({.attributes = causal}, 2, queries, keys, arch).find(kernel), std::string::npos);
  run({.type = "f32", .attributes = causal}, 2, 40, 90);
  run({.attributes = "scale = 0.2 : f32, softcap = 10.0 : f32"}, 2, 40, 90);
}

TEST(AttentionSink, Masks) {
  for (const char *mask : {"bounds", "i1", "f32", "bf16"})
    for (int queries : {1, 40})
      for (uint32_t arch : {90u, 80u})
        run({.mask = mask}, 2, queries, 90, arch);
}

TEST(AttentionSink, Codes) {
  for (int queries : {1, 40})
    run({.mask = "bounds", .coded = true}, 2, queries, 90);
}

TEST(AttentionSink, Refusals) {
  EXPECT_EQ(refusal(attentionSchedule(), module({})), "");
  // A key in front of which a one is put.
  std::string other = module({});
  other.replace(other.find("dense<0.0> : tensor<bf16>"), 10, "dense<1.0>");
  EXPECT_NE(refusal(attentionSchedule(), other).find("computed in the region"), std::string::npos);
}

} // namespace
} // namespace fusion::test
