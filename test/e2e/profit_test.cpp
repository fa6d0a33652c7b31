// Fusions chosen by time: with times that a test makes up, and with a stopwatch instead of a GPU.
#include "api/Lower.h"
#include "api/Profit.h"
#include "ir/base/Progress.h"
#include "ir/dialect/Dialect.h"
#include "test/runtime/TimingBackend.h"

#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;
using testing::HasSubstr;

namespace {
/// Two layers of the same ops at different places.
constexpr const char *twoLayers = R"(
func.func @main(%x: tensor<?x64xf32> {nn.dims = ["batch", 64]}, %r: tensor<?x64xf32> {nn.dims = ["batch", 64]}, %w: tensor<64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %0 = nn.add %x, %r : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32> loc("layers.0.add")
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32> loc("layers.0.norm")
  %2 = nn.cumsum %1 {axis = 1 : i64, exclusive = false, reverse = false} : (tensor<?x64xf32>) -> tensor<?x64xf32> loc("layers.0.cumsum")
  %3 = nn.add %2, %0 : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32> loc("layers.1.add")
  %4 = nn.rms_norm %3, %w {eps = 1.0e-6 : f32} : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32> loc("layers.1.norm")
  return %3, %4 : tensor<?x64xf32>, tensor<?x64xf32>
})";

FusionReport lowered(const char *text, ProfitOracle *profit) {
  setQuiet(true);
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
  FusionReport report;
  LowerOptions options;
  options.fusions.profit = profit;
  Status status = module ? lower(*module, options, report) : badInput("does not parse");
  EXPECT_TRUE(bool(status)) << status.error().message;
  return report;
}

/// Times made up by the pattern's name and the number of ops.
class MadeUp : public ProfitOracle {
public:
  using Table = std::function<Result<Times>(const Candidate &)>;
  explicit MadeUp(Table table) : table(std::move(table)) {}
  std::string description() const override { return "measured on paper"; }
  std::vector<Result<Times>> measure(llvm::ArrayRef<Candidate> candidates, const nn::SymbolicShapes &,
                                     const SymbolValues &sizes) override {
    EXPECT_EQ(sizes.at("batch"), 1);
    std::vector<Result<Times>> times;
    for (const Candidate &candidate : candidates)
      times.push_back(table(candidate));
    return times;
  }

private:
  Table table;
};

using Times = ProfitOracle::Times;

TEST(Profit, SlowerIsLeftOutWithItsReason) {
  MadeUp slower([](const Candidate &) { return Times{3.1, 2.6}; });
  FusionReport report = lowered(twoLayers, &slower);
  EXPECT_EQ(report.kernelsAfter, report.kernelsBefore);
  ASSERT_EQ(report.patterns["add_norm"].missed.size(), 2u);
  EXPECT_EQ(report.patterns["add_norm"].missed[0].reason,
            "measures slower: 3.10 µs fused, 2.60 µs unfused at batch = 1");
  EXPECT_EQ(report.profit, "measured on paper");

  MadeUp noise([](const Candidate &) { return Times{2.61, 2.6}; });
  EXPECT_EQ(lowered(twoLayers, &noise).patterns["add_norm"].fired.size(), 2u);
  FusionReport modelled = lowered(twoLayers, nullptr);
  EXPECT_EQ(modelled.patterns["add_norm"].fired.size(), 2u);
  EXPECT_EQ(modelled.profit, "modelled");
}

/// A norm that either takes the add in front of it or the quantisation after it.
constexpr const char *overlapping = R"(
func.func @main(%x: tensor<?x64xf32> {nn.dims = ["batch", 64]}, %r: tensor<?x64xf32> {nn.dims = ["batch", 64]}, %w: tensor<64xf32>, %s: tensor<f32>) -> (tensor<?x64xf32>, tensor<?x64xf8E4M3FN>) {
  %0 = nn.add %x, %r : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
  %2 = nn.quantize %1, %s : (tensor<?x64xf32>, tensor<f32>) -> tensor<?x64xf8E4M3FN>
  return %0, %2 : tensor<?x64xf32>, tensor<?x64xf8E4M3FN>
})";

