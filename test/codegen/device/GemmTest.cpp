// The matmul templates with functors that a test writes: emulated against host loops, and compiled for all
// targets.
#include "codegen/device/Includes.h"
#include "ir/base/DType.h"
#include "test/codegen/device/Emulation.h"

#include <fmt/format.h>

#include <random>

using namespace fusion;

namespace {

/// C = A B of small integers, whose sums are exact in any order and type.
struct Case {
  std::string kernel;                      ///< the template
  std::string config;                      ///< members of Config but for matmuls, combined and batched
  int threads = 128, tileM = 0, tileN = 0; ///< of a block; tileM 0: all rows
  int m = 1, n = 1, k = 1;
  std::string type = "f32";   ///< of A
  DType storage = DType::F32; ///< the same
  bool kMajorA = true, kMajorB = true;
  int matmuls = 1; ///< two: B and B + 1
  bool combined = false;
  int batches = 1;
  bool codes = false;         ///< B is i8 with a scale for every 16 neighbours along k and a zero point of 3
  std::string result = "f32"; ///< of C and of the accumulators' sum
  bool prologue = false;      ///< A's rows are doubled on the way to shared memory
};

std::string flag(bool value) { return value ? "true" : "false"; }

/// How a result of the test is held: as f64, whatever the type.
std::vector<uint8_t> stored(const std::vector<double> &values, DType type) {
  std::vector<uint8_t> bytes(values.size() * byteSize(type));
  convert(DType::F64, values.data(), type, bytes.data(), values.size());
  return bytes;
}

std::string operandText(const Case &c, bool isA) {
  const bool kMajor = isA ? c.kMajorA : c.kMajorB;
  const int rows = isA ? c.m : c.n;
  const std::string type = !isA && c.codes ? "i8" : c.type;
  return fmt::format(R"(
struct {0} {{
  using element = {1};
  static constexpr bool quantised = {2}, k_major = {3};
  static constexpr int bits = 8 * (int)sizeof(element), k_per_scale = {4}, rows_per_scale = 0;
  const {1} *data;
  const f32 *scales;
  DEVICE const {1} *matrix(int matmul, i64 z) const {{ return data + (matmul + z * {5}) * {6}; }}
  DEVICE i64 row(int, i64 i) const {{ return i * {7}; }}
  DEVICE i64 depth(int, i64 k) const {{ return k * {8}; }}
  DEVICE auto decoder(int, i64, i64 k) const {{ return {9}; }}
}};
)",
                     isA ? "A" : "B", type, flag(!isA && c.codes), flag(kMajor), !isA && c.codes ? 16 : 0,
                     isA ? 1 : c.matmuls, int64_t(rows) * c.k, kMajor ? c.k : 1, kMajor ? 1 : rows,
                     !isA && c.codes ? "Dequantise<" + c.type + ", i8>{load(scales + k / 16), (i8)3}"
                                     : "Exact()");
}

KernelPlan kernel(const Case &c) {
  const bool takesPrologue = c.kernel.starts_with("gemv");
  const std::string sums = c.combined ? "sums[0][i] * sums[1][i]" : "sums[0][i]";
  const std::string epilogue =
      fmt::format(R"(
struct Epilogue {{
  {0} *c;
  template <int I, class T, int N, class Store>
  DEVICE void operator()(Matmul<I>, i64 row, i64 column, const Vec<T, N> (&sums)[{1}], const Store &store) const {{
    Vec<{0}, N> values;
#pragma unroll
    for (int i = 0; i < N; ++i)
      values[i] = ({0})({2});
    store(c + I * {3}, values);
  }}
}};
)",
                  c.result, c.combined ? c.matmuls : 1, sums, int64_t(c.batches) * c.m * c.n);
  const std::string prologue = fmt::format(R"(
struct Prologue {{
  const {0} *data;
  DEVICE void operator()({0} *to) const {{
    pdl_wait();
    for (int i = (int)thread_x(); i < {1}; i += {2})
      to[i] = from_f32<{0}>(2.f * to_f32(load(data + i)));
    barrier();
  }}
}};
)",
                                           c.type, c.m * c.k, c.threads);
  const std::string config =
      fmt::format("struct Config {{\n  static constexpr int matmuls = {}, rows = {}, least_rows = rows, "
                  "depth = {};\n  static "
                  "constexpr bool combined = {}, batched = {};\n  {}\n}};\n",
                  c.matmuls, c.m, c.k, flag(c.combined), flag(c.batches > 1), c.config);
  const std::string call =
      fmt::format("  {}<Config>(Sizes{{{}, {}, {}}}, A{{a, scales}}, B{{b, scales}}, {}Epilogue{{c}});\n",
                  c.kernel, c.m, c.n, c.k,
                  !takesPrologue ? ""
                  : c.prologue   ? "Prologue{a}, "
                                 : "NoPrologue{}, ");
  const std::string typeB = c.codes ? "i8" : c.type;
  return samples::kernel(
      "test_" + c.kernel, static_cast<uint32_t>(c.threads),
      {"const " + c.type + " *a", "const " + typeB + " *b", "const f32 *scales", c.result + " *c"}, call,
      "#include \"" + c.kernel + ".cuh\"\n" + config + operandText(c, true) + operandText(c, false) +
          (c.prologue ? prologue : "") + epilogue);
}

