// toy.square_relu lives in Toy.td, Toy.h and Toy.cpp. Patterns match it, schedules write its kernels and the
// reference knows what it means, as of any activation of the project.
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "test/recipes/Recipes.h"
#include "test/recipes/Toy.h"

#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>

#include <cmath>

namespace fusion::test {
namespace {

using testing::HasSubstr;

class Activation : public testing::TestWithParam<const char *> {
protected:
  /// A graph in which one family takes the op, in kernels of one schedule; no size is a multiple of a tile.
  void fuses(const std::string &text, const char *family, const char *schedule,
             std::initializer_list<int64_t> rows) {
    Lowered graph(text, GetParam());
    ASSERT_TRUE(graph);
    EXPECT_EQ(graph.report().fired(family), 1) << graph.report().markdown();
    EXPECT_EQ(graph.countIn(schedule, "toy.square_relu"), 1u);
    for (int64_t count : rows)
      graph.runsLikeTheReference({{"rows", count}});
    graph.isVerified();
    graph.compiles();
  }
};

TEST_P(Activation, IsPointwise) {
  fuses(R"(!t = tensor<?x91xTYPE> !v = tensor<91xTYPE>
    func.func @main(%x: !t {nn.dims = ["rows", 91]}, %v: !v) -> !t {
      %0 = nn.mul %x, %v : (!t, !v) -> !t
      %1 = toy.square_relu %0 : (!t) -> !t
      %2 = nn.sub %1, %x : (!t, !t) -> !t
      return %2 : !t })",
        "pointwise", "pointwise", {37});
}

TEST_P(Activation, GatesAsThePatternForActivationsSays) {
  fuses(R"(!t = tensor<?x96xTYPE>
    func.func @main(%g: !t {nn.dims = ["rows", 96]}, %u: !t {nn.dims = ["rows", 96]}) -> !t {
      %0 = toy.square_relu %g : (!t) -> !t
      %1 = nn.mul %u, %0 : (!t, !t) -> !t
      return %1 : !t })",
        "gated_activation", "pointwise", {5});
}

TEST_P(Activation, EndsAMatmul) {
  fuses(R"(!x = tensor<?x72xTYPE> !w = tensor<72x40xTYPE> !b = tensor<40xTYPE> !y = tensor<?x40xTYPE>
    func.func @main(%x: !x {nn.dims = ["rows", 72]}, %w: !w, %b: !b) -> !y {
      %0 = nn.matmul %x, %w : (!x, !w) -> !y
      %1 = nn.add %0, %b : (!y, !b) -> !y
      %2 = toy.square_relu %1 : (!y) -> !y
      return %2 : !y })",
        "matmul_epilogue", "matmul", {1, 3, 67});
}

TEST_P(Activation, GatesAPairOfMatmuls) {
  fuses(R"(!x = tensor<?x64xTYPE> !w = tensor<64x45xTYPE> !y = tensor<?x45xTYPE>
    func.func @main(%x: !x {nn.dims = ["rows", 64]}, %g: !w, %u: !w) -> !y {
      %0 = nn.matmul %x, %g : (!x, !w) -> !y
      %1 = toy.square_relu %0 : (!y) -> !y
      %2 = nn.matmul %x, %u : (!x, !w) -> !y
      %3 = nn.mul %1, %2 : (!y, !y) -> !y
      return %3 : !y })",
        "gated_matmul", "matmul", {7});
}

/// In a group that only says which schedule shall have it.
TEST_P(Activation, StandsBesideANorm) {
  Lowered graph(R"(!t = tensor<?x131xTYPE> !v = tensor<131xTYPE>
    func.func @main(%x: !t {nn.dims = ["rows", 131]}, %w: !v) -> !t {
      %r = fusion.group "toy_norm" schedule "row" (%a = %x, %v = %w) : (!t, !v) -> !t {
        %0 = toy.square_relu %a : (!t) -> !t
        %1 = nn.rms_norm %0, %v {eps = 1.0e-6 : f32} : (!t, !v) -> !t
        %2 = toy.square_relu %1 : (!t) -> !t
        fusion.yield %2 : !t
      }
      return %r : !t })",
                GetParam());
  ASSERT_TRUE(graph);
  EXPECT_EQ(graph.schedules(), std::vector<std::string>{"row"});
  graph.runsLikeTheReference({{"rows", 13}});
  graph.isVerified();
  graph.compiles();
}

INSTANTIATE_TEST_SUITE_P(Types, Activation, testing::Values("f32", "f16", "bf16"),
                         [](const auto &info) { return std::string(info.param); });

/// The verifier is the one of all elementwise ops.
TEST(ActivationRecipe, IsTypedByItsClass) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context(), [&](mlir::Diagnostic &seen) { message += seen.str(); });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      "func.func @f(%x: tensor<4xf32>) -> tensor<5xf32> {"
      "  %0 = toy.square_relu %x : (tensor<4xf32>) -> tensor<5xf32>\n return %0 : tensor<5xf32> }",
      mlir::ParserConfig(&context()));
  EXPECT_FALSE(module);
  EXPECT_THAT(message, HasSubstr("toy.square_relu"));
}

/// By hand, so that kernels and reference are not wrong together; NaN passes, and constants fold.
TEST(ActivationRecipe, MeansWhatItsFormulaSays) {
  auto module = parse(R"(func.func @main() -> tensor<6xf32> {
    %c = nn.constant {value = dense<[-2.0, -0.5, 0.0, 0.5, 3.0, 0x7FC00000]> : tensor<6xf32>}
       : () -> tensor<6xf32>
    %0 = toy.square_relu %c : (tensor<6xf32>) -> tensor<6xf32>
    return %0 : tensor<6xf32> })");
  ASSERT_TRUE(module);
  mlir::Operation *end = (*module->getOps<mlir::func::FuncOp>().begin()).front().getTerminator();
  mlir::Operation *op = end->getOperand(0).getDefiningOp();
  auto folded = foldWithReference(op, 100);
  ASSERT_TRUE(folded);
  const std::vector<float> values = toTensor(llvm::cast<mlir::ElementsAttr>(folded->front())).toFloats();
  const float expected[] = {0, 0, 0, 0.25f, 9};
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(values[i], expected[i]) << i;
  EXPECT_TRUE(std::isnan(values[5]));
}

} // namespace
} // namespace fusion::test
