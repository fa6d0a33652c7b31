#include "codegen/plan/VerifyOwners.h"

#include "ir/base/BindSymbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace fusion {

static Status verifyKernel(const KernelPlan &kernel) {
  if (kernel.name.empty() || kernel.source.empty() != kernel.isLibraryCall)
    return badInput("a kernel has no name or no source, or is a library call with one");
  const size_t wanted = kernel.product ? KernelPlan::productParameters : 3;
  if (kernel.isLibraryCall && kernel.parameters.size() != wanted)
    return badInput(fmt::format("library call {}: {} parameters, it takes {}", kernel.name, kernel.parameters.size(), wanted));
  if (kernel.product && !kernel.isLibraryCall)
    return badInput(fmt::format("kernel {} is a product of a library, but has a source", kernel.name));
  uint64_t threads = uint64_t(kernel.blockX) * kernel.blockY * kernel.blockZ;
  if (kernel.blockX > 1024 || kernel.blockY > 1024 || kernel.blockZ > 64 || threads == 0 || threads > 1024)
    return badInput(fmt::format("kernel {}: a block of {}x{}x{} threads", kernel.name, kernel.blockX,
                                kernel.blockY, kernel.blockZ));
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
    return badInput(fmt::format("weight {}: {} from {} on is no part of {}", buffer.name, shapeString(buffer.shape),
                                shapeString(starts), shapeString(whole)));
  return DimShape(whole.begin(), whole.end());
}

static Status verifyBuffer(const BufferPlan &buffer) {
  bool filled = !std::holds_alternative<std::monostate>(buffer.contents);
  if (filled != (buffer.kind == BufferPlan::Kind::Weight))
    return badInput(fmt::format("buffer {}: {}", buffer.name,
                                filled ? "only a weight may have contents" : "a weight without contents"));
  if (!filled)
    return buffer.window || !buffer.perRank.empty()
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
  if (given != bytes)
    return badInput(fmt::format("weight {}: shape {} of {} needs {} bytes, its contents have {}", buffer.name,
                                shapeString(*shape), name(buffer.type), bytes, given));
  for (const FileSpan &own : buffer.perRank)
    if (!file || own.length != bytes)
      return badInput(fmt::format("weight {}: the ranks' files do not have {} bytes of it each", buffer.name, bytes));
  return {};
}

static Status verifyLaunch(const ProgramPlan &plan, const KernelLaunch &launch) {
  if (launch.kernel >= plan.kernels.size())
    return badInput(
        fmt::format("launch at {}: kernel {} of {}", launch.location, launch.kernel, plan.kernels.size()));
  const KernelPlan &kernel = plan.kernels[launch.kernel];
  if (launch.arguments.size() != kernel.parameters.size())
    return badInput(fmt::format("launch of {} at {}: {} arguments for {} parameters", kernel.name,
                                launch.location, launch.arguments.size(), kernel.parameters.size()));
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const KernelLaunch::Argument &argument = launch.arguments[i];
    const KernelPlan::Parameter &parameter = kernel.parameters[i];
    auto fail = [&](std::string_view reason) {
      return badInput(fmt::format("launch of {} at {}: argument {} ({}) {}", kernel.name, launch.location, i,
                                  parameter.name, reason));
    };
    if (argument.exchange) {
      if (argument.buffer || parameter.kind != KernelPlan::Parameter::Kind::Pointer)
        return fail("is the exchange memory but the parameter is not a pointer of its own");
      if (plan.ranks == 1 || !launch.collective)
        return fail("is the exchange memory of several ranks in a launch of one");
      continue;
    }
    if (argument.buffer.has_value() != (parameter.kind == KernelPlan::Parameter::Kind::Pointer))
      return fail(argument.buffer ? "is a buffer but the parameter is a number"
                                  : "is a number but the parameter is a pointer");
    if (!argument.buffer)
      continue;
    if (*argument.buffer >= plan.buffers.size())
      return fail(fmt::format("names buffer {} of {}", *argument.buffer, plan.buffers.size()));
    if (argument.written && plan.buffers[*argument.buffer].kind == BufferPlan::Kind::Weight)
      return fail("writes a weight");
    for (uint32_t other : argument.mayReplace)
      if (!argument.written || other >= launch.arguments.size() || other == i || !launch.arguments[other].buffer ||
          launch.arguments[other].written)
        return fail(fmt::format("may not replace argument {}", other));
  }
  return {};
}

/// Ranks, and how interface tensors are divided among them.
static Status verifyRanks(const ProgramPlan &plan) {
  if (plan.ranks < 1)
    return badInput(fmt::format("a plan for {} ranks", plan.ranks));
  for (const std::vector<PortPlan> *ports : {&plan.inputs, &plan.outputs})
    for (const PortPlan &port : *ports)
      if (port.shard && (port.shard->axis < 0 || port.shard->axis >= static_cast<int64_t>(port.shape.size()) ||
                         port.shard->pieces < 1 || plan.ranks % port.shard->pieces != 0))
        return badInput(fmt::format("port {}: {} pieces along dim {} for {} ranks", port.name, port.shard->pieces,
                                    port.shard->axis, plan.ranks));
  return {};
}

static std::string rangeText(const SizeRange &range) {
  return fmt::format("{} … {} of {}", range.least, range.most, range.size.str());
}

using Buffers = std::set<BufferId>;