void runCase(const Case &c) {
  SCOPED_TRACE(fmt::format("{} {} x {} x {} {} A {} B {} matmuls {} codes {}\n{}", c.kernel, c.m, c.n, c.k,
                           c.type, c.kMajorA, c.kMajorB, c.matmuls, c.codes, c.config));
  std::mt19937 random(static_cast<unsigned>(c.m + 7 * c.n + 31 * c.k));
  auto values = [&](int64_t count) {
    std::vector<double> result(static_cast<size_t>(count));
    const bool isUnsigned = c.type.starts_with("u");
    for (double &value : result)
      value = static_cast<double>(random() % 7) - (isUnsigned ? 0 : 3);
    return result;
  };
  const int64_t sizeA = int64_t(c.m) * c.k, sizeB = int64_t(c.n) * c.k, sizeC = int64_t(c.m) * c.n;
  const std::vector<double> a = values(c.batches * sizeA), b = values(c.batches * c.matmuls * sizeB);
  std::vector<float> scales(static_cast<size_t>(c.k / 16 + 1));
  for (float &scale : scales)
    scale = static_cast<float>(1 << random() % 3);
  std::vector<uint8_t> bytesA = stored(a, c.storage), bytesB = stored(b, c.codes ? DType::I8 : c.storage);
  const int results = c.combined ? 1 : c.matmuls;
  const size_t count = static_cast<size_t>(results * c.batches * sizeC);
  std::vector<uint8_t> bytesC(count * 8);

  const int tilesM = c.tileM ? (c.m + c.tileM - 1) / c.tileM : 1, tilesN = (c.n + c.tileN - 1) / c.tileN;
  const auto grid = static_cast<uint32_t>(tilesM * tilesN * c.batches * results);
  Status status = samples::run(kernel(c), grid, static_cast<const void *>(bytesA.data()),
                               static_cast<const void *>(bytesB.data()),
                               static_cast<const void *>(scales.data()), static_cast<void *>(bytesC.data()));
  ASSERT_TRUE(status) << status.error().message;
  auto found = [&](size_t index) -> double {
    if (c.result == "f64")
      return reinterpret_cast<const double *>(bytesC.data())[index];
    if (c.result == "f32")
      return reinterpret_cast<const float *>(bytesC.data())[index];
    return c.result == "i64" ? static_cast<double>(reinterpret_cast<const int64_t *>(bytesC.data())[index])
                             : reinterpret_cast<const int32_t *>(bytesC.data())[index];
  };
  auto sum = [&](int z, int matmul, int m, int n) {
    double total = 0;
    for (int k = 0; k < c.k; ++k) {
      const double left =
          a[static_cast<size_t>(z * sizeA + (c.kMajorA ? int64_t(m) * c.k + k : int64_t(k) * c.m + m))];
      double right = b[static_cast<size_t>((z * c.matmuls + matmul) * sizeB +
                                           (c.kMajorB ? int64_t(n) * c.k + k : int64_t(k) * c.n + n))];
      if (c.codes)
        right = (right - 3) * scales[static_cast<size_t>(k / 16)];
      total += (c.prologue ? 2 : 1) * left * right;
    }
    return total;
  };
  for (int result = 0; result < results; ++result)
    for (int z = 0; z < c.batches; ++z)
      for (int m = 0; m < c.m; ++m)
        for (int n = 0; n < c.n; ++n) {
          const double expected = c.combined ? sum(z, 0, m, n) * sum(z, 1, m, n) : sum(z, result, m, n);
          ASSERT_EQ(found(static_cast<size_t>(((int64_t(result) * c.batches + z) * c.m + m) * c.n + n)),
                    expected)
              << "matmul " << result << ", batch " << z << ", row " << m << ", column " << n;
        }
}

