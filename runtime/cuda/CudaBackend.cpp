#include "ir/base/Parallel.h"
#include "runtime/Backend.h"
#include "runtime/MemoryPlan.h"
#include "runtime/Multiplier.h"
#include "runtime/cuda/GraphRecording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fusion {
namespace {

using cuda::DevicePointer;
using cuda::Driver;
using cuda::Events;
using cuda::GraphRecording;
using cuda::Kernel;
using cuda::Session;

/// Memory that has been copied to page-locked chunks reaches the device at the link's speed.
constexpr size_t stagingChunk = 16 << 20;
constexpr size_t stagingThreshold = 1 << 20;

class CudaBackend : public Backend {
public:
  static Result<std::unique_ptr<Backend>> make(int ordinal, const BackendKernels &kernels);
  ~CudaBackend() override;

  Device device() const override { return {Device::Kind::Cuda, session->ordinal}; }
  std::string description() const override {
    return fmt::format("{} ({})", properties.name, properties.arch());
  }
  DevicePeaks peaks() const override { return properties.peaks(); }
  bool sharesHostMemory() const override { return false; }
  Result<std::shared_ptr<void>> allocate(size_t bytes) override;
  Status upload(void *target, const void *source, size_t bytes) override;
  Status uploadRows(void *target, const void *source, size_t bytes, size_t pitch, size_t count) override;
  Status download(void *target, const void *source, size_t bytes) override;
  Status copy(void *target, const void *source, size_t bytes) override;
  Status fill(void *target, uint8_t value, size_t bytes) override;
  Status prepare(std::span<const uint32_t> wanted) override;
  Status launch(const Launch &launch) override;
  Status synchronize() override;
  void *stream() const override { return session->queue(); }
  Status enter(std::optional<void *> stream) override {
    return session->enter(stream ? static_cast<cuda::Stream>(*stream) : session->ownStream());
  }
  Status leave() override { return session->leave(); }
  Result<bool> capturing() const override { return session->capturing(); }
  Result<std::unique_ptr<Recording>> record(const std::function<Status()> &work) override;
  Status emptyCache() override;
  Result<double> time(const std::function<Status()> &work) override;
  Result<std::vector<double>> timeEach(std::span<const std::function<Status()>> works,
                                       const std::function<Status()> &ready) override;

private:
  CudaBackend(std::shared_ptr<Session> session, cuda::DeviceProperties properties)
      : session(std::move(session)), driver(this->session->driver), properties(std::move(properties)) {}
  Status load(const KernelPlan &plan, const std::string &cubin);
  Status noteNode();
  Status mark(cuda::Event event, unsigned flags);
  Result<double> microsecondsBetween(cuda::Event begin, cuda::Event end);
  Result<Multiplier *> products();
  /// Rows as those of uploadRows, through page-locked memory.
  Status uploadStaged(DevicePointer target, const std::byte *source, size_t rowBytes, size_t pitch, size_t rows);

