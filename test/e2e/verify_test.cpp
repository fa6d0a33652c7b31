// --verify-fusions: every rewrite holds, and a wrong one, of a rewrite or of a kernel, is caught and named.
#include "GraphCase.h"

#include "api/CapSizes.h"
#include "api/Lower.h"
#include "api/NearPlaces.h"
#include "api/Trial.h"
#include "api/Verify.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "passes/Pipeline.h"
#include "passes/ShapeTable.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fstream>

using namespace fusion;
using namespace fusion::test;
using testing::HasSubstr;

namespace {
/// Normalises and raises; the log has every rewrite.
bool raise(mlir::ModuleOp module, RewriteLog &log) {
  mlir::PassManager manager(module.getContext());
  buildNormalisePipeline(manager);
  buildRaisePipeline(manager);
  RewriteLog::Scope scope(log);
  return succeeded(manager.run(module));
}

bool holds(const RewriteLog &log, llvm::StringRef name) {
  return llvm::any_of(log.rewrites(), [&](const Rewrite &rewrite) { return rewrite.name == name; });
}

/// The modules of a RUN-line test: the same text between its separators.
std::vector<std::string> splitModules(const std::string &file) {
  std::ifstream in(file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(text).split(parts, "// -----\n");
  return {parts.begin(), parts.end()};
}

/// The first two results of a launch go to each other's place.
void swapResults(KernelLaunch &launch) {
  std::vector<BufferId *> written;
  for (KernelArgument &argument : launch.arguments)
    if (isWritten(argument))
      written.push_back(bufferOf(argument));
  if (written.size() >= 2)
    std::swap(*written[0], *written[1]);
}

class RunLineTests : public testing::TestWithParam<const char *> {};

TEST_P(RunLineTests, EveryRewriteHolds) {
  auto context = makeContext();
  size_t rewrites = 0;
  for (const std::string &text :
       splitModules(FUSION_SOURCE_DIR "/test/passes/" + std::string(GetParam()) + ".mlir")) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
    ASSERT_TRUE(module) << text;
    RewriteLog log;
    ASSERT_TRUE(raise(*module, log)) << text;
    Status status = verifyRewrites(log);
    EXPECT_TRUE(bool(status)) << status.error().message << text;
    rewrites += log.rewrites().size();
  }
  EXPECT_GT(rewrites, 0u);
}

/// A score of -16 or less beside the lowest f16 is minus infinity in the ops replaced, which then average fewer
/// keys of a wholly masked row: the values that are tried keep away from it.
TEST(VerifyFusions, ScoresInHalfBesideTheLowestNumber) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%q: tensor<16x4x16x32xf16>, %k: tensor<16x4x2x32xf16>, %v: tensor<16x4x2x32xf16>,
                %c: tensor<1x1x16x2xi1>) -> tensor<16x4x16x32xf16> {
  %zero = nn.constant {value = dense<0.0> : tensor<f16>} : () -> tensor<f16>
  %low = nn.constant {value = dense<-65504.0> : tensor<f16>} : () -> tensor<f16>
  %m = nn.where %c, %zero, %low : (tensor<1x1x16x2xi1>, tensor<f16>, tensor<f16>) -> tensor<1x1x16x2xf16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<16x4x16x32xf16>, tensor<16x4x2x32xf16>) -> tensor<16x4x16x2xf16>
  %1 = nn.add %0, %m : (tensor<16x4x16x2xf16>, tensor<1x1x16x2xf16>) -> tensor<16x4x16x2xf16>
  %2 = nn.softmax %1 {axis = 3 : i64} : (tensor<16x4x16x2xf16>) -> tensor<16x4x16x2xf16>
  %3 = nn.matmul %2, %v : (tensor<16x4x16x2xf16>, tensor<16x4x2x32xf16>) -> tensor<16x4x16x32xf16>
  return %3 : tensor<16x4x16x32xf16>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  RewriteLog log;
  ASSERT_TRUE(raise(*module, log));
  ASSERT_TRUE(holds(log, "attention"));
  for (int again = 0; again < 60; ++again) {
    Status status = verifyRewrites(log);
    ASSERT_TRUE(bool(status)) << status.error().message;
  }
}

