#include "runtime/collective/GpuCollectiveTimer.h"

#include "codegen/device/Includes.h"
#include "runtime/CompileKernels.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

using cuda::Event;
using cuda::GraphExec;

namespace {

constexpr unsigned callsOfGraph = 16;
constexpr int replays = 4; ///< timed, after one that is not
/// Up to here a row's work is spread over several blocks, as the kernels of programs do.
constexpr size_t mostOfSmall = 1 << 20;

/// How the threads of a block share a row.
struct RowSplit {
  unsigned threads, vectors, resident;
};

TimingKernel kernelOf(const TimedCollective &collective, bool isSmall, const RowSplit &split, int ranks) {
  using Kind = KernelPlan::Parameter::Kind;
  const bool isOneShot = collective.algorithm == CollectiveAlgorithm::OneShot;
  const std::string algorithm = isOneShot ? "one_shot" : "two_shot";
  TimingKernel kernel{{}, collective, isSmall, size_t(split.threads) * split.vectors * 16};
  KernelPlan &plan = kernel.plan;
  plan.name = "time_" + algorithm + (collective.gathersRows ? "_rows" : "") + (isSmall ? "_small" : "");
  plan.blockX = split.threads;
  plan.parameters = {{Kind::Pointer, "const bf16 *", "from"},
                     {Kind::Pointer, "bf16 *", "to"},
                     {Kind::Exchange, "Exchange *", "exchange"},
                     {Kind::Scalar, "i64 ", "slotBytes"},
                     {Kind::Scalar, "i64 ", "gatherSlotBytes"},
                     {Kind::Scalar, "i64 ", "areaBytes"}};
  plan.source = fmt::format(
      R"(#include "all_reduce_timing.cuh"
struct Config {{
  static constexpr int ranks = {}, threads = {}, vectors = {};
  using Gathered = {};
}};
KERNEL_RESIDENT({}, {}) {}(const bf16 *from, bf16 *to, Exchange *exchange, i64 slotBytes, i64 gatherSlotBytes,
    i64 areaBytes) {{
  timed_{}<Config>(AllReduceMessage{{from, to, slotBytes, gatherSlotBytes, areaBytes}}, exchange);
}}
)",
      ranks, split.threads, split.vectors, collective.gathersRows ? "f8e4m3" : "bf16", split.threads,
      split.resident, plan.name, algorithm);
  return kernel;
}

} // namespace

TimingKernel::Sizes TimingKernel::sizes(size_t messageBytes, int ranks) const {
  const size_t count = static_cast<size_t>(ranks), rows = messageBytes / rowBytes;
  Sizes sizes;
  if (collective.algorithm == CollectiveAlgorithm::OneShot) {
    sizes.slotBytes = static_cast<int64_t>(messageBytes);
  } else {
    sizes.slotBytes = static_cast<int64_t>((rows + count - 1) / count * rowBytes);
    sizes.gatherSlotBytes = collective.gathersRows ? sizes.slotBytes / 2 : sizes.slotBytes;
  }
  sizes.areaBytes = (sizes.slotBytes + sizes.gatherSlotBytes) * (ranks - 1);
  return sizes;
}

std::vector<TimingKernel> timingKernels(int ranks) {
  const RowSplit wide = ranks == 2 ? RowSplit{512, 2, 2} : RowSplit{ranks <= 4 ? 1024u : 512u, 1, 1};
  std::vector<TimingKernel> kernels;
  for (bool isSmall : {true, false}) {
    kernels.push_back(kernelOf({CollectiveAlgorithm::OneShot, false}, isSmall,
                               isSmall ? RowSplit{128, 1, 1} : RowSplit{512, ranks == 2 ? 2u : 1u, 1},
                               ranks));
    for (bool gathersRows : {false, true})
      kernels.push_back(kernelOf({CollectiveAlgorithm::TwoShot, gathersRows}, isSmall,
                                 isSmall ? RowSplit{256, 1, 1} : wide, ranks));
  }
  return kernels;
}

std::string timingSource(int ranks) {
  std::string text = templateText({"all_reduce_timing.cuh"});
  for (const TimingKernel &kernel : timingKernels(ranks))
    text += kernel.plan.source;
  return text;
}

GpuCollectiveTimer::~GpuCollectiveTimer() {
  session->activate();
  driver.cuStreamSynchronize(session->ownStream());
  for (const Loaded &kernel : loaded)
    if (kernel.module)
      driver.cuModuleUnload(kernel.module);
  for (cuda::DevicePointer pointer : {from, to})
    if (pointer)
      driver.cuMemFree_v2(pointer);
}

Status GpuCollectiveTimer::prepare(size_t messageBytes) {
  largest = messageBytes;
  auto properties = cuda::deviceProperties(session->ordinal);
  if (!properties)
    return properties.error();
  kernels = timingKernels(communicator.ranks());
  loaded.resize(kernels.size());
  std::vector<KernelPlan> plans;
  for (const TimingKernel &kernel : kernels)
    plans.push_back(kernel.plan);
  auto compiled = compileKernels(plans, properties->target(), &cache);
  if (!compiled)
    return compiled.error();
  session->activate();
  for (size_t i = 0; i < plans.size(); ++i)
    if (Status status = load(i, plans[i].name, (*compiled)[i].bytes); !status)
      return status;
  for (cuda::DevicePointer *pointer : {&from, &to}) {
    int code = driver.cuMemAlloc_v2(pointer, messageBytes);
    if (code == 0)
      code = driver.cuMemsetD8Async(*pointer, 0, messageBytes, session->ownStream());
    if (Status status = driver.check(code, "memory to time collectives with"); !status)
      return status;
  }
  return {};
}

