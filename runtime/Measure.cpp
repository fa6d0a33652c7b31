#include "runtime/Measure.h"

#include "ir/base/BindSymbols.h"
#include "runtime/Arguments.h"
#include "runtime/MemoryPlan.h"
#include "runtime/WeightStore.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>

namespace fusion {
namespace {

/// A plan at the sizes, and where its kernels are in the backend.
struct Work {
  const ProgramPlan *plan;
  ShapePlan shapes;
  std::map<uint32_t, uint32_t> kernels;
  ShapeIndex index = ShapeIndex(*plan);
};

Result<ShapePlan> shapesAt(const ProgramPlan &plan, SymbolValues sizes) {
  sizes.emplace(rankSymbol, 0); // the ranks do the same work
  for (const ProgramPlan::Equality &equality : plan.equalities) {
    Result<int64_t> left = equality.left.evaluate(sizes), right = equality.right.evaluate(sizes);
    if (!left || !right || *left != *right)
      return badInput(fmt::format("the sizes do not fit together: {} and {} ({})", equality.left.str(),
                                  equality.right.str(), equality.reason));
  }
  Result<ShapePlan> shapes = planShapes(plan, sizes);
  if (shapes && shapes->launches.empty())
    return badInput("nothing is launched");
  return shapes;
}

/// What several measurements share.
class Shared {
public:
  explicit Shared(Backend &backend) : backend(backend) {}

  /// A short pattern of random numbers, repeated over a buffer: mixed signs; integers small, so that they can
  /// be indices.
  const Tensor &pattern(DType type) {
    auto [place, isNew] = patterns.try_emplace(type);
    if (isNew) {
      constexpr int64_t count = 1 << 16;
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      std::vector<float> values(count);
      for (float &value : values)
        value = isFloat(type) ? normal(random) : static_cast<float>(random() % (type == DType::Bool ? 2 : 4));
      place->second = Tensor::of<float>(DType::F32, {count}, values).convertedTo(type);
    }
    return place->second;
  }

  /// So many bytes, which the next call may give again.
  Result<std::shared_ptr<void>> memory(size_t bytes) {
    if (bytes > size) {
      held.reset();
      size = 0;
      Result<std::shared_ptr<void>> allocated = backend.allocate(bytes);
      if (!allocated)
        return allocated;
      held = std::move(*allocated);
      size = bytes;
    }
    return held;
  }

private:
  Backend &backend;
  std::map<DType, Tensor> patterns;
  std::shared_ptr<void> held;
  size_t size = 0;
};

Status fillRandom(Backend &backend, std::byte *target, size_t bytes, const Tensor &start) {
  size_t done = std::min(start.bytes(), bytes);
  if (Status status = backend.upload(target, start.data(), done); !status)
    return status;
  while (done > 0 && done < bytes) {
    const size_t next = std::min(done, bytes - done);
    if (Status status = backend.copy(target + done, target, next); !status)
      return status;
    done += next;
  }
  return {};
}

/// Several runs' buffers in one allocation.
class Runs {
public:
  Runs(const Work &work, Backend &backend, Shared &shared, const MeasureOptions &options)
      : work(work), plan(*work.plan), backend(backend), shared(shared), options(options) {}

  Result<double> time() {
    if (Status status = backend.enter(std::nullopt); !status)
      return status.error();
    Result<double> result = timed();
    if (Status status = backend.leave(); !status)
      return status.error();
    return result;
  }

private:
  Result<double> timed() {
    if (Status status = place(); !status)
      return status.error();
    auto launchAll = [&]() -> Status {
      for (int copy = 0; copy < copies; ++copy)
        for (size_t i = 0; i < work.shapes.launches.size(); ++i)
          if (Status status = launch(copy, i); !status)
            return status;
      return {};
    };
    if (Status status = launchAll(); !status) // loads the code too
      return status.error();
    auto recording = backend.record(launchAll);
    if (!recording)
      return recording.error();
    std::vector<double> samples;
    for (int i = 0; i < options.samples; ++i) {
      if (Status status = backend.emptyCache(); !status)
        return status.error();
      Result<double> sample = backend.time([&] { return *recording ? (*recording)->replay() : launchAll(); });
      if (!sample)
        return sample.error();
      samples.push_back(*sample / copies);
    }
    if (Status status = backend.synchronize(); !status)
      return status.error();
    auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
  }

  Status place() {
    Result<WeightStore> loaded = WeightStore::load(plan, backend, /*rank=*/0);
    if (!loaded)
      return loaded.error();
    constants.emplace(std::move(*loaded));
    size_t total = 0;
    auto take = [&](size_t bytes) {
      const size_t offset = total;
      total += alignedSize(bytes);
      return offset;
    };
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const bool own =
          plan.buffers[i].kind == BufferPlan::Kind::Input || plan.buffers[i].kind == BufferPlan::Kind::Output;
      offsets.push_back(own ? take(work.shapes.placeBytes[i]) : 0);
    }
    arena = take(work.shapes.arenaBytes);
    keptZero = take(work.shapes.keptZeroBytes);
    stride = std::max(total, bufferAlignment);
    if (stride > options.mostBytes)
      return badInput(fmt::format("its buffers take {} MiB, the limit of a measurement is {} MiB",
                                  stride >> 20, options.mostBytes >> 20));
    copies = static_cast<int>(
        std::clamp<size_t>(options.mostBytes / stride, 1, static_cast<size_t>(options.copies)));
    Result<std::shared_ptr<void>> allocated = shared.memory(stride * static_cast<size_t>(copies));
    if (!allocated)
      return allocated.error();
    memory = *allocated;
    for (int copy = 0; copy < copies; ++copy)
      if (Status status = backend.fill(base(copy) + keptZero, 0, work.shapes.keptZeroBytes); !status)
        return status;
    findPlaces();
    return fillInputs();
  }

