#include "codegen/schedule/RowEmitter.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::row {

std::string Emitter::local(const std::string &type, StringRef stem, const std::string &expression) {
  std::string name = writer.fresh(stem);
  writer.line(fmt::format("const {} {} = {};", type, name, expression));
  return name;
}

void Emitter::comment(const Node *node) {
  if (!node->op || node->op == commented)
    return;
  commented = node->op;
  writer.comment(node->op);
}

void Emitter::header() {
  const std::string rows = writer.size(graph.rows);
  if (layout.inCluster()) {
    thread = local("i64", "t", fmt::format("cluster_rank() * {}u + thread_x()", layout.blockThreads));
    row = local("i64", "row", block);
  } else if (layout.wholeBlock()) {
    thread = local("i64", "t", "thread_x()");
    row = local("i64", "row", block);
  } else {
    shareBlock(rows);
  }
  if (!isGuarded())
    return;
  writer.line("// Threads beyond the end of the row repeat its first elements.");
  const std::string end = fmt::format("{} + {}", (layout.chunks - 1) * layout.stride(), threadStart());
  inside = local("bool", "inside", fmt::format("{} < {}", end, writer.size(graph.width)));
  last = local("i64", "last", fmt::format("{} ? {} : 0", inside, end));
}

void Emitter::shareBlock(const std::string &rows) {
  writer.line(fmt::format("// {} threads a row, {} rows a block; threads beyond the last row repeat it.",
                          layout.threadsPerRow, layout.rowsPerBlock()));
  thread = local("i64", "t", fmt::format("thread_x() % {}u", layout.threadsPerRow));
  const std::string place = local(
      "i64", "place",
      fmt::format("(i64){} * {} + thread_x() / {}u", block, layout.rowsPerBlock(), layout.threadsPerRow));
  active = local("bool", "active", fmt::format("{} < {}", place, rows));
  row = local("i64", "row", fmt::format("{} ? {} : {} - 1", active, place, rows));
}

void Emitter::pointerFor(const void *user, const Access &access, bool isOutput, const std::string &into) {
  const DimShape &lead = graph.leads[access.lead];
  auto &indices = leadIndices[access.lead];
  if (!indices)
    indices = rowIndices(lead);
  SmallVector<std::string> index;
  for (size_t i = 0; i < lead.size(); ++i)
    index.push_back(access.divisors[i] == 1 || (*indices)[i] == "0"
                        ? (*indices)[i]
                        : fmt::format("({} / {})", (*indices)[i], access.divisors[i]));
  index.resize(access.view.shape.size(), "0");
  const std::string base = !into.empty() ? into
                           : isOutput    ? writer.output(access.index)
                                         : writer.input(access.index);
  const std::string type = (isOutput ? "" : "const ") + sourceType(access.type).str();
  std::string name = writer.fresh(isOutput ? "to" : "from");
  writer.line(fmt::format("{} *{} = {} + {};", type, name, base, writer.address(access.view, index)));
  pointerNames[user] = name;
}

void Emitter::countUses() {
  std::vector<const Node *> pending;
  for (const Store &store : graph.stores)
    pending.push_back(store.value);
  while (!pending.empty()) {
    const Node *node = pending.back();
    pending.pop_back();
    if (uses[node]++ == 0)
      pending.insert(pending.end(), node->operands.begin(), node->operands.end());
  }
}

void Emitter::pointers() {
  leadIndices.resize(graph.leads.size());
  for (const Node &node : graph.nodes)
    if (node.kind == Node::Kind::Load && !node.summed && uses.contains(&node))
      pointerFor(&node, node.access, false);
  for (const Store &store : graph.stores)
    pointerFor(&store, store.access, true, store.into);
  if (!layout.shifted)
    return;
  for (const Node &node : graph.nodes)
    if (node.kind == Node::Kind::Load && pointerNames.contains(&node) &&
        isContiguousRow(node.access, graph.width, layout.vector)) {
      writer.line("// The row is cut into vectors where the memory is aligned for them, not where it begins.");
      shift = local("i64", "shift",
                    fmt::format("({} - {}) % {}", pointerNames.at(&node), writer.input(node.access.index), layout.vector));
      return;
    }
}

std::string Emitter::columnOffset(const Access &access, const std::string &column) {
  const View &view = access.view;
  const size_t leading = view.shape.size() - access.columnDims;
  std::string sum;
  auto add = [&](const std::string &index, const Dim &stride) {
    if (stride == Dim(0) || index == "0")
      return;
    sum += sum.empty() ? "" : " + ";
    sum += stride == Dim(1) ? index : fmt::format("{} * {}", index, writer.size(stride));
  };
  if (access.columnDims == 1) {
    if (!(view.strides.back() == Dim(0)))
      add(access.divisors.back() == 1 ? column : fmt::format("({} / {})", column, access.divisors.back()),
          view.strides.back());
    return sum.empty() ? "0" : sum;
  }
  const DimShape dims(view.shape.begin() + static_cast<ptrdiff_t>(leading), view.shape.end());
  const bool narrow = graph.width.isStatic() && graph.width.value() < (1ll << 32);
  const SmallVector<std::string> index = writer.delinearize(fmt::format("({})", column), dims, narrow);
  for (size_t i = 0; i < dims.size(); ++i)
    add(index[i], view.strides[leading + i]);
  return sum.empty() ? "0" : sum;
}

