// Where the tests run kernels: emulated, or on GPUs with FUSION_TEST_DEVICE=cuda.
#pragma once

#include "api/Fusion.h"

#include <cstdlib>
#include <string_view>

namespace fusion::test {

inline bool onGpus() {
  const char *name = std::getenv("FUSION_TEST_DEVICE");
  return name && std::string_view(name) == "cuda";
}
inline RunOn kernelDevice() { return onGpus() ? RunOn::Cuda : RunOn::Emulate; }

} // namespace fusion::test