TEST(Profit, TheLargestSavingWins) {
  auto prefer = [](std::string pattern) {
    return MadeUp([=](const Candidate &candidate) {
      return Times{candidate.pattern == pattern ? 1. : 4.5, 5};
    });
  };
  for (const char *pattern : {"add_norm", "norm_quant", "add_norm_quant"}) {
    MadeUp oracle = prefer(pattern);
    FusionReport report = lowered(overlapping, &oracle);
    for (const char *other : {"add_norm", "norm_quant", "add_norm_quant"})
      EXPECT_EQ(report.patterns[other].fired.size(), std::string(other) == pattern ? 1u : 0u)
          << other << " where " << pattern << " saves most";
  }
}

/// Of a group and a larger one around it, noise does not choose the smaller; a real difference does.
TEST(Profit, NoiseDoesNotChooseTheSmallerGroup) {
  auto times = [](double larger) {
    return MadeUp([=](const Candidate &candidate) {
      return Times{candidate.pattern == "add_norm_quant" ? larger : 4.5, 5};
    });
  };
  MadeUp noise = times(4.6), slower = times(4.8);
  EXPECT_EQ(lowered(overlapping, &noise).patterns["add_norm_quant"].fired.size(), 1u);
  EXPECT_EQ(lowered(overlapping, &slower).patterns["add_norm_quant"].fired.size(), 0u);
}

/// A matmul's residual that its own kernel adds, or that of the norm behind.
constexpr const char *residual = R"(
func.func @main(%x: tensor<?x64xbf16> {nn.dims = ["batch", 64]}, %w: tensor<64x64xbf16>, %r: tensor<?x64xbf16> {nn.dims = ["batch", 64]}, %g: tensor<64xbf16>) -> (tensor<?x64xbf16>, tensor<?x64xbf16>) {
  %0 = nn.matmul %x, %w : (tensor<?x64xbf16>, tensor<64x64xbf16>) -> tensor<?x64xbf16>
  %1 = nn.add %r, %0 : (tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  %2 = nn.rms_norm %1, %g {eps = 1.0e-6 : f32} : (tensor<?x64xbf16>, tensor<64xbf16>) -> tensor<?x64xbf16>
  return %1, %2 : tensor<?x64xbf16>, tensor<?x64xbf16>
})";

TEST(Profit, ASmallDifferenceDoesNotTakeTheResidualOutOfTheMatmul) {
  auto times = [](double norm) {
    return MadeUp([=](const Candidate &candidate) {
      return Times{candidate.pattern == "add_norm" ? norm : 4.9, 5};
    });
  };
  MadeUp small = times(4.5), large = times(4);
  EXPECT_EQ(lowered(residual, &small).patterns["matmul_epilogue"].fired.size(), 1u);
  EXPECT_EQ(lowered(residual, &small).patterns["add_norm"].fired.size(), 0u);
  EXPECT_EQ(lowered(residual, &large).patterns["add_norm"].fired.size(), 1u);
}

/// Rotations, writes and an attention of an unknown number of positions.
constexpr const char *ropeAttention = R"(
func.func @main(%q: tensor<?x4x?x32xf16> {nn.dims = ["batch", 4, "n", 32]}, %k: tensor<?x2x?x32xf16> {nn.dims = ["batch", 2, "n", 32]},
    %pk: tensor<?x2x?x32xf16> {nn.dims = ["batch", 2, "p", 32], nn.storage = ["batch", 2, 64, 32]},
    %pv: tensor<?x2x?x32xf16> {nn.dims = ["batch", 2, "p", 32], nn.storage = ["batch", 2, 64, 32]}, %c: tensor<1x1x?x32xf16> {nn.dims = [1, 1, "n", 32]})
    -> (tensor<?x?x128xf16>, tensor<?x2x?x32xf16> {nn.alias = 2 : i64}, tensor<?x2x?x32xf16> {nn.alias = 3 : i64}) {
  %0 = nn.rope %q, %c, %c {interleaved = false, rotary_dim = 32 : i64} : (tensor<?x4x?x32xf16>, tensor<1x1x?x32xf16>, tensor<1x1x?x32xf16>) -> tensor<?x4x?x32xf16>
  %1 = nn.rope %k, %c, %c {interleaved = false, rotary_dim = 32 : i64} : (tensor<?x2x?x32xf16>, tensor<1x1x?x32xf16>, tensor<1x1x?x32xf16>) -> tensor<?x2x?x32xf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>) -> tensor<?x2x?x32xf16>
  %3 = nn.concat %pv, %k {axis = 2 : i64} : (tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>) -> tensor<?x2x?x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32, causal = true} : (tensor<?x4x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>) -> tensor<?x4x?x32xf16>
  %5 = nn.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x4x?x32xf16>) -> tensor<?x?x4x32xf16>
  %6 = nn.reshape %5 {shape = ["batch", "n", 128]} : (tensor<?x?x4x32xf16>) -> tensor<?x?x128xf16>
  return %6, %2, %3 : tensor<?x?x128xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>
})";

