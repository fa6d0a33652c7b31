// The attention templates with a trivial Body: emulated against host loops, and compiled for all targets.
#include "codegen/device/Includes.h"
#include "codegen/target/TargetInfo.h"
#include "ir/base/DType.h"
#include "test/codegen/device/Emulation.h"

#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

using namespace fusion;

namespace {

struct Case {
  std::string variant; ///< attention_`variant`
  std::string tiles;   ///< members of Config that only this template has
  int threads = 256, tileRows = 16, sharedBytes = 0, cluster = 1;
  DType type = DType::BF16;
  int depth = 64, valueDepth = 64;
  int batch = 1, kvHeads = 2, group = 3, queries = 1, keys = 70;
  bool causal = false;
  int window = 0;
  std::optional<DType> mask = {}; ///< Bool: keeps three of four; F32: adds
};

std::string nameOf(DType type) {
  return type == DType::Bool ? "bool" : type == DType::F32 ? "f32" : type == DType::F16 ? "f16" : "bf16";
}

/// The Body of all tests, without its includes: what they name comes with the template.
std::string denseAttention() {
  std::ifstream file(std::string(FUSION_SOURCE_DIR) + "/test/codegen/device/dense_attention.cuh");
  std::stringstream text;
  text << file.rdbuf();
  return text.str().substr(text.str().find("// M:"));
}

/// Config and entry point, several of which may stand in one program.
std::string kernelText(const Case &c, const std::string &name) {
  const std::string type = nameOf(c.type), mask = c.mask ? nameOf(*c.mask) : "void";
  const std::string body = fmt::format("DenseAttention<{}, {}, {}, {}>", type, c.depth, c.valueDepth, mask);
  return fmt::format(R"(struct Config_{0} : AttentionConfig {{
  using Query = {9};
  using Key = {9};
  using Value = {9};
  using Mask = {10};
  static constexpr int depth = {1}, value_depth = {2}, page_size = 0, window = {3}{4};
  static constexpr bool causal = {5}, bounded_above = false, bounded_below = false, zero_masked_rows = true, ragged = false,
                        queries_aligned = true, scale_only = {6};
  static constexpr f32 exponent_scale = {7};
}};
{8} {0}(const {9} *q, const {9} *k, const {9} *v, const {10} *m, {9} *y, i64 batch, i64 kv_heads, i64 group, i64 queries, i64 keys) {{
  attention_{11}<Config_{0}>({12}{{q, k, v, m, y, batch, kv_heads, group, queries, keys}});
}}
)",
                     name, c.depth, c.valueDepth, c.window, c.tiles, c.causal, !c.mask,
                     c.mask ? "1.44269504f" : "0.180336877f",
                     c.cluster > 1 ? fmt::format("KERNEL_CLUSTER({}, 1, {})", c.threads, c.cluster)
                                   : fmt::format("KERNEL_RESIDENT({}, 1)", c.threads),
                     type, mask, c.variant, body);
}

KernelPlan kernel(const Case &c) {
  KernelPlan plan;
  plan.name = "kernel";
  plan.source = fmt::format("#include \"attention_{}.cuh\"\n{}{}", c.variant, denseAttention(),
                            kernelText(c, plan.name));
  const std::string element = nameOf(c.type) + " *", mask = c.mask ? nameOf(*c.mask) : "void";
  auto pointer = [&](const std::string &type, const char *name) {
    plan.parameters.push_back({KernelPlan::Parameter::Kind::Pointer, type, name});
  };
  for (const char *operand : {"q", "k", "v"})
    pointer("const " + element, operand);
  pointer("const " + mask + " *", "m");
  pointer(element, "y");
  for (const char *size : {"batch", "kv_heads", "group", "queries", "keys"})
    plan.parameters.push_back({KernelPlan::Parameter::Kind::Scalar, "i64", size});
  plan.blockX = static_cast<uint32_t>(c.threads);
  plan.dynamicSharedBytes = static_cast<uint32_t>(c.sharedBytes);
  if (c.variant == "prefill_sm90")
    plan.features = static_cast<uint32_t>(Feature::Wgmma);
  return plan;
}

