#include "ir/scalar/Graph.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace fusion::scalar {

DType registerType(DType element) {
  if (isFloat(element))
    return element == DType::F64 ? DType::F64 : DType::F32;
  return element == DType::I4 ? DType::I8 : element == DType::U4 ? DType::U8 : element;
}

bool isNarrow(DType type) { return isFloat(type) && byteSize(type) < 4; }

/// Whether every value of float type `a` is one of `b`.
static bool isWithin(DType a, DType b) {
  if (a == b)
    return true;
  auto rank = [](DType type) {
    return type == DType::F8E4M3 || type == DType::F8E5M2 ? 0 : type == DType::F16 || type == DType::BF16 ? 1
                                                             : type == DType::F32                         ? 2
                                                                                                          : 3;
  };
  if (isFloat(a) && isFloat(b))
    return rank(a) < rank(b);
  return false;
}

Value Graph::make(Node node) {
  for (Value operand : node.operands)
    node.level = std::max(node.level, nodes[operand.index].level);
  std::string key;
  auto add = [&](auto number) { key.append(reinterpret_cast<const char *>(&number), sizeof(number)); };
  add(node.kind);
  add(node.type);
  add(node.roundedTo);
  add(node.level);
  add(node.access);
  add(node.packed);
  add(node.integer);
  add(std::bit_cast<uint64_t>(node.number));
  for (Value operand : node.operands)
    add(operand.index);
  key += node.name + ' ' + node.near;
  auto [place, isNew] = known.try_emplace(std::move(key), Value{static_cast<uint32_t>(nodes.size())});
  if (isNew)
    nodes.push_back(std::move(node));
  return place->second;
}

Value Graph::integer(DType type, int64_t value) {
  type = registerType(type);
  return make(
      {.kind = Kind::Integer, .type = type, .roundedTo = type, .level = Level::Constant, .integer = value});
}

bool losesInfinity(DType type) { return type == DType::F8E5M2; }

Value Graph::number(DType type, double value) {
  const DType held = registerType(type);
  const double exact = held == DType::F64 ? value : static_cast<double>(static_cast<float>(value));
  return make({.kind = Kind::Float,
               .type = held,
               .roundedTo = losesInfinity(type) ? type : held,
               .level = Level::Constant,
               .number = exact});
}

Value Graph::like(Value other, double value) {
  const DType held = type(other);
  return isFloat(held) ? number(held, value) : integer(held, static_cast<int64_t>(value));
}

Value Graph::input(std::string name, DType element, Level level) {
  return make({.kind = Kind::Input,
               .type = registerType(element),
               .roundedTo = element,
               .level = level,
               .name = std::move(name)});
}

Value Graph::load(const Pointer &from, Value index, Value guard, Level level) {
  if (guard && isInteger(guard, 1))
    guard = {};
  std::vector<Value> operands = {index};
  if (guard)
    operands.push_back(guard);
  return make({.kind = Kind::Load,
               .type = registerType(from.element),
               .roundedTo = from.element,
               .level = level,
               .access = from.access,
               .packed = from.packed,
               .name = from.name,
               .operands = std::move(operands)});
}

bool Graph::isInteger(Value value, int64_t number) const {
  const Node &node = nodes[value.index];
  return node.kind == Kind::Integer && node.integer == number;
}

bool Graph::isExactIn(Value value, DType type) const {
  const Node &node = nodes[value.index];
  if (node.kind == Kind::Float)
    return type == DType::F64 || node.roundedTo == type || std::isnan(node.number) ||
           static_cast<double>(roundTo(type, static_cast<float>(node.number))) == node.number;
  return isWithin(node.roundedTo, type);
}

const Node *Graph::pairOperation(Value value) const {
  const Node &node = nodes[value.index];
  if (node.kind != Kind::Round || byteSize(node.roundedTo) != 2)
    return nullptr;
  const Node &inner = nodes[node.operands[0].index];
  const bool isOne = inner.kind == Kind::Mul || inner.kind == Kind::Add || inner.kind == Kind::Sub;
  return isOne && isExactIn(inner.operands[0], node.roundedTo) && isExactIn(inner.operands[1], node.roundedTo)
             ? &inner
             : nullptr;
}

bool Graph::isRoundedLast(Value value, DType type) const {
  const Node &node = nodes[value.index];
  return node.kind == Kind::Round && node.roundedTo == type && !pairOperation(value);
}

