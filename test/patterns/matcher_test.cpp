// Loading, checking and matching fusion patterns.
#include "ir/dialect/Dialect.h"
#include "patterns/Matcher.h"

#include "mlir/Dialect/PDL/IR/PDL.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace mlir;
using namespace fusion;

namespace {
class Patterns : public testing::Test {
protected:
  Patterns() {
    DialectRegistry registry;
    registerDialects(registry);
    registry.insert<pdl::PDLDialect>();
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    folder = std::filesystem::temp_directory_path() / ("fusion-patterns-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
  }
  ~Patterns() override { std::filesystem::remove_all(folder); }

  /// Loads one user pattern file.
  Result<PatternSet> load(const std::string &text, const std::string &name = "user.pdll") {
    std::ofstream(folder / name) << text;
    PatternSet set;
    Status status = set.addFile((folder / name).string(), &context);
    if (!status)
      return status.error();
    return set;
  }

  void expectError(const std::string &text, const std::string &part) {
    auto set = load(text);
    ASSERT_FALSE(bool(set)) << part;
    EXPECT_NE(set.error().message.find(part), std::string::npos) << set.error().message;
    EXPECT_EQ(set.error().message.find('\n'), std::string::npos) << set.error().message;
  }

  Operation *parse(const std::string &body, StringRef root) {
    module = parseSourceString<ModuleOp>(body, ParserConfig(&context));
    Operation *found = nullptr;
    module->walk([&](Operation *op) {
      if (op->getName().getStringRef() == root)
        found = op;
    });
    return found;
  }

  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> module;
  std::filesystem::path folder;
};

const char *const header =
    "Constraint SameElementType(x: Value, y: Value);\nConstraint HasOneUse(x: Value);\n"
    "Rewrite group2(a: Op, b: Op);\n";

TEST_F(Patterns, BuiltinsLoad) {
  auto set = PatternSet::builtin(&context);
  ASSERT_TRUE(bool(set)) << set.error().message;
  EXPECT_EQ(set->names().front(), "add_norm");
  EXPECT_EQ(set->names().size(), builtinFamilies().size());
}

TEST_F(Patterns, UserPatternMatches) {
  auto set = load(std::string(header) + R"(
Pattern relu_then_square {
  let first = op<nn.relu>(x: Value);
  let second = op<nn.square>(first);
  HasOneUse(first.0);
  rewrite second with { group2(first, second); };
})");
  ASSERT_TRUE(bool(set)) << set.error().message;
  const FusionPattern &pattern = set->patterns().front();
  EXPECT_EQ(pattern.name, "relu_then_square");
  Operation *root = parse(R"(func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = nn.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = nn.square %0 : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32> })", "nn.square");
  MatchResult result = match(pattern, root);
  ASSERT_TRUE(result.matched) << result.reason;
  EXPECT_EQ(result.ops.size(), 2u);
  root = parse(R"(func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = nn.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = nn.square %0 : (tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32> })", "nn.square");
  result = match(pattern, root);
  EXPECT_FALSE(result.matched);
  EXPECT_EQ(result.reason, "guard HasOneUse: 2 uses");
}

TEST_F(Patterns, AllFailingGuardsAreNamed) {
  auto set = load(std::string(header) + R"(
Pattern both {
  let first = op<nn.add>(x: Value, y: Value);
  let second = op<nn.rms_norm>(first, w: Value);
  SameElementType(first.0, w);
  HasOneUse(first.0);
  rewrite second with { group2(first, second); };
})");
  ASSERT_TRUE(bool(set)) << set.error().message;
  Operation *root =
      parse(R"(func.func @f(%x: tensor<4x8xbf16>, %w: tensor<8xf32>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>) {
    %0 = nn.add %x, %x : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16>
    %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xbf16>
    return %0, %1 : tensor<4x8xbf16>, tensor<4x8xbf16> })",
            "nn.rms_norm");
  EXPECT_EQ(match(set->patterns().front(), root).reason,
            "guard SameElementType: bf16 vs f32; HasOneUse: 2 uses");
}

