#include "codegen/plan/PlanJson.h"
#include "codegen/target/TargetInfo.h"

#include <fmt/format.h>

using nlohmann::json;

namespace fusion {

using namespace plan_json;

static json toJson(const DimShape &shape) {
  json result = json::array();
  for (const Dim &dim : shape)
    result.push_back(dim.str());
  return result;
}

static json featuresJson(uint32_t features) {
  json names = json::array();
  for (uint32_t bit = 1; bit != 0; bit <<= 1)
    if (features & bit)
      names.push_back(featureName(static_cast<Feature>(bit)));
  return names;
}

static json toJson(const KernelPlan &kernel) {
  json parameters = json::array();
  for (const KernelPlan::Parameter &parameter : kernel.parameters)
    parameters.push_back({{"kind", nameOf(parameterKinds, parameter.kind)},
                          {"type", parameter.type},
                          {"name", parameter.name}});
  json result = {{"name", kernel.name},
          {"schedule", kernel.schedule},
          {"source", kernel.source},
          {"parameters", parameters},
          {"block", {kernel.blockX, kernel.blockY, kernel.blockZ}},
          {"cluster", {kernel.clusterX, kernel.clusterY, kernel.clusterZ}},
          {"dynamic_shared_bytes", kernel.dynamicSharedBytes},
          {"uses_pdl", kernel.usesPdl},
          {"cooperative", kernel.cooperative},
          {"features", featuresJson(kernel.features)},
          {"emulatable", kernel.emulatable},
          {"why_not_emulatable", kernel.whyNotEmulatable},
          {"library_call", kernel.isLibraryCall}};
  if (const std::optional<LibraryMatmul> &matmul = kernel.matmul)
    result["matmul"] = {{"types", {name(matmul->a), name(matmul->b), name(matmul->c)}},
                        {"column_major", {matmul->columnMajorA, matmul->columnMajorB}}};
  return result;
}

static json toJson(const FileSpan &file) {
  return {{"path", file.path}, {"offset", file.offset}, {"length", file.length}};
}

static json toJson(const BufferPlan &buffer) {
  json result = {{"kind", nameOf(bufferKinds, buffer.kind)},
                 {"name", buffer.name},
                 {"type", name(buffer.type)},
                 {"shape", toJson(buffer.shape)}};
  if (auto *file = std::get_if<FileSpan>(&buffer.contents)) {
    result["file"] = toJson(*file);
  } else if (auto *tensor = std::get_if<Tensor>(&buffer.contents)) {
    auto *bytes = static_cast<const std::byte *>(tensor->data());
    result["data"] = {{"type", name(tensor->type())},
                      {"shape", tensor->shape()},
                      {"base64", encodeBase64({bytes, tensor->bytes()})}};
  }
  for (const FileSpan &file : buffer.perRank)
    result["per_rank"].push_back(toJson(file));
  for (const FileSpan &file : buffer.parts)
    result["parts"].push_back(toJson(file));
  if (buffer.window)
    result["window"] = {{"whole", buffer.window->whole}, {"starts", toJson(buffer.window->starts)}};
  if (buffer.isScattered)
    result["scattered"] = true;
  return result;
}

/// An argument by its kind.
struct ArgumentToJson {
  json operator()(const PointerArgument &pointer) const {
    json entry = {{"buffer", pointer.buffer}, {"written", pointer.written}};
    if (!(pointer.byteOffset == Dim(0)))
      entry["byte_offset"] = pointer.byteOffset.str();
    if (!pointer.mayReplace.empty())
      entry["may_replace"] = pointer.mayReplace;
    return entry;
  }
  json operator()(const ScalarArgument &scalar) const { return {{"value", scalar.value.str()}}; }
  json operator()(const TensorMapArgument &map) const {
    return {{"tensor_map", map.buffer},
            {"byte_offset", map.byteOffset.str()},
            {"written", map.written},
            {"type", name(map.type)},
            {"shape", toJson(map.shape)},
            {"strides", toJson(map.strides)},
            {"box", map.box},
            {"element_strides", map.elementStrides},
            {"swizzle", nameOf(swizzles, map.swizzle)},
            {"l2_promotion", nameOf(l2Promotions, map.l2Promotion)},
            {"out_of_bounds", nameOf(outOfBounds, map.outOfBounds)}};
  }
  json operator()(const WorkspaceArgument &workspace) const {
    return {{"workspace_bytes", workspace.bytes.str()},
            {"contents", nameOf(workspaceContents, workspace.contents)}};
  }
  json operator()(const ExchangeArgument &) const { return {{"exchange", true}}; }
};

static json toJson(const KernelLaunch &launch) {
  json arguments = json::array();
  for (const KernelArgument &argument : launch.arguments)
    arguments.push_back(std::visit(ArgumentToJson(), argument));
  json result = {{"kernel", launch.kernel},
          {"arguments", arguments},
          {"grid", {launch.gridX.str(), launch.gridY.str(), launch.gridZ.str()}},
          {"location", launch.location},
          {"fusion", launch.fusion},
          {"ops", launch.ops},
          {"bytes_read", launch.bytesRead.str()},
          {"bytes_written", launch.bytesWritten.str()},
          {"flops", launch.flops.str()}};
  if (!launch.sumsOver.empty())
    result["sums_over"] = launch.sumsOver;
  return result;
}

template <class T>
static json listToJson(const std::vector<T> &items) {
  json result = json::array();
  for (const T &item : items)
    result.push_back(toJson(item));
  return result;
}

static json toJson(const SizeRange &range) {
  return {{"size", range.size.str()}, {"least", range.least}, {"most", range.most}};
}

static json toJson(const Alternative &alternative) {
  json result = {{"launches", listToJson(alternative.launches)}};
  if (!alternative.when.empty())
    result["when"] = listToJson(alternative.when);
  if (!alternative.variant.empty())
    result["variant"] = alternative.variant;
  if (const std::optional<Collective> &collective = alternative.collective)
    result["collective"] = {{"algorithm", nameOf(collectiveAlgorithms, collective->algorithm)},
                            {"message_bytes", collective->messageBytes.str()},
                            {"round_bytes", collective->roundBytes.str()},
                            {"gathers_rows", collective->gathersRows}};
  if (alternative.linked)
    result["linked"] = toJson(*alternative.linked);
  if (alternative.link != Alternative::Link::None)
    result["link"] = nameOf(links, alternative.link);
  return result;
}

static json toJson(const Step &step) {
  return {{"choice", nameOf(choices, step.choice)}, {"alternatives", listToJson(step.alternatives)}};
}

std::string plan_json::stepJson(const Step &step) { return toJson(step).dump(); }

static json toJson(const PortPlan &port) {
  json result = {{"name", port.name},
                 {"type", name(port.type)},
                 {"shape", toJson(port.shape)},
                 {"buffer", port.buffer},
                 {"byte_offset", port.byteOffset.str()}};
  if (!port.strides.empty())
    result["strides"] = toJson(port.strides);
  if (port.shard)
    result["shard"] = {{"axis", port.shard->axis}, {"count", port.shard->count}};
  return result;
}

std::string toJson(const ProgramPlan &plan) {
  json equalities = json::array();
  for (const ProgramPlan::Equality &equality : plan.equalities)
    equalities.push_back(
        {{"left", equality.left.str()}, {"right", equality.right.str()}, {"reason", equality.reason}});
  json repetitions = json::array();
  for (const ProgramPlan::Repetition &one : plan.repetitions)
    repetitions.push_back({{"first", one.first}, {"end", one.end}, {"count", one.count.str()}});
  json result = {{"format", formatVersion},
                 {"model", plan.model},
                 {"target", plan.target},
                 {"axis", plan.axis},
                 {"ranks", plan.ranks},
                 {"buffers", listToJson(plan.buffers)},
                 {"inputs", listToJson(plan.inputs)},
                 {"outputs", listToJson(plan.outputs)},
                 {"kernels", listToJson(plan.kernels)},
                 {"steps", listToJson(plan.steps)},
                 {"repetitions", repetitions},
                 {"preparation", listToJson(plan.preparation)},
                 {"equalities", equalities},
                 {"report", plan.report}};
  return result.dump(1, ' ', false, json::error_handler_t::replace);
}

} // namespace fusion
