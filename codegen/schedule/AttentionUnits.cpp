#include "codegen/schedule/AttentionUnits.h"

#include "codegen/ScalarCode.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

/// Below sm_90 there are no clusters.
static int64_t blocksFor(const Problem &problem) {
  int64_t blocks = problem.context.arch < 90 ? 1 : 8;
  for (int64_t limit : pairLimits)
    if (problem.mostPairs > limit && blocks > 1)
      blocks /= 2;
  return blocks;
}

Units::Units(const Problem &problem, KernelWriter &writer, Code &code, int64_t tileRows, int64_t warps,
             uint32_t resident)
    : problem(problem), writer(writer), code(code), tileRows(tileRows), warps(warps), resident(resident),
      blocks(blocksFor(problem)) {}

void Units::place() {
  writer.line(fmt::format("constexpr int sharing = cluster_blocks<{}>; // the keys of a unit, a tile of rows of one key/value head", blocks));
  if (blocks > 1) {
    writer.line(fmt::format("if (sharing == 1 && block_x() % {}u != 0)", blocks));
    writer.line("  return;");
  }
  writer.line(fmt::format("const int share = {};", blocks > 1 ? "(int)cluster_rank()" : "0"));
  writer.line("const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;");
  code.place(tileRows, blocks > 1 ? fmt::format("block_x() / {}u", blocks) : "block_x()");
  code.keyAndValueRows();
  code.keyBounds(tileRows);
  writer.line("cluster_arrive();");
}

void Units::declareResults() {
  writer.line(fmt::format("SHARED(f32, tops, {});", warps * tileRows));
  writer.line(fmt::format("SHARED(f32, totals, {});", warps * tileRows));
  writer.line("f32 *const sums = reinterpret_cast<f32 *>(dynamic_shared());");
}

void Units::factor(const std::string &r, const std::string &largest) {
  writer.line(fmt::format("f32 top = tops[{}];", r));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int w = 1; w < {}; ++w)", warps));
  writer.line(fmt::format("  top = max_nan(top, tops[w * {} + {}]);", tileRows, r));
  writer.line(fmt::format("const f32 factor = weight_of({}, top);", largest));
}

// Row r of the tile is finished by block r % sharing, to which the others send what they have.
void Units::merge() {
  const int64_t width = problem.valueDepth, most = llvm::divideCeil(tileRows, blocks) * blocks;
  writer.line(fmt::format("constexpr int ownRows = ({} + sharing - 1) / sharing;", tileRows));
  writer.line(fmt::format("SHARED(f32, blockTops, {});", blocks * tileRows));
  writer.line(fmt::format("SHARED(f32, blockTotals, {});", blocks * tileRows));
  writer.line(fmt::format("SHARED(f32, blockSums, {});", most * width));
  writer.line("cluster_wait(); // until all have started");
  writer.line("barrier();");
  writer.line(fmt::format("if (thread < {}) {{", tileRows));
  writer.line("f32 top = -inf_f32(), all = 0.f;");
  writer.line(fmt::format("for (int w = 0; w < {}; ++w)", warps));
  writer.line(fmt::format("  top = max_nan(top, tops[w * {} + thread]);", tileRows));
  writer.line(fmt::format("for (int w = 0; w < {}; ++w)", warps));
  writer.line(fmt::format("  all = all + totals[w * {0} + thread] * weight_of(tops[w * {0} + thread], top);", tileRows));
  writer.line(fmt::format("store_in_cluster(&blockTops[share * {} + thread], (u32)(thread % sharing), top);", tileRows));
  writer.line(fmt::format("store_in_cluster(&blockTotals[share * {} + thread], (u32)(thread % sharing), all);", tileRows));
  writer.line("}");
  writer.line(fmt::format("const int rowsHere = lastRow - row0 < {0} ? (int)(lastRow - row0) + 1 : {0};", tileRows));
  writer.line(fmt::format("for (int e = thread; e < rowsHere * {}; e += {}) {{", width, 32 * warps));
  writer.line(fmt::format("const int r = e / {0}, c = e % {0};", width));
  writer.line("f32 sum = 0.f;");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int w = 0; w < {}; ++w)", warps));
  writer.line(fmt::format("  sum = sum + sums[(w * {} + r) * {} + c];", tileRows, pitch()));
  writer.line(fmt::format("store_in_cluster(&blockSums[(share * ownRows + r / sharing) * {} + c], (u32)(r % sharing), sum);", width));
  writer.line("}");
  writer.line("cluster_arrive();");
  writer.line("cluster_wait();");
  writer.line(fmt::format("for (int e = thread; e < ownRows * {}; e += {}) {{", width, 32 * warps));
  writer.line(fmt::format("const int r = e / {0} * sharing + share, c = e % {0};", width));
  writer.line("if (r >= rowsHere)");
  writer.line("  break;");
  writer.line("f32 top = -inf_f32(), all = 0.f, value = 0.f;");
  writer.line("#pragma unroll");
  writer.line("for (int b = 0; b < sharing; ++b)");
  writer.line(fmt::format("  top = max_nan(top, blockTops[b * {} + r]);", tileRows));
  writer.line("for (int b = 0; b < sharing; ++b) {");
  writer.line(fmt::format("const f32 weight = weight_of(blockTops[b * {} + r], top);", tileRows));
  writer.line(fmt::format("all = all + weight * blockTotals[b * {} + r];", tileRows));
  writer.line(fmt::format("value = value + weight * blockSums[(b * ownRows + e / {0}) * {0} + c];", width));
  writer.line("}");
  writer.line("// Largest score -inf: a row in which nothing was kept.");
  writer.line(fmt::format("const f32 share = {};", code.share("top", "all")));
  writer.line("const i64 row = row0 + r;");
  writer.line(fmt::format("const i64 query = {}, head = {};", code.queryOf("row"), code.headOf("row")));
  writer.line(storeElement(dtype(nn::AttentionOp(problem.op).getY()), writer.output(0), code.resultOffset("head", "query", "c"), "(value * share)") + ";");
  writer.line("}");
}

KernelDraft Units::finish(int64_t bytes) {
  KernelDraft draft = writer.finish("attention", static_cast<uint32_t>(32 * warps), resident, static_cast<uint32_t>(blocks));
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(std::max(bytes, sumBytes()));
  draft.gridX = problem.rows.ceilDiv(tileRows) * problem.kvHeads * problem.batch * Dim(blocks);
  return draft;
}

} // namespace fusion::attention
