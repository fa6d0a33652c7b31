// The kernel for a few rows of A where the rows of B are contiguous: a block computes a strip of columns. Its threads
// share out K, each reading 16-byte pieces of several rows of B at a time, and add up their parts in the end.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

/// Blocks that a large GPU wants: one for each multiprocessor, about.
static constexpr int64_t wantedBlocks = 128;

int64_t stripRows(const Problem &problem) {
  const bool rowsContiguous = problem.b.columnStride == Dim(1) && problem.b.rowStride != Dim(1);
  if (!rowsContiguous || !isFloat(problem.a.value()) || sumType(problem.a.value()) != "f32")
    return 0;
  return problem.together ? 4 : 8;
}

bool isStrip(const Problem &problem) {
  return problem.leastRows >= 1 && problem.mostRows <= stripRows(problem);
}

namespace {
/// How a block's threads share out its strip of B.
struct Sharing {
  int64_t width;    ///< columns that a thread reads at once
  int64_t depth;    ///< neighbouring rows that it reads at once
  int64_t columns;  ///< of the strip
  int64_t threads;  ///< of the block
  int64_t lanes() const { return columns / width; }  ///< threads side by side
  int64_t slices() const { return 32 / lanes(); }    ///< of K, in a warp
  int64_t warps() const { return threads / 32; }
};

/// Elements of 16 bytes, at most 8, if every row of B starts at a multiple of them; else 1.
int64_t pieceOfB(const Problem &problem) {
  const int64_t length = std::min<int64_t>(8, 16 / static_cast<int64_t>(byteSize(problem.b.type)));
  auto fits = [&](const Dim &dim) { return dim.knownMultipleOf(length); };
  bool whole = llvm::all_of(problem.b.batchStrides, fits);
  for (const Product &product : problem.products)
    whole = whole && fits(product.b.offset) && fits(product.b.rowStride) && fits(product.n);
  return whole ? length : 1;
}

/// The same for the rows of A, and for K.
int64_t pieceOfA(const Problem &problem) {
  const int64_t length = std::min<int64_t>(8, 16 / static_cast<int64_t>(byteSize(problem.a.type)));
  auto fits = [&](const Dim &dim) { return dim.knownMultipleOf(length); };
  bool whole = problem.a.columnStride == Dim(1) && fits(problem.k) && fits(problem.a.offset) &&
               llvm::all_of(problem.a.batchStrides, fits);
  for (const auto &[dim, stride] : llvm::zip(problem.rowDims, problem.rowStrides))
    whole = whole && (dim == Dim(1) || fits(stride));
  return whole ? length : 1;
}

Sharing chooseSharing(const Problem &problem) {
  Sharing sharing{pieceOfB(problem), pieceOfA(problem), 64, 256};
  auto blocks = [&](int64_t columns) { return columnBlocks(problem, columns).constant(); };
  while (sharing.columns > 16 && blocks(sharing.columns) && *blocks(sharing.columns) < wantedBlocks)
    sharing.columns /= 2;
  sharing.columns = std::min(sharing.columns, 32 * sharing.width);
  const int64_t sums = problem.mostRows * sharing.width * static_cast<int64_t>(problem.sums());
  if (sums <= 16) // registers are left for more loads in flight
    sharing.threads = 512;
  // The threads' parts beside rows of A that the block computes, and a KiB for the reductions of these.
  auto parts = [&] {
    return sharing.warps() * problem.mostRows * sharing.columns * 4 * static_cast<int64_t>(problem.sums());
  };
  while (!problem.ahead.empty() && sharing.columns > sharing.width && parts() + bytesAhead(problem) > (47 << 10))
    sharing.columns /= 2;
  return sharing;
}
} // namespace

