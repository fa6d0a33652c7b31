#include "ir/import/NodeImporter.h"

#include "ir/import/Graph.h"
#include "ir/import/Known.h"

using namespace mlir;

namespace fusion::onnx {

NodeImporter::NodeImporter(GraphImporter &graph, const proto::NodeProto &node, int64_t opset,
                           Location location)
    : graph(graph), node(node), version(opset), where(location) {}

StringRef NodeImporter::opType() const { return node.op_type(); }
MLIRContext *NodeImporter::context() const { return graph.builder.getContext(); }
OpBuilder &NodeImporter::builder() { return graph.builder; }

void NodeImporter::fail(const Twine &reason) {
  if (!failed())
    problem = reason.str();
}

unsigned NodeImporter::inputCount() const { return static_cast<unsigned>(node.input_size()); }
bool NodeImporter::has(unsigned index) const { return index < inputCount() && !node.input(index).empty(); }

GraphValue *NodeImporter::input(unsigned index) {
  if (failed())
    return nullptr;
  GraphValue *value = has(index) ? graph.scope().find(node.input(index)) : nullptr;
  if (value && value->isTensor())
    return value;
  const std::string what = !value ? "missing" : value->whyNoTensor() + ", which this op does not take";
  return fail("input " + Twine(index) + " is " + what), nullptr;
}

Value NodeImporter::operand(unsigned index) {
  GraphValue *value = input(index);
  if (!value)
    return {};
  auto built = graph.materialise(*value, where);
  if (built)
    return *built;
  fail(built.error().message);
  return {};
}

DimShape NodeImporter::shape(unsigned index) {
  GraphValue *value = input(index);
  return value ? value->shape : DimShape();
}

Type NodeImporter::inputType(unsigned index) {
  GraphValue *value = input(index);
  return value ? value->element : Type();
}

std::optional<DimShape> NodeImporter::known(unsigned index) {
  if (failed() || !has(index))
    return std::nullopt;
  GraphValue *value = input(index);
  if (!value)
    return std::nullopt;
  auto contents = graph.known(*value);
  if (!contents) {
    fail(contents.error().message);
    return std::nullopt;
  }
  return *contents ? std::optional(**contents) : std::nullopt;
}

DimShape NodeImporter::requireKnown(unsigned index, StringRef what) {
  if (auto contents = known(index))
    return *contents;
  if (!has(index))
    fail(what + " (input " + Twine(index) + ") is missing");
  else
    fail(what + " (input " + Twine(index) + ", '" + node.input(index) + "') depends on run-time data");
  return {};
}

std::vector<int64_t> NodeImporter::requireConstants(unsigned index, StringRef what) {
  std::vector<int64_t> result;
  for (const Dim &dim : requireKnown(index, what)) {
    if (!dim.isStatic()) {
      fail(what + " (input " + Twine(index) + ") is '" + dim.str() + "', not a constant");
      return {};
    }
    result.push_back(dim.value());
  }
  return result;
}

std::optional<double> NodeImporter::constantScalar(unsigned index) {
  if (!has(index) || product(shape(index)) != Dim(1))
    return std::nullopt;
  if (auto integers = known(index))
    return (*integers)[0].isStatic() ? std::optional<double>((*integers)[0].value()) : std::nullopt;
  if (GraphValue *value = input(index); !value || !(value->tensor || value->value))
    return std::nullopt;
  if (auto contents = graph.computed(operand(index)); contents && contents->size() == 1)
    return contents->toFloats()[0];
  return fusion::constantScalar(operand(index));
}

std::string NodeImporter::unknownAttribute() const {
  for (const auto &attribute : node.attribute())
    if (!asked.contains(attribute.name()))
      return attribute.name();
  return {};
}

const proto::AttributeProto *NodeImporter::attribute(StringRef name) const {
  asked.insert(name.str());
  for (const auto &attribute : node.attribute()) {
    if (attribute.name() != name)
      continue;
    if (attribute.ref_attr_name().empty())
      return &attribute;
    const AttributeMap *outer = graph.scope().attributes;
    if (!outer)
      return nullptr;
    auto found = outer->find(attribute.ref_attr_name());
    return found == outer->end() ? nullptr : found->second;
  }
  return nullptr;
}

bool NodeImporter::hasAttribute(StringRef name) const { return attribute(name) != nullptr; }

int64_t NodeImporter::intAttribute(StringRef name, int64_t otherwise) {
  const auto *found = attribute(name);
  if (found && !found->has_i())
    fail("attribute '" + name + "' is not an integer");
  return found && found->has_i() ? found->i() : otherwise;
}

double NodeImporter::floatAttribute(StringRef name, double otherwise) {
  const auto *found = attribute(name);
  if (found && !found->has_f())
    fail("attribute '" + name + "' is not a float");
  return found && found->has_f() ? found->f() : otherwise;
}

std::string NodeImporter::stringAttribute(StringRef name, StringRef otherwise) {
  const auto *found = attribute(name);
  if (found && !found->has_s())
    fail("attribute '" + name + "' is not a string");
  return found && found->has_s() ? found->s() : otherwise.str();
}

std::vector<int64_t> NodeImporter::intsAttribute(StringRef name, std::vector<int64_t> otherwise) {
  const auto *found = attribute(name);
  return found ? std::vector<int64_t>(found->ints().begin(), found->ints().end()) : std::move(otherwise);
}

std::vector<double> NodeImporter::floatsAttribute(StringRef name) {
  const auto *found = attribute(name);
  return found ? std::vector<double>(found->floats().begin(), found->floats().end()) : std::vector<double>();
}

std::optional<Tensor> NodeImporter::tensorAttribute(StringRef name) {
  const auto *found = attribute(name);
  if (!found || !found->has_t())
    return std::nullopt;
  auto info = graph.tensors.describe(found->t());
  if (!info) {
    fail(info.error().message);
    return std::nullopt;
  }
  if (info->code != FloatCode::None) {
    fail("attribute '" + name + "' holds floats of 4 bits or powers of two, which only weights may be");
    return std::nullopt;
  }
  auto tensor = graph.tensors.load(found->t(), *info);
  if (!tensor) {
    fail(tensor.error().message);
    return std::nullopt;
  }
  return *tensor;
}

Type NodeImporter::typeAttribute(StringRef name, Type otherwise) {
  if (!hasAttribute(name))
    return otherwise;
  auto type = elementTypeOf(static_cast<int32_t>(intAttribute(name, 0)));
  if (type)
    return mlirType(context(), *type);
  fail("attribute '" + name + "': " + type.error().message);
  return otherwise;
}

int64_t NodeImporter::axis(int64_t value, int64_t rank) {
  int64_t normalised = value < 0 ? value + rank : value;
  if (normalised >= 0 && normalised < rank)
    return normalised;
  fail("axis " + Twine(value) + " is out of range for rank " + Twine(rank));
  return 0;
}

unsigned NodeImporter::outputCount() const { return static_cast<unsigned>(node.output_size()); }
bool NodeImporter::wants(unsigned index) const {
  return index < outputCount() && !node.output(index).empty();
}

void NodeImporter::define(const std::string &name, GraphValue *value) {
  if (auto status = graph.define(name, value); !status)
    fail(status.error().message);
}

void NodeImporter::result(unsigned index, Value value) {
  if (failed() || !wants(index))
    return;
  if (!value)
    return fail("output " + Twine(index) + " has no value");
  GraphValue *out = graph.newValue(node.output(index));
  out->value = value;
  out->shape = shapeOf(value);
  out->element = typeOf(value);
  define(out->name, out);
}

void NodeImporter::resultKnown(unsigned index, DimShape values, ArrayRef<int64_t> shape, Type elementType) {
  if (failed() || !wants(index))
    return;
  for (const Dim &value : values)
    if (!isManageable({value}))
      return fail("output " + Twine(index) + " is too complicated");
  GraphValue *out = graph.newValue(node.output(index));
  out->known = std::move(values);
  out->shape = DimShape(shape.begin(), shape.end());
  out->element = elementType;
  define(out->name, out);
}

void NodeImporter::forward(unsigned index, unsigned from) {
  resultValue(index, has(from) ? graph.scope().find(node.input(static_cast<int>(from))) : nullptr);
}

void NodeImporter::resultValue(unsigned index, GraphValue *value) {
  if (!failed() && value && wants(index))
    define(node.output(static_cast<int>(index)), value);
}

std::optional<Dim> NodeImporter::declaredDim(unsigned index, unsigned dim) {
  return wants(index) ? graph.scope().declaredDim(node.output(index), dim) : std::nullopt;
}

SmallVector<Value> NodeImporter::create(StringRef name, ValueRange operands,
                                        ArrayRef<NamedAttribute> attributes, ArrayRef<Type> elementTypes) {
  if (failed())
    return {};
  SmallVector<DimShape> shapes, results;
  for (Value operand : operands) {
    if (!operand) {
      fail("an operand of " + name + " is missing");
      return {};
    }
    shapes.push_back(shapeOf(operand));
  }
  SmallVector<nn::ShapeContext::Equality> equalities;
  std::string error;
  Operation *op = nn::createInferred(graph.builder, where, name, operands, shapes, attributes, elementTypes,
                                     results, equalities, error);
  if (!op) {
    fail(error);
    return {};
  }
  if (!llvm::all_of(results, [](const DimShape &shape) { return isManageable(shape); })) {
    fail("the shape of the result of " + name + " is too complicated");
    return {};
  }
  for (const auto &equality : equalities)
    graph.learn(equality.left, equality.right);
  for (auto [value, shape] : llvm::zip(op->getResults(), results))
    graph.setShape(value, shape);
  if (std::string text = graph.verifyText(op); !text.empty()) {
    fail(text);
    return {};
  }
  return SmallVector<Value>(op->getResults());
}

void NodeImporter::takeAsEqual(const Dim &left, const Dim &right) { graph.learn(left, right); }

const DimShape &NodeImporter::shapeOf(Value value) const {
  static const DimShape none;
  return value ? graph.shapeOf(value) : none;
}

Type NodeImporter::typeOf(Value value) { return value ? elementType(value) : Type(); }

NamedAttribute NodeImporter::i64(StringRef name, int64_t value) {
  return builder().getNamedAttr(name, builder().getI64IntegerAttr(value));
}
NamedAttribute NodeImporter::f32(StringRef name, double value) {
  return builder().getNamedAttr(name, builder().getF32FloatAttr(static_cast<float>(value)));
}
NamedAttribute NodeImporter::flag(StringRef name, bool value) {
  return builder().getNamedAttr(name, builder().getBoolAttr(value));
}
NamedAttribute NodeImporter::text(StringRef name, StringRef value) {
  return builder().getNamedAttr(name, builder().getStringAttr(value));
}
NamedAttribute NodeImporter::type(StringRef name, Type value) {
  return builder().getNamedAttr(name, TypeAttr::get(value));
}
NamedAttribute NodeImporter::dims(StringRef name, ArrayRef<Dim> value) {
  return builder().getNamedAttr(name, nn::dimsToAttr(context(), value));
}
NamedAttribute NodeImporter::ints(StringRef name, ArrayRef<int64_t> value) {
  return builder().getNamedAttr(name, builder().getDenseI64ArrayAttr(value));
}

Value NodeImporter::cast(Value x, Type elementType) {
  if (!x || !elementType || typeOf(x) == elementType)
    return x;
  return build<nn::CastOp>(x, {}, elementType);
}

Value NodeImporter::reshape(Value x, const DimShape &shape) {
  if (!x || shapeOf(x) == shape)
    return x;
  return build<nn::ReshapeOp>(x, dims("shape", shape));
}

Value NodeImporter::transpose(Value x, ArrayRef<int64_t> perm) {
  if (llvm::equal(perm, llvm::seq<int64_t>(0, rankOf(x))))
    return x;
  return build<nn::TransposeOp>(x, ints("perm", perm));
}

Value NodeImporter::expand(Value x, const DimShape &shape) {
  if (!x || shapeOf(x) == shape)
    return x;
  return build<nn::ExpandOp>(x, dims("shape", shape));
}

Value NodeImporter::slice(Value x, int64_t axis, const Dim &start, const Dim &size, int64_t step) {
  if (!x || failed())
    return {};
  DimShape starts(rankOf(x), Dim(0)), sizes = shapeOf(x);
  std::vector<int64_t> steps(sizes.size(), 1);
  axis = this->axis(axis, rankOf(x));
  if (failed() || (start == Dim(0) && step == 1 && size == sizes[axis]))
    return failed() ? Value() : x;
  starts[axis] = start;
  sizes[axis] = size;
  steps[axis] = step;
  return build<nn::SliceOp>(x, {dims("starts", starts), dims("sizes", sizes), ints("steps", steps)});
}

Value NodeImporter::concat(ValueRange parts, int64_t axis) {
  // A kernel has room for so many parameters: more parts are joined in groups, and these again.
  constexpr size_t mostParts = 256;
  std::vector<Value> all(parts.begin(), parts.end());
  while (all.size() > mostParts && !failed()) {
    std::vector<Value> joined;
    for (size_t begin = 0; begin < all.size(); begin += mostParts) {
      const ValueRange some(ArrayRef(all).slice(begin, std::min(mostParts, all.size() - begin)));
      joined.push_back(some.size() == 1 ? some.front() : build<nn::ConcatOp>(some, i64("axis", axis)));
    }
    all = std::move(joined);
  }
  return build<nn::ConcatOp>(ValueRange(all), i64("axis", axis));
}
Value NodeImporter::add(Value a, Value b) { return build<nn::AddOp>({a, b}); }
Value NodeImporter::sub(Value a, Value b) { return build<nn::SubOp>({a, b}); }
Value NodeImporter::mul(Value a, Value b) { return build<nn::MulOp>({a, b}); }
Value NodeImporter::div(Value a, Value b) { return build<nn::DivOp>({a, b}); }

Value NodeImporter::reduce(Value x, StringRef kind, ArrayRef<int64_t> axes, bool keepdims) {
  return build<nn::ReduceOp>(x, {text("kind", kind), ints("axes", axes), flag("keepdims", keepdims)});
}

Value NodeImporter::scalar(Type elementType, double value) {
  if (failed() || !elementType)
    return {};
  Value result = nn::buildScalar(builder(), where, elementType, value);
  graph.setShape(result, {});
  return result;
}

Value NodeImporter::constant(const Tensor &value) {
  if (failed())
    return {};
  Value result = nn::buildConstant(builder(), where, toAttribute(context(), value));
  graph.setShape(result, DimShape(value.shape().begin(), value.shape().end()));
  return result;
}

Value NodeImporter::dimConstant(ArrayRef<Dim> values, ArrayRef<int64_t> shape, Type elementType) {
  return failed() ? Value() : graph.buildKnown(values, shape, elementType, where);
}

Type NodeImporter::f32Type() { return builder().getF32Type(); }
Type NodeImporter::i64Type() { return builder().getI64Type(); }

} // namespace fusion::onnx