/// Random numbers, rounded to a type: as the kernel reads them, and as doubles.
struct Numbers {
  Numbers(std::mt19937 &random, size_t count, DType type) : bytes(count * byteSize(type)), values(count) {
    std::normal_distribution<double> normal;
    for (double &value : values)
      value = type == DType::Bool ? random() % 4 != 0 : normal(random);
    convert(DType::F64, values.data(), type, bytes.data(), count);
    convert(type, bytes.data(), DType::F64, values.data(), count);
  }
  std::vector<uint8_t> bytes;
  std::vector<double> values;
};

/// One row of the result, by loops.
std::vector<double> expectedRow(const Case &c, const double *q, const double *k, const double *v,
                                const double *mask, int query) {
  std::vector<double> weights(static_cast<size_t>(c.keys), -std::numeric_limits<double>::infinity()),
      row(static_cast<size_t>(c.valueDepth));
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  const int shift = c.keys - c.queries;
  for (int key = 0; key < c.keys; ++key) {
    if ((c.causal && key > query + shift) || (c.window > 0 && key <= query + shift - c.window))
      continue;
    double score = 0;
    for (int e = 0; e < c.depth; ++e)
      score += q[e] * k[key * c.depth + e];
    score *= 0.125;
    if (c.mask == DType::Bool && mask[key] == 0)
      continue;
    weights[static_cast<size_t>(key)] = c.mask == DType::F32 ? score + mask[key] : score;
    largest = std::max(largest, weights[static_cast<size_t>(key)]);
  }
  if (largest == -std::numeric_limits<double>::infinity())
    return row;
  for (int key = 0; key < c.keys; ++key) {
    const double weight = std::exp(weights[static_cast<size_t>(key)] - largest);
    sum += weight;
    for (int e = 0; e < c.valueDepth; ++e)
      row[static_cast<size_t>(e)] += weight * v[key * c.valueDepth + e];
  }
  for (double &value : row)
    value /= sum;
  return row;
}

void check(const Case &c, const EmulatedKernel &compiled) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("{} {} {}x{} queries {} keys {} causal {} window {} seed {}", c.variant,
                           nameOf(c.type), c.depth, c.valueDepth, c.queries, c.keys, c.causal, c.window,
                           seed));
  std::mt19937 random(seed);
  auto count = [](auto... sizes) { return (static_cast<size_t>(sizes) * ...); };
  const int heads = c.kvHeads * c.group;
  Numbers q(random, count(c.batch, heads, c.queries, c.depth), c.type),
      k(random, count(c.batch, c.kvHeads, c.keys, c.depth), c.type);
  Numbers v(random, count(c.batch, c.kvHeads, c.keys, c.valueDepth), c.type);
  Numbers mask(random, c.mask ? count(c.batch, c.queries, c.keys) : 0, c.mask.value_or(DType::F32));
  std::vector<uint8_t> result(count(c.batch, heads, c.queries, c.valueDepth) * byteSize(c.type));
  const int rows = c.queries * c.group, tiles = (rows + c.tileRows - 1) / c.tileRows;
  const void *pointers[] = {q.bytes.data(), k.bytes.data(), v.bytes.data(), mask.bytes.data(), result.data()};
  const int64_t sizes[] = {c.batch, c.kvHeads, c.group, c.queries, c.keys};
  void *arguments[10];
  for (int i = 0; i < 5; ++i) {
    arguments[i] = &pointers[i];
    arguments[5 + i] = const_cast<int64_t *>(&sizes[i]);
  }
  const Status status =
      compiled.launch(static_cast<uint32_t>(tiles * c.kvHeads * c.batch * c.cluster), 1, 1, arguments);
  ASSERT_TRUE(status) << samples::messageOf(status);
  std::vector<double> values(result.size() / byteSize(c.type));
  convert(c.type, result.data(), DType::F64, values.data(), values.size());
  double error = 0, norm = 0;
  for (int entry = 0; entry < c.batch; ++entry)
    for (int head = 0; head < heads; ++head)
      for (int query = 0; query < c.queries; ++query) {
        const size_t kvHead = static_cast<size_t>(entry * c.kvHeads + head / c.group);
        const size_t row = count(entry * heads + head, c.queries) + static_cast<size_t>(query);
        const std::vector<double> expected = expectedRow(
            c, &q.values[row * static_cast<size_t>(c.depth)], &k.values[kvHead * count(c.keys, c.depth)],
            &v.values[kvHead * count(c.keys, c.valueDepth)],
            c.mask ? &mask.values[count(entry * c.queries + query, c.keys)] : nullptr, query);
        for (size_t e = 0; e < expected.size(); ++e) {
          const double got = values[row * static_cast<size_t>(c.valueDepth) + e];
          error += (got - expected[e]) * (got - expected[e]);
          norm += expected[e] * expected[e];
        }
      }
  const double tolerance = c.type == DType::F32 ? 3e-6 : c.type == DType::F16 ? 6e-4 : 5e-3;
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm));
}

