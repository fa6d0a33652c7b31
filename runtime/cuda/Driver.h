// The CUDA driver, opened while the program runs. The declarations are our own: no toolkit is needed to
// build. Names, values and layouts are those of the driver's stable ABI (CUDA 12.0 and later).
#pragma once

#include "codegen/target/TargetInfo.h"
#include "runtime/Profile.h"
#include "runtime/cuda/Library.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace fusion::cuda {

using DevicePointer = uint64_t;
using Context = struct ContextHandle *;
using Module = struct ModuleHandle *;
using Function = struct FunctionHandle *;
using Stream = struct StreamHandle *;
using Event = struct EventHandle *;
using Graph = struct GraphHandle *;
using GraphExec = struct GraphExecHandle *;
using GraphNode = struct GraphNodeHandle *;

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int cooperative;
    unsigned cluster[3];
    int programmaticStreamSerializationAllowed;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
/// LaunchAttribute::id
enum LaunchAttributeId : int {
  cooperativeLaunch = 2,
  clusterDimension = 4,
  programmaticStreamSerialization = 6
};

/// CUtensorMap
struct alignas(64) EncodedTensorMap {
  uint64_t words[16];
};

/// Of an allocation, for other processes of the host. By value in calls.
struct IpcHandle {
  char bytes[64];
};

struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};

/// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNodeParameters {
  Function function;
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void **arguments;
  void **extra;
  void *kernel;
  Context context;
};
static_assert(sizeof(KernelNodeParameters) == 72);

enum DeviceAttribute : int {
  clockKilohertz = 13,
  multiprocessorCount = 16,
  memoryClockKilohertz = 36,
  memoryBusBits = 37,
  l2CacheBytes = 38,
  computeCapabilityMajor = 75,
  computeCapabilityMinor = 76,
  sharedBytesPerMultiprocessor = 81,
  maxSharedBytesPerBlock = 97, ///< after opting in
};
constexpr unsigned eventWithoutTiming = 2;
constexpr unsigned recordExternalEvent = 1; ///< in a capture: a node that records at every replay
constexpr unsigned nonBlockingStream = 1;
constexpr unsigned portableHostMemory = 1, mappedHostMemory = 2;
constexpr int peerAccessAlreadyEnabled = 704;
constexpr int invalidImage = 200, noBinaryForGpu = 209, unsupportedVersion = 222;
constexpr unsigned lazyPeerAccess = 1; ///< of cuIpcOpenMemHandle_v2
constexpr int threadLocalCapture = 1;
enum FunctionAttribute : int { maxDynamicSharedBytes = 8 };

/// Every call returns 0 or an error number; pass it to Driver::check.
struct Driver {
  /// The process's one instance, initialised: libcuda.so.1, or the file that FUSION_CUDA_DRIVER names.
  /// Environment error when there is no driver or no GPU.
  static Result<const Driver *> instance();
  /// An Environment error "WHAT: the driver's words" unless `code` is 0.
  Status check(int code, const std::string &what) const;

