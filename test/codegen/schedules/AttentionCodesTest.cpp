// Attention over keys and values that are stored as codes of 8 bits, or of 4.
#include "AttentionCase.h"
#include "Parsed.h"

#include <cmath>

namespace fusion::test {
namespace {

struct Coded {
  /// Of codes, "i4": two to a byte; empty: elements.
  std::string type = "bf16", keys = "f8E4M3FN", values = "f8E4M3FN";
  int heads = 8, kvHeads = 2, width = 64;
  bool byHead = false;
  std::string scaleType = "f32";
  std::string attributes = "scale = 0.02 : f32, causal = true";
  std::string extra = "";   ///< attributes of nn.dequantize
  std::string columns = ""; ///< shape of scales of columns, such as "2x1x64"
};

std::string module(const Coded &c) {
  const std::string q = fmt::format("tensor<?x{}x?x{}x{}>", c.heads, c.width, c.type);
  const std::string kv = fmt::format("tensor<?x{}x?x{}x", c.kvHeads, c.width), wide = kv + c.type + ">";
  const std::string scale = c.byHead ? fmt::format("tensor<{}x{}>", c.kvHeads, c.scaleType)
                                     : fmt::format("tensor<{}>", c.scaleType);
  std::string arguments, bindings, types, body;
  auto add = [&](const std::string &name, const std::string &type, const std::string &dims) {
    arguments += fmt::format("{}%{}: {}{}", arguments.empty() ? "" : ", ", name, type,
                             dims.empty() ? "" : fmt::format(" {{nn.dims = [{}]}}", dims));
    bindings += fmt::format("{}%{}_ = %{}", bindings.empty() ? "" : ", ", name, name);
    types += (types.empty() ? "" : ", ") + type;
  };
  auto operand = [&](const std::string &name, const std::string &codes) {
    const bool isPacked = codes == "i4";
    const std::string stem = fmt::format("tensor<?x{}x?x", c.kvHeads);
    const std::string stored = codes.empty() ? wide
                               : isPacked    ? fmt::format("{}{}xui8>", stem, c.width / 2)
                                             : kv + codes + ">";
    add(name, stored, fmt::format(R"("b", {}, "k", {})", c.kvHeads, isPacked ? c.width / 2 : c.width));
    if (codes.empty())
      return "%" + name + "_";
    if (!c.columns.empty() || isPacked) {
      const std::string columns = c.columns.empty() ? "tensor<f32>"
                                                    : fmt::format("tensor<{}xf32>", c.columns),
                        inF32 = kv + "f32>";
      add(name + "s", columns, "");
      if (isPacked)
        body += unpacked(name, name + "_", stem, fmt::format(R"("b", {}, "k")", c.kvHeads), c.width);
      else
        body += fmt::format("%{0}c = nn.cast %{0}_ : ({1}) -> {2}\n", name, stored, inF32);
      body += fmt::format("%{0}m = nn.mul %{0}c, %{0}s_ : ({1}, {2}) -> {1}\n", name, inF32, columns);
      if (c.type == "f32")
        return "%" + name + "m";
      body += fmt::format("%{0}d = nn.cast %{0}m : ({1}) -> {2}\n", name, inF32, wide);
      return "%" + name + "d";
    }
    add(name + "s", scale, "");
    body += fmt::format("%{0}d = nn.dequantize %{0}_, %{0}s_{1} : ({2}, {3}) -> {4}\n", name,
                        c.byHead ? " {axis = 1 : i64}" : c.extra, stored, scale, wide);
    return "%" + name + "d";
  };
  add("q", q, fmt::format(R"("b", {}, "q", {})", c.heads, c.width));
  const std::string k = operand("k", c.keys), v = operand("v", c.values);
  return fmt::format(R"(
    func.func @main({0}) -> {3} {{
      %y = fusion.group "scaled_attention" schedule "attention" ({1}) : ({2}) -> {3} {{
        {4}
        %p = nn.attention %q_, {5}, {6} {{{7}}} : ({3}, {8}, {8}) -> {3}
        fusion.yield %p : {3}
      }}
      return %y : {3}
    }})",
                     arguments, bindings, types, q, body, k, v, c.attributes, wide);
}

/// Codes over most of their range; scales that are no powers of two.
void fill(unsigned index, Tensor &tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double place =
        static_cast<double>((static_cast<uint64_t>(i) * 2654435761u + index * 97u) % 1009u) / 1008.0;
    if (tensor.shape().size() < 4)
      set(tensor, i, 0.011 + 0.004 * static_cast<double>(i % 7));
    else if (tensor.type() == DType::U8)
      set(tensor, i, std::floor(255.99 * place));
    else if (tensor.type() == DType::I8)
      set(tensor, i, std::floor(255.99 * place) - 128);
    else if (byteSize(tensor.type()) == 1)
      set(tensor, i, 400 * place - 200);
    else
      set(tensor, i, 4 * place - 2);
  }
}