std::string Emitter::expression(const Node *node, ArrayRef<std::string> operands, const std::string &column) {
  return node->text.empty() ? scalarExpression(node->op, operands) : filled(node->text, operands, column);
}

std::string Emitter::filled(StringRef text, ArrayRef<std::string> operands, const std::string &column) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      result += text[i];
      continue;
    }
    const char what = text[++i];
    result += what == 'c'   ? column
              : what == 'n' ? writer.size(graph.width)
                            : operands[static_cast<size_t>(what - '0')];
  }
  return result;
}

bool Emitter::isKept(const Node *node) const {
  auto found = plan.kept.find(node);
  return found != plan.kept.end() && found->second < current && !isPreloaded(node);
}

std::string Emitter::rowValue(const Node *node) {
  if (auto found = rowNames.find(node); found != rowNames.end())
    return found->second;
  SmallVector<std::string> operands;
  for (const Node *operand : node->operands)
    operands.push_back(rowValue(operand));
  if (node->kind == Node::Kind::Apply && node->operands.empty() && !node->op)
    return rowNames[node] = node->text; // a literal
  comment(node);
  const std::string text = node->kind == Node::Kind::Load
                               ? loadElement(node->access.type, pointerNames.at(node), "0", isEarly(node) && !isConstant(node))
                               : expression(node, operands, "0");
  return rowNames[node] = local(node->type, "r", text);
}

void Emitter::rowValuesFor(const Node *node) {
  if (node->level == Level::Row) {
    rowValue(node);
    return;
  }
  if (node->kind == Node::Kind::Reduce || isKept(node))
    return;
  for (const Node *operand : node->operands)
    rowValuesFor(operand);
}

// A value per group, in the chunk that the loop is at.
std::string Emitter::groupValue(const Node *node) {
  if (node->level == Level::Row)
    return rowValue(node);
  if (node->kind == Node::Kind::Reduce)
    return arrays.at(node) + "[k]";
  if (auto found = groupNames.find(node); found != groupNames.end())
    return found->second;
  SmallVector<std::string> operands;
  for (const Node *operand : node->operands)
    operands.push_back(groupValue(operand));
  comment(node);
  return groupNames[node] = local(node->type, "g", expression(node, operands, own.chunk));
}

const Emitter::Position &Emitter::moved(const Position &position, const ColumnMap &map) {
  const std::string key = fmt::format("{}/{}:{}:{}", position.key, static_cast<int>(map.kind), map.half, map.headSize);
  if (auto found = positions.find(key); found != positions.end())
    return found->second;
  Position result;
  result.key = key;
  result.from = &position;
  result.map = map;
  result.lane = position.lane;
  result.vector = position.vector;
  if (vectors() && !position.chunk.empty()) {
    const bool byVector = map.kind == ColumnMap::Kind::Clamp      ? 2 * map.half % layout.vector == 0
                          : map.kind == ColumnMap::Kind::PairFold ? 2 * map.half % layout.vector == 0 && map.headSize == 0
                                                                  : map.half % layout.vector == 0;
    if (map.kind == ColumnMap::Kind::NextPartner) {
      result.chunk = position.chunk;
      result.lane = fmt::format("({} ^ 1)", position.lane);
    } else if (byVector) {
      result.chunk = local("i64", "other", mappedColumn(map, position.chunk));
    }
    if (map.kind == ColumnMap::Kind::PairFold && !result.chunk.empty()) {
      result.lane = fmt::format("({} / 2)", position.lane);
      result.vector = position.vector / 2;
    }
    result.held = heldChunk(position, map);
    if (!result.chunk.empty())
      result.column = fmt::format("({} + {})", result.chunk, result.lane);
  }
  return positions[key] = result;
}

std::string Emitter::column(const Position &position) {
  if (!position.column.empty())
    return position.column;
  Position &known = positions.at(position.key);
  if (known.column.empty())
    known.column = local("i64", "other", mappedColumn(position.map, column(*position.from)));
  return known.column;
}

