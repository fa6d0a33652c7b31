// Sizes as text: parsed, printed, parsed again and evaluated.
#include "Target.h"

#include "ir/base/Dim.h"

using namespace fusion;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto dim = Dim::parse(std::string(fuzz::textOf(data, size)));
  if (!dim) {
    fuzz::checkError(dim.error());
    return 0;
  }
  const std::string text = dim->str();
  const auto again = Dim::parse(text);
  fuzz::check(again && *again == *dim, "not the same again", text);
  SymbolValues values;
  for (const std::string &symbol : dim->symbols())
    values[symbol] = static_cast<int64_t>(size);
  if (const auto value = dim->evaluate(values); !value)
    fuzz::checkError(value.error());
  return 0;
}
