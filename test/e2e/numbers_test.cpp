// Numbers at the edges: the reference and the emitted kernels give the same bits, or say the same line.
#include "GraphCase.h"
#include "GraphText.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

using namespace fusion;
using namespace fusion::test;
using testing::HasSubstr;

namespace {
constexpr float infinity = std::numeric_limits<float>::infinity(),
                nan = std::numeric_limits<float>::quiet_NaN();

/// On the reference unfused, and emulated with all fusions.
std::pair<Result<NamedTensors>, Result<NamedTensors>> runBoth(const std::string &text,
                                                              const NamedTensors &inputs) {
  const Graph graph = parseGraph(text);
  auto run = [&](RunOn device, bool fuse) -> Result<NamedTensors> {
    auto program = compile(graph, {.device = device, .fuse = fuse, .profit = ProfitMode::Model});
    if (!program)
      return program.error();
    return program->run(inputs);
  };
  return {run(RunOn::Cpu, false), run(RunOn::Emulate, true)};
}

std::vector<double> numbers(const Tensor &tensor) {
  const Tensor wide = tensor.convertedTo(DType::F64);
  return {wide.as<double>(), wide.as<double>() + wide.size()};
}

/// A NaN is one like another; zeros have signs.
bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

/// The results of both devices, which are the same.
NamedTensors agree(const std::string &text, const NamedTensors &inputs) {
  auto [expected, actual] = runBoth(text, inputs);
  EXPECT_TRUE(bool(expected)) << expected.error().message;
  EXPECT_TRUE(bool(actual)) << actual.error().message;
  for (const auto &[name, value] : *expected) {
    const std::vector<double> left = numbers(value), right = numbers(actual->at(name));
    EXPECT_EQ(left.size(), right.size());
    for (size_t i = 0; i < left.size(); ++i)
      EXPECT_TRUE(same(left[i], right[i])) << name << "[" << i << "]: " << left[i] << " and " << right[i];
  }
  return *expected;
}

/// The same error on both, with this in it.
void refuse(const std::string &text, const NamedTensors &inputs, const std::string &says) {
  auto [expected, actual] = runBoth(text, inputs);
  ASSERT_FALSE(bool(expected));
  ASSERT_FALSE(bool(actual));
  EXPECT_EQ(expected.error().message, actual.error().message);
  EXPECT_THAT(expected.error().message, HasSubstr(says));
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

Tensor floats(DType type, Shape shape, const std::vector<float> &values) {
  return Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(type);
}
Tensor integers(Shape shape, const std::vector<int64_t> &values) {
  return Tensor::of<int64_t>(DType::I64, std::move(shape), values);
}

class Numbers : public testing::TestWithParam<std::pair<const char *, DType>> {
protected:
  std::string typed(const std::string &text) const {
    return replaced(text, "T>", std::string(GetParam().first) + ">");
  }
  DType type() const { return GetParam().second; }
};

/// NaN passes through, 0 is above -0 in any order of operands and elements, as max.NaN and min.NaN of the
/// device have it.
TEST_P(Numbers, ZerosAndNanOfExtremes) {
  const std::vector<float> some = {0.f, -0.f, 1, -1, infinity, -infinity, nan, 2.5f};
  std::vector<float> x, y;
  for (float a : some)
    for (float b : some) {
      x.push_back(a);
      y.push_back(b);
    }
  const NamedTensors results = agree(
      typed(R"(
    func.func @main(%x: tensor<64xT> {nn.name = "x"}, %y: tensor<64xT> {nn.name = "y"}, %z: tensor<T> {nn.name = "z"})
        -> (tensor<64xT> {nn.name = "max"}, tensor<64xT> {nn.name = "min"}, tensor<64xT> {nn.name = "relu"},
            tensor<64xT> {nn.name = "sign"}, tensor<64xT> {nn.name = "clip"}) {
      %0 = nn.max %x, %y : (tensor<64xT>, tensor<64xT>) -> tensor<64xT>
      %1 = nn.min %x, %y : (tensor<64xT>, tensor<64xT>) -> tensor<64xT>
      %2 = nn.relu %x : (tensor<64xT>) -> tensor<64xT>
      %3 = nn.sign %x : (tensor<64xT>) -> tensor<64xT>
      %4 = nn.max %x, %z : (tensor<64xT>, tensor<T>) -> tensor<64xT>
      %5 = nn.min %4, %y : (tensor<64xT>, tensor<64xT>) -> tensor<64xT>
      return %0, %1, %2, %3, %5 : tensor<64xT>, tensor<64xT>, tensor<64xT>, tensor<64xT>, tensor<64xT>
    })"),
      {{"x", floats(type(), {64}, x)}, {"y", floats(type(), {64}, y)}, {"z", floats(type(), {}, {-0.f})}});
  const std::vector<double> largest = numbers(results.at("max")), smallest = numbers(results.at("min"));
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = x[i], b = y[i];
    const bool isNan = std::isnan(a) || std::isnan(b), zeros = a == 0 && b == 0;
    const double most = isNan   ? nan
                        : zeros ? (std::signbit(a) && std::signbit(b) ? -0. : 0.)
                                : std::max(a, b);
    const double least = isNan   ? nan
                         : zeros ? (std::signbit(a) || std::signbit(b) ? -0. : 0.)
                                 : std::min(a, b);
    EXPECT_TRUE(same(largest[i], most)) << a << " " << b << " " << largest[i];
    EXPECT_TRUE(same(smallest[i], least)) << a << " " << b << " " << smallest[i];
    EXPECT_TRUE(same(numbers(results.at("relu"))[i], std::isnan(a) ? nan : a > 0 ? a : 0.)) << a;
    EXPECT_TRUE(same(numbers(results.at("sign"))[i], std::isnan(a) ? nan
                                                     : a > 0       ? 1.
                                                     : a < 0       ? -1.
                                                                   : 0.))
        << a;
  }
}

TEST_P(Numbers, ZerosOfReductions) {
  constexpr int64_t width = 300;
  std::vector<float> x(4 * width);
  for (int64_t i = 0; i < width; ++i) {
    x[i] = i % 2 ? 0.f : -0.f;
    x[width + i] = i % 3 ? -0.f : 0.f;
    x[2 * width + i] = -0.f;
    x[3 * width + i] = i == 200 ? nan : static_cast<float>(i);
  }
  const NamedTensors results = agree(typed(R"(
    func.func @main(%x: tensor<4x300xT> {nn.name = "x"})
        -> (tensor<4xT> {nn.name = "max"}, tensor<4xT> {nn.name = "min"}, tensor<4xi64> {nn.name = "place"}) {
      %0 = nn.reduce %x {axes = array<i64: 1>, keepdims = false, kind = "max"} : (tensor<4x300xT>) -> tensor<4xT>
      %1 = nn.reduce %x {axes = array<i64: 1>, keepdims = false, kind = "min"} : (tensor<4x300xT>) -> tensor<4xT>
      %2 = nn.arg_max %x {axis = 1 : i64, keepdims = false} : (tensor<4x300xT>) -> tensor<4xi64>
      return %0, %1, %2 : tensor<4xT>, tensor<4xT>, tensor<4xi64>
    })"),
                                     {{"x", floats(type(), {4, width}, x)}});
  const double most[] = {0., 0., -0., nan}, least[] = {-0., -0., -0., nan}, place[] = {0, 0, 0, 200};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(same(numbers(results.at("max"))[i], most[i])) << i;
    EXPECT_TRUE(same(numbers(results.at("min"))[i], least[i])) << i;
    EXPECT_EQ(numbers(results.at("place"))[i], place[i]) << i;
  }
}

