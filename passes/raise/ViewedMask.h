// Masks that are added to another view of the scores, such as one with rows and columns of a picture.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// reshape(reshape(scores) + masks), in the shape of the scores.
struct ViewedMask {
  mlir::Value scores;
  llvm::SmallVector<mlir::Value> masks; ///< laid over the view
  DimShape view;
};
std::optional<ViewedMask> matchViewedMask(mlir::Value value, ShapeTable &shapes);

/// The sum of the masks in the shape of the scores.
mlir::Value buildViewedMask(const ViewedMask &viewed, Raiser &raiser);

} // namespace fusion::raise
