#include "ir/import/ModelFile.h"

#include "ir/import/WireFormat.h"

#include <fmt/format.h>

namespace fusion::onnx {

namespace {

/// The messages in which tensors can be.
enum class Message { Model, Graph, Node, Attribute, Function, Tensor };

std::optional<Message> submessage(Message parent, uint32_t field) {
  switch (parent) {
  case Message::Model:
    if (field == proto::ModelProto::kGraphFieldNumber)
      return Message::Graph;
    if (field == proto::ModelProto::kFunctionsFieldNumber)
      return Message::Function;
    break;
  case Message::Graph:
    if (field == proto::GraphProto::kNodeFieldNumber)
      return Message::Node;
    if (field == proto::GraphProto::kInitializerFieldNumber)
      return Message::Tensor;
    break;
  case Message::Node:
    if (field == proto::NodeProto::kAttributeFieldNumber)
      return Message::Attribute;
    break;
  case Message::Attribute:
    if (field == proto::AttributeProto::kTFieldNumber || field == proto::AttributeProto::kTensorsFieldNumber)
      return Message::Tensor;
    if (field == proto::AttributeProto::kGFieldNumber || field == proto::AttributeProto::kGraphsFieldNumber)
      return Message::Graph;
    break;
  case Message::Function:
    if (field == proto::FunctionProto::kNodeFieldNumber)
      return Message::Node;
    if (field == proto::FunctionProto::kAttributeProtoFieldNumber)
      return Message::Attribute;
    break;
  case Message::Tensor:
    break;
  }
  return std::nullopt;
}

// Fields that stand in for raw_data; far above those of ONNX.
constexpr uint32_t offsetField = 100001, lengthField = 100002;
constexpr int deepest = 64; // graphs inside graphs

/// Copies a message without the raw_data of its tensors, whose ranges go into fields of our own.
class Reducer {
public:
  explicit Reducer(const char *start) : start(start) {}

  bool reduce(Message kind, std::string_view message, std::string &out, int depth = 0) {
    if (depth > 4 * deepest)
      return false;
    WireReader reader(message);
    while (auto field = reader.next()) {
      if (kind == Message::Tensor && field->number == proto::TensorProto::kRawDataFieldNumber &&
          field->wireType == 2) {
        appendIntegerField(out, offsetField, static_cast<uint64_t>(field->payload.data() - start));
        appendIntegerField(out, lengthField, field->payload.size());
      } else if (kind == Message::Tensor && (field->number == offsetField || field->number == lengthField)) {
        continue;
      } else if (auto child = submessage(kind, field->number); child && field->wireType == 2) {
        std::string reduced;
        if (!reduce(*child, field->payload, reduced, depth + 1))
          return false;
        appendBytesField(out, field->number, reduced);
      } else {
        out.append(field->encoding);
      }
    }
    return !reader.damaged();
  }

private:
  const char *start;
};

constexpr int64_t oldestIr = 3, oldestOpset = 7, newestOpset = 28;

Status checkHeader(const proto::ModelProto &model) {
  if (!model.has_ir_version())
    return badInput("not an ONNX model: it has no IR version");
  if (model.ir_version() < oldestIr)
    return badInput(
        fmt::format("IR version {} is not supported (the oldest is {})", model.ir_version(), oldestIr));
  if (!model.has_graph())
    return badInput("the model has no graph (is the file truncated?)");
  if (model.opset_import_size() == 0)
    return badInput("the model imports no opset (is the file truncated?)");
  for (const auto &import : model.opset_import())
    if ((import.domain().empty() || import.domain() == "ai.onnx") &&
        (import.version() < oldestOpset || import.version() > newestOpset))
      return badInput(fmt::format("opset {} is not supported ({} to {} are)", import.version(), oldestOpset,
                                  newestOpset));
  return {};
}

} // namespace

Result<ModelFile> openModel(const std::string &path, std::shared_ptr<MappedFile> contents) {
  if (!contents) {
    auto file = MappedFile::open(path);
    if (!file)
      return file.error();
    contents = std::move(*file);
  }
  std::string_view bytes(reinterpret_cast<const char *>(contents->bytes().data()), contents->bytes().size());
  if (bytes.empty())
    return badInput(path + ": the file is empty");
  std::string reduced;
  if (!Reducer(bytes.data()).reduce(Message::Model, bytes, reduced))
    return badInput(path + ": not an ONNX model, or truncated or damaged");
  ModelFile result{std::move(contents), {}, {}};
  if (!result.model.ParseFromString(reduced))
    return badInput(path + ": not an ONNX model, or damaged");
  if (auto status = checkHeader(result.model); !status)
    return badInput(path + ": " + status.error().message);
  return result;
}

std::optional<FileRange> rawData(const proto::TensorProto &tensor) {
  WireReader reader(tensor.unknown_fields());
  FileRange range;
  bool found = false;
  while (auto field = reader.next()) {
    if (field->number == offsetField)
      range.offset = field->integer;
    if (field->number == lengthField) {
      range.length = field->integer;
      found = true;
    }
  }
  return found ? std::optional(range) : std::nullopt;
}

} // namespace fusion::onnx
