// A stand-in for libcuda.so.1: device memory is registered host memory, kernels are those of FakeKernels.cpp,
// and a graph is the list of what was captured. It is stricter than a driver: a pointer that is not inside
// one live allocation is an error.
#include "FakeDriver.h"
#include "FakeKernels.h"

#include "runtime/cuda/Driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

using namespace fusion::cuda;

namespace {

FakeDriverCounters counters = {0,       0,       0, 0, 0, 0, 0, 0,  0,  0, 0,  0,  0, 0,
                               nullptr, nullptr, 1, 1, 0, 0, 0, -1, -1, 0, -1, -1, 0, 0};
std::map<DevicePointer, size_t> allocations;
std::map<DevicePointer, int> openedBy; ///< by how many "processes", which are threads here
std::recursive_mutex mutex;            ///< around every call that touches what follows: ranks are threads
thread_local Context currentContext = nullptr;
thread_local bool capturing = false; ///< one of the streams: this one
thread_local Stream capturedStream = nullptr;
std::map<Event, Stream> recordedOn;
constexpr int invalidValue = 1, outOfMemory = 2, invalidContext = 201, invalidHandle = 400,
              captureUnsupported = 900;

/// A fault stays: the context cannot be used any more.
int unusable() { return counters.fault ? counters.fault : currentContext ? 0 : invalidContext; }

struct Work {
  std::function<int()> run;
  Function function = nullptr; ///< of a kernel
  bool overlaps = false;
};
thread_local std::vector<Work> captured;

int queue(Work work) {
  std::lock_guard lock(mutex);
  if (int code = unusable())
    return code;
  if (!capturing)
    return work.run();
  captured.push_back(std::move(work));
  return 0;
}

Context contextOf(int ordinal) {
  return ordinal < 0 ? nullptr : reinterpret_cast<Context>(reinterpret_cast<char *>(&counters) + ordinal);
}

template <class Handle>
int make(Handle *handle, int &counter) {
  std::lock_guard lock(mutex);
  if (int code = unusable())
    return code;
  *handle = reinterpret_cast<Handle>(new char);
  ++counter;
  return 0;
}

template <class Handle>
int drop(Handle handle, int &counter) {
  std::lock_guard lock(mutex);
  if (!handle)
    return invalidValue;
  delete reinterpret_cast<char *>(handle);
  --counter;
  return 0;
}

int copy(DevicePointer target, const void *source, size_t bytes) {
  std::lock_guard lock(mutex);
  if (capturing)
    return captureUnsupported;
  if (int code = unusable())
    return code;
  if (!isAllocated(target, bytes))
    return invalidValue;
  std::memcpy(reinterpret_cast<void *>(target), source, bytes);
  return 0;
}

double clockMilliseconds = 0;
std::map<Event, double> eventTimes;

Work kernel(Function function, uint64_t blocks, void **arguments, bool overlaps) {
  const auto &info = *reinterpret_cast<const FakeKernel *>(function);
  std::vector<uint64_t> values;
  for (size_t i = 0; i < info.words.size(); ++i) {
    auto *words = static_cast<uint64_t *>(arguments[i]);
    values.insert(values.end(), words, words + info.words[i]);
  }
  auto run = [=] {
    ++counters.launches;
    counters.overlapping += overlaps;
    clockMilliseconds += 0.002;
    if (counters.faultAfter == 0)
      return counters.fault = 700, 0; // found out later
    counters.faultAfter -= counters.faultAfter > 0;
    return info.run(values, blocks * 128);
  };
  return {run, function, overlaps};
}

} // namespace

/// At most `bytes` from `pointer` lie in one allocation.
bool isAllocated(DevicePointer pointer, size_t bytes) {
  auto next = allocations.upper_bound(pointer);
  if (next == allocations.begin())
    return false;
  auto [base, size] = *std::prev(next);
  return pointer + bytes <= base + size;
}

