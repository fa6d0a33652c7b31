#include "codegen/body/Functor.h"

#include "codegen/body/KernelSource.h"
#include "codegen/body/Printer.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion::body {

using scalar::Graph;
using scalar::Value;

std::string Scope::input(unsigned index) {
  const KernelPlan::Parameter &parameter = kernel().inputParameter(index);
  use(parameter);
  return parameter.name;
}

std::string Scope::output(unsigned index) {
  const KernelPlan::Parameter &parameter = kernel().outputParameter(index);
  use(parameter);
  return parameter.name;
}

scalar::Pointer Scope::pointer(unsigned index, scalar::Access access) {
  return {input(index), dtype(kernel().region.inputs[index]), access, kernel().isPackedInput(index)};
}

std::string Scope::size(const Dim &dim) {
  if (std::optional<int64_t> value = dim.constant())
    return *value < 0 ? fmt::format("({})", *value) : std::to_string(*value);
  const KernelPlan::Parameter &parameter = kernel().sizeParameter(dim);
  use(parameter);
  return parameter.name;
}

Value Scope::size(Graph &graph, const Dim &dim) {
  if (std::optional<int64_t> value = dim.constant())
    return graph.index(*value);
  return graph.input(size(dim), DType::I64, scalar::Level::Kernel);
}

std::string Scope::table(DType type, llvm::ArrayRef<std::string> literals) {
  const std::string name = kernel().names.fresh("table");
  kernel().declare(fmt::format("CONSTANT {} {}[{}] = {{{}}};\n", spelling(type), name, literals.size(),
                               llvm::join(literals, ", ")));
  return name;
}

Value Scope::address(Graph &graph, const View &view, llvm::ArrayRef<Value> index) {
  Value sum = size(graph, view.offset);
  for (size_t i = 0; i < view.shape.size(); ++i)
    if (!(view.strides[i] == Dim(0)) && !(view.shape[i] == Dim(1)))
      sum = graph.add(sum, graph.mul(index[i], size(graph, view.strides[i])));
  return sum;
}

Value Scope::address(Graph &graph, const DimShape &shape, llvm::ArrayRef<Value> index) {
  return address(graph, View::contiguous({}, shape), index);
}

std::string Scope::place(llvm::ArrayRef<std::string> indices, llvm::ArrayRef<Dim> sizes,
                         llvm::ArrayRef<int64_t> order) {
  std::string place;
  for (int64_t dim : order) {
    const auto at = static_cast<size_t>(dim);
    if (sizes[at] == Dim(1))
      continue; // its index is 0
    if (place.empty())
      place = indices[at];
    else
      place = fmt::format("{} * {} + {}", place.find(' ') == std::string::npos ? place : "(" + place + ")",
                          size(sizes[at]), indices[at]);
  }
  return place.empty() ? "0" : place;
}

llvm::SmallVector<Value> Scope::delinearize(Graph &graph, Value linear, const DimShape &shape, bool narrow) {
  llvm::SmallVector<Value> index(shape.size(), graph.index(0));
  llvm::SmallVector<size_t> dims; // that are more than one
  for (size_t i = 0; i < shape.size(); ++i)
    if (!(shape[i] == Dim(1)))
      dims.push_back(i);
  auto divided = [&](scalar::Kind kind, Value a, Value b) {
    if (!narrow)
      return graph.binary(kind, a, b);
    return graph.convertRegister(DType::I64, graph.binary(kind, graph.convertRegister(DType::U32, a),
                                                          graph.convertRegister(DType::U32, b)));
  };
  for (Value rest = linear; !dims.empty();) {
    const size_t dim = dims.pop_back_val();
    if (dims.empty()) {
      index[dim] = rest;
      break;
    }
    const Value count = size(graph, shape[dim]);
    index[dim] = divided(scalar::Kind::Mod, rest, count);
    rest = divided(scalar::Kind::Div, rest, count);
  }
  return index;
}

std::string declarations(const Members &members, unsigned indent) {
  std::string lines;
  const std::string *before = nullptr;
  for (const auto &[type, name] : members) {
    if (before && *before == type)
      lines += (type.back() == '*' ? ", *" : ", ") + name;
    else
      lines += fmt::format("{}{:{}}{}{}", before ? ";\n" : "", "", 2 * indent, type, name);
    before = &type;
  }
  return members.empty() ? "" : lines + ";\n";
}

static std::string spaced(std::string_view type) {
  return std::string(type) + (type.ends_with('*') ? "" : " ");
}

/// Adds a member unless there is one of its name.
static void addTo(Members &members, std::string_view type, std::string_view name) {
  if (std::none_of(members.begin(), members.end(), [&](const auto &member) { return member.second == name; }))
    members.emplace_back(spaced(type), name);
}

void Functor::use(const KernelPlan::Parameter &parameter) {
  const bool isSize = parameter.kind == KernelPlan::Parameter::Kind::Scalar;
  Members &group = parameters[isSize ? 3 : parameter.type.starts_with("const ") ? 0 : 1];
  addTo(group, parameter.type, parameter.name);
  // By number, whichever was used first: those of one type stand together.
  std::sort(group.begin(), group.end(), [](const auto &a, const auto &b) {
    return std::pair(a.second.size(), a.second) < std::pair(b.second.size(), b.second);
  });
}

std::string Functor::argument(std::string_view type, std::string_view member) {
  addTo(parameters[2], type, member);
  return std::string(member);
}

void Functor::member(std::string_view type, std::string_view member) { addTo(states, type, member); }

void Functor::method(std::string_view signature, const Code &code) {
  const std::string &lines = code.text();
  const bool isLine =
      std::count(lines.begin(), lines.end(), '\n') == 1 && lines.find("//") == std::string::npos;
  const size_t start = std::min(lines.find_first_not_of(' '), lines.size());
  if (lines.empty())
    methods += fmt::format("  {} {{}}\n", signature);
  else if (isLine && signature.size() + lines.size() - start + 6 <= lineLength)
    methods += fmt::format("  {} {{ {} }}\n", signature, lines.substr(start, lines.size() - start - 1));
  else
    methods += fmt::format("  {} {{\n{}  }}\n", signature, lines);
}

void Functor::method(std::string_view signature, std::string_view returned) {
  Code code(2);
  code.line(fmt::format("return {};", returned));
  method(signature, code);
}

std::string Functor::text() const {
  std::string text = fmt::format("struct {} {{\n", name);
  for (const Members &group : parameters)
    text += declarations(group, 1);
  return text + declarations(states, 1) + types + methods + "};\n";
}

std::string Functor::instance() const {
  std::string list;
  for (const Members &group : parameters)
    for (const auto &[type, member] : group)
      list += (list.empty() ? "" : ", ") + member;
  return fmt::format("{}{{{}}}", name, list);
}

} // namespace fusion::body
