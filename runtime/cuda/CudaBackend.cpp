#include "runtime/cuda/CudaBackend.h"

#include "ir/base/Hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace fusion::cuda {

/// What a launch needs to know besides the function.
static Kernel describe(const KernelPlan &plan) {
  Kernel kernel;
  kernel.name = plan.name;
  kernel.block[0] = plan.blockX, kernel.block[1] = plan.blockY, kernel.block[2] = plan.blockZ;
  kernel.cluster[0] = plan.clusterX, kernel.cluster[1] = plan.clusterY, kernel.cluster[2] = plan.clusterZ;
  kernel.sharedBytes = plan.dynamicSharedBytes;
  kernel.cooperative = plan.cooperative;
  kernel.matmul = plan.matmul;
  size_t word = 0;
  for (const KernelPlan::Parameter &parameter : plan.parameters) {
    kernel.argumentWords.push_back(word);
    word += parameter.kind == KernelPlan::Parameter::Kind::TensorMap ? Backend::tensorMapWords : 1;
  }
  return kernel;
}

/// One cubin for each of `chosen`.
static Result<std::vector<CompiledKernel>> compile(std::span<const KernelPlan> plans,
                                                   std::span<const uint32_t> chosen, const TargetInfo &target,
                                                   KernelCache *cache) {
  std::vector<KernelPlan> sources;
  for (uint32_t kernel : chosen)
    sources.push_back(plans[kernel]);
  return compileKernels(sources, target, cache);
}

CudaBackend::CudaBackend(std::shared_ptr<Session> session, DeviceProperties properties,
                         const BackendKernels &wanted)
    : session(std::move(session)), driver(this->session->driver), properties(std::move(properties)),
      plans(wanted.plans), cache(wanted.cache), cacheFolder(cache ? cache->folder() : std::string()),
      mayTryAlgorithms(wanted.mayTryAlgorithms) {
  for (const KernelPlan &plan : plans)
    kernels.push_back(describe(plan));
}

Result<std::unique_ptr<Backend>> CudaBackend::make(int ordinal, const BackendKernels &kernels) {
  Result<const Driver *> driver = Driver::instance();
  if (!driver)
    return driver.error();
  Result<DeviceProperties> properties = deviceProperties(ordinal);
  if (!properties)
    return properties.error();
  const Result<TargetInfo> cubinTarget = TargetInfo::find(kernels.cubinArch);
  const bool useCubins =
      !kernels.cubins.empty() && cubinTarget && cubinTarget->runsOn(properties->major, properties->minor);
  std::vector<uint32_t> first;
  bool compiles = false;
  for (uint32_t i = 0; i < kernels.plans.size(); ++i) {
    if (kernels.plans[i].isLibraryCall)
      continue;
    compiles = !useCubins;
    if (useCubins || kernels.onDemand.empty() || !kernels.onDemand[i])
      first.push_back(i);
  }
  // Compiling comes before the context: a kernel that does not compile should cost no device memory.
  std::vector<CompiledKernel> compiled;
  if (compiles) {
    if (Result<Nvrtc *> nvrtc = Nvrtc::instance(); !nvrtc) // also where all kernels are compiled later
      return nvrtc.error();
    auto result = compile(kernels.plans, first, properties->target(), kernels.cache);
    if (!result)
      return result.error();
    compiled = std::move(*result);
  }
  auto session = std::make_shared<Session>(**driver, ordinal);
  std::unique_ptr<CudaBackend> backend(new CudaBackend(session, std::move(*properties), kernels));
  if (Status status = session->open(); !status)
    return status.error();
  for (size_t i = 0; i < first.size(); ++i)
    if (Status status = backend->load(first[i], useCubins ? kernels.cubins[first[i]] : compiled[i].bytes);
        !status)
      return status.error();
  return std::unique_ptr<Backend>(std::move(backend));
}

Status CudaBackend::load(uint32_t index, const std::string &cubin) {
  Kernel &kernel = kernels[index];
  const std::string what = fmt::format("loading kernel {}", kernel.name);
  auto [module, isNew] = modules.try_emplace(contentHash(cubin));
  if (isNew)
    if (const int code = driver.cuModuleLoadData(&module->second, cubin.data()); code != 0) {
      modules.erase(module);
      Error error = driver.check(code, what).error();
      if (code == invalidImage || code == noBinaryForGpu || code == unsupportedVersion)
        error.message += fmt::format("; the driver is one for CUDA {}.{}, what compiled the kernel may be "
                                     "newer: install a newer driver, or an NVRTC of its version",
                                     properties.driverVersion / 1000, properties.driverVersion % 1000 / 10);
      return error;
    }
  Function function = nullptr;
  if (Status status =
          driver.check(driver.cuModuleGetFunction(&function, module->second, kernel.name.c_str()), what);
      !status)
    return status;
  if (kernel.sharedBytes > static_cast<uint32_t>(properties.maxSharedBytes))
    return environment(fmt::format("kernel {} needs {} bytes of shared memory, {} has {}", kernel.name,
                                   kernel.sharedBytes, properties.name, properties.maxSharedBytes));
  if (kernel.sharedBytes > 0) // above 48 KiB, static arrays included, the driver wants to be asked
    if (Status status = driver.check(
            driver.cuFuncSetAttribute(function, maxDynamicSharedBytes, static_cast<int>(kernel.sharedBytes)),
            what);
        !status)
      return status;
  kernel.function = function;
  return {};
}