const std::string ints = "static constexpr int ", bools = "static constexpr bool ";

Case fma(int m, int n, int k, const std::string &type, DType storage, const std::string &accumulator,
         const std::string &result) {
  Case c{"gemm_fma",
         "using accumulator = " + accumulator + ";\n  " + ints + "vector = " + std::to_string(n % 4 ? 1 : 4) +
             ";",
         256,
         64,
         64,
         m,
         n,
         k,
         type,
         storage};
  c.result = result;
  return c;
}
Case gemv(int rows, int n, int k, int vector) {
  return {"gemv",    fmt::format("{}vector = {}, unroll = 4;", ints, vector), 128, 0, 4, rows, n, k, "f16",
          DType::F16};
}
Case gemvKn(int rows, int n, int k, int vector, int steps, int threads) {
  Case c{"gemv_kn",
         fmt::format("{}vector = {}, steps = {}, columns = 16, threads = {};", ints, vector, steps, threads),
         threads,
         0,
         16,
         rows,
         n,
         k,
         "bf16",
         DType::BF16};
  c.kMajorB = false;
  return c;
}
Case smallM(int m, int n, int k, int tiles, int warpsN, int split, int stages, bool kMajor) {
  Case c{"gemm_small_m",
         fmt::format("using type = bf16;\n  {}tiles = {}, warps_n = {}, k_split = {}, stages = {}, row_tiles "
                     "= {};\n  {}whole_steps = false, "
                     "weights_before_wait = {}, all_rows = {};",
                     ints, tiles, warpsN, split, stages, (m + 7) / 8, bools, flag(stages > 1),
                     flag(m % 8 == 0)),
         32 * warpsN * split,
         0,
         16 * tiles * warpsN,
         m,
         n,
         k,
         "bf16",
         DType::BF16};
  c.kMajorB = kMajor;
  return c;
}
Case mma(int m, int n, int k, int tileM, int tileN, const char *copyA, const char *copyB, bool kMajorA,
         bool kMajorB) {
  Case c{"gemm_mma",
         fmt::format("using type = f16;\n  {}tile_m = {}, tile_n = {}, warps_m = {}, warps_n = {}, vector = "
                     "{};\n  static constexpr "
                     "Copy copy_a = Copy::{}, copy_b = Copy::{};",
                     ints, tileM, tileN, tileM == 16 ? 1 : 2, tileM == 16 ? 4 : 2, n % 2 ? 1 : 2, copyA,
                     copyB),
         128,
         tileM,
         tileN,
         m,
         n,
         k,
         "f16",
         DType::F16};
  c.kMajorA = kMajorA;
  c.kMajorB = kMajorB;
  return c;
}
Case mmaBytes(int m, int n, int k, const char *copyB, bool kMajorB) {
  Case c = mma(m, n, k, 64, 64, k % 16 ? "Elements" : "Async", copyB, true, kMajorB);
  c.config.replace(c.config.find("f16"), 3, "void");
  c.type = "i8";
  c.storage = DType::I8;
  c.result = "i32";
  return c;
}
Case with(Case c, int matmuls, bool combined, int batches = 1) {
  c.matmuls = matmuls;
  c.combined = combined;
  c.batches = batches;
  return c;
}
Case withCodes(Case c) {
  c.codes = true;
  return c;
}

