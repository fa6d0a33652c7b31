// Handlers that are registered beside those of NodeImporter.h.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

void registerTrigonometry(HandlerTable &table);
void registerLosses(HandlerTable &table);
void registerSelections(HandlerTable &table);
void registerSequences(HandlerTable &table);
void registerRegions(HandlerTable &table);
void registerMatrices(HandlerTable &table);
void registerUnpooling(HandlerTable &table);
void registerRunningProducts(HandlerTable &table);
void registerSparseAttention(HandlerTable &table);
void registerHyperConnections(HandlerTable &table);
void registerMoreOfContrib(HandlerTable &table);

} // namespace fusion::onnx
