#include "codegen/plan/VerifySteps.h"

#include "ir/base/BindSymbols.h"
#include "ir/base/PlainText.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace fusion {

/// Names are put into source that is compiled.
static bool isIdentifier(std::string_view name) {
  auto isLetter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && isLetter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return isLetter(c) || (c >= '0' && c <= '9'); });
}

static Status verifyKernel(const KernelPlan &kernel) {
  if (kernel.name.empty() || kernel.source.empty() != kernel.isLibraryCall)
    return badInput("a kernel has no name or no source, or is a library call with one");
  if (!isIdentifier(kernel.name))
    return badInput(fmt::format("the kernel name '{}' is no identifier", plainText(kernel.name)));
  const size_t wanted = kernel.matmul ? LibraryMatmul::parameters : 3;
  if (kernel.isLibraryCall && kernel.parameters.size() != wanted)
    return badInput(fmt::format("library call {}: {} parameters, it takes {}", kernel.name,
                                kernel.parameters.size(), wanted));
  if (kernel.matmul && !kernel.isLibraryCall)
    return badInput(fmt::format("kernel {} is a matmul by a library, but has a source", kernel.name));
  uint64_t threads = uint64_t(kernel.blockX) * kernel.blockY * kernel.blockZ;
  if (kernel.blockX > 1024 || kernel.blockY > 1024 || kernel.blockZ > 64 || threads == 0 || threads > 1024)
    return badInput(fmt::format("kernel {}: a block of {}x{}x{} threads", kernel.name, kernel.blockX,
                                kernel.blockY, kernel.blockZ));
  uint64_t blocks = uint64_t(kernel.clusterX) * kernel.clusterY * kernel.clusterZ;
  if (kernel.clusterX > 16 || kernel.clusterY > 16 || kernel.clusterZ > 16 || blocks == 0 || blocks > 16)
    return badInput(fmt::format("kernel {}: a cluster of {}x{}x{} blocks", kernel.name, kernel.clusterX,
                                kernel.clusterY, kernel.clusterZ));
  return {};
}

/// The shape of what a weight's contents hold; an error if the part that is used does not lie in them.
static Result<DimShape> shapeOfContents(const BufferPlan &buffer) {
  if (!buffer.window)
    return buffer.shape;
  const auto &[whole, starts] = *buffer.window;
  bool fits = whole.size() == buffer.shape.size() && starts.size() == buffer.shape.size();
  for (size_t i = 0; fits && i < whole.size(); ++i) {
    const std::set<std::string> symbols = starts[i].symbols();
    const int64_t size = buffer.shape[i].constant().value_or(-1), room = size < 0 ? -1 : whole[i] - size;
    fits = room >= 0 && (symbols.empty() || symbols == std::set<std::string>{std::string(rankSymbol)}) &&
           starts[i].knownNonNegative() && (!starts[i].isStatic() || starts[i].value() <= room);
  }
  if (!fits)
    return badInput(fmt::format("weight {}: {} from {} on is no part of {}", buffer.name,
                                shapeString(buffer.shape), shapeString(starts), shapeString(whole)));
  return DimShape(whole.begin(), whole.end());
}

static Status verifyBuffer(const BufferPlan &buffer) {
  bool filled = !std::holds_alternative<std::monostate>(buffer.contents);
  if (filled != (buffer.kind == BufferPlan::Kind::Weight))
    return badInput(fmt::format("buffer {}: {}", buffer.name,
                                filled ? "only a weight may have contents" : "a weight without contents"));
  if (!filled)
    return buffer.window || !buffer.perRank.empty() || !buffer.parts.empty()
               ? badInput(fmt::format("buffer {}: only a weight may be a part of one", buffer.name))
               : Status();
  Result<DimShape> shape = shapeOfContents(buffer);
  if (!shape)
    return shape.error();
  uint64_t bytes = byteSize(buffer.type);
  for (const Dim &dim : *shape) {
    if (!dim.isStatic() || dim.value() < 0)
      return badInput(fmt::format("weight {}: shape {} is not static", buffer.name, shapeString(*shape)));
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim.value()), &bytes))
      return badInput(fmt::format("weight {}: shape {} is too large", buffer.name, shapeString(*shape)));
  }
  if (buffer.type == DType::I4 || buffer.type == DType::U4)
    bytes = (bytes + 1) / 2;
  auto *file = std::get_if<FileSpan>(&buffer.contents);
  uint64_t given = file ? file->length : std::get<Tensor>(buffer.contents).bytes();
  if (!buffer.parts.empty()) {
    auto isLikeFirst = [&](const FileSpan &part) { return file && part.length == file->length; };
    if (!std::ranges::all_of(buffer.parts, isLikeFirst) || !buffer.perRank.empty())
      return badInput(
          fmt::format("weight {}: its parts are not equal spans of files that all ranks read", buffer.name));
    if (__builtin_mul_overflow(given, buffer.parts.size(), &given))
      return badInput(fmt::format("weight {}: its parts are too large", buffer.name));
  }
  if (given != bytes)
    return badInput(fmt::format("weight {}: shape {} of {} needs {} bytes, its contents have {}", buffer.name,
                                shapeString(*shape), name(buffer.type), bytes, given));
  for (const FileSpan &own : buffer.perRank)
    if (!file || own.length != bytes)
      return badInput(
          fmt::format("weight {}: the ranks' files do not have {} bytes of it each", buffer.name, bytes));
  return {};
}