Status GpuCollectiveTimer::load(size_t number, const std::string &name, const std::string &cubin) {
  int code = driver.cuModuleLoadData(&loaded[number].module, cubin.data());
  if (code == 0)
    code = driver.cuModuleGetFunction(&loaded[number].function, loaded[number].module, name.c_str());
  return driver.check(code, "loading " + name);
}

Status GpuCollectiveTimer::launch(size_t number, size_t messageBytes) {
  const TimingKernel &kernel = kernels[number];
  TimingKernel::Sizes sizes = kernel.sizes(messageBytes, communicator.ranks());
  void *arguments[] = {&from, &to, &exchange, &sizes.slotBytes, &sizes.gatherSlotBytes, &sizes.areaBytes};
  cuda::LaunchAttribute attribute = {cuda::programmaticStreamSerialization, {}, {}};
  attribute.value.programmaticStreamSerializationAllowed = 1;
  const auto blocks = static_cast<unsigned>(messageBytes / kernel.rowBytes);
  const cuda::LaunchConfig config = {
      blocks, 1, 1, kernel.plan.blockX, 1, 1, 0, session->ownStream(), &attribute, 1};
  const int code = driver.cuLaunchKernelEx(&config, loaded[number].function, arguments, nullptr);
  return driver.check(code, "timing collectives");
}

Status GpuCollectiveTimer::record(size_t number, size_t messageBytes, GraphExec &graph) {
  int code = driver.cuStreamBeginCapture_v2(session->ownStream(), cuda::threadLocalCapture);
  if (Status status = driver.check(code, "recording"); !status)
    return status;
  Status status;
  for (unsigned i = 0; i < callsOfGraph && status; ++i)
    status = launch(number, messageBytes);
  cuda::Graph recorded = nullptr;
  code = driver.cuStreamEndCapture(session->ownStream(), &recorded);
  if (status && code == 0)
    code = driver.cuGraphInstantiateWithFlags(&graph, recorded, 0);
  if (recorded)
    driver.cuGraphDestroy(recorded);
  return status ? driver.check(code, "recording") : status;
}

Result<double> GpuCollectiveTimer::timed(const std::function<Status()> &queue) {
  cuda::Events marks{session, {}};
  if (Status status = marks.create(replays + 1); !status)
    return status.error();
  if (Status status = queue(); !status)
    return status.error();
  for (int i = 0; i <= replays; ++i) {
    if (i > 0)
      if (Status status = queue(); !status)
        return status.error();
    const int code =
        driver.cuEventRecordWithFlags(marks.events[static_cast<size_t>(i)], session->ownStream(), 0);
    if (Status status = driver.check(code, "timing collectives"); !status)
      return status.error();
  }
  std::vector<float> times(replays);
  int code = driver.cuStreamSynchronize(session->ownStream());
  for (size_t i = 0; i < times.size() && code == 0; ++i)
    code = driver.cuEventElapsedTime(&times[i], marks.events[i], marks.events[i + 1]);
  if (Status status = driver.check(code, "timing collectives"); !status)
    return status.error();
  if (Status status = communicator.check(); !status) // a wait was given up
    return status.error();
  std::sort(times.begin(), times.end());
  return 1000. * (times[replays / 2 - 1] + times[replays / 2]) / 2;
}

Result<std::optional<double>> GpuCollectiveTimer::microseconds(const TimedCollective &collective,
                                                               size_t messageBytes) {
  session->activate();
  if (collective.algorithm == CollectiveAlgorithm::Library) {
    const CollectiveCandidate candidates[] = {{CollectiveAlgorithm::Library, 0},
                                              {CollectiveAlgorithm::TwoShot, 0}};
    if (communicator.choose(SIZE_MAX, candidates) != CollectiveAlgorithm::Library)
      return std::optional<double>();
    // The kernel after it reads the sum and a residual and writes two tensors.
    auto time = timed([&]() -> Status {
      void *source = reinterpret_cast<void *>(from), *target = reinterpret_cast<void *>(to);
      Status status =
          communicator.allReduce(source, target, messageBytes / 2, DType::BF16, session->ownStream());
      for (int copies = 0; copies < 2 && status; ++copies)
        status = driver.check(driver.cuMemcpyDtoDAsync_v2(from, to, messageBytes, session->ownStream()),
                              "copying");
      return status;
    });
    return time ? Result<std::optional<double>>(*time) : time.error();
  }
  const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const TimingKernel &kernel) {
    return kernel.collective == collective && kernel.isSmall == (messageBytes <= mostOfSmall);
  });
  const auto number = static_cast<size_t>(found - kernels.begin());
  // The same bytes for all messages of a kernel: the areas are made once.
  auto memory = communicator.exchange((largest + 2 * kernels[number].rowBytes) *
                                      static_cast<size_t>(communicator.ranks() - 1));
  if (!memory)
    return memory.error();
  exchange = *memory;
  GraphExec graph = nullptr;
  if (Status status = record(number, messageBytes, graph); !status)
    return status.error();
  auto time = timed(
      [&] { return driver.check(driver.cuGraphLaunch(graph, session->ownStream()), "timing collectives"); });
  driver.cuGraphExecDestroy(graph);
  return time ? Result<std::optional<double>>(*time / callsOfGraph) : time.error();
}

} // namespace fusion
