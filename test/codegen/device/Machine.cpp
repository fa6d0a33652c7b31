#include "test/codegen/device/Machine.h"

#include "codegen/device/Includes.h"
#include "runtime/cuda/Driver.h"
#include "runtime/cuda/Nvrtc.h"
#include "runtime/emulate/HostCompiler.h"
#include "test/codegen/device/Emulation.h"

namespace fusion::samples {

namespace {

class EmulatedKernels : public Kernels {
public:
  static Result<std::unique_ptr<Kernels>> compile(std::span<const KernelPlan> plans) {
    auto compiled = EmulatedKernel::compileAll(plans, test::emulationCacheFolder());
    if (!compiled)
      return compiled.error();
    auto result = std::make_unique<EmulatedKernels>();
    result->kernels = std::move(*compiled);
    return std::unique_ptr<Kernels>(std::move(result));
  }

  Status launch(size_t kernel, Grid grid, std::initializer_list<Argument> arguments) override {
    std::vector<Argument> values(arguments);
    std::vector<void *> pointers;
    for (Argument &value : values)
      pointers.push_back(value.memory ? static_cast<void *>(&value.memory) : &value.value);
    return kernels[kernel]->launch(grid.x, grid.y, grid.z, pointers.data());
  }

private:
  std::vector<std::shared_ptr<EmulatedKernel>> kernels;
};

class CudaKernels : public Kernels {
public:
  static Result<std::unique_ptr<Kernels>> compile(std::span<const KernelPlan> plans) {
    auto result = std::make_unique<CudaKernels>();
    auto driver = cuda::Driver::instance();
    if (!driver)
      return driver.error();
    auto nvrtc = Nvrtc::instance();
    if (!nvrtc)
      return nvrtc.error();
    auto properties = cuda::deviceProperties(0);
    if (!properties)
      return properties.error();
    result->driver = *driver;
    cuda::Context context = nullptr;
    if (Status status = (*driver)->check((*driver)->cuDevicePrimaryCtxRetain(&context, 0), "context");
        !status)
      return status.error();
    (*driver)->cuCtxSetCurrent(context);
    for (const KernelPlan &plan : plans) {
      auto cubin = (*nvrtc)->compile(expandSource(plan.source, Flavour::Cuda), plan.name, properties->arch());
      if (!cubin)
        return cubin.error();
      Loaded loaded{nullptr, nullptr, plan};
      if (Status status =
              (*driver)->check((*driver)->cuModuleLoadData(&loaded.module, cubin->bytes.data()), plan.name);
          !status)
        return status.error();
      (*driver)->cuModuleGetFunction(&loaded.function, loaded.module, plan.name.c_str());
      result->kernels.push_back(loaded);
    }
    return std::unique_ptr<Kernels>(std::move(result));
  }
  ~CudaKernels() override {
    for (const Loaded &loaded : kernels)
      driver->cuModuleUnload(loaded.module);
    driver->cuDevicePrimaryCtxRelease_v2(0);
  }

  Status launch(size_t kernel, Grid grid, std::initializer_list<Argument> arguments) override {
    const Loaded &loaded = kernels[kernel];
    std::vector<Argument> values(arguments);
    std::vector<cuda::DevicePointer> memory(values.size());
    std::vector<void *> pointers;
    for (size_t i = 0; i < values.size(); ++i) {
      pointers.push_back(&values[i].value);
      if (!values[i].memory)
        continue;
      pointers.back() = &memory[i];
      if (Status status = driver->check(driver->cuMemAlloc_v2(&memory[i], values[i].bytes), "memory");
          !status)
        return status;
      driver->cuMemcpyHtoDAsync_v2(memory[i], values[i].memory, values[i].bytes, nullptr);
    }
    cuda::LaunchConfig config = {grid.x,
                                 grid.y,
                                 grid.z,
                                 loaded.plan.blockX,
                                 loaded.plan.blockY,
                                 loaded.plan.blockZ,
                                 loaded.plan.dynamicSharedBytes,
                                 nullptr,
                                 nullptr,
                                 0};
    Status status =
        driver->check(driver->cuLaunchKernelEx(&config, loaded.function, pointers.data(), nullptr), "launch");
    if (status)
      status = driver->check(driver->cuStreamSynchronize(nullptr), loaded.plan.name);
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i].memory) {
        driver->cuMemcpyDtoHAsync_v2(values[i].memory, memory[i], values[i].bytes, nullptr);
        driver->cuStreamSynchronize(nullptr);
        driver->cuMemFree_v2(memory[i]);
      }
    return status;
  }

private:
  struct Loaded {
    cuda::Module module;
    cuda::Function function;
    KernelPlan plan;
  };
  const cuda::Driver *driver = nullptr;
  std::vector<Loaded> kernels;
};

} // namespace

std::string whyAbsent(Machine machine) {
  if (machine == Machine::Emulated) {
    auto compiler = emulate::HostCompiler::find();
    return compiler ? "" : compiler.error().message;
  }
  if (cuda::deviceCount() == 0)
    return "no GPU";
  auto nvrtc = Nvrtc::instance();
  return nvrtc ? "" : nvrtc.error().message;
}

Result<std::unique_ptr<Kernels>> compileFor(Machine machine, std::span<const KernelPlan> plans) {
  return machine == Machine::Emulated ? EmulatedKernels::compile(plans) : CudaKernels::compile(plans);
}

} // namespace fusion::samples
