// Small ONNX models written by tests.
#pragma once

#include "ir/dialect/Dialect.h"
#include "ir/import/Onnx.h"
#include "ir/import/onnx.pb.h"

#include "mlir/IR/MLIRContext.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fusion::test {

namespace proto = ::fusion::onnx::proto;

/// A folder that goes with the object.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fusion-import-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(folder); }
  std::string operator/(const std::string &name) const { return (folder / name).string(); }

private:
  std::filesystem::path folder;
};

inline void writeFile(const std::string &path, std::string_view contents) {
  std::ofstream(path, std::ios::binary).write(contents.data(), static_cast<std::streamsize>(contents.size()));
}

inline std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Dims as text: a number is a size, "" an unnamed dim, anything else a dim_param.
using Dims = std::vector<std::string>;

class ModelBuilder {
public:
  explicit ModelBuilder(int64_t opset = 18) {
    model.set_ir_version(8);
    importDomain("", opset);
    graph().set_name("test");
  }

  proto::GraphProto &graph() { return *model.mutable_graph(); }
  void importDomain(const std::string &domain, int64_t version) {
    auto *import = model.add_opset_import();
    import->set_domain(domain);
    import->set_version(version);
  }

  ModelBuilder &input(const std::string &name, int32_t type, const Dims &dims) {
    describe(*graph().add_input(), name, type, dims);
    return *this;
  }
  ModelBuilder &output(const std::string &name) {
    describe(*graph().add_output(), name, proto::TensorProto::FLOAT, {});
    graph().mutable_output()->rbegin()->mutable_type()->mutable_tensor_type()->clear_shape();
    return *this;
  }
  ModelBuilder &ints(const std::string &name, const std::vector<int64_t> &values, bool scalar = false) {
    *graph().add_initializer() = intTensor(name, values, scalar);
    return *this;
  }
  static proto::TensorProto intTensor(const std::string &name, const std::vector<int64_t> &values,
                                      bool scalar = false) {
    proto::TensorProto tensor;
    tensor.set_name(name);
    tensor.set_data_type(proto::TensorProto::INT64);
    if (!scalar)
      tensor.add_dims(static_cast<int64_t>(values.size()));
    tensor.set_raw_data(values.data(), values.size() * sizeof(int64_t));
    return tensor;
  }
  /// An f32 initialiser with embedded bytes 0, 1, 2, …
  ModelBuilder &weight(const std::string &name, const std::vector<int64_t> &dims) {
    auto *tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(proto::TensorProto::FLOAT);
    std::vector<float> values;
    int64_t count = 1;
    for (int64_t dim : dims) {
      tensor->add_dims(dim);
      count *= dim;
    }
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(i));
    tensor->set_raw_data(values.data(), values.size() * sizeof(float));
    return *this;
  }
  proto::NodeProto &node(const std::string &op, const std::vector<std::string> &inputs,
                         const std::vector<std::string> &outputs, const std::string &domain = "") {
    return fill(*graph().add_node(), op, inputs, outputs, domain);
  }
  static proto::NodeProto &fill(proto::NodeProto &node, const std::string &op,
                                const std::vector<std::string> &inputs,
                                const std::vector<std::string> &outputs, const std::string &domain = "") {
    node.set_op_type(op);
    node.set_domain(domain);
    node.set_name("node_" + (outputs.empty() ? op : outputs[0]));
    for (const auto &name : inputs)
      node.add_input(name);
    for (const auto &name : outputs)
      node.add_output(name);
    return node;
  }
  static proto::AttributeProto &attribute(proto::NodeProto &node, const std::string &name, int64_t value) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(proto::AttributeProto::INT);
    attribute->set_i(value);
    return *attribute;
  }
  static void attribute(proto::NodeProto &node, const std::string &name, const std::string &value) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(proto::AttributeProto::STRING);
    attribute->set_s(value);
  }
  static void attribute(proto::NodeProto &node, const std::string &name, const std::vector<int64_t> &values) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(proto::AttributeProto::INTS);
    for (int64_t value : values)
      attribute->add_ints(value);
  }

  static void describe(proto::ValueInfoProto &info, const std::string &name, int32_t type, const Dims &dims) {
    info.set_name(name);
    auto *tensor = info.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const auto &dim : dims) {
      auto *entry = tensor->mutable_shape()->add_dim();
      if (!dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos)
        entry->set_dim_value(std::stoll(dim));
      else if (!dim.empty())
        entry->set_dim_param(dim);
    }
  }

  proto::ModelProto model;
};

/// Imports models and keeps the context that their modules live in.
class Importer {
public:
  Importer() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }
  Result<mlir::OwningOpRef<mlir::ModuleOp>> import(const std::string &path,
                                                   const ImportOptions &options = {}) {
    return importOnnx(context, path, options);
  }
  /// The module's text, or `error: ` and the message without the path.
  std::string text(const std::string &path, const ImportOptions &options = {}) {
    auto module = import(path, options);
    if (!module) {
      std::string message = module.error().message;
      return "error: " + (message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message);
    }
    std::string text;
    llvm::raw_string_ostream stream(text);
    (*module)->print(stream);
    return text;
  }
  std::string text(const ModelBuilder &builder, const ImportOptions &options = {}) {
    std::string path = folder / "model.onnx";
    writeFile(path, builder.model.SerializeAsString());
    return text(path, options);
  }

  TemporaryFolder folder;
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
};

} // namespace fusion::test