Value Graph::neg(Value a) {
  const Node &node = nodes[a.index];
  const DType rounded = losesInfinity(node.roundedTo) ? node.type : node.roundedTo;
  return make({.kind = Kind::Neg, .type = node.type, .roundedTo = rounded, .level = {}, .operands = {a}});
}

Value Graph::bitNot(Value a) {
  return make({.kind = Kind::BitNot, .type = type(a), .roundedTo = type(a), .level = {}, .operands = {a}});
}

Value Graph::logicalNot(Value a) {
  const Node &node = nodes[a.index];
  if (node.kind == Kind::Integer)
    return boolean(node.integer == 0);
  return make(
      {.kind = Kind::Not, .type = DType::Bool, .roundedTo = DType::Bool, .level = {}, .operands = {a}});
}

/// What an index computation simplifies to; nothing where it does not.
Value Graph::foldIndex(Kind kind, Value a, Value b) {
  const Node &x = nodes[a.index], &y = nodes[b.index];
  const bool constantX = x.kind == Kind::Integer, constantY = y.kind == Kind::Integer;
  if (constantX && constantY) {
    switch (kind) {
    case Kind::Add:
      return index(x.integer + y.integer);
    case Kind::Sub:
      return index(x.integer - y.integer);
    case Kind::Mul:
      return index(x.integer * y.integer);
    case Kind::Div:
      return y.integer ? index(x.integer / y.integer) : Value();
    case Kind::Mod:
      return y.integer ? index(x.integer % y.integer) : Value();
    default:
      return {};
    }
  }
  if (constantY && y.integer == 0 && (kind == Kind::Add || kind == Kind::Sub))
    return a;
  if (constantX && x.integer == 0 && kind == Kind::Add)
    return b;
  if (kind == Kind::Mul && ((constantX && x.integer == 0) || (constantY && y.integer == 0)))
    return index(0);
  if (constantY && y.integer == 1)
    return kind == Kind::Mul || kind == Kind::Div ? a : kind == Kind::Mod ? index(0) : Value();
  if (constantX && x.integer == 1 && kind == Kind::Mul)
    return b;
  if (constantX && x.integer == 0 && (kind == Kind::Div || kind == Kind::Mod))
    return a;
  // An index that was split and is put together again.
  if (kind == Kind::Add && x.kind == Kind::Mul && y.kind == Kind::Mod && x.operands[1] == y.operands[1]) {
    const Node &quotient = nodes[x.operands[0].index];
    if (quotient.kind == Kind::Div && quotient.operands == y.operands)
      return y.operands[0];
  }
  return {};
}

Value Graph::binary(Kind kind, Value a, Value b) {
  const DType held = type(a);
  assert(held == type(b));
  if (held == DType::I64)
    if (Value folded = foldIndex(kind, a, b))
      return folded;
  return make({.kind = kind, .type = held, .roundedTo = held, .level = {}, .operands = {a, b}});
}

Value Graph::quotient(Value a, Value b) {
  assert(type(a) == DType::F32 && type(b) == DType::F32);
  return make(
      {.kind = Kind::Quotient, .type = DType::F32, .roundedTo = DType::F32, .level = {}, .operands = {a, b}});
}

Value Graph::compare(Kind kind, Value a, Value b) {
  assert(type(a) == type(b));
  const Node &x = nodes[a.index], &y = nodes[b.index];
  if (x.kind == Kind::Integer && y.kind == Kind::Integer && x.type == DType::I64) {
    const int64_t l = x.integer, r = y.integer;
    return boolean(kind == Kind::Equal       ? l == r
                   : kind == Kind::NotEqual  ? l != r
                   : kind == Kind::Less      ? l < r
                   : kind == Kind::LessEqual ? l <= r
                   : kind == Kind::Greater   ? l > r
                                             : l >= r);
  }
  return make({.kind = kind, .type = DType::Bool, .roundedTo = DType::Bool, .level = {}, .operands = {a, b}});
}

Value Graph::both(Value a, Value b) {
  if (!a || !b)
    return a ? a : b;
  if (isInteger(a, 1) || isInteger(b, 0))
    return b;
  if (isInteger(b, 1) || isInteger(a, 0) || a == b)
    return a;
  return binary(Kind::And, a, b);
}

