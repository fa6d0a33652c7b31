#include "codegen/body/KernelSource.h"

#include "codegen/body/Printer.h"
#include "ir/base/PlainText.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

using namespace mlir;

namespace fusion::body {

/// Ops that a name leaves out: they only say where values lie.
static bool isNamed(Operation *op) {
  return !nn::isStored(op) && !isa<nn::DimConstantOp>(op) && !op->hasTrait<nn::View>();
}

std::string kernelName(const Region &region, const KernelContext &context) {
  constexpr size_t mostOps = 4, longest = 60;
  std::vector<std::string> parts;
  size_t ops = 0;
  for (Operation *op : region.ops)
    if (isNamed(op) && ops++ < mostOps)
      if (std::string part = op->getName().stripDialect().str(); parts.empty() || parts.back() != part)
        parts.push_back(part);
  if (ops > mostOps && !region.pattern.empty())
    parts = {region.pattern};
  if (parts.empty())
    parts.push_back("copy");
  if (!region.outputs.empty()) {
    parts.push_back(spelling(dtype(region.outputs[0])));
    const DimShape &shape = context.shape(region.outputs[0]);
    if (!shape.empty() && shape.back().isStatic())
      parts.push_back(std::to_string(shape.back().value()));
  }
  std::string name = llvm::join(parts, "_");
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  if (name.front() >= '0' && name.front() <= '9') // a pattern may be called so
    name.insert(0, "fused_");
  return name.substr(0, longest);
}

void renameKernel(KernelPlan &kernel, const std::string &name) {
  const std::string before = " " + kernel.name + "(", after = " " + name + "(";
  if (size_t at = kernel.source.rfind(before); at != std::string::npos)
    kernel.source = fitted(kernel.source.replace(at, before.size(), after));
  kernel.name = name;
}

KernelSource::KernelSource(const Region &region, llvm::ArrayRef<View> inputs)
    : region(region), views(inputs) {}

void KernelSource::include(std::string_view file) {
  if (std::find(includes.begin(), includes.end(), file) == includes.end())
    includes.emplace_back(file);
}

static KernelPlan::Parameter pointerTo(mlir::Value value, bool isInput, unsigned index) {
  return {KernelPlan::Parameter::Kind::Pointer,
          fmt::format("{}{} *", isInput ? "const " : "", spelling(dtype(value))),
          fmt::format("{}{}", isInput ? "in" : "out", index)};
}

const KernelPlan::Parameter &KernelSource::inputParameter(unsigned index) {
  return inputs.try_emplace(index, pointerTo(region.inputs[index], true, index)).first->second;
}

const KernelPlan::Parameter &KernelSource::outputParameter(unsigned index) {
  return outputs.try_emplace(index, pointerTo(region.outputs[index], false, index)).first->second;
}

const KernelPlan::Parameter &KernelSource::sizeParameter(const Dim &dim) {
  for (const auto &[known, parameter] : sizes)
    if (known == dim)
      return parameter;
  sizes.push_back({dim, {KernelPlan::Parameter::Kind::Scalar, "i64", fmt::format("n{}", sizes.size())}});
  return sizes.back().second;
}

std::string KernelSource::tensorMap(unsigned input, TensorMapArgument map) {
  KernelDraft::Argument argument{KernelDraft::Argument::Kind::TensorMap, input};
  argument.map = std::move(map);
  others.push_back({{KernelPlan::Parameter::Kind::TensorMap, "const GRID_CONSTANT TensorMap",
                     fmt::format("map{}", others.size())},
                    std::move(argument)});
  return others.back().first.name;
}

std::string KernelSource::scratch(const Dim &elements, bool written) {
  others.push_back({{KernelPlan::Parameter::Kind::Pointer, written ? "i32 *" : "const i32 *",
                     fmt::format("scratch{}", others.size())},
                    {KernelDraft::Argument::Kind::Scratch, 0, elements, written}});
  return others.back().first.name;
}

std::string KernelSource::squares(const Dim &elements, bool written) {
  others.push_back({{KernelPlan::Parameter::Kind::Pointer, written ? "f32 *" : "const f32 *", "squares"},
                    {KernelDraft::Argument::Kind::Squares, 0, elements, written}});
  return others.back().first.name;
}

std::string KernelSource::exchange() {
  exchanged = {KernelPlan::Parameter::Kind::Exchange, "Exchange *", "exchange"};
  return exchanged->name;
}

/// The ops, those of one place in the graph together, and what the sizes are.
std::string KernelSource::comments() const {
  std::string text, place;
  for (Operation *op : region.ops) {
    if (isa<nn::ConstantOp, nn::DimConstantOp>(op) && region.ops.size() > 1)
      continue;
    const std::string where = plainText(locationName(op->getLoc())),
                      name = op->getName().getStringRef().str();
    if (!text.empty() && where == place)
      text += " + " + name;
    else
      text += (text.empty() ? "// " : place.empty() ? "\n// " : "  " + place + "\n// ") + name;
    place = where;
  }
  text += text.empty() ? "" : place.empty() ? "\n" : "  " + place + "\n";
  std::string legend;
  for (auto &[dim, parameter] : sizes)
    legend += fmt::format("{}{} = {}", legend.empty() ? "// " : ", ", parameter.name, plainText(dim.str()));
  return text + (legend.empty() ? "" : legend + "\n");
}

static std::string launchBounds(const Entry &entry) {
  if (entry.clusterBlocks > 1)
    return fmt::format("KERNEL_CLUSTER({}, {}, {})", entry.threads, entry.residentBlocks,
                       entry.clusterBlocks);
  if (entry.residentBlocks)
    return fmt::format("KERNEL_RESIDENT({}, {})", entry.threads, entry.residentBlocks);
  return fmt::format("KERNEL({})", entry.threads);
}

KernelDraft KernelSource::finish(const Entry &entry) {
  using Argument = KernelDraft::Argument;
  KernelDraft draft;
  KernelPlan &kernel = draft.kernel;
  std::string signature;
  auto add = [&](const KernelPlan::Parameter &parameter, Argument argument) {
    kernel.parameters.push_back(parameter);
    draft.arguments.push_back(std::move(argument));
    signature += fmt::format("{}{}{}{}", signature.empty() ? "" : ", ", parameter.type,
                             parameter.type.ends_with('*') ? "" : " ", parameter.name);
  };
  for (auto &[index, parameter] : inputs)
    add(parameter, {Argument::Kind::Input, index, 0});
  for (auto &[index, parameter] : outputs)
    add(parameter, {Argument::Kind::Output, index, 0});
  if (exchanged)
    add(*exchanged, {Argument::Kind::Exchange, 0, 0});
  for (auto &[parameter, argument] : others)
    add(parameter, argument);
  for (auto &[dim, parameter] : sizes)
    add(parameter, {Argument::Kind::Size, 0, dim});

  std::string text = comments() + declarations;
  if (!body.empty())
    text += config.text() + body.text();
  text += fmt::format("{} {}({}) {{\n", launchBounds(entry), entry.name, signature);
  if (entry.code.empty())
    text += fmt::format("  {}<Config>({}{}{});\n", entry.function, body.instance(),
                        entry.arguments.empty() ? "" : ", ", entry.arguments);
  else
    text += entry.code;
  for (const std::string &file : includes)
    kernel.source += fmt::format("#include \"{}\"\n", file);
  kernel.source += fitted(text + "}\n");
  kernel.name = entry.name;
  kernel.schedule = entry.schedule;
  kernel.blockX = entry.threads;
  kernel.usesPdl = true;
  return draft;
}

} // namespace fusion::body
