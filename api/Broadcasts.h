// Dims that a graph takes for equal and a run broadcasts.
#pragma once

#include "ir/base/BindSymbols.h"

#include <set>

namespace fusion {

class Broadcasts {
public:
  Broadcasts() = default;
  /// Of `equalities`, those that have a symbol on one side.
  Broadcasts(std::vector<PortShape> ports, std::vector<DimEquality> equalities);
  bool any() const { return !meetings.empty(); }
  /// The symbols that are 1 for these inputs where what they should be equal to is not. None for inputs that
  /// do not fit the ports. Costs a look at one size for each symbol where none is 1.
  std::set<std::string> of(const NamedTensors &inputs) const;
  /// "batch is 1 and broadcast to seq (nn.add at layers.0)": what the symbol meets first.
  std::string describe(const std::string &symbol) const;

private:
  /// A symbol, and what it meets.
  struct Meeting {
    std::string symbol;
    Dim other;
    std::string reason;
  };
  struct Place {
    size_t port, axis;
  };
  struct Sizes;

  std::vector<PortShape> ports;
  std::vector<Meeting> meetings;
  std::map<std::string, Place, std::less<>> places; ///< of symbols that are a dim of an input
};

} // namespace fusion
