#include "codegen/plan/Print.h"

#include "ir/base/PlainText.h"

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
  case BufferPlan::Kind::Prepared:
    return "prepared";
  }
  return "";
}

/// Dims, whose symbols graph files name.
static std::string shown(const Dim &dim) { return plainText(dim.str(), std::string::npos); }
static std::string shown(std::span<const Dim> dims) {
  return plainText(shapeString(dims), std::string::npos);
}

std::string typedText(DType type, const DimShape &shape) {
  return fmt::format("{} {}", name(type), shown(shape));
}

std::string launchTitle(const KernelLaunch &launch) {
  std::string ops = fmt::format("{}", fmt::join(launch.ops, " + "));
  if (ops.empty())
    ops = "copy";
  if (!launch.sumsOver.empty())
    ops += " (sums over " + launch.sumsOver + ")";
  ops = plainText(ops, std::string::npos);
  return launch.fusion.empty() ? ops : fmt::format("{}: {}", plainText(launch.fusion), ops);
}

/// The same above the kernel's text, which lists the ops of a fusion itself.
static std::string siteTitle(const KernelPlan &kernel, const KernelLaunch &launch) {
  if (launch.fusion.empty() || kernel.isLibraryCall)
    return launchTitle(launch);
  return plainText(launch.fusion) +
         (launch.sumsOver.empty() ? "" : " (sums over " + plainText(launch.sumsOver) + ")");
}

/// ` at layers.0.mlp`
static std::string placeOf(const KernelLaunch &launch) {
  return launch.location.empty() ? "" : " at " + plainText(launch.location);
}

/// `batch*seq in 2 … 4 and heads >= 8`; empty for all sizes
static std::string predicateText(const Predicate &when) {
  std::string text;
  for (const SizeRange &range : when) {
    text += text.empty() ? "" : " and ";
    if (range.most == INT64_MAX)
      text += fmt::format("{} >= {}", shown(range.size), range.least);
    else if (range.least == range.most)
      text += fmt::format("{} == {}", shown(range.size), range.least);
    else
      text += fmt::format("{} in {} … {}", shown(range.size), range.least, range.most);
  }
  return text;
}

std::string conditionText(const Alternative &alternative) {
  std::string text, when = predicateText(alternative.when);
  if (std::string_view variant = variantName(alternative); !variant.empty() && variant != kernelVariant)
    text = fmt::format(" as {}", plainText(variant));
  return when.empty() ? text : text + " when " + when;
}

namespace {
/// A launch and its alternative.
struct Site {
  const Alternative *alternative;
  const KernelLaunch *launch;
};
} // namespace

static std::vector<Site> sitesOf(const ProgramPlan &plan, size_t kernel) {
  std::vector<Site> sites;
  for (const Step &step : plan.steps)
    for (const Alternative &alternative : step.alternatives) {
      for (const KernelLaunch &launch : alternative.launches)
        if (launch.kernel == kernel)
          sites.push_back({&alternative, &launch});
      if (alternative.linked && alternative.linked->kernel == kernel)
        sites.push_back({&alternative, &*alternative.linked});
    }
  return sites;
}

std::string kernelComment(const ProgramPlan &plan, size_t kernel) {
  constexpr size_t mostSites = 4;
  const KernelPlan &description = plan.kernels[kernel];
  const std::vector<Site> sites = sitesOf(plan, kernel);
  std::string text = fmt::format("// {}: schedule {}, {} threads a block, {} launch{}\n",
                                 plainText(description.name), plainText(description.schedule),
                                 description.blockX * description.blockY * description.blockZ, sites.size(),
                                 sites.size() == 1 ? "" : "es");
  for (size_t site = 0; site < std::min(sites.size(), mostSites); ++site)
    text += fmt::format("//   {}{}{}\n", siteTitle(description, *sites[site].launch),
                        placeOf(*sites[site].launch), conditionText(*sites[site].alternative));
  if (sites.size() > mostSites)
    text += fmt::format("//   and {} more\n", sites.size() - mostSites);
  return text;
}

std::string cudaSource(const ProgramPlan &plan) {
  std::string text;
  for (size_t kernel = 0; kernel < plan.kernels.size(); ++kernel) {
    const KernelPlan &description = plan.kernels[kernel];
    text += (text.empty() ? "" : "\n") + kernelComment(plan, kernel);
    text += description.matmul          ? "// by cuBLASLt\n"
            : description.isLibraryCall ? "// by the communication library\n"
                                        : description.source;
  }
  return text;
}

namespace {
/// An argument by its kind: `%3+64 (written)`, `n*4`.
struct ArgumentText {
  std::string operator()(const PointerArgument &pointer) const {
    return place(pointer.buffer, pointer.byteOffset) + (pointer.written ? " (written)" : "");
  }
  std::string operator()(const ScalarArgument &scalar) const { return shown(scalar.value); }
  std::string operator()(const TensorMapArgument &map) const {
    return fmt::format("tiles [{}] of {} {} in {}{}", fmt::join(map.box, ", "), name(map.type),
                       shown(map.shape), place(map.buffer, map.byteOffset), map.written ? " (written)" : "");
  }
  std::string operator()(const WorkspaceArgument &workspace) const {
    static constexpr const char *contents[] = {"", " zeroed", " kept zero"};
    return fmt::format("workspace of {} bytes{}", shown(workspace.bytes),
                       contents[static_cast<size_t>(workspace.contents)]);
  }
  std::string operator()(const ExchangeArgument &) const { return "exchange"; }

private:
  static std::string place(BufferId buffer, const Dim &offset) {
    return fmt::format("%{}{}", buffer, offset == Dim(0) ? "" : "+" + shown(offset));
  }
};
} // namespace

