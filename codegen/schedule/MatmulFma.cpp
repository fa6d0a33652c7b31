// The kernel without tensor cores: f32 and f64 exactly, integers, and mixtures. A block of 256 threads
// computes 64 x 64 elements, each thread 4 x 4 of them.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

static constexpr int64_t tileSize = 64, tileDepth = 16, threads = 256;
static constexpr int64_t pitch = tileSize + 4; // 16-byte rows, banks shifted

static std::string converted(const Operand &operand, const std::string &pointer, const std::string &offset) {
  const std::string loaded = loadElement(operand.type, pointer, offset), sum = sumType(operand.type);
  if (isFloat(operand.type))
    return loaded;
  return fmt::format("({})({}){}", sum, sum == "u32" ? "i32" : "i64", loaded);
}

static void loadTile(KernelWriter &writer, const Problem &problem, bool isA) {
  const Operand &operand = isA ? problem.a : problem.b;
  const bool kFast = isA ? operand.columnStride == Dim(1) : operand.rowStride == Dim(1);
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", tileSize * tileDepth / threads));
  writer.line(fmt::format("const int e = i * {} + thread;", threads));
  writer.line(kFast ? fmt::format("const int r = e / {0}, c = e % {0};", tileDepth)
                    : fmt::format("const int r = e % {0}, c = e / {0};", tileSize));
  writer.line(fmt::format("{} value = 0;", sumType(operand.type)));
  const char *first = isA ? "rowStart" : "columnStart";
  writer.line(fmt::format("if ({} + r < {} && k0 + c < {}) {{", first,
                          writer.size(isA ? problem.m : problem.n), writer.size(problem.k)));
  std::string across, along;
  if (isA) {
    writer.line("const i64 row = rowStart + r;");
    across = rowOffset(writer, problem, "row");
    along = scaled(writer, "(k0 + c)", operand.columnStride);
  } else {
    across = scaled(writer, "(columnStart + r)", operand.columnStride);
    along = scaled(writer, "(k0 + c)", operand.rowStride);
  }
  const std::string offset = (across.empty() ? "0" : across) + (along.empty() ? "" : " + " + along);
  writer.line(fmt::format("value = {};", converted(operand, isA ? "a" : "b", offset)));
  writer.line("}");
  writer.line(fmt::format("tile{}[c * {} + r] = value;", isA ? "A" : "B", pitch));
  writer.line("}");
}

KernelDraft emitFma(const Region &region, const KernelContext &context, const Problem &problem) {
  KernelWriter writer(region);
  Epilogue epilogue(region, context, problem, writer);
  const std::string type = sumType(problem.a.type);
  writer.comment(problem.op);
  writer.line(fmt::format("SHARED({}, tileA, {});", type, tileDepth * pitch));
  writer.line(fmt::format("SHARED({}, tileB, {});", type, tileDepth * pitch));
  writer.line("const int thread = (int)thread_x(), mine = thread / 16 * 4, across = thread % 16 * 4;");
  emitBlockPlace(writer, problem, tileSize, tileSize);
  emitBases(writer, problem);
  writer.line(fmt::format("{} sum[4][4];", type));
  writer.line("#pragma unroll");
  writer.line("for (int i = 0; i < 4; ++i)");
  writer.line("  sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0;");
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  writer.line(fmt::format("for (i64 k0 = 0; k0 < {}; k0 += {}) {{", writer.size(problem.k), tileDepth));
  loadTile(writer, problem, true);
  loadTile(writer, problem, false);
  writer.line("barrier();");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", tileDepth));
  const int64_t vector = type == "f64" || type == "u64" ? 2 : 4; // 16 bytes
  for (const char *side : {"A", "B"}) {
    const char *name = side[0] == 'A' ? "left" : "right", *first = side[0] == 'A' ? "mine" : "across";
    if (vector == 4) {
      writer.line(fmt::format("const Vec<{0}, 4> {1} = load_vec<{0}, 4>(tile{2} + k * {3} + {4});", type,
                              name, side, pitch, first));
    } else {
      writer.line(fmt::format("const {0} {1}[4] = {{tile{2}[k * {3} + {4}], tile{2}[k * {3} + {4} + 1], "
                              "tile{2}[k * {3} + {4} + 2], tile{2}[k * {3} + {4} + 3]}};",
                              type, name, side, pitch, first));
    }
  }
  writer.line("#pragma unroll");
  writer.line("for (int i = 0; i < 4; ++i)");
  writer.line("#pragma unroll");
  writer.line("  for (int j = 0; j < 4; ++j)");
  writer.line(isFloat(problem.a.type) ? "    sum[i][j] = fma_(left[i], right[j], sum[i][j]);"
                                      : "    sum[i][j] += left[i] * right[j];");
  writer.line("}");
  writer.line("barrier();");
  writer.line("}");
  writer.line("#pragma unroll");
  writer.line("for (int i = 0; i < 4; ++i) {");
  writer.line("#pragma unroll");
  writer.line("for (int j = 0; j < 4; ++j) {");
  writer.line("const i64 m = rowStart + mine + i, n = columnStart + across + j;");
  writer.line(fmt::format("if (m < {} && n < {}) {{", writer.size(problem.m), writer.size(problem.n)));
  epilogue.emit(resultLine(writer, problem, "m"), "n", "sum[i][j]");
  for (int i = 0; i < 3; ++i)
    writer.line("}");
  KernelDraft draft = writer.finish("matmul", threads);
  draft.gridX = blockCount(problem, tileSize, tileSize);
  return draft;
}

} // namespace fusion::matmul
