#include "codegen/schedule/AttentionTensor.h"

#include "codegen/ScalarCode.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

/// Whether all rows of the operand can be read in pieces of 16 bytes.
static bool liesInPieces(const View &view) {
  constexpr int64_t piece = 8;
  const auto outer = ArrayRef(view.strides).drop_back();
  return view.strides.back() == Dim(1) && view.shape.back().knownMultipleOf(piece) &&
         view.offset.knownMultipleOf(piece) &&
         llvm::all_of(llvm::zip(ArrayRef(view.shape).drop_back(), outer), [&](auto dim) {
           return std::get<0>(dim) == Dim(1) || std::get<1>(dim).knownMultipleOf(piece);
         });
}

std::optional<std::string> tensorRefusal(const Problem &problem) {
  nn::AttentionOp op = problem.op;
  const DType type = dtype(op.getQ());
  if (type != DType::F16 && type != DType::BF16)
    return std::string(name(type)) + " has no matrix products";
  if (dtype(op.getK()) != type || dtype(op.getV()) != type || dtype(op.getY()) != type)
    return std::string("operands of several types");
  if (!problem.group.constant())
    return std::string("the number of heads that share keys is not static");
  for (auto [operand, what] :
       {std::pair(op.getQ(), "queries"), std::pair(op.getK(), "keys"), std::pair(op.getV(), "values")})
    if (!liesInPieces(problem.view(operand)))
      return fmt::format("the {} cannot be read 16 bytes at a time", what);
  for (Operation *later : problem.region.ops)
    if (auto transpose = dyn_cast<nn::TransposeOp>(later); transpose && transpose.getPerm().back() != 3)
      return std::string("the result's rows do not lie side by side");
  return std::nullopt;
}

static int64_t padded(int64_t width) { return (width + 15) / 16 * 16; }

/// As much as the registers of a thread take: of a 16 x 8 piece of scores or sums it holds 4 elements. Of the two, warps
/// with 32 rows are better: what they read of shared memory serves twice the products.
static Tiling chooseTiling(int64_t width, bool finished, uint32_t arch) {
  if (arch == 90)
    return {true, 8, 1, width > 128 || finished ? 64 : 128, 1};
  if (width > 128) {
    // Machines of 100 KiB of shared memory take half the rows.
    const bool isSmall = arch != 80 && arch != 87 && arch != 90 && arch != 100;
    return {false, isSmall ? 4 : 8, 1, finished ? 16 : 32, 1};
  }
  if (width > 96 && finished)
    return {false, 8, 1, 32, 1};
  return {false, 4, 2, width > 96 || finished ? 32 : 64, 2};
}

/// Rows 16 bytes longer than needed: ldmatrix then meets every bank once. Warpgroups read whole panels of 64 columns.
static int64_t pitchOf(int64_t width, const Tiling &tile) {
  return tile.grouped ? (width + 63) / 64 * 64 : width + 8;
}

TensorEmitter::TensorEmitter(const Problem &problem)
    : problem(problem), op(problem.op), type(dtype(op.getQ())), depth(padded(problem.depth)),
      valueDepth(padded(problem.valueDepth)),
      finished(op.getMask() || op.getSoftcap().convertToDouble() > 0 || op.getScale().convertToDouble() <= 0),
      tile(chooseTiling(std::max(depth, valueDepth), finished, problem.context.arch)),
      pitchK(pitchOf(depth, tile)), pitchV(pitchOf(valueDepth, tile)), writer(problem.region), code(problem, writer) {}

/// Where row `row`, column `column` (a multiple of 8) of a tile of `rows` rows lies in it.
std::string TensorEmitter::tilePlace(int64_t rows, int64_t pitch, const std::string &row, const std::string &column) const {
  if (!tile.grouped)
    return fmt::format("({}) * {} + {}", row, pitch, column);
  return fmt::format("{1} / 64 * {2} + ({0}) * 64 + ({1} % 64 / 8 ^ ({0}) % 8) * 8", row, column, 64 * rows);
}

