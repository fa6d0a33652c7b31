#include "ir/base/BindSymbols.h"

#include "ir/base/Nearest.h"
#include "ir/base/SoleSymbol.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fusion {
namespace {

/// One dim of one input: what the port says and what the tensor has.
struct Fact {
  const PortShape *port;
  size_t axis;
  int64_t actual;
  const Dim &expected() const { return port->shape[axis]; }
};

class Binder {
public:
  Binder(std::span<const PortShape> ports, const NamedTensors &inputs,
         std::span<const DimEquality> equalities)
      : ports(ports), inputs(inputs), equalities(equalities) {}

  Result<SymbolValues> bind() {
    if (Status status = checkPorts(); !status)
      return status.error();
    for (const Fact &fact : facts)
      solve(fact, /*plainOnly=*/true);
    for (bool progress = true; progress;) {
      progress = false;
      for (const Fact &fact : facts)
        progress |= solve(fact, false);
    }
    for (const Fact &fact : facts)
      if (Status status = verify(fact); !status)
        return status.error();
    for (const DimEquality &equality : equalities)
      if (Status status = verify(equality); !status)
        return status.error();
    return std::move(values);
  }

private:
  std::string expectedPort(const PortShape &port) const {
    return fmt::format("{} ({} {})", port.name, name(port.type), shapeString(port.shape));
  }

  Status checkPorts() {
    auto isGiven = [&](const PortShape &port) { return inputs.contains(port.name); };
    const bool allKnown = std::ranges::count_if(ports, isGiven) == static_cast<ptrdiff_t>(inputs.size());
    for (const auto &[given, tensor] : inputs) {
      if (allKnown || std::ranges::find(ports, given, &PortShape::name) != ports.end())
        continue;
      std::vector<std::string> expected;
      for (const PortShape &port : ports)
        expected.push_back(port.name);
      return badInput(fmt::format("unknown input {}: expected {}{}", given, fmt::join(expected, ", "),
                                  didYouMean(given, expected)));
    }
    for (const PortShape &port : ports) {
      auto found = inputs.find(port.name);
      if (found == inputs.end())
        return badInput(fmt::format("missing input {}", expectedPort(port)));
      const Tensor &tensor = found->second;
      if (tensor.type() != port.type)
        return badInput(
            fmt::format("input {} is {}, expected {}", port.name, name(tensor.type()), name(port.type)));
      if (tensor.shape().size() != port.shape.size())
        return badInput(fmt::format("input {} has rank {} ({}), expected rank {} ({})", port.name,
                                    tensor.rank(), shapeString(tensor.shape()), port.shape.size(),
                                    shapeString(port.shape)));
      for (size_t axis = 0; axis < port.shape.size(); ++axis)
        facts.push_back({&port, axis, tensor.shape()[axis]});
    }
    return {};
  }

  /// Binds the one unknown symbol of the fact's expression if the expression is linear in it.
  bool solve(const Fact &fact, bool plainOnly) {
    const Dim &dim = fact.expected();
    std::optional<std::string> unknown;
    for (const std::string &symbol : dim.symbols())
      if (!values.contains(symbol)) {
        if (unknown)
          return false;
        unknown = symbol;
      }
    if (!unknown || (plainOnly && !(dim == Dim::symbol(*unknown))))
      return false;
    SymbolValues trial;
    for (const std::string &symbol : dim.symbols())
      if (auto known = values.find(symbol); known != values.end())
        trial.insert(*known);
    auto at = [&](int64_t value) {
      trial[*unknown] = value;
      return dim.evaluate(trial);
    };
    Result<int64_t> zero = at(0), one = at(1);
    if (!zero || !one || *zero == *one || (fact.actual - *zero) % (*one - *zero) != 0)
      return false;
    int64_t solution = (fact.actual - *zero) / (*one - *zero);
    Result<int64_t> check = at(solution);
    if (solution < 0 || !check || *check != fact.actual)
      return false;
    values[*unknown] = solution;
    origins[*unknown] = fmt::format("{} dim {}", fact.port->name, fact.axis);
    return true;
  }

  /// "s89 is 13 from input past_key_0 dim 2", for each symbol of the dims.
  std::string explain(std::initializer_list<const Dim *> dims) const {
    std::set<std::string> symbols;
    for (const Dim *dim : dims)
      symbols.merge(dim->symbols());
    std::vector<std::string> parts;
    for (const std::string &symbol : symbols)
      if (auto origin = origins.find(symbol); origin != origins.end())
        parts.push_back(
            fmt::format("{} is {} from input {}", symbol, values.find(symbol)->second, origin->second));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  Status verify(const Fact &fact) const {
    const Dim &dim = fact.expected();
    std::string label = fmt::format("input {} dim {} is {}", fact.port->name, fact.axis, fact.actual);
    Result<int64_t> value = dim.evaluate(values);
    if (!value)
      return badInput(
          fmt::format("{}, which does not determine {}: {}", label, dim.str(), value.error().message));
    if (*value == fact.actual)
      return {};
    if (dim.isStatic())
      return badInput(fmt::format("{}, expected {}", label, *value));
    if (soleSymbol(dim))
      return badInput(fmt::format("{} but {}", label, explain({&dim})));
    return badInput(fmt::format("{} but {} is {} ({})", label, dim.str(), *value, explain({&dim})));
  }

  /// A plan has no strides for a dim that turns out to be 1: what a caller can do about it.
  static std::string remedy(const Dim &dim, int64_t size) {
    const std::optional<std::string> symbol = soleSymbol(dim);
    if (size != 1 || !symbol)
      return "";
    return fmt::format("; where it is 1 and broadcast, say so before compiling: --dim={}=1", *symbol);
  }

  Status verify(const DimEquality &equality) const {
    Result<int64_t> left = equality.left.evaluate(values), right = equality.right.evaluate(values);
    if (!left || !right)
      return badInput(fmt::format("{}: {}", equality.reason, (left ? right : left).error().message));
    if (*left == *right)
      return {};
    if (*left < *right &&
        Dim::min(equality.left, equality.right) == equality.left) // a limit, as min(x, limit) == x
      return badInput(fmt::format("{}: {} is {}, of which {} fit ({})", equality.reason, equality.right.str(),
                                  *right, *left, explain({&equality.left})));
    return badInput(fmt::format("{}: {} is {} but {} is {} ({}){}", equality.reason, equality.left.str(),
                                *left, equality.right.str(), *right,
                                explain({&equality.left, &equality.right}),
                                remedy(equality.left, *left) + remedy(equality.right, *right)));
  }

  std::span<const PortShape> ports;
  const NamedTensors &inputs;
  std::span<const DimEquality> equalities;
  std::vector<Fact> facts;
  SymbolValues values;
  std::map<std::string, std::string, std::less<>> origins;
};

} // namespace

Result<SymbolValues> bindSymbols(std::span<const PortShape> ports, const NamedTensors &inputs,
                                 std::span<const DimEquality> equalities) {
  return Binder(ports, inputs, equalities).bind();
}

} // namespace fusion
