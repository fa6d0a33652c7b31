// Rows times weights that are quantised along k: a module, and what fills its inputs.
#pragma once

#include "test/codegen/schedules/Harness.h"

#include <cmath>
#include <fmt/format.h>

namespace fusion::test {

struct QuantisedMatmul {
  int m, n, k;
  const char *codes = "i8", *type = "bf16", *scales = "f32";
  int block = 0; ///< along k; 0: a scale a row of the weights; -1: one for all
  bool zero = false, gated = false;
  bool norm = false; ///< of the rows, in the same group
  bool unrounded = false;
};

inline bool isPacked(const QuantisedMatmul &form) { return std::string(form.codes).ends_with("i4"); }

/// Numbers from 0 to 15, or from -8 to 7, in no order, others for another seed.
inline std::string packedCodes(const std::string &type, int rows, int columns, unsigned seed) {
  uint64_t state = 0x9e3779b97f4a7c15u * (seed + 1);
  std::string text = "dense<[";
  for (int i = 0; i < rows; ++i) {
    text += i ? ", [" : "[";
    for (int j = 0; j < columns; ++j) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += fmt::format("{}{}", j ? ", " : "", static_cast<int>(state >> 60) - (type == "i4" ? 8 : 0));
    }
    text += "]";
  }
  return fmt::format("{}]> : tensor<{}x{}x{}>", text, rows, columns, type);
}

/// x w + bias, or silu(x w) * (x u), of which w and u are quantised along k; of the norm of x instead of x.
inline std::string module(const QuantisedMatmul &f) {
  const int blocks = f.block > 0 ? (f.k + f.block - 1) / f.block : 1;
  const std::string x = fmt::format("tensor<{}x{}x{}>", f.m, f.k, f.type),
                    y = fmt::format("tensor<{}x{}x{}>", f.m, f.n, f.type),
                    w = fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.codes),
                    d = fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.type);
  const std::string shape = f.block > 0    ? fmt::format("{}x{}x", f.n, blocks)
                            : f.block == 0 ? fmt::format("{}x", f.n)
                                           : "";
  const std::string s = fmt::format("tensor<{}{}>", shape, f.scales),
                    z = fmt::format("tensor<{}{}>", shape, f.codes);
  std::string arguments = fmt::format("%x: {}, %b: tensor<{}x{}>", x, f.n, f.type), constants;
  std::string bound = "%x_ = %x, %b_ = %b", types = fmt::format("{}, tensor<{}x{}>", x, f.n, f.type), body;
  const std::string rows = f.norm ? "%h" : "%x_", gain = fmt::format("tensor<{}x{}>", f.k, f.type);
  if (f.norm) {
    arguments += ", %v: " + gain;
    bound += ", %v_ = %v";
    types += ", " + gain;
    body = fmt::format("%h = nn.rms_norm %x_, %v_ {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}\n", x, gain);
  }
  for (int i = 0; i < (f.gated ? 2 : 1); ++i) {
    auto operand = [&](const char *name, const std::string &type, const std::string &constant) {
      if (constant.empty())
        arguments += fmt::format(", %{}{}: {}", name, i, type);
      else
        constants += fmt::format("%{}{} = nn.constant {{value = {}}} : () -> {}\n", name, i, constant, type);
      bound += fmt::format(", %{0}_{1} = %{0}{1}", name, i);
      types += ", " + type;
    };
    operand("w", w, isPacked(f) ? packedCodes(f.codes, f.n, f.k, 2 * i) : "");
    operand("s", s, "");
    if (f.zero)
      operand("z", z, isPacked(f) ? packedCodes(f.codes, f.n, blocks, 2 * i + 1) : "");
    body += fmt::format("%d{0} = nn.dequantize %w_{0}, %s_{0}{1} {{axis = {2} : i64, block_size = {3} : "
                        "i64, unrounded = {11}}} : ({4}, {5}{6}) -> {7}\n"
                        "%p{0} = nn.matmul {10}, %d{0} {{transpose_b = true}} : ({8}, {7}) -> {9}\n",
                        i, f.zero ? fmt::format(", %z_{}", i) : "", f.block > 0 ? 1 : 0, std::max(f.block, 0),
                        w, s, f.zero ? ", " + z : "", d, x, y, rows, f.unrounded);
  }
  body += f.gated ? fmt::format("%g = nn.silu %p0 : ({0}) -> {0}\n%r = nn.mul %g, %p1 : ({0}, {0}) -> {0}", y)
                  : fmt::format("%r = nn.add %p0, %b_ : ({0}, tensor<{1}x{2}>) -> {0}", y, f.n, f.type);
  return fmt::format(R"(
    func.func @main({0}) -> {1} {{
      {2}
      %y = fusion.group "g" schedule "{6}" ({3}) : ({4}) -> {1} {{
        {5}
        fusion.yield %r : {1}
      }}
      return %y : {1}
    }})",
                     arguments, y, constants, bound, types, body, f.norm ? "matmul_chain" : "matmul");
}

/// Codes over their whole range, scales around a hundredth, others around 1.
inline void fill(unsigned, Tensor &tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto place = static_cast<double>(static_cast<uint64_t>(i) * 2654435761u % 1009u) / 1008.0;
    const bool isScale = isFloat(tensor.type()) && byteSize(tensor.type()) > 1;
    set(tensor, i,
        isScale                          ? 0.005 + 0.01 * place
        : isFloat(tensor.type())         ? 20 * place - 10
        : isSignedInteger(tensor.type()) ? std::floor(255.99 * place) - 128
                                         : std::floor(255.99 * place));
  }
}

/// Each type of codes to each type, with scales of that type and of f32.
inline std::vector<QuantisedMatmul> everyType(int rows) {
  std::vector<QuantisedMatmul> all;
  for (const char *type : {"bf16", "f16"})
    for (const char *scales : {type, "f32"}) {
      for (const char *codes : {"i8", "ui8"})
        for (bool zero : {false, true})
          all.push_back({rows, 72, 272, codes, type, scales, zero ? 64 : 0, zero});
      for (const char *codes : {"i4", "ui4"})
        for (bool zero : {false, true})
          all.push_back({rows, 72, 288, codes, type, scales, zero ? 32 : 0, zero});
      for (const char *codes : {"f8E4M3FN", "f8E5M2"})
        all.push_back({rows, 72, 272, codes, type, scales, -1});
    }
  return all;
}

inline bool has(const std::string &source, const std::string &part) {
  return source.find(part) != std::string::npos;
}

/// Checks the kernel of a variant; its source.
inline std::string checkQuantised(const QuantisedMatmul &form, const std::string &variant,
                                  uint32_t arch = 90) {
  const double tolerance = std::string(form.type) == "f16" ? 1e-3 : 6e-3;
  auto fillAll = [asTheyAre = form.norm ? 3u : 2u](unsigned index, Tensor &tensor) {
    if (index >= asTheyAre) // after x, the bias and the norm's weight
      fill(index, tensor);
  };
  return check(form.norm ? matmulChainSchedule() : matmulSchedule(),
               {.text = module(form),
                .tolerance = form.gated ? 2 * tolerance : tolerance,
                .fill = fillAll,
                .arch = arch,
                .variant = variant});
}

} // namespace fusion::test
