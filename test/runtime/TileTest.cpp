// Tensor maps, mbarriers and workspace through a plan, emulated; and what the emulation finds that a GPU may
// let pass.
#include "TilePlan.h"

#include "runtime/Arguments.h"
#include "runtime/CompileKernels.h"
#include "runtime/ShapePlan.h"
#include "runtime/cuda/Nvrtc.h"

using namespace fusion;
using namespace fusion::test;

static Result<std::unique_ptr<Executor>> emulated(ProgramPlan plan) {
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  return Executor::create(std::move(plan), options);
}

TEST(Tiles, AreLoadedAndStored) {
  auto executor = emulated(tilePlan());
  ASSERT_TRUE(executor) << executor.error().message;
  checkTiles(**executor);
  EXPECT_GT((*executor)->statistics().replays, 0u);
}

TEST(Tiles, TheirSizesAreChecked) {
  auto executor = emulated(tilePlan());
  ASSERT_TRUE(executor) << executor.error().message;
  auto odd = (*executor)->run({{"x", wholeNumbers(5, 6, 0)}});
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("a tensor map of x has a stride of 24 bytes, not of whole 16"),
            std::string::npos)
      << odd.error().message;
  ProgramPlan plan = tilePlan();
  std::get<TensorMapArgument>(onlyLaunch(plan, 0).arguments[0]).shape[0] = Dim::symbol("rows") + 1;
  auto beyond = planShapes(plan, {{"rows", 4}, {"columns", 4}});
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("of a buffer of 64 bytes"), std::string::npos)
      << beyond.error().message;
  std::get<TensorMapArgument>(onlyLaunch(plan, 0).arguments[0]).shape[0] = Dim::symbol("rows") - 4;
  auto empty = planShapes(plan, {{"rows", 4}, {"columns", 4}});
  EXPECT_TRUE(empty) << empty.error().message;
}

TEST(Tiles, AnEmptyViewMayBeginBehindAnEmptyBuffer) {
  ProgramPlan plan = tilePlan();
  auto &map = std::get<TensorMapArgument>(onlyLaunch(plan, 0).arguments[0]); // the second half of each row
  map.shape[1] = Dim::symbol("columns").ceilDiv(2);
  map.byteOffset = Dim::symbol("columns") * 2;
  onlyLaunch(plan, 0).gridX = onlyLaunch(plan, 0).gridY = 1;
  ShapePlanner planner(plan);
  auto shapes = planner.plan({{"rows", 64}, {"columns", 32}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  const auto offset = [&] { return shapes->launches.at(0).arguments[0].value; };
  EXPECT_EQ(offset(), 64u);
  std::vector<int64_t> symbols;
  for (const std::string &name : planner.sizes().table.symbols())
    symbols.push_back(name == "rows" ? 0 : 32);
  std::vector<uint32_t> changed;
  EXPECT_TRUE(planner.update(*shapes, symbols, changed));
  EXPECT_EQ(offset(), 0u);
  shapes = planner.plan({{"rows", 0}, {"columns", 32}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(offset(), 0u);
}

TEST(Tiles, AViewEndsWithItsBuffer) {
  const TensorMapArgument map{0, 0, false, DType::F32, {}, {}, {}};
  // Three rows of four elements, eight apart, from byte 16 on.
  ShapePlan::Argument sizes{ShapePlan::Argument::Kind::TensorMap, 0, 16, {3, 4, 8, 1}};
  EXPECT_EQ(tensorMapProblem(map, sizes, 96), std::nullopt);
  EXPECT_EQ(tensorMapProblem(map, sizes, 92), "reaches element 19 after byte 16 of a buffer of 92 bytes");
  sizes.extents = {5, 0, 8, 1}; // no elements
  EXPECT_EQ(tensorMapProblem(map, sizes, 16), std::nullopt);
}

TEST(Tiles, KeptWorkspaceThatGrowsIsPlannedAnew) {
  ProgramPlan plan = tilePlan();
  std::get<WorkspaceArgument>(onlyLaunch(plan, 0).arguments[3]).bytes = Dim::symbol("rows") * 4;
  ShapePlanner planner(plan);
  auto shapes = planner.plan({{"rows", 60}, {"columns", 32}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->keptZeroBytes, 240u);
  const auto &names = planner.sizes().table.symbols();
  const auto rows = static_cast<size_t>(std::find(names.begin(), names.end(), "rows") - names.begin());
  std::vector<int64_t> symbols = shapes->symbols;
  std::vector<uint32_t> changed;
  symbols[rows] = 61;
  EXPECT_FALSE(planner.update(*shapes, symbols, changed));
  symbols[rows] = 59;
  EXPECT_TRUE(planner.update(*shapes, symbols, changed));
}

TEST(Tiles, WorkspaceLiesInTheArenaUnlessItIsKept) {
  auto shapes = planShapes(tilePlan(), {{"rows", 4}, {"columns", 4}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  ASSERT_EQ(shapes->placeBytes.size(), 5u); // three buffers, two workspaces
  EXPECT_EQ(shapes->arenaBytes, 256u);
  EXPECT_EQ(shapes->keptZeroBytes, 4u);
  EXPECT_TRUE(shapes->launches[0].clearsWorkspace);
}

/// The message of a run of the kernel without `line`, or with `instead`.
static std::string without(const std::string &line, const std::string &instead = "") {
  std::string source = tileSource;
  const size_t at = source.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  source.replace(at, line.size(), instead);
  auto executor = emulated(tilePlan(source));
  EXPECT_TRUE(executor) << executor.error().message;
  auto outputs = executor ? (*executor)->run({{"x", wholeNumbers(70, 36, 0)}}) : executor.error();
  EXPECT_FALSE(outputs);
  return outputs ? "" : outputs.error().message;
}

static void expectIn(const std::string &message, const char *part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Tiles, AMissingWaitIsFound) {
  expectIn(without("mbarrier_wait(full, 0);"), "uses a tile before the wait for its mbarrier has completed");
  expectIn(without("tma_store_wait<0>();"), "ends before its tile stores have read shared memory");
}

TEST(Tiles, AMissingFenceIsFound) {
  expectIn(without("fence_proxy_async();"),
           "tma_store_tile: reads what a thread has written without fence_proxy_async()");
  expectIn(without("fence_mbarrier_init();"), "fence_mbarrier_init() is missing");
}

TEST(Tiles, WrongUseOfBarriersAndPlacesIsFound) {
  expectIn(without("mbarrier_init(full, 1);"), "an mbarrier that nobody has initialised");
  expectIn(without("mbarrier_arrive_expect(full, 8192);", "mbarrier_arrive_expect(full, 8200);"),
           "threads wait at an mbarrier");
  expectIn(without("tma_load_tile(tiles, from", "tma_load_tile(tiles + 64, from"),
           "does not begin at a multiple of 1024 bytes");
  expectIn(without("full, column, row)", "full, column)"), "1 coordinates for a tensor map of 2 dims");
}

TEST(Tiles, CompileForEveryTargetThatHasThem) {
  if (!Nvrtc::instance())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  const ProgramPlan plan = tilePlan();
  for (const char *arch : {"sm_90a", "sm_100a", "sm_120"}) {
    auto kernels = compileKernels(plan.kernels, arch, nullptr);
    ASSERT_TRUE(kernels) << kernels.error().message;
    EXPECT_EQ(kernels->front().spillBytes, 0) << kernels->front().log;
  }
  EXPECT_FALSE(compileKernels(plan.kernels, "sm_80", nullptr));
}
