// Compiles kernels for the process that started it: see NvrtcProcess.h. Exit codes: 0 there are no more
// requests, 2 it was started otherwise, 3 there is no such library.
#include "runtime/cuda/NvrtcProcess.h"

#include <cstring>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count != 3 || std::strcmp(arguments[1], fusion::nvrtcMessageVersion) != 0)
    return 2;
  auto library = fusion::Library::open({.files = {arguments[2]}});
  auto nvrtc = library ? fusion::NvrtcLibrary::of(*library) : std::nullopt;
  if (!nvrtc)
    return 3;
  fusion::answerNvrtcRequests(*nvrtc, STDIN_FILENO);
  return 0;
}