std::vector<Case> fmaCases() {
  std::vector<Case> cases = {fma(70, 67, 37, "f32", DType::F32, "f32", "f32"),
                             fma(64, 64, 16, "f64", DType::F64, "f64", "f64"),
                             fma(3, 130, 5, "i64", DType::I64, "u64", "i64"),
                             fma(65, 4, 33, "u8", DType::U8, "u32", "i32"),
                             with(fma(9, 68, 20, "f32", DType::F32, "f32", "f32"), 2, true),
                             with(fma(66, 65, 20, "f32", DType::F32, "f32", "f32"), 2, false),
                             with(fma(10, 12, 20, "f32", DType::F32, "f32", "f32"), 1, false, 3)};
  cases.push_back(withCodes(fma(9, 12, 64, "f32", DType::F32, "f32", "f32")));
  cases.push_back(fma(70, 65, 18, "f32", DType::F32, "f32", "f32"));
  cases.back().kMajorA = cases.back().kMajorB = false;
  return cases;
}
std::vector<Case> gemvCases() {
  std::vector<Case> cases = {gemv(1, 9, 264, 8),
                             gemv(3, 5, 77, 1),
                             gemv(8, 4, 1024, 8),
                             with(gemv(2, 7, 512, 8), 2, true),
                             with(gemv(2, 7, 40, 8), 3, false),
                             with(gemv(2, 6, 40, 8), 1, false, 2),
                             withCodes(gemv(4, 6, 160, 16)),
                             withCodes(gemv(1, 6, 48, 1))};
  cases.push_back(gemv(3, 10, 96, 8));
  cases.back().prologue = true;
  return cases;
}
std::vector<Case> gemvKnCases() {
  std::vector<Case> cases = {gemvKn(1, 40, 264, 8, 8, 512),
                             gemvKn(3, 19, 77, 1, 1, 256),
                             gemvKn(8, 16, 128, 8, 8, 256),
                             with(gemvKn(2, 24, 96, 8, 8, 256), 2, true),
                             with(gemvKn(2, 24, 96, 8, 8, 256), 2, false),
                             with(gemvKn(2, 24, 40, 8, 8, 256), 1, false, 2),
                             withCodes(gemvKn(4, 24, 160, 8, 8, 256))};
  cases.push_back(gemvKn(3, 24, 96, 8, 8, 256));
  cases.back().prologue = true;
  return cases;
}
std::vector<Case> smallMCases() {
  return {smallM(1, 40, 72, 2, 1, 4, 2, true),
          smallM(16, 40, 136, 1, 1, 2, 2, true),
          smallM(33, 72, 200, 1, 2, 4, 1, true),
          smallM(64, 33, 8, 1, 4, 2, 1, true),
          smallM(5, 40, 72, 4, 1, 4, 1, false),
          smallM(17, 24, 200, 2, 1, 2, 2, false),
          with(smallM(9, 40, 136, 1, 1, 4, 2, true), 2, true),
          with(smallM(9, 40, 136, 1, 1, 4, 2, true), 2, false),
          with(smallM(3, 16, 64, 1, 1, 2, 2, false), 1, false, 3),
          withCodes(smallM(7, 40, 144, 1, 1, 2, 2, true)),
          withCodes(smallM(12, 40, 80, 2, 1, 2, 1, false))};
}
std::vector<Case> mmaCases() {
  return {mma(70, 72, 40, 64, 64, "Async", "Async", true, true),
          mma(33, 65, 31, 64, 64, "Elements", "Elements", true, true),
          mma(13, 72, 40, 16, 64, "Async", "Async", true, false),
          mma(130, 136, 48, 128, 128, "Async", "Async", true, true),
          mma(20, 40, 24, 64, 64, "Elements", "Elements", false, false),
          with(mma(70, 40, 24, 64, 64, "Async", "Async", true, true), 2, true),
          with(mma(70, 40, 24, 64, 64, "Async", "Async", true, false), 2, false),
          with(mma(10, 40, 24, 16, 64, "Async", "Async", true, true), 1, false, 2),
          withCodes(mma(20, 40, 96, 64, 64, "Async", "Vectors", true, true)),
          withCodes(mma(20, 40, 80, 64, 64, "Async", "Vectors", true, false)),
          withCodes(mma(20, 37, 70, 64, 64, "Elements", "Elements", true, false)),
          mmaBytes(70, 72, 96, "Async", true),
          mmaBytes(35, 36, 40, "Transposed", false),
          mmaBytes(35, 33, 37, "Elements", false)};
}

void runAll(const std::vector<Case> &cases) {
  for (const Case &c : cases)
    runCase(c);
}

void compileAll(const std::vector<Case> &cases) {
  for (const Case &c : cases)
    test::checkSpills(kernel(c), test::Targets::All);
}

TEST(GemmFma, Sums) { runAll(fmaCases()); }
TEST(GemmFma, Compiles) { compileAll(fmaCases()); }
TEST(Gemv, Sums) { runAll(gemvCases()); }
TEST(Gemv, Compiles) { compileAll(gemvCases()); }
TEST(GemvKn, Sums) { runAll(gemvKnCases()); }
TEST(GemvKn, Compiles) { compileAll(gemvKnCases()); }
TEST(GemmSmallM, Sums) { runAll(smallMCases()); }
TEST(GemmSmallM, Compiles) { compileAll(smallMCases()); }
TEST(GemmMma, Sums) { runAll(mmaCases()); }
TEST(GemmMma, Compiles) { compileAll(mmaCases()); }

} // namespace
