// A norm, the matmuls of it and heads of their results in gemm_swap_ab, see swap_ab_parts.cuh; of quantised
// weights in gemm_small_m_codes.
#include "QuantisedMatmul.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

struct NormCase {
  int rows, n, k;
  bool transposeB = true;
  const char *type = "bf16";
  bool gated = false, adds = false, leaves = false; ///< the sum, or the norm, is a result too
  std::string norm = "nn.rms_norm %s, %v {eps = 1.0e-6 : f32}";
  const char *weight = nullptr; ///< type of the norm's weight, if another
};

/// norm(x [+ r]) times w with a bias, or silu(norm w) * (norm u).
std::string module(const NormCase &c) {
  const std::string x = fmt::format("tensor<{}x{}x{}>", c.rows, c.k, c.type),
                    w = c.transposeB ? fmt::format("tensor<{}x{}x{}>", c.n, c.k, c.type)
                                     : fmt::format("tensor<{}x{}x{}>", c.k, c.n, c.type),
                    y = fmt::format("tensor<{}x{}x{}>", c.rows, c.n, c.type),
                    u = c.gated ? w : fmt::format("tensor<{}x{}>", c.n, c.type),
                    v = fmt::format("tensor<{}x{}>", c.k, c.weight ? c.weight : c.type);
  const std::string tail =
      c.gated ? fmt::format("%q = nn.matmul %h, %c {{transpose_b = {2}}} : ({0}, {1}) -> {3}\n"
                            "%g = nn.silu %p : ({3}) -> {3}\n%z = nn.mul %g, %q : ({3}, {3}) -> {3}",
                            x, w, c.transposeB, y)
              : fmt::format("%z = nn.add %p, %c : ({0}, {1}) -> {0}", y, u);
  const std::string types = c.adds || c.leaves ? fmt::format("{}, {}", y, x) : y, names = c.adds ? "%z, %s"
                                                                                          : c.leaves
                                                                                              ? "%z, %h"
                                                                                              : "%z";
  const int results = c.adds || c.leaves ? 2 : 1;
  return fmt::format(R"(
    func.func @main(%x: {0}, %r: {0}, %p0: {1}, %w: {2}, %u: {3}) -> ({4}) {{
      %y:{5} = fusion.group "norm_matmul" schedule "matmul_chain" (%a = %x, %d = %r, %v = %p0, %b = %w, %c = %u)
          : ({0}, {0}, {1}, {2}, {3}) -> ({4}) {{
        %s = {6} -> {0}
        %h = {7} : ({0}, {1}{12}) -> {0}
        %p = nn.matmul %h, %b {{transpose_b = {8}}} : ({0}, {2}) -> {9}
        {10}
        fusion.yield {11} : {4}
      }}
      return {13} : {4}
    }})",
                     x, v, w, u, types, results,
                     c.adds ? fmt::format("nn.add %a, %d : ({0}, {0})", x)
                            : fmt::format("nn.neg %a : ({})", x),
                     c.norm, c.transposeB, y, tail, names, has(c.norm, ", %v, %v") ? ", " + v : "",
                     results == 2 ? "%y#0, %y#1" : "%y#0");
}

std::string run(const NormCase &c, double tolerance = 1.5e-2) {
  const std::string source = check(matmulChainSchedule(), {module(c), {}, tolerance});
  EXPECT_TRUE(has(source, "gemm_swap_ab_computed<Config>")) << source;
  return source;
}

TEST(MatmulChain, NormInFront) {
  for (const char *type : {"f16", "bf16"})
    for (bool transpose : {true, false})
      for (bool gated : {false, true})
        run({gated ? 3 : 8, 72, 192, transpose, type, gated});
  for (int rows : {1, 4, 5})
    run({rows, 72, 192});
}

/// Boxes beyond K, a row that ends within a box, shares of K, and several tiles one after the other.
TEST(MatmulChain, DepthsAndShares) {
  for (int k : {64, 72, 200, 1096})
    run({7, 136, k});
  EXPECT_TRUE(has(run({3, 512, 2056}), "k_split = 8,"));
  EXPECT_TRUE(has(run({8, 8712, 64}), "tiles = 2,"));
  run({8, 72, 8192}); // most of the shared memory
}

TEST(MatmulChain, EveryNorm) {
  for (const char *norm :
       {"nn.layer_norm %s, %v {eps = 1.0e-5 : f32}", "nn.layer_norm %s, %v, %v {eps = 1.0e-5 : f32}",
        "nn.rms_norm %s, %v {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}"})
    for (const char *weight : {"bf16", "f32"})
      for (int rows : {1, 6})
        run({rows, 80, 320, true, "bf16", false, false, false, norm, weight});
}

/// One row of GPT-2's sizes, whose weights are [in, out].
TEST(MatmulChain, LayerNormOfOneRow) {
  for (int k : {768, 1024, 1280})
    for (const char *norm :
         {"nn.layer_norm %s, %v {eps = 1.0e-5 : f32}", "nn.layer_norm %s, %v, %v {eps = 1.0e-5 : f32}"})
      run({1, 136, k, false, "f16", false, false, false, norm, "f16"});
}

