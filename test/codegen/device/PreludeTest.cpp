// Every kind of operation of the prelude, emulated and on the GPU.
#include "ir/base/DType.h"
#include "test/codegen/device/Machine.h"
#include "test/codegen/device/Samples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

using namespace fusion;
using namespace fusion::samples;

class Prelude : public OnMachine {};
INSTANTIATE_TEST_SUITE_P(, Prelude, testing::Values(Machine::Emulated, Machine::Cuda),
                         testing::PrintToStringParamName());

TEST_P(Prelude, ThreadsThatDoNotMeet) {
  std::vector<uint16_t> x(5000 / 8 * 8);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = f32ToBF16(float(i) * 0.125f - 300.f);
  std::vector<uint8_t> y(x.size() + 8, 0xcc);
  ASSERT_NO_FATAL_FAILURE(run(scale(), {3}, {x, y, int64_t(x.size())}));
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i], f32ToF8E4M3(bf16ToF32(x[i]) * 2.f)) << i;
  EXPECT_EQ(y[x.size()], 0xcc);
}

TEST_P(Prelude, ReducesOverABlock) {
  constexpr int rows = 37;
  std::vector<float> x(rows * 1024), y(rows * 4);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float(int(uint32_t(i) * 2654435761u >> 20) - 2048) / 8.f;
  x[5 * 1024 + 700] = NAN;
  ASSERT_NO_FATAL_FAILURE(run(rowSums(), {rows}, {x, y}));
  for (int row = 0; row < rows; ++row) {
    const float *begin = x.data() + row * 1024;
    if (row == 5) {
      for (int i = 0; i < 4; ++i)
        EXPECT_TRUE(std::isnan(y[row * 4 + i])) << i;
      continue;
    }
    // Multiples of 1/8 below 2^23/8: every order of summation is exact.
    const float sum = std::accumulate(begin, begin + 1024, 0.f);
    EXPECT_EQ(y[row * 4], sum);
    EXPECT_EQ(y[row * 4 + 1], *std::max_element(begin, begin + 1024));
    EXPECT_EQ(y[row * 4 + 2], sum - begin[0]);
  }
}

TEST_P(Prelude, SharesMemoryInThreeDimensions) {
  std::vector<int64_t> x(64 * 24), y(64 * 24);
  std::iota(x.begin(), x.end(), 1);
  ASSERT_NO_FATAL_FAILURE(run(reverse(), {2, 3, 4}, {x, y}));
  for (int block = 0; block < 24; ++block)
    for (int i = 0; i < 64; ++i)
      ASSERT_EQ(y[block * 64 + i], block * 64 + 64 - i);
}

TEST_P(Prelude, Shuffles) {
  std::vector<float> f(448);
  std::vector<int64_t> l(128);
  std::vector<uint32_t> votes(128);
  ASSERT_NO_FATAL_FAILURE(run(shuffles(), {1}, {f, l, votes}));
  for (int at = 0; at < 64; ++at) {
    const int lane = at % 32, first = at - lane;
    EXPECT_EQ(f[at], at ^ 5);
    EXPECT_EQ(f[64 + at], lane + 3 < 32 ? at + 3 : at);
    EXPECT_EQ(f[128 + at], lane >= 3 ? at - 3 : at);
    EXPECT_EQ(f[192 + at], first + 7);
    EXPECT_EQ(f[256 + at], 31 * 16 + 32 * first);
    EXPECT_EQ(f[320 + at], first + 31);
    EXPECT_EQ(f[384 + at], at / 8 * 64 + 28);
    EXPECT_EQ(l[at], (int64_t(at ^ 1) << 40) + first + 2 + (lane ? at - 1 : at));
    EXPECT_EQ(l[64 + at], (at ^ 16) + (at ^ 2));
    uint32_t expected = 0;
    for (int i = 0; i < 32; ++i)
      expected |= uint32_t((first + i) % 3 == 0) << i;
    EXPECT_EQ(votes[at], expected);
    EXPECT_EQ(votes[64 + at], (first ? 1u : 2u) + unsigned(at / 32 * 4 + lane * 8));
  }
}

class Product : public OnMachine {
protected:
  void check(const std::string &type, bool transposed);
};
INSTANTIATE_TEST_SUITE_P(, Product, testing::Values(Machine::Emulated, Machine::Cuda),
                         testing::PrintToStringParamName());

void Product::check(const std::string &type, bool transposed) {
  const DType dtype = type == "f16" ? DType::F16 : DType::BF16;
  std::vector<float> a(16 * 32), b(8 * 32), c(16 * 8);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = float(int(i * 7 % 31) - 15);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = float(int(i * 5 % 23) - 11) / 4.f;
  std::vector<uint16_t> narrowA(a.size()), narrowB(b.size());
  convertFromF32(dtype, a.data(), narrowA.data(), a.size());
  convertFromF32(dtype, b.data(), narrowB.data(), b.size());
  ASSERT_NO_FATAL_FAILURE(run(product(type, transposed), {1}, {narrowA, narrowB, c}));
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float sum = 0.f;
      for (int k = 0; k < 32; ++k)
        sum += a[row * 32 + k] * (transposed ? b[k * 8 + column] : b[column * 32 + k]);
      ASSERT_EQ(c[row * 8 + column], sum) << row << ' ' << column;
    }
}

TEST_P(Product, F16) { check("f16", false); }
TEST_P(Product, BF16) { check("bf16", true); }
TEST_P(Product, F16Transposed) { check("f16", true); }

