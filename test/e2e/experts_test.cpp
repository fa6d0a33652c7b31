// A block of routed experts, emulated, gives what the reference gives, for any number of tokens and on
// several ranks.
#include "api/Fusion.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <random>
#include <unistd.h>

using namespace fusion;

namespace {

struct Block {
  int hidden = 32, inner = 24, experts = 8, slots = 2;
  std::string type = "bf16";
  bool packed = true; ///< gate and up in one matrix
};

Tensor random(DType type, Shape shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values)
    value = normal(engine) / 4;
  return Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(type);
}

/// Gate and up, down, the weighted sum over the slots, and the residual. Its weights lie beside it.
class BlockFile {
public:
  explicit BlockFile(const Block &block)
      : b(block), folder(std::filesystem::temp_directory_path() / ("experts-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder);
    bytes.open(folder / "weights.bin", std::ios::binary);
    const std::string body = text();
    bytes.close();
    std::ofstream(folder / "block.mlir") << body;
  }
  ~BlockFile() { std::filesystem::remove_all(folder); }

  Graph load() const {
    auto graph = Graph::load((folder / "block.mlir").string());
    EXPECT_TRUE(bool(graph)) << graph.error().message;
    return *graph;
  }
  NamedTensors inputs(int tokens) const {
    std::vector<int64_t> index;
    for (int i = 0; i < tokens * b.slots; ++i)
      index.push_back((i * 7 + i / 3) % b.experts - (i % 5 == 4 ? b.experts : 0));
    return {{"x", random(*dtypeFromName(b.type), {tokens, b.hidden}, 7)},
            {"weights", random(*dtypeFromName(b.type), {tokens, b.slots}, 8)},
            {"index", Tensor::of<int64_t>(DType::I64, {tokens, b.slots}, index)}};
  }

private:
  std::string weight(const char *name, int rows, int columns) {
    Tensor tensor =
        random(*dtypeFromName(b.type), {b.experts, rows, columns}, static_cast<unsigned>(offset) + 3);
    const int64_t length = tensor.size() * static_cast<int64_t>(byteSize(tensor.type()));
    bytes.write(tensor.as<char>(), length);
    offset += length;
    return fmt::format(
        "nn.weight {{name = \"{}\", path = \"weights.bin\", offset = {} : i64, length = {} : i64}} : () -> "
        "tensor<{}x{}x{}x{}>",
        name, offset - length, length, b.experts, rows, columns, b.type);
  }
  std::string text() {
    const std::string &t = b.type;
    const std::string x = fmt::format("tensor<?x{}x{}>", b.hidden, t),
                      row = fmt::format("tensor<?x1x{}x{}>", b.hidden, t),
                      index = fmt::format("tensor<?x{}xi64>", b.slots),
                      c = fmt::format("tensor<?x{}x{}>", b.slots, t),
                      q = fmt::format("tensor<?x{}x1x{}>", b.slots, t),
                      half = fmt::format("tensor<?x{}x{}x{}>", b.slots, b.inner, t),
                      whole = fmt::format("tensor<?x{}x{}x{}>", b.slots, 2 * b.inner, t),
                      out = fmt::format("tensor<?x{}x{}x{}>", b.slots, b.hidden, t);
    auto expertMatrix = [&](int rows, int columns) {
      return fmt::format("tensor<{}x{}x{}x{}>", b.experts, rows, columns, t);
    };
    std::string lines = fmt::format(R"(
func.func @main(%x: {0} {{nn.dims = ["t", {1}], nn.name = "x"}}, %i: {2} {{nn.dims = ["t", {3}], nn.name = "index"}},
                %c: {4} {{nn.dims = ["t", {3}], nn.name = "weights"}}) -> ({0} {{nn.name = "y"}}) {{
  %q = nn.reshape %c {{shape = ["t", {3}, 1]}} : ({4}) -> {5}
  %nw = nn.constant {{value = dense<1.5> : tensor<{1}x{7}>}} : () -> tensor<{1}x{7}>
  %n = nn.rms_norm %x, %nw {{eps = 1.0e-5 : f32}} : ({0}, tensor<{1}x{7}>) -> {0}
  %r = nn.reshape %n {{shape = ["t", 1, {1}]}} : ({0}) -> {6}
)",
                                    x, b.hidden, index, b.slots, c, q, row, t);
    if (b.packed) {
      lines += fmt::format("  %w = {}\n", weight("gate_up", 2 * b.inner, b.hidden));
      lines += fmt::format("  %p = nn.expert_matmul %r, %w, %i {{transpose_w = true}} : ({}, {}, {}) -> {}\n",
                           row, expertMatrix(2 * b.inner, b.hidden), index, whole);
      for (const char *part : {"g", "u"})
        lines += fmt::format("  %{} = nn.slice %p {{starts = [0, 0, {}], sizes = [\"t\", {}, {}], steps = "
                             "array<i64: 1, 1, 1>}} "
                             ": ({}) -> {}\n",
                             part, part[0] == 'u' ? b.inner : 0, b.slots, b.inner, whole, half);
    } else {
      for (const char *part : {"g", "u"})
        lines += fmt::format("  %w{0} = {1}\n  %{0} = nn.expert_matmul %r, %w{0}, %i {{transpose_w = true}} "
                             ": ({2}, {3}, {4}) -> {5}\n",
                             part, weight(part, b.inner, b.hidden), row, expertMatrix(b.inner, b.hidden),
                             index, half);
    }
    lines += fmt::format(R"(  %a = nn.silu %g : ({0}) -> {0}
  %h = nn.mul %a, %u : ({0}, {0}) -> {0}
  %d = {1}
  %o = nn.expert_matmul %h, %d, %i {{transpose_w = true}} : ({0}, {2}, {3}) -> {4}
  %m = nn.mul %o, %q : ({4}, {5}) -> {4}
  %k = nn.reduce %m {{kind = "sum", axes = array<i64: 1>, keepdims = false}} : ({4}) -> {6}
  %y = nn.add %k, %x : ({6}, {6}) -> {6}
  return %y : {6}
}}
)",
                         half, weight("down", b.hidden, b.inner), expertMatrix(b.hidden, b.inner), index, out,
                         q, x);
    return lines;
  }

  const Block b;
  const std::filesystem::path folder;
  std::ofstream bytes;
  int64_t offset = 0;
};

