#include "test/reference/Testing.h"

namespace fusion::testing {
namespace {

/// A float rounded to a type, through one conversion.
double rounded(DType type, double value) {
  return type == DType::F32 ? static_cast<float>(value) : roundTo(type, static_cast<float>(value));
}

/// rms_norm of one row by the formula, arithmetic in double, the two inner roundings and the last as
/// declared.
std::vector<double> rmsRow(std::vector<double> x, const std::vector<double> &w, double eps, double bias,
                           DType scale, DType result) {
  double sum = 0;
  for (double value : x)
    sum += value * value;
  double inverse = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = rounded(result, rounded(scale, x[i] * inverse) * rounded(scale, w[i] + bias));
  return x;
}

TEST(Norm, RmsNormRoundsWhereItSays) {
  for (DType type : modelTypes)
    for (DType scale : {DType::F32, type})
      for (double bias : {0.0, 1.0}) {
        constexpr int64_t width = 129;
        Tensor x = randomTensor(type, {4, width}, 11, 2), w = randomTensor(type, {width}, 12, 0.3);
        std::vector<double> all = values(x), weight = values(w), expected;
        for (int64_t row = 0; row < 4; ++row)
          for (double y : rmsRow({all.begin() + row * width, all.begin() + (row + 1) * width}, weight,
                                 static_cast<float>(1e-6), bias, scale, type))
            expected.push_back(y);
        std::string attributes = fmt::format(
            "{{eps = 1.0e-6 : f32, weight_bias = {:.1f} : f32, scale_in = {}}}", bias, name(scale));
        Tensor y = runOp("nn.rms_norm", {x, w}, attributes, type, {4, width});
        expectNear(y, expected, tolerance(type));
        // Nearly all elements agree to the bit: only ties of a double that f32 rounds otherwise may differ.
        std::vector<double> got = values(y);
        size_t same = 0;
        for (size_t i = 0; i < got.size(); ++i)
          same += got[i] == expected[i];
        if (type != DType::F32)
          EXPECT_GT(same, got.size() * 98 / 100) << name(type) << " " << name(scale);
      }
}

TEST(Norm, ScaleTypeMatters) {
  Tensor x = randomTensor(DType::BF16, {8, 64}, 13), w = randomTensor(DType::BF16, {64}, 14, 0.1, 1);
  auto run = [&](const std::string &scale) {
    return values(runOp("nn.rms_norm", {x, w}, "{eps = 1.0e-6 : f32" + scale + "}", DType::BF16, {8, 64}));
  };
  EXPECT_EQ(run(""), run(", scale_in = bf16")); // the weight's type by default
  EXPECT_NE(run(", scale_in = f32"), run(", scale_in = bf16"));
}

TEST(Norm, LayerNorm) {
  for (DType type : modelTypes)
    for (DType scale : {DType::F32, type})
      for (bool biased : {true, false}) {
        constexpr int64_t width = 96;
        Tensor x = randomTensor(type, {3, width}, 15, 2, 5), w = randomTensor(type, {width}, 16, 0.3, 1),
               b = randomTensor(type, {width}, 17);
        std::vector<double> all = values(x), weight = values(w), bias = values(b), expected;
        for (size_t row = 0; row < 3; ++row) {
          double mean = 0, variance = 0;
          for (size_t i = 0; i < width; ++i)
            mean += all[row * width + i] / width;
          for (size_t i = 0; i < width; ++i)
            variance += std::pow(all[row * width + i] - mean, 2) / width;
          for (size_t i = 0; i < width; ++i) {
            double n = rounded(scale, (all[row * width + i] - mean) / std::sqrt(variance + 1e-5));
            double y = rounded(scale, n * weight[i]);
            expected.push_back(rounded(type, biased ? y + bias[i] : y));
          }
        }
        std::vector<Tensor> operands = {x, w};
        if (biased)
          operands.push_back(b);
        std::string attributes = fmt::format("{{eps = 1.0e-5 : f32, scale_in = {}}}", name(scale));
        expectNear(runOp("nn.layer_norm", operands, attributes, type, {3, width}), expected, tolerance(type),
                   type == DType::F32 ? 1e-5 : 4 * tolerance(type));
      }
}

TEST(Norm, EdgesOfNorms) {
  Tensor w = tensor(DType::F32, {3}, {1, 1, 1});
  expectEqual(runOp("nn.rms_norm", {tensor(DType::F32, {1, 3}, {0, 0, 0}), w}, "{eps = 1.0e-6 : f32}",
                    DType::F32, {1, 3}),
              {0, 0, 0});
  expectEqual(runOp("nn.rms_norm", {tensor(DType::F32, {1, 3}, {1, nan, 0}), w}, "{eps = 1.0e-6 : f32}",
                    DType::F32, {1, 3}),
              {nan, nan, nan});
  EXPECT_EQ(
      runOp("nn.rms_norm", {tensor(DType::F32, {0, 3}, {}), w}, "{eps = 1.0e-6 : f32}", DType::F32, {0, 3})
          .size(),
      0);
  // x in f16, weight and result in f32
  expectNear(runOp("nn.rms_norm", {tensor(DType::F16, {1, 3}, {1, 2, 2}), w}, "{eps = 0.0 : f32}", DType::F32,
                   {1, 3}),
             {1 / std::sqrt(3.0), 2 / std::sqrt(3.0), 2 / std::sqrt(3.0)});
}

std::vector<double> ropeRow(std::vector<double> x, size_t rotary, bool interleaved,
                            const std::vector<double> &cos, const std::vector<double> &sin, DType compute) {
  size_t half = rotary / 2;
  std::vector<double> y = x;
  for (size_t i = 0; i < half; ++i) {
    size_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
    auto at = [&](const std::vector<double> &table, size_t element) {
      return table[table.size() == half ? i : element];
    };
    auto c = [&](double value) { return rounded(compute, value); };
    y[first] = c(c(x[first] * at(cos, first)) - c(x[second] * at(sin, first)));
    y[second] = c(c(x[second] * at(cos, second)) + c(x[first] * at(sin, second)));
  }
  return y;
}

TEST(Norm, RopeFormsAndRoundings) {
  for (DType type : modelTypes)
    for (DType compute : {DType::F32, type})
      for (bool interleaved : {false, true})
        for (int64_t rotary : {8, 6})
          for (bool full : {true, false}) {
            int64_t entries = full ? rotary : rotary / 2;
            Tensor x = randomTensor(type, {2, 3, 5, 8}, 18), cos = randomTensor(type, {2, 1, 5, entries}, 19),
                   sin = randomTensor(type, {1, 5, entries}, 20);
            std::vector<double> all = values(x), c = values(cos), s = values(sin), expected;
            auto n = static_cast<size_t>(entries);
            for (size_t row = 0; row < 30; ++row) {
              size_t batch = row / 15, position = row % 5;
              auto cosRow = c.begin() + static_cast<long>((batch * 5 + position) * n);
              auto sinRow = s.begin() + static_cast<long>(position * n);
              for (double y : ropeRow({all.begin() + static_cast<long>(row * 8),
                                       all.begin() + static_cast<long>(row * 8 + 8)},
                                      static_cast<size_t>(rotary), interleaved, {cosRow, cosRow + entries},
                                      {sinRow, sinRow + entries}, compute))
                expected.push_back(rounded(type, y));
            }
            std::string attributes = fmt::format("{{interleaved = {}, rotary_dim = {} : i64, compute = {}}}",
                                                 interleaved, rotary, name(compute));
            Tensor y = runOp("nn.rope", {x, cos, sin}, attributes, type, x.shape());
            SCOPED_TRACE(attributes + std::string(name(type)));
            if (type == DType::F32)
              expectNear(y, expected);
            else if (compute == type)
              expectEqual(y, expected); // products of two narrow values are exact in f32 and in double
            else
              expectNear(y, expected, tolerance(type) / 2, 1e-6);
          }
}

TEST(Norm, RopeComputeTypeMatters) {
  Tensor x = randomTensor(DType::BF16, {16, 32}, 21), cos = randomTensor(DType::BF16, {16, 16}, 22),
         sin = randomTensor(DType::BF16, {16, 16}, 23);
  auto run = [&](const std::string &compute) {
    return values(runOp("nn.rope", {x, cos, sin},
                        "{interleaved = false, rotary_dim = 32 : i64" + compute + "}", DType::BF16,
                        {16, 32}));
  };
  EXPECT_EQ(run(""), run(", compute = bf16"));
  EXPECT_NE(run(""), run(", compute = f32"));
}

} // namespace
} // namespace fusion::testing