std::string run(const Coded &c, int64_t batch, int64_t queries, int64_t keys, uint32_t arch = 90) {
  return check(attentionSchedule(),
               {module(c), sizes(batch, queries, keys), toleranceOf(c.type), fill, true, arch});
}

TEST(AttentionCodes, FewRows) {
  for (const char *type : {"bf16", "f16"})
    for (const char *codes : {"f8E4M3FN", "f8E5M2", "i8"})
      for (auto [batch, keys] : {std::pair(1, 133), std::pair(3, 16), std::pair(20, 70)})
        EXPECT_NE(run({type, codes, codes}, batch, 1, keys).find("attention_decode_mma<"), std::string::npos);
}

TEST(AttentionCodes, HeadSizes) {
  for (int width : {8, 72, 80, 96, 128, 192, 256})
    for (auto [heads, queries] : {std::pair(8, 1), std::pair(4, 7)})
      run({.heads = heads, .width = width}, 2, queries, 150);
}

TEST(AttentionCodes, ScalesOfHeadsAndTypes) {
  for (int queries : {1, 40})
    for (const char *scale : {"f32", "bf16", "f16"})
      run({.byHead = true, .scaleType = scale}, 2, queries, 90);
}

TEST(AttentionCodes, ScalesOfColumns) {
  for (const char *columns : {"2x1x64", "64", "1x1x64"})
    for (int queries : {1, 40})
      run({.keys = "i8", .values = "i8", .columns = columns}, 2, queries, 90);
  for (auto [arch, kernel] :
       {std::pair(90u, "attention_prefill_sm90<"), std::pair(80u, "attention_prefill_mma<")})
    EXPECT_NE(run({.width = 72, .columns = "2x1x72"}, 2, 40, 90, arch).find(kernel), std::string::npos);
  for (int width : {72, 80, 128, 256})
    EXPECT_NE(run({.width = width, .columns = fmt::format("2x1x{}", width)}, 2, 1, 90)
                  .find("attention_decode_mma<"),
              std::string::npos);
  for (int queries : {1, 40}) {
    run({.type = "f32", .columns = "2x1x64"}, 2, queries, 90);
    EXPECT_NE(run({.width = 33, .columns = "2x1x33"}, 2, queries, 90).find("_fma<"), std::string::npos);
    run({.columns = "2x1x1"}, 2, queries, 90); // one for each head, in this spelling
  }
}

TEST(AttentionCodes, ManyRows) {
  for (const char *codes : {"f8E4M3FN", "i8"})
    for (auto [arch, kernel] :
         {std::pair(90u, "attention_prefill_sm90<"), std::pair(80u, "attention_prefill_mma<")})
      for (int width : {64, 72, 128})
        EXPECT_NE(run({.keys = codes, .values = codes, .width = width}, 2, 70, 150, arch).find(kernel),
                  std::string::npos);
}