void compiles(const std::vector<Case> &cases) {
  for (const Case &c : cases)
    test::checkSpills(kernel(c), test::Targets::All);
}

/// A case and its numbers of queries and keys.
struct Sized {
  Case shape;
  int queries, keys;
};
/// Each with every way in which keys are left out, compiled together.
void checkAll(std::initializer_list<Sized> sized) {
  std::vector<Case> cases;
  for (auto [shape, queries, keys] : sized)
    for (auto [causal, window] : {std::pair(false, 0), std::pair(true, 0), std::pair(true, 21)}) {
      Case &c = cases.emplace_back(shape);
      c.queries = queries, c.keys = keys, c.causal = causal, c.window = window;
    }
  std::vector<KernelPlan> plans;
  for (const Case &c : cases)
    plans.push_back(kernel(c));
  auto kernels = EmulatedKernel::compileAll(plans, test::emulationCacheFolder());
  ASSERT_TRUE(kernels) << kernels.error().message;
  for (size_t i = 0; i < cases.size(); ++i)
    check(cases[i], *(*kernels)[i]);
}

// Members of Config that a template alone has, and what the block then is.
Case decodeFma(DType type, int depth, int valueDepth, int keyVector, int valueVector) {
  return {"decode_fma",
          fmt::format(", warps = 8, cluster = 8, key_vector = {}, value_vector = {}", keyVector, valueVector),
          256,
          4,
          8 * 4 * (valueDepth + 4) * 4,
          8,
          type,
          depth,
          valueDepth};
}
Case decodeMma(DType type, int depth, int valueDepth, int rowTiles, int stages) {
  const int vectors = 2 * ((depth + 31) / 32) + 4 * ((valueDepth + 63) / 64), rows = 8 * rowTiles;
  return {"decode_mma",
          fmt::format(", warps = 8, cluster = 8, row_tiles = {}, stages = {}, streams = {}", rowTiles, stages,
                      stages == 0 && vectors <= 8 ? 2 : 1),
          256,
          rows,
          std::max(8 * stages * vectors * 512, 8 * rows * (valueDepth + 4) * 4),
          8,
          type,
          depth,
          valueDepth};
}
Case prefillFma(DType type, int depth, int valueDepth, int tileKeys) {
  return {"prefill_fma", fmt::format(", tile_keys = {}", tileKeys), 128, 16, 0, 1, type, depth, valueDepth};
}
Case prefill(const char *variant, DType type, int depth, int valueDepth, int warps, int rowTiles,
             int tileKeys) {
  auto pitch = [&](int width) {
    const int padded = (width + 15) / 16 * 16;
    return std::string(variant) == "prefill_sm90" ? (padded + 63) / 64 * 64 : padded + 8;
  };
  const int rows = 16 * warps * rowTiles;
  return {variant,
          fmt::format(", warps = {}, row_tiles = {}, tile_keys = {}", warps, rowTiles, tileKeys),
          32 * warps,
          rows,
          2 * (rows * pitch(depth) + 2 * tileKeys * (pitch(depth) + pitch(valueDepth))),
          1,
          type,
          depth,
          valueDepth};
}
Case masked(Case c, DType mask) {
  c.mask = mask;
  return c;
}

