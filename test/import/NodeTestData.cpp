#include "NodeTestData.h"

#include "ir/import/TensorData.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <set>

namespace fusion::test {

namespace {

namespace fs = std::filesystem;
using onnx::proto::TensorProto;

std::string readFile(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void addFolder(const std::string &source, const fs::path &root, std::vector<NodeTestFolder> &tests) {
  std::error_code none;
  for (const auto &entry : fs::directory_iterator(root, none)) {
    NodeTestFolder test{source, entry.path().string(), entry.path().filename().string(), {}};
    if (test.name.starts_with("test_") && test.model.ParseFromString(readFile(entry.path() / "model.onnx")))
      tests.push_back(std::move(test));
  }
}

void collectOps(const onnx::proto::GraphProto &graph, std::set<std::string> &ops) {
  for (const auto &node : graph.node()) {
    ops.insert(node.domain().empty() ? node.op_type() : node.domain() + "." + node.op_type());
    for (const auto &attribute : node.attribute())
      if (attribute.has_g())
        collectOps(attribute.g(), ops);
  }
}

template <class To, class Field>
void copyField(const Field &field, Tensor &tensor) {
  for (int64_t i = 0; i < std::min<int64_t>(field.size(), tensor.size()); ++i)
    tensor.as<To>()[i] = static_cast<To>(field.Get(static_cast<int>(i)));
}

Result<Tensor> toTensor(const TensorProto &proto) {
  auto type = onnx::elementTypeOf(proto.data_type());
  if (!type)
    return type.error();
  Tensor tensor = Tensor::zeros(*type, Shape(proto.dims().begin(), proto.dims().end()));
  if (*type == DType::I4 || *type == DType::U4) {
    std::string packed = proto.raw_data();
    for (int32_t pair : proto.int32_data())
      packed.push_back(static_cast<char>(pair));
    if (packed.size() * 2 < static_cast<size_t>(tensor.size()))
      return badInput("too few bytes");
    for (int64_t i = 0; i < tensor.size(); ++i) {
      int nibble = packed[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 15;
      tensor.as<int8_t>()[i] = static_cast<int8_t>(*type == DType::I4 && nibble > 7 ? nibble - 16 : nibble);
    }
    return tensor;
  }
  if (proto.has_raw_data()) {
    if (proto.raw_data().size() != tensor.bytes())
      return badInput(fmt::format("{} bytes for {}", proto.raw_data().size(), shapeString(tensor.shape())));
    if (tensor.bytes())
      std::memcpy(tensor.data(), proto.raw_data().data(), tensor.bytes());
    return tensor;
  }
  switch (*type) {
  case DType::F32:
    copyField<float>(proto.float_data(), tensor);
    break;
  case DType::F64:
    copyField<double>(proto.double_data(), tensor);
    break;
  case DType::I64:
    copyField<int64_t>(proto.int64_data(), tensor);
    break;
  case DType::U32:
    copyField<uint32_t>(proto.uint64_data(), tensor);
    break;
  case DType::U64:
    copyField<uint64_t>(proto.uint64_data(), tensor);
    break;
  case DType::I32:
    copyField<int32_t>(proto.int32_data(), tensor);
    break;
  default:
    if (byteSize(*type) == 2)
      copyField<uint16_t>(proto.int32_data(), tensor);
    else
      copyField<uint8_t>(proto.int32_data(), tensor);
  }
  return tensor;
}

} // namespace

std::vector<NodeTestFolder> findNodeTests() {
  std::vector<NodeTestFolder> tests;
  addFolder("debian", "/usr/lib/python3/dist-packages/onnx/backend/test/data/node", tests);
  addFolder("contrib", fs::path(FUSION_SOURCE_DIR) / "test/import/contrib", tests);
  std::error_code none;
  for (const auto &python : fs::directory_iterator(fs::path(FUSION_SOURCE_DIR) / ".venv/lib", none))
    addFolder("wheel", python.path() / "site-packages/onnx/backend/test/data/node", tests);
  if (const char *folders = std::getenv("FUSION_ONNX_NODE_TESTS")) {
    std::string_view rest = folders;
    while (!rest.empty()) {
      size_t end = std::min(rest.find(':'), rest.size());
      addFolder("given", rest.substr(0, end), tests);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  std::sort(tests.begin(), tests.end(), [](const NodeTestFolder &a, const NodeTestFolder &b) {
    return std::tie(a.source, a.name) < std::tie(b.source, b.name);
  });
  return tests;
}

std::vector<std::string> opsOf(const onnx::proto::ModelProto &model) {
  std::set<std::string> ops;
  collectOps(model.graph(), ops);
  return {ops.begin(), ops.end()};
}

std::string unsupportedType(const onnx::proto::ModelProto &model) {
  for (const auto *values : {&model.graph().input(), &model.graph().output()})
    for (const auto &value : *values) {
      if (!value.type().has_tensor_type())
        return value.name() + " is not a tensor";
      if (auto type = onnx::elementTypeOf(value.type().tensor_type().elem_type()); !type)
        return type.error().message;
    }
  return {};
}

Result<std::vector<Tensor>> readTensors(const std::string &folder, const std::string &kind) {
  std::vector<Tensor> tensors;
  for (;;) {
    fs::path path = fs::path(folder) / fmt::format("{}_{}.pb", kind, tensors.size());
    if (!fs::exists(path))
      return tensors;
    TensorProto proto;
    if (!proto.ParseFromString(readFile(path)))
      return badInput(path.string() + " is not a tensor");
    auto tensor = toTensor(proto);
    if (!tensor)
      return badInput(path.string() + ": " + tensor.error().message);
    tensors.push_back(*tensor);
  }
}

std::vector<std::string> dataSets(const NodeTestFolder &test) {
  std::vector<std::string> folders;
  for (const auto &entry : fs::directory_iterator(test.path))
    if (entry.path().filename().string().starts_with("test_data_set_"))
      folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

} // namespace fusion::test
