#include "runtime/cuda/GraphRecording.h"

#include <fmt/format.h>

namespace fusion::cuda {

GraphRecording::GraphRecording(std::shared_ptr<Session> session, const std::vector<Kernel> &kernels,
                               Graph graph, GraphExec executable, std::vector<GraphNode> nodes)
    : session(std::move(session)), kernels(kernels), graph(graph), executable(executable),
      nodes(std::move(nodes)) {}

GraphRecording::~GraphRecording() {
  session->activate();
  session->driver.cuGraphExecDestroy(executable);
  session->driver.cuGraphDestroy(graph);
}

Status GraphRecording::replay() {
  session->activate();
  return session->driver.check(session->driver.cuGraphLaunch(executable, session->queue()),
                               "replaying a CUDA graph");
}

Status GraphRecording::change(size_t index, const Backend::Launch &launch) {
  const Kernel &kernel = kernels[launch.kernel];
  kernel.pointTo(launch.arguments, pointers);
  const KernelNodeParameters parameters = {
      kernel.function, launch.grid[0],     launch.grid[1],  launch.grid[2], kernel.block[0], kernel.block[1],
      kernel.block[2], kernel.sharedBytes, pointers.data(), nullptr,        nullptr,         nullptr};
  const int code = session->driver.cuGraphExecKernelNodeSetParams_v2(executable, nodes[index], &parameters);
  return code == 0
             ? Status()
             : session->driver.check(code, fmt::format("changing kernel {} of a CUDA graph", kernel.name));
}

} // namespace fusion::cuda
