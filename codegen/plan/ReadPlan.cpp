// Plans from JSON. The functions below throw JsonProblem, caught in programPlanFromJson.
#include "codegen/plan/PlanJson.h"
#include "codegen/target/TargetInfo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

using nlohmann::json;

namespace fusion {

using namespace plan_json;

static Dim readDim(const std::string &text) {
  Result<Dim> dim = Dim::parse(text);
  if (!dim)
    throw JsonProblem{dim.error().message};
  return *dim;
}

static Dim readDimField(const json &object, const char *key) {
  return readDim(jsonField<std::string>(object, key));
}

static DimShape readShape(const json &object, const char *key = "shape") {
  DimShape shape;
  for (const std::string &text : jsonField<std::vector<std::string>>(object, key))
    shape.push_back(readDim(text));
  return shape;
}

static DType readTypeName(const std::string &text) {
  std::optional<DType> type = dtypeFromName(text);
  if (!type)
    throw JsonProblem{fmt::format("unknown element type '{}'", text)};
  return *type;
}

static DType readType(const json &object) { return readTypeName(jsonField<std::string>(object, "type")); }

/// The enumerator of which `key` has the name.
template <class Enum, size_t N>
static Enum readEnum(const json &object, const char *key, const char *const (&names)[N], const char *what) {
  auto name = jsonField<std::string>(object, key);
  auto *found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names))
    throw JsonProblem{fmt::format("unknown {} '{}'", what, name)};
  return static_cast<Enum>(found - names);
}

static std::array<uint32_t, 3> readExtents(const json &object, const char *key) {
  auto extents = jsonField<std::vector<uint32_t>>(object, key);
  if (extents.size() != 3)
    throw JsonProblem{fmt::format("field '{}' does not have three numbers", key)};
  return {extents[0], extents[1], extents[2]};
}

static LibraryMatmul readMatmul(const json &object) {
  auto types = jsonField<std::vector<std::string>>(object, "types");
  auto columnMajor = jsonField<std::vector<bool>>(object, "column_major");
  if (types.size() != 3 || columnMajor.size() != 2)
    throw JsonProblem{"a matmul does not have three types and two layouts"};
  return {readTypeName(types[0]), readTypeName(types[1]), readTypeName(types[2]), columnMajor[0],
          columnMajor[1]};
}

static KernelPlan readKernel(const json &object) {
  KernelPlan kernel;
  kernel.name = jsonField<std::string>(object, "name");
  kernel.schedule = jsonField<std::string>(object, "schedule");
  kernel.source = jsonField<std::string>(object, "source");
  for (const json &entry : jsonArray(object, "parameters"))
    kernel.parameters.push_back(
        {readEnum<KernelPlan::Parameter::Kind>(entry, "kind", parameterKinds, "parameter kind"),
         jsonField<std::string>(entry, "type"), jsonField<std::string>(entry, "name")});
  auto [blockX, blockY, blockZ] = readExtents(object, "block");
  kernel.blockX = blockX, kernel.blockY = blockY, kernel.blockZ = blockZ;
  auto [clusterX, clusterY, clusterZ] = readExtents(object, "cluster");
  kernel.clusterX = clusterX, kernel.clusterY = clusterY, kernel.clusterZ = clusterZ;
  kernel.dynamicSharedBytes = jsonField<uint32_t>(object, "dynamic_shared_bytes");
  kernel.usesPdl = jsonField<bool>(object, "uses_pdl");
  kernel.cooperative = jsonField<bool>(object, "cooperative");
  for (const std::string &name : jsonField<std::vector<std::string>>(object, "features")) {
    Result<Feature> feature = featureNamed(name);
    if (!feature)
      throw JsonProblem{feature.error().message};
    kernel.features |= static_cast<uint32_t>(*feature);
  }
  kernel.emulatable = jsonField<bool>(object, "emulatable");
  kernel.whyNotEmulatable = jsonField<std::string>(object, "why_not_emulatable");
  kernel.isLibraryCall = jsonField<bool>(object, "library_call");
  if (auto matmul = object.find("matmul"); matmul != object.end())
    kernel.matmul = readMatmul(*matmul);
  return kernel;
}

