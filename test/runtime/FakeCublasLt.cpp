// A stand-in for libcublasLt.so that multiplies on the host, with what the real one asks of a problem. Its
// algorithm 0 takes what is aligned to 16 bytes only, and computes the same as the others.
#include "ir/base/DType.h"
#include "runtime/cuda/CublasLt.h"

#include <cstring>
#include <map>

using fusion::CublasLt;
using fusion::DType;

namespace {
constexpr int invalidValue = 7, notSupported = 15;
int products = 0, alive = 0, lastAlgorithm = -1;
} // namespace

namespace fusion {
struct CublasLtHandle {};
struct CublasLtOperation {
  int sum, scale;
  int32_t transposeA = 0, transposeB = 0;
};
struct CublasLtLayout {
  int type;
  uint64_t rows, columns;
  int64_t line;
  int32_t count = 1;
  int64_t step = 0;
};
struct CublasLtPreference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
} // namespace fusion

namespace {
double element(const CublasLt::Layout layout, const void *data, uint64_t row, uint64_t column,
               int64_t matrix) {
  const auto at = static_cast<size_t>(matrix * layout->step + static_cast<int64_t>(column) * layout->line +
                                      static_cast<int64_t>(row));
  switch (layout->type) {
  case CublasLt::f64: return static_cast<const double *>(data)[at];
  case CublasLt::f16: return fusion::f16ToF32(static_cast<const uint16_t *>(data)[at]);
  case CublasLt::bf16: return fusion::bf16ToF32(static_cast<const uint16_t *>(data)[at]);
  default: return static_cast<const float *>(data)[at];
  }
}

void store(const CublasLt::Layout layout, void *data, uint64_t row, uint64_t column, int64_t matrix,
           double value) {
  const auto at = static_cast<size_t>(matrix * layout->step + static_cast<int64_t>(column) * layout->line +
                                      static_cast<int64_t>(row));
  switch (layout->type) {
  case CublasLt::f64: static_cast<double *>(data)[at] = value; break;
  case CublasLt::f16: static_cast<uint16_t *>(data)[at] = fusion::f32ToF16(static_cast<float>(value)); break;
  case CublasLt::bf16:
    static_cast<uint16_t *>(data)[at] = fusion::f32ToBF16(static_cast<float>(value));
    break;
  default: static_cast<float *>(data)[at] = static_cast<float>(value);
  }
}

/// Whether the matrices fit together, as the library wants them.
bool fits(CublasLt::Operation op, CublasLt::Layout a, CublasLt::Layout b, CublasLt::Layout c) {
  auto rows = [](CublasLt::Layout layout, bool transposed) {
    return transposed ? layout->columns : layout->rows;
  };
  bool good = rows(a, op->transposeA) == c->rows && rows(b, !op->transposeB) == c->columns &&
              rows(a, !op->transposeA) == rows(b, op->transposeB) && a->type == b->type;
  for (CublasLt::Layout layout : {a, b, c})
    good = good && layout->line >= static_cast<int64_t>(layout->rows) && layout->rows > 0 &&
           layout->columns > 0 && layout->count == c->count;
  return good && op->sum == (a->type == CublasLt::f64 ? CublasLt::sumInF64 : CublasLt::sumInF32);
}
} // namespace