static Buffers writtenBy(const KernelLaunch &launch) {
  Buffers buffers;
  for (const KernelLaunch::Argument &argument : launch.arguments)
    if (argument.written)
      buffers.insert(*argument.buffer);
  return buffers;
}

/// Launches for ranges of one size follow each other from 1 to the end, and write the same buffers, the larger ones with
/// what is launched ahead of them.
static Status verifyRanges(const ProgramPlan &plan) {
  const KernelLaunch *open = nullptr; // the launch before, if larger sizes still lack theirs
  const KernelLaunch *ahead = nullptr;
  Buffers results;
  for (const KernelLaunch &launch : plan.launches) {
    auto fail = [&](std::string_view reason) {
      return badInput(fmt::format("launch of {} at {}: {}", plan.kernels[launch.kernel].name, launch.location, reason));
    };
    if (launch.way == ProductWay::Library) {
      if (open)
        return fail("comes where the launches for " + open->when->size.str() + " end too early");
      continue; // see verifyWays
    }
    if (!launch.when) {
      if (open || launch.ahead)
        return fail(launch.ahead ? "is ahead of others for all sizes"
                                 : "comes where the launches for " + open->when->size.str() + " end too early");
      continue;
    }
    const SizeRange &range = *launch.when;
    if (range.least < 1 || range.most < range.least)
      return fail("is for " + rangeText(range));
    if (launch.ahead) {
      if (open || range.most != INT64_MAX)
        return fail("is ahead of others for " + rangeText(range));
      open = ahead = &launch;
      continue;
    }
    const bool begins = !open || open->ahead;
    if (begins ? range.least != 1 : range.least - 1 != open->when->most)
      return fail("is for " + rangeText(range) + ", behind " + (begins ? "nothing" : rangeText(*open->when)));
    if (open && !(range.size == open->when->size))
      return fail("is for " + rangeText(range) + ", behind " + rangeText(*open->when));
    Buffers written = writtenBy(launch);
    if (ahead && range.least >= ahead->when->least)
      written.merge(writtenBy(*ahead));
    if (begins)
      results = written;
    if (!std::includes(written.begin(), written.end(), results.begin(), results.end()) ||
        (!ahead && written != results))
      return fail("writes other buffers than the launch for " + rangeText(*open->when));
    if (ahead && range.least < ahead->when->least && range.most >= ahead->when->least)
      return fail("is for " + rangeText(range) + ", which another is ahead of from " +
                  std::to_string(ahead->when->least) + " on");
    open = range.most == INT64_MAX ? nullptr : &launch;
    if (!open)
      ahead = nullptr;
  }
  return open ? badInput("the launches for " + open->when->size.str() + " end too early") : Status();
}

/// Launches of the library's way follow kernels that do the same, are for one range of sizes up to the largest, and write
/// what those write.
static Status verifyWays(const ProgramPlan &plan) {
  for (size_t i = 0; i < plan.launches.size();) {
    const size_t end = plan.endOfProducts(i);
    const KernelLaunch &first = plan.launches[i];
    auto fail = [&](std::string_view reason) {
      return badInput(fmt::format("launch of {} at {}: {}", plan.kernels[first.kernel].name, first.location, reason));
    };
    if (end == i) {
      if (first.way)
        return fail("is one of two ways, and the other is missing");
      ++i;
      continue;
    }
    Buffers written;
    const KernelLaunch &last = plan.launches[end - 1];
    for (size_t j = i; j < end; ++j) {
      const KernelLaunch &launch = plan.launches[j];
      if (launch.way == ProductWay::Kernel)
        continue;
      written.merge(writtenBy(launch));
      const bool same = launch.when.has_value() == last.when.has_value() &&
                        (!launch.when || (launch.when->size == last.when->size && launch.when->least == last.when->least &&
                                          launch.when->most == INT64_MAX));
      if (!same || launch.ahead || launch.collective)
        return fail("the library's way is for several ranges of sizes");
    }
    const Buffers results = writtenBy(first.ahead ? plan.launches[i + 1] : first);
    if (!std::includes(written.begin(), written.end(), results.begin(), results.end()))
      return fail("the library's way writes other buffers");
    i = end;
  }
  return {};
}

static Status verifyStrides(const ProgramPlan &plan, const PortPlan &port, const std::string &label, bool input) {
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
  if (!input && (std::none_of(plan.inputs.begin(), plan.inputs.end(), isCache) || !(port.byteOffset == Dim(0))))
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

Status verify(const ProgramPlan &plan) {
  for (const KernelPlan &kernel : plan.kernels)
    if (Status status = verifyKernel(kernel); !status)
      return status;
  for (const BufferPlan &buffer : plan.buffers)
    if (Status status = verifyBuffer(buffer); !status)
      return status;
  for (const KernelLaunch &launch : plan.launches)
    if (Status status = verifyLaunch(plan, launch); !status)
      return status;
  if (Status status = verifyRanges(plan); !status)
    return status;
  if (Status status = verifyWays(plan); !status)
    return status;
  if (Status status = verifyRanks(plan); !status)
    return status;
  if (Status status = verifyOwners(plan); !status)
    return status;
  if (Status status = verifyPorts(plan, plan.inputs, true); !status)
    return status;
  return verifyPorts(plan, plan.outputs, false);
}

} // namespace fusion
