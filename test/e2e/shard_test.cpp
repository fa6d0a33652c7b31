// Small graphs divided among ranks, on the reference: the numbers of the whole graph.
#include "api/Fusion.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <unistd.h>

using namespace fusion;

namespace {

Graph graphOf(const std::string &text) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("shard-" + std::to_string(getpid()) + ".mlir")).string();
  std::ofstream(file) << text;
  auto graph = Graph::load(file);
  EXPECT_TRUE(bool(graph)) << graph.error().message;
  std::filesystem::remove(file);
  return *graph;
}

Tensor run(const Graph &graph, const NamedTensors &inputs, int ranks, int sums, bool vocabulary = false,
           RunOn device = RunOn::Cpu) {
  auto program =
      compile(graph, {.device = device, .tensorParallel = ranks, .vocabularyParallel = vocabulary});
  EXPECT_TRUE(bool(program)) << program.error().message;
  EXPECT_EQ(program->report().fired("shard"), sums) << program->report().markdown();
  auto outputs = program->run(inputs);
  EXPECT_TRUE(bool(outputs)) << outputs.error().message;
  return outputs->at("y");
}

Tensor random(DType type, Shape shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values)
    value = normal(engine);
  return Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(type);
}

/// The elements of a constant.
std::string denseText(int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::string text;
  for (int64_t i = 0; i < rows; ++i) {
    text += i ? ", [" : "[";
    for (int64_t j = 0; j < columns; ++j)
      text += (j ? ", " : "") + std::to_string(normal(engine) / 4);
    text += "]";
  }
  return "dense<[" + text + "]>";
}

// Ids of every rank, the first and the last row of each, and negative ones, which count from the end. A row
// is found by one rank and zeros are added to it: exact.
TEST(Shard, LookedUpRowsAreThoseOfTheWholeTable) {
  for (const char *index : {"i64", "i32"}) {
    std::string text =
        R"(func.func @main(%ids: tensor<?x?xINDEX> {nn.name = "ids", nn.dims = ["b", "s"]}) -> (tensor<?x?x12xf32> {nn.name = "y"}) {
      %w = nn.constant {value = dense<[[1., 2.], [3., -4.], [5., 6.], [7., 8.], [9., 1.5], [-2.5, 3.], [4., 5.], [6., 7.], [8., 9.], [0.5, 0.25], [-1., -3.], [-5., -7.]]> : tensor<12x2xf32>} : () -> tensor<12x2xf32>
      %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<12x2xf32>, tensor<?x?xINDEX>) -> tensor<?x?x2xf32>
      %y = nn.matmul %x, %w {transpose_b = true} : (tensor<?x?x2xf32>, tensor<12x2xf32>) -> tensor<?x?x12xf32>
      return %y : tensor<?x?x12xf32>
    })";
    for (size_t at; (at = text.find("INDEX")) != std::string::npos;)
      text.replace(at, 5, index);
    Graph graph = graphOf(text);
    const std::vector<int64_t> ids = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1, -12, -5, -7};
    NamedTensors inputs = {
        {"ids", Tensor::of<int64_t>(DType::I64, {2, 8}, ids).convertedTo(*dtypeFromName(index))}};
    Tensor whole = run(graph, inputs, 1, 0);
    for (int ranks : {2, 3, 4, 6})
      EXPECT_EQ(run(graph, inputs, ranks, 1, true).toFloats(), whole.toFloats()) << ranks;
    EXPECT_EQ(run(graph, inputs, 5, 0, true).toFloats(), whole.toFloats()); // 12 rows do not make 5 shards
  }
}

