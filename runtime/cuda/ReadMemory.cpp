#include "runtime/cuda/ReadMemory.h"

#include "runtime/cuda/Session.h"

namespace fusion::cuda {

Status readMemory(int ordinal, void *target, const void *source, size_t bytes) {
  Result<const Driver *> driver = Driver::instance();
  if (!driver)
    return driver.error();
  Session session(**driver, ordinal);
  if (Status status = session.open(); !status)
    return status;
  int code = session.driver.cuCtxSynchronize();
  if (code == 0)
    code = session.driver.cuMemcpyDtoHAsync_v2(target, reinterpret_cast<DevicePointer>(source), bytes,
                                               session.queue());
  if (code == 0)
    code = session.driver.cuStreamSynchronize(session.queue());
  return session.driver.check(code, "copying a weight from the GPU");
}

} // namespace fusion::cuda
