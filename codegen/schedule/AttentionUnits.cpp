#include "codegen/schedule/AttentionUnits.h"

#include "codegen/ScalarCode.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

/// How many come to one cluster: about as many blocks as a large GPU has multiprocessors are to share all keys, since a
/// block more costs more than it brings.
static Dim unitsPerCluster(const Dim &units) {
  auto reaches = [&](int64_t limit) { return Dim::min(1, units.floorDiv(limit)); };
  return Dim(1) + reaches(17) + reaches(33) * Dim(2) + reaches(67) * Dim(4);
}

Units::Units(const Problem &problem, KernelWriter &writer, Code &code, int64_t tileRows, int64_t warps,
             uint32_t resident)
    : problem(problem), writer(writer), code(code), tileRows(tileRows), warps(warps), resident(resident) {
  count = problem.rows.ceilDiv(tileRows) * problem.kvHeads * problem.batch;
  // Below sm_90 there are no clusters.
  perCluster = problem.context.arch < 90 ? Dim(clusterBlocks) : unitsPerCluster(count);
}

void Units::place() {
  writer.line(fmt::format("constexpr bool clusters = cluster_blocks<{}> > 1;", clusterBlocks));
  writer.line(fmt::format("// Of {} blocks as many share the keys of one unit, a tile of rows of one key/value head.", clusterBlocks));
  writer.line(fmt::format("const u32 perCluster = (u32){}, blocks = {}u / perCluster, rank = block_x() % {}u;",
                          writer.size(perCluster), clusterBlocks, clusterBlocks));
  writer.line("if (!clusters && rank % blocks != 0)");
  writer.line("  return;");
  writer.line("const int sharing = clusters ? (int)blocks : 1, share = clusters ? (int)(rank % blocks) : 0;");
  writer.line("const u32 firstRank = rank - (u32)share;");
  writer.line(fmt::format("const u32 wantedUnit = block_x() / {}u * perCluster + rank / blocks, units = (u32){};", clusterBlocks,
                          writer.size(count)));
  writer.line("const bool isUnit = wantedUnit < units;");
  writer.line("const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;");
  code.place(tileRows, "isUnit ? wantedUnit : units - 1");
  code.keyAndValueRows();
  code.keyBounds(tileRows);
  writer.line("const i64 stop = isUnit ? end : first;");
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
  const int64_t width = problem.valueDepth, most = llvm::divideCeil(tileRows, clusterBlocks) * clusterBlocks;
  writer.line(fmt::format("const int ownRows = ({} + sharing - 1) / sharing;", tileRows));
  writer.line(fmt::format("SHARED(f32, blockTops, {});", clusterBlocks * tileRows));
  writer.line(fmt::format("SHARED(f32, blockTotals, {});", clusterBlocks * tileRows));
  writer.line(fmt::format("SHARED(f32, blockSums, {});", most * width));
  writer.line("cluster_wait(); // until all have started");
  writer.line("barrier();");
  writer.line(fmt::format("if (thread < {}) {{", tileRows));
  writer.line("f32 top = -inf_f32(), all = 0.f;");
  writer.line(fmt::format("for (int w = 0; w < {}; ++w)", warps));
  writer.line(fmt::format("  top = max_nan(top, tops[w * {} + thread]);", tileRows));
  writer.line(fmt::format("for (int w = 0; w < {}; ++w)", warps));
  writer.line(fmt::format("  all = all + totals[w * {0} + thread] * weight_of(tops[w * {0} + thread], top);", tileRows));
  writer.line(fmt::format("store_in_cluster(&blockTops[share * {} + thread], firstRank + (u32)(thread % sharing), top);", tileRows));
  writer.line(fmt::format("store_in_cluster(&blockTotals[share * {} + thread], firstRank + (u32)(thread % sharing), all);", tileRows));
  writer.line("}");
  writer.line(fmt::format("const int rowsHere = lastRow - row0 < {0} ? (int)(lastRow - row0) + 1 : {0};", tileRows));
  writer.line(fmt::format("for (int e = thread; e < rowsHere * {}; e += {}) {{", width, 32 * warps));
  writer.line(fmt::format("const int r = e / {0}, c = e % {0};", width));
  writer.line("f32 sum = 0.f;");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int w = 0; w < {}; ++w)", warps));
  writer.line(fmt::format("  sum = sum + sums[(w * {} + r) * {} + c];", tileRows, pitch()));
  writer.line(fmt::format("store_in_cluster(&blockSums[(share * ownRows + r / sharing) * {} + c], firstRank + (u32)(r % sharing), sum);", width));
  writer.line("}");
  writer.line("cluster_arrive();");
  writer.line("cluster_wait();");
  writer.line(fmt::format("for (int e = thread; e < ownRows * {}; e += {}) {{", width, 32 * warps));
  writer.line(fmt::format("const int r = e / {0} * sharing + share, c = e % {0};", width));
  writer.line("if (r >= rowsHere || !isUnit)");
  writer.line("  break;");
  writer.line("f32 top = -inf_f32(), all = 0.f, value = 0.f;");
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
  KernelDraft draft = writer.finish("attention", static_cast<uint32_t>(32 * warps), resident, clusterBlocks);
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(std::max(bytes, sumBytes()));
  draft.gridX = count.ceilDiv(perCluster) * Dim(clusterBlocks);
  return draft;
}

} // namespace fusion::attention