TEST(AttentionTemplates, DecodeFma) {
  checkAll({{decodeFma(DType::F32, 64, 64, 2, 2), 1, 1},
            {decodeFma(DType::F32, 64, 64, 2, 2), 3, 301},
            {masked(decodeFma(DType::BF16, 40, 7, 1, 1), DType::F32), 2, 77}});
  compiles({decodeFma(DType::F32, 64, 64, 2, 2), decodeFma(DType::F32, 256, 256, 4, 4),
            masked(decodeFma(DType::BF16, 128, 128, 4, 4), DType::Bool)});
}

TEST(AttentionTemplates, DecodeMma) {
  checkAll({{decodeMma(DType::BF16, 64, 64, 1, 0), 1, 1},
            {decodeMma(DType::BF16, 64, 64, 1, 0), 2, 301},
            {decodeMma(DType::F16, 72, 136, 2, 2), 5, 150},
            {masked(decodeMma(DType::F16, 96, 96, 2, 0), DType::Bool), 3, 77},
            {masked(decodeMma(DType::BF16, 32, 32, 1, 3), DType::F32), 2, 77}});
  compiles({decodeMma(DType::BF16, 128, 128, 1, 0), decodeMma(DType::F16, 96, 96, 1, 0),
            decodeMma(DType::BF16, 256, 256, 1, 1),
            masked(decodeMma(DType::BF16, 128, 128, 2, 1), DType::F32)});
}

TEST(AttentionTemplates, PrefillFma) {
  checkAll({{prefillFma(DType::F32, 64, 32, 32), 1, 1},
            {prefillFma(DType::F32, 64, 32, 32), 23, 70},
            {masked(prefillFma(DType::F16, 7, 13, 16), DType::Bool), 9, 50}});
  compiles({prefillFma(DType::F32, 64, 64, 32), masked(prefillFma(DType::F32, 255, 256, 16), DType::F32)});
}

TEST(AttentionTemplates, PrefillMma) {
  checkAll({{prefill("prefill_mma", DType::BF16, 64, 72, 4, 2, 64), 1, 1},
            {prefill("prefill_mma", DType::BF16, 64, 72, 4, 2, 64), 50, 131},
            {masked(prefill("prefill_mma", DType::F16, 40, 32, 8, 1, 32), DType::Bool), 60, 77}});
  compiles({prefill("prefill_mma", DType::BF16, 128, 128, 4, 2, 32),
            prefill("prefill_mma", DType::F16, 256, 256, 4, 1, 32),
            masked(prefill("prefill_mma", DType::BF16, 128, 128, 8, 1, 32), DType::F32)});
}

TEST(AttentionTemplates, PrefillSm90) {
  checkAll({{prefill("prefill_sm90", DType::BF16, 64, 72, 8, 1, 128), 1, 1},
            {prefill("prefill_sm90", DType::BF16, 64, 72, 8, 1, 128), 50, 131},
            {masked(prefill("prefill_sm90", DType::F16, 40, 32, 8, 1, 64), DType::F32), 60, 77}});
  compiles({prefill("prefill_sm90", DType::BF16, 128, 128, 8, 1, 128),
            prefill("prefill_sm90", DType::F16, 256, 256, 8, 1, 64),
            masked(prefill("prefill_sm90", DType::BF16, 128, 128, 8, 1, 64), DType::Bool)});
}

} // namespace
