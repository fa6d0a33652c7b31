// cuBLASLt, opened while the program runs: matmuls of many rows, where it is faster than our kernels. The
// declarations are our own: names, values and layouts are those of cuBLASLt 12 and 13. It multiplies
// column-major matrices.
#pragma once

#include "runtime/cuda/Library.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fusion {

/// Every call returns 0 or an error number; pass it to check().
struct CublasLt {
  using Handle = struct CublasLtHandle *;
  using Operation = struct CublasLtOperation *;   ///< what is computed, in which type
  using Layout = struct CublasLtLayout *;         ///< of one matrix
  using Preference = struct CublasLtPreference *; ///< what algorithms may be like
  /// For one problem and one version of the library; may be kept on disk.
  using Algorithm = std::array<uint64_t, 8>;
  struct Heuristic {
    Algorithm algorithm;
    size_t workspaceBytes;
    int state; ///< 0: usable
    float waves;
    int reserved[4];
  };
  static_assert(sizeof(Heuristic) == 96);

  static constexpr int f32 = 0, f64 = 1, f16 = 2, i8 = 3, i32 = 10, bf16 = 14, f8e4m3 = 28, f8e5m2 = 29;
  static constexpr int sumInF32 = 68, sumInF64 = 70;
  enum OperationAttribute : int { transposeA = 3, transposeB = 4 };        ///< int32: 0 or 1
  enum LayoutAttribute : int { batchCount = 5, batchStride = 6 };          ///< int32, and int64 elements
  enum PreferenceAttribute : int {
    mostWorkspaceBytes = 1, ///< uint64
    reductionSchemes = 3,   ///< uint32
    alignmentA = 5,         ///< uint32 bytes, as the three that follow
    alignmentB = 6,
    alignmentC = 7,
    alignmentD = 8,
  };
  /// Of reductionSchemes: parts of a sum are added up in the type of the sum, never in that of the result.
  static constexpr uint32_t partsInSumType = 2;

  /// The process's one instance: libcublasLt.so.13 or .12, or the file that FUSION_CUBLASLT names.
  /// Environment error where there is none, or where FUSION_CUBLASLT is 0.
  static Result<const CublasLt *> instance();
  std::string version() const; ///< "13.1.0"
  Status check(int code, const std::string &what) const;
  /// Not the library but what stands in for it in tests: it works on host memory.
  bool standsIn = false;

  size_t (*cublasLtGetVersion)();
  const char *(*cublasLtGetStatusString)(int);
  int (*cublasLtCreate)(Handle *);
  int (*cublasLtDestroy)(Handle);
  int (*cublasLtMatmulDescCreate)(Operation *, int, int);
  int (*cublasLtMatmulDescDestroy)(Operation);
  int (*cublasLtMatmulDescSetAttribute)(Operation, int, const void *, size_t);
  int (*cublasLtMatrixLayoutCreate)(Layout *, int, uint64_t, uint64_t, int64_t);
  int (*cublasLtMatrixLayoutDestroy)(Layout);
  int (*cublasLtMatrixLayoutSetAttribute)(Layout, int, const void *, size_t);
  int (*cublasLtMatmulPreferenceCreate)(Preference *);
  int (*cublasLtMatmulPreferenceDestroy)(Preference);
  int (*cublasLtMatmulPreferenceSetAttribute)(Preference, int, const void *, size_t);
  int (*cublasLtMatmulAlgoGetHeuristic)(Handle, Operation, Layout, Layout, Layout, Layout, Preference, int,
                                        Heuristic *, int *);
  int (*cublasLtMatmulAlgoCheck)(Handle, Operation, Layout, Layout, Layout, Layout, const Algorithm *,
                                 Heuristic *);
  int (*cublasLtMatmul)(Handle, Operation, const void *, const void *, Layout, const void *, Layout,
                        const void *, const void *, Layout, void *, Layout, const Algorithm *, void *, size_t,
                        void *);

private:
  static Result<CublasLt> open();
};

} // namespace fusion
