#include "codegen/plan/Print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fusion {

static std::string_view kindName(BufferPlan::Kind kind) {
  switch (kind) {
  case BufferPlan::Kind::Input:
    return "input";
  case BufferPlan::Kind::Weight:
    return "weight";
  case BufferPlan::Kind::Temporary:
    return "temporary";
  case BufferPlan::Kind::Output:
    return "output";
  }
  return "";
}

static std::string typed(DType type, const DimShape &shape) {
  return fmt::format("{} {}", name(type), shapeString(shape));
}

static std::string launchTitle(const KernelLaunch &launch) {
  std::string ops = fmt::format("{}", fmt::join(launch.ops, " + "));
  if (ops.empty())
    ops = "copy";
  return launch.fusion.empty() ? ops : fmt::format("{}: {}", launch.fusion, ops);
}

/// ` as one-shot` of one way of a collective, ` when batch*seq is 2 … 4`
static std::string conditionText(const KernelLaunch &launch) {
  static constexpr std::string_view forms[] = {" as one-shot", " as two-shot", " as library"};
  if (launch.collective) {
    KernelLaunch rest = launch;
    rest.collective = {};
    return std::string(forms[static_cast<int>(launch.collective->form)]) + conditionText(rest);
  }
  if (launch.way == ProductWay::Library) {
    KernelLaunch rest = launch;
    rest.way = {};
    return " as library" + conditionText(rest);
  }
  if (!launch.when)
    return "";
  const SizeRange &range = *launch.when;
  if (range.most == INT64_MAX)
    return fmt::format(" when {} >= {}", range.size.str(), range.least);
  return range.least == range.most ? fmt::format(" when {} == {}", range.size.str(), range.least)
                                   : fmt::format(" when {} in {} … {}", range.size.str(), range.least, range.most);
}

std::string cudaSource(const ProgramPlan &plan) {
  constexpr size_t mostSites = 4;
  std::string text;
  for (size_t kernel = 0; kernel < plan.kernels.size(); ++kernel) {
    const KernelPlan &description = plan.kernels[kernel];
    std::vector<const KernelLaunch *> sites;
    for (const KernelLaunch &launch : plan.launches)
      if (launch.kernel == kernel)
        sites.push_back(&launch);
    text += fmt::format("{}// {}: schedule {}, {} threads a block, {} launch{}\n", text.empty() ? "" : "\n",
                        description.name, description.schedule,
                        description.blockX * description.blockY * description.blockZ, sites.size(),
                        sites.size() == 1 ? "" : "es");
    for (size_t site = 0; site < std::min(sites.size(), mostSites); ++site)
      text += fmt::format("//   {}{}{}{}\n", launchTitle(*sites[site]),
                          sites[site]->location.empty() ? "" : " at ", sites[site]->location,
                          conditionText(*sites[site]));
    if (sites.size() > mostSites)
      text += fmt::format("//   and {} more\n", sites.size() - mostSites);
    text += description.product         ? "// by cuBLASLt\n"
            : description.isLibraryCall ? "// by the communication library\n"
                                        : description.source;
  }
  return text;
}

static std::string argumentText(const ProgramPlan &plan, const KernelLaunch &launch, size_t index) {
  const KernelLaunch::Argument &argument = launch.arguments[index];
  const std::string &parameter = plan.kernels[launch.kernel].parameters[index].name;
  if (argument.exchange)
    return fmt::format("{}=exchange", parameter);
  if (!argument.buffer)
    return fmt::format("{}={}", parameter, argument.value.str());
  std::string offset = argument.byteOffset == Dim(0) ? "" : fmt::format("+{}", argument.byteOffset.str());
  return fmt::format("{}=%{}{}{}", parameter, *argument.buffer, offset, argument.written ? " (written)" : "");
}