/// One block writes what others read: the sum, or the norm itself.
TEST(MatmulChain, WhatLeaves) {
  for (int rows : {1, 4, 8}) {
    EXPECT_TRUE(has(run({rows, 200, 512, true, "bf16", false, /*adds=*/true}), "block_x() == 0"));
    EXPECT_TRUE(has(run({rows, 200, 128, true, "f16", false, false, /*leaves=*/true}), "block_x() == 0"));
  }
}

/// Each lane's codes, in their order, of rows that end with a step and within one; what neighbours the norm
/// stores at once is as its width has it.
TEST(MatmulChain, NormOfQuantisedWeights) {
  auto takes = [](QuantisedMatmul form) {
    form.norm = true;
    form.unrounded = isPacked(form);
    const std::string source = checkQuantised(form, "");
    EXPECT_TRUE(has(source, "gemm_small_m_codes<Config>") && has(source, "prologue_k = ")) << source;
  };
  for (int m : {1, 2, 3, 4})
    for (bool gated : {false, true}) {
      takes({m, 72, 288, "ui4", "bf16", "bf16", 32, true, gated});
      takes({m, 72, 272, "i8", "f16", "f32", 16, false, gated});
    }
  for (const QuantisedMatmul &form : everyType(2))
    takes(form);
  for (int k : {256, 512, 1056, 2048, 4096})
    takes({1, 136, k, "ui4", "f16", "f16", 32, true});
}

struct HeadCase {
  int batch = 1, fresh = 1, queries = 4, keys = 2, width = 64, k = 192;
  const char *type = "bf16";
  bool transposeB = true, interleaved = false, biased = false, transposed = true;
  std::string norm = ""; ///< of a head of queries and keys, before the rotation
  bool before = false;   ///< a norm of the rows, before the matmuls
  int rotary = 0;
  bool packed = false; ///< one matmul, of which queries, keys and values are slices
};

/// Rotated queries and keys, and values, heads before positions.
std::string module(const HeadCase &c) {
  const int rotary = c.rotary ? c.rotary : c.width, all = (c.queries + 2 * c.keys) * c.width;
  auto tensor = [&](std::initializer_list<int> dims) {
    std::string text = "tensor<";
    for (int dim : dims)
      text += fmt::format("{}x", dim);
    return text + c.type + ">";
  };
  const std::string x = tensor({c.batch, c.fresh, c.k}), v = tensor({c.k}), g = tensor({c.width}),
                    table = tensor({c.batch, 1, c.fresh, c.interleaved ? rotary / 2 : rotary}),
                    bias = tensor({c.packed ? all : c.queries * c.width});
  auto weight = [&](int n) { return c.transposeB ? tensor({n, c.k}) : tensor({c.k, n}); };
  std::string body, names, results;
  std::string rows = "%a";
  if (c.before) {
    body += fmt::format("%h = nn.rms_norm %a, %vv {{eps = 1.0e-6 : f32}} : ({}, {}) -> {}\n", x, v, x);
    rows = "%h";
  }
  auto matmul = [&](const std::string &name, const char *w, int n, bool biased) {
    const std::string y = tensor({c.batch, c.fresh, n});
    body += fmt::format("%{}_m = nn.matmul {}, %{} {{transpose_b = {}}} : ({}, {}) -> {}\n", name, rows, w,
                        c.transposeB, x, weight(n), y);
    if (!biased)
      return "%" + name + "_m";
    body += fmt::format("%{0}_b = nn.add %{0}_m, %bb : ({1}, {2}) -> {1}\n", name, y, bias);
    return "%" + name + "_b";
  };
  std::string whole;
  if (c.packed)
    whole = matmul("all", "wq", all, c.biased);
  int first = 0;
  auto part = [&](const std::string &name, const char *w, int heads, bool rotates, bool biased) {
    const int n = heads * c.width;
    const std::string flat = tensor({c.batch, c.fresh, n}),
                      apart = tensor({c.batch, c.fresh, heads, c.width}),
                      turned = c.transposed ? tensor({c.batch, heads, c.fresh, c.width}) : apart;
    std::string value;
    if (c.packed) {
      value = "%" + name + "_s";
      body += fmt::format(
          "{} = nn.slice {} {{starts = [0, 0, {}], sizes = [{}, {}, {}], steps = array<i64: 1, 1, 1>}} : "
          "({}) -> {}\n",
          value, whole, first, c.batch, c.fresh, n, tensor({c.batch, c.fresh, all}), flat);
    } else {
      value = matmul(name, w, n, biased);
    }
    first += n;
    body += fmt::format("%{}_h = nn.reshape {} {{shape = [{}, {}, {}, {}]}} : ({}) -> {}\n", name, value,
                        c.batch, c.fresh, heads, c.width, flat, apart);
    value = "%" + name + "_h";
    if (rotates && !c.norm.empty()) {
      body += fmt::format("%{0}_n = nn.rms_norm {1}, %gg {{{2}}} : ({3}, {4}) -> {3}\n", name, value, c.norm,
                          apart, g);
      value = "%" + name + "_n";
    }
    if (c.transposed) {
      body += fmt::format("%{}_t = nn.transpose {} {{perm = array<i64: 0, 2, 1, 3>}} : ({}) -> {}\n", name,
                          value, apart, turned);
      value = "%" + name + "_t";
    }
    if (rotates) {
      body += fmt::format("%{0}_r = nn.rope {1}, %cc, %ss {{interleaved = {2}, rotary_dim = {3} : i64}} : "
                          "({4}, {5}, {5}) -> {4}\n",
                          name, value, c.interleaved, rotary, turned, table);
      value = "%" + name + "_r";
    } else {
      body += fmt::format("%{0}_r = nn.neg {1} : ({2}) -> {2}\n", name, value, turned);
      value = "%" + name + "_r";
    }
    names += (names.empty() ? "" : ", ") + value;
    results += (results.empty() ? "" : ", ") + turned;
  };
  part("q", "wq", c.queries, true, c.biased);
  part("k", "wk", c.keys, true, false);
  part("v", "wv", c.keys, false, false);
  const std::string wq = weight(c.packed ? all : c.queries * c.width), wk = weight(c.keys * c.width);
  const std::string arguments =
      fmt::format("{0}, {1}, {2}, {2}, {3}, {3}, {4}, {5}, {6}", x, wq, wk, table, bias, v, g);
  return fmt::format(R"(
    func.func @main(%x: {0}, %q: {1}, %k: {2}, %v: {2}, %cos: {3}, %sin: {3}, %b: {4}, %nw: {5}, %hw: {6}) -> ({7}) {{
      %y:3 = fusion.group "qkv_rope" schedule "matmul_chain" (%a = %x, %wq = %q, %wk = %k, %wv = %v, %cc = %cos, %ss = %sin,
                                                              %bb = %b, %vv = %nw, %gg = %hw)
          : ({8}) -> ({7}) {{
        {9}
        fusion.yield {10} : {7}
      }}
      return %y#0, %y#1, %y#2 : {7}
    }})",
                     x, wq, wk, table, bias, v, g, results, arguments, body, names);
}

