// PagedAttention of com.microsoft: caches in pages that a block table names, and packed tokens.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

void pagedAttention(NodeImporter &node);

} // namespace fusion::onnx