/// Where each run chooses again, a measurement at one size says so only by more than its noise.
TEST(Profit, NoiseDoesNotChooseGroupsOfTheParts) {
  auto times = [](double whole) {
    return MadeUp([=](const Candidate &candidate) {
      return candidate.pattern == "rope_attention" ? Times{whole, 40} : Times{10, 20};
    });
  };
  MadeUp noise = times(20.5), slower = times(22);
  EXPECT_EQ(lowered(ropeAttention, &noise).patterns["rope_attention"].fired.size(), 1u);
  FusionReport report = lowered(ropeAttention, &slower);
  EXPECT_EQ(report.patterns["rope_attention"].fired.size(), 0u);
  EXPECT_EQ(report.patterns["attention_layout"].fired.size(), 1u);
}

/// A norm in front of a product of one row, beside rows of a batch.
constexpr const char *normPrologue = R"(
func.func @main(%z: tensor<?x64xf32> {nn.dims = ["batch", 64]}, %x: tensor<1x64xf32>, %w: tensor<64xf32>, %v: tensor<32x64xf32>) -> (tensor<?x64xf32>, tensor<1x32xf32>) {
  %0 = nn.softmax %z {axis = -1 : i64} : (tensor<?x64xf32>) -> tensor<?x64xf32>
  %1 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<1x64xf32>, tensor<64xf32>) -> tensor<1x64xf32>
  %2 = nn.matmul %1, %v {transpose_b = true} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32xf32>
  return %0, %2 : tensor<?x64xf32>, tensor<1x32xf32>
})";

/// Less traffic alone is no reason to compute a norm in every block.
TEST(Profit, ANormBeforeMatmulsNeedsAMeasurement) {
  MadeUp faster([](const Candidate &) { return Times{1, 2}; });
  EXPECT_EQ(lowered(normPrologue, &faster).patterns["norm_matmul"].fired.size(), 1u);
  MadeUp unknown([](const Candidate &) -> Result<Times> { return badInput("no"); });
  for (ProfitOracle *oracle : {static_cast<ProfitOracle *>(&unknown), static_cast<ProfitOracle *>(nullptr)}) {
    FusionReport report = lowered(normPrologue, oracle);
    ASSERT_EQ(report.patterns["norm_matmul"].missed.size(), 1u);
    EXPECT_THAT(report.patterns["norm_matmul"].missed[0].reason, HasSubstr("computes the norm again"));
  }
}

