// The tensor-core kernel: tiles of A and B pass through shared memory, two at a time, while matrix products of warps
// consume the previous pair. Elements are 16-bit floats (mma.m16n8k16), or bytes (mma.m16n8k32).
#pragma once

#include "codegen/schedule/MatmulProblem.h"

namespace fusion::matmul {

struct Tiling {
  int64_t m = 64, n = 64; ///< of a block
  int64_t warpsM = 2, warpsN = 2;
  int64_t warpM() const { return m / warpsM; }
  int64_t warpN() const { return n / warpsN; }
  static constexpr int64_t threads = 128;
};

class TensorEmitter {
public:
  TensorEmitter(const Region &region, const KernelContext &context, const Problem &problem);
  KernelDraft emit();

private:
  // Loading: MatmulTiles.cpp. `sum`: which of the block's products, for B.
  void loadTile(bool isA, size_t sum = 0);
  void loadAsync(bool isA, size_t sum);
  void loadPieces(bool isA, size_t sum);
  void loadTransposed(size_t sum);
  void loadElements(bool isA, size_t sum);
  void openPieces(bool isA, int64_t length);
  std::string pieceOffset(bool isA);
  std::string element(bool isA, size_t sum, const std::string &loaded, const std::string &row,
                      const std::string &column);

  void compute();
  void store();
  std::string total(size_t sum);
  void declareSums(const std::string &name, llvm::ArrayRef<int64_t> pieces);

  const Problem &problem;
  const bool bytes;   ///< the elements in memory are multiplied as they are
  const bool shifted; ///< with zero points, which are taken from the sums at the end
  const Tiling tile;
  const DType type;    ///< of the elements in shared memory
  const int64_t piece; ///< elements in 16 bytes
  const int64_t depth; ///< of a tile along k
  KernelWriter writer;
  Epilogue epilogue;
  bool asyncA = false, asyncB = false;   ///< 16 bytes at a time, past the registers
  bool columnsOfB = false;               ///< B lies with n innermost
  bool tileByColumns = false;            ///< B's tile lies as [k][n], else as [n][k]
  int64_t pitchA = 0, pitchB = 0, sizeA = 0, sizeB = 0;
};

} // namespace fusion::matmul