// Each rank finds its own largest logit: equal ones of one rank and of several, NaN, infinities, and rows
// where the first or the last column of a rank is it.
TEST(Shard, TheLargestColumnIsThatOfTheWholeRow) {
  for (const char *type : {"f32", "f16", "bf16"})
    for (const char *keeps : {"true", "false"}) {
      std::string text =
          R"(func.func @main(%x: tensor<?x4xTYPE> {nn.name = "x", nn.dims = ["b", 4]}) -> (tensor<?xONExi64> {nn.name = "y"}) {
      %w = nn.constant {value = dense<[[1., 0., 0., 2., 2., 0., 1., 2., 0., 0., 0., 1.], [0., 5., 0., 0., 0., 5., 0., 0., 0., 0., 0., 0.], [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 7.], [-1., -1., -1., -1., -1., -1., -1., -1., -1., -1., -1., -1.]]> : tensor<4x12xTYPE>} : () -> tensor<4x12xTYPE>
      %l = nn.matmul %x, %w : (tensor<?x4xTYPE>, tensor<4x12xTYPE>) -> tensor<?x12xTYPE>
      %y = nn.arg_max %l {axis = AXIS : i64, keepdims = KEEPS} : (tensor<?x12xTYPE>) -> tensor<?xONExi64>
      return %y : tensor<?xONExi64>
    })";
      auto replace = [&](const std::string &what, const std::string &by) {
        for (size_t at; (at = text.find(what)) != std::string::npos;)
          text.replace(at, what.size(), by);
      };
      replace("TYPE", type);
      replace("xONE", keeps == std::string("true") ? "x1" : "");
      replace("KEEPS", keeps);
      replace("AXIS", keeps == std::string("true") ? "-1" : "1");
      const Graph graph = graphOf(text);
      std::vector<float> rows = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1,  0, 0, -1, 0,
                                 0, 0, 0, 0, 1, 0, 0, INFINITY, -1, 0, 0, 0, NAN, 0, 0, 0};
      NamedTensors inputs = {
          {"x", Tensor::of<float>(DType::F32, {9, 4}, rows).convertedTo(*dtypeFromName(type))}};
      const std::vector<int64_t> whole = run(graph, inputs, 1, 0).toInts();
      EXPECT_EQ(whole, (std::vector<int64_t>{3, 1, 11, 0, 0, 0, 0, 1, 0}));
      for (int ranks : {2, 3, 4, 6, 12})
        EXPECT_EQ(run(graph, inputs, ranks, 1, true).toInts(), whole) << ranks;
      EXPECT_EQ(run(graph, inputs, 3, 1, true, RunOn::Emulate).toInts(), whole);
      EXPECT_EQ(run(graph, inputs, 2, 0).toInts(), whole); // the head stays whole
    }
}