/// Exported for one position at a time: no other length is right.
TEST(VerifyFusions, RewritesOfAGraphOfOnePosition) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<?x?x8xf32> {nn.dims = ["batch", "sequence", 8]}) -> tensor<?x2x4xf32> {
  %0 = nn.reshape %x {shape = ["batch", 8]} : (tensor<?x?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.reshape %0 {shape = ["batch", 2, 4]} : (tensor<?x8xf32>) -> tensor<?x2x4xf32>
  %2 = nn.neg %1 : (tensor<?x2x4xf32>) -> tensor<?x2x4xf32>
  return %2 : tensor<?x2x4xf32>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  RewriteLog log;
  ASSERT_TRUE(raise(*module, log));
  EXPECT_FALSE(log.rewrites().empty());
  Status status = verifyRewrites(log);
  EXPECT_TRUE(bool(status)) << status.error().message;
}

INSTANTIATE_TEST_SUITE_P(All, RunLineTests,
                         testing::Values("canonicalize", "fold-positions", "raise-norm", "raise-activation",
                                         "raise-rope", "raise-softmax", "raise-attention",
                                         "raise-dense-experts"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(VerifyFusions, EveryRewriteOfEveryGraphHolds) {
  for (const std::string &graph : graphNames()) {
    auto context = makeContext();
    auto module = loadModule(*context, graphFile(graph, "model.onnx"));
    ASSERT_TRUE(bool(module)) << module.error().message;
    RewriteLog log;
    ASSERT_TRUE(raise(**module, log)) << graph;
    // Spelled out, or an op of the opset that only sheds the repetition of its heads.
    EXPECT_TRUE(holds(log, "attention") || graph.ends_with("op23") || graph.ends_with("bf16-decode"))
        << graph;
    Status status = verifyRewrites(log);
    EXPECT_TRUE(bool(status)) << graph << ": " << status.error().message;
  }
}

TEST(VerifyFusions, EqualLayersAreCheckedOnce) {
  auto context = makeContext();
  auto module = loadModule(*context, graphFile("llama-fp16-op20-eager", "model.onnx"));
  ASSERT_TRUE(bool(module)) << module.error().message;
  RewriteLog log;
  ASSERT_TRUE(raise(**module, log));
  EXPECT_EQ(
      llvm::count_if(log.rewrites(), [](const Rewrite &rewrite) { return rewrite.name == "attention"; }), 1);
}

/// Gemma's norm: the product with the f32 weight comes before the rounding to bf16.
constexpr const char *gemmaNorm = R"(
func.func @main(%x: tensor<?x64xbf16>, %w: tensor<64xf32>) -> tensor<?x64xbf16> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %x : (tensor<?x64xbf16>) -> tensor<?x64xf32>
  %1 = nn.square %0 : (tensor<?x64xf32>) -> tensor<?x64xf32>
  %2 = nn.reduce %1 {axes = array<i64: -1>, keepdims = true, kind = "mean"} : (tensor<?x64xf32>) -> tensor<?x1xf32>
  %3 = nn.add %2, %eps : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %4 = nn.rsqrt %3 : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %5 = nn.mul %0, %4 : (tensor<?x64xf32>, tensor<?x1xf32>) -> tensor<?x64xf32>
  %6 = nn.mul %5, %w : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
  %7 = nn.cast %6 : (tensor<?x64xf32>) -> tensor<?x64xbf16>
  return %7 : tensor<?x64xbf16>
} loc("model.norm")
)";

// Pattern: cast(rms_norm(x, w : f32)) -> rms_norm(x, w) {scale_in = type of x}: the guard that input and
// weight have the same element type is missing
struct PlainNormOfAnyWeight : mlir::OpRewritePattern<nn::RmsNormOp> {
  using OpRewritePattern::OpRewritePattern;
  llvm::LogicalResult matchAndRewrite(nn::RmsNormOp norm, mlir::PatternRewriter &rewriter) const override {
    if (norm.scaleType() == elementType(norm.getX()))
      return llvm::failure();
    replaceByChanged(rewriter, norm, [](nn::RmsNormOp changed) {
      changed.setScaleInAttr(mlir::TypeAttr::get(elementType(changed.getX())));
    });
    return llvm::success();
  }
};

TEST(VerifyFusions, CatchesANormThatIgnoresTheTypeOfItsWeight) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(gemmaNorm, context.get());
  ASSERT_TRUE(module);
  RewriteLog right, wrong;
  ASSERT_TRUE(raise(*module, right));
  ASSERT_TRUE(holds(right, "rms_norm"));
  EXPECT_TRUE(bool(verifyRewrites(right)));
  {
    auto function = *module->getOps<mlir::func::FuncOp>().begin();
    auto shapes = ShapeTable::compute(function);
    mlir::RewritePatternSet patterns(context.get());
    patterns.add<PlainNormOfAnyWeight>(context.get());
    RewriteLog::Scope scope(wrong);
    ASSERT_TRUE(succeeded(applyPatternsGreedily(function, std::move(patterns), greedyConfig(*shapes))));
  }
  // The inputs are random: about one draw in a thousand shows no difference.
  int missed = 0;
  for (int again = 0; again < 20; ++again) {
    Status status = verifyRewrites(wrong);
    missed += bool(status);
    if (status)
      continue;
    EXPECT_EQ(status.error().kind, ErrorKind::AnswerIsNo);
    EXPECT_THAT(status.error().message, HasSubstr("rms_norm at "));
    EXPECT_THAT(status.error().message,
                testing::ContainsRegex("element [0-9]+ is [-0-9.e]+ after the rewrite and was"));
  }
  EXPECT_LE(missed, 1);
}

