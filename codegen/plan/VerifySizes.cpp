// What a plan's numbers may be, as far as they are known before its sizes are: the runtime checks the others
// when shapes are bound. A plan may come from a file whose digests were forged.
#include "codegen/plan/VerifySteps.h"
#include "codegen/target/TargetInfo.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {
namespace {

constexpr int64_t mostBytes = int64_t(1) << 46; ///< beyond any device; keeps sums from overflowing

bool isEmpty(const DimShape &shape) {
  return std::ranges::any_of(shape, [](const Dim &dim) { return dim.constant() == 0; });
}

/// Bytes of a tensor; nothing where a size is not known yet. Negative where a size is, or where they are too
/// many.
std::optional<int64_t> bytesOf(DType type, const DimShape &shape) {
  auto bytes = static_cast<int64_t>(byteSize(type));
  bool known = true;
  for (const Dim &dim : shape) {
    const std::optional<int64_t> size = dim.constant();
    if (size && *size < 0)
      return -1;
    known = known && size;
    if (size && (__builtin_mul_overflow(bytes, std::max<int64_t>(*size, 1), &bytes) || bytes > mostBytes))
      return -1;
  }
  if (!known)
    return std::nullopt;
  return isEmpty(shape) ? 0 : bytes;
}

std::string problemOf(const KernelPlan &kernel, int64_t mostShared) {
  if (kernel.dynamicSharedBytes > mostShared)
    return fmt::format("{} bytes of shared memory, a block has {}", kernel.dynamicSharedBytes, mostShared);
  return "";
}

std::string problemOfGrid(const KernelLaunch &launch, const KernelPlan &kernel) {
  const Dim *extents[] = {&launch.gridX, &launch.gridY, &launch.gridZ};
  const uint32_t cluster[] = {kernel.clusterX, kernel.clusterY, kernel.clusterZ};
  for (int axis = 0; axis < 3; ++axis) {
    const std::optional<int64_t> extent = extents[axis]->constant();
    if (!extent)
      continue;
    if (*extent < 0 || *extent > (axis == 0 ? INT32_MAX : 65535))
      return fmt::format("a grid of {} blocks along {}", *extent, "xyz"[axis]);
    if (*extent % cluster[axis] != 0)
      return fmt::format("a grid of {} blocks along {}, in clusters of {}", *extent, "xyz"[axis],
                         cluster[axis]);
  }
  return "";
}

/// What is wrong with a place `offset` bytes into a buffer.
std::string problemOfOffset(const BufferPlan &buffer, const Dim &offset) {
  const std::optional<int64_t> bytes = bytesOf(buffer.type, buffer.shape), at = offset.constant();
  if (at && (*at < 0 || *at > bytes.value_or(mostBytes)))
    return fmt::format("begins at byte {} of buffer {}", *at, buffer.name);
  return "";
}

struct ProblemOfArgument {
  const ProgramPlan &plan;
  std::string operator()(const PointerArgument &pointer) const {
    return problemOfOffset(plan.buffers[pointer.buffer], pointer.byteOffset);
  }
  std::string operator()(const ScalarArgument &) const { return ""; }
  std::string operator()(const ExchangeArgument &) const { return ""; }
  std::string operator()(const WorkspaceArgument &workspace) const {
    const int64_t bytes = workspace.bytes.constant().value_or(0);
    return bytes < 0 || bytes > mostBytes ? fmt::format("is a workspace of {} bytes", bytes) : "";
  }
  /// The view's last element lies in the buffer. One without elements may begin behind an empty buffer.
  std::string operator()(const TensorMapArgument &map) const {
    const BufferPlan &buffer = plan.buffers[map.buffer];
    if (std::string problem = problemOfOffset(buffer, map.byteOffset);
        !problem.empty() && !isEmpty(map.shape))
      return problem;
    const std::optional<int64_t> bytes = bytesOf(buffer.type, buffer.shape), at = map.byteOffset.constant();
    int64_t last = 0;
    for (size_t dim = 0; dim < map.shape.size(); ++dim) {
      const std::optional<int64_t> size = map.shape[dim].constant(), stride = map.strides[dim].constant();
      if ((size && (*size < 0 || *size > mostBytes)) || (stride && (*stride < 0 || *stride > mostBytes)))
        return fmt::format("has a view of {} with strides of {}", shapeString(map.shape),
                           shapeString(map.strides));
      int64_t step = 0;
      if (!size || !stride || *size == 0) // not known, or nothing is read
        return "";
      if (__builtin_mul_overflow(*size - 1, *stride, &step) || __builtin_add_overflow(last, step, &last))
        return fmt::format("has a view of {} with strides of {}", shapeString(map.shape),
                           shapeString(map.strides));
    }
    int64_t end = 0;
    if (bytes && at &&
        (__builtin_mul_overflow(last + 1, static_cast<int64_t>(byteSize(map.type)), &end) ||
         end > *bytes - *at))
      return fmt::format("has a view that ends behind the {} bytes of buffer {}", *bytes, buffer.name);
    return "";
  }
};

std::string problemOf(const ProgramPlan &plan, const KernelLaunch &launch) {
  const KernelPlan &kernel = plan.kernels[launch.kernel];
  std::string problem = problemOfGrid(launch, kernel);
  for (size_t i = 0; problem.empty() && i < launch.arguments.size(); ++i)
    if (std::string reason = std::visit(ProblemOfArgument{plan}, launch.arguments[i]); !reason.empty())
      problem = fmt::format("argument {} ({}) {}", i, kernel.parameters[i].name, reason);
  return problem.empty() ? "" : fmt::format("launch of {} at {}: {}", kernel.name, launch.location, problem);
}

/// A kernel takes the buffer's elements from the tensor that a caller gives, or gives them to the caller.
std::string problemOf(const ProgramPlan &plan, const PortPlan &port, bool isInput) {
  const BufferPlan &buffer = plan.buffers[port.buffer];
  const std::optional<int64_t> bytes = bytesOf(port.type, port.shape);
  if (bytes && *bytes < 0)
    return fmt::format("the shape {} is too large", shapeString(port.shape));
  if (port.strides.empty() ? isInput && (port.type != buffer.type || port.shape != buffer.shape)
                           : port.type != buffer.type)
    return fmt::format("{} {} in a buffer of {} {}", shapeString(port.shape), name(port.type),
                       shapeString(buffer.shape), name(buffer.type));
  return port.strides.empty() ? problemOfOffset(buffer, port.byteOffset) : "";
}

} // namespace

Status verifySizes(const ProgramPlan &plan) {
  const Result<TargetInfo> target = TargetInfo::find(plan.target);
  const int64_t mostShared = target ? target->sharedBytesPerBlock : TargetInfo::mostSharedBytesPerBlock();
  for (const KernelPlan &kernel : plan.kernels)
    if (std::string problem = problemOf(kernel, mostShared); !problem.empty())
      return badInput(fmt::format("kernel {}: {}", kernel.name, problem));
  for (const BufferPlan &buffer : plan.buffers)
    if (bytesOf(buffer.type, buffer.shape).value_or(0) < 0)
      return badInput(
          fmt::format("buffer {}: its shape {} is no size", buffer.name, shapeString(buffer.shape)));
  for (const KernelLaunch *launch : plan.launches())
    if (std::string problem = problemOf(plan, *launch); !problem.empty())
      return badInput(problem);
  for (const std::vector<PortPlan> *ports : {&plan.inputs, &plan.outputs})
    for (const PortPlan &port : *ports)
      if (std::string problem = problemOf(plan, port, ports == &plan.inputs); !problem.empty())
        return badInput(
            fmt::format("{} {}: {}", ports == &plan.inputs ? "input" : "output", port.name, problem));
  return {};
}

} // namespace fusion