extern "C" {
FakeDriverCounters *fakeDriverCounters() { return &counters; }

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int, const char **name) { return *name = "CUDA_ERROR_FAKE", 0; }
int cuGetErrorString(int code, const char **text) {
  return *text = code == outOfMemory ? "out of memory" : "an error", 0;
}
int cuDeviceGetCount(int *count) { return *count = counters.gpus, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char *name, int length, int) {
  return std::strncpy(name, "Fake GPU", static_cast<size_t>(length)), 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  static const std::map<int, int> values = {{multiprocessorCount, 132},
                                            {clockKilohertz, 1'980'000},
                                            {memoryClockKilohertz, 3'201'000},
                                            {memoryBusBits, 6144},
                                            {l2CacheBytes, 1 << 20},
                                            {computeCapabilityMajor, 9},
                                            {computeCapabilityMinor, 0},
                                            {sharedBytesPerMultiprocessor, 228 << 10},
                                            {maxSharedBytesPerBlock, 227 << 10}};
  return *value = values.at(attribute), 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = size_t(1) << 30, 0; }
int cuDeviceGetPCIBusId(char *text, int length, int device) {
  return std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0",
                       counters.sameBus ? 0x1b : 0x1b + device),
         0;
}
int cuDeviceGetByPCIBusId(int *device, const char *text) {
  *device = static_cast<int>(std::strtol(text + 5, nullptr, 16)) - 0x1b;
  return counters.shownGpus < 0 || *device < counters.shownGpus ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(Context *context, int ordinal) {
  std::lock_guard lock(mutex);
  ++counters.contexts;
  return *context = contextOf(ordinal), 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  std::lock_guard lock(mutex);
  return --counters.contexts, 0;
}
int cuCtxSetCurrent(Context context) { return currentContext = context, 0; }
int cuCtxSynchronize() { return unusable(); }
int cuDeviceCanAccessPeer(int *reaches, int device, int peer) {
  return *reaches = counters.reachable, device == peer ? invalidValue : 0;
}
int cuCtxEnablePeerAccess(Context peer, unsigned) {
  std::lock_guard lock(mutex);
  if (!currentContext || !peer || peer == currentContext)
    return invalidValue;
  return ++counters.peerAccesses, 0;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) {
  return *free = size_t(1) << 29, *total = size_t(1) << 30, 0;
}
int cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
  std::lock_guard lock(mutex);
  if (int code = unusable())
    return code;
  if (capturing)
    return captureUnsupported;
  if (counters.failAfter == 0 || bytes > (size_t(1) << 30) || bytes == 0)
    return outOfMemory;
  counters.failAfter -= counters.failAfter > 0;
  *pointer = reinterpret_cast<DevicePointer>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  allocations[*pointer] = bytes;
  ++counters.memory;
  return 0;
}
int cuMemFree_v2(DevicePointer pointer) {
  std::lock_guard lock(mutex);
  counters.freedTooEarly += openedBy.contains(pointer); // another process may still write to it
  if (!allocations.erase(pointer))
    return invalidValue;
  std::free(reinterpret_cast<void *>(pointer));
  return --counters.memory, 0;
}
int cuIpcGetMemHandle(IpcHandle *handle, DevicePointer pointer) {
  std::lock_guard lock(mutex);
  auto found = allocations.find(pointer);
  if (!currentContext || found == allocations.end() || found->second % (size_t(2) << 20) != 0)
    return invalidValue; // a driver would share what lies beside it
  *handle = {};
  return std::memcpy(handle->bytes, &pointer, sizeof pointer), 0;
}
int cuIpcOpenMemHandle_v2(DevicePointer *pointer, IpcHandle handle, unsigned flags) {
  std::lock_guard lock(mutex);
  if (!currentContext || flags != lazyPeerAccess)
    return invalidValue;
  std::memcpy(pointer, handle.bytes, sizeof *pointer);
  if (!allocations.contains(*pointer) || currentContext == contextOf(counters.refusing))
    return invalidHandle;
  return ++openedBy[*pointer], ++counters.opened, 0;
}
int cuIpcCloseMemHandle(DevicePointer pointer) {
  std::lock_guard lock(mutex);
  auto found = openedBy.find(pointer);
  if (!currentContext || found == openedBy.end())
    return invalidValue;
  if (--found->second == 0)
    openedBy.erase(found);
  return --counters.opened, 0;
}
int cuMemHostGetDevicePointer_v2(DevicePointer *pointer, void *host, unsigned) {
  return *pointer = reinterpret_cast<DevicePointer>(host), 0;
}
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
  std::lock_guard lock(mutex);
  return *pointer = std::malloc(bytes), ++counters.hostMemory, 0;
}
int cuMemFreeHost(void *pointer) {
  std::lock_guard lock(mutex);
  return std::free(pointer), --counters.hostMemory, 0;
}
int cuMemcpyHtoDAsync_v2(DevicePointer target, const void *source, size_t bytes, Stream) {
  return copy(target, source, bytes);
}
int cuMemcpyDtoHAsync_v2(void *target, DevicePointer source, size_t bytes, Stream) {
  std::lock_guard lock(mutex);
  if (capturing || !isAllocated(source, bytes))
    return invalidValue;
  if (counters.fault)
    return counters.fault;
  return std::memcpy(target, reinterpret_cast<void *>(source), bytes), 0;
}
int cuMemcpyDtoDAsync_v2(DevicePointer target, DevicePointer source, size_t bytes, Stream) {
  return isAllocated(source, bytes) ? copy(target, reinterpret_cast<void *>(source), bytes) : invalidValue;
}
int cuMemsetD8Async(DevicePointer target, unsigned char value, size_t bytes, Stream) {
  std::lock_guard lock(mutex);
  if (!isAllocated(target, bytes))
    return invalidValue;
  return queue({[=] {
    ++counters.fills;
    return std::memset(reinterpret_cast<void *>(target), value, bytes), 0;
  }});
}
int cuModuleLoadData(Module *module, const void *) {
  return counters.loadError ? counters.loadError : make(module, counters.modules);
}
int cuModuleUnload(Module module) { return drop(module, counters.modules); }
int cuModuleGetFunction(Function *function, Module, const char *name) {
  const FakeKernel *found = findFakeKernel(name);
  if (!found)
    return 500;
  *function = reinterpret_cast<Function>(const_cast<FakeKernel *>(found));
  return 0;
}
int cuTensorMapEncodeTiled(EncodedTensorMap *map, int type, uint32_t rank, void *address,
                           const uint64_t *shape, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *, int, int, int, int) {
  constexpr int f32 = 7;
  if (type != f32 || rank != 2 || reinterpret_cast<uintptr_t>(map) % 64 != 0 ||
      reinterpret_cast<uintptr_t>(address) % 16 != 0 || strides[0] % 16 != 0 || box[0] * 4 % 16 != 0 ||
      box[0] > 256 || box[1] > 256)
    return invalidValue;
  *map = {{reinterpret_cast<uint64_t>(address), shape[1], shape[0], strides[0]}};
  return 0;
}
int cuFuncSetAttribute(Function, int attribute, int) {
  return attribute == maxDynamicSharedBytes ? 0 : invalidValue;
}
int cuLaunchKernelEx(const LaunchConfig *config, Function function, void **arguments, void **) {
  std::lock_guard lock(mutex);
  uint64_t blocks = uint64_t(config->gridX) * config->gridY * config->gridZ;
  if (blocks == 0 || config->blockX != 128)
    return invalidValue;
  if (!capturing || config->stream == capturedStream)
    counters.lastStream = config->stream;
  bool overlaps = false;
  for (unsigned i = 0; i < config->attributeCount; ++i)
    overlaps |= config->attributes[i].id == programmaticStreamSerialization &&
                config->attributes[i].value.programmaticStreamSerializationAllowed == 1;
  return queue(kernel(function, blocks, arguments, overlaps));
}
int cuStreamCreate(Stream *stream, unsigned) { return make(stream, counters.streams); }
int cuStreamDestroy_v2(Stream stream) { return drop(stream, counters.streams); }
int cuStreamSynchronize(Stream stream) {
  counters.lastWaited = stream;
  return capturing ? captureUnsupported : counters.fault;
}
int cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  std::lock_guard lock(mutex);
  if (capturing && stream == capturedStream)
    return captureUnsupported; // on what was recorded outside
  if (!recordedOn.contains(event))
    return invalidValue;
  return ++counters.waits, 0;
}
int cuStreamIsCapturing(Stream stream, int *state) {
  return *state = capturing && stream == capturedStream ? 1 : 0, 0;
}
int cuStreamBeginCapture_v2(Stream stream, int) {
  if (capturing || !stream) // the default stream cannot
    return invalidValue;
  captured.clear();
  capturedStream = stream;
  return capturing = true, 0;
}
int cuStreamEndCapture(Stream stream, Graph *graph) {
  std::lock_guard lock(mutex);
  if (!capturing || stream != capturedStream)
    return invalidValue;
  capturing = false;
  *graph = reinterpret_cast<Graph>(new std::vector<Work>(std::move(captured)));
  return ++counters.graphs, 0;
}
int cuGraphInstantiateWithFlags(GraphExec *executable, Graph graph, unsigned long long) {
  std::lock_guard lock(mutex);
  *executable =
      reinterpret_cast<GraphExec>(new std::vector<Work>(*reinterpret_cast<std::vector<Work> *>(graph)));
  return ++counters.graphs, 0;
}
int cuStreamGetCaptureInfo_v3(Stream stream, int *state, uint64_t *, Graph *, const GraphNode **last,
                              const void **, size_t *count) {
  std::lock_guard lock(mutex);
  if (!capturing || stream != capturedStream || captured.empty())
    return invalidValue;
  static thread_local GraphNode node;
  node = reinterpret_cast<GraphNode>(captured.size()); // by its number, from 1
  return *state = 1, *last = &node, *count = 1, 0;
}
int cuGraphExecKernelNodeSetParams_v2(GraphExec executable, GraphNode node,
                                      const KernelNodeParameters *parameters) {
  std::lock_guard lock(mutex);
  auto &works = *reinterpret_cast<std::vector<Work> *>(executable);
  const auto number = reinterpret_cast<size_t>(node);
  if (!currentContext || number == 0 || number > works.size() ||
      works[number - 1].function != parameters->function || parameters->blockX != 128)
    return invalidValue;
  ++counters.changes;
  works[number - 1] =
      kernel(parameters->function, uint64_t(parameters->gridX) * parameters->gridY * parameters->gridZ,
             parameters->arguments, works[number - 1].overlaps);
  return 0;
}
int cuGraphUpload(GraphExec executable, Stream) { return executable ? 0 : invalidValue; }
int cuGraphLaunch(GraphExec executable, Stream stream) {
  std::lock_guard lock(mutex);
  if (int code = unusable())
    return code;
  ++counters.replays;
  counters.lastStream = stream;
  for (Work &work : *reinterpret_cast<std::vector<Work> *>(executable))
    if (int code = work.run())
      return code;
  return 0;
}
int cuGraphDestroy(Graph graph) {
  std::lock_guard lock(mutex);
  return delete reinterpret_cast<std::vector<Work> *>(graph), --counters.graphs, 0;
}
int cuGraphExecDestroy(GraphExec graph) {
  std::lock_guard lock(mutex);
  return delete reinterpret_cast<std::vector<Work> *>(graph), --counters.graphs, 0;
}
int cuEventCreate(Event *event, unsigned) { return make(event, counters.events); }
int cuEventRecordWithFlags(Event event, Stream stream, unsigned flags) {
  std::lock_guard lock(mutex);
  recordedOn[event] = stream;
  ++counters.marks;
  if (capturing && flags != recordExternalEvent)
    return captureUnsupported; // it would become a dependency, not a time
  return queue({[=] { return eventTimes[event] = clockMilliseconds, 0; }});
}
int cuEventSynchronize(Event) { return counters.fault; }
int cuEventElapsedTime(float *milliseconds, Event begin, Event end) {
  std::lock_guard lock(mutex);
  return *milliseconds = static_cast<float>(eventTimes.at(end) - eventTimes.at(begin)), 0;
}
int cuEventDestroy_v2(Event event) {
  std::lock_guard lock(mutex);
  eventTimes.erase(event);
  recordedOn.erase(event);
  return drop(event, counters.events);
}
}