TEST_F(Patterns, RepeatedValueMustBeTheSame) {
  auto set = load(std::string(header) + R"(
Pattern twice {
  let first = op<nn.relu>(x: Value);
  let second = op<nn.add>(first, x);
  rewrite second with { group2(first, second); };
})");
  ASSERT_TRUE(bool(set)) << set.error().message;
  Operation *root = parse(R"(func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
    %0 = nn.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = nn.add %0, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32> })", "nn.add");
  EXPECT_NE(match(set->patterns().front(), root).reason.find("is not the value that the pattern uses twice"),
            std::string::npos);
}

TEST_F(Patterns, CommutativeOperandsMatchInBothOrders) {
  auto set = load(std::string(header) + R"(
Pattern gate {
  let act = op<nn.silu>(x: Value);
  let product = op<nn.mul>(act, y: Value);
  rewrite product with { group2(act, product); };
})");
  ASSERT_TRUE(bool(set)) << set.error().message;
  const FusionPattern &pattern = set->patterns().front();
  Operation *root = parse(R"(func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
    %0 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = nn.mul %y, %0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32> })", "nn.mul");
  EXPECT_TRUE(match(pattern, root).matched);
  root = parse(R"(func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
    %0 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = nn.silu %y : (tensor<4xf32>) -> tensor<4xf32>
    %2 = nn.mul %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32> })", "nn.mul");
  auto matches = matchAll(pattern, root);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_NE(matches[0].ops[0], matches[1].ops[0]);
}

TEST_F(Patterns, ValueRangeTakesTheOperandsThatAreLeft) {
  auto set = load(std::string(header) + R"(
Pattern any_quantize {
  let act = op<nn.relu>(x: Value);
  let quantized = op<nn.quantize>(act, rest: ValueRange);
  rewrite quantized with { group2(act, quantized); };
})");
  ASSERT_TRUE(bool(set)) << set.error().message;
  for (const char *operands :
       {"%s : (tensor<4xf32>, tensor<f32>)", "%s, %z : (tensor<4xf32>, tensor<f32>, tensor<i8>)"}) {
    Operation *root =
        parse(std::string("func.func @f(%x: tensor<4xf32>, %s: tensor<f32>, %z: tensor<i8>) -> tensor<4xi8> {"
                          "%0 = nn.relu %x : (tensor<4xf32>) -> tensor<4xf32>\n"
                          "%1 = nn.quantize %0, ") +
                  operands + " -> tensor<4xi8>\n return %1 : tensor<4xi8> }",
              "nn.quantize");
    EXPECT_TRUE(match(set->patterns().front(), root).matched) << operands;
  }
  expectError(std::string(header) +
                  "Pattern p { let a = op<nn.quantize>(all: ValueRange, s: Value); let b = op<nn.relu>(a);"
                  " rewrite b with { group2(a, b); }; }",
              "only the last operand of an op can be a ValueRange");
}

/// An unnamed op stands for every op of a kind.
TEST_F(Patterns, OpsWithoutANameMatchAKind) {
  auto set = load(R"(
Constraint IsActivation(op: Op);
Constraint IsQuantize(op: Op);
Rewrite group2(a: Op, b: Op);
Pattern quantised_activation {
  let activated = op<>(x: Value);
  let quantized = op<>(activated, scaling: ValueRange);
  IsActivation(activated);
  IsQuantize(quantized);
  rewrite quantized with { group2(activated, quantized); };
})");
  ASSERT_TRUE(bool(set)) << set.error().message;
  const FusionPattern &pattern = set->patterns().front();
  for (const char *activation : {"gelu", "silu", "relu", "tanh", "sigmoid"})
    for (bool isDynamic : {false, true}) {
      std::string text =
          std::string("func.func @f(%x: tensor<4x8xf32>, %s: tensor<f32>) -> tensor<4x8xi8> {%0 = nn.") +
          activation + " %x : (tensor<4x8xf32>) -> tensor<4x8xf32>\n" +
          (isDynamic
               ? "%1, %2 = nn.dynamic_quantize %0 : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)"
               : "%1 = nn.quantize %0, %s : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>") +
          "\n return %1 : tensor<4x8xi8> }";
      Operation *root = parse(text, isDynamic ? "nn.dynamic_quantize" : "nn.quantize");
      EXPECT_TRUE(pattern.startsAt(root));
      MatchResult result = match(pattern, root);
      ASSERT_TRUE(result.matched) << result.reason;
      EXPECT_EQ(result.ops.size(), 2u);
    }
  Operation *root = parse(R"(func.func @f(%x: tensor<4xf32>, %s: tensor<f32>) -> tensor<4xi8> {
    %0 = nn.exp %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = nn.quantize %0, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xi8>
    return %1 : tensor<4xi8> })", "nn.quantize");
  EXPECT_EQ(match(pattern, root).reason.substr(0, 103),
            "operand 0 of nn.quantize is produced by nn.exp, pattern wants an activation (nn.gelu, nn.relu, "
            "nn.sigmo");
  EXPECT_NE(match(pattern, root).reason.find("[user.pdll:6:19]"), std::string::npos)
      << match(pattern, root).reason;
  EXPECT_FALSE(pattern.startsAt(root->getOperand(0).getDefiningOp()));
}

