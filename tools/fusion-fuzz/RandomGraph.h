// Random graphs that are well typed, near to what fusions match and often just beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fusion::fuzz {

struct Type {
  std::string element;           ///< f32
  std::vector<std::string> dims; ///< numbers, or symbols
  std::string text() const;      ///< tensor<?x8xf32>
  friend bool operator==(const Type &, const Type &) = default;
};

/// A graph as a list; values are numbered by their place in `values`.
struct RandomGraph {
  struct Op {
    std::string name, attributes; ///< attributes with braces, or nothing
    std::vector<int> operands;
    int result = 0;
  };
  std::vector<Type> values;
  std::vector<int> inputs;
  std::vector<Op> ops; ///< in order
  std::vector<int> outputs;

  /// MLIR text with one function, without inputs that nobody reads.
  std::string text() const;
};

/// The same for the same seed, everywhere.
RandomGraph randomGraph(uint64_t seed);

/// Graphs with one op or one output less than `graph`, the smallest first. The op's readers read an operand of its type
/// instead, or a new input.
std::vector<RandomGraph> smallerGraphs(const RandomGraph &graph);

} // namespace fusion::fuzz
