#include "runtime/collective/GpuFormTimer.h"

#include "runtime/CompileKernels.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

using cuda::Event;
using cuda::GraphExec;

namespace {

constexpr unsigned callsOfGraph = 16;
constexpr int replays = 4; ///< timed, behind one that is not
/// Up to here a row's work is spread over several blocks, as the kernels of programs do.
constexpr size_t mostOfSmall = 1 << 20;

/// How the threads of a block share a row.
struct Shape {
  unsigned threads, vectors, resident;
  size_t rowBytes() const { return size_t(threads) * vectors * 16; }
};

struct Variant {
  TimedForm form;
  bool isSmall;
  Shape shape;
  std::string name() const {
    return fmt::format("calibrate_{}{}{}", form.form == CollectiveForm::OneShot ? "one" : "two", form.finishedRows ? "_finished" : "",
                       isSmall ? "_small" : "");
  }
};

std::vector<Variant> variants(int ranks) {
  const Shape wide = ranks == 2 ? Shape{512, 2, 2} : Shape{ranks <= 4 ? 1024u : 512u, 1, 1};
  std::vector<Variant> result;
  for (bool isSmall : {true, false}) {
    result.push_back({{CollectiveForm::OneShot, false}, isSmall, isSmall ? Shape{128, 1, 1} : Shape{512, ranks == 2 ? 2u : 1u, 1}});
    for (bool finished : {false, true})
      result.push_back({{CollectiveForm::TwoShot, finished}, isSmall, isSmall ? Shape{256, 1, 1} : wide});
  }
  return result;
}

/// A kernel that sums bf16 over ranks, block after block as many as a row has, like those that the collective schedule writes.
std::string source(const Variant &variant, int ranks) {
  const auto [threads, vectors, resident] = variant.shape;
  const std::string loop = fmt::format("  #pragma unroll\n  for (int k = 0; k < {}; ++k)\n    ", vectors),
                    at = fmt::format("(thread_x() + k * {}) * 16", threads);
  std::string text = fmt::format(
      "KERNEL_RESIDENT({}, {}) {}(const bf16 *from, bf16 *to, Exchange *exchange, i64 slot, i64 reply, i64 area) {{\n"
      "  from += (i64)block_x() * {};\n  to += (i64)block_x() * {};\n  Vec<bf16, 8> mine[{}];\n",
      threads, resident, variant.name(), threads * vectors * 8, threads * vectors * 8, vectors);
  text += loop + fmt::format("mine[k] = load_settled_vec<bf16, 8>(from + (thread_x() + k * {}) * 8);\n", threads);
  text += fmt::format("  Meeting<{0}> meeting = meet_ranks<{0}>(exchange);\n  pdl_wait();\n  begin_round(meeting);\n"
                      "  pdl_launch_dependents();\n", ranks);
  const std::string store = fmt::format("store_vec(to + (thread_x() + k * {}) * 8, ", threads),
                    end = fmt::format("  end_round<{}>(meeting, block_x(), grid_dim_x(), area);\n", threads);
  if (variant.form.form == CollectiveForm::OneShot) {
    text += fmt::format("  const i64 row = (i64)block_x() * {};\n", variant.shape.rowBytes());
    text += loop + fmt::format("send_to_all(meeting, row + {}, slot, mine[k]);\n", at) + end;
    text += loop + store + fmt::format("sum_of_parts(meeting, row + {}, slot, mine[k], block_x()));\n}}\n", at);
    return text;
  }
  // What comes back is half as long where it is finished: eight bits a number.
  const int size = variant.form.finishedRows ? 1 : 2;
  const std::string type = size == 1 ? "f8e4m3" : "bf16", back = fmt::format("(thread_x() + k * {}) * {}", threads, 8 * size),
                    taken = fmt::format("row_of_owner<{}, 8>(meeting, owner, returned + {}, reply, block_x())", type, back);
  text += fmt::format("  const u32 owner = block_x() % {0}u;\n  const i64 row = (i64)(block_x() / {0}u) * {1}, returned = slot * {2} + row / {3};\n",
                      ranks, variant.shape.rowBytes(), ranks - 1, 2 / size);
  text += "  if (owner != meeting.rank) {\n" + loop + fmt::format("send_to_owner(meeting, owner, row + {}, slot, mine[k]);\n  }}\n", at) + end;
  text += "  if (owner != meeting.rank) {\n" + loop +
          (size == 1 ? fmt::format("store_vec(reinterpret_cast<f8e4m3 *>(to) + (thread_x() + k * {}) * 8, {});\n", threads, taken)
                     : store + taken + ");\n") +
          "    return;\n  }\n";
  text += fmt::format("  #pragma unroll\n  for (int k = 0; k < {}; ++k) {{\n", vectors);
  text += fmt::format("    const Vec<bf16, 8> sum = as_sent(sum_of_parts(meeting, row + {}, slot, mine[k], block_x()));\n", at);
  if (size == 1)
    text += "    Vec<f32, 8> wide;\n    #pragma unroll\n    for (int i = 0; i < 8; ++i)\n      wide[i] = element_f32(sum, i);\n"
            "    const Vec<f8e4m3, 8> made = as_sent(vec_from_f32<f8e4m3>(wide));\n";
  else
    text += "    const Vec<bf16, 8> &made = sum;\n";
  text += fmt::format("    send_to_all(meeting, returned + {}, reply, made);\n    {}sum);\n  }}\n}}\n", back, store);
  return text;
}

} // namespace