/// A layer of GPT-2: learned positions, layer norms with biases, weights [in, out].
constexpr const char *gpt2Layer = R"(
!t = tensor<?x1x64xf16>
!h = tensor<?x2x1x32xf16>
!s = tensor<?x1x2x32xf16>
!c = tensor<?x2x?x32xf16>
func.func @main(%x: !t {nn.dims = ["batch", 1, 64]}, %g: tensor<64xf16>, %b: tensor<64xf16>, %w: tensor<64x192xf16>, %wb: tensor<192xf16>,
    %pk: !c {nn.dims = ["batch", 2, "p", 32], nn.storage = ["batch", 2, 64, 32]}, %pv: !c {nn.dims = ["batch", 2, "p", 32], nn.storage = ["batch", 2, 64, 32]},
    %o: tensor<64x64xf16>, %u: tensor<64x256xf16>, %ub: tensor<256xf16>, %d: tensor<256x64xf16>) -> (!t, !c {nn.alias = 5 : i64}, !c {nn.alias = 6 : i64}) {
  %n = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f32} : (!t, tensor<64xf16>, tensor<64xf16>) -> !t
  %0 = nn.matmul %n, %w : (!t, tensor<64x192xf16>) -> tensor<?x1x192xf16>
  %1 = nn.add %0, %wb : (tensor<?x1x192xf16>, tensor<192xf16>) -> tensor<?x1x192xf16>
  %qs = nn.slice %1 {starts = [0, 0, 0], sizes = ["batch", 1, 64], steps = array<i64: 1, 1, 1>} : (tensor<?x1x192xf16>) -> !t
  %ks = nn.slice %1 {starts = [0, 0, 64], sizes = ["batch", 1, 64], steps = array<i64: 1, 1, 1>} : (tensor<?x1x192xf16>) -> !t
  %vs = nn.slice %1 {starts = [0, 0, 128], sizes = ["batch", 1, 64], steps = array<i64: 1, 1, 1>} : (tensor<?x1x192xf16>) -> !t
  %qr = nn.reshape %qs {shape = ["batch", 1, 2, 32]} : (!t) -> !s
  %kr = nn.reshape %ks {shape = ["batch", 1, 2, 32]} : (!t) -> !s
  %vr = nn.reshape %vs {shape = ["batch", 1, 2, 32]} : (!t) -> !s
  %q = nn.transpose %qr {perm = array<i64: 0, 2, 1, 3>} : (!s) -> !h
  %k = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (!s) -> !h
  %v = nn.transpose %vr {perm = array<i64: 0, 2, 1, 3>} : (!s) -> !h
  %ck = nn.concat %pk, %k {axis = 2 : i64} : (!c, !h) -> !c
  %cv = nn.concat %pv, %v {axis = 2 : i64} : (!c, !h) -> !c
  %a = nn.attention %q, %ck, %cv {scale = 0.25 : f32} : (!h, !c, !c) -> !h
  %at = nn.transpose %a {perm = array<i64: 0, 2, 1, 3>} : (!h) -> !s
  %ar = nn.reshape %at {shape = ["batch", 1, 64]} : (!s) -> !t
  %2 = nn.matmul %ar, %o : (!t, tensor<64x64xf16>) -> !t
  %3 = nn.add %2, %x : (!t, !t) -> !t
  %m = nn.layer_norm %3, %g, %b {eps = 1.0e-5 : f32} : (!t, tensor<64xf16>, tensor<64xf16>) -> !t
  %4 = nn.matmul %m, %u : (!t, tensor<64x256xf16>) -> tensor<?x1x256xf16>
  %5 = nn.add %4, %ub : (tensor<?x1x256xf16>, tensor<256xf16>) -> tensor<?x1x256xf16>
  %6 = nn.gelu %5 {approximate = "tanh"} : (tensor<?x1x256xf16>) -> tensor<?x1x256xf16>
  %7 = nn.matmul %6, %d : (tensor<?x1x256xf16>, tensor<256x64xf16>) -> !t
  %8 = nn.add %3, %7 : (!t, !t) -> !t
  return %8, %ck, %cv : !t, !c, !c
})";

/// Where launches are what takes time, a layer is five of them. The report counts a norm and its matmuls as
/// two, which a run may take instead of the one kernel.
TEST(Profit, ALayerOfFiveKernels) {
  MadeUp launches([](const Candidate &candidate) {
    const auto views = llvm::count_if(candidate.ops, llvm::IsaPred<nn::TransposeOp, nn::ReshapeOp>);
    return Times{2, 2. * static_cast<double>(static_cast<int64_t>(candidate.ops.size()) - views)};
  });
  FusionReport report = lowered(gpt2Layer, &launches);
  EXPECT_EQ(report.patterns["norm_matmul"].fired.size(), 2u);
  EXPECT_EQ(report.patterns["rope_attention"].fired.size(), 1u);
  EXPECT_EQ(report.kernelsAfter, 5 + 2) << report.markdown();
}

