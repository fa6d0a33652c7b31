#include "RandomGraph.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace fusion::fuzz {

namespace {

bool isSymbol(const std::string &dim) { return dim.front() > '9'; }

/// As attributes have it.
std::string quoted(const std::string &dim) { return isSymbol(dim) ? "\"" + dim + "\"" : dim; }

/// A splitmix64 of our own: the standard's distributions differ between libraries.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int below(size_t count) { return static_cast<int>(next() % count); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T &of(const std::vector<T> &all) {
    return all[static_cast<size_t>(below(all.size()))];
  }

private:
  uint64_t state;
};

class Generator {
public:
  explicit Generator(uint64_t seed) : random(seed) {}

  RandomGraph run() {
    element = random.of<std::string>({"f32", "f32", "f16", "bf16"});
    width = random.of<std::string>({"64", "64", "128", "8", "12", "1", "72", "40"});
    std::vector<std::string> rows = {random.of<std::string>({"b", "b", "2", "1"})};
    if (random.chance(60))
      rows.push_back(random.of<std::string>({"s", "s", "3", "1"}));
    hidden = rows;
    hidden.push_back(width);
    pool = {input({element, hidden})};
    if (random.chance(50))
      pool.push_back(input({element, hidden}));
    for (int i = 0, count = 1 + random.below(4); i < count; ++i)
      random.chance(70) ? motif() : step();
    if (graph.ops.empty())
      keep(unary("relu", pool.front()));
    finish();
    return std::move(graph);
  }

private:
  int value(Type type) {
    graph.values.push_back(std::move(type));
    return static_cast<int>(graph.values.size()) - 1;
  }
  int input(Type type) {
    const int number = value(std::move(type));
    graph.inputs.push_back(number);
    return number;
  }
  const Type &typeOf(int number) const { return graph.values[static_cast<size_t>(number)]; }
  int build(const std::string &name, std::vector<int> operands, Type type, std::string attributes = {}) {
    const int result = value(std::move(type));
    graph.ops.push_back({name, std::move(attributes), std::move(operands), result});
    return result;
  }
  int keep(int number) {
    pool.push_back(number);
    return number;
  }
  /// One of the newest.
  int any() {
    const size_t newest = std::min<size_t>(pool.size(), 4);
    return pool[pool.size() - 1 - static_cast<size_t>(random.below(newest))];
  }
  std::string last(int x) const { return typeOf(x).dims.back(); }
  int vector(int x) { return input({typeOf(x).element, {last(x)}}); }

  int constant(const std::string &element, const std::string &number) {
    const Type type = {element, {}};
    return build("constant", {}, type, fmt::format("{{value = dense<{}> : {}}}", number, type.text()));
  }

  int unary(const std::string &name, int x, const std::string &attributes = {}) {
    return build(name, {x}, typeOf(x), attributes);
  }
  int binary(const std::string &name, int a, int b) {
    const Type type = typeOf(a);
    return random.chance(30) && (name == "add" || name == "mul") ? build(name, {b, a}, type) : build(name, {a, b}, type);
  }
  int activation(int x) {
    const std::string name = random.of<std::string>(
        {"silu", "gelu", "relu", "sigmoid", "tanh", "exp_of_sigmoid", "silu_by_hand", "gelu_by_hand"});
    if (name == "silu_by_hand")
      return binary("mul", x, maybeShared(unary("sigmoid", x)));
    if (name == "gelu_by_hand") {
      const std::string element = typeOf(x).element;
      const int root = constant(element, random.of<std::string>({"1.41421354", "1.41421354", "1.5"}));
      const int erf = unary("erf", build("div", {x, root}, typeOf(x)));
      const int sum = build("add", {erf, constant(element, "1.0")}, typeOf(x));
      return build("mul", {build("mul", {x, sum}, typeOf(x)), constant(element, "0.5")}, typeOf(x));
    }
    if (name == "gelu")
      return unary("gelu", x, random.of<std::string>({"", " {approximate = \"tanh\"}", " {approximate = \"quick\"}"}));
    return name == "exp_of_sigmoid" ? unary("exp", unary("sigmoid", x)) : unary(name, x);
  }
  int cast(int x, const std::string &to) {
    Type type = typeOf(x);
    type.element = to;
    return typeOf(x).element == to ? x : build("cast", {x}, type);
  }
  int norm(int x) {
    const bool widens = typeOf(x).element != "f32" && random.chance(30);
    const std::string eps = fmt::format(" {{eps = {} : f32}}", random.of<std::string>({"1.0e-6", "1.0e-5", "1.0e-3"}));
    const int from = widens ? cast(x, "f32") : x;
    int result = random.chance(60) ? build("rms_norm", {from, vector(from)}, typeOf(from), eps)
                                   : build("layer_norm", {from, vector(from), vector(from)}, typeOf(from), eps);
    return widens ? cast(result, typeOf(x).element) : result;
  }
  /// Mostly a constant, which patterns want.
  int number(int x, const std::string &value) {
    return random.chance(85) ? constant(typeOf(x).element, value) : input({typeOf(x).element, {}});
  }
  int matmul(int x, const std::string &columns) {
    const bool transposed = random.chance(40);
    std::vector<std::string> dims = {last(x), columns};
    if (transposed)
      std::swap(dims[0], dims[1]);
    Type type = typeOf(x);
    type.dims.back() = columns;
    return build("matmul", {x, input({typeOf(x).element, dims})}, type, transposed ? " {transpose_b = true}" : "");
  }
  /// A residual of x's type: something of the pool, or new.
  int residual(int x) {
    for (int candidate : pool)
      if (candidate != x && typeOf(candidate) == typeOf(x) && random.chance(50))
        return candidate;
    return input(typeOf(x));
  }
  /// Read by somebody else too, which many fusions mind.
  int maybeShared(int x) {
    if (random.chance(15))
      keep(random.chance(50) ? x : unary("neg", x));
    return x;
  }

