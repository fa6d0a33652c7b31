// Writes the arithmetic of a pointwise kernel on vectors of neighbouring elements.
#pragma once

#include "codegen/KernelWriter.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace fusion {

/// How the elements lie: the output's dims, neighbours merged where they are one run for every input, and
/// each input's strides over them.
struct VectorSpace {
  DimShape dims;
  llvm::SmallVector<DimShape> strides; ///< by input
  int64_t width = 1;                   ///< elements of a vector

  bool isUniform(unsigned input) const {
    return llvm::all_of(strides[input], [](const Dim &stride) { return stride == Dim(0); });
  }
  /// One element for a whole vector.
  bool isRepeated(unsigned input) const { return strides[input].back() == Dim(0); }
};

/// Nothing if the region's values do not lie as vectors: see vectorKernel.
std::optional<VectorSpace> vectorSpace(const Region &region, const KernelContext &context);

/// Writes the arithmetic on one vector of each value. What runs in pairs is written vector by vector, the
/// rest in loops over the elements; from one to the other, values pass as vectors of their own type.
class VectorBody {
public:
  VectorBody(const Region &region, const KernelContext &context, KernelWriter &writer,
             const VectorSpace &space)
      : region(region), context(context), writer(writer), space(space) {}

  bool isConstant(unsigned input) const;
  /// Loads inputs of one element; `constants`: those that no kernel writes, and what follows from them.
  void uniforms(bool constants);
  /// `places`: by input, where its first element of this vector lies; `to`: the same in the outputs.
  void emit(int64_t vectorWidth, llvm::ArrayRef<std::string> places, const std::string &to);

private:
  struct Held {
    std::string scalar; ///< one for all elements
    std::string vector; ///< a Vec
    std::string lane;   ///< in the loop that is being written
    unsigned stage = 0; ///< the loop that computes it, or before which its vector stands
  };

  std::string arguments(DType type) const; ///< of Vec and what works on it
  /// A product, sum or difference of 16-bit floats.
  bool runsInPairs(mlir::Operation *op) const;
  bool isFloatQuantize(mlir::Operation *op) const;
  bool isVector(mlir::Operation *op) const { return runsInPairs(op) || isFloatQuantize(op); }
  bool isScalar(mlir::Value value) const { return !held.lookup(value).scalar.empty(); }
  void scalars();
  void scalar(mlir::Operation *op);
  void load(llvm::ArrayRef<std::string> places);
  void plan();
  void vectors(unsigned stage);
  void loop(unsigned stage);
  /// Whether something behind the loop that computes it reads the result.
  bool leavesLoop(mlir::Operation *op) const;
  std::string element(mlir::Value value) const;
  std::string vectorOf(mlir::Value value) const;
  std::string expression(mlir::Operation *op, llvm::ArrayRef<std::string> operands) const;

  const Region &region;
  const KernelContext &context;
  KernelWriter &writer;
  const VectorSpace &space;
  int64_t width = 1;
  unsigned stages = 1;
  llvm::DenseMap<mlir::Value, Held> held;
  llvm::DenseMap<mlir::Value, std::string> divisors;        ///< of the scales of quantisations
  llvm::DenseMap<mlir::Operation *, std::string> quotients; ///< by quantisation
  llvm::SmallVector<mlir::Operation *> work;                ///< ops on vectors, in order
};

} // namespace fusion
