// Scalar expressions with types and roundings: what an op computes for one element. Ops build their formula
// here, once, and code generators ask the graph: what is computed twice, what changes how often, what is
// already rounded.
#pragma once

#include "ir/base/DType.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fusion::scalar {

/// How often a value differs while a kernel runs; a value's level is the highest of what it is computed from.
/// What the levels between mean is the template's: a group may be a head, a tile or a quantisation block.
enum class Level : uint8_t { Constant, Kernel, Row, Group, Vector, Element };

enum class Kind : uint8_t {
  Integer,
  Float, // constants
  Input, // supplied by the template, or by whoever prints
  Load,  // of an element from memory
  Neg,
  Not,
  BitNot, // Not: of bools
  Add,
  Sub,
  Mul,
  Div,
  Mod,
  And,
  Or,
  Xor,      // of one type; And, Or, Xor of bools or integers
  Quotient, // Div that may be done with a Divisor: see Graph::quotient
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Greater,
  GreaterEqual, // to a bool
  Select,       // operands: condition, then, otherwise. Both are computed
  Call,         // of a device function
  Convert,      // to another register type, rounded or wrapped once
  Round,        // to a narrow float, held in f32
};

/// One value of a Graph. Equal expressions are one value.
struct Value {
  uint32_t index = UINT32_MAX;
  explicit operator bool() const { return index != UINT32_MAX; }
  friend auto operator<=>(const Value &, const Value &) = default;
};

/// How an element is read.
enum class Access : uint8_t {
  Plain,   ///< load(pointer + index)
  Early, ///< load_early: not written by the PDL predecessor, and read before pdl_wait()
  Table,   ///< pointer[index]: a constant table
};

struct Node {
  Kind kind;
  DType type;       ///< in a register: F32 for all floats up to f32, I8 and U8 for 4-bit integers
  DType roundedTo;  ///< the type of which the value is known to be a value; `type` where nothing narrower is
                    ///< known
  Level level;
  Access access = Access::Plain;
  bool packed = false;    ///< Load: elements of 4 bits, two to a byte
  int64_t integer = 0;    ///< Integer: the value (of u64: its bits)
  double number = 0;      ///< Float
  std::string name;       ///< Input: its name. Load: the pointer. Call: the function
  std::string near; ///< Call: a cheaper function for results that are rounded to 16 bits or fewer, if any
  std::vector<Value> operands; ///< Load: the index and, if any, the guard: where it is false nothing is read
                               ///< and the value is 0
};

/// What a Load reads through.
struct Pointer {
  std::string name;
  DType element;
  Access access = Access::Plain;
  bool packed = false;
};

/// The type in which elements of a type are held in registers.
DType registerType(DType element);
/// A float of 16 bits or fewer.
bool isNarrow(DType type);
/// Whether rounding to the type makes infinities finite, although the type has infinities: those in memory
/// stay.
bool losesInfinity(DType type);

class Graph {
public:
  // Constants.
  Value integer(DType type, int64_t value);
  Value boolean(bool value) { return integer(DType::Bool, value); }
  Value index(int64_t value) { return integer(DType::I64, value); }
  /// `type`: any float type; the value is held in f32 (or f64) as it is.
  Value number(DType type, double value);
  /// The number as a constant of the (register) type of another value.
  Value like(Value other, double value);

  // What comes from outside.
  /// A value that whoever prints binds to text. Its name is its identity.
  Value input(std::string name, DType element, Level level);
  /// The element that lies `index` (an I64) elements after the pointer; its level is at least `level`.
  Value load(const Pointer &from, Value index, Value guard = {}, Level level = Level::Kernel);

  // Arithmetic of operands of one register type. Index arithmetic (I64) on constants is done here; floats are
  // left alone.
  Value neg(Value a);
  Value bitNot(Value a);
  Value logicalNot(Value a);
  Value binary(Kind kind, Value a, Value b);
  Value add(Value a, Value b) { return binary(Kind::Add, a, b); }
  Value sub(Value a, Value b) { return binary(Kind::Sub, a, b); }
  Value mul(Value a, Value b) { return binary(Kind::Mul, a, b); }
  Value div(Value a, Value b) { return binary(Kind::Div, a, b); }
  Value mod(Value a, Value b) { return binary(Kind::Mod, a, b); }
  /// a / b of f32 where the result is then rounded to a narrow float or an integer of 8 bits or fewer:
  /// dividing many values by one b costs one division.
  Value quotient(Value a, Value b);
  Value compare(Kind kind, Value a, Value b);
  Value both(Value a, Value b);
  Value either(Value a, Value b);
  Value select(Value condition, Value then, Value otherwise);
  /// A device function of codegen/device, with the register type of its result. `near`: see Node.
  Value call(std::string function, std::vector<Value> operands, DType result, std::string near = {});
  /// The same, of the type of its first operand.
  Value call(std::string function, std::vector<Value> operands);
  /// To element type `to` as `nn.cast` does: narrow floats are rounded to (and held in f32), integers wrap or
  /// saturate.
  Value convert(DType to, Value a);
  /// To another register type, or wrapped to an integer type.
  Value convertRegister(DType to, Value a);
  /// An f32 rounded to `to`; itself where it is known to be a value of it.
  Value round(DType to, Value a);

  /// Whether the value is a value of `type`, so that rounding to it changes nothing.
  bool isExactIn(Value value, DType type) const;
  /// The product, sum or difference that `value` rounds to a float type of 16 bits, of which both operands
  /// are values: two such take one instruction. Null for other values.
  const Node *pairOperation(Value value) const;
  /// Whether `value` is rounded to `type` by an instruction of its own, which a conversion to memory may do
  /// instead.
  bool isRoundedLast(Value value, DType type) const;
  const Node &operator[](Value value) const { return nodes[value.index]; }
  Level level(Value value) const { return nodes[value.index].level; }
  DType type(Value value) const { return nodes[value.index].type; }
  /// Of constants of integer types.
  bool isInteger(Value value, int64_t number) const;
  size_t size() const { return nodes.size(); }

  /// `root` with inputs (or any values) replaced: a formula over new operands.
  Value substitute(Value root, const std::map<Value, Value> &by);

private:
  Value make(Node node);
  Value foldIndex(Kind kind, Value a, Value b);
  std::vector<Node> nodes;
  std::map<std::string, Value> known;
};

} // namespace fusion::scalar