extern "C" {
int fusionStandsInForCublasLt() { return 1; }
int fakeCublasLtMatmuls() { return products; }
int fakeCublasLtAlive() { return alive; }
int fakeCublasLtAlgorithm() { return lastAlgorithm; }

size_t cublasLtGetVersion() { return 130100; }
const char *cublasLtGetStatusString(int code) {
  return code == invalidValue ? "an invalid value" : "not supported";
}
int cublasLtCreate(CublasLt::Handle *handle) { return *handle = new fusion::CublasLtHandle, ++alive, 0; }
int cublasLtDestroy(CublasLt::Handle handle) { return delete handle, --alive, 0; }
int cublasLtMatmulDescCreate(CublasLt::Operation *op, int sum, int scale) {
  return *op = new fusion::CublasLtOperation{sum, scale}, ++alive, 0;
}
int cublasLtMatmulDescDestroy(CublasLt::Operation op) { return delete op, --alive, 0; }
int cublasLtMatmulDescSetAttribute(CublasLt::Operation op, int which, const void *value, size_t bytes) {
  if (bytes != 4 || (which != CublasLt::transposeA && which != CublasLt::transposeB))
    return invalidValue;
  std::memcpy(which == CublasLt::transposeA ? &op->transposeA : &op->transposeB, value, bytes);
  return 0;
}
int cublasLtMatrixLayoutCreate(CublasLt::Layout *layout, int type, uint64_t rows, uint64_t columns,
                               int64_t line) {
  return *layout = new fusion::CublasLtLayout{type, rows, columns, line}, ++alive, 0;
}
int cublasLtMatrixLayoutDestroy(CublasLt::Layout layout) { return delete layout, --alive, 0; }
int cublasLtMatrixLayoutSetAttribute(CublasLt::Layout layout, int which, const void *value, size_t bytes) {
  if (which == CublasLt::batchCount && bytes == 4)
    std::memcpy(&layout->count, value, bytes);
  else if (which == CublasLt::batchStride && bytes == 8)
    std::memcpy(&layout->step, value, bytes);
  else
    return invalidValue;
  return 0;
}
int cublasLtMatmulPreferenceCreate(CublasLt::Preference *preference) {
  return *preference = new fusion::CublasLtPreference, ++alive, 0;
}
int cublasLtMatmulPreferenceDestroy(CublasLt::Preference preference) { return delete preference, --alive, 0; }
int cublasLtMatmulPreferenceSetAttribute(CublasLt::Preference preference, int which, const void *value,
                                         size_t bytes) {
  if (which == CublasLt::mostWorkspaceBytes && bytes == 8)
    std::memcpy(&preference->workspace, value, bytes);
  else if (which == CublasLt::reductionSchemes && bytes == 4)
    std::memcpy(&preference->reductions, value, bytes);
  else if (which >= CublasLt::alignmentA && which <= CublasLt::alignmentD && bytes == 4)
    std::memcpy(&preference->alignments[which - CublasLt::alignmentA], value, bytes);
  else
    return invalidValue;
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(CublasLt::Handle, CublasLt::Operation op, CublasLt::Layout a,
                                   CublasLt::Layout b, CublasLt::Layout c, CublasLt::Layout d,
                                   CublasLt::Preference preference, int wanted, CublasLt::Heuristic *results,
                                   int *found) {
  *found = 0;
  if (c != d || preference->reductions != CublasLt::partsInSumType || !fits(op, a, b, c))
    return notSupported;
  bool aligned = true;
  for (uint32_t alignment : preference->alignments)
    aligned = aligned && alignment >= 16;
  for (int algorithm = aligned ? 0 : 1; algorithm < 3 && *found < wanted; ++algorithm)
    results[(*found)++] = {{static_cast<uint64_t>(algorithm), 0x0123456789abcdef}, 1024, 0, 1, {}};
  return 0;
}
int cublasLtMatmulAlgoCheck(CublasLt::Handle, CublasLt::Operation op, CublasLt::Layout a, CublasLt::Layout b,
                            CublasLt::Layout c, CublasLt::Layout, const CublasLt::Algorithm *algorithm,
                            CublasLt::Heuristic *result) {
  if ((*algorithm)[1] != 0x0123456789abcdef || !fits(op, a, b, c))
    return notSupported;
  return *result = {*algorithm, 1024, 0, 1, {}}, 0;
}
int cublasLtMatmul(CublasLt::Handle, CublasLt::Operation op, const void *alpha, const void *dataA,
                   CublasLt::Layout a, const void *dataB, CublasLt::Layout b, const void *beta,
                   const void *dataC, CublasLt::Layout c, void *dataD, CublasLt::Layout d,
                   const CublasLt::Algorithm *algorithm, void *workspace, size_t bytes, void *) {
  const bool wide = op->scale == CublasLt::f64;
  const double one = wide ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha);
  const double nothing = wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta);
  if (!fits(op, a, b, c) || one != 1 || nothing != 0 || dataC != dataD || c != d || !workspace ||
      bytes < 1024)
    return invalidValue;
  lastAlgorithm = static_cast<int>((*algorithm)[0]);
  ++products;
  const uint64_t length = op->transposeA ? a->rows : a->columns;
  for (int64_t matrix = 0; matrix < c->count; ++matrix)
    for (uint64_t column = 0; column < c->columns; ++column)
      for (uint64_t row = 0; row < c->rows; ++row) {
        double sum = 0;
        for (uint64_t k = 0; k < length; ++k)
          sum +=
              (op->transposeA ? element(a, dataA, k, row, matrix) : element(a, dataA, row, k, matrix)) *
              (op->transposeB ? element(b, dataB, column, k, matrix) : element(b, dataB, k, column, matrix));
        store(d, dataD, row, column, matrix, sum);
      }
  return 0;
}
}