static Tensor readTensor(const json &object) {
  DType type = readType(object);
  auto shape = jsonField<Shape>(object, "shape");
  Result<std::string> bytes = decodeBase64(jsonField<std::string>(object, "base64"));
  if (!bytes)
    throw JsonProblem{bytes.error().message};
  // Checked by division, so that a corrupt shape neither overflows nor allocates.
  bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  size_t remaining = bytes->size() / byteSize(type);
  for (int64_t dim : shape) {
    if (dim < 0 || (!empty && remaining % static_cast<size_t>(dim) != 0))
      throw JsonProblem{"a constant's shape does not fit its bytes"};
    if (!empty)
      remaining /= static_cast<size_t>(dim);
  }
  if (bytes->size() % byteSize(type) != 0 || remaining != (empty ? 0 : 1))
    throw JsonProblem{"a constant's shape does not fit its bytes"};
  Tensor tensor = Tensor::uninitialized(type, std::move(shape));
  if (!bytes->empty())
    std::memcpy(tensor.data(), bytes->data(), bytes->size());
  return tensor;
}

static FileSpan readFileSpan(const json &object) {
  return {jsonField<std::string>(object, "path"), jsonField<uint64_t>(object, "offset"),
          jsonField<uint64_t>(object, "length")};
}

static BufferPlan readBuffer(const json &object) {
  BufferPlan buffer;
  buffer.kind = readEnum<BufferPlan::Kind>(object, "kind", bufferKinds, "buffer kind");
  buffer.name = jsonField<std::string>(object, "name");
  buffer.type = readType(object);
  buffer.shape = readShape(object);
  if (auto file = object.find("file"); file != object.end())
    buffer.contents = readFileSpan(*file);
  else if (auto data = object.find("data"); data != object.end())
    buffer.contents = readTensor(*data);
  if (object.contains("per_rank"))
    for (const json &file : jsonArray(object, "per_rank"))
      buffer.perRank.push_back(readFileSpan(file));
  if (object.contains("parts"))
    for (const json &file : jsonArray(object, "parts"))
      buffer.parts.push_back(readFileSpan(file));
  if (auto window = object.find("window"); window != object.end())
    buffer.window = {jsonField<Shape>(*window, "whole"), readShape(*window, "starts")};
  if (object.contains("scattered"))
    buffer.isScattered = jsonField<bool>(object, "scattered");
  return buffer;
}

template <class Read>
static auto readList(const json &object, const char *key, Read read) {
  std::vector<decltype(read(object))> items;
  for (const json &entry : jsonArray(object, key)) {
    try {
      items.push_back(read(entry));
    } catch (const JsonProblem &problem) {
      throw JsonProblem{fmt::format("{}[{}]: {}", key, items.size(), problem.message)};
    }
  }
  return items;
}

static KernelArgument readTensorMap(const json &entry) {
  TensorMapArgument map;
  map.buffer = jsonField<BufferId>(entry, "tensor_map");
  map.byteOffset = readDimField(entry, "byte_offset");
  map.written = jsonField<bool>(entry, "written");
  map.type = readType(entry);
  map.shape = readShape(entry);
  map.strides = readShape(entry, "strides");
  map.box = jsonField<std::vector<uint32_t>>(entry, "box");
  map.elementStrides = jsonField<std::vector<uint32_t>>(entry, "element_strides");
  map.swizzle = readEnum<TensorMapArgument::Swizzle>(entry, "swizzle", swizzles, "swizzle");
  map.l2Promotion =
      readEnum<TensorMapArgument::L2Promotion>(entry, "l2_promotion", l2Promotions, "L2 promotion");
  map.outOfBounds =
      readEnum<TensorMapArgument::OutOfBounds>(entry, "out_of_bounds", outOfBounds, "out-of-bounds fill");
  return map;
}

static KernelArgument readArgument(const json &entry) {
  if (entry.contains("tensor_map"))
    return readTensorMap(entry);
  if (entry.contains("workspace_bytes"))
    return WorkspaceArgument{
        readDimField(entry, "workspace_bytes"),
        readEnum<WorkspaceArgument::Contents>(entry, "contents", workspaceContents, "contents")};
  if (entry.contains("exchange"))
    return ExchangeArgument();
  if (!entry.contains("buffer"))
    return ScalarArgument{readDimField(entry, "value")};
  PointerArgument pointer{jsonField<BufferId>(entry, "buffer"), 0, jsonField<bool>(entry, "written")};
  if (entry.contains("byte_offset"))
    pointer.byteOffset = readDimField(entry, "byte_offset");
  if (entry.contains("may_replace"))
    pointer.mayReplace = jsonField<std::vector<uint32_t>>(entry, "may_replace");
  return pointer;
}

