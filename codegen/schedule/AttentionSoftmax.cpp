// What the tensor-core kernel does between its two products: scores to weights, in registers.
#include "codegen/schedule/AttentionTensor.h"

#include "codegen/ScalarCode.h"

#include <fmt/format.h>

namespace fusion::attention {

static constexpr double log2e = 1.4426950408889634;

// Tiles of which some row looks at a part only: at the end, on the diagonal, at the window's far side.
void TensorEmitter::maskEdges() {
  const auto window = static_cast<int64_t>(op.getWindow());
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m) {{", tile.warpTiles));
  writer.line(fmt::format("const int topRow = row0 + warpRow + m * 16, left = keyCount - j0;"));
  std::string edge = fmt::format("left < {}", tile.keys);
  if (op.getCausal())
    edge += fmt::format(" || j0 + {} > {} + shift", tile.keys - 1, code.queryOf("topRow"));
  if (window > 0)
    edge += fmt::format(" || j0 <= {} + shift - {}", code.queryOf("(topRow + 15)"), window);
  writer.line(fmt::format("if ({}) {{", edge));
  writer.line("#pragma unroll");
  writer.line("for (int half = 0; half < 2; ++half) {");
  if (op.getCausal() || window > 0) {
    writer.line(fmt::format("const int row = {};", rowOf("m", "half")));
    writer.line(fmt::format("const int middle = {} + shift - j0;", code.queryOf("row")));
  }
  if (op.getCausal())
    writer.line("const int newest = middle < left - 1 ? middle : left - 1;");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; ++n)", tile.keys / 8));
  writer.line("#pragma unroll");
  writer.line("  for (int e = 0; e < 2; ++e) {");
  writer.line("const int key = n * 8 + lane % 4 * 2 + e;");
  std::string kept = op.getCausal() ? "key <= newest" : "key < left";
  if (window > 0)
    kept += fmt::format(" && key > middle - {}", window);
  writer.line(fmt::format("if (!({})) score[m][n][2 * half + e] = -inf_f32();", kept));
  for (int i = 0; i < 4; ++i)
    writer.line("}");
}

void TensorEmitter::finishScores() {
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m) {{", tile.warpTiles));
  writer.line("#pragma unroll");
  writer.line("for (int half = 0; half < 2; ++half) {");
  writer.line(fmt::format("const int lower = {}, row = lower < lastRow ? lower : lastRow;", rowOf("m", "half")));
  if (op.getMask())
    writer.line(fmt::format("const i64 query = {}, head = {};", code.queryOf("row"), code.headOf("row")));
  else if (op.getCausal() || op.getWindow() > 0)
    writer.line(fmt::format("const i64 query = {};", code.queryOf("row")));
  code.maskRow("maskRow", "head", "query");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; ++n) {{", tile.keys / 8));
  writer.line("#pragma unroll");
  writer.line("for (int e = 0; e < 2; ++e) {");
  writer.line("const i64 key = j0 + n * 8 + lane % 4 * 2 + e;");
  writer.line("f32 s = score[m][n][2 * half + e];");
  code.finishScore("s", "key", "query", op.getMask() ? code.maskElement("maskRow", "key") : "");
  writer.line("score[m][n][2 * half + e] = s;");
  for (int i = 0; i < 4; ++i)
    writer.line("}");
}

// Weights are relative to the largest score so far; what was summed before is scaled down when that grows. They are
// powers of two: e^x = 2^(x log2 e). As an operand of the next product a weight is rounded to the values' type.
void TensorEmitter::softmaxStep() {
  const std::string factor = literal(
      DType::F32, finished ? log2e : static_cast<double>(op.getScale().convertToFloat()) * log2e);
  // Differences first where a mask's large numbers would not survive the factor.
  auto power = [&](const std::string &score) {
    return finished ? fmt::format("exp2_near(({} - base) * {})", score, factor)
                    : fmt::format("exp2_near(fma_({}, {}, -base))", score, factor);
  };
  writer.line(fmt::format("u32 weight[{}][{}][4];", tile.warpTiles, tile.keys / 16));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m) {{", tile.warpTiles));
  writer.line("#pragma unroll");
  writer.line("for (int half = 0; half < 2; ++half) {");
  writer.line("f32 top = running[m][half];");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; ++n)", tile.keys / 8));
  writer.line("  top = max_nan(top, max_nan(score[m][n][2 * half], score[m][n][2 * half + 1]));");
  writer.line("top = lanes_max<4>(top);");
  writer.line(fmt::format("const f32 base = top == -inf_f32() ? 0.f : top{};", finished ? "" : " * " + factor));
  writer.line(fmt::format("const f32 shrink = {};", power("running[m][half]")));
  writer.line("running[m][half] = top;");
  writer.line("f32 sum = 0.f;");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; ++n) {{", tile.keys / 8));
  writer.line(fmt::format("const f32 first = {};", power("score[m][n][2 * half]")));
  writer.line(fmt::format("const f32 second = {};", power("score[m][n][2 * half + 1]")));
  writer.line("sum = sum + (first + second);");
  writer.line(fmt::format("weight[m][n / 2][n % 2 * 2 + half] = packed_pair<{}>(first, second);",
                          sourceType(type).str()));
  writer.line("}");
  writer.line("total[m][half] = fma_(total[m][half], shrink, sum);");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; ++n) {{", valueDepth / 8));
  writer.line("mixed[m][n][2 * half] = mixed[m][n][2 * half] * shrink;");
  writer.line("mixed[m][n][2 * half + 1] = mixed[m][n][2 * half + 1] * shrink;");
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

} // namespace fusion::attention