/// Less its mean a constant row is 0, whatever the width and how many threads share it: an eps of 1e-12 would
/// make a rounding of the mean visible. Alone, after a sum, and in rows that are not held in registers.
TEST_P(Numbers, LayerNormOfConstantRows) {
  for (int64_t width : {7, 96, 768, 1000, 1001, 2880, 4096, 40000}) {
    std::vector<float> x;
    for (float value : {1000.f, 0.1f, 3.3f, -777.7f, 1e-3f, 30000.f})
      x.insert(x.end(), static_cast<size_t>(width), value);
    std::string text = typed(R"(
      func.func @main(%x: tensor<6xWxT> {nn.name = "x"}, %w: tensor<WxT> {nn.name = "w"}, %b: tensor<WxT> {nn.name = "b"})
          -> (tensor<6xWxT> {nn.name = "alone"}, tensor<6xWxT> {nn.name = "added"}) {
        %0 = nn.layer_norm %x, %w, %b {eps = 1.0e-12 : f32} : (tensor<6xWxT>, tensor<WxT>, tensor<WxT>) -> tensor<6xWxT>
        %1 = nn.mul %x, %w : (tensor<6xWxT>, tensor<WxT>) -> tensor<6xWxT>
        %2 = nn.add %1, %1 : (tensor<6xWxT>, tensor<6xWxT>) -> tensor<6xWxT>
        %3 = nn.layer_norm %2, %w, %b {eps = 1.0e-12 : f32} : (tensor<6xWxT>, tensor<WxT>, tensor<WxT>) -> tensor<6xWxT>
        return %0, %3 : tensor<6xWxT>, tensor<6xWxT>
      })");
    text = replaced(replaced(text, "6xW", "6x" + std::to_string(width)), "<W", "<" + std::to_string(width));
    const std::vector<float> weight(static_cast<size_t>(width), 1.f), bias(static_cast<size_t>(width), .5f);
    const NamedTensors results = agree(text, {{"x", floats(type(), {6, width}, x)},
                                              {"w", floats(type(), {width}, weight)},
                                              {"b", floats(type(), {width}, bias)}});
    for (const auto &[name, value] : results)
      EXPECT_EQ(numbers(value), std::vector<double>(static_cast<size_t>(6 * width), .5))
          << name << " " << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Numbers,
                         testing::Values(std::pair("f32", DType::F32), std::pair("f16", DType::F16),
                                         std::pair("bf16", DType::BF16)),
                         [](const auto &info) { return std::string(info.param.first); });

/// A vector is one row, and its reduction has no dim.
TEST(RankOne, Reductions) {
  for (const char *kind : {"sum", "mean", "max", "min", "prod", "sum_square", "l1", "l2"})
    for (int64_t size : {1, 7, 2000}) {
      const std::string text = replaced(R"(
        func.func @main(%x: tensor<?xf32> {nn.name = "x", nn.dims = ["n"]})
            -> (tensor<f32> {nn.name = "bare"}, tensor<1xf32> {nn.name = "kept"}) {
          %0 = nn.reduce %x {axes = array<i64: 0>, keepdims = false, kind = "K"} : (tensor<?xf32>) -> tensor<f32>
          %1 = nn.reduce %x {axes = array<i64: 0>, keepdims = true, kind = "K"} : (tensor<?xf32>) -> tensor<1xf32>
          return %0, %1 : tensor<f32>, tensor<1xf32>
        })",
                                        "\"K\"", std::string("\"") + kind + "\"");
      std::vector<float> x(static_cast<size_t>(size), 1.f);
      x[0] = 2;
      SCOPED_TRACE(std::string(kind) + " " + std::to_string(size));
      const NamedTensors results = agree(text, {{"x", floats(DType::F32, {size}, x)}});
      EXPECT_TRUE(results.at("bare").shape().empty());
      EXPECT_EQ(numbers(results.at("bare")), numbers(results.at("kept")));
      if (std::string_view(kind) == "sum")
        EXPECT_EQ(numbers(results.at("bare")).front(), static_cast<double>(size + 1));
    }
}