/// The row of the problem that half `half` (0, 1) of a thread's tile has.
std::string TensorEmitter::rowOf(const std::string &tile, const std::string &half) const {
  return fmt::format("row0 + warpRow + {} * 16 + {} * 8 + lane / 4", tile, half);
}

// A head has fewer than 2^31 rows and keys.
void TensorEmitter::place() {
  writer.line("const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;");
  writer.line(fmt::format("// A row is one query of one of the {} heads that share keys.", writer.size(problem.group)));
  writer.line(fmt::format("const u32 block = block_x(), tiles = (u32){}, kvHeads = (u32){};",
                          writer.size(problem.rows.ceilDiv(tile.rows())), writer.size(problem.kvHeads)));
  if (op.getCausal()) {
    writer.line("// Tiles that look at the most keys first.");
    writer.line(fmt::format("const u32 kvHeadsOfAll = kvHeads * (u32){};", writer.size(problem.batch)));
    writer.line(fmt::format("const int row0 = (int)(tiles - 1 - block / kvHeadsOfAll) * {};", tile.rows()));
    writer.line("const i64 kvHead = block % kvHeads, entry = block % kvHeadsOfAll / kvHeads;");
  } else {
    writer.line(fmt::format("const int row0 = (int)(block % tiles) * {};", tile.rows()));
    writer.line("const i64 kvHead = block / tiles % kvHeads, entry = block / (tiles * kvHeads);");
  }
  writer.line(fmt::format("const int lastRow = (int){} - 1, keyCount = (int){};", writer.size(problem.rows),
                          writer.size(problem.keys)));
  writer.line(fmt::format("const int warpRow = warp * {};", 16 * tile.warpTiles));
  writer.line("// Query i looks at keys around i + shift.");
  writer.line(fmt::format("const int shift = keyCount - (int){};", writer.size(problem.queries)));
}

