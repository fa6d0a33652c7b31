// What the handles of fusion.h hold.
#pragma once

#include "api/Fusion.h"
#include "api/c/fusion.h"

#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <new>

namespace fusion::c {

/// Ports as C sees them; what the pointers name lives here.
class Ports {
public:
  explicit Ports(const std::vector<Port> &ports);
  const fusion_port *get(size_t *count) const;

private:
  std::deque<std::string> texts;
  std::deque<std::vector<const char *>> dims;
  std::vector<fusion_port> entries;
};

/// Calls `release`, if it is given, with `context` when it goes.
struct Lender {
  fusion_release release = nullptr;
  void *context = nullptr;
  ~Lender() {
    if (release)
      release(context);
  }
};

/// Keeps the error for fusion_last_error().
fusion_status fail(const Error &error);
/// Calls `release`, if it is given, with `context` when it goes.
std::shared_ptr<void> ownerOf(fusion_release release, void *context);
/// A copy that fusion_free() frees.
char *copyText(std::string_view text);

/// Maps of a program's inputs, each for a run at a time: the names stay, and room for the shapes. With
/// hundreds of inputs, making the map anew would be half of what a call costs the host.
class InputMaps {
  struct Map {
    NamedTensors map;
    std::vector<Tensor *> places; ///< in it, by number of input
  };

public:
  /// One for as long as it lives.
  class Lent {
  public:
    Lent(InputMaps &owner, const std::vector<Port> &ports, const fusion_tensor *const *tensors);
    Lent(const Lent &) = delete;
    ~Lent();
    /// With the tensors, which are in the order of the ports: those that are bound themselves, and copies of
    /// the others. Null if one that is bound is given twice. Called once.
    const NamedTensors *take();

  private:
    InputMaps &owner;
    const fusion_tensor *const *tensors;
    size_t taken = 0;
    std::list<Map> held; ///< one
  };

private:
  std::mutex mutex;
  std::list<Map> spare;
};

/// Runs `work`, which returns a Status; nothing is thrown out of here.
template <class Work>
fusion_status guarded(Work work) {
  try {
    Status status = work();
    return status ? FUSION_OK : fail(status.error());
  } catch (const std::bad_alloc &) {
    return fail(environment("out of memory"));
  } catch (const std::exception &problem) {
    return fail(environment(problem.what()));
  }
}

} // namespace fusion::c

struct fusion_options {
  fusion::LoadOptions load;
  fusion::CompileOptions compile;
};

struct fusion_graph {
  explicit fusion_graph(fusion::Graph loaded)
      : graph(std::move(loaded)), inputs(graph.inputs()), outputs(graph.outputs()) {}
  const fusion::Graph graph;
  const fusion::c::Ports inputs, outputs;
  mutable std::mutex mutex; ///< a graph is compiled by one thread at a time
};

struct fusion_program {
  explicit fusion_program(fusion::Program made);
  fusion::Program program;
  const fusion::c::Ports inputs, outputs;
  const std::string device;
  std::vector<std::string> outputNames;
  fusion::c::InputMaps inputMaps;
  std::vector<fusion::Program::Cache> cacheNames;
  std::vector<fusion_cache> caches;
};

struct fusion_tensor {
  fusion::Tensor tensor;
  /// Of fusion_tensor_bind(): owns the tensor's memory, and nothing else's.
  std::shared_ptr<fusion::c::Lender> lender = nullptr;
  bool isBound = false;
  /// Whether others than it and its tensor have what fusion_tensor_bind() lent.
  bool isShared() const { return lender.use_count() > 2; }
};
