// Matrix products: broadcasting, transposes and rank-1 operands on top of Gemm.
#include "ir/base/Parallel.h"
#include "ir/reference/Gemm.h"
#include "ir/reference/Support.h"

#include <algorithm>
#include <cstring>

namespace fusion::reference {
namespace {

/// An operand as a stack of matrices, transposition applied.
struct Stack {
  const Tensor &tensor;
  Shape batch;
  int64_t rows, columns, rowStride, columnStride;

  Stack(const Tensor &tensor, bool isLeft, bool transpose) : tensor(tensor) {
    const Shape &shape = tensor.shape();
    if (shape.size() == 1) { // a row on the left, a column on the right
      rows = isLeft ? 1 : shape[0];
      columns = isLeft ? shape[0] : 1;
      rowStride = isLeft ? shape[0] : 1;
      columnStride = 1;
      return;
    }
    batch.assign(shape.begin(), shape.end() - 2);
    rows = shape[shape.size() - 2];
    columns = shape.back();
    rowStride = columns;
    columnStride = 1;
    if (transpose) {
      std::swap(rows, columns);
      std::swap(rowStride, columnStride);
    }
  }
  /// Whether the rows of all matrices lie one behind the other. Those of [batch, k, 1] transposed have a
  /// stride of 1.
  bool isTall() const { return columnStride == 1 && (rowStride == columns || tensor.size() == columns); }
  int64_t matrixSize() const { return rows * columns; }
  MatrixView view(int64_t index) const {
    return {tensor.as<char>() + static_cast<size_t>(index * matrixSize()) * byteSize(tensor.type()),
            tensor.type(), rowStride, columnStride};
  }
};

/// For each matrix of the result, the number of the operand's matrix.
std::vector<int64_t> matrixNumbers(const Shape &batch, const Shape &resultBatch) {
  Shape strides = broadcastStrides(batch, resultBatch);
  std::vector<int64_t> own(static_cast<size_t>(elementCount(batch)));
  for (size_t i = 0; i < own.size(); ++i)
    own[i] = static_cast<int64_t>(i);
  return gatherStrided(Tensor::of<int64_t>(DType::I64, batch, std::span<const int64_t>(own)), 0, strides,
                       resultBatch)
      .toInts();
}

/// Wide types: doubles, and integers that wrap at 64 bits. One row at a time.
template <class T>
void multiplyWide(const Stack &a, const Stack &b, llvm::ArrayRef<int64_t> aNumbers,
                  llvm::ArrayRef<int64_t> bNumbers, Tensor &result) {
  auto dense = [](const Stack &stack) {
    std::vector<T> values(static_cast<size_t>(stack.tensor.size()));
    loadElements(stack.tensor, 0, stack.tensor.size(), values.data());
    return values;
  };
  std::vector<T> left = dense(a), right = dense(b);
  parallelFor(static_cast<int64_t>(aNumbers.size()) * a.rows, grainFor(b.matrixSize()),
              [&](int64_t begin, int64_t end) {
                std::vector<T> sums(static_cast<size_t>(b.columns));
                for (int64_t i = begin; i < end; ++i) {
                  auto matrix = static_cast<size_t>(i / a.rows);
                  const T *x = left.data() + aNumbers[matrix] * a.matrixSize() + i % a.rows * a.rowStride;
                  const T *y = right.data() + bNumbers[matrix] * b.matrixSize();
                  std::fill(sums.begin(), sums.end(), T(0));
                  for (int64_t k = 0; k < a.columns; ++k)
                    for (int64_t j = 0; j < b.columns; ++j)
                      sums[static_cast<size_t>(j)] +=
                          x[k * a.columnStride] * y[k * b.rowStride + j * b.columnStride];
                  storeElements(result, i * b.columns, b.columns, sums.data());
                }
              });
}

bool isByteInteger(DType type) { return !isFloat(type) && byteSize(type) == 1; }

Result<Tensors> matmul(const Call &call) {
  auto op = llvm::cast<nn::MatmulOp>(call.op);
  Stack a(call.operand(0), true, op.getTransposeA()), b(call.operand(1), false, op.getTransposeB());
  if (a.columns != b.rows)
    return problem("inner sizes {} and {} differ", a.columns, b.rows);
  auto batch = broadcastShapes({a.batch, b.batch});
  if (!batch)
    return batch.error();
  Shape shape = *batch;
  if (call.operand(0).rank() > 1)
    shape.push_back(a.rows);
  if (call.operand(1).rank() > 1)
    shape.push_back(b.columns);
  Tensor result = Tensor::uninitialized(call.resultType(), shape);
  if (result.size() == 0)
    return Tensors{result};

  DType left = a.tensor.type(), right = b.tensor.type();
  if (isFloat(left) != isFloat(right))
    return problem("{} and {} cannot be multiplied", name(left), name(right));
  if (a.columns == 0) // sums of nothing, of operands without memory
    return Tensors{Tensor::zeros(call.resultType(), shape)};
  bool inF32 =
      isFloat(left) ? left != DType::F64 && right != DType::F64 : isByteInteger(left) && isByteInteger(right);
  if (inF32 && elementCount(b.batch) == 1 && a.isTall()) { // one matrix on the right: one product
    GemmProblem tall{a.view(0),     b.view(0),    result.size() / b.columns, b.columns, a.columns,
                       result.data(), result.type()};
    multiply({&tall, 1});
    return Tensors{result};
  }
  std::vector<int64_t> aNumbers = matrixNumbers(a.batch, *batch), bNumbers = matrixNumbers(b.batch, *batch);
  if (!inF32) {
    if (isFloat(left))
      multiplyWide<double>(a, b, aNumbers, bNumbers, result);
    else
      multiplyWide<uint64_t>(a, b, aNumbers, bNumbers, result);
    return Tensors{result};
  }
  std::vector<GemmProblem> products;
  size_t bytes = static_cast<size_t>(a.rows * b.columns) * byteSize(result.type());
  for (size_t i = 0; i < aNumbers.size(); ++i)
    products.push_back({a.view(aNumbers[i]), b.view(bNumbers[i]), a.rows, b.columns, a.columns,
                        result.as<char>() + i * bytes, result.type()});
  multiply(products);
  return Tensors{result};
}

/// The rows of an expert are multiplied together.
Result<Tensors> expertMatmul(const Call &call) {
  auto op = llvm::cast<nn::ExpertMatmulOp>(call.op);
  const Tensor &x = call.operand(0), &w = call.operand(1), &index = call.operand(2);
  const int64_t experts = w.shape()[0], slots = index.shape().back(), inner = x.shape().back();
  const bool transpose = op.getTransposeW(), shared = x.shape()[x.shape().size() - 2] == 1;
  const int64_t columns = w.shape()[transpose ? 1 : 2];
  if (w.shape()[transpose ? 2 : 1] != inner)
    return problem("inner sizes {} and {} differ", inner, w.shape()[transpose ? 2 : 1]);
  Shape shape = index.shape();
  shape.push_back(columns);
  Tensor result = Tensor::uninitialized(call.resultType(), shape);
  if (result.size() == 0)
    return Tensors{result};
  if (experts == 0)
    return problem("there are no experts");
  const bool isWide = x.type() == DType::F64 || w.type() == DType::F64;
  std::vector<std::vector<int64_t>> rowsOf(static_cast<size_t>(experts));
  const std::vector<int64_t> chosen = index.toInts();
  for (size_t row = 0; row < chosen.size(); ++row)
    rowsOf[static_cast<size_t>(
               std::clamp<int64_t>(chosen[row] < 0 ? chosen[row] + experts : chosen[row], 0, experts - 1))]
        .push_back(static_cast<int64_t>(row));
  const size_t inBytes = static_cast<size_t>(inner) * byteSize(x.type());
  const size_t outBytes = static_cast<size_t>(columns) * byteSize(result.type());
  for (int64_t expert = 0; expert < experts; ++expert) {
    const std::vector<int64_t> &rows = rowsOf[static_cast<size_t>(expert)];
    if (rows.empty())
      continue;
    const auto count = static_cast<int64_t>(rows.size());
    Tensor left = Tensor::uninitialized(x.type(), {count, inner});
    Tensor product = Tensor::uninitialized(result.type(), {count, columns});
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(left.as<char>() + i * inBytes,
                  x.as<char>() + static_cast<size_t>(shared ? rows[i] / slots : rows[i]) * inBytes, inBytes);
    const char *matrix = w.as<char>() + static_cast<size_t>(expert * inner * columns) * byteSize(w.type());
    if (isWide) {
      const Tensor right =
          Tensor::wrap(w.type(), {w.shape()[1], w.shape()[2]}, const_cast<char *>(matrix), w.storage());
      multiplyWide<double>(Stack(left, true, false), Stack(right, false, transpose), {0}, {0}, product);
    } else {
      GemmProblem problem{{left.data(), x.type(), inner, 1},
                          {matrix, w.type(), transpose ? 1 : columns, transpose ? inner : 1},
                          count, columns, inner, product.data(), result.type()};
      multiply({&problem, 1});
    }
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(result.as<char>() + static_cast<size_t>(rows[i]) * outBytes,
                  product.as<char>() + i * outBytes, outBytes);
  }
  return Tensors{result};
}

} // namespace

llvm::ArrayRef<Entry> matmulEntries() {
  static constexpr Entry entries[] = {{"nn.matmul", matmul}, {"nn.expert_matmul", expertMatmul}};
  return entries;
}

} // namespace fusion::reference