/// What groups save is measured beside different kernels: of one group and of its parts, their own times
/// count.
TEST(Profit, OneGroupOrItsPartsByTheTimesOfTheirKernels) {
  constexpr const char *text = R"(
!t = tensor<?x1x64xf16>
!u = tensor<?x1x256xf16>
func.func @main(%x: !t {nn.dims = ["batch", 1, 64]}, %r: !t {nn.dims = ["batch", 1, 64]}, %g: tensor<64xf16>, %w: tensor<64x256xf16>) -> (!t, !u) {
  %0 = nn.add %x, %r : (!t, !t) -> !t
  %1 = nn.layer_norm %0, %g {eps = 1.0e-5 : f32} : (!t, tensor<64xf16>) -> !t
  %2 = nn.matmul %1, %w : (!t, tensor<64x256xf16>) -> !u
  %3 = nn.gelu %2 {approximate = "tanh"} : (!u) -> !u
  return %0, %3 : !t, !u
})";
  auto firedWith = [&](Times whole) {
    MadeUp times([&](const Candidate &candidate) {
      return candidate.ops.size() >= 4                ? whole
             : candidate.pattern == "add_norm"        ? Times{1.0, 2.1}
             : candidate.pattern == "matmul_epilogue" ? Times{2.9, 4.5}
                                                      : Times{9, 5};
    });
    return lowered(text, &times).patterns["norm_matmul"].fired.size();
  };
  EXPECT_EQ(firedWith({3.2, 5.2}), 1u); // saves 2.0, the parts 2.7
  EXPECT_EQ(firedWith({4.5, 8.5}), 0u); // saves 4.0
}

/// A group that saves more bytes than its parts, and takes as long as they, is taken.
TEST(Profit, NoiseDoesNotChooseTheParts) {
  constexpr const char *text = R"(
!t = tensor<?x1x64xf16>
!u = tensor<?x1x256xf16>
func.func @main(%x: !t {nn.dims = ["batch", 1, 64]}) -> !u {
  %w = nn.constant {value = dense<0.5> : tensor<64x256xf16>} : () -> tensor<64x256xf16>
  %v = nn.constant {value = dense<0.25> : tensor<64x256xf16>} : () -> tensor<64x256xf16>
  %0 = nn.matmul %x, %w : (!t, tensor<64x256xf16>) -> !u
  %1 = nn.matmul %x, %v : (!t, tensor<64x256xf16>) -> !u
  %2 = nn.silu %0 : (!u) -> !u
  %3 = nn.mul %2, %1 : (!u, !u) -> !u
  return %3 : !u
})";
  auto firedWith = [&](Times whole) {
    MadeUp times([&](const Candidate &candidate) {
      return candidate.pattern == "gated_matmul"       ? whole
             : candidate.pattern == "qkv_matmul"       ? Times{9, 18}
             : candidate.pattern == "gated_activation" ? Times{1, 2.4}
                                                       : Times{9, 5};
    });
    return lowered(text, &times).patterns["gated_matmul"].fired.size();
  };
  EXPECT_EQ(firedWith({10, 20}), 1u); // saves 10, the parts 10.4
  EXPECT_EQ(firedWith({11, 20}), 0u); // slower than the parts
}

TEST(Profit, WhatCannotBeMeasuredIsModelled) {
  MadeUp half([](const Candidate &candidate) -> Result<Times> {
    if (candidate.root->getName().getStringRef() == "nn.rms_norm")
      return badInput("its buffers take 9000 MiB");
    return Times{1, 2};
  });
  FusionReport report = lowered(twoLayers, &half);
  EXPECT_EQ(report.patterns["add_norm"].fired.size(), 2u);
  ASSERT_FALSE(report.unmeasured.empty());
  EXPECT_EQ(report.unmeasured[0].reason, "add_norm: its buffers take 9000 MiB");
  FusionReport back = reportFromJson(report.json());
  EXPECT_EQ(back.profit, "measured on paper");
  EXPECT_EQ(back.unmeasured.size(), report.unmeasured.size());
  EXPECT_THAT(back.markdown(), HasSubstr("Profit: measured on paper."));
  EXPECT_THAT(back.markdown(), HasSubstr("modelled at `layers.0.norm`: add_norm: its buffers take 9000 MiB"));
}

class Stopwatch : public testing::Test {
protected:
  ~Stopwatch() override { std::filesystem::remove_all(folder); }

