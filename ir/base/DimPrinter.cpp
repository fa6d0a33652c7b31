// The text of a Dim, which DimParser.cpp reads back.
#include "ir/base/DimNode.h"

#include <fmt/format.h>

namespace fusion {

namespace {

bool isIdentifier(std::string_view name) {
  auto isLetter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || !isLetter(name.front()))
    return false;
  for (char c : name)
    if (!isLetter(c) && !(c >= '0' && c <= '9'))
      return false;
  return true;
}

std::string symbolText(const std::string &name) {
  if (isIdentifier(name))
    return name;
  std::string quoted = "`";
  for (char c : name) // a backquote inside is doubled
    quoted += c == '`' ? std::string("``") : std::string(1, c);
  return quoted + "`";
}

/// The magnitude; 2^63 has no literal of its own.
std::string magnitudeText(int64_t coefficient) {
  if (coefficient == INT64_MIN)
    return "(9223372036854775807 + 1)";
  return fmt::format("{}", coefficient < 0 ? -coefficient : coefficient);
}

} // namespace

std::string Dim::Node::text(const AtomRef &atom) {
  // Operands of // and % are bracketed unless they are a single word.
  auto operand = [](const Dim &dim) {
    AtomRef sole = soleAtom(dim);
    bool word = sole ? sole->kind != Kind::FloorDiv && sole->kind != Kind::Mod
                     : dim.isStatic() && *dim.constant() >= 0;
    return word ? dim.str() : "(" + dim.str() + ")";
  };
  switch (atom->kind) {
  case Kind::Symbol:
    return symbolText(atom->name);
  case Kind::FloorDiv:
    return fmt::format("{}//{}", operand(atom->left), operand(atom->right));
  case Kind::Mod:
    return fmt::format("{} % {}", operand(atom->left), operand(atom->right));
  case Kind::Max:
  case Kind::Min:
    break;
  }
  std::string list = atom->left.str();
  for (const Dim &more : operandsOf(atom->kind, atom->right))
    list += ", " + more.str();
  return fmt::format("{}({})", atom->kind == Kind::Max ? "max" : "min", list);
}

std::string Dim::str() const {
  std::string sum;
  for (const Node::Term &term : Node::termsOf(*this)) {
    bool negative = term.coefficient < 0;
    bool one = term.coefficient == 1 || term.coefficient == -1;
    std::string product = one && !term.monomial.empty() ? "" : magnitudeText(term.coefficient);
    bool alone = product.empty() && !negative && term.monomial.size() == 1;
    for (const Node::AtomRef &atom : term.monomial) {
      bool divides = atom->kind == Node::Kind::FloorDiv || atom->kind == Node::Kind::Mod;
      std::string factor = Node::text(atom);
      product += product.empty() ? "" : "*";
      product += divides && !alone ? "(" + factor + ")" : factor;
    }
    if (sum.empty())
      sum = negative ? "-" + product : product;
    else
      sum += (negative ? " - " : " + ") + product;
  }
  return sum.empty() ? "0" : sum;
}

std::string shapeString(std::span<const Dim> dims) {
  std::string list;
  for (const Dim &dim : dims)
    list += (list.empty() ? "" : ", ") + dim.str();
  return "[" + list + "]";
}

} // namespace fusion