/// Why a tensor map cannot be encoded, as far as it is known before its sizes are; empty if it can be.
static std::string whyNoTensorMap(const TensorMapArgument &map) {
  const size_t rank = map.shape.size();
  const auto bytes = static_cast<int64_t>(byteSize(map.type));
  if (rank < 1 || rank > 5 || map.strides.size() != rank || map.box.size() != rank ||
      (!map.elementStrides.empty() && map.elementStrides.size() != rank))
    return "does not have one to five dims, with a stride and a box extent each";
  if (map.type == DType::I4 || map.type == DType::U4)
    return "is of elements of 4 bits";
  if (!(map.strides.back() == Dim(1)) || (!map.elementStrides.empty() && map.elementStrides.back() != 1))
    return "does not have its innermost elements side by side";
  for (size_t dim = 0; dim < rank; ++dim) {
    if (map.box[dim] < 1 || map.box[dim] > 256)
      return fmt::format("has a box of {} elements", map.box[dim]);
    if (!map.elementStrides.empty() && (map.elementStrides[dim] < 1 || map.elementStrides[dim] > 8))
      return fmt::format("takes every {}-th element", map.elementStrides[dim]);
    if (dim + 1 < rank && map.strides[dim].constant().value_or(16) * bytes % 16 != 0)
      return fmt::format("has a stride of {} bytes, not of whole 16", *map.strides[dim].constant() * bytes);
  }
  const int64_t row = map.box.back() * bytes, span = int64_t(16) << static_cast<int>(map.swizzle);
  if (row % 16 != 0)
    return fmt::format("has rows of {} bytes in its box, not of whole 16", row);
  if (map.swizzle != TensorMapArgument::Swizzle::None && row > span)
    return fmt::format("has rows of {} bytes in its box, and a swizzle of {}", row, span);
  return "";
}

namespace {
/// What is wrong with an argument of a launch, by its kind; empty if nothing is.
struct VerifyArgument {
  const ProgramPlan &plan;
  const KernelLaunch &launch;
  const Alternative &alternative;
  size_t index;

  std::string operator()(const PointerArgument &pointer) const {
    if (std::string reason = verifyBuffer(pointer.buffer, pointer.written); !reason.empty())
      return reason;
    for (uint32_t other : pointer.mayReplace) {
      auto *read =
          other < launch.arguments.size() ? std::get_if<PointerArgument>(&launch.arguments[other]) : nullptr;
      if (!pointer.written || other == index || !read || read->written)
        return fmt::format("may not replace argument {}", other);
    }
    return "";
  }
  std::string operator()(const ScalarArgument &) const { return ""; }
  std::string operator()(const TensorMapArgument &map) const {
    std::string reason = verifyBuffer(map.buffer, map.written);
    return reason.empty() ? whyNoTensorMap(map) : reason;
  }
  std::string operator()(const WorkspaceArgument &workspace) const {
    return workspace.bytes.constant().value_or(0) < 0 ? "has less than no bytes" : "";
  }
  std::string operator()(const ExchangeArgument &) const {
    const bool isLinked = alternative.linked && &launch == &*alternative.linked;
    return plan.ranks == 1 || !(alternative.collective || isLinked)
               ? "is the exchange memory of several ranks in a launch of one"
               : "";
  }

private:
  std::string verifyBuffer(BufferId buffer, bool written) const {
    if (buffer >= plan.buffers.size())
      return fmt::format("names buffer {} of {}", buffer, plan.buffers.size());
    const BufferPlan::Kind kind = plan.buffers[buffer].kind;
    if (written && kind == BufferPlan::Kind::Prepared)
      return "writes what the preparation makes";
    return written && kind == BufferPlan::Kind::Weight ? "writes a weight" : "";
  }
};
} // namespace

