// Prints values of a scalar graph as CUDA statements, each once: element by element, or vector by vector.
#pragma once

#include "codegen/body/Code.h"
#include "codegen/body/Spelling.h"
#include "ir/scalar/Graph.h"

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace fusion::body {

using scalar::Graph;
using scalar::Level;
using scalar::Value;

/// A result as it is stored.
struct Result {
  Value value;
  DType element; ///< its type in memory: the value is rounded to it if it is not
};

/// A member of a functor.
struct Member {
  std::string type, name;
};

/// Prints into one scope: what it has declared stays known by its name until leaveBlock(). All results that a
/// scope computes should be requested together: a question like "is this only read rounded?" is about them.
class Printer {
public:
  Printer(const Graph &graph, Names &names) : graph(graph), names(names) {}

  /// `expression` (of the value's register type; a name, or in parentheses) stands for the value: an input,
  /// or any other.
  void bind(Value value, std::string expression);
  /// `vector`, a Vec<element, N> with the N of vectors(), holds the value of each lane. `element`: its type,
  /// of which the value is a value; `lane[i]` is read by element_f32 where it is narrow.
  void bindVector(Value value, std::string vector, DType element);
  /// `divisor`, a Divisor, stands for `value` where a Graph::quotient divides by it.
  void bindDivisor(Value value, std::string divisor) { now.divisors[value] = std::move(divisor); }
  bool isBound(Value value) const { return now.texts.contains(value) || vectorNames.contains(value); }

  /// From now on declares nothing: value() returns one expression, in which shared values are repeated.
  void inlineAll() { declares = false; }

  /// Tells the printer what else will be requested in this scope: values that they share are declared
  /// once, where they are first needed.
  void announce(std::span<const Value> roots);

  /// Declares the values of at most `level` on which values of higher levels among `roots` are computed, and
  /// the roots of at most that level. They are then bound to their names.
  void hoist(std::span<const Value> roots, Level level, Code &code);
  /// The same values without declaring them: what a functor has to hand from one level to the next, in order.
  std::vector<Value> crossing(std::span<const Value> roots, Level level) const;
  /// The same values, and the Divisors of hoistDivisors(), as members of a functor: this prints assignments
  /// to them, in a method of their own, and binds them to their names. Returns the members.
  std::vector<Member> hoistMembers(std::span<const Value> roots, Level level, Code &code);
  /// Declares a Divisor for each divisor of a Graph::quotient among `roots` whose level is at most `level`,
  /// which is lower than the dividend's.
  void hoistDivisors(std::span<const Value> roots, Level level, Code &code);

  /// Declares what `root` needs and returns its expression: a name, a literal or a short expression in
  /// parentheses.
  std::string value(Value root, Code &code);
  /// What `root`, a rounding, is rounded from: for who rounds it elsewhere.
  std::string unrounded(Value root, Code &code);
  /// `from_f32<bf16>(x)`: the result in its type in memory; a rounding that this repeats is left out.
  std::string stored(const Result &result, Code &code);

  /// Vectors of `width` lanes, one for each result, of its type in memory: arithmetic of 16-bit floats in
  /// pairs where both operands are values of the type and the result is rounded to it, the rest in loops over
  /// the lanes. Values below Level::Element are the same in all lanes and stand in front of them.
  std::vector<std::string> vectors(std::span<const Result> results, int64_t width, Code &code);

  /// What is declared between these two is forgotten at the end.
  void enterBlock();
  void leaveBlock();

private:
  friend class VectorPrinter;
  struct Vector {
    std::string name;
    DType element;
  };
  struct Scope {
    std::map<Value, std::string> texts;
    std::map<Value, std::string> divisors;
  };

  /// The divisors that hoistDivisors() is about.
  std::vector<Value> commonDivisors(std::span<const Value> roots, Level level) const;
  std::string declare(Value value, std::string_view expression, Code &code);
  /// As an operand of an operator: a name, a literal, a call, or in parentheses.
  std::string operand(Value value, Code &code);
  std::string expression(Value value, Code &code);
  std::string infix(const scalar::Node &node, Code &code);
  std::string converted(const scalar::Node &node, Code &code);
  std::string loaded(const scalar::Node &node, Code &code);
  std::string called(Value value, Code &code);
  std::string rounded(Value root, Code &code);
  /// Nobody but roundings to 16 bits or fewer reads it.
  bool isReadRounded(Value value) const;
  void count(Value value);
  std::string nameOf(Value value);

  const Graph &graph;
  Names &names;
  Scope now;
  std::vector<Scope> outer;
  std::map<Value, Vector> vectorNames;
  bool declares = true;
  std::map<Value, std::vector<Value>> readers; ///< of what was announced; no value: it is a root
};

} // namespace fusion::body
