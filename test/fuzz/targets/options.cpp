// Values of options, each with its own small grammar.
#include "Target.h"

#include "Output.h"
#include "api/Fusion.h"

using namespace fusion;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string text(fuzz::textOf(data, size));
  if (const auto sampling = samplingNamed(text); !sampling)
    fuzz::checkError(sampling.error());
  parseRequirement(text);
  Target{text}.isKnown();
  runOnNamed(text);
  emitNamed(text);
  return 0;
}
