// Handlers that are registered beside those of NodeImporter.h.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

void registerTrigonometry(HandlerTable &table);
void registerLosses(HandlerTable &table);
void registerSelections(HandlerTable &table);

} // namespace fusion::onnx
