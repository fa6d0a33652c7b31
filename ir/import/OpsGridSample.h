#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

void gridSample(NodeImporter &node);

} // namespace fusion::onnx
