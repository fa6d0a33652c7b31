#include "codegen/body/Printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fusion::body {

using scalar::Kind;
using scalar::Node;

void Printer::bind(Value value, std::string expression) { now.texts[value] = std::move(expression); }

void Printer::bindVector(Value value, std::string vector, DType element) {
  vectorNames[value] = {std::move(vector), element};
}

void Printer::enterBlock() { outer.push_back(now); }
void Printer::leaveBlock() {
  now = std::move(outer.back());
  outer.pop_back();
}

void Printer::count(Value value) {
  if (isBound(value))
    return;
  for (Value operand : graph[value].operands) {
    const bool isNew = !readers.contains(operand);
    readers[operand].push_back(value);
    if (isNew)
      count(operand);
  }
}

void Printer::announce(std::span<const Value> roots) {
  for (Value root : roots) {
    const bool isNew = !readers.contains(root);
    std::vector<Value> &mine = readers[root];
    if (std::find(mine.begin(), mine.end(), Value()) == mine.end())
      mine.push_back(Value());
    if (isNew)
      count(root);
  }
}

bool Printer::isReadRounded(Value value) const {
  auto found = readers.find(value);
  return found != readers.end() && std::all_of(found->second.begin(), found->second.end(), [&](Value reader) {
           return reader && graph[reader].kind == Kind::Round;
         });
}

/// "i3", but none that is the name of a type.
static std::string indexName(Names &names) {
  constexpr std::string_view types[] = {"i4", "i8", "i16", "i32", "i64"};
  std::string name = names.fresh("i");
  while (std::find(std::begin(types), std::end(types), name) != std::end(types))
    name = names.fresh("i");
  return name;
}

std::string Printer::nameOf(Value value) {
  const Node &node = graph[value];
  if (node.kind == Kind::Call) {
    std::string stem = node.name.substr(0, node.name.find_first_of("<("));
    while (stem.ends_with('_'))
      stem.pop_back();
    return names.fresh(stem + "_");
  }
  if (node.kind == Kind::Load)
    return names.fresh("loaded");
  if (node.type == DType::I64)
    return indexName(names);
  return names.fresh(node.type == DType::Bool ? "is" : "x");
}

std::string Printer::declare(Value value, std::string_view expression, Code &code) {
  const std::string name = nameOf(value);
  code.line(fmt::format("const {} {} = {};", spelling(graph.type(value)), name, expression));
  bind(value, name);
  return name;
}

/// Whether C++ reads the text as one operand of any operator.
static bool isAtom(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[' || (c == '<' && i > 0 && text[i - 1] != ' '))
      ++depth;
    else if (c == ')' || c == ']' || (c == '>' && depth > 0 && text[i - 1] != ' '))
      --depth;
    else if (const bool isExponent =
                 c == '-' && i > 1 && text[i - 1] == 'e' && text[0] >= '0' && text[0] <= '9';
             depth == 0 && !isExponent && (c == ' ' || c == '-' || c == '!' || c == '~'))
      return false;
    if (depth == 0 && c == ')' && i + 1 < text.size() && text[0] == '(') // a cast
      return false;
  }
  return true;
}

std::string Printer::operand(Value value, Code &code) {
  std::string text = this->value(value, code);
  return isAtom(text) ? text : "(" + text + ")";
}

std::string Printer::value(Value root, Code &code) {
  if (auto found = now.texts.find(root); found != now.texts.end())
    return found->second;
  const Node &node = graph[root];
  if (node.kind == Kind::Integer)
    return integerLiteral(node.type, node.integer);
  if (node.kind == Kind::Float)
    return literal(node.type, node.number);
  if (!readers.contains(root))
    announce({&root, 1});
  const std::string text = expression(root, code);
  constexpr size_t longest = 60;
  const bool isShared = readers[root].size() > 1;
  const bool isDeclared = declares && (isShared || node.kind == Kind::Load || text.size() > longest);
  return isDeclared ? declare(root, text, code) : text;
}

