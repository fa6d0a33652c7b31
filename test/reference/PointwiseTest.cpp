#include "test/reference/Testing.h"

#include <functional>
#include <map>

namespace fusion::testing {
namespace {

using Unary = std::function<double(double)>;
using Binary = std::function<double(double, double)>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const std::map<std::string, Unary> unaries = {
    {"neg", [](double x) { return -x; }},
    {"abs", [](double x) { return std::fabs(x); }},
    {"sign", [](double x) { return x != x ? x : double((x > 0) - (x < 0)); }},
    {"exp", [](double x) { return std::exp(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"reciprocal", [](double x) { return 1 / x; }},
    {"square", [](double x) { return x * x; }},
    {"sin", [](double x) { return std::sin(x); }},
    {"cos", [](double x) { return std::cos(x); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"erf", [](double x) { return std::erf(x); }},
    {"sigmoid", sigmoid},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {"relu", [](double x) { return x < 0 ? 0 : x; }},
    {"softplus", [](double x) { return std::isnan(x) ? x
                                       : x > 30      ? x
                                                     : std::log1p(std::exp(x)); }},
    {"floor", [](double x) { return std::floor(x); }},
    {"ceil", [](double x) { return std::ceil(x); }},
    {"round", [](double x) { return std::nearbyint(x); }},
};

TEST(Pointwise, UnaryOpsOnFloats) {
  for (const auto &[name, formula] : unaries) {
    for (DType type : {DType::F64, DType::F32, DType::F16, DType::BF16}) {
      SCOPED_TRACE(name + " " + std::string(fusion::name(type)));
      Tensor x = randomTensor(type, {7, 451}, 1, 2);
      x = runOp("nn.cast", {x}, "", type, x.shape());
      std::vector<double> in = values(x), expected;
      for (double value : in)
        expected.push_back(formula(value));
      Tensor y = runOp("nn." + name, {x}, "", type, x.shape());
      expectNear(y, expected, tolerance(type), type == DType::F64 ? 1e-14 : 1e-6);
    }
  }
}

TEST(Pointwise, UnaryOpsKeepNan) {
  for (const auto &[name, formula] : unaries)
    for (DType type : modelTypes)
      EXPECT_TRUE(std::isnan(values(runOp("nn." + name, {tensor(type, {1}, {nan})}, "", type, {1}))[0]))
          << name;
}

TEST(Pointwise, UnaryEdges) {
  expectEqual(runOp("nn.round", {tensor(DType::F32, {5}, {0.5, 1.5, 2.5, -0.5, -1.5})}, "", DType::F32, {5}),
              {0, 2, 2, 0, -2});
  expectEqual(runOp("nn.relu", {tensor(DType::F32, {3}, {-infinity, infinity, -1})}, "", DType::F32, {3}),
              {0, infinity, 0});
  expectEqual(runOp("nn.softplus", {tensor(DType::F32, {2}, {200, -200})}, "", DType::F32, {2}), {200, 0});
  expectEqual(runOp("nn.sigmoid", {tensor(DType::F32, {2}, {-infinity, infinity})}, "", DType::F32, {2}),
              {0, 1});
  Tensor empty = tensor(DType::F16, {0, 3}, {});
  EXPECT_EQ(runOp("nn.exp", {empty}, "", DType::F16, {0, 3}).size(), 0);
  expectNear(runOp("nn.exp", {tensor(DType::F32, {}, {1})}, "", DType::F32, {}), {std::exp(1.0)});
}

TEST(Pointwise, UnaryOpsOnIntegers) {
  Tensor x = tensor(DType::I8, {4}, {-128, -3, 0, 127});
  expectEqual(runOp("nn.neg", {x}, "", DType::I8, {4}), {-128, 3, 0, -127});
  expectEqual(runOp("nn.abs", {x}, "", DType::I8, {4}), {-128, 3, 0, 127});
  expectEqual(runOp("nn.square", {x}, "", DType::I8, {4}), {0, 9, 0, 1});
  expectEqual(runOp("nn.sign", {x}, "", DType::I8, {4}), {-1, -1, 0, 1});
  expectEqual(runOp("nn.relu", {x}, "", DType::I8, {4}), {0, 0, 0, 127});
  expectEqual(runOp("nn.not", {x}, "", DType::I8, {4}), {127, 2, -1, -128});
  expectEqual(runOp("nn.reciprocal", {x}, "", DType::I8, {4}), {0, 0, 0, 0});
  expectEqual(runOp("nn.not", {tensor(DType::Bool, {2}, {0, 1})}, "", DType::Bool, {2}), {1, 0});
  auto failed = tryOp("nn.exp", {x}, "", {"tensor<4xi8>"});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("takes floats, not i8"), std::string::npos) << failed.error().message;
}

TEST(Pointwise, Gelu) {
  const std::map<std::string, Unary> forms = {
      {"none", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {"tanh",
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {"quick", [](double x) { return x * sigmoid(1.702 * x); }},
  };
  for (const auto &[form, formula] : forms)
    for (DType type : modelTypes) {
      Tensor x = randomTensor(type, {33, 5}, 2);
      std::vector<double> expected;
      for (double value : values(x))
        expected.push_back(formula(value));
      expectNear(runOp("nn.gelu", {x}, "{approximate = \"" + form + "\"}", type, x.shape()), expected);
    }
}

TEST(Pointwise, ClassTests) {
  Tensor x = tensor(DType::F16, {4}, {nan, infinity, -infinity, 1});
  expectEqual(runOp("nn.is_nan", {x}, "", DType::Bool, {4}), {1, 0, 0, 0});
  expectEqual(runOp("nn.is_inf", {x}, "", DType::Bool, {4}), {0, 1, 1, 0});
  expectEqual(runOp("nn.is_inf", {x}, "{negative = false}", DType::Bool, {4}), {0, 1, 0, 0});
  expectEqual(runOp("nn.is_inf", {x}, "{positive = false}", DType::Bool, {4}), {0, 0, 1, 0});
}

TEST(Pointwise, BitsOfOtherTypes) {
  const double lowest = -2147483648.0;
  expectEqual(runOp("nn.bitcast", {tensor(DType::F32, {4}, {1, -0.0, infinity, 0})}, "", DType::I32, {4}),
              {0x3f800000, lowest, 0x7f800000, 0});
  expectEqual(runOp("nn.bitcast", {tensor(DType::U16, {3}, {0x3c00, 0xfbff, 1})}, "", DType::F16, {3}),
              {1, -65504, 0x1p-24});
  expectEqual(runOp("nn.bitcast", {tensor(DType::Bool, {2}, {1, 0})}, "", DType::U8, {2}), {1, 0});
  expectEqual(runOp("nn.bitcast", {tensor(DType::U8, {3}, {0, 1, 128})}, "", DType::Bool, {3}), {0, 1, 1});
}

TEST(Pointwise, Cast) {
  expectEqual(
      runOp("nn.cast", {tensor(DType::F32, {6}, {1.9, -1.9, nan, 300, -300, infinity})}, "", DType::I8, {6}),
      {1, -1, 0, 127, -128, 127});
  expectEqual(runOp("nn.cast", {tensor(DType::F32, {4}, {500, -500, 0, 17})}, "", DType::F8E4M3, {4}),
              {448, -448, 0, 16});
  expectEqual(runOp("nn.cast", {tensor(DType::F32, {3}, {0, 0.25, nan})}, "", DType::Bool, {3}), {0, 1, 1});
  expectEqual(runOp("nn.cast", {tensor(DType::I64, {2}, {258, -1})}, "", DType::U8, {2}), {2, 255});
  expectEqual(
      runOp("nn.cast", {tensor(DType::F32, {2}, {1 + 1.0 / 256, 1 + 3.0 / 256})}, "", DType::BF16, {2}),
      {1, 1 + 4.0 / 256});
}

const std::map<std::string, Binary> binaries = {
    {"add", [](double a, double b) { return a + b; }},
    {"sub", [](double a, double b) { return a - b; }},
    {"mul", [](double a, double b) { return a * b; }},
    {"div", [](double a, double b) { return a / b; }},
    {"fmod", [](double a, double b) { return std::fmod(a, b); }},
    {"mod", [](double a, double b) { return a - b * std::floor(a / b); }},
    {"max", [](double a, double b) { return std::max(a, b); }},
    {"min", [](double a, double b) { return std::min(a, b); }},
};

TEST(Pointwise, BinaryOpsBroadcast) {
  const std::pair<Shape, Shape> shapes[] = {
      {{3, 5}, {3, 5}},    {{3, 5}, {5}},
      {{3, 1}, {1, 5}},    {{}, {3, 5}},
      {{3, 5}, {}},        {{1}, {1}},
      {{2, 1, 4}, {3, 1}}, {{0, 5}, {1, 5}},
      {{70, 64}, {70, 1}}, {{2, 1, 3, 1}, {1, 7, 1, 50}},
  };
  for (const auto &[name, formula] : binaries)
    for (DType type : modelTypes)
      for (const auto &[left, right] : shapes) {
        SCOPED_TRACE(name + " " + shapeString(left) + " " + shapeString(right));
        Tensor a = randomTensor(type, left, 3, 4), b = randomTensor(type, right, 4, 0.5, 3);
        size_t rank = std::max(left.size(), right.size());
        Shape shape(rank, 1);
        for (size_t i = 0; i < rank; ++i) {
          int64_t l = i + left.size() >= rank ? left[i + left.size() - rank] : 1;
          int64_t r = i + right.size() >= rank ? right[i + right.size() - rank] : 1;
          shape[i] = l == 1 ? r : l;
        }
        auto at = [&](const Tensor &x, int64_t i) {
          int64_t position = 0, stride = 1;
          for (size_t d = rank; d-- > 0;) {
            int64_t index = i % shape[d];
            i /= shape[d];
            if (d + x.shape().size() < rank)
              continue;
            int64_t dim = x.shape()[d + x.shape().size() - rank];
            position += (dim == 1 ? 0 : index) * stride;
            stride *= dim;
          }
          return values(x)[static_cast<size_t>(position)];
        };
        std::vector<double> expected;
        for (int64_t i = 0; i < std::min<int64_t>(elementCount(shape), 300); ++i)
          expected.push_back(formula(at(a, i), at(b, i)));
        Tensor y = runOp("nn." + name, {a, b}, "", type, shape);
        std::vector<double> got = values(y);
        got.resize(expected.size());
        double loose = name == "mod" || name == "fmod" ? 1e-4 : 1e-6; // the double formula itself rounds
        expectNear(tensor(DType::F64, {static_cast<int64_t>(got.size())}, got), expected, tolerance(type),
                   loose);
      }
}

TEST(Pointwise, BinaryEdges) {
  Tensor a = tensor(DType::F32, {4}, {nan, 1, infinity, -1}), b = tensor(DType::F32, {4}, {1, nan, 1, -2});
  expectEqual(runOp("nn.max", {a, b}, "", DType::F32, {4}), {nan, nan, infinity, -1});
  expectEqual(runOp("nn.min", {a, b}, "", DType::F32, {4}), {nan, nan, 1, -2});
  expectEqual(runOp("nn.less", {a, b}, "", DType::Bool, {4}), {0, 0, 0, 0});
  expectEqual(runOp("nn.less_equal", {a, b}, "", DType::Bool, {4}), {0, 0, 0, 0});
  expectEqual(runOp("nn.greater", {a, b}, "", DType::Bool, {4}), {0, 0, 1, 1});
  expectEqual(runOp("nn.greater_equal", {a, b}, "", DType::Bool, {4}), {0, 0, 1, 1});
  expectEqual(runOp("nn.equal", {a, a}, "", DType::Bool, {4}), {0, 1, 1, 1});
  expectNear(runOp("nn.pow", {tensor(DType::F32, {3}, {2, -2, 9}), tensor(DType::F32, {3}, {10, 3, 0.5})}, "",
                   DType::F32, {3}),
             {1024, -8, 3});
  auto failed =
      tryOp("nn.add", {tensor(DType::F32, {2, 3}, {0, 0, 0, 0, 0, 0}), tensor(DType::F32, {3}, {0, 0, 0})},
            "", {"tensor<2x3xbf16>"});
  EXPECT_TRUE(bool(failed)); // rounds to the result's type
}

TEST(Pointwise, IntegersWrapAndNeverTrap) {
  Tensor a = tensor(DType::I32, {5}, {-2147483648.0, 7, -7, 7, 5}),
         b = tensor(DType::I32, {5}, {-1, -2, 2, 0, 3});
  expectEqual(runOp("nn.div", {a, b}, "", DType::I32, {5}), {-2147483648.0, -3, -3, 0, 1});
  expectEqual(runOp("nn.mod", {a, b}, "", DType::I32, {5}), {0, -1, 1, 0, 2});
  expectEqual(runOp("nn.fmod", {a, b}, "", DType::I32, {5}), {0, 1, -1, 0, 2});
  expectEqual(runOp("nn.add", {a, b}, "", DType::I32, {5}), {2147483647.0, 5, -5, 7, 8});
  expectEqual(runOp("nn.pow",
                    {tensor(DType::I64, {5}, {3, 2, -1, 1, 0}), tensor(DType::I64, {5}, {4, -1, -3, -7, 0})},
                    "", DType::I64, {5}),
              {81, 0, -1, 1, 1});
  int64_t lowest = std::numeric_limits<int64_t>::min(), minusOne = -1;
  Tensor x = Tensor::of<int64_t>(DType::I64, {1}, std::span<const int64_t>(&lowest, 1));
  Tensor y = Tensor::of<int64_t>(DType::I64, {1}, std::span<const int64_t>(&minusOne, 1));
  EXPECT_EQ(runOp("nn.div", {x, y}, "", DType::I64, {1}).toInts()[0], lowest);
  EXPECT_EQ(runOp("nn.mod", {x, y}, "", DType::I64, {1}).toInts()[0], 0);
  Tensor u = tensor(DType::U8, {2}, {250, 3});
  expectEqual(runOp("nn.add", {u, u}, "", DType::U8, {2}), {244, 6});
  expectEqual(runOp("nn.max", {u, tensor(DType::U8, {2}, {200, 4})}, "", DType::U8, {2}), {250, 4});
}

TEST(Pointwise, BitwiseAndLogical) {
  Tensor a = tensor(DType::I16, {2}, {12, -1}), b = tensor(DType::I16, {2}, {10, 7});
  expectEqual(runOp("nn.and", {a, b}, "", DType::I16, {2}), {8, 7});
  expectEqual(runOp("nn.or", {a, b}, "", DType::I16, {2}), {14, -1});
  expectEqual(runOp("nn.xor", {a, b}, "", DType::I16, {2}), {6, -8});
  Tensor p = tensor(DType::Bool, {4}, {0, 0, 1, 1}), q = tensor(DType::Bool, {4}, {0, 1, 0, 1});
  expectEqual(runOp("nn.and", {p, q}, "", DType::Bool, {4}), {0, 0, 0, 1});
  expectEqual(runOp("nn.or", {p, q}, "", DType::Bool, {4}), {0, 1, 1, 1});
  expectEqual(runOp("nn.xor", {p, q}, "", DType::Bool, {4}), {0, 1, 1, 0});
}

TEST(Pointwise, Where) {
  Tensor condition = tensor(DType::Bool, {2, 1}, {1, 0});
  for (DType type : {DType::F32, DType::F16, DType::I64, DType::I8, DType::Bool, DType::F64})
    expectEqual(
        runOp("nn.where", {condition, tensor(type, {3}, {0, 1, 1}), tensor(type, {}, {0})}, "", type, {2, 3}),
        {0, 1, 1, 0, 0, 0});
}

TEST(Pointwise, LargeTensorsCoverEveryElement) {
  Tensor x = randomTensor(DType::BF16, {257, 1031}, 5), w = randomTensor(DType::BF16, {1031}, 6);
  std::vector<double> a = values(x), b = values(w), expected;
  for (size_t i = 0; i < a.size(); ++i)
    expected.push_back(a[i] * b[i % 1031]);
  expectNear(runOp("nn.mul", {x, w}, "", DType::BF16, x.shape()), expected);
}

} // namespace
} // namespace fusion::testing
