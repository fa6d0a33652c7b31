// Places of largest elements, where rounding decides which element that is.
#pragma once

#include "ir/base/Safetensors.h"
#include "ir/base/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <string>

namespace fusion {

/// The results of a function that are nn.arg_max of floats which the function computes itself: kernels that
/// round these otherwise may find another element, nearly as large.
class NearPlaces {
public:
  /// Refers to `function` if it has no such results, and else to a copy of its module.
  explicit NearPlaces(mlir::func::FuncOp function);
  /// The function with those floats as further results, which tell what is near. Its other results keep their
  /// names.
  mlir::func::FuncOp function() const { return whole; }
  /// Whether it is one of the further results, which nobody else computes.
  bool isFurther(const std::string &name) const;
  /// Whether the result `name` is of that kind, and each place that differs has an element as large as the
  /// largest but for its rounding. `expected`: results of function().
  bool isAsLarge(const std::string &name, const Tensor &actual, const NamedTensors &expected,
                 const NamedTensors &inputs) const;

private:
  mlir::func::FuncOp whole;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::map<std::string, std::string> elementsOf; ///< by result: the result that holds them
};

} // namespace fusion