TEST(VerifyFusions, LargeMatricesAreCheckedAtSmallSizes) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<?x8192xf16> {nn.dims = ["rows", 8192]}, %w: tensor<8192x28700xf16>,
                %b: tensor<28700xf16>) -> tensor<?x28700xf16> {
  %0 = fusion.group "matmul_epilogue" schedule "matmul" (%a = %x, %c = %w, %d = %b) : (tensor<?x8192xf16>, tensor<8192x28700xf16>, tensor<28700xf16>) -> (tensor<?x28700xf16>) {
    %1 = nn.matmul %a, %c : (tensor<?x8192xf16>, tensor<8192x28700xf16>) -> tensor<?x28700xf16>
    %2 = nn.add %1, %d : (tensor<?x28700xf16>, tensor<28700xf16>) -> tensor<?x28700xf16>
    fusion.yield %2 : tensor<?x28700xf16>
  }
  return %0 : tensor<?x28700xf16>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  capSizes(function);
  ASSERT_TRUE(succeeded(mlir::verify(*module)));
  EXPECT_EQ(tensorType(function.getArgument(0)).getDimSize(1), 512);
  EXPECT_EQ(tensorType(function.getArgument(1)).getDimSize(1), 640 + 28700 % 128);
  EXPECT_EQ(nn::argumentDims(function, 0)[1], Dim(512));
  Status status = verifyKernels(function, PlanOptions{"sm_90a"});
  EXPECT_TRUE(bool(status)) << status.error().message;
}

TEST(VerifyFusions, TheKernelOfEveryRangeOfRowsIsChecked) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<?x1536xf16> {nn.dims = ["rows", 1536]}, %w: tensor<1536x2050xf16>) -> tensor<?x2050xf16> {
  %0 = fusion.group "matmul_epilogue" schedule "matmul" (%a = %x, %c = %w) : (tensor<?x1536xf16>, tensor<1536x2050xf16>) -> (tensor<?x2050xf16>) {
    %1 = nn.matmul %a, %c : (tensor<?x1536xf16>, tensor<1536x2050xf16>) -> tensor<?x2050xf16>
    %2 = nn.relu %1 : (tensor<?x2050xf16>) -> tensor<?x2050xf16>
    fusion.yield %2 : tensor<?x2050xf16>
  }
  return %0 : tensor<?x2050xf16>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  std::set<int64_t> ranges;
  auto seen = [&](ProgramPlan &plan) {
    for (const Alternative &alternative : plan.steps.at(0).alternatives)
      if (alternative.variant != libraryVariant)
        ranges.insert(alternative.when.at(0).least);
  };
  Status right = verifyKernels(function, PlanOptions{"sm_90a"}, seen);
  EXPECT_TRUE(bool(right)) << right.error().message;
  EXPECT_THAT(ranges, testing::Contains(testing::Ge(1024)));
  for (int64_t least : ranges) {
    auto idle = [&](ProgramPlan &plan) {
      for (Alternative &alternative : plan.steps.at(0).alternatives)
        if (alternative.variant != libraryVariant && alternative.when.at(0).least == least)
          alternative.launches.at(0).gridX = 0;
    };
    EXPECT_FALSE(bool(verifyKernels(function, PlanOptions{"sm_90a"}, idle)))
        << "rows from " << least << " on";
  }
}

