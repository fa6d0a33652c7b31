#include "runtime/cuda/Hints.h"

namespace fusion {

const char *nvrtcHint() {
#ifdef FUSION_NVRTC_HINT
  return FUSION_NVRTC_HINT;
#else
  return nullptr;
#endif
}

const char *pythonHint() {
#ifdef FUSION_PYTHON_HINT
  return FUSION_PYTHON_HINT;
#else
  return nullptr;
#endif
}

const char *programsHint() {
#ifdef FUSION_PROGRAMS_HINT
  return FUSION_PROGRAMS_HINT;
#else
  return nullptr;
#endif
}

} // namespace fusion