static std::string launchText(const ProgramPlan &plan, const KernelLaunch &launch) {
  const KernelPlan &kernel = plan.kernels[launch.kernel];
  std::vector<std::string> arguments;
  for (size_t i = 0; i < launch.arguments.size(); ++i)
    arguments.push_back(fmt::format("{}={}", plainText(kernel.parameters[i].name),
                                    std::visit(ArgumentText(), launch.arguments[i])));
  return fmt::format("{} <<<({}, {}, {})>>> ({})  // {}{}", plainText(kernel.name), shown(launch.gridX),
                     shown(launch.gridY), shown(launch.gridZ), fmt::join(arguments, ", "),
                     launchTitle(launch), placeOf(launch));
}

/// When the alternative's linked launch stands for its others.
static std::string_view linkText(const Alternative &alternative) {
  if (alternative.link == Alternative::Link::Last)
    return alternative.collective ? "where the addends have been sent" : "where squares have been summed up";
  return alternative.linked->sumsOver.empty() ? "summing up squares" : "sending to all ranks";
}

/// `4: kernel <<<…>>> (…)`, or a heading and a line for each alternative, followed by its launches:
///   5: the first of 3 alternatives
///     when n in 1 … 8: …
///     when n >= 9, 2 launches
///       …
static std::string stepText(const ProgramPlan &plan, const Step &step, size_t number) {
  static constexpr std::string_view choices[] = {"the first that fits of", "the fastest on the device of",
                                                 "what the ranks agree on of"};
  const Alternative &first = step.alternatives.front();
  if (step.alternatives.size() == 1 && first.launches.size() == 1)
    return fmt::format("{}: {}\n", number, launchText(plan, first.launches.front()));
  std::string text = fmt::format("{}: ", number);
  if (step.alternatives.size() > 1)
    text += fmt::format("{} {} alternatives\n", choices[static_cast<size_t>(step.choice)],
                        step.alternatives.size());
  else
    text += fmt::format("{} launches\n", first.launches.size());
  for (const Alternative &alternative : step.alternatives) {
    std::string variant = plainText(variantName(alternative)), when = predicateText(alternative.when);
    std::string title =
        variant + (variant.empty() || when.empty() ? "" : " ") + (when.empty() ? "" : "when " + when);
    const bool isOne = alternative.launches.size() == 1;
    if (step.alternatives.size() > 1)
      text += fmt::format("  {}:{}", title.empty() ? "for other sizes" : title, isOne ? " " : "\n");
    for (const KernelLaunch &launch : alternative.launches)
      text += fmt::format("{}{}\n", isOne ? "" : "    ", launchText(plan, launch));
    if (alternative.linked)
      text += fmt::format("    {}: {}\n", linkText(alternative), launchText(plan, *alternative.linked));
  }
  return text;
}

std::string planText(const ProgramPlan &plan) {
  std::string text = fmt::format(
      "plan of {} for {}{}: {} kernels, {} launches\n", plainText(plan.model), plainText(plan.target),
      plan.ranks == 1 ? "" : fmt::format(", one of {} ranks along {}", plan.ranks, plainText(plan.axis)),
      plan.kernels.size(), plan.launchesOfRun());
  auto ports = [&](std::string_view title, const std::vector<PortPlan> &list) {
    for (const PortPlan &port : list)
      text += fmt::format(
          "{} {}: {} {} %{}{}\n", title, plainText(port.name), typedText(port.type, port.shape),
          port.strides.empty() ? "=" : "in place in", port.buffer,
          port.shard ? fmt::format(", one of {} shards along {}", port.shard->count, port.shard->axis) : "");
  };
  ports("input", plan.inputs);
  ports("output", plan.outputs);
  for (const ProgramPlan::Equality &equality : plan.equalities)
    text += fmt::format("needs {} == {} ({})\n", shown(equality.left), shown(equality.right),
                        plainText(equality.reason));
  for (size_t id = 0; id < plan.buffers.size(); ++id) {
    const BufferPlan &buffer = plan.buffers[id];
    std::string part;
    if (buffer.window)
      part =
          fmt::format(", of {} from {} on", shapeString(buffer.window->whole), shown(buffer.window->starts));
    text += fmt::format("%{}: {} {} {}{}\n", id, kindName(buffer.kind), typedText(buffer.type, buffer.shape),
                        plainText(buffer.name), part);
  }
  if (!plan.preparation.empty())
    text += "once, when the weights are loaded:\n";
  for (size_t i = 0; i < plan.preparation.size(); ++i)
    text += stepText(plan, plan.preparation[i], i);
  if (!plan.preparation.empty())
    text += "in each run:\n";
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    for (const ProgramPlan::Repetition &one : plan.repetitions)
      if (one.first == i)
        text += fmt::format("steps {} to {}, {} times:\n", i, one.end - 1, shown(one.count));
    text += stepText(plan, plan.steps[i], i);
  }
  return text;
}

} // namespace fusion