  Status fillInputs() {
    for (const PortPlan &port : plan.inputs) {
      const size_t bytes = work.shapes.placeBytes[port.buffer];
      if (bytes == 0)
        continue;
      std::byte *first = address(0, port.buffer);
      if (Status status = fillRandom(backend, first, bytes, shared.pattern(port.type)); !status)
        return status;
      for (int copy = 1; copy < copies; ++copy)
        if (Status status = backend.copy(address(copy, port.buffer), first, bytes); !status)
          return status;
    }
    return {};
  }

  std::byte *base(int copy) const {
    return static_cast<std::byte *>(memory.get()) + static_cast<size_t>(copy) * stride;
  }

  std::byte *address(int copy, BufferId buffer) const {
    return static_cast<std::byte *>(places[static_cast<size_t>(copy)][buffer]);
  }

  void findPlaces() {
    for (int copy = 0; copy < copies; ++copy) {
      std::vector<void *> &found = places.emplace_back();
      for (size_t i = 0; i < work.shapes.placeBytes.size(); ++i)
        found.push_back(work.index.places[i].isInArena      ? base(copy) + arena + work.shapes.arenaOffsets[i]
                        : work.index.places[i].isKeptZero   ? base(copy) + keptZero
                        : plan.buffers[i].kind == BufferPlan::Kind::Weight
                            ? constants->address(static_cast<BufferId>(i))
                            : base(copy) + offsets[i]);
    }
  }

  Status launch(int copy, size_t index) {
    const ShapePlan::Launch &one = work.shapes.launches[index];
    const std::vector<void *> &addresses = places[static_cast<size_t>(copy)];
    Status status = resolveArguments(one, addresses, /*exchange=*/nullptr, backend, arguments);
    if (status && one.clearsWorkspace)
      status = clearWorkspace(one, addresses, backend);
    if (!status)
      return status;
    const bool followsRun = index == 0 && copy > 0 && plan.kernels[one.kernel].usesPdl &&
                            !one.clearsWorkspace && plan.kernels[work.shapes.launches.back().kernel].usesPdl;
    return backend.launch(
        {work.kernels.at(one.kernel), one.grid, arguments, one.overlapsPrevious || followsRun});
  }

  const Work &work;
  const ProgramPlan &plan;
  Backend &backend;
  Shared &shared;
  const MeasureOptions &options;
  std::optional<WeightStore> constants;
  std::vector<size_t> offsets; ///< of inputs and outputs
  size_t arena = 0, keptZero = 0, stride = 0;
  int copies = 1;
  std::vector<std::vector<void *>> places; ///< addresses, for each copy
  std::shared_ptr<void> memory;
  std::vector<uint64_t> arguments;
};

/// Every kernel that some run launches, once; `works` learn where.
std::vector<KernelPlan> collectKernels(std::span<Work> works) {
  std::vector<KernelPlan> kernels;
  std::map<std::string, uint32_t>
      numbers; // by source: names are not unique over plans of other makers, but for those of library calls
  for (Work &work : works)
    for (const ShapePlan::Launch &launch : work.shapes.launches) {
      const KernelPlan &kernel = work.plan->kernels[launch.kernel];
      auto [place, isNew] = numbers.try_emplace(kernel.isLibraryCall ? kernel.name : kernel.source,
                                                static_cast<uint32_t>(kernels.size()));
      if (isNew)
        kernels.push_back(kernel);
      KernelPlan &shared = kernels[place->second];
      shared.dynamicSharedBytes = std::max(shared.dynamicSharedBytes, kernel.dynamicSharedBytes);
      work.kernels[launch.kernel] = place->second;
    }
  return kernels;
}

std::vector<Result<double>> timeAll(std::span<Work> works, const BackendFactory &makeBackend,
                                    const MeasureOptions &options,
                                    const std::function<void(size_t)> &onTimed) {
  const std::vector<KernelPlan> kernels = collectKernels(works);
  std::vector<Result<double>> times;
  Result<std::unique_ptr<Backend>> backend = makeBackend(kernels);
  if (!backend && works.size() > 1) { // alone, so that one bad kernel costs only its own plan
    for (size_t i = 0; i < works.size(); ++i) {
      works[i].kernels.clear();
      times.push_back(
          timeAll(works.subspan(i, 1), makeBackend, options, [&](size_t) { onTimed(i); }).front());
    }
    return times;
  }
  if (!backend)
    return {backend.error()};
  Shared shared(**backend);
  for (size_t i = 0; i < works.size(); ++i) {
    onTimed(i);
    times.push_back(Runs(works[i], **backend, shared, options).time());
  }
  return times;
}

} // namespace

std::vector<Result<double>> measurePlans(std::span<const ProgramPlan *const> plans, const SymbolValues &sizes,
                                         const BackendFactory &makeBackend, const MeasureOptions &options,
                                         const std::function<void(size_t)> &onTimed) {
  std::vector<Result<double>> results(plans.size(), Result<double>(0.0));
  std::vector<Work> works;
  std::vector<size_t> indices;
  for (size_t i = 0; i < plans.size(); ++i) {
    Result<ShapePlan> shapes = shapesAt(*plans[i], sizes);
    if (!shapes) {
      results[i] = shapes.error();
      continue;
    }
    works.push_back({plans[i], std::move(*shapes), {}});
    indices.push_back(i);
  }
  if (works.empty())
    return results;
  std::vector<Result<double>> times = timeAll(works, makeBackend, options, [&](size_t i) {
    if (onTimed)
      onTimed(indices[i]);
  });
  for (size_t i = 0; i < times.size(); ++i)
    results[indices[i]] = std::move(times[i]);
  return results;
}

} // namespace fusion
