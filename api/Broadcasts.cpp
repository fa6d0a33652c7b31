#include "api/Broadcasts.h"

#include "ir/base/SoleSymbol.h"

#include <fmt/format.h>

namespace fusion {

Broadcasts::Broadcasts(std::vector<PortShape> given, std::vector<DimEquality> equalities)
    : ports(std::move(given)) {
  for (const DimEquality &equality : equalities) {
    if (Dim::min(equality.left, equality.right) == equality.left) // a limit, as min(x, limit) == x
      continue;
    for (auto [side, other] : {std::pair(&equality.left, &equality.right), {&equality.right, &equality.left}})
      if (auto symbol = soleSymbol(*side))
        meetings.push_back({*symbol, *other, equality.reason});
  }
  if (meetings.empty())
    return;
  for (size_t port = 0; port < ports.size(); ++port)
    for (size_t axis = 0; axis < ports[port].shape.size(); ++axis)
      if (auto symbol = soleSymbol(ports[port].shape[axis]))
        places.try_emplace(*symbol, Place{port, axis});
}

/// The values of symbols for one run, looked up when they are asked for.
struct Broadcasts::Sizes {
  const Broadcasts &of;
  const NamedTensors &inputs;
  SymbolValues known = {};
  bool isSolved = false;

  std::optional<int64_t> symbol(const std::string &name) {
    if (auto found = known.find(name); found != known.end())
      return found->second;
    if (auto place = of.places.find(name); place != of.places.end()) {
      const PortShape &port = of.ports[place->second.port];
      auto input = inputs.find(port.name);
      if (input == inputs.end() || input->second.shape().size() != port.shape.size())
        return std::nullopt;
      return known[name] = input->second.shape()[place->second.axis];
    }
    if (!isSolved) { // what follows from expressions only
      isSolved = true;
      if (auto bound = bindSymbols(of.ports, inputs)) {
        known = std::move(*bound);
        return symbol(name);
      }
    }
    return std::nullopt;
  }

  std::optional<int64_t> value(const Dim &dim) {
    for (const std::string &name : dim.symbols())
      if (!symbol(name))
        return std::nullopt;
    auto value = dim.evaluate(known);
    return value ? std::optional(*value) : std::nullopt;
  }
};

std::set<std::string> Broadcasts::of(const NamedTensors &inputs) const {
  std::set<std::string> ones;
  Sizes sizes{*this, inputs};
  for (const Meeting &meeting : meetings)
    if (sizes.symbol(meeting.symbol) == 1)
      if (auto size = sizes.value(meeting.other); size && *size != 1)
        ones.insert(meeting.symbol);
  return ones;
}

std::string Broadcasts::describe(const std::string &symbol) const {
  for (const Meeting &meeting : meetings)
    if (meeting.symbol == symbol)
      return fmt::format("{} is 1 and broadcast to {}{}", symbol, meeting.other.str(),
                         meeting.reason.empty() ? "" : " (" + meeting.reason + ")");
  return symbol + " is 1";
}

} // namespace fusion