static KernelLaunch readLaunch(const json &object) {
  KernelLaunch launch;
  launch.kernel = jsonField<uint32_t>(object, "kernel");
  launch.arguments = readList(object, "arguments", readArgument);
  auto grid = jsonField<std::vector<std::string>>(object, "grid");
  if (grid.size() != 3)
    throw JsonProblem{"field 'grid' does not have three dims"};
  launch.gridX = readDim(grid[0]), launch.gridY = readDim(grid[1]), launch.gridZ = readDim(grid[2]);
  if (object.contains("sums_over"))
    launch.sumsOver = jsonField<std::string>(object, "sums_over");
  launch.location = jsonField<std::string>(object, "location");
  launch.fusion = jsonField<std::string>(object, "fusion");
  launch.ops = jsonField<std::vector<std::string>>(object, "ops");
  launch.bytesRead = readDimField(object, "bytes_read");
  launch.bytesWritten = readDimField(object, "bytes_written");
  launch.flops = readDimField(object, "flops");
  return launch;
}

static SizeRange readRange(const json &object) {
  return {readDimField(object, "size"), jsonField<int64_t>(object, "least"),
          jsonField<int64_t>(object, "most")};
}

static Alternative readAlternative(const json &object) {
  Alternative alternative;
  if (object.contains("when"))
    alternative.when = readList(object, "when", readRange);
  alternative.launches = readList(object, "launches", readLaunch);
  if (object.contains("variant"))
    alternative.variant = jsonField<std::string>(object, "variant");
  if (auto found = object.find("collective"); found != object.end())
    alternative.collective = {
        readEnum<CollectiveAlgorithm>(*found, "algorithm", collectiveAlgorithms, "collective algorithm"),
        readDimField(*found, "message_bytes"), readDimField(*found, "round_bytes"),
        jsonField<bool>(*found, "gathers_rows")};
  if (auto found = object.find("linked"); found != object.end())
    alternative.linked = readLaunch(*found);
  if (object.contains("link"))
    alternative.link = readEnum<Alternative::Link>(object, "link", links, "link");
  return alternative;
}

static Step readStep(const json &object) {
  return {readEnum<Step::Choice>(object, "choice", choices, "choice"),
          readList(object, "alternatives", readAlternative)};
}

static std::optional<PortPlan::Shard> readShard(const json &port) {
  auto shard = port.find("shard");
  if (shard == port.end())
    return std::nullopt;
  return PortPlan::Shard{jsonField<int64_t>(*shard, "axis"), jsonField<int64_t>(*shard, "count")};
}

static PortPlan readPort(const json &object) {
  return {jsonField<std::string>(object, "name"),
          readType(object),
          readShape(object),
          jsonField<BufferId>(object, "buffer"),
          readDimField(object, "byte_offset"),
          object.contains("strides") ? readShape(object, "strides") : DimShape(),
          readShard(object)};
}

Result<ProgramPlan> programPlanFromJson(std::string_view text) {
  json object = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    return badInput("the program plan is not valid JSON");
  ProgramPlan plan;
  try {
    if (int format = jsonField<int>(object, "format"); format != formatVersion)
      return badInput(
          fmt::format("the program plan has format {}, this version reads format {}", format, formatVersion));
    plan.model = jsonField<std::string>(object, "model");
    plan.target = jsonField<std::string>(object, "target");
    plan.axis = jsonField<std::string>(object, "axis");
    plan.ranks = jsonField<int64_t>(object, "ranks");
    plan.buffers = readList(object, "buffers", readBuffer);
    plan.inputs = readList(object, "inputs", readPort);
    plan.outputs = readList(object, "outputs", readPort);
    plan.kernels = readList(object, "kernels", readKernel);
    plan.steps = readList(object, "steps", readStep);
    plan.repetitions = readList(object, "repetitions", [](const json &entry) {
      return ProgramPlan::Repetition{jsonField<uint32_t>(entry, "first"), jsonField<uint32_t>(entry, "end"),
                                     readDimField(entry, "count")};
    });
    plan.preparation = readList(object, "preparation", readStep);
    plan.equalities = readList(object, "equalities", [](const json &entry) {
      return ProgramPlan::Equality{readDimField(entry, "left"), readDimField(entry, "right"),
                                   jsonField<std::string>(entry, "reason")};
    });
    plan.report = jsonField<std::string>(object, "report");
  } catch (const JsonProblem &problem) {
    return badInput("the program plan is malformed: " + problem.message);
  }
  if (Status valid = verify(plan); !valid)
    return valid.error();
  return plan;
}

} // namespace fusion
