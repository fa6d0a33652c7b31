// The two products by warpgroups: four warps multiply 64 rows with tiles that they read from shared memory themselves.
#include "codegen/schedule/AttentionTensor.h"

#include <fmt/format.h>

namespace fusion::attention {

/// `"+f"(d[0][0]), …`: the operands of an instruction that adds to 64 x `columns` sums, and `{%0, …}`, their names.
static std::pair<std::string, std::string> sumOperands(int64_t columns) {
  std::string operands, names;
  for (int64_t i = 0; i < columns / 2; ++i) {
    operands += fmt::format("{}\"+f\"(d[{}][{}])", i == 0 ? "" : i % 8 == 0 ? ",\n  " : ", ", i / 4, i % 4);
    names += fmt::format("{}%{}", i == 0 ? "" : i % 32 == 0 ? ", \"\n  \"" : ", ", i);
  }
  return {operands, "{" + names + "}"};
}

void TensorEmitter::declareProducts() {
  const std::string element = sourceType(type).str();
  auto declare = [&](const char *macro, const char *name, int64_t columns, const std::string &before,
                     const std::string &factors) {
    const auto [operands, sums] = sumOperands(columns);
    writer.declare(fmt::format("{}({}, {}, {}, \"{{{}wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} \"\n  \"{}, \"\n  \"{};}}\",\n  {})",
                               macro, name, element, columns, before, columns, element, element, sums, factors,
                               operands));
  };
  const int64_t held = tile.keys / 2, mixed = valueDepth / 2;
  declare("WGMMA_ROWS", "multiply_keys", tile.keys, fmt::format(".reg .pred p; setp.ne.b32 p, %{}, 0; ", held + 2),
          fmt::format("%{}, %{}, p, 1, 1, 0, 0", held, held + 1));
  declare("WGMMA_COLUMNS", "weigh_values", valueDepth, "",
          fmt::format("{{%{}, %{}, %{}, %{}}}, %{}, 1, 1, 1, 1", mixed, mixed + 1, mixed + 2, mixed + 3, mixed + 4));
}

// The copies of the next tiles are asked for while the first product runs.
void TensorEmitter::groupScores() {
  const int64_t panelQ = 64 * tile.rows(), panelK = 64 * tile.keys;
  writer.line(fmt::format("f32 score[1][{}][4];", tile.keys / 8));
  writer.line("wgmma_begin();");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; k += 16)", depth));
  writer.line(fmt::format("  multiply_keys(score[0], wgmma_tile(queryTile + k / 64 * {0} + warp / 4 * 4096 + k % 64, {1}),",
                          panelQ, 2 * panelQ));
  writer.line(fmt::format("                wgmma_tile(keyTile + stage * {0} + k / 64 * {1} + k % 64, {2}), k > 0);",
                          tile.keys * pitchK, panelK, 2 * panelK));
  writer.line("wgmma_commit();");
  copyNext();
  writer.line("wgmma_wait();");
  writer.line("wgmma_settle(score[0]);");
}

void TensorEmitter::groupValues() {
  writer.line("wgmma_settle(weight[0]);");
  writer.line("wgmma_settle(mixed[0]);");
  writer.line("wgmma_begin();");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; ++k)", tile.keys / 16));
  writer.line(fmt::format("  weigh_values(mixed[0], weight[0][k], wgmma_tile(valueTile + stage * {} + k * 1024, {}));",
                          tile.keys * pitchV, 128 * tile.keys));
  writer.line("wgmma_commit();");
  writer.line("wgmma_wait();");
  writer.line("wgmma_settle(mixed[0]);");
}

} // namespace fusion::attention