TEST_F(Patterns, OpsWithoutANameSayWhatTheyAre) {
  const std::string kinds =
      std::string(header) + "Constraint IsNorm(op: Op);\nConstraint IsActivation(op: Op);\n";
  auto with = [&](const std::string &first, const std::string &constraints) {
    return kinds + "Pattern p { let a = " + first + "; let b = op<nn.relu>(a); " + constraints +
           " rewrite b with { group2(a, b); }; }";
  };
  expectError(
      with("op<>(x: Value)", ""),
      "an op without a name needs one constraint that says what it is: IsActivation, IsNorm, IsQuantize");
  expectError(with("op<>(x: Value)", "IsNorm(a); IsActivation(a);"),
              "an op without a name needs only one constraint");
  expectError(with("op<>(x: Value) {eps = attr<\"1.0e-6 : f32\">}", "IsNorm(a);"),
              "an op without a name cannot have attributes");
  expectError(with("op<nn.silu>(x: Value)", "IsActivation(a);"),
              "IsActivation is for ops without a name: op<>(…)");
  expectError(
      std::string(header) +
          "Constraint IsNorm(x: Value);\nPattern p { let a = op<nn.silu>(x: Value); let b = op<nn.relu>(a);"
          " IsNorm(x); rewrite b with { group2(a, b); }; }",
      "IsNorm takes an op");
}

TEST_F(Patterns, WrongFilesAreRefused) {
  expectError(std::string(header) + "Pattern p { let a = op<nn.rmsnorm>(x: Value); let b = op<nn.relu>(a); "
                                    "rewrite b with { group2(a, b); }; }",
              "there is no op 'nn.rmsnorm'");
  expectError(
      "Constraint Nice(x: Value);\nRewrite group2(a: Op, b: Op);\nPattern p { let a = op<nn.relu>(x: Value); "
      "let b = op<nn.relu>(a); Nice(x); rewrite b with { group2(a, b); }; }",
      "there is no guard 'Nice'");
  expectError(
      "Rewrite melt(a: Op);\nPattern p { let a = op<nn.relu>(x: Value); rewrite a with { melt(a); }; }",
      "there is no 'melt'");
  expectError(std::string(header) + "Pattern p { let a = op<nn.add>(x: Value); let b = op<nn.relu>(a); "
                                    "rewrite b with { group2(a, b); }; }",
              "nn.add has 2 operands, the pattern gives 1");
  expectError(std::string(header) +
                  "Pattern p { let a = op<nn.gelu>(x: Value) {approx = attr<\"\\\"tanh\\\"\">}; "
                  "let b = op<nn.relu>(a); rewrite b with { group2(a, b); }; }",
              "nn.gelu has no attribute 'approx'");
  expectError("Pattern p { this is not PDLL }", "user.pdll:1:");
  expectError(std::string(header) + "Pattern p { let x: Value; let a = op<nn.relu>(x); replace a with x; }",
              "is not supported in fusion patterns");
  PatternSet set;
  Status status = set.addFile((folder / "absent.pdll").string(), &context);
  ASSERT_FALSE(bool(status));
  EXPECT_NE(status.error().message.find("no such pattern file"), std::string::npos);
}
} // namespace
