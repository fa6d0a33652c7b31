// Arithmetic on integer tensors whose contents are known at import.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

/// The contents of a small integer or i1 tensor of static shape.
struct KnownInts {
  DimShape values; ///< row-major
  std::vector<int64_t> shape;
};

/// The dims as numbers if all are.
std::optional<std::vector<int64_t>> staticShape(llvm::ArrayRef<Dim> shape);
/// Input `index` if its contents are known.
std::optional<KnownInts> knownInput(NodeImporter &node, unsigned index);
/// The elements that a slice with these starts, sizes and steps (one for every dim) takes.
KnownInts sliceKnown(const KnownInts &x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes,
                     llvm::ArrayRef<int64_t> steps);
/// Result 0 is input 0, of the same elements in the same order, under another shape.
void resultReshaped(NodeImporter &node, const DimShape &shape);
/// Whether symbolic arithmetic on these dims, such as their product, takes no noticeable time. What exporters
/// print is far below the limit.
bool isManageable(llvm::ArrayRef<Dim> dims);
/// What numpy's broadcasting makes of two dims; dynamic dims of other names are taken as equal.
Dim broadcastDim(const Dim &a, const Dim &b);

} // namespace fusion::onnx