// The norm's own roundings: where the normalised value meets the weight, and the weight's bias.
TEST(Shard, ANormOverAllHeadsIsThatOfTheWholeRow) {
  for (const char *attributes :
       {"", ", weight_bias = 1.0 : f32", ", scale_in = f32", ", scale_in = f32, weight_bias = 1.0 : f32"})
    for (DType type : {DType::F16, DType::BF16, DType::F32}) {
      std::string text =
          R"(func.func @main(%x: tensor<?x?x24xTYPE> {nn.name = "x", nn.dims = ["b", "s", 24]}, %g: tensor<24xTYPE> {nn.name = "g"}) -> (tensor<?x?x24xTYPE> {nn.name = "y"}) {
        %wq = nn.constant {value = Q_ELEMENTS : tensor<24x24xTYPE>} : () -> tensor<24x24xTYPE>
        %wk = nn.constant {value = K_ELEMENTS : tensor<24x24xTYPE>} : () -> tensor<24x24xTYPE>
        %wo = nn.constant {value = O_ELEMENTS : tensor<24x24xTYPE>} : () -> tensor<24x24xTYPE>
        %u = nn.constant {value = dense<0.25> : tensor<24xTYPE>} : () -> tensor<24xTYPE>
        %q0 = nn.matmul %x, %wq : (tensor<?x?x24xTYPE>, tensor<24x24xTYPE>) -> tensor<?x?x24xTYPE>
        %q1 = nn.add %q0, %u : (tensor<?x?x24xTYPE>, tensor<24xTYPE>) -> tensor<?x?x24xTYPE>
        %n = nn.rms_norm %q1, %u {eps = 1.0e-5 : f32ATTRIBUTES} : (tensor<?x?x24xTYPE>, tensor<24xTYPE>) -> tensor<?x?x24xTYPE>
        %k = nn.matmul %x, %wk : (tensor<?x?x24xTYPE>, tensor<24x24xTYPE>) -> tensor<?x?x24xTYPE>
        %qh = nn.reshape %n {shape = ["b", "s", 12, 2]} : (tensor<?x?x24xTYPE>) -> tensor<?x?x12x2xTYPE>
        %kh = nn.reshape %k {shape = ["b", "s", 12, 2]} : (tensor<?x?x24xTYPE>) -> tensor<?x?x12x2xTYPE>
        %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x12x2xTYPE>) -> tensor<?x12x?x2xTYPE>
        %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x12x2xTYPE>) -> tensor<?x12x?x2xTYPE>
        %a = nn.attention %qt, %kt, %kt {scale = 0.5 : f32} : (tensor<?x12x?x2xTYPE>, tensor<?x12x?x2xTYPE>, tensor<?x12x?x2xTYPE>) -> tensor<?x12x?x2xTYPE>
        %t = nn.transpose %a {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x12x?x2xTYPE>) -> tensor<?x?x12x2xTYPE>
        %r = nn.reshape %t {shape = ["b", "s", 24]} : (tensor<?x?x12x2xTYPE>) -> tensor<?x?x24xTYPE>
        %o = nn.matmul %r, %wo : (tensor<?x?x24xTYPE>, tensor<24x24xTYPE>) -> tensor<?x?x24xTYPE>
        %y = nn.mul %o, %g : (tensor<?x?x24xTYPE>, tensor<24xTYPE>) -> tensor<?x?x24xTYPE>
        return %y : tensor<?x?x24xTYPE>
      })";
      for (size_t at; (at = text.find("TYPE")) != std::string::npos;)
        text.replace(at, 4, name(type));
      text.replace(text.find("ATTRIBUTES"), 10, attributes);
      for (auto [which, seed] : {std::pair("Q_ELEMENTS", 3u), {"K_ELEMENTS", 4u}, {"O_ELEMENTS", 5u}})
        text.replace(text.find(which), 10, denseText(24, 24, seed));
      Graph graph = graphOf(text);
      NamedTensors inputs = {{"x", random(type, {2, 5, 24}, 1)}, {"g", random(type, {24}, 2)}};
      Tensor whole = run(graph, inputs, 1, 0);
      for (int ranks : {2, 3, 4}) {
        auto difference = compare(run(graph, inputs, ranks, 2), whole);
        ASSERT_TRUE(bool(difference)) << difference.error().message;
        // Partial sums are rounded once more; in 16 bits a single last digit moves.
        EXPECT_LE(difference->relativeL2, type == DType::F32   ? 1e-6
                                          : type == DType::F16 ? 1e-3
                                                               : 8e-3)
            << attributes;
      }
    }
}

/// A rank's graph with a cache of a head of its own, whose weights lie in the files 0.bin and 1.bin of
/// `folder`.
Graph cutGraph(const std::filesystem::path &folder) {
  std::filesystem::create_directory(folder);
  for (const char *name : {"0.bin", "1.bin"}) {
    std::ofstream file(folder / name, std::ios::binary);
    const std::vector<float> values(64, name[0] == '0' ? 0.25f : 0.5f);
    file.write(reinterpret_cast<const char *>(values.data()), 256);
  }
  const std::string file = (folder / "cut.mlir").string();
  std::ofstream(file)
      << R"(func.func @main(%x: tensor<?x?x8xf32> {nn.name = "x", nn.dims = ["b", "s", 8]}, %past: tensor<?x1x?x4xf32> {nn.name = "past", nn.dims = ["b", 1, "p", 4]})
    -> (tensor<?x?x8xf32> {nn.name = "y"}, tensor<?x1x?x4xf32> {nn.name = "present"}) attributes {nn.mesh = {tp = 2 : i64}} {
  %wk = nn.weight {name = "k", path = "0.bin", offset = 0 : i64, length = 128 : i64, rank_paths = ["0.bin", "1.bin"], rank_offsets = array<i64: 0, 0>} : () -> tensor<8x4xf32>
  %wo = nn.weight {name = "o", path = "0.bin", offset = 128 : i64, length = 128 : i64, rank_paths = ["0.bin", "1.bin"], rank_offsets = array<i64: 128, 128>} : () -> tensor<4x8xf32>
  %k = nn.matmul %x, %wk : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
  %kh = nn.reshape %k {shape = ["b", "s", 1, 4]} : (tensor<?x?x4xf32>) -> tensor<?x?x1x4xf32>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x1x4xf32>) -> tensor<?x1x?x4xf32>
  %keys = nn.concat %past, %kt {axis = 2 : i64} : (tensor<?x1x?x4xf32>, tensor<?x1x?x4xf32>) -> tensor<?x1x?x4xf32>
  %a = nn.attention %kt, %keys, %keys {scale = 0.5 : f32} : (tensor<?x1x?x4xf32>, tensor<?x1x?x4xf32>, tensor<?x1x?x4xf32>) -> tensor<?x1x?x4xf32>
  %t = nn.transpose %a {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x1x?x4xf32>) -> tensor<?x?x1x4xf32>
  %r = nn.reshape %t {shape = ["b", "s", 4]} : (tensor<?x?x1x4xf32>) -> tensor<?x?x4xf32>
  %p = nn.matmul %r, %wo : (tensor<?x?x4xf32>, tensor<4x8xf32>) -> tensor<?x?x8xf32>
  %y = nn.all_reduce %p : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %y, %keys : tensor<?x?x8xf32>, tensor<?x1x?x4xf32>
})";
  auto graph = Graph::load(file);
  EXPECT_TRUE(bool(graph)) << graph.error().message;
  return *graph;
}