  std::shared_ptr<Session> session;
  const Driver &driver;
  cuda::DeviceProperties properties;
  std::vector<Kernel> kernels;
  std::byte *staging[2] = {nullptr, nullptr};
  std::unique_ptr<Events> stagingDone;
  std::vector<void *> argumentPointers;
  bool recording = false; ///< within record(): …
  size_t launchesRecorded = 0;
  std::vector<cuda::GraphNode> nodes; ///< … what each launch has become, where the driver says so
  std::shared_ptr<void> sweep; ///< what emptyCache() writes
  std::string cacheFolder;
  bool mayTryAlgorithms = false;
  std::unique_ptr<Multiplier> multiplier; ///< null until it is needed
};

DevicePointer address(const void *pointer) { return reinterpret_cast<DevicePointer>(pointer); }

Result<std::unique_ptr<Backend>> CudaBackend::make(int ordinal, const BackendKernels &kernels) {
  Result<const Driver *> driver = Driver::instance();
  if (!driver)
    return driver.error();
  Result<cuda::DeviceProperties> properties = cuda::deviceProperties(ordinal);
  if (!properties)
    return properties.error();
  // Compiling comes before the context: a kernel that does not compile should cost no device memory.
  std::vector<CompiledKernel> compiled;
  bool useCubins =
      !kernels.cubins.empty() && cubinRunsOn(kernels.cubinArch, properties->major, properties->minor);
  if (!useCubins) {
    auto result = compileKernels(kernels.plans, properties->arch(), kernels.cache);
    if (!result)
      return result.error();
    compiled = std::move(*result);
  }
  auto session = std::make_shared<Session>(**driver, ordinal);
  std::unique_ptr<CudaBackend> backend(new CudaBackend(session, std::move(*properties)));
  backend->cacheFolder = kernels.cache ? kernels.cache->folder() : std::string();
  backend->mayTryAlgorithms = kernels.mayTryAlgorithms;
  if (Status status = session->open(); !status)
    return status.error();
  for (size_t i = 0; i < kernels.plans.size(); ++i)
    if (Status status = backend->load(kernels.plans[i], useCubins ? kernels.cubins[i] : compiled[i].bytes);
        !status)
      return status.error();
  return std::unique_ptr<Backend>(std::move(backend));
}

Status CudaBackend::load(const KernelPlan &plan, const std::string &cubin) {
  Kernel kernel;
  kernel.name = plan.name;
  kernel.block[0] = plan.blockX, kernel.block[1] = plan.blockY, kernel.block[2] = plan.blockZ;
  kernel.sharedBytes = plan.dynamicSharedBytes;
  kernel.product = plan.product;
  if (plan.isLibraryCall) {
    kernels.push_back(kernel);
    return {};
  }
  std::string what = fmt::format("loading kernel {}", plan.name);
  if (Status status = driver.check(driver.cuModuleLoadData(&kernel.module, cubin.data()), what); !status)
    return status;
  kernels.push_back(kernel); // from here on the destructor unloads it
  Kernel &loaded = kernels.back();
  if (Status status =
          driver.check(driver.cuModuleGetFunction(&loaded.function, loaded.module, plan.name.c_str()), what);
      !status)
    return status;
  if (plan.dynamicSharedBytes > static_cast<uint32_t>(properties.maxSharedBytes))
    return environment(fmt::format("kernel {} needs {} bytes of shared memory, {} has {}", plan.name,
                                   plan.dynamicSharedBytes, properties.name, properties.maxSharedBytes));
  if (plan.dynamicSharedBytes == 0)
    return {};
  // Above 48 KiB, static arrays included, the driver wants to be asked.
  return driver.check(driver.cuFuncSetAttribute(loaded.function, cuda::maxDynamicSharedBytes,
                                                static_cast<int>(plan.dynamicSharedBytes)),
                      what);
}

CudaBackend::~CudaBackend() {
  if (session->activate() != 0 || !session->ownStream())
    return;
  (void)session->enter(session->ownStream()); // behind what callers' streams still run
  driver.cuStreamSynchronize(session->ownStream());
  multiplier.reset();
  for (Kernel &kernel : kernels)
    if (kernel.module)
      driver.cuModuleUnload(kernel.module);
  for (std::byte *chunk : staging)
    if (chunk)
      driver.cuMemFreeHost(chunk);
}

Result<std::shared_ptr<void>> CudaBackend::allocate(size_t bytes) {
  session->activate();
  DevicePointer pointer = 0;
  if (int code = driver.cuMemAlloc_v2(&pointer, std::max(bytes, bufferAlignment))) {
    size_t free = 0, total = 0;
    driver.cuMemGetInfo_v2(&free, &total);
    return driver
        .check(code, fmt::format("allocating {} MiB on {}, which has {} MiB free of {}", (bytes >> 20) + 1,
                                 properties.name, free >> 20, total >> 20))
        .error();
  }
  auto release = [owner = session](void *memory) {
    owner->activate();
    owner->driver.cuMemFree_v2(address(memory));
  };
  return std::shared_ptr<void>(reinterpret_cast<void *>(pointer), release);
}

Status CudaBackend::upload(void *target, const void *source, size_t bytes) {
  if (bytes == 0)
    return {};
  session->activate();
  if (bytes >= stagingThreshold)
    return uploadStaged(address(target), static_cast<const std::byte *>(source), bytes, bytes, 1);
  // From pageable memory the driver copies the source before it returns.
  return driver.check(driver.cuMemcpyHtoDAsync_v2(address(target), source, bytes, session->queue()),
                      "copying to the GPU");
}

Status CudaBackend::uploadRows(void *target, const void *source, size_t bytes, size_t pitch, size_t count) {
  if (count == 1 || bytes * count == 0)
    return upload(target, source, bytes * count);
  session->activate();
  return uploadStaged(address(target), static_cast<const std::byte *>(source), bytes, pitch, count);
}

/// Bytes [begin, end) of rows laid side by side.
static void gatherRows(std::byte *target, const std::byte *source, size_t rowBytes, size_t pitch, size_t begin,
                       size_t end) {
  while (begin < end) {
    const size_t within = begin % rowBytes, count = std::min(rowBytes - within, end - begin);
    std::memcpy(target, source + begin / rowBytes * pitch + within, count);
    target += count;
    begin += count;
  }
}

Status CudaBackend::uploadStaged(DevicePointer target, const std::byte *source, size_t rowBytes, size_t pitch,
                                 size_t rows) {
  const size_t bytes = rowBytes * rows;
  if (!stagingDone) {
    auto events = std::make_unique<Events>(Events{session, {}});
    if (Status status = events->create(2); !status)
      return status;
    for (std::byte *&chunk : staging)
      if (Status status =
              driver.check(driver.cuMemHostAlloc(reinterpret_cast<void **>(&chunk), stagingChunk, 0),
                           "allocating page-locked memory");
          !status)
        return status;
    stagingDone = std::move(events);
  }
  size_t turn = 0;
  for (size_t done = 0; done < bytes; done += stagingChunk, turn ^= 1) {
    size_t count = std::min(stagingChunk, bytes - done);
    int code = driver.cuEventSynchronize(stagingDone->events[turn]); // an event never recorded is complete
    if (code == 0) {
      parallelFor(static_cast<int64_t>(count), 1 << 20, [&](int64_t begin, int64_t end) {
        gatherRows(staging[turn] + begin, source, rowBytes, pitch, done + static_cast<size_t>(begin),
                   done + static_cast<size_t>(end));
      });
      code = driver.cuMemcpyHtoDAsync_v2(target + done, staging[turn], count, session->queue());
    }
    if (code == 0)
      code = driver.cuEventRecordWithFlags(stagingDone->events[turn], session->queue(), 0);
    if (Status status = driver.check(code, "copying to the GPU"); !status)
      return status;
  }
  return {};
}

Status CudaBackend::download(void *target, const void *source, size_t bytes) {
  session->activate();
  int code = bytes == 0 ? 0 : driver.cuMemcpyDtoHAsync_v2(target, address(source), bytes, session->queue());
  if (code == 0)
    code = driver.cuStreamSynchronize(session->queue());
  return driver.check(code, "copying from the GPU");
}

Status CudaBackend::copy(void *target, const void *source, size_t bytes) {
  if (bytes == 0)
    return {};
  session->activate();
  return driver.check(driver.cuMemcpyDtoDAsync_v2(address(target), address(source), bytes, session->queue()),
                      "copying on the GPU");
}

Status CudaBackend::fill(void *target, uint8_t value, size_t bytes) {
  if (bytes == 0)
    return {};
  session->activate();
  return driver.check(driver.cuMemsetD8Async(address(target), value, bytes, session->queue()),
                      "filling GPU memory");
}

Result<Multiplier *> CudaBackend::products() {
  if (multiplier)
    return multiplier.get();
  session->activate();
  Result<std::unique_ptr<Multiplier>> made = Multiplier::make(*this, cacheFolder, mayTryAlgorithms);
  if (!made)
    return made.error();
  multiplier = std::move(*made);
  return multiplier.get();
}

Status CudaBackend::prepare(std::span<const uint32_t> wanted) {
  if (std::none_of(wanted.begin(), wanted.end(), [&](uint32_t i) { return kernels[i].product.has_value(); }))
    return {};
  Result<Multiplier *> made = products();
  return made ? Status() : made.error();
}

Status CudaBackend::launch(const Launch &launch) {
  session->activate();
  const Kernel &kernel = kernels[launch.kernel];
  if (kernel.product) {
    Result<Multiplier *> library = products();
    return library ? (*library)->multiply(*kernel.product, launch.arguments) : library.error();
  }
  argumentPointers.clear();
  for (const uint64_t &argument : launch.arguments)
    argumentPointers.push_back(const_cast<uint64_t *>(&argument));
  cuda::LaunchAttribute attribute = {};
  attribute.id = cuda::programmaticStreamSerialization;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  cuda::LaunchConfig config = {launch.grid[0],     launch.grid[1],
                               launch.grid[2],     kernel.block[0],
                               kernel.block[1],    kernel.block[2],
                               kernel.sharedBytes, session->queue(),
                               &attribute,         launch.overlapsPrevious ? 1u : 0u};
  int code = driver.cuLaunchKernelEx(&config, kernel.function, argumentPointers.data(), nullptr);
  if (code == 0 && recording)
    return noteNode();
  return code == 0 ? Status() : driver.check(code, fmt::format("launching kernel {}", kernel.name));
}

Status CudaBackend::noteNode() {
  ++launchesRecorded;
  if (!driver.cuStreamGetCaptureInfo_v3)
    return {};
  int state = 0;
  uint64_t id = 0;
  cuda::Graph graph = nullptr;
  const cuda::GraphNode *last = nullptr;
  const void *edges = nullptr;
  size_t count = 0;
  int code = driver.cuStreamGetCaptureInfo_v3(session->queue(), &state, &id, &graph, &last, &edges, &count);
  if (code == 0 && count == 1) // what the next launch waits for
    nodes.push_back(last[0]);
  return driver.check(code, "recording a CUDA graph");
}

Status CudaBackend::synchronize() {
  session->activate();
  return driver.check(driver.cuStreamSynchronize(session->queue()), "running kernels on the GPU");
}

Result<std::unique_ptr<Backend::Recording>> CudaBackend::record(const std::function<Status()> &work) {
  session->activate();
  const char *what = "recording a CUDA graph";
  cuda::Stream queue = session->queue();
  int code = driver.cuStreamBeginCapture_v2(session->ownStream(), cuda::threadLocalCapture);
  if (Status status = driver.check(code, what); !status)
    return status.error();
  session->redirect(session->ownStream());
  nodes.clear();
  launchesRecorded = 0;
  recording = true;
  Status worked = work();
  recording = false;
  session->redirect(queue);
  cuda::Graph graph = nullptr;
  code = driver.cuStreamEndCapture(session->ownStream(), &graph);
  cuda::GraphExec executable = nullptr;
  if (worked && code == 0)
    code = driver.cuGraphInstantiateWithFlags(&executable, graph, 0);
  if (executable) // now, not at the first replay: it may allocate, and other ranks' kernels may wait by then
    code = driver.cuGraphUpload(executable, session->ownStream());
  if (Status status = worked ? driver.check(code, what) : worked; !status) {
    if (executable)
      driver.cuGraphExecDestroy(executable);
    if (graph)
      driver.cuGraphDestroy(graph);
    return status.error();
  }
  if (nodes.size() != launchesRecorded)
    nodes.clear();
  return std::unique_ptr<Recording>(std::make_unique<GraphRecording>(session, kernels, graph, executable, std::move(nodes)));
}

Status CudaBackend::emptyCache() {
  size_t bytes = static_cast<size_t>(properties.l2Bytes) * 4;
  if (!sweep) {
    Result<std::shared_ptr<void>> memory = allocate(bytes);
    if (!memory)
      return memory.error();
    sweep = *memory;
  }
  return fill(sweep.get(), 0, bytes);
}

Result<double> CudaBackend::time(const std::function<Status()> &work) {
  session->activate();
  Events marks{session, {}};
  if (Status status = marks.create(2); !status)
    return status.error();
  if (Status status = mark(marks.events[0], 0); !status)
    return status.error();
  if (Status status = work(); !status)
    return status.error();
  if (Status status = mark(marks.events[1], 0); !status)
    return status.error();
  if (Status status = synchronize(); !status)
    return status.error();
  return microsecondsBetween(marks.events[0], marks.events[1]);
}

Result<std::vector<double>> CudaBackend::timeEach(std::span<const std::function<Status()>> works,
                                                  const std::function<Status()> &ready) {
  session->activate();
  Events marks{session, {}};
  if (Status status = marks.create(works.size() + 1); !status)
    return status.error();
  // As one graph: queued one by one, short kernels would wait for the host, and the waiting would count.
  auto recording = record([&]() -> Status {
    for (size_t i = 0; i <= works.size(); ++i) {
      if (Status status = i == 0 ? Status() : works[i - 1](); !status)
        return status;
      if (Status status = mark(marks.events[i], cuda::recordExternalEvent); !status)
        return status;
    }
    return {};
  });
  if (!recording)
    return recording.error();
  if (Status status = ready(); !status)
    return status.error();
  if (Status status = (*recording)->replay(); !status)
    return status.error();
  if (Status status = synchronize(); !status)
    return status.error();
  std::vector<double> microseconds;
  for (size_t i = 0; i < works.size(); ++i) {
    Result<double> elapsed = microsecondsBetween(marks.events[i], marks.events[i + 1]);
    if (!elapsed)
      return elapsed.error();
    microseconds.push_back(*elapsed);
  }
  return microseconds;
}

Status CudaBackend::mark(cuda::Event event, unsigned flags) {
  return driver.check(driver.cuEventRecordWithFlags(event, session->queue(), flags), "timing");
}

Result<double> CudaBackend::microsecondsBetween(cuda::Event begin, cuda::Event end) {
  float milliseconds = 0;
  if (Status status = driver.check(driver.cuEventElapsedTime(&milliseconds, begin, end), "timing"); !status)
    return status.error();
  return milliseconds * 1000.0;
}

} // namespace

Result<std::unique_ptr<Backend>> makeCudaBackend(int ordinal, const BackendKernels &kernels) {
  return CudaBackend::make(ordinal, kernels);
}

} // namespace fusion
