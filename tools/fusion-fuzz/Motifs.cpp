#include "Motifs.h"

#include <algorithm>

namespace fusion::fuzz {

void addNorm(GraphBuilder &b) {
  const int x = b.any(), sum = b.maybeShared(b.binary("add", x, b.residual(x)));
  b.keep(b.norm(sum));
  if (b.random.chance(60))
    b.keep(sum);
}

/// A matmul, its bias, activation and residual.
void matmulEpilogue(GraphBuilder &b) {
  const int x = b.any();
  int y = b.maybeShared(b.matmul(x, b.random.chance(20) ? b.width : b.random.of({"64", "24", "7", "1"})));
  if (b.random.chance(70))
    y = b.maybeShared(b.binary("add", y, b.vector(y)));
  if (b.random.chance(70))
    y = b.maybeShared(b.activation(y));
  b.keep(b.random.chance(50) ? b.binary("add", y, b.residual(y)) : y);
}

/// Gate and up, with biases or without, from two weights or one.
void gatedMatmul(GraphBuilder &b) {
  const int x = b.any();
  const std::string columns = b.random.of({"64", "48", "9"});
  int gate, up;
  if (b.random.chance(25)) {
    const int both = b.maybeShared(b.matmul(x, std::to_string(2 * std::stoi(columns))));
    gate = b.slice(both, "0", columns), up = b.slice(both, columns, columns);
  } else {
    gate = b.maybeShared(b.matmul(x, columns)), up = b.maybeShared(b.matmul(x, columns));
  }
  if (b.random.chance(20))
    gate = b.maybeShared(b.binary("add", gate, b.vector(gate)));
  if (b.random.chance(20))
    up = b.maybeShared(b.binary("add", up, b.vector(up)));
  const int product = b.binary("mul", b.maybeShared(b.activation(gate)), up);
  b.keep(b.random.chance(80) ? b.matmul(product, b.width) : product);
}

/// Gate and up that are there already.
void gatedActivation(GraphBuilder &b) {
  const int x = b.any();
  b.keep(b.binary("mul", b.maybeShared(b.activation(x)), b.residual(x)));
}

void normMatmuls(GraphBuilder &b) {
  int x = b.any();
  if (b.random.chance(40)) // a known number of rows
    x = b.input({b.element, {b.random.of({"1", "2", "4"}), b.random.of({"128", "256", "64"})}});
  if (b.random.chance(40))
    x = b.maybeShared(b.binary("add", x, b.residual(x)));
  const int n = b.maybeShared(b.norm(x));
  const bool stored = b.random.chance(30);
  for (int i = 0, count = 1 + b.random.below(3); i < count; ++i)
    b.keep(b.matmul(n, b.random.of({"64", "32", "16", "5"}), stored));
}

/// By hand, or the op.
void softmax(GraphBuilder &b) {
  const int x = b.any();
  if (b.random.chance(40)) {
    b.keep(b.unary("softmax", x, b.random.of({" {axis = -1 : i64}", " {axis = -1 : i64, log = true}"})));
    return;
  }
  const int exp = b.maybeShared(b.unary("exp", b.build("sub", {x, b.reduce("max", x)}, b.typeOf(x))));
  b.keep(b.build("div", {exp, b.reduce("sum", exp)}, b.typeOf(x)));
}

/// By the mean of squares, or by the length.
void normByHand(GraphBuilder &b) {
  const int x = b.any();
  const Type one = b.withLast(x, "1");
  if (b.random.chance(40)) {
    const int root = b.unary("sqrt", b.maybeShared(b.reduce("sum_square", x)));
    b.keep(b.build("div",
                   {x, b.random.chance(20) ? b.build("max", {root, b.number(x, "1.0e-4")}, one) : root},
                   b.typeOf(x)));
    return;
  }
  const int mean = b.reduce("mean", b.build("mul", {x, x}, b.typeOf(x)));
  const int root = b.unary("sqrt", b.build("add", {mean, b.number(x, "1.0e-5")}, one));
  b.keep(b.binary("mul", b.build("div", {x, root}, b.typeOf(x)), b.vector(x)));
}

void siblingNorms(GraphBuilder &b) {
  const int x = b.any();
  for (int i = 0, count = 2 + b.random.below(2); i < count; ++i)
    b.keep(b.norm(x));
}

/// The last dim twice, and a half of it.
static void join(GraphBuilder &b, int x) {
  if (isSymbolic(b.last(x)))
    return;
  const std::string twice = std::to_string(2 * std::stoi(b.last(x)));
  const int both = b.maybeShared(b.concat(x, b.residual(x), -1, twice));
  b.keep(b.random.chance(50) ? both : b.slice(both, b.last(x), b.last(x)));
}

/// The last two dims change places, if the last one stays a number: widths of weights are.
static void swapDims(GraphBuilder &b, int x) {
  const std::vector<std::string> &dims = b.typeOf(x).dims;
  std::vector<int> perm;
  for (size_t i = 0; i < dims.size(); ++i)
    perm.push_back(static_cast<int>(i));
  if (dims.size() < 2 || isSymbolic(dims[dims.size() - 2]))
    return;
  std::swap(perm[dims.size() - 1], perm[dims.size() - 2]);
  b.keep(b.transpose(x, perm));
}

void step(GraphBuilder &b) {
  const int x = b.any();
  const Type type = b.typeOf(x);
  switch (b.random.below(8)) {
  case 0:
    b.keep(b.unary(b.random.of({"neg", "abs", "relu", "sigmoid", "tanh", "square", "erf"}), x));
    return;
  case 1:
    b.keep(b.binary(b.random.of({"add", "mul", "sub", "max", "min"}), x,
                    b.random.chance(50) ? b.residual(x) : b.vector(x)));
    return;
  case 2:
    b.keep(b.cast(x, b.random.of({"f32", "f16", "bf16"})));
    return;
  case 3:
    return swapDims(b, x);
  case 4:
    return join(b, x);
  case 5: {
    // Of inputs: what is computed may lie on either side by a rounding.
    const int other = b.input(type), bound = b.vector(x);
    const int condition =
        b.random.chance(20) ? b.build("is_nan", {other}, b.of(x, "i1"))
                            : b.build(b.random.of({"less", "greater_equal"}), {other, bound}, b.of(x, "i1"));
    b.keep(b.build("where", {condition, x, b.residual(x)}, type));
    return;
  }
  case 6:
    b.keep(b.build("add", {x, b.reduce(b.random.of({"sum", "mean", "max", "min"}), x)}, type));
    return;
  default:
    b.keep(b.norm(x));
  }
}

} // namespace fusion::fuzz
