// Pairs of codes are decoded to the bits that Dequantise gives: every code, zero point and kind of scale; and
// those of 4 bits to integers.
#include "test/codegen/device/Machine.h"
#include "test/codegen/device/TemplateSamples.h"

#include <fmt/format.h>

using namespace fusion;
using namespace fusion::samples;

namespace {

struct Kind {
  const char *type, *code;
  int bits;
  const char *scale; ///< its type
  bool zero;
};

/// A block for each scale, a thread for each value of a byte, which holds two codes of 4 bits or one of 8
/// before another one. Each counts the lanes of a quad, the zero points and the halves that differ.
std::string kernelText(const std::string &name, const Kind &kind) {
  const bool isFit = std::string(kind.type) == kind.scale;
  const std::string zero = kind.zero ? "i32" : "NoZeroPoint";
  return fmt::format(
      R"(#include "code_pairs.cuh"
DEVICE {2} code_at(const u8 *bytes, u32 i) {{
  {2} code;
  {11}
  return code;
}}
KERNEL(256) {0}(const u32 *scales, i32 *wrong) {{
  using Pairs = CodePairs<{1}, {2}, {3}, {4}, {5}>;
  const u32 byte = thread_x();
  const u32 bits = load(scales + block_x());
  f32 scale = f32_of_bits(bits);
  if ({4})
    scale = to_f32({1}{{(u16)bits}});
  i32 count = 0;
  for (i32 zero = {6}; zero < {7}; ++zero) {{
    Dequantise<{1}, {5}> decoder;
    decoder.scale = scale;
    {8}
    const auto entry = Pairs::prepare(decoder);
    for (u32 q = 0; q < 4u; ++q) {{
      // Other codes beside those that are asked for.
      u8 bytes[8];
      for (u32 i = 0; i < 8u; ++i)
        bytes[i] = (u8)(37u * i + byte);
      const u32 at = {3} == 4 ? q : 2u * q;
      bytes[at] = (u8)byte;
      u32 words[2];
      copy_bytes(words, bytes, 8);
      const u32 pair = Pairs::pair(words, q, entry);
      for (u32 half = 0; half < 2u; ++half) {{
        {2} code;
        {9}
        const u32 expected = from_f32<{1}>(decoder(code)).bits, found = pair >> 16u * half & 0xffffu;
        const bool isNan = (expected & 0x7fffu) > ({10});
        count += isNan ? (found & 0x7fffu) <= ({10}) : found != expected;
      }}
    }}
    // All eight of a word, or two, at once.
    u8 bytes[8];
    for (u32 i = 0; i < 8u; ++i)
      bytes[i] = (u8)(37u * i + byte);
    u32 words[2];
    copy_bytes(words, bytes, 8);
    Vec<u32, 4> pairs;
    const typename Pairs::Entry both[2] = {{entry, entry}};
    Pairs::pairs(words, both, Pairs::Masks(), pairs);
    for (u32 i = 0; i < 8u; ++i) {{
      const u32 at = {3} == 4 ? i % 4u : i / 2u, half = {3} == 4 ? i / 4u : i % 2u;
      const {2} code = code_at(bytes, i);
      const u32 expected = from_f32<{1}>(decoder(code)).bits, found = pairs[at] >> 16u * half & 0xffffu;
      const bool isNan = (expected & 0x7fffu) > ({10});
      count += isNan ? (found & 0x7fffu) <= ({10}) : found != expected;
    }}
    if constexpr ({3} == 4) {{
      Pairs::integers(words[0], decoder.zero, Pairs::Masks(), pairs);
      decoder.scale = 1.f / Pairs::integer_unit;
      for (u32 i = 0; i < 8u; ++i)
        count += (pairs[i % 4u] >> 16u * (i / 4u) & 0xffffu) !=
                 (u32)from_f32<{1}>(decoder(code_at(bytes, i))).bits;
    }}
  }}
  store(wrong + (block_x() * 256u + byte), count);
}}
)",
      name, kind.type, kind.code, kind.bits, isFit, zero,
      !kind.zero                       ? 0
      : std::string(kind.code) == "u8" ? 0
      : kind.bits == 4                 ? -8
                                       : -128,
      !kind.zero       ? 1
      : kind.bits == 4 ? (std::string(kind.code) == "u8" ? 16 : 8)
                       : (std::string(kind.code) == "u8" ? 256 : 128),
      kind.zero ? "decoder.zero = zero;" : "(void)zero;",
      kind.bits == 4 ? fmt::format("code = half_byte<{}>(byte >> 4u * half & 15u);", kind.code)
                     : "copy_bytes(&code, bytes + at + half, 1);",
      std::string(kind.type) == "f16" ? "0x7c00u" : "0x7f80u",
      kind.bits == 4
          ? fmt::format("code = half_byte<{}>((u32)bytes[i / 2u] >> i % 2u * 4u & 15u);", kind.code)
          : "copy_bytes(&code, bytes + i, 1);");
}

/// Zero, the least subnormal one, subnormal and normal ones of odd digits, one, the largest that are
/// promised.
std::vector<uint32_t> scalesOf(const std::string &type) {
  if (type == "f16")
    return {0, 1, 0x0155, 0x03ff, 0x0400, 0x1a5b, 0x3c00, 0x3fff, 0xb4d3, 0x7bff};
  if (type == "bf16")
    return {0, 1, 0x0055, 0x007f, 0x0080, 0x00ff, 0x3c5b, 0x3f80, 0x3fff, 0xbcd3, 0x7e7f};
  return {0, 1, 0x00255555, 0x007fffff, 0x3c5b1234, 0x3f800000, 0x3fffffff, 0xbcd31357, 0x7e7fffff};
}

class CodePairs : public OnMachine {};

TEST_P(CodePairs, HaveTheBitsOfDequantise) {
  std::vector<KernelPlan> plans;
  std::vector<std::vector<uint32_t>> scales;
  for (const char *type : {"bf16", "f16"})
    for (const char *scale : {type, "f32"})
      for (auto [code, bits, zero] :
           {std::tuple("u8", 4, true), std::tuple("u8", 4, false), std::tuple("i8", 4, true),
            std::tuple("i8", 4, false), std::tuple("u8", 8, true), std::tuple("u8", 8, false),
            std::tuple("i8", 8, true), std::tuple("i8", 8, false), std::tuple("f8e4m3", 8, false),
            std::tuple("f8e5m2", 8, false)}) {
        const std::string name = fmt::format("pairs_{}", plans.size());
        plans.push_back(whole(name, 256, {"const u32 *scales", "i32 *wrong"},
                              kernelText(name, {type, code, bits, scale, zero})));
        scales.push_back(scalesOf(scale));
      }
  auto kernels = compileFor(GetParam(), plans);
  ASSERT_TRUE(kernels) << kernels.error().message;
  for (size_t i = 0; i < plans.size(); ++i) {
    std::vector<int32_t> wrong(256 * scales[i].size(), -1);
    Status status = (*kernels)->launch(i, {static_cast<uint32_t>(scales[i].size())}, {scales[i], wrong});
    ASSERT_TRUE(status) << status.error().message;
    for (size_t at = 0; at < wrong.size(); ++at)
      ASSERT_EQ(wrong[at], 0) << "scale " << scales[i][at / 256] << ", byte " << at % 256 << "\n"
                              << plans[i].source;
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, CodePairs, testing::Values(Machine::Emulated, Machine::Cuda),
                         testing::PrintToStringParamName());

} // namespace
