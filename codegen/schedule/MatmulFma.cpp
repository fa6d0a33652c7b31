// The kernel without tensor cores: f32 and f64 exactly, integers, and mixtures. A block of 256 threads
// computes 64 x 64 elements, each thread 4 x 4 of them.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

static constexpr int64_t tileSize = 64, tileDepth = 16, threads = 256;
static constexpr int64_t pitch = tileSize + 4; // 16-byte rows, banks shifted

static std::string converted(const Operand &operand, const std::string &value) {
  const std::string sum = sumType(operand.value());
  if (isFloat(operand.value()))
    return value;
  return fmt::format("({})({})({})", sum, sum == "u32" ? "i32" : "i64", value);
}

/// `sum`: which of the block's products, for B.
static void loadTile(KernelWriter &writer, const Problem &problem, bool isA, size_t sum = 0) {
  const Operand &operand = isA ? problem.a : problem.b;
  const bool kFast = isA ? operand.columnStride == Dim(1) : operand.rowStride == Dim(1);
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", tileSize * tileDepth / threads));
  writer.line(fmt::format("const int e = i * {} + thread;", threads));
  writer.line(kFast ? fmt::format("const int r = e / {0}, c = e % {0};", tileDepth)
                    : fmt::format("const int r = e % {0}, c = e / {0};", tileSize));
  writer.line(fmt::format("{} value = 0;", sumType(operand.value())));
  const char *first = isA ? "rowStart" : "columnStart";
  writer.line(fmt::format("if ({} + r < {} && k0 + c < {}) {{", first,
                          isA ? writer.size(problem.m) : widthText(writer, problem), writer.size(problem.k)));
  std::string across, along, row = "(k0 + c)", column = "(columnStart + r)";
  if (isA) {
    row = "row";
    column = "(k0 + c)";
    writer.line("const i64 row = rowStart + r;");
    across = rowOffset(writer, problem, "row");
    along = scaled(writer, "(k0 + c)", operand.columnStride);
  } else {
    across = alongN(writer, problem, "(columnStart + r)");
    along = alongK(writer, problem, "(k0 + c)");
  }
  const std::string offset = (across.empty() ? "0" : across) + (along.empty() ? "" : " + " + along);
  const std::string q = loadElement(operand.type, isA ? "a" : numbered("b", sum), offset);
  writer.line(fmt::format("value = {};",
                          converted(operand, elementValue(writer, problem, isA, sum, q, row, column))));
  writer.line("}");
  writer.line(fmt::format("{}[c * {} + r] = value;", isA ? "tileA" : numbered("tileB", sum), pitch));
  writer.line("}");
}

KernelDraft emitFma(const Region &region, const KernelContext &context, const Problem &problem) {
  KernelWriter writer(region, context.inputs);
  Epilogue epilogue(region, context, problem, writer);
  const std::string type = sumType(problem.a.value());
  writer.comment(problem.op);
  writer.line(fmt::format("SHARED({}, tileA, {});", type, tileDepth * pitch));
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    writer.line(fmt::format("SHARED({}, {}, {});", type, numbered("tileB", sum), tileDepth * pitch));
  writer.line("const int thread = (int)thread_x(), mine = thread / 16 * 4, across = thread % 16 * 4;");
  emitBlockPlace(writer, problem, tileSize, tileSize);
  emitBases(writer, problem);
  for (size_t sum = 0; sum < problem.sums(); ++sum) {
    writer.line(fmt::format("{} {}[4][4];", type, numbered("sum", sum)));
    writer.line("#pragma unroll");
    writer.line("for (int i = 0; i < 4; ++i)");
    writer.line(fmt::format("  {0}[i][0] = {0}[i][1] = {0}[i][2] = {0}[i][3] = 0;", numbered("sum", sum)));
  }
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  writer.line(fmt::format("for (i64 k0 = 0; k0 < {}; k0 += {}) {{", writer.size(problem.k), tileDepth));
  loadTile(writer, problem, true);
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    loadTile(writer, problem, false, sum);
  writer.line("barrier();");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", tileDepth));
  const int64_t vector = type == "f64" || type == "u64" ? 2 : 4; // 16 bytes
  auto fragment = [&](const std::string &name, const std::string &side, const char *first) {
    if (vector == 4) {
      writer.line(fmt::format("const Vec<{0}, 4> {1} = load_vec<{0}, 4>(tile{2} + k * {3} + {4});", type,
                              name, side, pitch, first));
    } else {
      writer.line(fmt::format("const {0} {1}[4] = {{tile{2}[k * {3} + {4}], tile{2}[k * {3} + {4} + 1], "
                              "tile{2}[k * {3} + {4} + 2], tile{2}[k * {3} + {4} + 3]}};",
                              type, name, side, pitch, first));
    }
  };
  fragment("left", "A", "mine");
  for (size_t sum = 0; sum < problem.sums(); ++sum) {
    const std::string total = numbered("sum", sum), right = numbered("right", sum);
    fragment(right, numbered("B", sum), "across");
    writer.line("#pragma unroll");
    writer.line("for (int i = 0; i < 4; ++i)");
    writer.line("#pragma unroll");
    writer.line("  for (int j = 0; j < 4; ++j)");
    writer.line(isFloat(problem.a.value())
                    ? fmt::format("    {0}[i][j] = fma_(left[i], {1}[j], {0}[i][j]);", total, right)
                    : fmt::format("    {0}[i][j] += left[i] * {1}[j];", total, right));
  }
  writer.line("}");
  writer.line("barrier();");
  writer.line("}");
  llvm::SmallVector<std::string> sums;
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    sums.push_back(numbered("sum", sum) + "[i][j]");
  forStoredProducts(writer, problem, [&](size_t first) {
    writer.line("#pragma unroll");
    writer.line("for (int i = 0; i < 4; ++i) {");
    writer.line("#pragma unroll");
    writer.line("for (int j = 0; j < 4; ++j) {");
    writer.line("const i64 m = rowStart + mine + i, n = columnStart + across + j;");
    writer.line(fmt::format("if (m < {} && n < {}) {{", writer.size(problem.m),
                            writer.size(problem.products[first].n)));
    epilogue.emit(resultLine(writer, problem, "m"), "n", sums, first);
    for (int i = 0; i < 3; ++i)
      writer.line("}");
  });
  KernelDraft draft = writer.finish("matmul", threads);
  draft.gridX = blockCount(problem, tileSize, tileSize);
  return draft;
}

} // namespace fusion::matmul