TEST(Shard, PortsOfACutGraphAreThoseOfTheWhole) {
  const auto folder = std::filesystem::temp_directory_path() / ("cut-" + std::to_string(getpid()));
  const Graph graph = cutGraph(folder);
  for (RunOn device : {RunOn::Cpu, RunOn::Emulate}) {
    auto program = compile(graph, {.device = device, .tensorParallel = 2});
    ASSERT_TRUE(bool(program)) << program.error().message;
    EXPECT_EQ(program->inputs()[0].shape, (DimShape{Dim::symbol("b"), Dim::symbol("s"), 8}));
    EXPECT_EQ(program->inputs()[1].shape[1], Dim(2)) << "a head of each rank";
    EXPECT_EQ(program->outputs()[1].shape[1], Dim(2));
    auto outputs = program->run(
        {{"x", random(DType::F32, {1, 2, 8}, 1)}, {"past", random(DType::F32, {1, 2, 3, 4}, 2)}});
    ASSERT_TRUE(bool(outputs)) << outputs.error().message;
    EXPECT_EQ(outputs->at("present").shape(), (Shape{1, 2, 5, 4}));
  }
  std::filesystem::remove_all(folder);
}

TEST(Shard, AGraphOfOneRankSaysWhatIsNotChecked) {
  Graph graph = graphOf(
      R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}) -> (tensor<?x8xf32> {nn.name = "y"}) {
    %y = nn.all_reduce %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  })");
  auto program = compile(graph, {.device = RunOn::Cpu, .tensorParallel = 2});
  ASSERT_TRUE(bool(program)) << program.error().message;
  EXPECT_NE(program->report().json().find("each rank runs it as it is, with the same weights and inputs"),
            std::string::npos);
}

// A graph whose sums are over another axis than --tp's must not run as if they were over that.
TEST(Shard, ASumOverAnotherAxisIsRefused) {
  Graph graph = graphOf(
      R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}) -> (tensor<?x8xf32> {nn.name = "y"}) {
    %y = nn.all_reduce %x {group = "ep"} : (tensor<?x8xf32>) -> tensor<?x8xf32> loc("experts.0")
    return %y : tensor<?x8xf32>
  })");
  for (RunOn device : {RunOn::Cpu, RunOn::Emulate}) {
    auto program = compile(graph, {.device = device, .tensorParallel = 2});
    ASSERT_FALSE(bool(program));
    EXPECT_EQ(program.error().kind, ErrorKind::BadInput);
    EXPECT_NE(
        program.error().message.find(
            "nn.all_reduce at experts.0 sums over the mesh axis \"ep\", but the ranks are the axis \"tp\""),
        std::string::npos)
        << program.error().message;
  }
  EXPECT_TRUE(bool(compile(graph, {.device = RunOn::Emulate}))) << "one rank has every addend";
}

} // namespace