  void motif() {
    const int x = any();
    switch (random.below(7)) {
    case 0: { // add, norm
      const int sum = maybeShared(binary("add", x, residual(x)));
      keep(norm(sum));
      if (random.chance(60))
        keep(sum);
      return;
    }
    case 1: { // matmul, bias, activation, residual
      int y = maybeShared(matmul(x, random.of<std::string>({width, "64", "24", "7", "1"})));
      if (random.chance(70))
        y = maybeShared(binary("add", y, vector(y)));
      if (random.chance(70))
        y = maybeShared(activation(y));
      keep(random.chance(50) ? binary("add", y, residual(y)) : y);
      return;
    }
    case 2: { // gate and up
      const std::string columns = random.of<std::string>({"64", "48", "9"});
      const int gate = maybeShared(activation(maybeShared(matmul(x, columns)))), up = maybeShared(matmul(x, columns));
      keep(matmul(binary("mul", gate, up), width));
      return;
    }
    case 3: // norm, several matmuls
      for (int n = norm(x), i = 0, count = 1 + random.below(3); i < count; ++i)
        keep(matmul(n, random.of<std::string>({"64", "32", "16", "5"})));
      return;
    case 4:
      return attention(x);
    case 5: { // softmax by hand, or the op
      Type one = typeOf(x);
      one.dims.back() = "1";
      auto reduced = [&](int y, const char *kind) {
        return build("reduce", {y}, one, fmt::format(" {{kind = \"{}\", axes = array<i64: -1>, keepdims = true}}", kind));
      };
      if (random.chance(40)) {
        keep(build("softmax", {x}, typeOf(x), " {axis = -1 : i64}"));
        return;
      }
      const int exp = maybeShared(unary("exp", build("sub", {x, reduced(x, "max")}, typeOf(x))));
      keep(build("div", {exp, reduced(exp, "sum")}, typeOf(x)));
      return;
    }
    default: // rms by hand
      Type one = typeOf(x);
      one.dims.back() = "1";
      const int mean = build("reduce", {build("mul", {x, x}, typeOf(x))}, one,
                             " {kind = \"mean\", axes = array<i64: -1>, keepdims = true}");
      const int root = build("sqrt", {build("add", {mean, number(x, "1.0e-5")}, one)}, one);
      keep(binary("mul", build("div", {x, root}, typeOf(x)), vector(x)));
    }
  }

