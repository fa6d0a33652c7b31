// Launches recorded as a CUDA graph.
#pragma once

#include "runtime/Backend.h"
#include "runtime/cuda/Session.h"

namespace fusion::cuda {

/// A kernel on the device, and what every launch of it has.
struct Kernel {
  std::string name;
  Function function = nullptr;
  unsigned block[3] = {1, 1, 1};
  unsigned cluster[3] = {1, 1, 1}; ///< set at the launch where it is more than one block
  unsigned sharedBytes = 0;
  bool cooperative = false;
  std::optional<LibraryMatmul> matmul; ///< not a kernel, but a matmul by cuBLASLt
  std::vector<size_t> argumentWords;   ///< where each parameter begins in Backend::Launch::arguments

  /// Pointers to the arguments of a launch, for the driver.
  void pointTo(std::span<const uint64_t> arguments, std::vector<void *> &pointers) const {
    pointers.clear();
    for (size_t word : argumentWords)
      pointers.push_back(const_cast<uint64_t *>(&arguments[word]));
  }
};

class GraphRecording : public Backend::Recording {
public:
  /// `kernels` and their number must outlive it. Both graphs become its own.
  GraphRecording(std::shared_ptr<Session> session, const std::vector<Kernel> &kernels, Graph graph,
                 GraphExec executable, std::vector<GraphNode> nodes);
  ~GraphRecording() override;
  Status replay() override;
  Status change(size_t index, const Backend::Launch &launch) override;
  bool canChange() const override { return !nodes.empty(); }

private:
  std::shared_ptr<Session> session;
  const std::vector<Kernel> &kernels;
  Graph graph; ///< whose nodes name those of the executable one
  GraphExec executable;
  std::vector<GraphNode> nodes; ///< of each launch; empty if the driver does not say
  std::vector<void *> pointers;
};

} // namespace fusion::cuda