// What stands before the loop over a vector's elements: the vectors that it reads, values per group.
void Emitter::prepare(const Node *node, const Position &position) {
  if (node->level == Level::Row)
    return;
  if (node->level == Level::Group) {
    groupValue(node);
    return;
  }
  if (isPacked(node, position) && &ofWholeVector(position) != &position) {
    prepare(node, ofWholeVector(position));
    return;
  }
  if (position.key.empty() && isKept(node))
    return;
  if (node->kind == Node::Kind::Load && vectors() && !position.chunk.empty() &&
      (layout.shifted ? readsVectors(node->access) : isVectorAccess(node->access, position.vector))) {
    if (auto early = preloaded.find(node); early != preloaded.end() && !position.held.empty()) {
      vectorNames[{node, position.key.empty() ? "" : position.chunk}] =
          fmt::format("{}[{}]", early->second, position.held);
      return;
    }
    std::string &name = vectorNames[{node, position.key.empty() ? "" : position.chunk}];
    if (name.empty()) {
      const std::string type = sourceType(node->access.type).str();
      name = local(fmt::format("Vec<{}, {}>", type, position.vector), "v",
                   loadVector(node, position.chunk, position.vector, /*settled=*/false));
    }
    return;
  }
  const Position &next = node->kind == Node::Kind::Move ? moved(position, node->map) : position;
  for (const Node *operand : node->operands)
    prepare(operand, next);
  if (isPacked(node, position))
    packedVector(node, position);
}

/// Whether the thread reads its own columns in vectors.
bool Emitter::readsVectors(const Access &access) const {
  if (!layout.shifted)
    return isVectorAccess(access, layout.vector);
  return isContiguousRow(access, graph.width, layout.vector) ||
         (access.columnDims == 1 && isVectorAccess(access, layout.vector));
}

std::string Emitter::loadVector(const Node *load, const std::string &column, int64_t vector, bool settled) {
  const std::string type = sourceType(load->access.type).str(), &pointer = pointerNames.at(load);
  if (layout.shifted) {
    const char *how = isContiguousRow(load->access, graph.width, vector) ? "edge" : "moved";
    return fmt::format("load_{}_vec<{}, {}, {}>({}, {}, {})", how, type, vector, settled, pointer, column,
                       writer.size(graph.width));
  }
  const std::string offset = columnOffset(load->access, column);
  return vectors() ? fmt::format("load{}_vec<{}, {}>({} + {})", settled ? "_settled" : "", type, vector, pointer, offset)
                   : fmt::format("load{}({} + {})", settled ? "_settled" : "", pointer, offset);
}

std::string Emitter::applied(const Node *node, const Position &position) {
  SmallVector<std::string> operands;
  for (const Node *operand : node->operands)
    operands.push_back(element(operand, position));
  comment(node);
  return expression(node, operands, StringRef(node->text).contains("$c") ? column(position) : std::string());
}

std::string Emitter::element(const Node *node, const Position &position) {
  if (node->level == Level::Row)
    return rowValue(node);
  if (node->level == Level::Group)
    return groupValue(node);
  const std::string at = fmt::format("k * {} + {}", layout.vector, position.lane);
  if (position.key.empty() && isKept(node) && !packed.contains(node))
    return fmt::format("{}[{}]", arrays.at(node), vectors() ? at : "k");
  if (node->kind == Node::Kind::Move)
    return element(node->operands[0], moved(position, node->map));
  auto &known = elementNames[{node, position.key}];
  if (!known.empty())
    return known;
  std::string name;
  if (isPacked(node, position)) {
    name = local(node->type, "x", fmt::format("element_f32({}, {})", packedVector(node, position), position.lane));
    return elementNames[{node, position.key}] = name;
  }
  if (node->kind == Node::Kind::Load) {
    auto vector = vectorNames.find({node, position.key.empty() ? "" : position.chunk});
    if (!position.chunk.empty() && vector != vectorNames.end()) {
      const bool same = registerType(node->access.type) == sourceType(node->access.type);
      name = local(node->type, "x",
                   fmt::format(fmt::runtime(same ? "{}[{}]" : "element_f32({}, {})"), vector->second, position.lane));
    } else if (auto early = preloaded.find(node); early != preloaded.end() && position.key.empty()) {
      const bool same = registerType(node->access.type) == sourceType(node->access.type);
      name = local(node->type, "x", fmt::format(fmt::runtime(same ? "{}[k]" : "to_f32({}[k])"), early->second));
    } else {
      const std::string offset = columnOffset(node->access, column(position));
      name = local(node->type, "x", loadElement(node->access.type, pointerNames.at(node), offset));
    }
  } else {
    const std::string text = applied(node, position);
    name = local(node->type, "x", text);
  }
  if (auto kept = plan.kept.find(node);
      position.key.empty() && kept != plan.kept.end() && kept->second == current && !isPreloaded(node))
    writer.line(fmt::format("{}[{}] = {};", arrays.at(node), vectors() ? at : "k", name));
  return elementNames[{node, position.key}] = name;
}

} // namespace fusion::row
