#include "test/reference/Testing.h"

namespace fusion::testing {
namespace {

double reduceAll(const std::string &kind, const std::vector<double> &row) {
  double result = kind == "prod" ? 1 : kind == "max" ? -infinity : kind == "min" ? infinity : 0;
  for (double x : row) {
    if (kind == "max")
      result = std::max(result, x);
    else if (kind == "min")
      result = std::min(result, x);
    else if (kind == "prod")
      result *= x;
    else if (kind == "l1")
      result += std::fabs(x);
    else
      result += kind == "mean" || kind == "sum" ? x : x * x;
  }
  if (kind == "mean")
    return result / static_cast<double>(row.size());
  return kind == "l2" ? std::sqrt(result) : result;
}

const char *const kinds[] = {"mean", "sum", "max", "min", "prod", "sum_square", "l1", "l2"};

TEST(Reduce, EveryKindOverEveryAxisSet) {
  const Shape shape = {3, 5, 4};
  for (std::string kind : kinds)
    for (DType type : {DType::F64, DType::F32, DType::F16, DType::BF16})
      for (unsigned axes = 0; axes < 8; ++axes) {
        SCOPED_TRACE(fmt::format("{} {} {}", kind, name(type), axes));
        Tensor x = randomTensor(type, shape, axes, 0.5, 1);
        std::vector<double> all = values(x), expected;
        std::map<int64_t, std::vector<double>> rows;
        for (int64_t i = 0; i < x.size(); ++i) {
          int64_t index[3] = {i / 20, i / 4 % 5, i % 4}, key = 0;
          for (int d = 0; d < 3; ++d)
            if (!(axes >> d & 1))
              key = key * 10 + index[d];
          rows[key].push_back(all[static_cast<size_t>(i)]);
        }
        for (const auto &[key, row] : rows)
          expected.push_back(reduceAll(kind, row));
        Shape kept, result;
        std::string list;
        for (int d = 0; d < 3; ++d) {
          bool gone = axes >> d & 1;
          kept.push_back(gone ? 1 : shape[static_cast<size_t>(d)]);
          if (gone)
            list += fmt::format("{} {}", list.empty() ? ":" : ",", d);
          else
            result.push_back(shape[static_cast<size_t>(d)]);
        }
        std::string attributes = fmt::format("kind = \"{}\", axes = array<i64{}>", kind, list);
        expectNear(runOp("nn.reduce", {x}, "{" + attributes + ", keepdims = true}", type, kept), expected);
        expectNear(runOp("nn.reduce", {x}, "{" + attributes + ", keepdims = false}", type, result), expected);
      }
}

Tensor reduceLast(const Tensor &x, const std::string &kind, DType type, Shape shape) {
  return runOp("nn.reduce", {x}, "{kind = \"" + kind + "\", axes = array<i64: -1>, keepdims = false}", type,
               shape);
}

TEST(Reduce, LongRowsKeepPrecision) {
  constexpr int64_t length = 1 << 20;
  Tensor x = tensor(DType::F32, {1, length}, std::vector<double>(length, 0.1));
  expectNear(reduceLast(x, "sum", DType::F32, {1}), {static_cast<float>(0.1) * static_cast<double>(length)},
             1e-7);
  expectNear(reduceLast(x, "mean", DType::F32, {1}), {static_cast<float>(0.1)}, 1e-7);
}

TEST(Reduce, EdgesOfFloatsAndIntegers) {
  Tensor x = tensor(DType::F16, {2, 2}, {1, nan, nan, 2});
  expectEqual(reduceLast(x, "max", DType::F16, {2}), {nan, nan});
  expectEqual(reduceLast(x, "min", DType::F16, {2}), {nan, nan});
  Tensor none = tensor(DType::F32, {2, 0}, {});
  expectEqual(reduceLast(none, "sum", DType::F32, {2}), {0, 0});
  expectEqual(reduceLast(none, "prod", DType::F32, {2}), {1, 1});
  expectEqual(reduceLast(none, "mean", DType::F32, {2}), {nan, nan});
  expectEqual(reduceLast(none, "max", DType::F32, {2}), {-infinity, -infinity});
  expectEqual(reduceLast(tensor(DType::I8, {1, 0}, {}), "max", DType::I8, {1}), {-128});
  expectEqual(reduceLast(tensor(DType::I8, {1, 0}, {}), "mean", DType::I8, {1}), {0});
  Tensor wrap = tensor(DType::I8, {1, 3}, {100, 100, -1});
  expectEqual(reduceLast(wrap, "sum", DType::I8, {1}), {-57});
  expectEqual(reduceLast(wrap, "max", DType::I8, {1}), {100});
  expectEqual(reduceLast(tensor(DType::I64, {2, 3}, {1, 2, 3, -4, 5, -6}), "l1", DType::I64, {2}), {6, 15});
  expectEqual(reduceLast(tensor(DType::Bool, {2, 2}, {0, 1, 0, 0}), "max", DType::Bool, {2}), {1, 0});
}

TEST(Reduce, TopK) {
  Tensor x = tensor(DType::BF16, {2, 4}, {1, 5, 5, -infinity, nan, 7, nan, 9});
  expectEqual(runOp("nn.top_k", {x}, "{axis = 1 : i64, k = [3]}", DType::I64, {2, 3}), {1, 2, 0, 0, 2, 3});
  expectEqual(runOp("nn.top_k", {x}, "{axis = 0 : i64, k = [1]}", DType::I64, {1, 4}), {1, 1, 1, 1});
  expectEqual(runOp("nn.top_k", {x}, "{axis = -1 : i64, k = [0]}", DType::I64, {2, 0}), {});
  expectEqual(
      runOp("nn.top_k", {tensor(DType::U8, {3}, {5, 255, 9})}, "{axis = 0 : i64, k = [3]}", DType::I64, {3}),
      {1, 2, 0});
}

// Groups of 2; NaN is the largest, equal groups keep their order, and the sum is rounded to the type.
TEST(Reduce, LimitGroups) {
  auto limited = [](const Tensor &x, int kept, int summed) {
    return runOp("nn.limit_groups", {x},
                 "{groups = 3 : i64, kept = " + std::to_string(kept) +
                     " : i64, summed = " + std::to_string(summed) + " : i64, other = -1.0 : f32}",
                 x.type(), x.shape());
  };
  Tensor x = tensor(DType::F32, {3, 6}, {1, 5, 4, 4, 9, -8, 1, 2, 2, 1, 0, 3, -9, nan, 5, 6, 7, 8});
  expectEqual(limited(x, 1, 1), {-1, -1, -1, -1, 9, -8, -1, -1, -1, -1, 0, 3, -9, nan, -1, -1, -1, -1});
  expectEqual(limited(x, 1, 2), {-1, -1, 4, 4, -1, -1, 1, 2, -1, -1, -1, -1, -9, nan, -1, -1, -1, -1});
  expectEqual(limited(x, 2, 2), {1, 5, 4, 4, -1, -1, 1, 2, 2, 1, -1, -1, -9, nan, -1, -1, 7, 8});
  Tensor narrow = tensor(DType::BF16, {1, 6}, {256, 1, 257, 0, 0, 0}); // 257 is 256
  expectEqual(limited(narrow, 1, 2), {256, 1, -1, -1, -1, -1});
  expectEqual(limited(tensor(DType::F64, {0, 6}, {}), 1, 2), {});
}

TEST(Reduce, ArgMax) {
  Tensor x = tensor(DType::BF16, {2, 3}, {1, 5, 5, nan, 7, nan});
  expectEqual(runOp("nn.arg_max", {x}, "{axis = 1 : i64, keepdims = false}", DType::I64, {2}), {1, 0});
  expectEqual(runOp("nn.arg_max", {x}, "{axis = 0 : i64, keepdims = true}", DType::I64, {1, 3}), {1, 1, 1});
  expectEqual(runOp("nn.arg_max", {tensor(DType::I32, {3}, {-5, -2, -9})},
                    "{axis = 0 : i64, keepdims = false}", DType::I64, {}),
              {1});
}

TEST(Reduce, CumSum) {
  for (DType type : {DType::I64, DType::F32, DType::F16, DType::BF16, DType::I32}) {
    Tensor x = tensor(type, {2, 3}, {1, 2, 3, 4, 5, 6});
    auto run = [&](int axis, bool exclusive, bool reverse) {
      return runOp("nn.cumsum", {x},
                   fmt::format("{{axis = {} : i64, exclusive = {}, reverse = {}}}", axis, exclusive, reverse),
                   type, {2, 3});
    };
    expectEqual(run(1, false, false), {1, 3, 6, 4, 9, 15});
    expectEqual(run(1, true, false), {0, 1, 3, 0, 4, 9});
    expectEqual(run(1, false, true), {6, 5, 3, 15, 11, 6});
    expectEqual(run(1, true, true), {5, 3, 0, 11, 6, 0});
    expectEqual(run(0, false, false), {1, 2, 3, 5, 7, 9});
  }
}

TEST(Reduce, Softmax) {
  for (DType type : {DType::F64, DType::F32, DType::F16, DType::BF16})
    for (int64_t axis : {0, 1, 2}) {
      const Shape shape = {3, 7, 5};
      Tensor x = randomTensor(type, shape, 8, 3);
      std::vector<double> in = values(x), expected(in.size()), logs(in.size());
      int64_t strides[] = {35, 5, 1}, stride = strides[axis], length = shape[static_cast<size_t>(axis)];
      for (size_t i = 0; i < in.size(); ++i) {
        size_t start =
            i - i / static_cast<size_t>(stride) % static_cast<size_t>(length) * static_cast<size_t>(stride);
        double sum = 0;
        for (int64_t j = 0; j < length; ++j)
          sum += std::exp(in[start + static_cast<size_t>(j * stride)]);
        expected[i] = std::exp(in[i]) / sum;
        logs[i] = in[i] - std::log(sum);
      }
      expectNear(runOp("nn.softmax", {x}, fmt::format("{{axis = {} : i64}}", axis), type, shape), expected);
      expectNear(runOp("nn.softmax", {x}, fmt::format("{{axis = {} : i64, log = true}}", axis), type, shape),
                 logs);
    }
  expectEqual(runOp("nn.softmax", {tensor(DType::F32, {2, 2}, {-infinity, -infinity, 0, -infinity})},
                    "{axis = 1 : i64}", DType::F32, {2, 2}),
              {nan, nan, 1, 0});
}

} // namespace
} // namespace fusion::testing