std::string planText(const ProgramPlan &plan) {
  std::string text = fmt::format("plan of {} for {}{}: {} kernels, {} launches\n", plan.model, plan.target,
                                 plan.ranks == 1 ? "" : fmt::format(", one of {} ranks", plan.ranks),
                                 plan.kernels.size(), plan.launchesOfRun());
  auto ports = [&](std::string_view title, const std::vector<PortPlan> &list) {
    for (const PortPlan &port : list)
      text += fmt::format("{} {}: {} {} %{}{}\n", title, port.name, typed(port.type, port.shape),
                          port.strides.empty() ? "=" : "in place in", port.buffer,
                          port.shard ? fmt::format(", one of {} pieces along {}", port.shard->pieces, port.shard->axis)
                                     : "");
  };
  ports("input", plan.inputs);
  ports("output", plan.outputs);
  for (const ProgramPlan::Equality &equality : plan.equalities)
    text += fmt::format("needs {} == {} ({})\n", equality.left.str(), equality.right.str(), equality.reason);
  for (size_t id = 0; id < plan.buffers.size(); ++id) {
    const BufferPlan &buffer = plan.buffers[id];
    std::string part;
    if (buffer.window)
      part = fmt::format(", of {} from {} on", shapeString(buffer.window->whole), shapeString(buffer.window->starts));
    text += fmt::format("%{}: {} {} {}{}\n", id, kindName(buffer.kind), typed(buffer.type, buffer.shape), buffer.name,
                        part);
  }
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const KernelLaunch &launch = plan.launches[i];
    std::vector<std::string> arguments;
    for (size_t a = 0; a < launch.arguments.size(); ++a)
      arguments.push_back(argumentText(plan, launch, a));
    text +=
        fmt::format("{}: {} <<<({}, {}, {})>>> ({}){}  // {}{}{}\n", i, plan.kernels[launch.kernel].name,
                    launch.gridX.str(), launch.gridY.str(), launch.gridZ.str(), fmt::join(arguments, ", "),
                    conditionText(launch),
                    launchTitle(launch), launch.location.empty() ? "" : " at ", launch.location);
  }
  return text;
}

static std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    result += c;
  }
  return result + '"';
}

std::string planDot(const ProgramPlan &plan) {
  std::string text = "digraph plan {\n  rankdir=TB;\n  node [shape=box, fontname=\"Helvetica\"];\n";
  std::vector<std::string> writer(plan.buffers.size());
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PortPlan &port = plan.inputs[i];
    writer[port.buffer] = fmt::format("input{}", i);
    text += fmt::format("  input{} [shape=ellipse, label={}];\n", i, quoted(port.name));
  }
  auto edge = [&](BufferId buffer, const std::string &to) {
    if (!writer[buffer].empty() && writer[buffer] != to)
      text += fmt::format("  {} -> {} [label={}];\n", writer[buffer], to,
                          quoted(typed(plan.buffers[buffer].type, plan.buffers[buffer].shape)));
  };
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const KernelLaunch &launch = plan.launches[i];
    if ((launch.when && launch.when->least > 1) || plan.isOtherWay(i))
      continue; // the same ops for other sizes, or done in another way
    std::string node = fmt::format("launch{}", i);
    text += fmt::format(
        "  {} [{}label={}];\n", node, launch.fusion.empty() ? "" : "style=filled, fillcolor=\"#dbe9f6\", ",
        quoted(launchTitle(launch) + (launch.location.empty() ? "" : " @ " + launch.location)));
    for (const KernelLaunch::Argument &argument : launch.arguments)
      if (argument.buffer && !argument.written)
        edge(*argument.buffer, node);
    for (const KernelLaunch::Argument &argument : launch.arguments)
      if (argument.buffer && argument.written) {
        edge(*argument.buffer, node);
        writer[*argument.buffer] = node;
      }
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    text += fmt::format("  output{} [shape=ellipse, label={}];\n", i, quoted(plan.outputs[i].name));
    edge(plan.outputs[i].buffer, fmt::format("output{}", i));
  }
  return text + "}\n";
}

} // namespace fusion
