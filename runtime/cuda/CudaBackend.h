// The backend of one NVIDIA GPU. Internal to this folder.
#pragma once

#include "runtime/CublasLtRunner.h"
#include "runtime/cuda/GraphRecording.h"
#include "runtime/cuda/Marks.h"
#include "runtime/cuda/PinnedMemory.h"

#include <fmt/format.h>

#include <map>

namespace fusion::cuda {

inline DevicePointer address(const void *pointer) { return reinterpret_cast<DevicePointer>(pointer); }

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
  std::shared_ptr<void> allocateHost(size_t bytes) override;
  std::optional<size_t> freeBytes() const override;
  Status upload(void *target, const void *source, size_t bytes) override;
  Status uploadRows(void *target, const void *source, size_t bytes, size_t pitch, size_t count) override;
  Status download(void *target, const void *source, size_t bytes) override;
  Result<std::shared_ptr<void>> mark() override;
  Status downloadAll(std::span<const Download> wanted) override;
  Status copy(void *target, const void *source, size_t bytes) override;
  Status fill(void *target, uint8_t value, size_t bytes) override;
  Status prepare(std::span<const uint32_t> wanted) override;
  Status encodeTensorMap(const TensorMapArgument &map, std::span<const int64_t> extents, void *address,
                         std::span<uint64_t, tensorMapWords> words) override;
  Status launch(const Launch &launch) override;
  Status synchronize() override;
  void *stream() const override { return session->queue(); }
  Status enter(std::optional<void *> stream) override {
    return session->enter(stream ? static_cast<Stream>(*stream) : session->ownStream());
  }
  Status leave() override { return session->leave(); }
  Result<bool> capturing() const override { return session->capturing(); }
  Result<std::unique_ptr<Recording>> record(const std::function<Status()> &work) override;
  Status emptyCache() override;
  Result<double> time(const std::function<Status()> &work) override;
  Result<std::vector<double>> timeEach(std::span<const std::function<Status()>> works,
                                       const std::function<Status()> &ready) override;

private:
  CudaBackend(std::shared_ptr<Session> session, DeviceProperties properties, const BackendKernels &kernels);
  /// Makes it ready to launch. Several kernels may be in one cubin, which is loaded once.
  Status load(uint32_t kernel, const std::string &cubin);
  Status noteNode();
  Status mark(Event event, unsigned flags);
  Result<double> microsecondsBetween(Event begin, Event end);
  Result<CublasLtRunner *> matmuls();
  /// Rows as those of uploadRows, through page-locked memory.
  Status uploadStaged(DevicePointer target, const std::byte *source, size_t rowBytes, size_t pitch,
                      size_t rows);

  Status makeStaging();
  Status downloadStaged(std::byte *target, DevicePointer source, size_t bytes);

  std::shared_ptr<Session> session;
  const Driver &driver;
  DeviceProperties properties;
  std::span<const KernelPlan> plans;
  KernelCache *cache;          ///< may be null; for what is compiled by prepare()
  std::vector<Kernel> kernels; ///< one for each plan; without its function while it is not compiled
  std::map<std::string, Module> modules; ///< that are loaded, by hashes of their cubins
  std::byte *staging[2] = {nullptr, nullptr};
  std::unique_ptr<Events> stagingDone;
  std::shared_ptr<PinnedMemory> pinned; ///< null until a result goes to the host
  std::shared_ptr<Marks> marks;         ///< null until there is one
  std::vector<void *> argumentPointers;
  bool recording = false; ///< within record(): …
  size_t launchesRecorded = 0;
  std::vector<GraphNode> nodes; ///< … what each launch has become, where the driver says so
  std::shared_ptr<void> flush; ///< what emptyCache() writes
  std::string cacheFolder;
  bool mayTryAlgorithms;
  std::unique_ptr<CublasLtRunner> runner; ///< null until it is needed
};

} // namespace fusion::cuda