static Status verifyLaunch(const ProgramPlan &plan, const Alternative &alternative,
                           const KernelLaunch &launch) {
  static constexpr const char *kinds[] = {"a pointer", "a number", "a tensor map", "workspace",
                                          "the exchange memory"};
  if (launch.kernel >= plan.kernels.size())
    return badInput(
        fmt::format("launch at {}: kernel {} of {}", launch.location, launch.kernel, plan.kernels.size()));
  const KernelPlan &kernel = plan.kernels[launch.kernel];
  if (plan.ranks > 1 && !launch.sumsOver.empty() && launch.sumsOver != plan.axis)
    return badInput(
        fmt::format("launch of {} at {}: sums over the mesh axis \"{}\", but the ranks are the axis \"{}\"",
                    kernel.name, launch.location, launch.sumsOver, plan.axis));
  if (launch.arguments.size() != kernel.parameters.size())
    return badInput(fmt::format("launch of {} at {}: {} arguments for {} parameters", kernel.name,
                                launch.location, launch.arguments.size(), kernel.parameters.size()));
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const KernelArgument &argument = launch.arguments[i];
    const KernelPlan::Parameter &parameter = kernel.parameters[i];
    const auto kind = static_cast<size_t>(parameter.kind);
    std::string reason =
        argument.index() != kind
            ? fmt::format("is {} but the parameter is {}", kinds[argument.index()], kinds[kind])
            : std::visit(VerifyArgument{plan, launch, alternative, i}, argument);
    if (!reason.empty())
      return badInput(fmt::format("launch of {} at {}: argument {} ({}) {}", kernel.name, launch.location, i,
                                  parameter.name, reason));
  }
  return {};
}

/// Ranks, and how interface tensors are divided among them.
static Status verifyRanks(const ProgramPlan &plan) {
  if (plan.ranks < 1)
    return badInput(fmt::format("a plan for {} ranks", plan.ranks));
  if (plan.axis.empty())
    return badInput("a plan for ranks along an axis without a name");
  for (const std::vector<PortPlan> *ports : {&plan.inputs, &plan.outputs})
    for (const PortPlan &port : *ports)
      if (port.shard &&
          (port.shard->axis < 0 || port.shard->axis >= static_cast<int64_t>(port.shape.size()) ||
           port.shard->count < 1 || plan.ranks % port.shard->count != 0))
        return badInput(fmt::format("port {}: {} shards along dim {} for {} ranks", port.name,
                                    port.shard->count, port.shard->axis, plan.ranks));
  return {};
}

static Status verifyStrides(const ProgramPlan &plan, const PortPlan &port, const std::string &label,
                            bool input) {
  if (port.strides.empty())
    return {};
  const DimShape &storage = plan.buffers[port.buffer].shape;
  if (port.strides.size() != port.shape.size() || storage.size() != port.shape.size())
    return badInput(label + ": strides, shape and buffer have different ranks");
  Dim expected = 1;
  for (size_t dim = storage.size(); dim-- > 0; expected = expected * storage[dim])
    if (!(port.strides[dim] == expected))
      return badInput(label + ": its strides are not those of its buffer");
  auto isCache = [&](const PortPlan &other) { return other.buffer == port.buffer && !other.strides.empty(); };
  if (!input &&
      (std::none_of(plan.inputs.begin(), plan.inputs.end(), isCache) || !(port.byteOffset == Dim(0))))
    return badInput(label + ": lies in a buffer that no input with strides fills");
  return {};
}

static Status verifyPorts(const ProgramPlan &plan, const std::vector<PortPlan> &ports, bool inputs) {
  std::set<std::string_view> names;
  std::set<BufferId> buffers;
  for (const PortPlan &port : ports) {
    std::string label = fmt::format("{} {}", inputs ? "input" : "output", port.name);
    if (!names.insert(port.name).second)
      return badInput(label + ": the name appears twice");
    if (port.buffer >= plan.buffers.size())
      return badInput(fmt::format("{}: names buffer {} of {}", label, port.buffer, plan.buffers.size()));
    BufferPlan::Kind kind = plan.buffers[port.buffer].kind;
    if (inputs && (kind != BufferPlan::Kind::Input || !(port.byteOffset == Dim(0)) ||
                   !buffers.insert(port.buffer).second))
      return badInput(label + ": needs an input buffer of its own, from its start");
    if (Status status = verifyStrides(plan, port, label, inputs); !status)
      return status;
    if (!inputs && kind == BufferPlan::Kind::Temporary)
      return badInput(label + ": names a temporary buffer, which is reused before the results are read");
  }
  return {};
}

