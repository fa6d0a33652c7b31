// A graph's file, ONNX or text as the first byte says: read and, as far as it can be, fused and planned.
#include "Target.h"

#include "api/Fusion.h"
#include "ir/base/Progress.h"

using namespace fusion;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  setQuiet(true);
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const auto graph = Graph::load(ModelBytes{bytes, nullptr, data[0] == 't' ? "graph.mlir" : "model.onnx"});
  if (!graph) {
    fuzz::checkError(graph.error());
    return 0;
  }
  const auto plan = explain(*graph, {.target = {"sm_90a"}, .profit = ProfitMode::Model}, Emit::Plan);
  if (!plan)
    fuzz::checkError(plan.error());
  return 0;
}
