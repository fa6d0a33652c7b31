#include "codegen/plan/Json.h"
#include "codegen/plan/ProgramPlan.h"

#include <fmt/format.h>

#include <cstring>

using nlohmann::json;

namespace fusion {

/// Raised whenever a field changes its meaning: an older plan in a cache is then rejected, not misread.
static constexpr int formatVersion = 6;

// Writing.

static json toJson(const DimShape &shape) {
  json result = json::array();
  for (const Dim &dim : shape)
    result.push_back(dim.str());
  return result;
}

static json toJson(const KernelPlan &kernel) {
  json parameters = json::array();
  for (const KernelPlan::Parameter &parameter : kernel.parameters)
    parameters.push_back(
        {{"kind", parameter.kind == KernelPlan::Parameter::Kind::Pointer ? "pointer" : "int64"},
         {"type", parameter.type},
         {"name", parameter.name}});
  json result = {{"name", kernel.name},
          {"schedule", kernel.schedule},
          {"source", kernel.source},
          {"parameters", parameters},
          {"block", {kernel.blockX, kernel.blockY, kernel.blockZ}},
          {"dynamic_shared_bytes", kernel.dynamicSharedBytes},
          {"minimum_arch", kernel.minimumArch},
          {"emulatable", kernel.emulatable},
          {"why_not_emulatable", kernel.whyNotEmulatable},
          {"uses_pdl", kernel.usesPdl},
          {"library_call", kernel.isLibraryCall}};
  if (const std::optional<KernelPlan::Product> &product = kernel.product)
    result["product"] = {{"types", {name(product->a), name(product->b), name(product->c)}},
                         {"columns", {product->columnsOfA, product->columnsOfB}}};
  return result;
}

static constexpr const char *bufferKinds[] = {"input", "weight", "temporary", "output"};

static json toJson(const FileSpan &file) {
  return {{"path", file.path}, {"offset", file.offset}, {"length", file.length}};
}

static json toJson(const BufferPlan &buffer) {
  json result = {{"kind", bufferKinds[static_cast<int>(buffer.kind)]},
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
  if (buffer.window)
    result["window"] = {{"whole", buffer.window->whole}, {"starts", toJson(buffer.window->starts)}};
  if (buffer.ownersRows)
    result["owners_rows"] = true;
  return result;
}

static constexpr const char *collectiveForms[] = {"one-shot", "two-shot", "library"};
static constexpr const char *productWays[] = {"kernel", "library"};

static json toJson(const KernelLaunch &launch) {
  json arguments = json::array();
  for (const KernelLaunch::Argument &argument : launch.arguments) {
    if (argument.exchange) {
      arguments.push_back({{"exchange", true}});
      continue;
    }
    if (!argument.buffer) {
      arguments.push_back({{"value", argument.value.str()}});
      continue;
    }
    json entry = {{"buffer", *argument.buffer}, {"written", argument.written}};
    if (!(argument.byteOffset == Dim(0)))
      entry["byte_offset"] = argument.byteOffset.str();
    if (!argument.mayReplace.empty())
      entry["may_replace"] = argument.mayReplace;
    arguments.push_back(entry);
  }
  json result = {{"kernel", launch.kernel},
          {"arguments", arguments},
          {"grid", {launch.gridX.str(), launch.gridY.str(), launch.gridZ.str()}},
          {"location", launch.location},
          {"fusion", launch.fusion},
          {"ops", launch.ops},
          {"bytes_read", launch.bytesRead.str()},
          {"bytes_written", launch.bytesWritten.str()},
          {"flops", launch.flops.str()}};
  if (launch.when)
    result["when"] = {{"size", launch.when->size.str()}, {"least", launch.when->least}, {"most", launch.when->most}};
  if (launch.ahead)
    result["ahead"] = true;
  if (launch.collective)
    result["collective"] = {{"form", collectiveForms[static_cast<int>(launch.collective->form)]},
                            {"message_bytes", launch.collective->messageBytes.str()},
                            {"round_bytes", launch.collective->roundBytes.str()},
                            {"finished_rows", launch.collective->finishedRows}};
  if (launch.way)
    result["way"] = productWays[static_cast<int>(*launch.way)];
  return result;
}

static json toJson(const PortPlan &port) {
  json result = {{"name", port.name},
                 {"type", name(port.type)},
                 {"shape", toJson(port.shape)},
                 {"buffer", port.buffer},
                 {"byte_offset", port.byteOffset.str()}};
  if (!port.strides.empty())
    result["strides"] = toJson(port.strides);
  if (port.shard)
    result["shard"] = {{"axis", port.shard->axis}, {"pieces", port.shard->pieces}};
  return result;
}

template <class T>
static json listToJson(const std::vector<T> &items) {
  json result = json::array();
  for (const T &item : items)
    result.push_back(toJson(item));
  return result;
}

std::string toJson(const ProgramPlan &plan) {
  json equalities = json::array();
  for (const ProgramPlan::Equality &equality : plan.equalities)
    equalities.push_back(
        {{"left", equality.left.str()}, {"right", equality.right.str()}, {"reason", equality.reason}});
  json result = {{"format", formatVersion},
                 {"model", plan.model},
                 {"target", plan.target},
                 {"ranks", plan.ranks},
                 {"buffers", listToJson(plan.buffers)},
                 {"inputs", listToJson(plan.inputs)},
                 {"outputs", listToJson(plan.outputs)},
                 {"kernels", listToJson(plan.kernels)},
                 {"launches", listToJson(plan.launches)},
                 {"equalities", equalities},
                 {"report", plan.report}};
  return result.dump(1, ' ', false, json::error_handler_t::replace);
}

// Reading: the functions below throw JsonProblem, caught in programPlanFromJson.

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

static KernelPlan::Product readProduct(const json &object) {
  auto types = jsonField<std::vector<std::string>>(object, "types");
  auto columns = jsonField<std::vector<bool>>(object, "columns");
  if (types.size() != 3 || columns.size() != 2)
    throw JsonProblem{"a product does not have three types and two layouts"};
  return {readTypeName(types[0]), readTypeName(types[1]), readTypeName(types[2]), columns[0], columns[1]};
}

static KernelPlan readKernel(const json &object) {
  KernelPlan kernel;
  kernel.name = jsonField<std::string>(object, "name");
  kernel.schedule = jsonField<std::string>(object, "schedule");
  kernel.source = jsonField<std::string>(object, "source");
  for (const json &entry : jsonArray(object, "parameters")) {
    auto kind = jsonField<std::string>(entry, "kind");
    if (kind != "pointer" && kind != "int64")
      throw JsonProblem{fmt::format("unknown parameter kind '{}'", kind)};
    kernel.parameters.push_back(
        {kind == "pointer" ? KernelPlan::Parameter::Kind::Pointer : KernelPlan::Parameter::Kind::Int64,
         jsonField<std::string>(entry, "type"), jsonField<std::string>(entry, "name")});
  }
  auto block = jsonField<std::vector<uint32_t>>(object, "block");
  if (block.size() != 3)
    throw JsonProblem{"field 'block' does not have three numbers"};
  kernel.blockX = block[0], kernel.blockY = block[1], kernel.blockZ = block[2];
  kernel.dynamicSharedBytes = jsonField<uint32_t>(object, "dynamic_shared_bytes");
  kernel.minimumArch = jsonField<uint32_t>(object, "minimum_arch");
  kernel.emulatable = jsonField<bool>(object, "emulatable");
  kernel.whyNotEmulatable = jsonField<std::string>(object, "why_not_emulatable");
  kernel.usesPdl = jsonField<bool>(object, "uses_pdl");
  kernel.isLibraryCall = jsonField<bool>(object, "library_call");
  if (auto product = object.find("product"); product != object.end())
    kernel.product = readProduct(*product);
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

/// The enumerator of which `key` has the name.
template <class Enum, size_t N>
static Enum readEnum(const json &object, const char *key, const char *const (&names)[N], const char *what) {
  auto name = jsonField<std::string>(object, key);
  auto *found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names))
    throw JsonProblem{fmt::format("unknown {} '{}'", what, name)};
  return static_cast<Enum>(found - names);
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
  if (auto window = object.find("window"); window != object.end())
    buffer.window = {jsonField<Shape>(*window, "whole"), readShape(*window, "starts")};
  if (object.contains("owners_rows"))
    buffer.ownersRows = jsonField<bool>(object, "owners_rows");
  return buffer;
}

static KernelLaunch readLaunch(const json &object) {
  KernelLaunch launch;
  launch.kernel = jsonField<uint32_t>(object, "kernel");
  for (const json &entry : jsonArray(object, "arguments")) {
    KernelLaunch::Argument argument;
    if (entry.contains("buffer")) {
      argument.buffer = jsonField<BufferId>(entry, "buffer");
      argument.written = jsonField<bool>(entry, "written");
      if (entry.contains("byte_offset"))
        argument.byteOffset = readDimField(entry, "byte_offset");
      if (entry.contains("may_replace"))
        argument.mayReplace = jsonField<std::vector<uint32_t>>(entry, "may_replace");
    } else if (entry.contains("exchange")) {
      argument.exchange = jsonField<bool>(entry, "exchange");
    } else {
      argument.value = readDimField(entry, "value");
    }
    launch.arguments.push_back(std::move(argument));
  }
  auto grid = jsonField<std::vector<std::string>>(object, "grid");
  if (grid.size() != 3)
    throw JsonProblem{"field 'grid' does not have three dims"};
  launch.gridX = readDim(grid[0]), launch.gridY = readDim(grid[1]), launch.gridZ = readDim(grid[2]);
  launch.location = jsonField<std::string>(object, "location");
  launch.fusion = jsonField<std::string>(object, "fusion");
  launch.ops = jsonField<std::vector<std::string>>(object, "ops");
  launch.bytesRead = readDimField(object, "bytes_read");
  launch.bytesWritten = readDimField(object, "bytes_written");
  launch.flops = readDimField(object, "flops");
  if (auto when = object.find("when"); when != object.end())
    launch.when = {readDimField(*when, "size"), jsonField<int64_t>(*when, "least"), jsonField<int64_t>(*when, "most")};
  if (object.contains("ahead"))
    launch.ahead = jsonField<bool>(object, "ahead");
  if (auto way = object.find("collective"); way != object.end())
    launch.collective = {readEnum<CollectiveForm>(*way, "form", collectiveForms, "collective form"),
                         readDimField(*way, "message_bytes"), readDimField(*way, "round_bytes"),
                         jsonField<bool>(*way, "finished_rows")};
  if (object.contains("way"))
    launch.way = readEnum<ProductWay>(object, "way", productWays, "way of a product");
  return launch;
}

static std::optional<PortPlan::Shard> readShard(const json &port) {
  auto shard = port.find("shard");
  if (shard == port.end())
    return std::nullopt;
  return PortPlan::Shard{jsonField<int64_t>(*shard, "axis"), jsonField<int64_t>(*shard, "pieces")};
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
    plan.ranks = jsonField<int64_t>(object, "ranks");
    plan.buffers = readList(object, "buffers", readBuffer);
    plan.inputs = readList(object, "inputs", readPort);
    plan.outputs = readList(object, "outputs", readPort);
    plan.kernels = readList(object, "kernels", readKernel);
    plan.launches = readList(object, "launches", readLaunch);
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