std::string run(const HeadCase &c, double tolerance = 1.5e-2) {
  const std::string source = check(matmulChainSchedule(), {module(c), {}, tolerance});
  EXPECT_TRUE(has(source, "heads_of_tile<")) << source;
  return source;
}

TEST(MatmulChain, HeadsAfter) {
  for (int width : {32, 64, 128, 256})
    for (auto [batch, fresh] : {std::pair(3, 1), std::pair(2, 4)}) {
      HeadCase c;
      c.batch = batch;
      c.fresh = fresh;
      c.width = width;
      c.queries = 2;
      c.keys = width == 32 ? 2 : 1;
      c.before = batch == 3;
      c.type = width == 64 ? "f16" : "bf16";
      run(c);
    }
  run(HeadCase());
}

TEST(MatmulChain, RotationsBiasesAndNormsOfHeads) {
  for (bool interleaved : {false, true}) {
    HeadCase c;
    c.batch = 2;
    c.biased = true;
    c.interleaved = interleaved;
    c.norm = interleaved ? "" : "eps = 1.0e-6 : f32";
    c.rotary = 32;
    run(c);
    c.width = 128;
    c.rotary = 0;
    c.norm = "eps = 1.0e-6 : f32";
    c.transposed = false;
    c.transposeB = false;
    run(c);
  }
}

TEST(MatmulChain, SlicesOfOneMatmul) {
  for (int width : {64, 96}) {
    HeadCase c;
    c.width = width;
    c.packed = c.biased = c.before = true;
    c.batch = 2;
    c.queries = 3;
    c.keys = 1;
    run(c);
  }
}

/// K shared out: a block of the cluster makes the heads of its own rows; and tiles one after the other.
TEST(MatmulChain, HeadsOfShares) {
  HeadCase c;
  c.batch = 8;
  c.k = 1024;
  EXPECT_TRUE(has(run(c), "k_split = 8,"));
  c.batch = 2;
  c.k = 64;
  c.queries = 133;
  c.keys = 1;
  EXPECT_TRUE(has(run(c), "k_split = 1,"));
  c.before = true;
  run(c);
}

TEST(MatmulChain, Refuses) {
  HeadCase c;
  c.batch = 9;
  EXPECT_TRUE(
      has(refusal(matmulChainSchedule(), module(c)), "one kernel is for 1 to 8 rows: here there are 9"));
  c.batch = 1;
  c.width = 80;
  EXPECT_TRUE(has(refusal(matmulChainSchedule(), module(c)), "heads that do not divide the columns"));
  c = {};
  c.type = "f32";
  EXPECT_TRUE(has(refusal(matmulChainSchedule(), module(c)), "gemm_swap_ab does not take the matmuls"));
  EXPECT_TRUE(has(refusal(matmulChainSchedule(), module(NormCase{3, 72, 192, true, "f32"})),
                  "neither gemm_swap_ab nor gemm_small_m_codes takes the matmuls"));
  EXPECT_TRUE(has(refusal(matmulChainSchedule(), module(NormCase{8, 8448, 16384})), "no room"));
}

} // namespace
} // namespace fusion::test