/// Of attention they are chosen by the number of queries and of sequences.
TEST(VerifyFusions, TheKernelOfEveryPredicateIsChecked) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%q: tensor<?x4x?x16xbf16> {nn.dims = ["batch", 4, "new", 16]}, %k: tensor<?x2x?x16xbf16> {nn.dims = ["batch", 2, "keys", 16]},
                %v: tensor<?x2x?x16xbf16> {nn.dims = ["batch", 2, "keys", 16]}) -> tensor<?x4x?x16xbf16> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<?x4x?x16xbf16>, tensor<?x2x?x16xbf16>, tensor<?x2x?x16xbf16>) -> tensor<?x4x?x16xbf16>
  return %0 : tensor<?x4x?x16xbf16>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  size_t count = 0, ofTwoSizes = 0;
  auto seen = [&](ProgramPlan &plan) {
    const std::vector<Alternative> &alternatives = plan.steps.at(0).alternatives;
    count = alternatives.size();
    ofTwoSizes = static_cast<size_t>(
        llvm::count_if(alternatives, [](const Alternative &one) { return one.when.size() == 2; }));
  };
  Status right = verifyKernels(function, PlanOptions{"sm_90a"}, seen);
  EXPECT_TRUE(bool(right)) << right.error().message;
  EXPECT_GE(ofTwoSizes, 5u);
  for (size_t i = 0; i < count; ++i) {
    auto idle = [&](ProgramPlan &plan) { plan.steps.at(0).alternatives[i].launches.at(0).gridX = 0; };
    EXPECT_FALSE(bool(verifyKernels(function, PlanOptions{"sm_90a"}, idle))) << "alternative " << i;
  }
}

/// Rows padded to multiples of 8, and nothing cut off again: such a graph is right for multiples of 8 alone.
TEST(VerifyFusions, SizesAtWhichWhatMeetsIsEqual) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<?x4xf32> {nn.dims = ["n", 4]}, %y: tensor<?x4xf32> {nn.dims = ["n", 4]}) -> tensor<?x4xf32> {
  %0 = fusion.group "pointwise" schedule "pointwise" (%a = %x, %b = %y) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> {
    %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %1 = nn.pad %a, %zero {low = [0, 0], high = ["(7*n) % 8", 0]} : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32>
    %2 = nn.reshape %1 {shape = ["n", "(32*((n + (7*n) % 8)//8))//n"]} : (tensor<?x4xf32>) -> tensor<?x?xf32>
    %3 = nn.mul %2, %b : (tensor<?x?xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    fusion.yield %3 : tensor<?x4xf32>
  }
  return %0 : tensor<?x4xf32>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  Status right = verifyKernels(function, PlanOptions{"sm_90a"});
  EXPECT_TRUE(bool(right)) << right.error().message;
  auto idle = [](ProgramPlan &plan) { plan.steps.at(0).alternatives.at(0).launches.at(0).gridX = 0; };
  Status wrong = verifyKernels(function, PlanOptions{"sm_90a"}, idle);
  ASSERT_FALSE(bool(wrong));
  EXPECT_EQ(wrong.error().kind, ErrorKind::AnswerIsNo) << wrong.error().message;
}

/// Random elements are seldom alike, but nearly: another place is right if its element is as large.
TEST(VerifyFusions, PlacesOfElementsThatAreNearlyAsLarge) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<?x64xbf16> {nn.dims = ["rows", 64]}, %w: tensor<3000x64xbf16>) -> tensor<?xi64> {
  %0 = fusion.group "matmul_arg_max" schedule "matmul_arg_max" (%a = %x, %c = %w) : (tensor<?x64xbf16>, tensor<3000x64xbf16>) -> (tensor<?xi64>) {
    %1 = nn.matmul %a, %c {transpose_b = true} : (tensor<?x64xbf16>, tensor<3000x64xbf16>) -> tensor<?x3000xbf16>
    %2 = nn.arg_max %1 {axis = 1 : i64, keepdims = false} : (tensor<?x3000xbf16>) -> tensor<?xi64>
    fusion.yield %2 : tensor<?xi64>
  }
  return %0 : tensor<?xi64>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  for (int again = 0; again < 2; ++again) {
    Status right = verifyKernels(function, PlanOptions{"sm_90a"});
    EXPECT_TRUE(bool(right)) << right.error().message;
  }
  // One warp's finds are looked at alone.
  auto edited = [](ProgramPlan &plan) {
    for (Alternative &alternative : plan.steps.at(0).alternatives)
      if (alternative.launches.size() == 2 && alternative.variant == std::string(kernelVariant))
        alternative.launches[0].gridX = 1;
  };
  Status wrong = verifyKernels(function, PlanOptions{"sm_90a"}, edited);
  ASSERT_FALSE(bool(wrong));
  EXPECT_EQ(wrong.error().kind, ErrorKind::AnswerIsNo) << wrong.error().message;
  EXPECT_THAT(wrong.error().message, HasSubstr("matmul_arg_max at"));
}