Value Graph::either(Value a, Value b) {
  if (isInteger(a, 0) || isInteger(b, 1))
    return b;
  if (isInteger(b, 0) || isInteger(a, 1) || a == b)
    return a;
  return binary(Kind::Or, a, b);
}

Value Graph::select(Value condition, Value then, Value otherwise) {
  assert(type(condition) == DType::Bool && type(then) == type(otherwise));
  if (then == otherwise || isInteger(condition, 1))
    return then;
  if (isInteger(condition, 0))
    return otherwise;
  DType rounded = nodes[then.index].roundedTo;
  if (!isExactIn(otherwise, rounded))
    rounded =
        isExactIn(then, nodes[otherwise.index].roundedTo) ? nodes[otherwise.index].roundedTo : type(then);
  return make({.kind = Kind::Select,
               .type = type(then),
               .roundedTo = rounded,
               .level = {},
               .operands = {condition, then, otherwise}});
}

/// Functions whose result is one of their operands, or its magnitude.
static bool keepsValues(std::string_view function) {
  return function == "fabs_" || function == "max_nan" || function == "min_nan";
}

Value Graph::call(std::string function, std::vector<Value> operands, DType result, std::string near) {
  DType rounded = registerType(result);
  if (keepsValues(function) && !operands.empty())
    for (Value candidate : operands) {
      const DType narrower = nodes[candidate.index].roundedTo;
      if (!losesInfinity(narrower) && isWithin(narrower, rounded) &&
          std::all_of(operands.begin(), operands.end(),
                      [&](Value operand) { return isExactIn(operand, narrower); }))
        rounded = narrower;
    }
  return make({.kind = Kind::Call,
               .type = registerType(result),
               .roundedTo = rounded,
               .level = {},
               .name = std::move(function),
               .near = std::move(near),
               .operands = std::move(operands)});
}

Value Graph::call(std::string function, std::vector<Value> operands) {
  const DType result = type(operands.front());
  return call(std::move(function), std::move(operands), result);
}

/// Whether an integer of type `from` is the same one in integer type `to`.
static bool holdsInteger(DType to, DType from, int64_t value) {
  if (!fusion::isInteger(to) || (from == DType::U64 && value < 0))
    return false;
  const auto bits = static_cast<int>(8 * byteSize(to)) - (isSignedInteger(to) ? 1 : 0);
  return (value >= 0 || isSignedInteger(to)) &&
         (bits >= 63 || (value < INT64_C(1) << bits && value >= -(INT64_C(1) << bits)));
}

Value Graph::convertRegister(DType to, Value a) {
  to = registerType(to);
  const Node &node = nodes[a.index];
  if (node.type == to)
    return a;
  if (node.kind == Kind::Integer && holdsInteger(to, node.type, node.integer))
    return integer(to, node.integer);
  // There and back through a type that holds every value.
  if (node.kind == Kind::Convert && type(node.operands[0]) == to &&
      (isWithin(to, node.type) ||
       (fusion::isInteger(to) && (node.type == DType::I64 || node.type == DType::U64))))
    return node.operands[0];
  const DType rounded = isFloat(node.type) && isWithin(node.roundedTo, to) ? node.roundedTo : to;
  return make({.kind = Kind::Convert, .type = to, .roundedTo = rounded, .level = {}, .operands = {a}});
}

Value Graph::round(DType to, Value a) {
  assert(type(a) == DType::F32);
  if (!isNarrow(to) || isExactIn(a, to))
    return a;
  return make({.kind = Kind::Round, .type = DType::F32, .roundedTo = to, .level = {}, .operands = {a}});
}

Value Graph::convert(DType to, Value a) {
  if (isNarrow(to))
    return round(to, convertRegister(DType::F32, a));
  return convertRegister(to, a);
}

Value Graph::substitute(Value root, const std::map<Value, Value> &by) {
  std::map<Value, Value> done = by;
  auto visit = [&](auto &&self, Value value) -> Value {
    if (auto found = done.find(value); found != done.end())
      return found->second;
    Node node = nodes[value.index];
    bool changed = false;
    for (Value &operand : node.operands) {
      const Value replaced = self(self, operand);
      changed |= !(replaced == operand);
      operand = replaced;
    }
    if (changed && node.kind != Kind::Load)
      node.level = Level::Constant;
    return done[value] = changed ? make(std::move(node)) : value;
  };
  return visit(visit, root);
}

} // namespace fusion::scalar