CudaBackend::~CudaBackend() {
  if (session->activate() != 0 || !session->ownStream())
    return;
  (void)session->enter(session->ownStream()); // after what callers' streams still run
  driver.cuStreamSynchronize(session->ownStream());
  runner.reset();
  for (const auto &[cubin, module] : modules)
    driver.cuModuleUnload(module);
  for (std::byte *chunk : staging)
    if (chunk)
      driver.cuMemFreeHost(chunk);
}

Result<CublasLtRunner *> CudaBackend::matmuls() {
  if (runner)
    return runner.get();
  session->activate();
  Result<std::unique_ptr<CublasLtRunner>> made = CublasLtRunner::make(*this, cacheFolder, mayTryAlgorithms);
  if (!made)
    return made.error();
  runner = std::move(*made);
  return runner.get();
}

Status CudaBackend::prepare(std::span<const uint32_t> wanted) {
  std::set<uint32_t> distinct(wanted.begin(), wanted.end());
  std::erase_if(distinct, [&](uint32_t i) { return plans[i].isLibraryCall || kernels[i].function; });
  if (!distinct.empty()) {
    const std::vector<uint32_t> missing(distinct.begin(), distinct.end());
    auto compiled = compile(plans, missing, properties.target(), cache);
    if (!compiled)
      return compiled.error();
    session->activate();
    for (size_t i = 0; i < missing.size(); ++i)
      if (Status status = load(missing[i], (*compiled)[i].bytes); !status)
        return status;
  }
  if (std::none_of(wanted.begin(), wanted.end(), [&](uint32_t i) { return kernels[i].matmul.has_value(); }))
    return {};
  Result<CublasLtRunner *> made = matmuls();
  return made ? Status() : made.error();
}

Status CudaBackend::launch(const Launch &launch) {
  session->activate();
  const Kernel &kernel = kernels[launch.kernel];
  if (kernel.matmul) {
    Result<CublasLtRunner *> library = matmuls();
    return library ? (*library)->matmul(*kernel.matmul, launch.arguments) : library.error();
  }
  kernel.pointTo(launch.arguments, argumentPointers);
  LaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (launch.overlapsPrevious) {
    attributes[count].id = programmaticStreamSerialization;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  if (kernel.cluster[0] * kernel.cluster[1] * kernel.cluster[2] > 1) {
    attributes[count].id = clusterDimension;
    std::copy_n(kernel.cluster, 3, attributes[count++].value.cluster);
  }
  if (kernel.cooperative) {
    attributes[count].id = cooperativeLaunch;
    attributes[count++].value.cooperative = 1;
  }
  const LaunchConfig config = {
      launch.grid[0],  launch.grid[1],     launch.grid[2],   kernel.block[0], kernel.block[1],
      kernel.block[2], kernel.sharedBytes, session->queue(), attributes,      count};
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
  Graph graph = nullptr;
  const GraphNode *last = nullptr;
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
  Stream queue = session->queue();
  int code = driver.cuStreamBeginCapture_v2(session->ownStream(), threadLocalCapture);
  if (Status status = driver.check(code, what); !status)
    return status.error();
  session->redirect(session->ownStream());
  nodes.clear();
  launchesRecorded = 0;
  recording = true;
  Status worked = work();
  recording = false;
  session->redirect(queue);
  Graph graph = nullptr;
  code = driver.cuStreamEndCapture(session->ownStream(), &graph);
  GraphExec executable = nullptr;
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
  return std::unique_ptr<Recording>(
      std::make_unique<GraphRecording>(session, kernels, graph, executable, std::move(nodes)));
}

} // namespace fusion::cuda

namespace fusion {

Result<std::unique_ptr<Backend>> makeCudaBackend(int ordinal, const BackendKernels &kernels) {
  return cuda::CudaBackend::make(ordinal, kernels);
}

} // namespace fusion