  /// Norm kernels with two results, which only a fused one has, take `fused` microseconds, all others one.
  std::unique_ptr<MeasuredProfit> oracle(double fused, const std::string &device = "a stopwatch") {
    BackendFactory factory =
        [this, fused](std::span<const KernelPlan> kernels) -> Result<std::unique_ptr<Backend>> {
      ++made;
      return std::unique_ptr<Backend>(std::make_unique<TimingBackend>(
          kernels, [this, fused](const KernelPlan &kernel, const Backend::Launch &) {
            ++launches;
            return kernel.source.find("out1") != std::string::npos ? fused : 1.0;
          }));
    };
    return std::make_unique<MeasuredProfit>(device, PlanOptions{"sm_90a"}, factory,
                                            std::make_shared<KernelCache>(folder));
  }

  std::string folder =
      (std::filesystem::temp_directory_path() / ("fusion-profit-" + std::to_string(getpid()))).string();
  int made = 0, launches = 0;
};

TEST_F(Stopwatch, FusedAgainstItsOps) {
  auto faster = oracle(1.9);
  EXPECT_EQ(lowered(twoLayers, faster.get()).patterns["add_norm"].fired.size(), 2u);
  auto slower = oracle(2.5, "a slow stopwatch");
  FusionReport report = lowered(twoLayers, slower.get());
  ASSERT_EQ(report.patterns["add_norm"].missed.size(), 2u);
  EXPECT_EQ(report.patterns["add_norm"].missed[0].reason,
            "measures slower: 2.50 µs fused, 2.00 µs unfused at batch = 1");
  EXPECT_EQ(report.profit, "measured on a slow stopwatch");
}

TEST_F(Stopwatch, TheSameBodyElsewhereIsNotTimedAgain) {
  constexpr const char *oneLayer = R"(
func.func @main(%x: tensor<?x64xf32> {nn.dims = ["batch", 64]}, %r: tensor<?x64xf32> {nn.dims = ["batch", 64]}, %w: tensor<64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %0 = nn.add %x, %r : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32> loc("layers.7.add")
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32> loc("layers.7.norm")
  return %0, %1 : tensor<?x64xf32>, tensor<?x64xf32>
})";
  auto one = oracle(1);
  lowered(oneLayer, one.get());
  const int launchesOfOne = launches;
  EXPECT_GT(launchesOfOne, 0);
  auto two = oracle(1, "another stopwatch");
  EXPECT_EQ(lowered(twoLayers, two.get()).patterns["add_norm"].fired.size(), 2u);
  EXPECT_EQ(launches, 2 * launchesOfOne);
}

TEST_F(Stopwatch, AWarmStartTimesNothing) {
  auto cold = oracle(2.5);
  FusionReport first = lowered(twoLayers, cold.get());
  const int coldMade = made, coldLaunches = launches;
  EXPECT_GT(coldMade, 0);
  lowered(twoLayers, cold.get());
  EXPECT_EQ(made, coldMade);
  auto warm = oracle(1); // would say otherwise, if it were asked
  FusionReport second = lowered(twoLayers, warm.get());
  EXPECT_EQ(made, coldMade);
  EXPECT_EQ(launches, coldLaunches);
  EXPECT_EQ(first.json(), second.json());
  auto elsewhere = oracle(1, "another stopwatch");
  lowered(twoLayers, elsewhere.get());
  EXPECT_GT(made, coldMade);
}

TEST(ProfitMode, EmulationAndTheReferenceNeverMeasure) {
  std::string file =
      (std::filesystem::temp_directory_path() / ("fusion-profit-" + std::to_string(getpid()) + ".mlir"))
          .string();
  std::ofstream(file) << twoLayers;
  auto graph = Graph::load(file);
  std::filesystem::remove(file);
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  for (RunOn device : {RunOn::Cpu, RunOn::Emulate}) {
    CompileOptions options;
    options.device = device;
    auto program = compile(*graph, options);
    ASSERT_TRUE(bool(program)) << program.error().message;
    EXPECT_THAT(program->report().json(), HasSubstr("\"profit\": \"modelled\""));
    options.profit = ProfitMode::Measure;
    auto refused = compile(*graph, options);
    ASSERT_FALSE(bool(refused));
    EXPECT_EQ(refused.error().kind, ErrorKind::Environment);
    EXPECT_THAT(refused.error().message, HasSubstr("does not run on a GPU"));
  }
}
} // namespace
