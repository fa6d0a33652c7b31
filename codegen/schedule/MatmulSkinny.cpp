// The kernel for a few rows of A: each warp computes one column of the result, reading its row of transposed
// B once, in 16-byte pieces.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

static constexpr int64_t threads = 128, warps = threads / 32;

int64_t skinnyRows(const Problem &problem) {
  if (!isFloat(problem.a.value()) || sumType(problem.a.value()) != "f32" || problem.b.rowStride != Dim(1))
    return 0;
  if (problem.a.columnStride != Dim(1))
    return 1;
  return problem.together ? 4 : 8;
}

int64_t fewRows(const Problem &problem) { return std::max(skinnyRows(problem), stripRows(problem)); }

bool isSkinny(const Problem &problem) {
  return problem.leastRows >= 1 && problem.mostRows <= skinnyRows(problem);
}

/// Elements of B in 16 bytes, if A and B can be read in pieces of as many; else 1.
static int64_t pieceLength(const Problem &problem) {
  const int64_t length = 16 / static_cast<int64_t>(byteSize(problem.b.type));
  auto fits = [&](const Dim &stride) { return stride.knownMultipleOf(length); };
  bool whole =
      problem.k.knownMultipleOf(length) && fits(problem.a.offset) && problem.a.columnStride == Dim(1);
  for (const Product &product : problem.products)
    whole = whole && fits(product.b.offset) && (product.n == Dim(1) || fits(product.b.columnStride));
  for (const auto &[dim, stride] : llvm::zip(problem.rowDims, problem.rowStrides))
    whole = whole && (dim == Dim(1) || fits(stride));
  for (const Operand *operand : {&problem.a, &problem.b})
    whole = whole && llvm::all_of(operand->batchStrides, fits);
  return whole ? length : 1;
}

KernelDraft emitSkinny(const Region &region, const KernelContext &context, const Problem &problem) {
  KernelWriter writer(region, context.inputs);
  Epilogue epilogue(region, context, problem, writer);
  const int64_t m = problem.mostRows, length = pieceLength(problem);
  auto isCertain = [&](int64_t row) { return row < problem.leastRows; };
  const std::string groups = writer.size(problem.n.ceilDiv(warps));
  writer.comment(problem.op);
  writer.line("const i64 lane = lane_id();");
  if (!problem.batch.empty())
    writer.line(fmt::format("const i64 z = block_x() / {};", groups));
  if (problem.sideBySide())
    emitProductChoice(writer, problem, "block_x()", warps);
  writer.line(fmt::format("const i64 wanted = {}{} * {} + thread_x() / 32u;",
                          problem.sideBySide() ? "part" : "(i64)block_x()",
                          problem.batch.empty() ? "" : " % " + groups, warps));
  const std::string width = widthText(writer, problem);
  writer.line(fmt::format("const i64 n = wanted < {0} ? wanted : {0} - 1;", width));
  emitBases(writer, problem);
  for (size_t s = 0; s < problem.sums(); ++s) {
    const std::string column = problem.together ? scaled(writer, "n", problem.products[s].b.columnStride)
                                                : alongN(writer, problem, "n");
    writer.line(pointerDeclaration(problem.b.type, problem.b.packed, numbered("columnB", s),
                                   numbered("b", s) + " + " + (column.empty() ? "0" : column)));
  }
  auto total = [](const char *stem, int64_t row, size_t s) {
    return fmt::format("{}{}", stem, row) + (s == 0 ? "" : fmt::format("_{}", s));
  };
  emitRows(writer, problem);
  for (int64_t i = 0; i < m; ++i)
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("f32 {} = 0.f;", total("sum", i, s)));
  emitAhead(writer, region, context, problem, threads);
  writer.line("pdl_launch_dependents();");
  writer.line(problem.together ? "#pragma unroll 2" : "#pragma unroll 4");
  writer.line(fmt::format("for (i64 k = lane * {0}; k < {1}; k += {2}) {{", length, writer.size(problem.k),
                          32 * length));
  auto load = [&](const Operand &operand, const std::string &name, const std::string &pointer,
                  const Dim &stride) {
    const std::string type = sourceType(operand.type).str(), offset = scaled(writer, "k", stride);
    if (length > 1)
      writer.line(
          fmt::format("const Vec<{0}, {1}> {2} = load_vec<{0}, {1}>({3} + k);", type, length, name, pointer));
    else
      writer.line(
          fmt::format("const {} {} = load({} + {});", type, name, pointer, offset.empty() ? "0" : offset));
  };
  for (size_t s = 0; s < problem.sums(); ++s)
    load(problem.b, numbered("right", s), numbered("columnB", s), problem.b.rowStride);
  for (int64_t i = 0; i < m; ++i)
    load(problem.a, fmt::format("left{}", i), fmt::format("row{}", i), problem.a.columnStride);
  if (length > 1) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int e = 0; e < {}; ++e) {{", length));
  }
  const std::string at = length > 1 ? "[e]" : "", inner = length > 1 ? "e" : "";
  for (size_t s = 0; s < problem.sums(); ++s) {
    const std::string factor = numbered("factor", s);
    writer.line(fmt::format("const f32 {} = {};", factor,
                            factorText(writer, problem, false, s, numbered("right", s) + at, "n", inner, length)));
    for (int64_t i = 0; i < m; ++i)
      writer.line(fmt::format("{0} = fma_({1}, {2}, {0});", total("sum", i, s),
                              factorText(writer, problem, true, s, fmt::format("left{}{}", i, at), rowText(problem, i),
                                         inner, length),
                              factor));
  }
  if (length > 1)
    writer.line("}");
  writer.line("}");
  for (int64_t i = 0; i < m; ++i)
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("const f32 {} = warp_sum({});", total("total", i, s), total("sum", i, s)));
  writer.line(fmt::format("if (lane == 0 && wanted < {}) {{", width));
  forStoredProducts(writer, problem, [&](size_t first) {
    for (int64_t i = 0; i < m; ++i) {
      llvm::SmallVector<std::string> sums;
      for (size_t s = 0; s < problem.sums(); ++s)
        sums.push_back(total("total", i, s));
      if (!isCertain(i))
        writer.line(fmt::format("if ({} < {}) {{", i, writer.size(problem.m)));
      epilogue.emit(resultLine(writer, problem, std::to_string(i)), "n", sums, first);
      if (!isCertain(i))
        writer.line("}");
    }
  });
  writer.line("}");
  KernelDraft draft = writer.finish("matmul", threads);
  draft.gridX = columnBlocks(problem, warps) * problem.batchCount();
  return draft;
}

} // namespace fusion::matmul