std::string calibrationSource(int ranks) {
  std::string text;
  for (const Variant &variant : variants(ranks))
    text += source(variant, ranks);
  return text;
}

GpuFormTimer::~GpuFormTimer() {
  session->activate();
  driver.cuStreamSynchronize(session->ownStream());
  for (const Kernel &kernel : kernels)
    if (kernel.module)
      driver.cuModuleUnload(kernel.module);
  for (cuda::DevicePointer pointer : {from, to})
    if (pointer)
      driver.cuMemFree_v2(pointer);
}

Status GpuFormTimer::prepare(size_t messageBytes) {
  largest = messageBytes;
  auto properties = cuda::deviceProperties(session->ordinal);
  if (!properties)
    return properties.error();
  std::vector<KernelPlan> plans;
  for (const Variant &variant : variants(communicator.ranks())) {
    KernelPlan &plan = plans.emplace_back();
    plan.name = variant.name();
    plan.source = source(variant, communicator.ranks());
    kernels.push_back({nullptr, nullptr, variant.shape.threads, variant.shape.rowBytes()});
  }
  auto compiled = compileKernels(plans, properties->arch(), &cache);
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

Status GpuFormTimer::load(size_t number, const std::string &name, const std::string &cubin) {
  int code = driver.cuModuleLoadData(&kernels[number].module, cubin.data());
  if (code == 0)
    code = driver.cuModuleGetFunction(&kernels[number].function, kernels[number].module, name.c_str());
  return driver.check(code, "loading " + name);
}

Status GpuFormTimer::launch(const Kernel &kernel, const TimedForm &form, size_t messageBytes) {
  const size_t ranks = static_cast<size_t>(communicator.ranks()), blocks = messageBytes / kernel.rowBytes;
  const bool isOneShot = form.form == CollectiveForm::OneShot;
  int64_t slot = static_cast<int64_t>(isOneShot ? messageBytes : (blocks + ranks - 1) / ranks * kernel.rowBytes),
          reply = isOneShot ? 0 : form.finishedRows ? slot / 2 : slot,
          area = (slot + reply) * static_cast<int64_t>(ranks - 1);
  void *arguments[] = {&from, &to, &exchange, &slot, &reply, &area};
  cuda::LaunchAttribute attribute = {cuda::programmaticStreamSerialization, {}, {}};
  attribute.value.programmaticStreamSerializationAllowed = 1;
  const cuda::LaunchConfig config = {static_cast<unsigned>(blocks), 1, 1, kernel.threads, 1, 1, 0, session->ownStream(), &attribute, 1};
  return driver.check(driver.cuLaunchKernelEx(&config, kernel.function, arguments, nullptr), "timing collectives");
}

Status GpuFormTimer::record(const Kernel &kernel, const TimedForm &form, size_t messageBytes, GraphExec &graph) {
  if (Status status = driver.check(driver.cuStreamBeginCapture_v2(session->ownStream(), cuda::threadLocalCapture), "recording"); !status)
    return status;
  Status status;
  for (unsigned i = 0; i < callsOfGraph && status; ++i)
    status = launch(kernel, form, messageBytes);
  cuda::Graph recorded = nullptr;
  int code = driver.cuStreamEndCapture(session->ownStream(), &recorded);
  if (status && code == 0)
    code = driver.cuGraphInstantiateWithFlags(&graph, recorded, 0);
  if (recorded)
    driver.cuGraphDestroy(recorded);
  return status ? driver.check(code, "recording") : status;
}

Result<double> GpuFormTimer::timed(const std::function<Status()> &queue) {
  cuda::Events marks{session, {}};
  if (Status status = marks.create(replays + 1); !status)
    return status.error();
  if (Status status = queue(); !status)
    return status.error();
  for (int i = 0; i <= replays; ++i) {
    if (i > 0)
      if (Status status = queue(); !status)
        return status.error();
    const int code = driver.cuEventRecordWithFlags(marks.events[static_cast<size_t>(i)], session->ownStream(), 0);
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

Result<std::optional<double>> GpuFormTimer::microseconds(const TimedForm &form, size_t messageBytes) {
  session->activate();
  if (form.form == CollectiveForm::Library) {
    const CollectiveWay way[] = {{CollectiveForm::Library, 0}, {CollectiveForm::TwoShot, 0}};
    if (communicator.choose(SIZE_MAX, way) != CollectiveForm::Library)
      return std::optional<double>();
    // The kernel behind it reads the sum and a residual and writes two tensors.
    auto time = timed([&]() -> Status {
      void *source = reinterpret_cast<void *>(from), *target = reinterpret_cast<void *>(to);
      if (Status status = communicator.allReduce(source, target, messageBytes / 2, DType::BF16, session->ownStream()); !status)
        return status;
      for (int copies = 0; copies < 2; ++copies)
        if (Status status = driver.check(driver.cuMemcpyDtoDAsync_v2(from, to, messageBytes, session->ownStream()), "copying"); !status)
          return status;
      return {};
    });
    return time ? Result<std::optional<double>>(*time) : time.error();
  }
  const auto all = variants(communicator.ranks());
  const auto found = std::find_if(all.begin(), all.end(), [&](const Variant &variant) {
    return variant.form.form == form.form && variant.form.finishedRows == form.finishedRows && variant.isSmall == (messageBytes <= mostOfSmall);
  });
  const Kernel &kernel = kernels[static_cast<size_t>(found - all.begin())];
  const size_t ranks = static_cast<size_t>(communicator.ranks());
  auto memory = communicator.exchange((largest + 2 * kernel.rowBytes) * (ranks - 1)); // the same for all: made once
  if (!memory)
    return memory.error();
  exchange = *memory;
  GraphExec graph = nullptr;
  if (Status status = record(kernel, form, messageBytes, graph); !status)
    return status.error();
  auto time = timed([&] { return driver.check(driver.cuGraphLaunch(graph, session->ownStream()), "timing collectives"); });
  driver.cuGraphExecDestroy(graph);
  return time ? Result<std::optional<double>>(*time / callsOfGraph) : time.error();
}

} // namespace fusion
