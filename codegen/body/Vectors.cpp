// Vectors: what runs in pairs is printed vector by vector, the rest in loops over the lanes. From one to the
// other, values pass as vectors of their own type.
#include "codegen/body/Printer.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion::body {

using scalar::Kind;
using scalar::Node;

class VectorPrinter {
public:
  VectorPrinter(Printer &printer, std::span<const Result> results, int64_t width, Code &code)
      : printer(printer), graph(printer.graph), results(results), width(width), code(code) {}

  std::vector<std::string> print() {
    std::vector<Value> roots;
    for (const Result &result : results)
      roots.push_back(result.value);
    printer.announce(roots);
    printer.hoistDivisors(roots, Level::Vector, code);
    printer.hoist(roots, Level::Vector, code);
    for (Value root : roots)
      plan(root);
    collect();
    for (unsigned stage = 0; stage < stages; ++stage) {
      pairs(stage);
      loop(stage);
    }
    std::vector<std::string> names;
    for (const Result &result : results)
      names.push_back(vectorOf(result.value, result.element));
    return names;
  }

private:
  using Array = std::pair<Value, DType>;

  std::string arguments(DType type) const { return fmt::format("<{}, {}>", spelling(type), width); }
  bool isUniform(Value value) const {
    return !printer.vectorNames.contains(value) &&
           (printer.now.texts.contains(value) || graph.level(value) < Level::Element);
  }
  /// A product, sum or difference in pairs: of values of the type it is rounded to.
  bool isPair(Value value) const { return pairValues.contains(value); }
  bool runsInPairs(Value value) const {
    const Node &node = graph[value];
    if (width == 1 || node.kind != Kind::Round || byteSize(node.roundedTo) != 2)
      return false;
    const Node &inner = graph[node.operands[0]];
    if (inner.kind != Kind::Mul && inner.kind != Kind::Add && inner.kind != Kind::Sub)
      return false;
    return std::all_of(inner.operands.begin(), inner.operands.end(), [&](Value operand) {
      return isUniform(operand) ? graph.isExactIn(operand, node.roundedTo)
                                : elementOf(operand) == node.roundedTo;
    });
  }
  DType elementOf(Value value) const {
    auto held = printer.vectorNames.find(value);
    return held == printer.vectorNames.end() ? graph[value].roundedTo : held->second.element;
  }
  std::vector<Value> operandsOf(Value value) const {
    return isPair(value) ? graph[graph[value].operands[0]].operands : graph[value].operands;
  }

  /// The stage of a value: that of the loop, or the pairs in front of it, that computes it.
  unsigned plan(Value value) {
    if (isUniform(value) || printer.vectorNames.contains(value))
      return 0;
    if (auto known = stageOf.find(value); known != stageOf.end())
      return known->second;
    const bool pair = runsInPairs(value);
    if (pair)
      pairValues.insert(value);
    unsigned stage = 0;
    for (Value operand : operandsOf(value)) {
      const unsigned before = plan(operand);
      const bool fromLoop = stageOf.contains(operand) && !isPair(operand);
      stage = std::max(stage, before + (pair && fromLoop ? 1u : 0u));
    }
    stages = std::max(stages, stage + 1);
    return stageOf[value] = stage;
  }

  /// Which values leave the loop that computes them, as vectors of which type.
  void collect() {
    for (const auto &[value, stage] : stageOf) {
      const bool pair = isPair(value);
      for (Value operand : operandsOf(value)) {
        auto from = stageOf.find(operand);
        if (from == stageOf.end() || isPair(operand))
          continue;
        if (pair || from->second != stage)
          leaving.insert({operand, graph[operand].roundedTo});
      }
    }
    for (const Result &result : results) {
      const auto held = printer.vectorNames.find(result.value);
      const bool isHeld = held != printer.vectorNames.end()
                              ? held->second.element == result.element
                              : isPair(result.value) && elementOf(result.value) == result.element;
      if (isUniform(result.value) || isHeld)
        continue;
      leaving.insert({result.value, result.element});
      if (held != printer.vectorNames.end() || isPair(result.value)) // only its type changes
        stageOf.try_emplace(result.value, 0);
    }
    stages = std::max(stages, 1u);
  }