TEST(VerifyFusions, SizesThatABodySpeaksOfStay) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<4x2048xf16>, %w: tensor<2048x64xf16>) -> tensor<8x32xf16> {
  %0 = nn.matmul %x, %w : (tensor<4x2048xf16>, tensor<2048x64xf16>) -> tensor<4x64xf16>
  %1 = nn.reshape %0 {shape = [8, 32]} : (tensor<4x64xf16>) -> tensor<8x32xf16>
  return %1 : tensor<8x32xf16>
})", context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  capSizes(function);
  EXPECT_EQ(tensorType(function.getArgument(0)).getDimSize(1), 2048);
}

/// New rows of a cache follow each other, in random inputs too: through a reshape and a group.
TEST(VerifyFusions, RowsOfCachesFollowEachOther) {
  auto context = makeContext();
  auto module = loadModule(*context, std::string(FUSION_SOURCE_DIR) +
                                         "/test/import/contrib/test_static_cache_prompt/model.onnx");
  ASSERT_TRUE(bool(module)) << module.error().message;
  FusionReport report;
  LowerOptions options;
  options.kvCapacity = 12;
  RewriteLog log;
  options.rewrites = &log;
  ASSERT_TRUE(bool(lower(**module, options, report)));
  Status rewrites = verifyRewrites(log);
  EXPECT_TRUE(bool(rewrites)) << rewrites.error().message;
  auto entry = entryFunction(**module);
  ASSERT_TRUE(bool(entry));
  Status status = verifyKernels(*entry, PlanOptions{"sm_90a"});
  EXPECT_TRUE(bool(status)) << status.error().message;
}

/// A sum of two ranks that differ, apart and by kernels of which the first sends to the second one.
TEST(VerifyFusions, SumsAreThoseOfAllRanks) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<?x1x64xf16> {nn.dims = ["rows", 1, 64]}, %w: tensor<64x1024xf16>, %r: tensor<?x1024xf16> {nn.dims = ["rows", 1024]},
                %g: tensor<1024xf16>) -> (tensor<?x1024xf16>, tensor<?x1024xf16>) attributes {nn.mesh = {tp = 2 : i64}} {
  %0 = nn.matmul %x, %w : (tensor<?x1x64xf16>, tensor<64x1024xf16>) -> tensor<?x1x1024xf16>
  %1 = nn.reshape %0 {shape = ["rows", 1024]} : (tensor<?x1x1024xf16>) -> tensor<?x1024xf16>
  %2:2 = fusion.group "all_reduce_add_norm" schedule "collective" (%a = %1, %b = %r, %c = %g) : (tensor<?x1024xf16>, tensor<?x1024xf16>, tensor<1024xf16>) -> (tensor<?x1024xf16>, tensor<?x1024xf16>) {
    %3 = nn.all_reduce %a : (tensor<?x1024xf16>) -> tensor<?x1024xf16>
    %4 = nn.add %3, %b : (tensor<?x1024xf16>, tensor<?x1024xf16>) -> tensor<?x1024xf16>
    %5 = nn.rms_norm %4, %c {eps = 1.0e-6 : f32} : (tensor<?x1024xf16>, tensor<1024xf16>) -> tensor<?x1024xf16>
    fusion.yield %4, %5 : tensor<?x1024xf16>, tensor<?x1024xf16>
  }
  return %2#0, %2#1 : tensor<?x1024xf16>, tensor<?x1024xf16>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  std::vector<std::pair<int64_t, size_t>> seen; // ranks, linked launches
  auto editLinked = [&](ProgramPlan &plan, bool breaks) {
    seen.emplace_back(plan.ranks, 0);
    for (Step &step : plan.steps)
      for (Alternative &alternative : step.alternatives)
        if (alternative.linked) {
          ++seen.back().second;
          if (breaks && step.choice == Step::Choice::Ranks)
            swapResults(*alternative.linked);
        }
  };
  Status right =
      verifyKernels(function, PlanOptions{"sm_90a"}, [&](ProgramPlan &plan) { editLinked(plan, false); });
  EXPECT_TRUE(bool(right)) << right.error().message;
  ASSERT_EQ(seen.size(), 3u); // the matmul alone, the sum alone, both
  EXPECT_THAT(seen, testing::UnorderedElementsAre(testing::Pair(1, 0u), testing::Pair(2, 0u),
                                                  testing::Pair(2, testing::Ge(2u))));
  Status wrong =
      verifyKernels(function, PlanOptions{"sm_90a"}, [&](ProgramPlan &plan) { editLinked(plan, true); });
  ASSERT_FALSE(bool(wrong));
  EXPECT_EQ(wrong.error().kind, ErrorKind::AnswerIsNo) << wrong.error().message;
  EXPECT_THAT(wrong.error().message, HasSubstr(", fed by nn.matmul at "));
}