std::string Printer::infix(const Node &node, Code &code) {
  const bool isBool = graph.type(node.operands[0]) == DType::Bool;
  const char *symbol = "";
  switch (node.kind) {
  case Kind::Add:
    symbol = "+";
    break;
  case Kind::Sub:
    symbol = "-";
    break;
  case Kind::Mul:
    symbol = "*";
    break;
  case Kind::Div:
  case Kind::Quotient:
    symbol = "/";
    break;
  case Kind::Mod:
    symbol = "%";
    break;
  case Kind::And:
    symbol = isBool ? "&&" : "&";
    break;
  case Kind::Or:
    symbol = isBool ? "||" : "|";
    break;
  case Kind::Xor:
    symbol = isBool ? "!=" : "^";
    break;
  case Kind::Equal:
    symbol = "==";
    break;
  case Kind::NotEqual:
    symbol = "!=";
    break;
  case Kind::Less:
    symbol = "<";
    break;
  case Kind::LessEqual:
    symbol = "<=";
    break;
  case Kind::Greater:
    symbol = ">";
    break;
  default:
    symbol = ">=";
    break;
  }
  // Products in a sum need no parentheses: nothing is contracted.
  auto part = [&](Value value) {
    const Kind kind = graph[value].kind;
    const bool bindsTighter = (node.kind == Kind::Add || node.kind == Kind::Sub) && isFloat(node.type) &&
                              (kind == Kind::Mul || kind == Kind::Div || kind == Kind::Quotient);
    return bindsTighter ? this->value(value, code) : operand(value, code);
  };
  const std::string left = part(node.operands[0]);
  std::string right = part(node.operands[1]);
  const bool divides = node.kind == Kind::Div || node.kind == Kind::Mod;
  if (divides && fusion::isInteger(node.type) && graph[node.operands[1]].kind != Kind::Integer)
    right = fmt::format("nonzero({})", right);
  const std::string text = fmt::format("{} {} {}", left, symbol, right);
  // Integers narrower than int are promoted by C++.
  return fusion::isInteger(node.type) && byteSize(node.type) < 4
             ? fmt::format("({})({})", spelling(node.type), text)
             : text;
}

std::string Printer::converted(const Node &node, Code &code) {
  const DType from = graph.type(node.operands[0]);
  if (node.type == DType::Bool || (isFloat(from) && !isFloat(node.type)))
    return fmt::format("convert<{}>({})", spelling(node.type), value(node.operands[0], code));
  return fmt::format("({}){}", spelling(node.type), operand(node.operands[0], code));
}

std::string Printer::loaded(const Node &node, Code &code) {
  const std::string index = value(node.operands[0], code);
  std::string text;
  if (node.access == scalar::Access::Table) {
    text = fmt::format("{}[{}]", node.name, index);
  } else {
    const std::string pointer =
        node.packed ? fmt::format("packed<{}>({})", spelling(node.roundedTo), node.name) : node.name;
    const bool isFirst = graph.isInteger(node.operands[0], 0);
    text = fmt::format("{}({}{})", node.access == scalar::Access::Early ? "load_early" : "load", pointer,
                       isFirst ? "" : " + " + operand(node.operands[0], code));
    if (scalar::isNarrow(node.roundedTo))
      text = fmt::format("to_f32({})", text);
  }
  if (node.operands.size() == 1)
    return text;
  const std::string zero = isFloat(node.type) ? literal(node.type, 0) : integerLiteral(node.type, 0);
  return fmt::format("{} ? {} : {}", operand(node.operands[1], code), text, zero);
}

std::string Printer::called(Value value, Code &code) {
  const Node &node = graph[value];
  std::string text = !node.near.empty() && isReadRounded(value) ? node.near : node.name;
  text += '(';
  for (size_t i = 0; i < node.operands.size(); ++i)
    text += (i ? ", " : "") + this->value(node.operands[i], code);
  return text + ')';
}

std::string Printer::rounded(Value root, Code &code) {
  const Node &node = graph[root];
  const std::string type = spelling(node.roundedTo);
  if (const Node *pair = graph.pairOperation(root); pair && !isBound(node.operands[0])) {
    const std::string left = value(pair->operands[0], code);
    return fmt::format("{}_to<{}>({}, {})", pairFunction(pair->kind), type, left,
                       value(pair->operands[1], code));
  }
  return fmt::format("round_to<{}>({})", type, value(node.operands[0], code));
}

