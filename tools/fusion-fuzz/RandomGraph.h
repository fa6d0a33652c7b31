// Random graphs that are well typed, near to what fusions match and often just beside it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fusion::fuzz {

struct Type {
  std::string element;           ///< f32
  std::vector<std::string> dims; ///< numbers, or sizes over symbols: `p + s`
  std::string text() const;      ///< tensor<?x8xf32>
  friend bool operator==(const Type &, const Type &) = default;
};

/// As attributes have it: quotes around what is no number.
std::string quoted(const std::string &dim);
bool isSymbolic(const std::string &dim);

/// A graph as a list; values are numbered by their place in `values`.
struct RandomGraph {
  struct Op {
    std::string name, attributes; ///< attributes with braces, or nothing
    std::vector<int> operands, results;
  };
  std::vector<Type> values;
  std::vector<int> inputs;
  std::map<int, std::string> roles; ///< of inputs that take no arbitrary values: see Values.h
  std::vector<Op> ops;              ///< in order
  std::vector<int> outputs;

  /// MLIR text with one function, without inputs that nobody reads. Input 7 is called v7, or, with a role,
  /// index_v7.
  std::string text() const;
};

/// A third of the graphs run on special values. These have no GELU by hand, whose tail cancels where the op's
/// does not: what is 0 or tiny decides what becomes of an infinity beside it.
inline bool isSpecial(uint64_t seed) { return seed % 3 == 0; }

/// The same for the same seed, everywhere.
RandomGraph randomGraph(uint64_t seed);

/// Graphs with one op or one output less than `graph`, the smallest first. The op's readers read an operand
/// of its type instead, or a new input.
std::vector<RandomGraph> smallerGraphs(const RandomGraph &graph);

} // namespace fusion::fuzz