/// A matmul that sums up squares, and matmuls behind the norm of its result, apart and linked.
TEST(VerifyFusions, NormsBetweenMatmulsAreThoseOfTheGraph) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<?x64xf16> {nn.dims = ["rows", 64]}, %w: tensor<64x128xf16>, %g: tensor<128xf16>, %v: tensor<128x64xf16>) -> (tensor<?x64xf16>, tensor<?x128xf16>) {
  %0 = nn.matmul %x, %w : (tensor<?x64xf16>, tensor<64x128xf16>) -> tensor<?x128xf16>
  %1 = nn.rms_norm %0, %g {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %2 = nn.matmul %1, %v : (tensor<?x128xf16>, tensor<128x64xf16>) -> tensor<?x64xf16>
  return %2, %0 : tensor<?x64xf16>, tensor<?x128xf16>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  size_t linked = 0;
  auto edited = [&](bool breaks) {
    return [&linked, breaks](ProgramPlan &plan) {
      for (Step &step : plan.steps)
        for (Alternative &alternative : step.alternatives)
          if (alternative.link == Alternative::Link::Last) {
            ++linked;
            std::string &source = plan.kernels[alternative.linked->kernel].source;
            const size_t at = source.find("inverse_sqrt_(");
            if (breaks && at != std::string::npos)
              source.insert(at, "2.f * ");
          }
    };
  };
  Status right = verifyKernels(function, PlanOptions{"sm_90a"}, edited(false));
  EXPECT_TRUE(bool(right)) << right.error().message;
  EXPECT_EQ(linked, 2u); // of 9 to 16 rows, and of 17 to 32
  Status wrong = verifyKernels(function, PlanOptions{"sm_90a"}, edited(true));
  ASSERT_FALSE(bool(wrong));
  EXPECT_EQ(wrong.error().kind, ErrorKind::AnswerIsNo) << wrong.error().message;
  EXPECT_THAT(wrong.error().message, HasSubstr(", fed by nn.matmul at "));
}

TEST(VerifyFusions, CatchesAWrongKernel) {
  auto context = makeContext();
  auto module = loadModule(*context, graphFile("llama-fp16-op20-eager", "model.onnx"));
  ASSERT_TRUE(bool(module)) << module.error().message;
  FusionReport report;
  LowerOptions options;
  options.fusions.disabled = {"matmul_epilogue"}; // which would take the sums
  ASSERT_TRUE(bool(lower(**module, options, report)));
  auto entry = entryFunction(**module);
  ASSERT_TRUE(bool(entry));
  // The sum and the norm go to each other's place.
  auto edited = [](ProgramPlan &plan) {
    for (KernelLaunch *launch : plan.launches())
      if (launch->fusion == "add_norm")
        swapResults(*launch);
  };
  Status status = verifyKernels(*entry, PlanOptions{"sm_90a"}, edited);
  ASSERT_FALSE(bool(status));
  EXPECT_EQ(status.error().kind, ErrorKind::AnswerIsNo) << status.error().message;
  EXPECT_THAT(status.error().message, HasSubstr("norm at "));
  EXPECT_THAT(status.error().message, HasSubstr("at element"));
}
} // namespace