// Odd widths, f32, and one operand of codes beside one of elements.
TEST(AttentionCodes, OnFmaUnits) {
  for (int queries : {1, 40}) {
    for (const char *type : {"f32", "f16", "bf16"})
      EXPECT_NE(run({.type = type, .width = 33}, 2, queries, 70).find("_fma<"), std::string::npos);
    run({.type = "f32", .keys = "i8", .values = "f8E5M2"}, 1, queries, 33);
  }
  EXPECT_NE(run({.values = ""}, 2, 1, 70).find("attention_decode_fma<"), std::string::npos);
  EXPECT_NE(run({.keys = ""}, 2, 70, 70).find("attention_prefill_sm90<"), std::string::npos);
}

// Two codes to a byte.
TEST(AttentionCodes, Halves) {
  const std::string wider = "scale = 0.2 : f32, causal = true";
  const Coded both{.keys = "i4", .values = "i4", .attributes = wider};
  auto with = [&](auto change) {
    Coded c = both;
    change(c);
    return c;
  };
  for (const char *type : {"bf16", "f16"})
    for (auto [batch, keys] : {std::pair(1, 133), std::pair(3, 16), std::pair(20, 70), std::pair(40, 300)})
      EXPECT_NE(run(with([&](Coded &c) { c.type = type; }), batch, 1, keys).find("attention_decode_mma<"),
                std::string::npos);
  for (int width : {8, 72, 80, 96, 128, 192, 256})
    for (auto [heads, queries] : {std::pair(8, 1), std::pair(4, 7), std::pair(8, 40)})
      for (uint32_t arch : {90u, 80u})
        run(with([&](Coded &c) { c.heads = heads, c.width = width; }), 2, queries, 150, arch);
  for (auto [arch, kernel] :
       {std::pair(90u, "attention_prefill_sm90<"), std::pair(80u, "attention_prefill_mma<")})
    EXPECT_NE(run(both, 2, 70, 150, arch).find(kernel), std::string::npos);
  for (const char *columns : {"2x1x64", "64", "2x1x1"})
    for (int queries : {1, 40})
      run(with([&](Coded &c) { c.columns = columns; }), 2, queries, 90);
  // On FMA units, where rows cannot be read eight columns at a time, in f32, and beside others.
  for (int queries : {1, 40}) {
    for (int width : {34, 36, 66})
      EXPECT_NE(run(with([&](Coded &c) { c.width = width; }), 2, queries, 70).find("_fma<"),
                std::string::npos);
    run(with([](Coded &c) { c.type = "f32"; }), 2, queries, 70);
    run(with([](Coded &c) { c.type = "f32", c.width = 2; }), 2, queries, 70);
    run(with([](Coded &c) { c.keys = "i8", c.attributes = "scale = 0.02 : f32"; }), 2, queries, 70);
    run(with([](Coded &c) { c.values = ""; }), 2, queries, 70);
  }
}

// All 256 codes come out as the reference has them: one key, one head each of values.
TEST(AttentionCodes, EveryCode) {
  for (const char *codes : {"f8E4M3FN", "f8E5M2", "i8", "i4"}) {
    auto every = [&](unsigned index, Tensor &tensor) {
      if (index == 3)
        for (int64_t i = 0; i < tensor.size(); ++i) {
          auto code = static_cast<uint8_t>(i);
          // NaN and infinities have their own test.
          const bool isFinite = codes[0] == 'i' ||
                                (codes[3] == '4' ? (code & 0x7f) != 0x7f : (code & 0x7f) < 0x7c);
          reinterpret_cast<uint8_t *>(tensor.data())[i] = isFinite ? code : 0;
        }
      else
        fill(index, tensor);
    };
    check(attentionSchedule(),
          {module({.keys = codes, .values = codes, .heads = 4, .kvHeads = 4, .byHead = false}),
           sizes(1, 1, 1), toleranceOf("bf16"), every});
  }
}

TEST(AttentionCodes, Refusals) {
  auto reason = [](const Coded &c) { return refusal(attentionSchedule(), module(c)); };
  EXPECT_NE(reason({.keys = "ui8", .values = "ui8"}).find("codes of"), std::string::npos)
      << reason({.keys = "ui8"});
  EXPECT_NE(reason({.scaleType = "f64"}).find("f64"), std::string::npos);
}

} // namespace
} // namespace fusion::test