TEST_P(Prelude, LoadsFourTransposedMatricesAndFillsWithZeros) {
  std::vector<uint16_t> x(256);
  std::iota(x.begin(), x.end(), 1);
  std::vector<uint32_t> y(128);
  ASSERT_NO_FATAL_FAILURE(run(transposedLoad(), {1}, {x, y}));
  std::fill(x.end() - 8, x.end(), 0);
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int half = 0; half < 2; ++half) {
        const int row = lane % 4 * 2 + half, column = lane / 4;
        EXPECT_EQ(y[lane * 4 + matrix] >> (16 * half) & 0xffff, x[matrix * 64 + row * 8 + column]);
      }
}

TEST_P(Prelude, TransposesAMatrixInRegisters) {
  std::vector<uint16_t> x(64), y(64);
  std::iota(x.begin(), x.end(), 1);
  ASSERT_NO_FATAL_FAILURE(run(transposedMatrix(), {1}, {x, y}));
  for (size_t row = 0; row < 8; ++row)
    for (size_t column = 0; column < 8; ++column)
      EXPECT_EQ(y[row * 8 + column], x[column * 8 + row]);
}

TEST_P(Prelude, AtomicsAcrossBlocks) {
  std::vector<uint32_t> x(64 * 500), counts(4);
  std::iota(x.begin(), x.end(), 0);
  for (uint32_t &value : x)
    value %= 16;
  std::vector<float> sum(1);
  ASSERT_NO_FATAL_FAILURE(run(atomics(), {500}, {x, counts, sum}));
  EXPECT_EQ(counts, std::vector<uint32_t>(4, 8000));
  EXPECT_EQ(sum[0], 7.5f * 32000);
}

TEST_P(Prelude, QuotientsAreThoseOfADivision) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values = {0.f,    -0.f,   1.f,   -3.f,  448.f,    1e-44f,    1e-25f,
                               3e-19f, -7e18f, 2e20f, 3e38f, infinity, -infinity, nan};
  std::mt19937 random(7);
  for (int i = 0; i < 250; ++i)
    values.push_back(std::ldexp(1.f + float(random() % (1u << 23)) / (1u << 23), int(random() % 60) - 30) *
                     (random() % 2 ? 1.f : -1.f));
  std::vector<float> x, by;
  for (float a : values)
    for (float b : values)
      x.push_back(a), by.push_back(b);
  const int64_t count = int64_t(x.size());
  std::vector<float> y(x.size());
  ASSERT_NO_FATAL_FAILURE(run(quotients(), {unsigned(count + 31) / 32}, {x, by, y, count}));
  for (int64_t i = 0; i < count; ++i) {
    const float expected = x[i] / by[i];
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(y[i])) << x[i] << " / " << by[i];
    else if (std::fabs(expected) >= std::ldexp(1.f, -30) && std::fabs(expected) < 1e30f &&
             std::fabs(by[i]) > 1e-37f)
      EXPECT_EQ(y[i], expected) << x[i] << " / " << by[i];
    else if (std::fabs(expected) >= 1e30f)
      EXPECT_GE(std::copysign(1.f, expected) * y[i], 0.9e30f) << x[i] << " / " << by[i];
    else
      EXPECT_NEAR(y[i], expected, 1e-6 * std::fabs(expected) + 1e-30) << x[i] << " / " << by[i];
  }
}

TEST_P(Prelude, Functions) {
  std::vector<float> x = {0.f, 0.25f, 0.5f, 1.f, 2.5f, 3.75f, 20.f, -0.25f, -1.5f, -7.f, -20.f, 1e-3f};
  const int64_t count = int64_t(x.size());
  std::vector<float> y(24 * x.size());
  ASSERT_NO_FATAL_FAILURE(run(functions(), {1}, {x, y, count}));
  for (int64_t i = 0; i < count; ++i) {
    const double v = x[i], sigmoid = 1 / (1 + std::exp(-v));
    const double expected[24] = {std::sqrt(v),
                                 1 / std::sqrt(v),
                                 std::exp(v),
                                 std::log(v),
                                 std::sin(v),
                                 std::cos(v),
                                 std::tanh(v),
                                 std::erf(v),
                                 v * v * v,
                                 std::fabs(v),
                                 std::floor(v),
                                 std::ceil(v),
                                 std::rint(v),
                                 std::fmod(v, 1.5),
                                 std::exp2(v),
                                 v * v + 1,
                                 std::max(v, 0.5),
                                 std::min(v, 0.5),
                                 sigmoid,
                                 v * sigmoid,
                                 v * (1 + std::erf(v / std::sqrt(2.))) / 2,
                                 v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))) / 2,
                                 v / (1 + std::exp(-1.702 * v)),
                                 std::log1p(std::exp(v))};
    for (int f = 0; f < 24; ++f) {
      const float got = y[f * count + i];
      if (std::isnan(expected[f]) || std::isinf(expected[f]))
        EXPECT_EQ(std::isnan(expected[f]), std::isnan(got)) << f << " at " << v;
      else
        EXPECT_NEAR(got, expected[f], 1e-6 * std::max(1., std::fabs(expected[f]))) << f << " at " << v;
    }
  }
  std::vector<float> special = {NAN, INFINITY};
  ASSERT_NO_FATAL_FAILURE(run(functions(), {1}, {special, y, int64_t(2)}));
  for (int f = 0; f < 24; ++f)
    EXPECT_TRUE(std::isnan(y[f * 2])) << f;
}
