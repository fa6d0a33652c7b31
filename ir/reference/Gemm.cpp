// A tile of the result is computed at once: blocks of both operands are converted to f32 and packed into
// panels, and a micro-kernel adds the product of two panels to the tile.
#include "ir/reference/Gemm.h"

#include "ir/base/Parallel.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace fusion::reference {
namespace {

constexpr int64_t tileRows = 192;    // a multiple of every kernel's rows
constexpr int64_t tileColumns = 256; // and of its columns
/// So many products of two 8-bit integers add up exactly in f32: 256 · 255² < 2²⁴.
constexpr int64_t tileInner = 256;

/// c[i * stride + j] += Σ_k a[k * rows + i] * b[k * columns + j]
using KernelFunction = void (*)(int64_t inner, const float *a, const float *b, float *c, int64_t stride);
struct Kernel {
  int64_t rows, columns;
  KernelFunction function;
};

#define FUSION_MICRO_KERNEL(NAME, TARGET, ROWS, VECTORS, WIDTH)                                              \
  TARGET void NAME(int64_t inner, const float *a, const float *b, float *c, int64_t stride) {                \
    typedef float Vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));                     \
    Vector sums[ROWS][VECTORS] = {};                                                                         \
    for (int64_t k = 0; k < inner; ++k, a += ROWS, b += VECTORS * WIDTH)                                     \
      for (int i = 0; i < ROWS; ++i)                                                                         \
        for (int j = 0; j < VECTORS; ++j)                                                                    \
          sums[i][j] += a[i] * *reinterpret_cast<const Vector *>(b + j * WIDTH);                             \
    for (int i = 0; i < ROWS; ++i)                                                                           \
      for (int j = 0; j < VECTORS; ++j)                                                                      \
        *reinterpret_cast<Vector *>(c + i * stride + j * WIDTH) += sums[i][j];                               \
  }

FUSION_MICRO_KERNEL(kernelGeneric, , 4, 2, 4)
#if defined(__x86_64__)
FUSION_MICRO_KERNEL(kernelAvx2, __attribute__((target("avx2,fma"))), 6, 2, 8)
FUSION_MICRO_KERNEL(kernelAvx512, __attribute__((target("avx512f,fma"))), 12, 2, 16)
#endif
#undef FUSION_MICRO_KERNEL

const Kernel &kernel() {
  static const Kernel chosen = [] {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
      return Kernel{12, 32, kernelAvx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      return Kernel{6, 16, kernelAvx2};
#endif
    return Kernel{4, 8, kernelGeneric};
  }();
  return chosen;
}

/// An operand as lines (rows of a, columns of b) that run along the inner dim.
struct Lines {
  const char *data;
  DType type;
  int64_t lineStride, innerStride;

  const char *at(int64_t line, int64_t k) const {
    return data + (line * lineStride + k * innerStride) * static_cast<int64_t>(byteSize(type));
  }
};

/// Lines [line, line + count) from k to k + inner, as panels of `width` lines: panel[k * width + line], zero
/// where there is no line.
void pack(const Lines &lines, int64_t line, int64_t count, int64_t k, int64_t inner, int64_t width,
          float *target) {
  float values[std::max(tileInner, std::max(tileRows, tileColumns))];
  int64_t rest = count % width;
  if (rest != 0)
    std::fill_n(target + (count - rest) * inner, width * inner, 0.0f);
  if (lines.innerStride == 1) {
    for (int64_t i = 0; i < count; ++i) {
      convertToF32(lines.type, lines.at(line + i, k), values, static_cast<size_t>(inner));
      float *panel = target + i / width * width * inner + i % width;
      for (int64_t j = 0; j < inner; ++j)
        panel[j * width] = values[j];
    }
    return;
  }
  for (int64_t j = 0; j < inner; ++j) {
    convertToF32(lines.type, lines.at(line, k + j), values, static_cast<size_t>(count));
    for (int64_t i = 0; i < count; i += width)
      std::memcpy(target + i * inner + j * width, values + i,
                  static_cast<size_t>(std::min(width, count - i)) * sizeof(float));
  }
}

int64_t roundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class Tile {
public:
  void compute(const GemmProblem &product, int64_t row, int64_t column) {
    int64_t rows = std::min(tileRows, product.rows - row),
            columns = std::min(tileColumns, product.columns - column);
    const Kernel &micro = kernel();
    int64_t paddedRows = roundUp(rows, micro.rows), stride = roundUp(columns, micro.columns);
    bool integers = !isFloat(product.a.type);
    auto size = static_cast<size_t>(paddedRows * stride);
    sums.assign(size, 0.0f);
    if (integers)
      exact.assign(size, 0);
    reserve(left, paddedRows);
    reserve(right, stride);
    Lines a{static_cast<const char *>(product.a.data), product.a.type, product.a.rowStride,
            product.a.columnStride};
    Lines b{static_cast<const char *>(product.b.data), product.b.type, product.b.columnStride,
            product.b.rowStride};
    for (int64_t k = 0; k < product.inner; k += tileInner) {
      int64_t inner = std::min(tileInner, product.inner - k);
      pack(a, row, rows, k, inner, micro.rows, left.data());
      pack(b, column, columns, k, inner, micro.columns, right.data());
      for (int64_t j = 0; j < stride; j += micro.columns)
        for (int64_t i = 0; i < paddedRows; i += micro.rows)
          micro.function(inner, left.data() + i * inner, right.data() + j * inner,
                         sums.data() + i * stride + j, stride);
      if (integers)
        for (size_t i = 0; i < size; ++i) {
          exact[i] += static_cast<int64_t>(sums[i]);
          sums[i] = 0;
        }
    }
    for (int64_t i = 0; i < rows; ++i) {
      char *target = static_cast<char *>(product.target) +
                     static_cast<size_t>((row + i) * product.columns + column) * byteSize(product.targetType);
      if (integers)
        convert(DType::I64, exact.data() + i * stride, product.targetType, target,
                static_cast<size_t>(columns));
      else
        convertFromF32(product.targetType, sums.data() + i * stride, target, static_cast<size_t>(columns));
    }
  }

private:
  static void reserve(std::vector<float> &panels, int64_t lines) {
    if (panels.size() < static_cast<size_t>(lines * tileInner))
      panels.resize(static_cast<size_t>(lines * tileInner));
  }

  std::vector<float> left, right, sums;
  std::vector<int64_t> exact;
};

int64_t tilesAlong(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/// Scratch memory of this thread.
Tile &threadTile() {
  thread_local Tile tile;
  return tile;
}

} // namespace

void multiplySequentially(const GemmProblem &product) {
  for (int64_t row = 0; row < product.rows; row += tileRows)
    for (int64_t column = 0; column < product.columns; column += tileColumns)
      threadTile().compute(product, row, column);
}

void multiply(std::span<const GemmProblem> products) {
  if (products.empty())
    return;
  const GemmProblem &first = products.front(); // all have one shape
  int64_t down = tilesAlong(first.rows, tileRows), across = tilesAlong(first.columns, tileColumns);
  int64_t cost = std::min(first.rows, tileRows) * std::min(first.columns, tileColumns) * first.inner / 16;
  int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(cost, 1));
  parallelFor(static_cast<int64_t>(products.size()) * down * across, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t tile = i % (down * across);
      threadTile().compute(products[static_cast<size_t>(i / (down * across))], tile % down * tileRows,
                           tile / down * tileColumns);
    }
  });
}

} // namespace fusion::reference