  void attention(int x) {
    const std::string keys = random.of<std::string>({"s", "6"}), size = random.of<std::string>({"8", "16", "32", "12"});
    auto heads = [&](const std::string &rows) { return Type{typeOf(x).element, {"b", "4", rows, size}}; };
    const int q = input(heads("s")), k = input(heads(keys)), v = input(heads(keys));
    const Type scores = {typeOf(x).element, {"b", "4", "s", keys}};
    int y = build("matmul", {q, k}, scores, " {transpose_b = true}");
    if (random.chance(70))
      y = maybeShared(build("mul", {y, number(x, "0.25")}, scores));
    if (random.chance(50))
      y = build("add", {y, input({typeOf(x).element, {random.chance(50) ? "b" : "1", "1", "s", keys}})}, scores);
    if (random.chance(30)) {
      const int keep = input({"i1", {"b", "1", "s", keys}});
      const std::string lowest = random.of<std::string>({"-1.0e+4", "-6.5e+4", "0xFF800000", "-1.0e+1"});
      const bool isInfinite = lowest.starts_with("0x");
      if (!isInfinite || typeOf(x).element == "f32")
        y = build("where", {keep, y, constant(typeOf(x).element, lowest)}, scores);
    }
    const bool widens = typeOf(x).element != "f32" && random.chance(50);
    y = widens ? cast(y, "f32") : y;
    y = maybeShared(build("softmax", {y}, typeOf(y), " {axis = -1 : i64}"));
    y = build("matmul", {widens ? cast(y, typeOf(x).element) : y, v}, heads("s"));
    if (random.chance(60))
      y = build("transpose", {y}, {typeOf(x).element, {"b", "s", "4", size}}, " {perm = array<i64: 0, 2, 1, 3>}");
    keep(y);
  }

  void step() {
    const int x = any();
    const Type type = typeOf(x);
    switch (random.below(8)) {
    case 0:
      keep(unary(random.of<std::string>({"neg", "abs", "relu", "sigmoid", "tanh", "square", "erf"}), x));
      return;
    case 1:
      keep(binary(random.of<std::string>({"add", "mul", "sub", "max", "min"}), x, random.chance(50) ? residual(x) : vector(x)));
      return;
    case 2:
      keep(cast(x, random.of<std::string>({"f32", "f16", "bf16"})));
      return;
    case 3: {
      Type swapped = type;
      const size_t rank = type.dims.size();
      if (rank < 2)
        return;
      std::swap(swapped.dims[rank - 1], swapped.dims[rank - 2]);
      if (isSymbol(swapped.dims.back()))
        return; // widths of weights are numbers
      std::string perm;
      for (size_t i = 0; i < rank; ++i)
        perm += fmt::format("{}{}", i ? ", " : "", i + 2 < rank ? i : 2 * rank - 3 - i);
      keep(build("transpose", {x}, swapped, fmt::format(" {{perm = array<i64: {}>}}", perm)));
      return;
    }
    case 4: { // the last dim twice, and a half of it
      if (isSymbol(type.dims.back()))
        return;
      Type twice = type;
      twice.dims.back() = std::to_string(2 * std::stoi(type.dims.back()));
      const int both = maybeShared(build("concat", {x, residual(x)}, twice, " {axis = -1 : i64}"));
      std::string starts, sizes, ones;
      for (size_t i = 0; i < type.dims.size(); ++i) {
        const bool isLast = i + 1 == type.dims.size();
        starts += fmt::format("{}{}", i ? ", " : "", isLast ? type.dims.back() : "0");
        sizes += (i ? ", " : "") + quoted(type.dims[i]);
        ones += i ? ", 1" : "1";
      }
      keep(random.chance(50) ? both
                             : build("slice", {both}, type,
                                     fmt::format(" {{starts = [{}], sizes = [{}], steps = array<i64: {}>}}", starts, sizes, ones)));
      return;
    }
    case 5: {
      Type truth = type;
      truth.element = "i1";
      // Of inputs: what is computed may lie on either side by a rounding.
      const int condition = build(random.chance(50) ? "less" : "greater_equal", {input(type), vector(x)}, truth);
      keep(build("where", {condition, x, residual(x)}, type));
      return;
    }
    case 6: {
      Type one = type;
      one.dims.back() = "1";
      keep(build("add", {x, build("reduce", {x}, one,
                                  fmt::format(" {{kind = \"{}\", axes = array<i64: -1>, keepdims = true}}",
                                              random.of<std::string>({"sum", "mean", "max", "min"})))},
                 type));
      return;
    }
    default:
      keep(norm(x));
    }
  }

  void finish() {
    std::set<int> read;
    for (const RandomGraph::Op &op : graph.ops)
      read.insert(op.operands.begin(), op.operands.end());
    for (const RandomGraph::Op &op : graph.ops)
      if (!read.contains(op.result) || random.chance(8))
        graph.outputs.push_back(op.result);
  }

