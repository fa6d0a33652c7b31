#include "GraphBuilder.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace fusion::fuzz {

GraphBuilder::GraphBuilder(uint64_t seed) : random(seed), special(isSpecial(seed)) {
  element = random.of({"f32", "f32", "f16", "bf16"});
  width = random.of({"64", "64", "128", "8", "12", "1", "72", "40"});
  std::vector<std::string> hidden = {random.of({"b", "b", "2", "1"})};
  if (random.chance(60))
    hidden.push_back(random.of({"s", "s", "3", "1"}));
  hidden.push_back(width);
  pool = {input({element, hidden})};
  if (random.chance(50))
    pool.push_back(input({element, hidden}));
}

RandomGraph GraphBuilder::finish() {
  std::set<int> read;
  for (const RandomGraph::Op &op : graph.ops)
    read.insert(op.operands.begin(), op.operands.end());
  for (const RandomGraph::Op &op : graph.ops)
    for (int result : op.results)
      if (!read.contains(result) || leaving.contains(result) || random.chance(8))
        graph.outputs.push_back(result);
  return std::move(graph);
}

int GraphBuilder::input(Type type, const std::string &role) {
  graph.values.push_back(std::move(type));
  const int number = static_cast<int>(graph.values.size()) - 1;
  graph.inputs.push_back(number);
  if (!role.empty())
    graph.roles[number] = role;
  return number;
}

Type GraphBuilder::withLast(int x, const std::string &dim) const {
  Type type = typeOf(x);
  type.dims.back() = dim;
  return type;
}

std::vector<int> GraphBuilder::buildAll(const std::string &name, std::vector<int> operands,
                                        std::vector<Type> types, std::string attributes) {
  std::vector<int> results;
  for (Type &type : types) {
    graph.values.push_back(std::move(type));
    results.push_back(static_cast<int>(graph.values.size()) - 1);
  }
  graph.ops.push_back({name, std::move(attributes), std::move(operands), results});
  return results;
}

int GraphBuilder::build(const std::string &name, std::vector<int> operands, Type type,
                        std::string attributes) {
  return buildAll(name, std::move(operands), {std::move(type)}, std::move(attributes)).front();
}

int GraphBuilder::keep(int number) {
  const Type &type = typeOf(number);
  const bool isFloat = type.element == "f32" || type.element == "f16" || type.element == "bf16";
  if (isFloat && !type.dims.empty() && !isSymbolic(type.dims.back()))
    pool.push_back(number);
  return number;
}

int GraphBuilder::any() {
  const size_t newest = std::min<size_t>(pool.size(), 4);
  return pool[pool.size() - 1 - static_cast<size_t>(random.below(newest))];
}

int GraphBuilder::residual(int x) {
  for (int candidate : pool)
    if (candidate != x && typeOf(candidate) == typeOf(x) && random.chance(50))
      return candidate;
  return input(typeOf(x));
}

int GraphBuilder::maybeShared(int x) {
  if (random.chance(15))
    keep(random.chance(50) ? x : unary("neg", x));
  return x;
}

int GraphBuilder::constant(const std::string &element, const std::string &number) {
  const Type type = {element, {}};
  return build("constant", {}, type, fmt::format(" {{value = dense<{}> : {}}}", number, type.text()));
}

int GraphBuilder::weight(const std::string &element, std::vector<std::string> dims) {
  std::string digits;
  const int count = std::stoi(dims[0]) * std::stoi(dims[1]);
  for (int i = 0; i < count; ++i) {
    // Random signs and mantissas between 2^-4 and 2^-2; little endian.
    const uint64_t bits = random.next();
    const auto byte = [](uint64_t value) { return fmt::format("{:02X}", value & 0xff); };
    const uint64_t sign = bits >> 8 & 0x80;
    if (element == "f32")
      digits += byte(0) + byte(bits) + byte(bits >> 16) + byte(sign | 0x3d);
    else if (element == "bf16")
      digits += byte(bits) + byte(sign | 0x3d);
    else
      digits += byte(bits) + byte(sign | 0x2c | (bits >> 24 & 7));
  }
  const Type type = {element, std::move(dims)};
  return build("constant", {}, type, fmt::format(" {{value = dense<\"0x{}\"> : {}}}", digits, type.text()));
}

int GraphBuilder::number(int x, const std::string &value) {
  return random.chance(85) ? constant(typeOf(x).element, value) : input({typeOf(x).element, {}});
}

int GraphBuilder::unary(const std::string &name, int x, const std::string &attributes) {
  return build(name, {x}, typeOf(x), attributes);
}

int GraphBuilder::binary(const std::string &name, int a, int b) {
  const Type type = typeOf(a);
  const bool commutes = name == "add" || name == "mul";
  return commutes && random.chance(30) ? build(name, {b, a}, type) : build(name, {a, b}, type);
}