std::string Printer::expression(Value value, Code &code) {
  const Node &node = graph[value];
  switch (node.kind) {
  case Kind::Integer:
  case Kind::Float:
  case Kind::Input:
    return node.kind == Kind::Input ? node.name : this->value(value, code);
  case Kind::Load:
    return loaded(node, code);
  case Kind::Neg:
    return "-" + operand(node.operands[0], code);
  case Kind::Not:
    return "!" + operand(node.operands[0], code);
  case Kind::BitNot:
    return fmt::format("({})~{}", spelling(node.type), operand(node.operands[0], code));
  case Kind::Select: {
    const std::string condition = operand(node.operands[0], code), then = operand(node.operands[1], code);
    return fmt::format("{} ? {} : {}", condition, then, operand(node.operands[2], code));
  }
  case Kind::Call:
    return called(value, code);
  case Kind::Convert:
    return converted(node, code);
  case Kind::Round:
    return rounded(value, code);
  case Kind::Quotient:
    if (auto by = now.divisors.find(node.operands[1]); by != now.divisors.end())
      return fmt::format("divide({}, {})", this->value(node.operands[0], code), by->second);
    return infix(node, code);
  default:
    return infix(node, code);
  }
}

std::string Printer::unrounded(Value root, Code &code) {
  announce({&root, 1});
  return value(graph[root].operands[0], code);
}

std::string Printer::stored(const Result &result, Code &code) {
  if (!scalar::isNarrow(result.element))
    return value(result.value, code);
  Value value = result.value;
  if (!readers.contains(value))
    announce({&value, 1});
  const Node &node = graph[value];
  // A value whose rounding only a store needs is rounded there, unless its operation rounds by itself.
  if (node.kind == Kind::Round && node.roundedTo == result.element && !isBound(value) &&
      readers[value].size() == 1 && !graph.pairOperation(value) && !scalar::losesInfinity(result.element))
    value = node.operands[0];
  return toElement(result.element, this->value(value, code));
}

std::vector<Value> Printer::crossing(std::span<const Value> roots, Level level) const {
  std::set<Value> found, seen;
  auto visit = [&](auto &&self, Value value) -> void {
    const Node &node = graph[value];
    if (node.kind == Kind::Integer || node.kind == Kind::Float || isBound(value) ||
        !seen.insert(value).second)
      return;
    if (node.level <= level) {
      if (node.kind != Kind::Input)
        found.insert(value);
      return;
    }
    const bool hasDivisor = node.kind == Kind::Quotient && now.divisors.contains(node.operands[1]);
    for (Value operand : node.operands)
      if (!hasDivisor || !(operand == node.operands[1]))
        self(self, operand);
  };
  for (Value root : roots)
    visit(visit, root);
  return {found.begin(), found.end()};
}

void Printer::hoist(std::span<const Value> roots, Level level, Code &code) {
  announce(roots);
  for (Value value : crossing(roots, level))
    if (std::string text = this->value(value, code); !now.texts.contains(value))
      declare(value, text, code);
}

std::vector<Value> Printer::commonDivisors(std::span<const Value> roots, Level level) const {
  std::set<Value> found, seen;
  auto visit = [&](auto &&self, Value value) -> void {
    if (isBound(value) || !seen.insert(value).second)
      return;
    const Node &node = graph[value];
    if (node.kind == Kind::Quotient && graph.level(node.operands[1]) <= level &&
        graph.level(node.operands[0]) > graph.level(node.operands[1]) &&
        !now.divisors.contains(node.operands[1]))
      found.insert(node.operands[1]);
    for (Value operand : node.operands)
      self(self, operand);
  };
  for (Value root : roots)
    visit(visit, root);
  return {found.begin(), found.end()};
}

void Printer::hoistDivisors(std::span<const Value> roots, Level level, Code &code) {
  for (Value value : commonDivisors(roots, level)) {
    const std::string name = names.fresh("by");
    code.line(fmt::format("const Divisor {} = divisor({});", name, this->value(value, code)));
    now.divisors[value] = name;
  }
}

std::vector<Member> Printer::hoistMembers(std::span<const Value> roots, Level level, Code &code) {
  announce(roots);
  std::vector<Member> members;
  std::map<Value, std::string> values, by;
  enterBlock();
  for (Value value : commonDivisors(roots, level)) {
    by[value] = names.fresh("by");
    members.push_back({"Divisor", by[value]});
    code.line(fmt::format("{} = divisor({});", by[value], this->value(value, code)));
    now.divisors[value] = by[value];
  }
  for (Value value : crossing(roots, level)) {
    const std::string text = expression(value, code);
    values[value] = nameOf(value);
    members.push_back({spelling(graph.type(value)), values[value]});
    code.line(fmt::format("{} = {};", values[value], text));
    bind(value, values[value]);
  }
  leaveBlock();
  now.texts.insert(values.begin(), values.end());
  now.divisors.insert(by.begin(), by.end());
  return members;
}

} // namespace fusion::body
