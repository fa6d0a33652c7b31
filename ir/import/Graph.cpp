#include "ir/import/Graph.h"

#include "ir/base/Nearest.h"
#include "ir/import/ConstantText.h"
#include "ir/dialect/SymbolicShapes.h"

#include "llvm/ADT/StringSet.h"

#include <array>
#include <fmt/format.h>
#include <set>

using namespace mlir;

namespace fusion::onnx {

namespace {
constexpr int deepestInlining = 32;
constexpr int64_t mostNodes = 1 << 20;

struct ScopeGuard {
  Scope *&slot;
  Scope *saved;
  ScopeGuard(Scope *&slot, Scope &inner) : slot(slot), saved(slot) { slot = &inner; }
  ~ScopeGuard() { slot = saved; }
};

/// A call must not depend on which of two functions comes first.
Status checkFunctions(const proto::ModelProto &model) {
  std::set<std::array<std::string_view, 3>> names;
  for (const auto &function : model.functions())
    if (!names.insert({function.domain(), function.name(), function.overload()}).second)
      return badInput(fmt::format("function {}.{} is defined twice", function.domain(), function.name()));
  return {};
}

} // namespace

GraphImporter::GraphImporter(MLIRContext &context, const ModelFile &model, std::string path,
                             const ImportOptions &options, DimReplacements given)
    : builder(&context), tensors(model, path, options.trustPaths), model(model), path(std::move(path)),
      options(options), given(std::move(given)) {
  for (const auto &import : model.model.opset_import())
    modelOpsets[import.domain() == "ai.onnx" ? "" : import.domain()] = import.version();
}

Result<OwningOpRef<ModuleOp>> GraphImporter::run() {
  auto inFile = [&](const Error &error) { return Error{error.kind, path + ": " + error.message}; };
  const proto::GraphProto &graph = model.model.graph();
  Location location = FileLineColLoc::get(builder.getStringAttr(tensors.fileName()), 0, 0);
  OwningOpRef<ModuleOp> module(ModuleOp::create(location));
  (*module)->setAttr("nn.model", builder.getStringAttr(path));
  (*module)->setAttr("nn.opset", builder.getI64IntegerAttr(opsetOf(&modelOpsets, "")));
  builder.setInsertionPointToStart(module->getBody());
  auto function = func::FuncOp::create(builder, location, "main", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());

  Scope top;
  top.opsets = &modelOpsets;
  ScopeGuard guard(current, top);
  for (const auto &info : graph.value_info())
    top.declared[info.name()] = &info;
  for (const auto &info : graph.output())
    top.declared[info.name()] = &info;
  if (auto status = addInitializers(graph); !status)
    return inFile(status.error());
  if (auto status = checkFunctions(model.model); !status)
    return inFile(status.error());
  if (auto status = importInputs(graph, function); !status)
    return inFile(status.error());
  if (auto status = importNodes(graph.node()); !status)
    return inFile(status.error());
  if (auto status = returnOutputs(graph, function); !status)
    return inFile(status.error());
  if (std::string text = verifyText(*module); !text.empty())
    return inFile(badInput(text));
  return module;
}

Status GraphImporter::addInitializers(const proto::GraphProto &graph) {
  if (graph.sparse_initializer_size() > 0)
    return badInput("sparse initializers are not supported");
  for (const auto &tensor : graph.initializer()) {
    auto value = fromTensor(tensor, tensor.name());
    if (!value)
      return value.error();
    if (auto status = define(tensor.name(), *value); !status)
      return status;
  }
  return {};
}

/// Names of inputs and outputs go into files and messages.
static Status checkPortName(const std::string &name, const char *what) {
  constexpr size_t longest = 4096;
  if (name.size() > longest)
    return badInput(fmt::format("{} '{}…': its name has {} bytes, the limit is {}", what, name.substr(0, 40),
                                name.size(), longest));
  return {};
}

Result<std::optional<Tensor>> GraphImporter::givenConstant(const std::string &name, DType type,
                                                           const DimShape &shape) const {
  if (auto text = options.constantTexts.find(name); text != options.constantTexts.end()) {
    auto contents = constantFromText(text->second, type, shape);
    return contents ? Result(std::optional(std::move(*contents))) : contents.error();
  }
  auto constant = options.constants.find(name);
  return constant == options.constants.end() ? std::nullopt : std::optional(constant->second);
}

Status GraphImporter::importInputs(const proto::GraphProto &graph, func::FuncOp function) {
  auto shapes = InputShapes::of(graph, given);
  if (!shapes)
    return shapes.error();
  inputs = std::move(*shapes);
  std::set<std::string> named;
  for (const auto &[name, contents] : options.constants)
    named.insert(name);
  for (const auto &[name, text] : options.constantTexts)
    named.insert(name);
  for (const std::string &name : named)
    if (!inputs.shapes.contains(name))
      return badInput(fmt::format("the graph has no input '{}' for a constant{}", name,
                                  didYouMean(name, inputs.shapes)));
  // All at once at the end: to add one to a function costs as much as it has.
  SmallVector<Type> types;
  SmallVector<Attribute> argumentAttributes;
  for (const auto &input : graph.input()) {
    const auto shape = inputs.shapes.find(input.name());
    if (shape == inputs.shapes.end())
      continue; // an initialiser that is listed as an input too
    auto element = elementTypeOf(input.type().tensor_type().elem_type());
    if (!element)
      return badInput(fmt::format("input '{}': {}", input.name(), element.error().message));
    GraphValue *value = newValue(input.name());
    value->element = mlirType(builder.getContext(), *element);
    value->shape = shape->second;
    Location location = NameLoc::get(builder.getStringAttr(input.name()));
    auto constant = givenConstant(input.name(), *element, shape->second);
    if (!constant)
      return badInput(fmt::format("input '{}': {}", input.name(), constant.error().message));
    if (*constant) {
      const Tensor &contents = **constant;
      auto type = nn::typeOf(shape->second, value->element);
      if (contents.type() != *element || failed(verifyCompatibleShape(type.getShape(), contents.shape())))
        return badInput(
            fmt::format("input '{}': the constant given for it has another type or shape", input.name()));
      value->shape = DimShape(contents.shape().begin(), contents.shape().end());
      if ((isInteger(*element) || *element == DType::Bool) && contents.size() <= 1024) {
        std::vector<int64_t> integers = contents.toInts();
        value->known = DimShape(integers.begin(), integers.end());
      }
      value->value = nn::buildConstant(builder, location, toAttribute(builder.getContext(), contents));
    } else {
      auto attributes = builder.getDictionaryAttr(
          {builder.getNamedAttr(nn::nameAttr, builder.getStringAttr(input.name())),
           builder.getNamedAttr(nn::dimsAttr, nn::dimsToAttr(builder.getContext(), shape->second))});
      if (auto status = checkPortName(input.name(), "input"); !status)
        return status;
      types.push_back(nn::typeOf(shape->second, value->element));
      argumentAttributes.push_back(attributes);
      value->value = function.getBody().front().addArgument(types.back(), location);
    }
    setShape(value->value, value->shape);
    if (auto status = define(input.name(), value); !status)
      return status;
  }
  function.setType(builder.getFunctionType(types, {}));
  function.setArgAttrsAttr(builder.getArrayAttr(argumentAttributes));
  return {};
}

Status GraphImporter::importNodes(const google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes) {
  auto order = topologicalOrder(nodes);
  if (!order)
    return order.error();
  for (int index : *order)
    if (auto status = importNode(nodes[index]); !status)
      return status;
  return {};
}

Error GraphImporter::nodeError(const proto::NodeProto &node, int64_t opset, const std::string &reason) const {
  std::string described = describeNode(node);
  described.pop_back();
  return badInput(fmt::format("node {}, opset {}): {}", described, opset, reason));
}

const proto::FunctionProto *GraphImporter::findFunction(const proto::NodeProto &node) const {
  for (const auto &function : model.model.functions())
    if (function.name() == node.op_type() && function.domain() == node.domain() &&
        function.overload() == node.overload())
      return &function;
  return nullptr;
}

bool Scope::isOmitted(std::string_view name) const {
  return omitted.contains(name) || (parent && !values.contains(name) && parent->isOmitted(name));
}

std::optional<Dim> Scope::declaredDim(StringRef name, unsigned dim) const {
  auto found = declared.find(name);
  if (found == declared.end() || !found->second->type().has_tensor_type())
    return std::nullopt;
  const auto &dims = found->second->type().tensor_type().shape().dim();
  if (static_cast<int>(dim) >= dims.size())
    return std::nullopt;
  const auto &entry = dims[static_cast<int>(dim)];
  if (entry.has_dim_value())
    return Dim(entry.dim_value());
  auto parsed = Dim::parse(entry.dim_param());
  return parsed ? std::optional(*parsed) : std::nullopt;
}

std::string Scope::whyUndefined(const std::string &name) const {
  for (const Scope *scope = this; scope; scope = scope->parent)
    if (auto found = scope->missing.find(name); found != scope->missing.end())
      return fmt::format("'{}' is an output of {} that is not supported", name, found->second);
  return fmt::format("'{}' is not defined", name);
}

Status GraphImporter::importNode(const proto::NodeProto &node) {
  auto isOmitted = [&](const std::string &name) { return !name.empty() && current->isOmitted(name); };
  if (llvm::any_of(node.input(), isOmitted)) {
    proto::NodeProto given = node;
    for (std::string &name : *given.mutable_input())
      if (isOmitted(name))
        name.clear();
    return importNode(given);
  }
  int64_t opset = opsetOf(current->opsets, node.domain());
  if (++nodesImported > mostNodes)
    return nodeError(node, opset, "the model has too many nodes once its functions are inlined");
  if (!current->attributes)
    for (const auto &attribute : node.attribute())
      if (!attribute.ref_attr_name().empty())
        return nodeError(
            node, opset,
            fmt::format("attribute '{}' stands for one of a function, and this is none", attribute.name()));
  std::string modulePath = modulePathOf(node);
  if (modulePath.empty())
    modulePath = current->modulePath;
  for (const auto &input : node.input())
    if (!input.empty() && !current->find(input))
      return nodeError(node, opset, "input " + current->whyUndefined(input));
  const auto *entry = HandlerTable::instance().find(node.domain(), node.op_type());
  if (const auto *function = entry && entry->overFunction ? nullptr : findFunction(node)) {
    if (auto status = callFunction(*function, node, modulePath); !status)
      return nodeError(node, opset, status.error().message);
    return {};
  }
  if (!entry)
    return nodeError(node, opset, "this op is not supported");
  std::string name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  NodeImporter importer(*this, node, opset, nodeLocation(builder.getContext(), modulePath, name));
  if (importer.inputCount() > entry->maxInputs)
    importer.fail(
        fmt::format("{} inputs where the op takes at most {}", importer.inputCount(), entry->maxInputs));
  for (unsigned i = 0; i < entry->minInputs; ++i)
    if (!importer.has(i))
      importer.fail(fmt::format("input {} is missing", i));
  if (!importer.failed() && !(entry->evaluate && entry->evaluate(importer)) && !importer.failed())
    entry->handler(importer);
  // What contrib ops say grows with their versions: an attribute that is not known here may change all.
  if (std::string unknown = importer.unknownAttribute(); node.domain() == "com.microsoft" && !unknown.empty())
    importer.fail("attribute '" + unknown + "' is not supported");
  if (importer.failed())
    return nodeError(node, opset, importer.reason());
  for (const auto &output : node.output())
    if (!output.empty() && !current->values.contains(output))
      current->missing[output] = describeNode(node); // an error for who reads it
  return {};
}

Result<GraphValue *> GraphImporter::outputValue(const std::string &name) {
  if (GraphValue *value = current->find(name))
    return value;
  return badInput("output " + current->whyUndefined(name));
}

Result<std::vector<GraphValue *>> GraphImporter::inlineGraph(const proto::GraphProto &graph,
                                                              llvm::ArrayRef<GraphValue *> inputs) {
  Scope inner;
  inner.parent = current;
  inner.attributes = current->attributes;
  inner.opsets = current->opsets;
  inner.modulePath = current->modulePath;
  inner.depth = current->depth + 1;
  if (inner.depth > deepestInlining)
    return badInput("graphs are nested too deeply");
  for (const auto &info : graph.value_info())
    inner.declared[info.name()] = &info;
  ScopeGuard guard(current, inner);
  if (graph.input_size() != static_cast<int>(inputs.size()))
    return badInput(
        fmt::format("the subgraph has {} inputs where {} are given", graph.input_size(), inputs.size()));
  for (auto [declared, value] : llvm::zip(graph.input(), inputs))
    if (auto status = define(declared.name(), value); !status)
      return status.error();
  if (auto status = addInitializers(graph); !status)
    return status.error();
  if (auto status = importNodes(graph.node()); !status)
    return status.error();
  std::vector<GraphValue *> outputs;
  for (const auto &output : graph.output()) {
    auto value = outputValue(output.name());
    if (!value)
      return value.error();
    outputs.push_back(*value);
  }
  return outputs;
}

Status GraphImporter::callFunction(const proto::FunctionProto &function, const proto::NodeProto &node,
                                   const std::string &modulePath) {
  if (current->depth >= deepestInlining)
    return badInput("functions call each other too deeply");
  AttributeMap attributes;
  for (const auto &attribute : function.attribute_proto())
    attributes[attribute.name()] = &attribute;
  for (const auto &attribute : node.attribute()) {
    const proto::AttributeProto *resolved = &attribute;
    if (!attribute.ref_attr_name().empty()) {
      const AttributeMap *outer = current->attributes;
      auto found = outer ? outer->find(attribute.ref_attr_name()) : AttributeMap::const_iterator();
      if (!outer || found == outer->end())
        continue;
      resolved = found->second;
    }
    attributes[attribute.name()] = resolved;
  }
  OpsetMap opsets;
  for (const auto &import : function.opset_import())
    opsets[import.domain() == "ai.onnx" ? "" : import.domain()] = import.version();

  Scope inner;
  inner.attributes = &attributes;
  inner.opsets = &opsets;
  inner.modulePath = modulePath;
  inner.depth = current->depth + 1;
  for (const auto &info : function.value_info())
    inner.declared[info.name()] = &info;
  for (int i = 0; i < function.input_size(); ++i)
    if (i < node.input_size() && !node.input(i).empty())
      inner.values[function.input(i)] = current->find(node.input(i));
    else
      inner.omitted.insert(function.input(i));
  std::vector<GraphValue *> outputs;
  {
    ScopeGuard guard(current, inner);
    if (auto status = importNodes(function.node()); !status)
      return status;
    for (int i = 0; i < node.output_size() && i < function.output_size(); ++i) {
      auto value = outputValue(function.output(i));
      if (!value)
        return value.error();
      outputs.push_back(*value);
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    if (const std::string &name = node.output(static_cast<int>(i)); !name.empty())
      if (auto status = define(name, outputs[i]); !status)
        return status;
  return {};
}

Status GraphImporter::returnOutputs(const proto::GraphProto &graph, func::FuncOp function) {
  SmallVector<Value> results;
  SmallVector<Type> types;
  SmallVector<Attribute> attributes;
  llvm::StringSet<> names;
  for (const auto &output : graph.output()) {
    if (auto status = checkPortName(output.name(), "output"); !status)
      return status;
    if (!names.insert(output.name()).second)
      continue; // listed twice, it is one result still
    auto value = outputValue(output.name());
    if (!value)
      return value.error();
    auto built = materialise(**value, NameLoc::get(builder.getStringAttr(output.name())));
    if (!built)
      return built.error();
    results.push_back(*built);
    types.push_back(built->getType());
    attributes.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr(nn::nameAttr, builder.getStringAttr(output.name())),
         builder.getNamedAttr(nn::dimsAttr, nn::dimsToAttr(builder.getContext(), shapeOf(*built)))}));
  }
  if (results.empty())
    return badInput("the graph has no outputs");
  func::ReturnOp::create(builder, function.getLoc(), results);
  function.setType(builder.getFunctionType(function.getArgumentTypes(), types));
  function.setResAttrsAttr(builder.getArrayAttr(attributes));
  return {};
}

} // namespace fusion::onnx