/// The largest of no integers is the least that the type has, on every device; of no elements there is no
/// place.
TEST(Empty, ReductionsOfIntegers) {
  for (auto [name, type, least, most] : {std::tuple("i32", DType::I32, -2147483648., 2147483647.),
                                         {"i8", DType::I8, -128., 127.},
                                         {"ui8", DType::U8, 0., 255.}}) {
    const std::string text = replaced(R"(
      func.func @main(%x: tensor<2x?xT> {nn.name = "x", nn.dims = [2, "n"]})
          -> (tensor<2xT> {nn.name = "max"}, tensor<2xT> {nn.name = "min"}) {
        %0 = nn.reduce %x {axes = array<i64: 1>, keepdims = false, kind = "max"} : (tensor<2x?xT>) -> tensor<2xT>
        %1 = nn.reduce %x {axes = array<i64: 1>, keepdims = false, kind = "min"} : (tensor<2x?xT>) -> tensor<2xT>
        return %0, %1 : tensor<2xT>, tensor<2xT>
      })",
                                      "xT>", std::string("x") + name + ">");
    const NamedTensors none = agree(text, {{"x", Tensor::uninitialized(type, {2, 0})}});
    EXPECT_EQ(numbers(none.at("max")), std::vector<double>(2, least)) << name;
    EXPECT_EQ(numbers(none.at("min")), std::vector<double>(2, most)) << name;
    const NamedTensors some =
        agree(text, {{"x", floats(DType::F32, {2, 2}, {3, 7, 5, 1}).convertedTo(type)}});
    EXPECT_EQ(numbers(some.at("max")), (std::vector<double>{7, 5})) << name;
    EXPECT_EQ(numbers(some.at("min")), (std::vector<double>{3, 1})) << name;
  }
}