int GraphBuilder::activation(int x) {
  const std::string name = random.of(
      {"silu", "gelu", "relu", "sigmoid", "tanh", "exp_of_sigmoid", "silu_by_hand", "gelu_by_hand"});
  if (name == "silu_by_hand")
    return binary("mul", x, maybeShared(unary("sigmoid", x)));
  if (name == "gelu_by_hand" && !special) {
    const std::string element = typeOf(x).element;
    const int root = constant(element, random.of({"1.41421354", "1.41421354", "1.5"}));
    const int erf = unary("erf", build("div", {x, root}, typeOf(x)));
    const int sum = build("add", {erf, constant(element, "1.0")}, typeOf(x));
    return build("mul", {build("mul", {x, sum}, typeOf(x)), constant(element, "0.5")}, typeOf(x));
  }
  if (name.starts_with("gelu"))
    return unary("gelu", x, random.of({"", " {approximate = \"tanh\"}", " {approximate = \"quick\"}"}));
  return name == "exp_of_sigmoid" ? unary("exp", unary("sigmoid", x)) : unary(name, x);
}

int GraphBuilder::cast(int x, const std::string &to) {
  return typeOf(x).element == to ? x : build("cast", {x}, of(x, to));
}

int GraphBuilder::norm(int x) {
  const bool widens = typeOf(x).element != "f32" && random.chance(30);
  const std::string eps = random.of({"1.0e-6", "1.0e-5", "1.0e-3"});
  const int from = widens ? cast(x, "f32") : x;
  int result;
  if (random.chance(60))
    result =
        build("rms_norm", {from, vector(from)}, typeOf(from),
              fmt::format(" {{eps = {} : f32{}}}", eps, random.of({"", "", ", weight_bias = 1.0 : f32"})));
  else
    result = build("layer_norm",
                   random.chance(70) ? std::vector{from, vector(from), vector(from)}
                                     : std::vector{from, vector(from)},
                   typeOf(from), fmt::format(" {{eps = {} : f32}}", eps));
  return widens ? cast(result, typeOf(x).element) : result;
}

int GraphBuilder::matmul(int x, const std::string &columns, bool stored) {
  const bool transposed = random.chance(40);
  std::vector<std::string> dims = {last(x), columns};
  if (transposed)
    std::swap(dims[0], dims[1]);
  const int w = stored ? weight(typeOf(x).element, dims) : input({typeOf(x).element, dims});
  return build("matmul", {x, w}, withLast(x, columns), transposed ? " {transpose_b = true}" : "");
}

int GraphBuilder::reduce(const std::string &kind, int x) {
  return build("reduce", {x}, withLast(x, "1"),
               fmt::format(" {{kind = \"{}\", axes = array<i64: -1>, keepdims = true}}", kind));
}

int GraphBuilder::reshape(int x, std::vector<std::string> dims) {
  std::vector<std::string> shape;
  for (const std::string &dim : dims)
    shape.push_back(quoted(dim));
  const std::string attributes = fmt::format(" {{shape = [{}]}}", fmt::join(shape, ", "));
  return build("reshape", {x}, {typeOf(x).element, std::move(dims)}, attributes);
}

int GraphBuilder::transpose(int x, const std::vector<int> &perm) {
  Type type = typeOf(x);
  for (size_t i = 0; i < perm.size(); ++i)
    type.dims[i] = typeOf(x).dims[static_cast<size_t>(perm[i])];
  return build("transpose", {x}, type, fmt::format(" {{perm = array<i64: {}>}}", fmt::join(perm, ", ")));
}

int GraphBuilder::slice(int x, const std::string &start, const std::string &size, int step) {
  std::vector<std::string> starts, sizes;
  std::vector<int> steps;
  const std::vector<std::string> &dims = typeOf(x).dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool isLast = i + 1 == dims.size();
    starts.push_back(isLast ? quoted(start) : "0");
    sizes.push_back(quoted(isLast ? size : dims[i]));
    steps.push_back(isLast ? step : 1);
  }
  return build("slice", {x}, withLast(x, size),
               fmt::format(" {{starts = [{}], sizes = [{}], steps = array<i64: {}>}}",
                           fmt::join(starts, ", "), fmt::join(sizes, ", "), fmt::join(steps, ", ")));
}

int GraphBuilder::concat(int a, int b, int axis, const std::string &joined) {
  Type type = typeOf(a);
  type.dims[axis < 0 ? type.dims.size() + static_cast<size_t>(axis) : static_cast<size_t>(axis)] = joined;
  return build("concat", {a, b}, type, fmt::format(" {{axis = {} : i64}}", axis));
}

} // namespace fusion::fuzz