  Random random;
  RandomGraph graph;
  std::string element, width;
  std::vector<std::string> hidden;
  std::vector<int> pool;
};

} // namespace

std::string Type::text() const {
  std::string shape;
  for (const std::string &dim : dims)
    shape += (isSymbol(dim) ? "?" : dim) + "x";
  return "tensor<" + shape + element + ">";
}

std::string RandomGraph::text() const {
  std::set<int> read(outputs.begin(), outputs.end());
  for (const Op &op : ops)
    read.insert(op.operands.begin(), op.operands.end());
  std::string text = "func.func @main(", types, results;
  for (int number : inputs) {
    if (!read.contains(number))
      continue;
    const Type &type = values[static_cast<size_t>(number)];
    std::string dims;
    for (const std::string &dim : type.dims)
      dims += (dims.empty() ? "" : ", ") + quoted(dim);
    text += fmt::format("{}%v{}: {} {{nn.dims = [{}], nn.name = \"v{}\"}}", text.ends_with('(') ? "" : ",\n    ", number, type.text(),
                        dims, number);
  }
  auto namesOf = [&](const std::vector<int> &numbers) {
    std::vector<std::string> names, kinds;
    for (int number : numbers) {
      names.push_back(fmt::format("%v{}", number));
      kinds.push_back(values[static_cast<size_t>(number)].text());
    }
    return std::pair(fmt::format("{}", fmt::join(names, ", ")), fmt::format("{}", fmt::join(kinds, ", ")));
  };
  const auto [returned, returnedTypes] = namesOf(outputs);
  text += fmt::format(")\n    -> ({}) {{\n", returnedTypes);
  for (const Op &op : ops) {
    const auto [names, kinds] = namesOf(op.operands);
    text += fmt::format("  %v{} = nn.{} {}{} : ({}) -> {}\n", op.result, op.name, names, op.attributes, kinds,
                        values[static_cast<size_t>(op.result)].text());
  }
  return text + fmt::format("  return {} : {}\n}}\n", returned, returnedTypes);
}

RandomGraph randomGraph(uint64_t seed) { return Generator(seed).run(); }

/// Without ops whose results nobody reads.
static RandomGraph withoutDead(RandomGraph graph) {
  std::set<int> read(graph.outputs.begin(), graph.outputs.end());
  std::vector<RandomGraph::Op> kept;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op)
    if (read.contains(op->result)) {
      read.insert(op->operands.begin(), op->operands.end());
      kept.push_back(*op);
    }
  graph.ops.assign(kept.rbegin(), kept.rend());
  return graph;
}

std::vector<RandomGraph> smallerGraphs(const RandomGraph &graph) {
  std::vector<RandomGraph> all;
  for (size_t i = 0; graph.outputs.size() > 1 && i < graph.outputs.size(); ++i) {
    RandomGraph less = graph;
    less.outputs = {graph.outputs[i]};
    all.push_back(withoutDead(less));
  }
  for (const RandomGraph::Op &op : graph.ops) { // as the only result
    RandomGraph less = graph;
    less.outputs = {op.result};
    all.push_back(withoutDead(less));
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const RandomGraph::Op removed = graph.ops[i];
    const Type type = graph.values[static_cast<size_t>(removed.result)];
    std::vector<int> others;
    for (int operand : removed.operands)
      if (graph.values[static_cast<size_t>(operand)] == type)
        others.push_back(operand);
    RandomGraph base = graph;
    base.ops.erase(base.ops.begin() + static_cast<std::ptrdiff_t>(i));
    base.values.push_back(type);
    base.inputs.push_back(static_cast<int>(base.values.size()) - 1);
    others.push_back(base.inputs.back());
    for (int other : others) {
      RandomGraph less = base;
      for (RandomGraph::Op &op : less.ops)
        std::replace(op.operands.begin(), op.operands.end(), removed.result, other);
      std::erase(less.outputs, removed.result);
      if (!less.outputs.empty())
        all.push_back(withoutDead(less));
    }
  }
  std::erase_if(all, [&](const RandomGraph &less) {
    return less.ops.empty() || (less.ops.size() >= graph.ops.size() && less.outputs.size() >= graph.outputs.size());
  });
  std::stable_partition(all.begin(), all.end(), [&](const RandomGraph &less) { return less.ops.size() < graph.ops.size() / 2; });
  return all;
}

} // namespace fusion::fuzz
