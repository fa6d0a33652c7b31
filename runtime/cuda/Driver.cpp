#include "runtime/cuda/Driver.h"

#include "runtime/cuda/Nvrtc.h"

#include <fmt/format.h>

#include <mutex>

namespace fusion::cuda {

Result<const Driver *> Driver::instance() {
  static std::mutex mutex;
  static const Driver *opened = nullptr;
  std::lock_guard lock(mutex);
  if (!opened) {
    Result<Driver> driver = open();
    if (!driver)
      return driver.error();
    opened = new Driver(*driver); // lives as long as the library, which is never closed
  }
  return opened;
}

Result<Driver> Driver::open() {
  Library::Request request;
  request.purpose = "the CUDA driver (libcuda.so.1)";
  request.files = {"libcuda.so.1"};
  request.fallbacks = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",
                       "/usr/lib/wsl/lib"};
  request.advice = "install the NVIDIA driver, or run with --device=cpu or --device=emulate";
  if (std::string file = environmentVariable("FUSION_CUDA_DRIVER"); !file.empty())
    request.files = {file};
  Result<Library> library = Library::open(request);
  if (!library)
    return library.error();
  Driver driver = {};
  const char *missing = nullptr;
#define FUSION_RESOLVE(symbol)                                                                               \
  if (!library->resolve(#symbol, driver.symbol))                                                             \
  missing = #symbol
  FUSION_RESOLVE(cuInit);
  FUSION_RESOLVE(cuDriverGetVersion);
  FUSION_RESOLVE(cuGetErrorName);
  FUSION_RESOLVE(cuGetErrorString);
  FUSION_RESOLVE(cuDeviceGetCount);
  FUSION_RESOLVE(cuDeviceGet);
  FUSION_RESOLVE(cuDeviceGetName);
  FUSION_RESOLVE(cuDeviceGetAttribute);
  FUSION_RESOLVE(cuDeviceTotalMem_v2);
  FUSION_RESOLVE(cuDeviceGetPCIBusId);
  FUSION_RESOLVE(cuDeviceGetByPCIBusId);
  FUSION_RESOLVE(cuDevicePrimaryCtxRetain);
  FUSION_RESOLVE(cuDevicePrimaryCtxRelease_v2);
  FUSION_RESOLVE(cuCtxSetCurrent);
  FUSION_RESOLVE(cuCtxSynchronize);
  FUSION_RESOLVE(cuDeviceCanAccessPeer);
  FUSION_RESOLVE(cuCtxEnablePeerAccess);
  FUSION_RESOLVE(cuMemGetInfo_v2);
  FUSION_RESOLVE(cuMemAlloc_v2);
  FUSION_RESOLVE(cuMemFree_v2);
  FUSION_RESOLVE(cuIpcGetMemHandle);
  FUSION_RESOLVE(cuIpcOpenMemHandle_v2);
  FUSION_RESOLVE(cuIpcCloseMemHandle);
  FUSION_RESOLVE(cuMemHostAlloc);
  FUSION_RESOLVE(cuMemHostGetDevicePointer_v2);
  FUSION_RESOLVE(cuMemFreeHost);
  FUSION_RESOLVE(cuMemcpyHtoDAsync_v2);
  FUSION_RESOLVE(cuMemcpyDtoHAsync_v2);
  FUSION_RESOLVE(cuMemcpyDtoDAsync_v2);
  FUSION_RESOLVE(cuMemsetD8Async);
  FUSION_RESOLVE(cuModuleLoadData);
  FUSION_RESOLVE(cuModuleUnload);
  FUSION_RESOLVE(cuModuleGetFunction);
  FUSION_RESOLVE(cuFuncSetAttribute);
  FUSION_RESOLVE(cuLaunchKernelEx);
  FUSION_RESOLVE(cuTensorMapEncodeTiled);
  FUSION_RESOLVE(cuStreamCreate);
  FUSION_RESOLVE(cuStreamDestroy_v2);
  FUSION_RESOLVE(cuStreamSynchronize);
  FUSION_RESOLVE(cuStreamWaitEvent);
  FUSION_RESOLVE(cuStreamIsCapturing);
  FUSION_RESOLVE(cuStreamBeginCapture_v2);
  FUSION_RESOLVE(cuStreamEndCapture);
  FUSION_RESOLVE(cuGraphExecKernelNodeSetParams_v2);
  FUSION_RESOLVE(cuGraphInstantiateWithFlags);
  FUSION_RESOLVE(cuGraphUpload);
  FUSION_RESOLVE(cuGraphLaunch);
  FUSION_RESOLVE(cuGraphDestroy);
  FUSION_RESOLVE(cuGraphExecDestroy);
  FUSION_RESOLVE(cuEventCreate);
  FUSION_RESOLVE(cuEventRecordWithFlags);
  FUSION_RESOLVE(cuEventSynchronize);
  FUSION_RESOLVE(cuEventElapsedTime);
  FUSION_RESOLVE(cuEventDestroy_v2);
#undef FUSION_RESOLVE
  if (!library->resolve("cuStreamGetCaptureInfo_v3", driver.cuStreamGetCaptureInfo_v3))
    driver.cuStreamGetCaptureInfo_v3 = nullptr;
  if (missing)
    return environment(fmt::format("the CUDA driver {} has no {}: install a driver for CUDA 12.0 or newer",
                                   library->path(), missing));
  int count = 0;
  if (int code = driver.cuInit(0); code != 0)
    return driver.check(code, "the CUDA driver does not start").error();
  if (Status status = driver.check(driver.cuDeviceGetCount(&count), "the CUDA driver"); !status)
    return status.error();
  if (count == 0)
    return environment("the CUDA driver finds no GPU: run with --device=cpu or --device=emulate");
  return driver;
}

Status Driver::check(int code, const std::string &what) const {
  if (code == 0)
    return {};
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(code, &name) != 0 || cuGetErrorString(code, &text) != 0)
    return environment(fmt::format("{}: CUDA error {}", what, code));
  return environment(fmt::format("{}: {} ({})", what, text, name));
}

TargetInfo DeviceProperties::target() const {
  TargetInfo info = TargetInfo::ofDevice(major, minor);
  if (multiprocessors > 0)
    info.multiprocessors = multiprocessors;
  if (l2Bytes > 0)
    info.l2Bytes = l2Bytes;
  if (maxSharedBytes > 0)
    info.sharedBytesPerBlock = maxSharedBytes;
  if (multiprocessorSharedBytes > 0)
    info.sharedBytesPerMultiprocessor = multiprocessorSharedBytes;
  return info;
}

DevicePeaks DeviceProperties::peaks() const {
  const int perClock = TargetInfo::ofDevice(major, minor).matrixOpsPerClock;
  DevicePeaks peaks;
  peaks.bytesPerMicrosecond = 2e-3 * memoryClockKilohertz * memoryBusBits / 8; // two transfers a clock
  peaks.flopsPerMicrosecond = 1e-3 * clockKilohertz * multiprocessors * perClock;
  peaks.source =
      fmt::format("limits of {} by its attributes: {:.0f} GB/s", name, peaks.bytesPerMicrosecond * 1e-3);
  if (perClock > 0)
    peaks.source += fmt::format(", {:.0f} TFLOP/s in 16 bit", peaks.flopsPerMicrosecond * 1e-6);
  return peaks;
}

int deviceCount() {
  Result<const Driver *> driver = Driver::instance();
  int count = 0;
  if (!driver || (*driver)->cuDeviceGetCount(&count) != 0)
    return 0;
  return count;
}

Result<DeviceProperties> deviceProperties(int ordinal) {
  Result<const Driver *> instance = Driver::instance();
  if (!instance)
    return instance.error();
  const Driver &driver = **instance;
  int count = 0, device = 0;
  if (Status status = driver.check(driver.cuDeviceGetCount(&count), "counting GPUs"); !status)
    return status.error();
  if (ordinal < 0 || ordinal >= count)
    return environment(fmt::format("GPU {} does not exist: this machine has {}", ordinal, count));
  DeviceProperties properties;
  char name[256] = {};
  int code = driver.cuDeviceGet(&device, ordinal);
  auto attribute = [&](int id, int &value) {
    if (code == 0)
      code = driver.cuDeviceGetAttribute(&value, id, device);
  };
  attribute(computeCapabilityMajor, properties.major);
  attribute(computeCapabilityMinor, properties.minor);
  attribute(multiprocessorCount, properties.multiprocessors);
  attribute(l2CacheBytes, properties.l2Bytes);
  attribute(clockKilohertz, properties.clockKilohertz);
  attribute(memoryClockKilohertz, properties.memoryClockKilohertz);
  attribute(memoryBusBits, properties.memoryBusBits);
  attribute(maxSharedBytesPerBlock, properties.maxSharedBytes);
  attribute(sharedBytesPerMultiprocessor, properties.multiprocessorSharedBytes);
  if (code == 0)
    code = driver.cuDriverGetVersion(&properties.driverVersion);
  if (code == 0)
    code = driver.cuDeviceGetName(name, sizeof(name) - 1, device);
  if (code == 0)
    code = driver.cuDeviceTotalMem_v2(&properties.memoryBytes, device);
  if (Status status = driver.check(code, fmt::format("properties of GPU {}", ordinal)); !status)
    return status.error();
  properties.name = name;
  return properties;
}

} // namespace fusion::cuda
