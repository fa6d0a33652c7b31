#pragma once

#include "ir/base/Dim.h"
#include "ir/base/Result.h"
#include "ir/base/Tensor.h"

#include <string_view>

namespace fusion::onnx {

/// A number, true or false as a tensor of `shape`, which has one element; several with commas between them as
/// a vector. BadInput where that is not what `type` and `shape` are.
Result<Tensor> constantFromText(std::string_view text, DType type, const DimShape &shape);

} // namespace fusion::onnx