/// `copyKeys(j0, stage)`: starts the copies of the tile of keys or values that begins at j0, zeros beyond the edges.
void TensorEmitter::copies(const char *name, Value operand, int64_t width, int64_t padded) {
  const int64_t perRow = padded / 8;
  int64_t rowsAtOnce = std::min(tile.threads() / perRow, tile.keys);
  if (tile.grouped) // the order of the pieces in a row is then the same for all of a thread's
    rowsAtOnce = rowsAtOnce / 8 * 8;
  const int64_t passes = (tile.keys + rowsAtOnce - 1) / rowsAtOnce;
  const bool isKeys = operand == op.getK();
  const int64_t pitch = isKeys ? pitchK : pitchV;
  const char *rows = isKeys ? "keyRows" : "valueRows", *to = isKeys ? "keyTile" : "valueTile";
  const std::string stride = writer.size(problem.view(operand).strides[2]);
  writer.line(fmt::format("auto {} = [&](int j0, int stage) {{", name));
  writer.line(fmt::format("const int r = thread / {0}, c = thread % {0} * 8;", perRow));
  if (rowsAtOnce * perRow < tile.threads())
    writer.line(fmt::format("if (thread >= {}) return;", rowsAtOnce * perRow));
  writer.line(fmt::format("const {} *from = {} + (i64)(j0 + r) * {} + c;", sourceType(type).str(), rows, stride));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; i += {}) {{", tile.keys, rowsAtOnce));
  const std::string copy =
      fmt::format("cp_async_16({0} + stage * {1} + {2}, from, j0 + r + i < keyCount{3});", to, tile.keys * pitch,
                  tilePlace(tile.keys, pitch, "r + i", "c"), width < padded ? fmt::format(" && c < {}", width) : "");
  writer.line(passes * rowsAtOnce > tile.keys ? fmt::format("if (r + i < {}) {}", tile.keys, copy) : copy);
  writer.line(fmt::format("from += {} * {};", rowsAtOnce, stride));
  writer.line("}");
  writer.line("};");
}

void TensorEmitter::copyNext() {
  writer.line(fmt::format("if (j0 + {} < (int)end) {{", tile.keys));
  writer.line(fmt::format("copyKeys(j0 + {}, stage ^ 1);", tile.keys));
  writer.line(fmt::format("copyValues(j0 + {}, stage ^ 1);", tile.keys));
  writer.line("}");
  writer.line("cp_async_commit();");
}

void TensorEmitter::loadQueries() {
  const int64_t perRow = depth / 8, pieces = tile.rows() * perRow;
  const std::string from = writer.input(problem.inputOf(op.getQ()));
  writer.line("#pragma unroll 2");
  writer.line(fmt::format("for (int piece = thread; piece < {}; piece += {}) {{", pieces, tile.threads()));
  writer.line(fmt::format("const int r = piece / {0}, c = piece % {0} * 8;", perRow));
  writer.line(fmt::format("const bool valid = row0 + r <= lastRow{};",
                          problem.depth < depth ? fmt::format(" && c < {}", problem.depth) : ""));
  writer.line("const int row = valid ? row0 + r : row0;");
  writer.line(fmt::format("cp_async_16(queryTile + {}, {} + {}, valid);", tilePlace(tile.rows(), pitchK, "r", "c"), from,
                          code.queryOffset("row", "c")));
  writer.line("}");
}

void TensorEmitter::declareSums() {
  writer.line("// Lane l holds rows l / 4 (+ 8) and columns 2 (l % 4) (+ 1) of every 16 x 8 piece.");
  writer.line(fmt::format("f32 mixed[{0}][{1}][4], running[{0}][2], total[{0}][2];", tile.warpTiles, valueDepth / 8));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m) {{", tile.warpTiles));
  writer.line("running[m][0] = running[m][1] = -inf_f32();");
  writer.line("total[m][0] = total[m][1] = 0.f;");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; ++n)", valueDepth / 8));
  writer.line("  mixed[m][n][0] = mixed[m][n][1] = mixed[m][n][2] = mixed[m][n][3] = 0.f;");
  writer.line("}");
}

void TensorEmitter::scores() {
  writer.line(fmt::format(
      "const {} *keyPlace = keyTile + stage * {} + (lane / 16 * 8 + lane % 8) * {} + lane / 8 % 2 * 8;",
      sourceType(type).str(), tile.keys * pitchK, pitchK));
  writer.line(fmt::format("f32 score[{}][{}][4];", tile.warpTiles, tile.keys / 8));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m)", tile.warpTiles));
  writer.line("#pragma unroll");
  writer.line(fmt::format("  for (int n = 0; n < {}; ++n)", tile.keys / 8));
  writer.line("    score[m][n][0] = score[m][n][1] = score[m][n][2] = score[m][n][3] = 0.f;");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; k += 16) {{", depth));
  writer.line(fmt::format("u32 query[{}][4];", tile.warpTiles));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m)", tile.warpTiles));
  writer.line(fmt::format("  ldmatrix_x4(query[m], queryPlace + m * {} + k);", 16 * pitchK));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; n += 2) {{", tile.keys / 8));
  writer.line("u32 key[4];");
  writer.line(fmt::format("ldmatrix_x4(key, keyPlace + n * {} + k);", 8 * pitchK));
  writer.line("const u32 first[2] = {key[0], key[1]}, second[2] = {key[2], key[3]};");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m) {{", tile.warpTiles));
  for (const char *place : {"score[m][n], query[m], first", "score[m][n + 1], query[m], second"})
    writer.line(fmt::format("mma_m16n8k16({}, {}());", place, sourceType(type).str()));
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

void TensorEmitter::weighValues() {
  writer.line(fmt::format("const {} *valuePlace = valueTile + stage * {} + lane % 16 * {} + lane / 16 * 8;",
                          sourceType(type).str(), tile.keys * pitchV, pitchV));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; ++k)", tile.keys / 16));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; n += 2) {{", valueDepth / 8));
  writer.line("u32 value[4];");
  writer.line(fmt::format("ldmatrix_x4_trans(value, valuePlace + k * {} + n * 8);", 16 * pitchV));
  writer.line("const u32 first[2] = {value[0], value[1]}, second[2] = {value[2], value[3]};");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m) {{", tile.warpTiles));
  for (const char *place : {"mixed[m][n], weight[m][k], first", "mixed[m][n + 1], weight[m][k], second"})
    writer.line(fmt::format("mma_m16n8k16({}, {}());", place, sourceType(type).str()));
  for (int i = 0; i < 2; ++i)
    writer.line("}");
}

void TensorEmitter::store() {
  const std::string out = sourceType(type).str();
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int m = 0; m < {}; ++m) {{", tile.warpTiles));
  writer.line("#pragma unroll");
  writer.line("for (int half = 0; half < 2; ++half) {");
  writer.line("const f32 sum = lanes_sum<4>(total[m][half]);");
  writer.line("// Largest score -inf: a row in which nothing was kept.");
  writer.line("const f32 share = " + code.share("running[m][half]", "sum") + ";");
  writer.line(fmt::format("const int row = {};", rowOf("m", "half")));
  writer.line("if (row > lastRow) continue;");
  writer.line(fmt::format("const i64 query = {}, head = {};", code.queryOf("row"), code.headOf("row")));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int n = 0; n < {}; ++n) {{", (problem.valueDepth + 7) / 8));
  writer.line("const int c = n * 8 + lane % 4 * 2;");
  writer.line("const Vec<f32, 2> pair = {mixed[m][n][2 * half] * share, mixed[m][n][2 * half + 1] * share};");
  writer.line(fmt::format("store_vec<{0}, 2>({1} + {2}, vec_from_f32<{0}, 2>(pair));", out, writer.output(0),
                          code.resultOffset("head", "query", "c")));
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

KernelDraft TensorEmitter::emit() {
  const std::string element = sourceType(type).str();
  const int64_t stageK = tile.keys * pitchK, stageV = tile.keys * pitchV;
  writer.comment(op);
  if (tile.grouped)
    declareProducts();
  writer.line(fmt::format("{0} *queryTile = reinterpret_cast<{0} *>(dynamic_shared());", element));
  writer.line(fmt::format("{} *keyTile = queryTile + {}, *valueTile = keyTile + {};", element, tile.rows() * pitchK,
                          2 * stageK));
  place();
  code.keyAndValueRows();
  copies("copyKeys", op.getK(), problem.depth, depth);
  copies("copyValues", op.getV(), problem.valueDepth, valueDepth);
  code.keyBounds(tile.rows());
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  loadQueries();
  writer.line("copyKeys((int)first, 0);");
  writer.line("copyValues((int)first, 0);");
  writer.line("cp_async_commit();");
  declareSums();
  if (!tile.grouped) {
    writer.line("// Where this lane points ldmatrix to.");
    writer.line(fmt::format("const {} *queryPlace = queryTile + (warpRow + lane % 16) * {} + lane / 16 * 8;", element,
                            pitchK));
  }
  writer.line("// The next tile is on its way while this one is multiplied.");
  writer.line("int stage = 0;");
  writer.line(fmt::format("for (int j0 = (int)first; j0 < (int)end; j0 += {}, stage ^= 1) {{", tile.keys));
  writer.line("cp_async_wait<0>();");
  if (tile.grouped)
    writer.line("wgmma_publish();");
  writer.line("barrier();");
  if (tile.grouped) {
    groupScores();
  } else {
    copyNext();
    scores();
  }
  if (finished)
    finishScores();
  else
    maskEdges();
  softmaxStep();
  if (tile.grouped)
    groupValues();
  else
    weighValues();
  writer.line("}");
  store();
  KernelDraft draft = writer.finish("attention", static_cast<uint32_t>(tile.threads()),
                                    static_cast<uint32_t>(tile.blocks));
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(2 * (tile.rows() * pitchK + 2 * (stageK + stageV)));
  if (tile.grouped)
    draft.kernel.minimumArch = 90;
  draft.gridX = problem.rows.ceilDiv(tile.rows()) * problem.kvHeads * problem.batch;
  return draft;
}

KernelDraft emitTensor(const Problem &problem) { return TensorEmitter(problem).emit(); }

} // namespace fusion::attention
