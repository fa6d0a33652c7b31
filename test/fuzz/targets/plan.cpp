// A program's plan: read, verified, written again, and its sizes worked out.
#include "Target.h"

#include "runtime/ShapePlan.h"

using namespace fusion;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto plan = programPlanFromJson(fuzz::textOf(data, size));
  if (!plan) {
    fuzz::checkError(plan.error());
    return 0;
  }
  fuzz::check(bool(programPlanFromJson(toJson(*plan))), "not a plan again", plan->model);
  for (int64_t value : {1, 8}) {
    SymbolValues symbols = {{"tp_rank", 0}};
    for (const BufferPlan &buffer : plan->buffers)
      for (const Dim &dim : buffer.shape)
        for (const std::string &symbol : dim.symbols())
          symbols.emplace(symbol, value);
    if (const auto shapes = planShapes(*plan, symbols); !shapes)
      fuzz::checkError(shapes.error());
  }
  return 0;
}