  std::string vectorOf(Value value, DType element) {
    if (auto made = arrays.find({value, element}); made != arrays.end())
      return made->second;
    if (auto held = printer.vectorNames.find(value);
        held != printer.vectorNames.end() && held->second.element == element)
      return held->second.name;
    return fmt::format("splat_vec{}({})", arguments(element), printer.stored({value, element}, code));
  }

  void pairs(unsigned stage) {
    for (const auto &[value, at] : stageOf) {
      if (at != stage || !isPair(value))
        continue;
      const Node &node = graph[value], &inner = graph[node.operands[0]];
      const DType type = node.roundedTo;
      const std::string left = vectorOf(inner.operands[0], type), right = vectorOf(inner.operands[1], type);
      const std::string name = printer.names.fresh("v");
      code.line(fmt::format("const Vec{} {} = {}_vec({}, {});", arguments(type), name,
                            pairFunction(inner.kind), left, right));
      printer.bindVector(value, name, type);
    }
  }

  void loop(unsigned stage) {
    std::vector<Array> mine;
    for (const Array &array : leaving)
      if (auto at = stageOf.find(array.first); at != stageOf.end() && at->second == stage)
        mine.push_back(array);
    if (mine.empty())
      return;
    for (const Array &array : mine) {
      arrays[array] = printer.names.fresh("y");
      // Narrow floats become vectors of their type after the loop, two at a time.
      code.line(scalar::isNarrow(array.second)
                    ? fmt::format("Vec<f32, {}> {};", width, arrays[array])
                    : fmt::format("Vec{} {};", arguments(array.second), arrays[array]));
    }
    code.line("#pragma unroll");
    code.line(fmt::format("for (int lane = 0; lane < {}; ++lane) {{", width));
    printer.enterBlock();
    for (const auto &[value, vector] : printer.vectorNames)
      printer.bind(value, scalar::registerType(vector.element) == vector.element || !isFloat(vector.element)
                              ? vector.name + "[lane]"
                              : fmt::format("element_f32({}, lane)", vector.name));
    for (const Array &array : mine)
      code.line(fmt::format("{}[lane] = {};", arrays[array], laneText(array)));
    printer.leaveBlock();
    code.line("}");
    for (const Array &array : mine)
      if (scalar::isNarrow(array.second)) {
        const std::string name = printer.names.fresh("v");
        code.line(fmt::format("const Vec{} {} = {};", arguments(array.second), name,
                              toVector(array.second, arrays[array])));
        arrays[array] = name;
      }
    for (const Array &array : mine)
      if (!printer.vectorNames.contains(array.first))
        printer.bindVector(array.first, arrays[array], array.second);
  }

  /// The value of a lane, not yet rounded if the vector is rounded as a whole and has no other reader here.
  std::string laneText(const Array &array) {
    const auto &[value, element] = array;
    const Node &node = graph[value];
    const bool readHere =
        std::any_of(printer.readers[value].begin(), printer.readers[value].end(), [&](Value reader) {
          auto at = reader ? stageOf.find(reader) : stageOf.end();
          return at != stageOf.end() && !isPair(reader) && at->second == stageOf.at(value);
        });
    if (node.kind == Kind::Round && node.roundedTo == element && !printer.isBound(value) && !readHere &&
        !scalar::losesInfinity(element))
      return printer.value(node.operands[0], code);
    return printer.value(value, code);
  }

  Printer &printer;
  const Graph &graph;
  std::span<const Result> results;
  int64_t width;
  Code &code;
  unsigned stages = 0;
  std::map<Value, unsigned> stageOf; ///< values of lanes, in an order in which operands come first
  std::set<Array> leaving;
  std::map<Array, std::string> arrays;
  std::set<Value> pairValues;
};

std::vector<std::string> Printer::vectors(std::span<const Result> results, int64_t width, Code &code) {
  const std::map<Value, Vector> outside = vectorNames;
  std::vector<std::string> names = VectorPrinter(*this, results, width, code).print();
  vectorNames = outside;
  return names;
}

} // namespace fusion::body
