// Values of 16 bits as whole vectors: products, sums and differences of f16 and bf16 two at a time, and half the registers
// for what is kept. An element is taken out where something needs it as f32.
#include "codegen/schedule/RowEmitter.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

/// The text of what roundedPair() wrote, on vectors: `mul_to<bf16>($0, $1)` → `mul_vec($0, $1)`; nothing for other texts.
static std::optional<std::string> pairOnVectors(StringRef text, StringRef type) {
  for (const char *name : {"mul", "add", "sub"})
    if (text == fmt::format("{}_to<{}>($0, $1)", name, type.str()))
      return fmt::format("{}_vec($0, $1)", name);
  return std::nullopt;
}

/// The same for one of two by the column, as in a rotation: `$c < 64 ? sub_to<bf16>($0, $1) : add_to<bf16>($0, $1)`, if no
/// vector lies on both sides.
static std::optional<std::string> textOnVectors(StringRef text, StringRef type, int64_t vector) {
  if (auto pair = pairOnVectors(text, type))
    return pair;
  const auto [condition, choice] = text.split(" ? ");
  const auto [first, second] = choice.split(" : ");
  const auto a = pairOnVectors(first, type), b = pairOnVectors(second, type);
  int64_t from = 0;
  StringRef number = condition;
  if (!number.consume_front("$c < ") || number.getAsInteger(10, from) || from % vector != 0 || !a || !b)
    return std::nullopt;
  return fmt::format("{} ? {} : {}", condition.str(), *a, *b);
}

std::string Emitter::textOf(const Node *node) {
  return expression(node, {"$0", "$1", "$2", "$3"}, "$c");
}

void Emitter::choosePacked() {
  if (!layout.inRegisters || !vectors() || layout.shifted || layout.inCluster() || exchange)
    return;
  // What could be a vector of 16-bit elements, by the type; and what makes it worth while: arithmetic in pairs.
  std::map<const Node *, DType> possible;
  std::map<const Node *, std::string> pairs;
  auto source = [&](const Node *node) -> const Node * {
    while (node->kind == Node::Kind::Move && movesChunks(node->map) && node->map.kind != ColumnMap::Kind::PairFold &&
           !plan.kept.contains(node))
      node = node->operands[0];
    return node;
  };
  for (const Node &node : graph.nodes) { // operands come before what reads them
    if (!uses.contains(&node) || node.level != Level::Element)
      continue;
    for (DType type : {DType::F16, DType::BF16}) {
      if (node.kind == Node::Kind::Load) {
        if (node.access.type == type && !node.summed && readsVectors(node.access) &&
            (!plan.kept.contains(&node) || llvm::is_contained(preloads, &node)))
          possible[&node] = type;
        continue;
      }
      if (node.kind != Node::Kind::Apply || node.operands.size() > 4)
        continue;
      const std::string text = textOf(&node);
      const auto onVectors = textOnVectors(text, sourceType(type), layout.vector);
      if (onVectors && llvm::all_of(node.operands, [&](const Node *operand) {
            auto found = possible.find(source(operand));
            return found != possible.end() && found->second == type;
          })) {
        possible[&node] = type;
        pairs[&node] = *onVectors;
      } else if (unrounded(type, text) && !StringRef(text).contains("$c")) {
        possible[&node] = type;
      }
    }
  }
  for (const auto &[node, text] : pairs) {
    packed[node] = {possible.at(node), text};
    for (const Node *operand : node->operands)
      if (const Node *from = source(operand); from->kind == Node::Kind::Apply && !pairs.contains(from))
        packed[from] = {possible.at(from), ""};
  }
}

bool Emitter::isPacked(const Node *node, const Position &position) const {
  return packed.contains(node) && !position.held.empty() && position.vector == layout.vector;
}

const Emitter::Position &Emitter::ofWholeVector(const Position &position) const {
  return position.map.kind == ColumnMap::Kind::NextPartner ? *position.from : position;
}

std::string Emitter::packedVector(const Node *node, const Position &lane) {
  const Position &position = ofWholeVector(lane);
  if (position.key.empty() && packed.contains(node) && isKept(node))
    return arrays.at(node) + "[k]";
  if (node->kind == Node::Kind::Move)
    return packedVector(node->operands[0], moved(position, node->map));
  if (node->kind == Node::Kind::Load)
    return vectorNames.at({node, position.key.empty() ? "" : position.chunk});
  std::string &known = packedNames[{node, position.key}];
  if (!known.empty())
    return known;
  const auto &[type, text] = packed.at(node);
  const std::string vector = fmt::format("Vec<{}, {}>", sourceType(type).str(), layout.vector);
  std::string name;
  if (text.empty()) {
    const std::string wide = writer.fresh("y");
    writer.line(fmt::format("Vec<f32, {}> {};", layout.vector, wide));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", layout.vector));
    const auto outside = elementNames;
    std::set<std::string> columns;
    for (const auto &[key, other] : positions)
      if (!other.column.empty())
        columns.insert(key);
    const std::string value = *unrounded(type, applied(node, position));
    writer.line(fmt::format("{}[i] = {};", wide, value));
    writer.line("}");
    // What was named in this loop is not known behind it.
    elementNames = outside;
    for (auto &[key, other] : positions)
      if (!columns.contains(key))
        other.column.clear();
    name = local(vector, "p", fmt::format("vec_from_f32<{}>({})", sourceType(type).str(), wide));
  } else {
    SmallVector<std::string> operands;
    for (const Node *operand : node->operands)
      operands.push_back(packedVector(operand, position));
    comment(node);
    name = local(vector, "p", filled(text, operands, position.chunk));
  }
  if (auto kept = plan.kept.find(node); position.key.empty() && kept != plan.kept.end() && kept->second == current)
    writer.line(fmt::format("{}[k] = {};", arrays.at(node), name));
  return packedNames[{node, position.key}] = name;
}

} // namespace fusion::row
