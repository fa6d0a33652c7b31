// Random chains of views: what a kernel reads through them is what the reference computes.
#include "PlanChecks.h"

#include "codegen/Views.h"
#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <numeric>
#include <random>

using namespace mlir;

namespace fusion::test {
namespace {

class ChainBuilder {
public:
  ChainBuilder(func::FuncOp function, const nn::SymbolicShapes &shapes, uint64_t seed)
      : function(function), shapes(shapes), builder(function.getBody()), random(seed) {}

  Value step(Value x) {
    switch (below(4)) {
    case 0:
      return reshape(x);
    case 1:
      return transpose(x);
    case 2:
      return slice(x);
    default:
      return expand(x);
    }
  }
  const DimShape &shape(Value x) const { return shapes[x]; }

private:
  int64_t below(int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); }

  Value make(StringRef name, Value x, ArrayRef<NamedAttribute> attributes, const DimShape &shape) {
    OperationState state(builder.getUnknownLoc(), name);
    state.addOperands(x);
    state.addAttributes(attributes);
    state.addTypes(nn::typeOf(shape, elementType(x)));
    Operation *op = builder.create(state);
    EXPECT_TRUE(succeeded(shapes.add(op)));
    return op->getResult(0);
  }
  NamedAttribute dims(StringRef name, const DimShape &values) {
    return builder.getNamedAttr(name, nn::dimsToAttr(builder.getContext(), values));
  }

  /// Merges two neighbours or splits a dim of even size.
  Value reshape(Value x) {
    DimShape shape = shapes[x];
    size_t at = shape.empty() ? 0 : static_cast<size_t>(below(static_cast<int64_t>(shape.size())));
    if (shape.empty()) {
      shape.push_back(1);
    } else if (below(2) && at + 1 < shape.size()) {
      shape[at] = shape[at] * shape[at + 1];
      shape.erase(shape.begin() + static_cast<ptrdiff_t>(at) + 1);
    } else if (auto half = shape[at].knownMultipleOf(2) ? shape[at].dividedBy(2) : std::nullopt) {
      shape[at] = 2;
      shape.insert(shape.begin() + static_cast<ptrdiff_t>(at + static_cast<size_t>(below(2))), *half);
    } else {
      shape.insert(shape.begin() + static_cast<ptrdiff_t>(at), 1);
    }
    return make("nn.reshape", x, dims("shape", shape), shape);
  }
  Value transpose(Value x) {
    const DimShape &from = shapes[x];
    std::vector<int64_t> perm(from.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), random);
    DimShape shape;
    for (int64_t dim : perm)
      shape.push_back(from[static_cast<size_t>(dim)]);
    return make("nn.transpose", x, builder.getNamedAttr("perm", builder.getDenseI64ArrayAttr(perm)), shape);
  }
  Value slice(Value x) {
    DimShape starts, sizes = shapes[x];
    std::vector<int64_t> steps;
    for (Dim &size : sizes) {
      Dim start = 0;
      int64_t step = 1;
      int64_t kind = below(4);
      if (kind == 0) { // backwards
        start = size - Dim(1);
        step = -1;
      } else if (kind == 1 && size.isStatic() && size.value() > 2) { // the inner part
        start = 1;
        size = size - Dim(2);
      } else if (kind == 2 && size.isStatic() && size.value() > 1) { // every second
        start = 1;
        step = 2;
        size = size.floorDiv(2);
      }
      starts.push_back(start);
      steps.push_back(step);
    }
    return make("nn.slice", x,
                {dims("starts", starts), dims("sizes", sizes),
                 builder.getNamedAttr("steps", builder.getDenseI64ArrayAttr(steps))},
                sizes);
  }
  Value expand(Value x) {
    DimShape shape = shapes[x];
    for (Dim &dim : shape)
      if (dim == Dim(1) && below(2))
        dim = below(2) ? Dim(3) : Dim::symbol("n");
    if (below(3) == 0)
      shape.insert(shape.begin(), 2);
    return make("nn.expand", x, dims("shape", shape), shape);
  }

  func::FuncOp function;
  nn::SymbolicShapes shapes;
  OpBuilder builder;
  std::mt19937_64 random;
};

TEST(Views, RandomChains) {
  constexpr int chains = 48, length = 6;
  for (int group = 0; group < chains / 16; ++group) {
    auto module =
        parse(R"(func.func @main(%x: tensor<?x4x6xi32> {nn.name = "x", nn.dims = ["n", 4, 6]}) { return })");
    ASSERT_TRUE(module);
    func::FuncOp function = mainOf(*module);
    Operation *returns = function.getBody().front().getTerminator();
    auto shapes = nn::SymbolicShapes::compute(function);
    ASSERT_TRUE(succeeded(shapes));
    std::vector<Value> results;
    for (int chain = 0; chain < 16; ++chain) {
      ChainBuilder builder(function, *shapes, static_cast<uint64_t>(group * 16 + chain));
      Value x = function.getArgument(0);
      for (int i = 0; i < length && product(builder.shape(x)).substitute({{"n", Dim(5)}}).value() < 4000; ++i)
        x = builder.step(x);
      results.push_back(x);
    }
    // Each builder inserts at the front of the block: operands still come first, as chains do not share ops.
    returns->setOperands(results);
    SmallVector<Type> types;
    for (Value result : results)
      types.push_back(result.getType());
    function.setType(FunctionType::get(&context(), function.getArgumentTypes(), types));
    for (int64_t n : {1, 5})
      checkFunction(function, {.symbols = {{"n", n}}, .targets = Targets::One});
  }
}

View viewOf(DimShape shape) { return View::contiguous({}, std::move(shape)); }

TEST(Views, Contiguity) {
  Dim n = Dim::symbol("n");
  EXPECT_TRUE(viewOf({n, 4, 6}).isContiguous());
  View transposed = viewOf({n, 4});
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  EXPECT_FALSE(transposed.isContiguous());
  View one = viewOf({1, 4});
  one.strides[0] = 100; // never walked
  EXPECT_TRUE(one.isContiguous());
}

/// What a model does with its projections costs no kernel: split heads, transpose, take a part.
TEST(Views, HeadsOfAProjectionAreViews) {
  check(
      R"(func.func @main(%x: tensor<?x?x192xf16> {nn.name = "x", nn.dims = ["batch", "seq", 192]}) -> tensor<?x4x?x16xf16> {
    %0 = nn.slice %x {starts = [0, 0, 64], sizes = ["batch", "seq", 64], steps = array<i64: 1, 1, 1>} : (tensor<?x?x192xf16>) -> tensor<?x?x64xf16>
    %1 = nn.reshape %0 {shape = ["batch", "seq", 4, 16]} : (tensor<?x?x64xf16>) -> tensor<?x?x4x16xf16>
    %2 = nn.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x16xf16>) -> tensor<?x4x?x16xf16>
    %3 = nn.neg %2 : (tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
    return %3 : tensor<?x4x?x16xf16>
  })",
      {.symbols = {{"batch", 2}, {"seq", 3}}, .launches = 1});
}

} // namespace
} // namespace fusion::test