Tensor run(Program &program, const NamedTensors &inputs) {
  auto outputs = program.run(inputs);
  EXPECT_TRUE(bool(outputs)) << outputs.error().message;
  return outputs ? outputs->at("y") : Tensor();
}

void expectNear(const Tensor &made, const Tensor &wanted, DType type) {
  auto difference = compare(made, wanted);
  ASSERT_TRUE(bool(difference)) << difference.error().message;
  EXPECT_LE(difference->relativeL2, type == DType::F32 ? 1e-6 : type == DType::F16 ? 1e-3 : 8e-3);
}

TEST(Experts, EmulatedAsOnTheReference) {
  for (const Block &block :
       {Block{}, Block{.hidden = 33, .inner = 17, .slots = 3, .packed = false},
        Block{.experts = 5, .slots = 4, .type = "f16", .packed = false},
        Block{.inner = 20, .slots = 1, .type = "f32"}, // the last ones: warpgroups for many tokens
        Block{.hidden = 72, .inner = 136, .experts = 3, .slots = 3},
        Block{.hidden = 264, .inner = 64, .experts = 2, .type = "f16", .packed = false}}) {
    const BlockFile file(block);
    const Graph graph = file.load();
    auto emulated = compile(graph, {.device = RunOn::Emulate}),
         reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
    ASSERT_TRUE(bool(emulated)) << emulated.error().message;
    ASSERT_TRUE(bool(reference)) << reference.error().message;
    EXPECT_TRUE(bool(emulated->report().require("expert_matmul", 2))) << emulated->report().markdown();
    for (int tokens : {1, 3, 40, 170, 0}) {
      const NamedTensors inputs = file.inputs(tokens);
      expectNear(run(*emulated, inputs), run(*reference, inputs), *dtypeFromName(block.type));
    }
  }
}

/// Columns of gate and up, and rows of down, are divided; each rank's part of the sum is added up.
TEST(Experts, OnTwoRanks) {
  for (bool packed : {false, true}) {
    const Block block{.type = "f32", .packed = packed};
    const BlockFile file(block);
    const Graph graph = file.load();
    const NamedTensors inputs = file.inputs(6);
    auto whole = compile(graph, {.device = RunOn::Cpu});
    ASSERT_TRUE(bool(whole)) << whole.error().message;
    for (RunOn device : {RunOn::Cpu, RunOn::Emulate}) {
      auto divided = compile(graph, {.device = device, .tensorParallel = 2});
      ASSERT_TRUE(bool(divided)) << divided.error().message;
      EXPECT_EQ(divided->report().fired("shard"), 1) << divided->report().markdown();
      expectNear(run(*divided, inputs), run(*whole, inputs), DType::F32);
    }
  }
}

} // namespace