/// A symbol that says how a launch of the preparation looks, but that only a run gives a value; or none.
static std::optional<std::string> symbolOfRun(const KernelLaunch &launch) {
  std::vector<Dim> sizes = {launch.gridX, launch.gridY, launch.gridZ};
  for (const KernelArgument &argument : launch.arguments)
    if (auto *scalar = std::get_if<ScalarArgument>(&argument))
      sizes.push_back(scalar->value);
    else if (auto *pointer = std::get_if<PointerArgument>(&argument))
      sizes.push_back(pointer->byteOffset);
    else if (auto *map = std::get_if<TensorMapArgument>(&argument)) {
      sizes.push_back(map->byteOffset);
      sizes.insert(sizes.end(), map->shape.begin(), map->shape.end());
      sizes.insert(sizes.end(), map->strides.begin(), map->strides.end());
    }
  for (const Dim &size : sizes)
    for (const std::string &symbol : size.symbols())
      if (symbol != rankSymbol)
        return symbol;
  return std::nullopt;
}

/// The preparation, alone: everything that the steps find prepared is written, from weights.
static Status verifyPreparation(const ProgramPlan &plan) {
  std::vector<bool> written(plan.buffers.size(), false);
  for (const Step &step : plan.preparation)
    for (const Alternative &alternative : step.alternatives)
      for (const KernelLaunch &launch : alternative.launches) {
        if (auto symbol = symbolOfRun(launch))
          return badInput(fmt::format("launch at {}: the preparation depends on {}, which a run decides",
                                      launch.location, *symbol));
        for (const KernelArgument &argument : launch.arguments) {
          const BufferId *buffer = bufferOf(argument);
          if (!buffer || *buffer >= plan.buffers.size())
            continue;
          const BufferPlan::Kind kind = plan.buffers[*buffer].kind;
          if (kind == BufferPlan::Kind::Input || kind == BufferPlan::Kind::Output)
            return badInput(fmt::format("launch at {}: the preparation uses buffer {}, which a run fills",
                                        launch.location, plan.buffers[*buffer].name));
          written[*buffer] = written[*buffer] || isWritten(argument);
        }
      }
  for (BufferId id = 0; id < plan.buffers.size(); ++id) {
    const BufferPlan &buffer = plan.buffers[id];
    if (buffer.kind != BufferPlan::Kind::Prepared)
      continue;
    if (!written[id])
      return badInput(fmt::format("buffer {}: nothing prepares it", buffer.name));
    for (const Dim &dim : buffer.shape)
      if (!dim.isStatic())
        return badInput(
            fmt::format("buffer {}: its shape {} is not static", buffer.name, shapeString(buffer.shape)));
  }
  return plan.preparation.empty() ? Status() : verify(preparationOf(plan));
}

/// The ranks of a collective count its rounds, and what is decided in a round would be for all.
static Status verifyRepetitions(const ProgramPlan &plan) {
  std::vector<uint32_t> ends; // of those that the one before is in, and its own
  uint32_t last = 0;
  for (const ProgramPlan::Repetition &one : plan.repetitions) {
    while (!ends.empty() && ends.back() <= one.first)
      ends.pop_back();
    const uint32_t end = ends.empty() ? static_cast<uint32_t>(plan.steps.size()) : ends.back();
    if (one.first < last || one.end <= one.first || one.end > end)
      return badInput(fmt::format("steps {} … {} cannot be repeated: they begin before {}, end before they "
                                  "begin, or end behind {}",
                                  one.first, one.end, last, end));
    ends.push_back(one.end);
    last = one.first;
    for (uint32_t i = one.first; i < one.end; ++i)
      if (plan.steps[i].choice == Step::Choice::Ranks)
        return badInput(fmt::format("step {} is repeated, and ranks agree on it", i));
  }
  return {};
}

Status verify(const ProgramPlan &plan) {
  for (const KernelPlan &kernel : plan.kernels)
    if (Status status = verifyKernel(kernel); !status)
      return status;
  for (const BufferPlan &buffer : plan.buffers)
    if (Status status = verifyBuffer(buffer); !status)
      return status;
  for (const Step &step : plan.steps)
    for (const Alternative &alternative : step.alternatives) {
      for (const KernelLaunch &launch : alternative.launches)
        if (Status status = verifyLaunch(plan, alternative, launch); !status)
          return status;
      if (alternative.linked)
        if (Status status = verifyLaunch(plan, alternative, *alternative.linked); !status)
          return status;
    }
  if (Status status = verifyRepetitions(plan); !status)
    return status;
  if (Status status = verifySteps(plan); !status)
    return status;
  if (Status status = verifyRanks(plan); !status)
    return status;
  if (Status status = verifyScattering(plan); !status)
    return status;
  if (Status status = verifyPorts(plan, plan.inputs, true); !status)
    return status;
  if (Status status = verifyPorts(plan, plan.outputs, false); !status)
    return status;
  if (Status status = verifySizes(plan); !status)
    return status;
  return verifyPreparation(plan);
}

} // namespace fusion
