// Both variants of a matrix multiplication on a GPU with cuBLASLt, launched, recorded, replayed and on a
// stream of the caller's.
#include "MatmulPlan.h"

#include "runtime/Executor.h"
#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Driver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

using namespace fusion;
using namespace fusion::test;

namespace {

/// z = x times w transposed, twice.
std::vector<float> expected(const Tensor &x) {
  const std::vector<float> w = floats({64, 64}, -0.5f, 0.01f).toFloats();
  std::vector<float> values = x.toFloats();
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<float> next(values.size());
    for (size_t row = 0; row < values.size() / 64; ++row)
      for (size_t column = 0; column < 64; ++column) {
        double sum = 0;
        for (size_t k = 0; k < 64; ++k)
          sum += double(values[row * 64 + k]) * w[column * 64 + k];
        next[row * 64 + column] = static_cast<float>(-sum);
      }
    values = std::move(next);
  }
  return values;
}

void expectNear(const Tensor &z, const Tensor &x) {
  const std::vector<float> actual = z.toFloats(), wanted = expected(x);
  double error = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += (actual[i] - wanted[i]) * (actual[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  EXPECT_LE(std::sqrt(error), 1e-6 * std::sqrt(norm)) << x.shape()[0] << " rows";
}

class MatmulsOnGpu : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (cuda::deviceCount() == 0)
      GTEST_SKIP() << cuda::Driver::instance().error().message;
    if (auto library = CublasLt::instance(); !library)
      GTEST_SKIP() << library.error().message;
    setenv("FUSION_MATMUL", GetParam(), 1);
    options.cacheFolder = folder.path;
    options.poison = true;
  }
  void TearDown() override { unsetenv("FUSION_MATMUL"); }
  TemporaryFolder folder;
  ExecutorOptions options;
};

TEST_P(MatmulsOnGpu, RunsAnyShape) {
  for (bool record : {true, false}) {
    options.recordGraphs = record;
    auto executor = Executor::create(twoMatmuls(), options);
    ASSERT_TRUE(executor) << executor.error().message;
    // Launched, recorded, replayed; one size after the other, from few rows to many and back.
    for (int64_t rows : {100, 100, 100, 101, 110, 300, 3, 20, 15, 16, 17, 100, 1000}) {
      const Tensor x = floats({rows, 64}, -0.3f, 0.02f);
      auto outputs = (*executor)->run({{"x", x}});
      ASSERT_TRUE(outputs) << outputs.error().message;
      expectNear(outputs->at("z"), x);
    }
    auto profile = (*executor)->profile({{"x", floats({100, 64}, 1)}});
    ASSERT_TRUE(profile) << profile.error().message;
    const std::string text = (*executor)->algorithms();
    EXPECT_NE(text.find("of 2 matmuls of many rows by the library"), std::string::npos) << text;
    std::printf("%s\n", text.c_str());
    if (std::string(GetParam()) == "library")
      EXPECT_EQ(profile->size(), 4u);
    if (std::string(GetParam()) == "kernel")
      EXPECT_EQ(profile->size(), 2u);
  }
}

TEST_P(MatmulsOnGpu, AreQueuedAndRecordedOnTheCallersStream) {
  auto driver = cuda::Driver::instance();
  ASSERT_TRUE(driver);
  auto executor = Executor::create(twoMatmuls(), options);
  ASSERT_TRUE(executor) << executor.error().message;
  cuda::Stream stream = nullptr;
  ASSERT_EQ((*driver)->cuStreamCreate(&stream, cuda::nonBlockingStream), 0);
  const Tensor x = floats({64, 64}, -0.3f, 0.02f);
  for (int run = 0; run < 3; ++run) {
    auto outputs = (*executor)->enqueue({{"x", x}}, stream);
    ASSERT_TRUE(outputs) << outputs.error().message;
    ASSERT_EQ((*driver)->cuStreamSynchronize(stream), 0);
    auto copies = (*executor)->fetch(*outputs);
    ASSERT_TRUE(copies) << copies.error().message;
    expectNear(copies->at("z"), x);
  }
  (*driver)->cuStreamDestroy_v2(stream);
}

INSTANTIATE_TEST_SUITE_P(Variants, MatmulsOnGpu, testing::Values("", "kernel", "library"),
                         [](const auto &info) {
                           return std::string(info.param).empty() ? "measured" : info.param;
                         });
} // namespace
