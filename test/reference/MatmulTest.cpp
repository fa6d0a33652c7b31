#include "test/reference/Testing.h"

namespace fusion::testing {
namespace {

/// Product of stacks of matrices that are stored dense, with the batch dims given as matrix numbers.
std::vector<double> naive(const std::vector<double> &a, const std::vector<double> &b, int64_t m, int64_t n,
                          int64_t k, bool transposeA, bool transposeB, const std::vector<int64_t> &aNumbers,
                          const std::vector<int64_t> &bNumbers) {
  std::vector<double> y;
  for (size_t matrix = 0; matrix < aNumbers.size(); ++matrix)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += a[static_cast<size_t>(aNumbers[matrix] * m * k + (transposeA ? l * m + i : i * k + l))] *
                 b[static_cast<size_t>(bNumbers[matrix] * k * n + (transposeB ? j * k + l : l * n + j))];
        y.push_back(sum);
      }
  return y;
}

double allowed(DType type, int64_t k) {
  return type == DType::F32 ? 1e-6 * static_cast<double>(k) : tolerance(type);
}

TEST(Matmul, AwkwardSizesTypesAndTransposes) {
  const Shape sizes[] = {{1, 1, 1},     {1, 33, 7},     {5, 1, 64}, {13, 35, 300},
                         {200, 17, 31}, {64, 300, 520}, {3, 4, 0}};
  for (DType type : {DType::F64, DType::F32, DType::F16, DType::BF16})
    for (const Shape &size : sizes)
      for (int transposes = 0; transposes < 4; ++transposes) {
        int64_t m = size[0], n = size[1], k = size[2];
        bool ta = transposes & 1, tb = transposes & 2;
        SCOPED_TRACE(fmt::format("{} {} {}", name(type), shapeString(size), transposes));
        Tensor a = randomTensor(type, ta ? Shape{k, m} : Shape{m, k}, 31);
        Tensor b = randomTensor(type, tb ? Shape{n, k} : Shape{k, n}, 32);
        Tensor y = runOp("nn.matmul", {a, b}, fmt::format("{{transpose_a = {}, transpose_b = {}}}", ta, tb),
                         type, {m, n});
        expectNear(y, naive(values(a), values(b), m, n, k, ta, tb, {0}, {0}), tolerance(type),
                   allowed(type, k));
      }
}

TEST(Matmul, BatchesBroadcast) {
  for (DType type : modelTypes)
    for (bool tb : {false, true}) {
      Tensor a = randomTensor(type, {2, 1, 3, 4}, 33), b = randomTensor(type, {5, 4, 4}, 34);
      Tensor y = runOp("nn.matmul", {a, b}, fmt::format("{{transpose_b = {}}}", tb), type, {2, 5, 3, 4});
      expectNear(y, naive(values(a), values(b), 3, 4, 4, false, tb, {0, 0, 0, 0, 0, 1, 1, 1, 1, 1},
                          {0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
      Tensor w = randomTensor(type, {4, 6}, 35);
      Tensor tall = runOp("nn.matmul", {a, w}, "", type, {2, 1, 3, 6});
      expectNear(tall, naive(values(a), values(w), 3, 6, 4, false, false, {0, 1}, {0, 0}));
      Tensor left = runOp("nn.matmul", {w, randomTensor(type, {3, 6, 2}, 36)}, "", type, {3, 4, 2});
      expectNear(left, naive(values(w), values(randomTensor(type, {3, 6, 2}, 36)), 4, 2, 6, false, false,
                             {0, 0, 0}, {0, 1, 2}));
      Tensor turned =
          runOp("nn.matmul", {randomTensor(type, {2, 4, 3}, 37), w}, "{transpose_a = true}", type, {2, 3, 6});
      expectNear(turned, naive(values(randomTensor(type, {2, 4, 3}, 37)), values(w), 3, 6, 4, true, false,
                               {0, 1}, {0, 0}));
      Tensor columns = randomTensor(type, {3, 4, 1}, 38);
      Tensor rows = runOp("nn.matmul", {columns, w}, "{transpose_a = true}", type, {3, 1, 6});
      expectNear(rows, naive(values(columns), values(w), 1, 6, 4, true, false, {0, 1, 2}, {0, 0, 0}));
    }
}

/// Rows of a larger tensor, as one.
Tensor rowOf(const Tensor &tensor, int64_t row, Shape shape) {
  const int64_t count = elementCount(shape);
  std::vector<double> all = values(tensor);
  return testing::tensor(tensor.type(), std::move(shape),
                         {all.begin() + row * count, all.begin() + (row + 1) * count});
}

// The same as a product of each row with the matrix that its slot names.
TEST(ExpertMatmul, IsAProductForEachSlot) {
  const Tensor index = Tensor::of<int64_t>(DType::I64, {3, 2}, std::vector<int64_t>{3, 0, 0, 0, -1, 1});
  const int64_t chosen[] = {3, 0, 0, 0, 3, 1};
  for (DType type : {DType::F32, DType::F16, DType::BF16, DType::F64})
    for (bool transpose : {false, true})
      for (int64_t slots : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name(type), transpose, slots));
        const int64_t k = 5, n = 7;
        const Shape matrix = transpose ? Shape{n, k} : Shape{k, n};
        Tensor x = randomTensor(type, {3, slots, k}, 41),
               w = randomTensor(type, {4, matrix[0], matrix[1]}, 42);
        const std::string flag = fmt::format("{{transpose_w = {}}}", transpose);
        Tensor y = runOp("nn.expert_matmul", {x, w, index}, flag, type, {3, 2, n});
        for (int64_t slot = 0; slot < 6; ++slot) {
          Tensor row = rowOf(x, slots == 1 ? slot / 2 : slot, {1, k});
          Tensor expected = runOp("nn.matmul", {row, rowOf(w, chosen[slot], matrix)},
                                  fmt::format("{{transpose_b = {}}}", transpose), type, {1, n});
          expectNear(rowOf(y, slot, {1, n}), values(expected));
        }
      }
}

TEST(ExpertMatmul, MoreRowDimsAndNoRows) {
  const Tensor index = Tensor::of<int64_t>(DType::I64, {2, 2, 1}, std::vector<int64_t>{1, 0, 1, 1});
  Tensor x = randomTensor(DType::F32, {2, 2, 1, 3}, 43), w = randomTensor(DType::F32, {2, 3, 4}, 44);
  Tensor y = runOp("nn.expert_matmul", {x, w, index}, "", DType::F32, {2, 2, 1, 4});
  Tensor flat = runOp("nn.expert_matmul", {x.reshaped({4, 1, 3}), w, index.reshaped({4, 1})}, "", DType::F32,
                      {4, 1, 4});
  EXPECT_EQ(values(y), values(flat));
  Tensor none =
      runOp("nn.expert_matmul", {Tensor::zeros(DType::F32, {0, 1, 3}), w, Tensor::zeros(DType::I64, {0, 2})},
            "", DType::F32, {0, 2, 4});
  EXPECT_EQ(none.size(), 0);
}

TEST(Matmul, RankOneOperands) {
  for (DType type : modelTypes) {
    Tensor v = randomTensor(type, {4}, 38), m = randomTensor(type, {2, 4, 3}, 39),
           u = randomTensor(type, {3}, 40);
    expectNear(runOp("nn.matmul", {v, m}, "", type, {2, 3}),
               naive(values(v), values(m), 1, 3, 4, false, false, {0, 0}, {0, 1}));
    expectNear(runOp("nn.matmul", {m, u}, "", type, {2, 4}),
               naive(values(m), values(u), 4, 1, 3, false, false, {0, 1}, {0, 0}));
    expectNear(runOp("nn.matmul", {v, v}, "", type, {}),
               naive(values(v), values(v), 1, 1, 4, false, false, {0}, {0}));
  }
}

TEST(Matmul, IntegersAreExact) {
  constexpr int64_t k = 1000;
  Tensor a = tensor(DType::U8, {2, k}, std::vector<double>(2 * k, 255)),
         b = tensor(DType::U8, {k, 3}, std::vector<double>(3 * k, 255));
  expectEqual(runOp("nn.matmul", {a, b}, "", DType::I32, {2, 3}), std::vector<double>(6, 255.0 * 255 * k));
  Tensor s = runOp("nn.cast", {randomTensor(DType::F32, {7, 513}, 41, 60)}, "", DType::I8, {7, 513});
  Tensor t = runOp("nn.cast", {randomTensor(DType::F32, {513, 5}, 42, 60)}, "", DType::I8, {513, 5});
  expectEqual(runOp("nn.matmul", {s, t}, "", DType::I32, {7, 5}),
              naive(values(s), values(t), 7, 5, 513, false, false, {0}, {0}));
  expectEqual(runOp("nn.matmul", {tensor(DType::I64, {1, 2}, {3, 4}), tensor(DType::I64, {2, 1}, {5, 6})}, "",
                    DType::I64, {1, 1}),
              {39});
}

TEST(Matmul, NarrowOperandsWideResult) {
  Tensor a = randomTensor(DType::F8E4M3, {4, 40}, 43), b = randomTensor(DType::F8E5M2, {9, 40}, 44);
  expectNear(runOp("nn.matmul", {a, b}, "{transpose_b = true}", DType::F32, {4, 9}),
             naive(values(a), values(b), 4, 9, 40, false, true, {0}, {0}), 1e-5, 1e-5);
}

TEST(Matmul, NanAndErrors) {
  Tensor a = tensor(DType::F32, {2, 2}, {nan, 1, 1, 1}), b = tensor(DType::F32, {2, 2}, {1, 0, 0, 1});
  expectEqual(runOp("nn.matmul", {a, b}, "", DType::F32, {2, 2}), {nan, nan, 1, 1});
  EXPECT_EQ(runOp("nn.matmul", {tensor(DType::F32, {0, 2}, {}), b}, "", DType::F32, {0, 2}).size(), 0);
}

} // namespace
} // namespace fusion::testing
