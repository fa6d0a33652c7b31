// Folders of the machine that built this. What is copied to other machines is linked without them.
#pragma once

namespace fusion {

/// A folder with libnvrtc, looked in when no variable names one; null for none.
const char *nvrtcHint();
/// A virtual environment that may have NVIDIA's wheels; null for none.
const char *pythonHint();
/// Where the build leaves programs; null for none.
const char *programsHint();

} // namespace fusion