TEST(Verify, QuantisedValuesMayDifferByTiesOnly) {
  std::vector<int8_t> values(64, 13);
  auto tensor = [](const std::vector<int8_t> &of) {
    return Tensor::of<int8_t>(DType::I8, {static_cast<int64_t>(of.size())}, of);
  };
  const Tensor expected = tensor(values);
  values[7] = 14;
  values[8] = 12;
  EXPECT_TRUE(differsByTies(tensor(values), expected));
  values[9] = 15;
  EXPECT_FALSE(differsByTies(tensor(values), expected)) << "two steps";
  EXPECT_FALSE(differsByTies(tensor(std::vector<int8_t>(64, 14)), expected)) << "everywhere";
}

TEST(Verify, PlacesOfLargest) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
func.func @main(%x: tensor<2x4xbf16>) -> tensor<2xi64> {
  %0 = fusion.group "g" schedule "scan" (%a = %x) : (tensor<2x4xbf16>) -> (tensor<2xi64>) {
    %1 = nn.neg %a : (tensor<2x4xbf16>) -> tensor<2x4xbf16>
    %2 = nn.arg_max %1 {axis = 1 : i64, keepdims = false} : (tensor<2x4xbf16>) -> tensor<2xi64>
    fusion.yield %2 : tensor<2xi64>
  }
  return %0 : tensor<2xi64>
})",
                                                        context.get());
  ASSERT_TRUE(module);
  const NearPlaces near(*module->getOps<mlir::func::FuncOp>().begin());
  auto interpreter = Interpreter::create(near.function(), "");
  ASSERT_TRUE(bool(interpreter));
  const std::vector<float> values = {-1, -8, -8.0625f, -7, 3, 2, 1, 1};
  const NamedTensors inputs = {{"arg0", Tensor::of<float>(DType::F32, {2, 4}, values).convertedTo(DType::BF16)}};
  auto expected = interpreter->run(inputs);
  ASSERT_TRUE(bool(expected)) << expected.error().message;
  EXPECT_EQ(expected->at("result0").toInts(), (std::vector<int64_t>{2, 2}));
  auto isAsLarge = [&](std::vector<int64_t> places, const char *result = "result0") {
    return near.isAsLarge(result, Tensor::of<int64_t>(DType::I64, {2}, places), *expected, inputs);
  };
  EXPECT_TRUE(isAsLarge({1, 2})) << "8 instead of 8.0625";
  EXPECT_TRUE(isAsLarge({2, 3})) << "the second of two equal ones";
  EXPECT_FALSE(isAsLarge({3, 2})) << "7 instead of 8.0625";
  EXPECT_FALSE(isAsLarge({2, 1}));
  EXPECT_FALSE(isAsLarge({2, 4})) << "no place";
  EXPECT_FALSE(isAsLarge({2, 2}, "result1")) << "the elements themselves";
}

TEST(Verify, WhatQuantises) {
  auto context = makeContext();
  auto is = [&](const char *body, const char *type) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(
        fmt::format("func.func @main(%x: tensor<4xf32>, %i: tensor<4xi8>) -> tensor<4x{1}> {{\n{0}\nreturn "
                    "%0 : tensor<4x{1}>\n}}",
                    body, type),
        context.get());
    return module && quantises(*module->getOps<mlir::func::FuncOp>().begin());
  };
  EXPECT_TRUE(is("%0 = nn.cast %x : (tensor<4xf32>) -> tensor<4xi8>", "i8"));
  EXPECT_FALSE(is("%0 = nn.cast %i : (tensor<4xi8>) -> tensor<4xf32>", "f32"));
  EXPECT_FALSE(is("%0 = nn.add %i, %i : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>", "i8"));
  EXPECT_FALSE(is("%0 = nn.cast %x : (tensor<4xf32>) -> tensor<4xi32>", "i32"));
  // A group's own types say nothing: it takes floats and returns bytes that it does not make of them.
  EXPECT_FALSE(is(R"(%1, %0 = fusion.group "pointwise" schedule "pointwise" (%a = %x, %b = %i)
      : (tensor<4xf32>, tensor<4xi8>) -> (tensor<4xf32>, tensor<4xi8>) {
    %2 = nn.neg %a : (tensor<4xf32>) -> tensor<4xf32>
    %3 = nn.neg %b : (tensor<4xi8>) -> tensor<4xi8>
    fusion.yield %2, %3 : tensor<4xf32>, tensor<4xi8>
  })", "i8"));
}
