#include "ir/import/ModelFile.h"
#include "ir/import/TensorData.h"

#include <fmt/format.h>

namespace fusion::onnx {

/// Adds an initialiser for the graph input of that name: its type and dims are the weight's, where the
/// input's allow them.
static Result<proto::TensorProto *> initializerOfInput(proto::GraphProto &graph, const std::string &name,
                                                       const Shape &shape) {
  for (const proto::ValueInfoProto &input : graph.input()) {
    if (input.name() != name)
      continue;
    const proto::TypeProto::Tensor &type = input.type().tensor_type();
    bool fits = !type.has_shape() || type.shape().dim_size() == static_cast<int>(shape.size());
    for (int i = 0; fits && i < type.shape().dim_size(); ++i)
      fits = !type.shape().dim(i).has_dim_value() ||
             type.shape().dim(i).dim_value() == shape[static_cast<size_t>(i)];
    if (!fits)
      return badInput(fmt::format("weight '{}': its shape {} is not the input's", name, shapeString(shape)));
    proto::TensorProto *tensor = graph.add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type.elem_type());
    tensor->mutable_dims()->Add(shape.begin(), shape.end());
    return tensor;
  }
  return badInput(fmt::format("the graph has no initializer or input '{}' for a weight", name));
}

/// 4-bit elements come two to a byte.
static bool fits(const proto::TensorProto &tensor, const MemoryWeight &weight) {
  auto type = elementTypeOf(tensor.data_type());
  if (!type)
    return true; // said where the tensor is described
  const Shape shape(tensor.dims().begin(), tensor.dims().end());
  if (*type == DType::I4 || *type == DType::U4)
    return weight.type == DType::U8 && elementCount(weight.shape) == (elementCount(shape) + 1) / 2;
  return *type == weight.type && shape == weight.shape;
}

Status takeWeights(ModelFile &model, const std::map<std::string, MemoryWeight> &weights) {
  proto::GraphProto &graph = *model.model.mutable_graph();
  std::map<std::string, proto::TensorProto *, std::less<>> known;
  for (proto::TensorProto &tensor : *graph.mutable_initializer())
    known.emplace(tensor.name(), &tensor);
  for (const auto &[name, weight] : weights) {
    auto found = known.find(name);
    Result<proto::TensorProto *> tensor =
        found != known.end() ? found->second : initializerOfInput(graph, name, weight.shape);
    if (!tensor)
      return tensor.error();
    proto::TensorProto &target = **tensor;
    if (!fits(target, weight))
      return badInput(fmt::format(
          "weight '{}': {} {} is given, the graph has {} {}", name, shapeString(weight.shape),
          fusion::name(weight.type), shapeString(Shape(target.dims().begin(), target.dims().end())),
          proto::TensorProto::DataType_Name(static_cast<proto::TensorProto::DataType>(target.data_type()))));
    proto::TensorProto taken;
    taken.set_name(target.name());
    taken.set_data_type(target.data_type());
    *taken.mutable_dims() = target.dims();
    taken.set_data_location(proto::TensorProto::EXTERNAL);
    auto *entry = taken.add_external_data();
    entry->set_key("location");
    entry->set_value(weight.bytes->path());
    target = std::move(taken);
    model.memory[weight.bytes->path()] = weight.bytes;
  }
  return {};
}

} // namespace fusion::onnx
