#include "Target.h"

#include "ir/base/Safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const fusion::fuzz::InputFile file(data, size);
  const auto tensors = fusion::readSafetensors(file.path());
  if (!tensors) {
    fusion::fuzz::checkError(tensors.error());
    return 0;
  }
  for (const auto &[name, tensor] : *tensors)
    tensor.toFloats();
  return 0;
}