TEST(Empty, ArgMax) {
  auto [expected, actual] = runBoth(R"(
    func.func @main(%x: tensor<2x?xf32> {nn.name = "x", nn.dims = [2, "n"]}) -> tensor<2xi64> {
      %0 = nn.arg_max %x {axis = 1 : i64, keepdims = false} : (tensor<2x?xf32>) -> tensor<2xi64>
      return %0 : tensor<2xi64>
    })",
                                    {{"x", floats(DType::F32, {2, 0}, {})}});
  EXPECT_FALSE(bool(expected));
  EXPECT_FALSE(bool(actual));
}

/// Every op that looks up by an input's integers.
const char *lookups[] = {
    R"(func.func @main(%x: tensor<4x3xf32> {nn.name = "x"}, %i: tensor<2xi64> {nn.name = "i"}) -> tensor<2x3xf32> {
      INDICES
      %0 = nn.gather %x, %j {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32> })",
    R"(func.func @main(%x: tensor<?x3xf32> {nn.name = "x", nn.dims = ["n", 3]}, %i: tensor<2xi64> {nn.name = "i"}) -> tensor<2x3xf32> {
      INDICES
      %0 = nn.gather %x, %j {axis = 0 : i64} : (tensor<?x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32> })",
    R"(func.func @main(%x: tensor<4x1xf32> {nn.name = "x"}, %i: tensor<2xi64> {nn.name = "i"}) -> tensor<2x1xf32> {
      INDICES
      %k = nn.reshape %j {shape = [2, 1]} : (tensor<2xi64>) -> tensor<2x1xi64>
      %0 = nn.gather_elements %x, %k {axis = 0 : i64} : (tensor<4x1xf32>, tensor<2x1xi64>) -> tensor<2x1xf32>
      return %0 : tensor<2x1xf32> })",
    R"(func.func @main(%x: tensor<4x4xf32> {nn.name = "x"}, %i: tensor<2xi64> {nn.name = "i"}) -> tensor<f32> {
      INDICES
      %0 = nn.gather_nd %x, %j {batch_dims = 0 : i64} : (tensor<4x4xf32>, tensor<2xi64>) -> tensor<f32>
      return %0 : tensor<f32> })",
    R"(func.func @main(%x: tensor<4x4xf32> {nn.name = "x"}, %i: tensor<2xi64> {nn.name = "i"}, %u: tensor<f32> {nn.name = "u"}) -> tensor<4x4xf32> {
      INDICES
      %0 = nn.scatter_nd %x, %j, %u : (tensor<4x4xf32>, tensor<2xi64>, tensor<f32>) -> tensor<4x4xf32>
      return %0 : tensor<4x4xf32> })",
};

/// Of an input they are refused before the run, by one line on every device; what a graph computes reads the
/// nearest element and writes nothing.
TEST(Indices, OutOfRange) {
  for (const char *text : lookups) {
    const int64_t columns = std::string(text).find("4x4") != std::string::npos   ? 4
                            : std::string(text).find("4x1") != std::string::npos ? 1
                                                                                 : 3;
    std::vector<float> x(static_cast<size_t>(4 * columns));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i + 1);
    auto inputs = [&](int64_t first, int64_t second) {
      NamedTensors all = {{"x", floats(DType::F32, {4, columns}, x)}, {"i", integers({2}, {first, second})}};
      if (std::string(text).find("%u") != std::string::npos)
        all.emplace("u", floats(DType::F32, {}, {-1}));
      return all;
    };
    const std::string given = replaced(replaced(text, "INDICES", ""), "%j", "%i");
    const std::string computed =
        replaced(text, "INDICES", "%j = nn.add %i, %i : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>");
    SCOPED_TRACE(given);
    agree(given, inputs(0, 3));
    agree(given, inputs(-4, -1));
    for (int64_t index : {int64_t(4), int64_t(-5), int64_t(1) << 40})
      refuse(given, inputs(0, index),
             "input i: index " + std::to_string(index) + " is out of range for a table of 4 rows (-4 to 3)");
    for (int64_t index :
         {int64_t(1), int64_t(2), int64_t(-2), int64_t(-3), int64_t(1) << 40, -(int64_t(1) << 40)})
      agree(computed, inputs(1, index));
  }
}
} // namespace
