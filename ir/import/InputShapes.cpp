#include "ir/import/InputShapes.h"

#include "ir/base/SoleSymbol.h"
#include "ir/import/Onnx.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace fusion {
namespace onnx {

/// Names that exporters write where they know none; two of them are not the same dim.
static bool isPlaceholder(llvm::StringRef name) {
  return name.empty() || name == "?" || name == "None" || name == "-1" || name == "unk" || name == "*";
}

} // namespace onnx

std::string symbolName(std::string_view port, size_t dim) {
  std::string name;
  for (char c : port)
    name.push_back(llvm::isAlnum(c) ? c : '_');
  if (name.empty() || llvm::isDigit(name[0]))
    name.insert(name.begin(), '_');
  return fmt::format("{}_{}", name, dim);
}

namespace onnx {

static Result<DimShape> declaredShape(const proto::ValueInfoProto &input) {
  if (!input.type().has_tensor_type())
    return badInput(
        fmt::format("input '{}' is not a tensor: sequences and optionals are made by the graph itself, from "
                    "inputs that are tensors",
                    input.name()));
  const auto &type = input.type().tensor_type();
  if (!type.has_shape())
    return badInput(fmt::format("input '{}' has no shape", input.name()));
  DimShape shape;
  for (const auto &dim : type.shape().dim()) {
    const size_t index = shape.size();
    if (dim.has_dim_value() && dim.dim_value() >= 0) {
      shape.push_back(dim.dim_value());
    } else if (!dim.has_dim_param() || isPlaceholder(dim.dim_param())) {
      shape.push_back(Dim::symbol(symbolName(input.name(), index)));
    } else if (auto parsed = Dim::parse(dim.dim_param())) {
      shape.push_back(*parsed);
    } else {
      std::string name = dim.dim_param();
      std::replace(name.begin(), name.end(), '`', '_');
      shape.push_back(Dim::symbol(name));
    }
  }
  return shape;
}

/// Whether the symbol's value follows from the dim's: half of it, rounded down, does not tell it.
static bool tells(const Dim &dim, const std::string &symbol) {
  auto at = [&](int64_t value) { return dim.substitute({{symbol, Dim(value)}}); };
  const Dim step = at(1) - at(0);
  return !(step == Dim(0)) && at(2) - at(1) == step && at(1001) - at(1000) == step;
}

/// The symbols that inputs tell, one after the other: a dim tells the only one in it that is not known yet.
static std::set<std::string> determinedSymbols(const std::map<std::string, DimShape> &shapes) {
  std::set<std::string> determined;
  for (bool progress = true; progress;) {
    progress = false;
    for (const auto &[name, shape] : shapes)
      for (const Dim &dim : shape) {
        std::set<std::string> unknown = dim.symbols();
        std::erase_if(unknown, [&](const std::string &symbol) { return determined.contains(symbol); });
        if (unknown.size() == 1 && tells(dim, *unknown.begin()))
          progress |= determined.insert(*unknown.begin()).second;
      }
  }
  return determined;
}

/// The symbol that the dim is a number more or less than.
static std::optional<std::string> shiftedSymbol(const Dim &dim) {
  const std::set<std::string> symbols = dim.symbols();
  if (symbols.size() != 1)
    return std::nullopt;
  const Dim shift = dim - Dim::symbol(*symbols.begin());
  return shift.isStatic() && !(shift == Dim(0)) ? std::optional(*symbols.begin()) : std::nullopt;
}

Result<InputShapes> InputShapes::of(const proto::GraphProto &graph, const DimReplacements &given) {
  std::set<std::string> initialisers;
  for (const auto &tensor : graph.initializer())
    initialisers.insert(tensor.name());
  InputShapes result;
  for (const auto &input : graph.input()) {
    if (initialisers.contains(input.name()))
      continue;
    auto shape = declaredShape(input);
    if (!shape)
      return shape.error();
    result.shapes.emplace(input.name(), std::move(*shape));
  }
  const std::set<std::string> determined = determinedSymbols(result.shapes);
  std::set<std::string> bare;
  for (auto &[name, shape] : result.shapes)
    for (const Dim &dim : shape)
      if (auto symbol = soleSymbol(dim))
        bare.insert(*symbol);
  for (auto &[name, shape] : result.shapes)
    for (Dim &dim : shape) {
      auto isDetermined = [&](const std::string &symbol) { return determined.contains(symbol); };
      const auto shifted = shiftedSymbol(dim);
      const bool isShifted = shifted && bare.contains(*shifted);
      if (!std::ranges::all_of(dim.symbols(), isDetermined) || isShifted) {
        const Dim declared = std::exchange(dim, Dim::symbol(dim.str()));
        result.freeSymbols.merge(dim.symbols());
        if (isShifted)
          result.shiftedDims.emplace(declared.str(), declared);
      }
      dim = dim.substitute(given);
      result.symbols.merge(dim.symbols());
    }
  return result;
}

DimReplacements InputShapes::learnt(const DimReplacements &all) const {
  DimReplacements learnt;
  for (const auto &[symbol, dim] : all)
    if (symbols.contains(symbol) && (dim.isStatic() || isFree(symbol)) && dim.knownNonNegative())
      learnt.emplace(symbol, dim);
  return learnt;
}

} // namespace onnx
} // namespace fusion
