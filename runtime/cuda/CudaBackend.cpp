#include "runtime/cuda/CudaBackend.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace fusion::cuda {

Result<std::unique_ptr<Backend>> CudaBackend::make(int ordinal, const BackendKernels &kernels) {
  Result<const Driver *> driver = Driver::instance();
  if (!driver)
    return driver.error();
  Result<DeviceProperties> properties = deviceProperties(ordinal);
  if (!properties)
    return properties.error();
  // Compiling comes before the context: a kernel that does not compile should cost no device memory.
  std::vector<CompiledKernel> compiled;
  const Result<TargetInfo> cubinTarget = TargetInfo::find(kernels.cubinArch);
  bool useCubins =
      !kernels.cubins.empty() && cubinTarget && cubinTarget->runsOn(properties->major, properties->minor);
  if (!useCubins) {
    auto result = compileKernels(kernels.plans, properties->target(), kernels.cache);
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
  std::map<std::string_view, Module> modules; // by their cubins
  for (size_t i = 0; i < kernels.plans.size(); ++i)
    if (Status status = backend->load(kernels.plans[i], useCubins ? kernels.cubins[i] : compiled[i].bytes, modules);
        !status)
      return status.error();
  return std::unique_ptr<Backend>(std::move(backend));
}

Status CudaBackend::load(const KernelPlan &plan, const std::string &cubin,
                         std::map<std::string_view, Module> &modules) {
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
    word += parameter.kind == KernelPlan::Parameter::Kind::TensorMap ? tensorMapWords : 1;
  }
  if (plan.isLibraryCall) {
    kernels.push_back(kernel);
    return {};
  }
  std::string what = fmt::format("loading kernel {}", plan.name);
  auto [module, isNew] = modules.try_emplace(cubin);
  if (isNew) {
    if (Status status = driver.check(driver.cuModuleLoadData(&module->second, cubin.data()), what); !status)
      return status;
    loadedModules.push_back(module->second);
  }
  kernels.push_back(kernel);
  Kernel &loaded = kernels.back();
  if (Status status =
          driver.check(driver.cuModuleGetFunction(&loaded.function, module->second, plan.name.c_str()), what);
      !status)
    return status;
  if (plan.dynamicSharedBytes > static_cast<uint32_t>(properties.maxSharedBytes))
    return environment(fmt::format("kernel {} needs {} bytes of shared memory, {} has {}", plan.name,
                                   plan.dynamicSharedBytes, properties.name, properties.maxSharedBytes));
  if (plan.dynamicSharedBytes == 0)
    return {};
  // Above 48 KiB, static arrays included, the driver wants to be asked.
  return driver.check(driver.cuFuncSetAttribute(loaded.function, maxDynamicSharedBytes,
                                                static_cast<int>(plan.dynamicSharedBytes)),
                      what);
}

CudaBackend::~CudaBackend() {
  if (session->activate() != 0 || !session->ownStream())
    return;
  (void)session->enter(session->ownStream()); // after what callers' streams still run
  driver.cuStreamSynchronize(session->ownStream());
  runner.reset();
  for (Module module : loadedModules)
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
  const LaunchConfig config = {launch.grid[0],     launch.grid[1],   launch.grid[2], kernel.block[0], kernel.block[1],
                               kernel.block[2],    kernel.sharedBytes, session->queue(), attributes, count};
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
  return std::unique_ptr<Recording>(std::make_unique<GraphRecording>(session, kernels, graph, executable, std::move(nodes)));
}

} // namespace fusion::cuda

namespace fusion {

Result<std::unique_ptr<Backend>> makeCudaBackend(int ordinal, const BackendKernels &kernels) {
  return cuda::CudaBackend::make(ordinal, kernels);
}

} // namespace fusion