  int (*cuInit)(unsigned);
  int (*cuDriverGetVersion)(int *);
  int (*cuGetErrorName)(int, const char **);
  int (*cuGetErrorString)(int, const char **);
  int (*cuDeviceGetCount)(int *);
  int (*cuDeviceGet)(int *, int);
  int (*cuDeviceGetName)(char *, int, int);
  int (*cuDeviceGetAttribute)(int *, int, int);
  int (*cuDeviceTotalMem_v2)(size_t *, int);
  int (*cuDeviceGetPCIBusId)(char *, int, int);
  int (*cuDeviceGetByPCIBusId)(int *, const char *);
  int (*cuDevicePrimaryCtxRetain)(Context *, int);
  int (*cuDevicePrimaryCtxRelease_v2)(int);
  int (*cuCtxSetCurrent)(Context);
  int (*cuCtxSynchronize)();
  int (*cuDeviceCanAccessPeer)(int *, int, int);
  int (*cuCtxEnablePeerAccess)(Context, unsigned);
  int (*cuMemGetInfo_v2)(size_t *, size_t *);
  int (*cuMemAlloc_v2)(DevicePointer *, size_t);
  int (*cuMemFree_v2)(DevicePointer);
  int (*cuIpcGetMemHandle)(IpcHandle *, DevicePointer);
  int (*cuIpcOpenMemHandle_v2)(DevicePointer *, IpcHandle, unsigned);
  int (*cuIpcCloseMemHandle)(DevicePointer);
  int (*cuMemHostAlloc)(void **, size_t, unsigned);
  int (*cuMemHostGetDevicePointer_v2)(DevicePointer *, void *, unsigned);
  int (*cuMemFreeHost)(void *);
  int (*cuMemcpyHtoDAsync_v2)(DevicePointer, const void *, size_t, Stream);
  int (*cuMemcpyDtoHAsync_v2)(void *, DevicePointer, size_t, Stream);
  int (*cuMemcpyDtoDAsync_v2)(DevicePointer, DevicePointer, size_t, Stream);
  int (*cuMemsetD8Async)(DevicePointer, unsigned char, size_t, Stream);
  int (*cuModuleLoadData)(Module *, const void *);
  int (*cuModuleUnload)(Module);
  int (*cuModuleGetFunction)(Function *, Module, const char *);
  int (*cuFuncSetAttribute)(Function, int, int);
  int (*cuLaunchKernelEx)(const LaunchConfig *, Function, void **, void **);
  /// (map, type, rank, address, shape, strides in bytes but the innermost, box, element strides, interleave,
  /// swizzle, L2 promotion, out-of-bounds fill), dims innermost first.
  int (*cuTensorMapEncodeTiled)(EncodedTensorMap *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                                const uint32_t *, const uint32_t *, int, int, int, int);
  int (*cuStreamCreate)(Stream *, unsigned);
  int (*cuStreamDestroy_v2)(Stream);
  int (*cuStreamSynchronize)(Stream);
  int (*cuStreamWaitEvent)(Stream, Event, unsigned);
  int (*cuStreamIsCapturing)(Stream, int *);
  int (*cuStreamBeginCapture_v2)(Stream, int);
  int (*cuStreamEndCapture)(Stream, Graph *);
  /// Null before CUDA 12.3.
  int (*cuStreamGetCaptureInfo_v3)(Stream, int *, uint64_t *, Graph *, const GraphNode **, const void **,
                                   size_t *);
  int (*cuGraphExecKernelNodeSetParams_v2)(GraphExec, GraphNode, const KernelNodeParameters *);
  int (*cuGraphInstantiateWithFlags)(GraphExec *, Graph, unsigned long long);
  int (*cuGraphUpload)(GraphExec, Stream);
  int (*cuGraphLaunch)(GraphExec, Stream);
  int (*cuGraphDestroy)(Graph);
  int (*cuGraphExecDestroy)(GraphExec);
  int (*cuEventCreate)(Event *, unsigned);
  int (*cuEventRecordWithFlags)(Event, Stream, unsigned);
  int (*cuEventSynchronize)(Event);
  int (*cuEventElapsedTime)(float *, Event, Event);
  int (*cuEventDestroy_v2)(Event);

private:
  static Result<Driver> open();
};

struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int l2Bytes = 0;
  int driverVersion = 0; ///< 13010: of CUDA 13.1
  int clockKilohertz = 0, memoryClockKilohertz = 0, memoryBusBits = 0;
  int maxSharedBytes = 0; ///< a block's, after opting in
  int multiprocessorSharedBytes = 0;
  size_t memoryBytes = 0;
  /// The row of the device's architecture with the device's own numbers.
  TargetInfo target() const;
  /// "sm_90a": the architecture to compile for.
  std::string arch() const { return target().name; }
  /// From the clocks and widths above: the datasheet's figures, of which a kernel reaches about nine tenths.
  DevicePeaks peaks() const;
};
/// The number of GPUs; 0 where there is no driver.
int deviceCount();
Result<DeviceProperties> deviceProperties(int ordinal);

} // namespace fusion::cuda