KernelDraft emitStrip(const Region &region, const KernelContext &context, const Problem &problem) {
  KernelWriter writer(region, context.inputs);
  Epilogue epilogue(region, context, problem, writer);
  const Sharing share = chooseSharing(problem);
  const int64_t rows = problem.mostRows;
  const std::string typeA = sourceType(problem.a.type).str(), typeB = sourceType(problem.b.type).str();
  writer.comment(problem.op);
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("SHARED(f32, {}, {});", numbered("parts", s), share.warps() * rows * share.columns));
  writer.line("const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;");
  writer.line(fmt::format("const int slice = warp * {0} + lane % {0}, mine = lane / {0} * {1};", share.slices(),
                          share.width));
  emitStripPlace(writer, problem, share.columns);
  const std::string width = widthText(writer, problem);
  writer.line("// Columns beyond the last are not stored.");
  writer.line(fmt::format("const i64 column = columnStart + mine < {0} ? columnStart + mine : 0;", width));
  emitBases(writer, problem);
  emitRows(writer, problem);
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("f32 {}[{}][{}] = {{}};", numbered("sum", s), rows, share.width));
  emitAhead(writer, region, context, problem, share.threads);
  if (share.depth == 1)
    writer.line("#pragma unroll 4");
  writer.line(fmt::format("for (i64 k = slice * {0}; k < {1}; k += {2}) {{", share.depth, writer.size(problem.k),
                          share.warps() * share.slices() * share.depth));
  for (size_t s = 0; s < problem.sums(); ++s) {
    writer.line(fmt::format("Vec<{}, {}> {}[{}];", typeB, share.width, numbered("right", s), share.depth));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int d = 0; d < {}; ++d)", share.depth));
    const std::string row = problem.together ? scaled(writer, "(k + d)", problem.products[s].b.rowStride)
                                             : alongK(writer, problem, "(k + d)");
    writer.line(fmt::format("  {}[d] = load_vec<{}, {}>({} + {} + column);", numbered("right", s), typeB,
                            share.width, numbered("b", s), row.empty() ? "0" : row));
  }
  for (int64_t i = 0; i < rows; ++i) {
    const std::string along = scaled(writer, "k", problem.a.columnStride);
    writer.line(fmt::format("const Vec<{0}, {1}> left{2} = load_vec<{0}, {1}>(row{2} + {3});", typeA, share.depth, i,
                            along.empty() ? "0" : along));
  }
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int d = 0; d < {}; ++d) {{", share.depth));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int e = 0; e < {}; ++e) {{", share.width));
  for (size_t s = 0; s < problem.sums(); ++s) {
    const std::string factor = numbered("factor", s);
    writer.line(fmt::format("const f32 {} = {};", factor,
                            factorText(writer, problem, false, s, numbered("right", s) + "[d][e]", "(column + e)", "d",
                                       share.depth)));
    for (int64_t i = 0; i < rows; ++i)
      writer.line(fmt::format("{0}[{1}][e] = fma_({2}, {3}, {0}[{1}][e]);", numbered("sum", s), i,
                              factorText(writer, problem, true, s, fmt::format("left{}[d]", i), rowText(problem, i),
                                         "d", share.depth),
                              factor));
  }
  for (int i = 0; i < 3; ++i)
    writer.line("}");

  // Not before: blocks of the next kernel, waiting, would take the place of this one's that still have to start.
  writer.line("pdl_launch_dependents();");
  writer.line("// A warp's slices in registers, the warps' in shared memory.");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int r = 0; r < {}; ++r) {{", rows));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int e = 0; e < {}; ++e) {{", share.width));
  for (size_t s = 0; s < problem.sums(); ++s) {
    writer.line(fmt::format("const f32 {} = lanes_sum<{}>({}[r][e]);", numbered("part", s), share.slices(),
                            numbered("sum", s)));
    writer.line(fmt::format("if (lane % {} == 0)", share.slices()));
    writer.line(fmt::format("  {}[(warp * {} + r) * {} + mine + e] = {};", numbered("parts", s), rows, share.columns,
                            numbered("part", s)));
  }
  writer.line("}");
  writer.line("}");
  writer.line("barrier();");
  writer.line(fmt::format("for (int i = thread; i < {}; i += {}) {{", rows * share.columns, share.threads));
  writer.line(fmt::format("const i64 m = i / {0}, n = columnStart + i % {0};", share.columns));
  llvm::SmallVector<std::string> totals;
  for (size_t s = 0; s < problem.sums(); ++s) {
    totals.push_back(numbered("total", s));
    writer.line(fmt::format("f32 {} = 0.f;", totals.back()));
    writer.line(fmt::format("for (int w = 0; w < {}; ++w)", share.warps()));
    writer.line(fmt::format("  {} += {}[w * {} + i];", totals.back(), numbered("parts", s), rows * share.columns));
  }
  const bool allRows = problem.leastRows == problem.mostRows;
  writer.line(fmt::format("if ({}n < {}) {{", allRows ? "" : fmt::format("m < {} && ", writer.size(problem.m)),
                          width));
  forStoredProducts(writer, problem,
                    [&](size_t first) { epilogue.emit(resultLine(writer, problem, "m"), "n", totals, first); });
  writer.line("}");
  writer.line("}");
  KernelDraft draft = writer.finish("matmul", static_cast<uint32_t>(share.threads));
  draft.gridX = columnBlocks(problem, share.columns) * problem.batchCount();
  return draft;
}

} // namespace fusion::matmul
