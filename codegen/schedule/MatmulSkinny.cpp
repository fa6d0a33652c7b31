// The kernel for a few rows of A: each warp computes one column of the result, reading its row of transposed
// B once, in 16-byte pieces.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

static constexpr int64_t threads = 128, warps = threads / 32;

bool isSkinny(const Problem &problem) {
  std::optional<int64_t> m = problem.m.constant();
  return m && *m >= 1 && *m <= 8 && isFloat(problem.a.type) && sumType(problem.a.type) == "f32" &&
         problem.b.rowStride == Dim(1) && (problem.a.columnStride == Dim(1) || *m == 1);
}

/// Elements of B in 16 bytes, if A and B can be read in pieces of as many; else 1.
static int64_t pieceLength(const Problem &problem) {
  const int64_t length = 16 / static_cast<int64_t>(byteSize(problem.b.type));
  auto fits = [&](const Dim &stride) { return stride.knownMultipleOf(length); };
  bool whole = problem.k.knownMultipleOf(length) && fits(problem.a.offset) && fits(problem.b.offset) &&
               problem.a.columnStride == Dim(1) && (problem.n == Dim(1) || fits(problem.b.columnStride));
  for (const auto &[dim, stride] : llvm::zip(problem.rowDims, problem.rowStrides))
    whole = whole && (dim == Dim(1) || fits(stride));
  for (const Operand *operand : {&problem.a, &problem.b})
    whole = whole && llvm::all_of(operand->batchStrides, fits);
  return whole ? length : 1;
}

KernelDraft emitSkinny(const Region &region, const KernelContext &context, const Problem &problem) {
  KernelWriter writer(region);
  Epilogue epilogue(region, context, problem, writer);
  const int64_t m = problem.m.value(), length = pieceLength(problem);
  const std::string n = writer.size(problem.n), groups = writer.size(problem.n.ceilDiv(warps));
  writer.comment(problem.op);
  writer.line("const i64 lane = lane_id();");
  if (!problem.batch.empty())
    writer.line(fmt::format("const i64 z = block_x() / {};", groups));
  writer.line(fmt::format("const i64 place = (i64)block_x(){} * {} + thread_x() / 32u;",
                          problem.batch.empty() ? "" : " % " + groups, warps));
  writer.line(fmt::format("const i64 n = place < {0} ? place : {0} - 1;", n));
  emitBases(writer, problem);
  const std::string column = scaled(writer, "n", problem.b.columnStride);
  writer.line(fmt::format("const {} *columnB = b + {};", sourceType(problem.b.type).str(),
                          column.empty() ? "0" : column));
  for (int64_t i = 0; i < m; ++i)
    writer.line(fmt::format("const {} *row{} = a + {};", sourceType(problem.a.type).str(), i,
                            rowOffset(writer, problem, std::to_string(i))));
  for (int64_t i = 0; i < m; ++i)
    writer.line(fmt::format("f32 sum{} = 0.f;", i));
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  writer.line("#pragma unroll 4");
  writer.line(fmt::format("for (i64 k = lane * {0}; k < {1}; k += {2}) {{", length, writer.size(problem.k),
                          32 * length));
  auto wide = [](DType type, const std::string &element) {
    return type == DType::F32 ? element : "to_f32(" + element + ")";
  };
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
  load(problem.b, "right", "columnB", problem.b.rowStride);
  for (int64_t i = 0; i < m; ++i)
    load(problem.a, fmt::format("left{}", i), fmt::format("row{}", i), problem.a.columnStride);
  if (length > 1) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int e = 0; e < {}; ++e) {{", length));
  }
  const std::string at = length > 1 ? "[e]" : "";
  writer.line(fmt::format("const f32 factor = {};", wide(problem.b.type, "right" + at)));
  for (int64_t i = 0; i < m; ++i)
    writer.line(fmt::format("sum{0} = fma_({1}, factor, sum{0});", i,
                            wide(problem.a.type, fmt::format("left{}{}", i, at))));
  if (length > 1)
    writer.line("}");
  writer.line("}");
  for (int64_t i = 0; i < m; ++i)
    writer.line(fmt::format("const f32 total{0} = warp_sum(sum{0});", i));
  writer.line(fmt::format("if (lane == 0 && place < {}) {{", n));
  for (int64_t i = 0; i < m; ++i)
    epilogue.emit(resultLine(writer, problem, std::to_string(i)), "n", fmt::format("total{}", i));
  writer.line("}");
  KernelDraft draft = writer.finish("matmul", threads);
  draft.gridX = problem.n.ceilDiv(warps) * problem.batchCount();
  return draft;
}

} // namespace fusion::matmul
