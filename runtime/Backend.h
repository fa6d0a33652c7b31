// What the executor asks of a device: memory, copies, kernels. Two exist: CUDA and emulation on the host.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Tensor.h"
#include "runtime/CompileKernels.h"
#include "runtime/Profile.h"

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fusion {

/// Work is queued and done in order; synchronize() waits. Not thread-safe. Errors of queued work may come
/// with a later call. Everything it made must be destroyed before the process's end, in any order.
class Backend {
public:
  virtual ~Backend() = default;

  virtual Device device() const = 0;
  /// For people: "NVIDIA H200 (sm_90a)", "emulation".
  virtual std::string description() const = 0;
  virtual DevicePeaks peaks() const = 0;
  /// True if kernels can use host pointers as they are.
  virtual bool sharesHostMemory() const = 0;

  /// Aligned to 256 bytes, contents undefined; freed with the last copy of the pointer.
  virtual Result<std::shared_ptr<void>> allocate(size_t bytes) = 0;
  /// Host memory to which download() is fastest; null where there is none. Given back with the last copy of
  /// the pointer.
  virtual std::shared_ptr<void> allocateHost(size_t bytes) { return nullptr; }
  /// Bytes that allocate() could give now; nothing where there is no telling.
  virtual std::optional<size_t> freeBytes() const { return std::nullopt; }
  /// What allocate() has given, and most of it at once.
  struct Allocated {
    std::atomic<size_t> now = 0, peak = 0;
    void add(size_t bytes) {
      const size_t sum = now += bytes;
      for (size_t seen = peak; seen < sum && !peak.compare_exchange_weak(seen, sum);) {
      }
    }
  };
  size_t allocatedBytes() const { return allocated->now; }
  size_t peakBytes() const { return allocated->peak; }
  /// From host memory; `source` may be reused when it returns.
  virtual Status upload(void *target, const void *source, size_t bytes) = 0;
  /// The same for `count` rows of `bytes` bytes, `pitch` bytes apart in host memory and side by side in
  /// `target`.
  virtual Status uploadRows(void *target, const void *source, size_t bytes, size_t pitch, size_t count);
  /// To host memory; the bytes are there when it returns.
  virtual Status download(void *target, const void *source, size_t bytes) = 0;
  /// The end of what has been queued so far; null where every call is done when it returns.
  virtual Result<std::shared_ptr<void>> mark() { return std::shared_ptr<void>(); }
  struct Download {
    void *target;
    const void *source;
    size_t bytes;
    std::shared_ptr<void> after; ///< what mark() gave; null: all that has been queued
  };
  /// Each as soon as what it comes after is done, whatever has been queued since.
  virtual Status downloadAll(std::span<const Download> wanted);
  /// Between two places on the device.
  virtual Status copy(void *target, const void *source, size_t bytes) = 0;
  /// `source` to `target`, of the same type and shape, each dense or with regular gaps, on the host or this
  /// device.
  Status transfer(const Tensor &source, Tensor &target);
  virtual Status fill(void *target, uint8_t value, size_t bytes) = 0;

  struct Launch {
    uint32_t kernel = 0; ///< index into the kernels that the backend was made with; no sum over ranks
    std::array<uint32_t, 3> grid = {1, 1, 1};
    /// For each parameter an address or a 64-bit integer, for a tensor map its tensorMapWords.
    std::span<const uint64_t> arguments;
    /// May begin while the launch before it still runs: both wait with pdl_wait() where they must.
    bool overlapsPrevious = false;
  };
  static constexpr size_t tensorMapWords = 16;
  /// A tensor map of memory at `address`, as a kernel of this backend takes it. `extents`: its shape, then
  /// its strides.
  virtual Status encodeTensorMap(const TensorMapArgument &map, std::span<const int64_t> extents,
                                 void *address, std::span<uint64_t, tensorMapWords> words) = 0;
  /// Before the first launch of these kernels, outside of record(): compiles those that are on demand.
  virtual Status prepare(std::span<const uint32_t> kernels) { return {}; }
  virtual Status launch(const Launch &launch) = 0;
  /// Has a library queue work of its own on stream(): now, or, within record() of a device without streams,
  /// at each replay.
  virtual Status call(std::function<Status()> work) { return work(); }
  /// Waits for the stream that work goes to.
  virtual Status synchronize() = 0;
  /// The stream that work goes to now, for libraries that queue work of their own; null where there is none.
  virtual void *stream() const { return nullptr; }

  /// From here to leave(), work goes to the caller's `stream` (a CUstream or cudaStream_t of the device), or
  /// to the backend's own. Still one thing after the other: what was queued elsewhere before is waited for on
  /// the device.
  virtual Status enter(std::optional<void *> stream) = 0;
  virtual Status leave() = 0;
  /// Whether the stream records a graph of the caller's: launches go into it, and nothing can be waited for.
  virtual Result<bool> capturing() const = 0;

  /// Launches that can be repeated at once.
  class Recording {
  public:
    virtual ~Recording() = default;
    virtual Status replay() = 0;
    /// From the next replay on, the `index`-th of the launches has this grid and these arguments: the same
    /// kernel with the same overlap. Replays that are queued already keep theirs.
    virtual Status change(size_t index, const Launch &launch) = 0;
    /// Whether change() can be called.
    virtual bool canChange() const = 0;
  };
  /// Calls `work`, which only launches, without running it. Null where the device cannot record.
  virtual Result<std::unique_ptr<Recording>> record(const std::function<Status()> &work) = 0;

  /// Queues the eviction of what earlier work left in the device's cache.
  virtual Status emptyCache() = 0;
  /// Microseconds that the device spends on what `work` queues.
  virtual Result<double> time(const std::function<Status()> &work) = 0;
  /// The same for each of `works`, which only launch, run once in order with no gaps between. Calls `ready`
  /// when all is set up, before the first one runs.
  virtual Result<std::vector<double>> timeEach(std::span<const std::function<Status()>> works,
                                               const std::function<Status()> &ready) = 0;

protected:
  const std::shared_ptr<Allocated> allocated = std::make_shared<Allocated>(); ///< outlives what was allocated
};

/// What the kernels are compiled from or were compiled to.
struct BackendKernels {
  std::span<const KernelPlan> plans; ///< outlive the backend
  /// For each plan, if not empty: not every run needs it. It is compiled by the first prepare() that names
  /// it, unless `cubins` has it.
  std::vector<bool> onDemand;
  /// One for each plan, compiled for `cubinArch`; used when the device runs that, else ignored. May be empty.
  std::span<const std::string> cubins;
  std::string cubinArch;
  KernelCache *cache = nullptr; ///< may be null; outlives the backend where kernels are on demand
  bool mayTryAlgorithms = false; ///< of libraries: see CublasLtRunner
};

/// Errors: no driver, no GPU, no NVRTC (Environment); a kernel that does not compile.
Result<std::unique_ptr<Backend>> makeCudaBackend(int ordinal, const BackendKernels &kernels);
/// Errors: no host compiler (Environment); a kernel that cannot be emulated, with its reason.
Result<std::unique_ptr<Backend>> makeEmulatedBackend(const BackendKernels &kernels);

} // namespace fusion
