#include "codegen/schedule/MatmulTensor.h"

#include <fmt/format.h>

namespace fusion::matmul {

std::optional<DType> tensorCoreType(const Problem &problem) {
  if (multipliesBytes(problem))
    return problem.a.type;
  auto fits = [&](DType type) {
    for (DType operand : {problem.a.value(), problem.b.value()})
      if (operand != type && operand != DType::F8E4M3 && operand != DType::F8E5M2)
        return false;
    return true;
  };
  // f8 values are exact in either type.
  if (fits(DType::BF16))
    return DType::BF16;
  if (fits(DType::F16))
    return DType::F16;
  return std::nullopt;
}

static constexpr int64_t smallTile = 16, manyRows = 1024;

/// Whether many rows get a large tile. Not f8 products, which machines without an instruction for them unpack in
/// registers.
static bool isWide(const Problem &problem) {
  if (multipliesBytes(problem) && isFloat(problem.a.type))
    return false;
  std::optional<int64_t> n = problem.n.constant();
  return n && *n >= 1024;
}

llvm::SmallVector<int64_t> tileLimits(const Problem &problem) {
  if (!tensorCoreType(problem))
    return {};
  if (isWide(problem))
    return {smallTile, manyRows - 1};
  return {smallTile};
}

static bool hasZeros(const Operand &operand) { return operand.decode && operand.decode->zero; }

/// As many accumulators as one thread's registers take. `shifted`: beside the sums that zero
/// points multiply.
static Tiling chooseTiling(const Problem &problem, bool shifted) {
  if (problem.mostRows <= smallTile)
    return {16, 64, 1, 4};
  if (problem.leastRows >= manyRows && isWide(problem))
    return {128, problem.together || shifted ? 64 : 128, 2, 2};
  return {};
}

TensorEmitter::TensorEmitter(const Region &region, const KernelContext &context, const Problem &problem)
    : problem(problem), bytes(multipliesBytes(problem)),
      shifted(bytes && (hasZeros(problem.a) || hasZeros(problem.b))), tile(chooseTiling(problem, shifted)),
      type(*tensorCoreType(problem)), piece(bytes ? 16 : 8), depth(4 * piece), writer(region, context.inputs),
      epilogue(region, context, problem, writer) {
  columnsOfB = problem.b.columnStride == Dim(1) && problem.b.rowStride != Dim(1);
  tileByColumns = columnsOfB && !bytes; // ldmatrix transposes 16-bit elements only
  auto asIs = [&](const Operand &operand) { return bytes || (!operand.decode && operand.type == type); };
  asyncA = asIs(problem.a) && readsPieces(problem, true, piece, piece);
  asyncB = columnsOfB == tileByColumns && readsPieces(problem, false, piece, piece) &&
           llvm::all_of(problem.products, [&](const Product &product) { return asIs(product.b); });
  // Rows of a tile lie 16 bytes more than their length apart: ldmatrix then meets every bank once.
  pitchA = depth + piece;
  pitchB = (tileByColumns ? tile.n : depth) + piece;
  sizeA = tile.m * pitchA;
  sizeB = (tileByColumns ? depth : tile.n) * pitchB;
}

void TensorEmitter::compute() {
  const int64_t tilesM = tile.warpM() / 16, tilesN = tile.warpN() / 8;
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int kk = 0; kk < {}; kk += {}) {{", depth, 2 * piece));
  writer.line(fmt::format("u32 fragmentA[{}][4], fragmentB[{}][2];", tilesM, tilesN));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", tilesM));
  writer.line(fmt::format(
      "  ldmatrix_x4(fragmentA[i], tileA + stage * {0} + (warpM + i * 16 + lane % 16) * {1} + kk + "
      "lane / 16 * {2});",
      sizeA, pitchA, piece));
  const std::string left = sourceType(problem.a.type).str(), right = sourceType(problem.b.type).str();
  if (shifted) {
    writer.line("// What zero points multiply: the sums of A's rows and of B's columns.");
    writer.line("const u32 onesA[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};");
    writer.line("const u32 onesB[2] = {0x01010101u, 0x01010101u};");
    if (hasZeros(problem.b)) {
      writer.line("#pragma unroll");
      writer.line(fmt::format("for (int i = 0; i < {}; ++i)", tilesM));
      writer.line(fmt::format("  mma_m16n8k32(rowsA[i], fragmentA[i], onesB, {}(), {}());", left, right));
    }
  }
  for (size_t sum = 0; sum < problem.sums(); ++sum) {
    const std::string tileB = numbered("tileB", sum);
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int j = 0; j < {}; j += 2) {{", tilesN));
    writer.line("u32 pair[4];");
    if (tileByColumns)
      writer.line(
          fmt::format("ldmatrix_x4_trans(pair, {2} + stage * {0} + (kk + lane % 16) * {1} + warpN + j * 8 + "
                      "lane / 16 * 8);",
                      sizeB, pitchB, tileB));
    else
      writer.line(fmt::format(
          "ldmatrix_x4(pair, {2} + stage * {0} + (warpN + j * 8 + lane / 16 * 8 + lane % 8) * {1} + "
          "kk + lane / 8 % 2 * {3});",
          sizeB, pitchB, tileB, piece));
    writer.line("fragmentB[j][0] = pair[0];");
    writer.line("fragmentB[j][1] = pair[1];");
    writer.line("fragmentB[j + 1][0] = pair[2];");
    writer.line("fragmentB[j + 1][1] = pair[3];");
    writer.line("}");
    if (shifted && hasZeros(problem.a)) {
      writer.line("#pragma unroll");
      writer.line(fmt::format("for (int j = 0; j < {}; ++j)", tilesN));
      writer.line(fmt::format("  mma_m16n8k32({}[j], onesA, fragmentB[j], {}(), {}());", numbered("columnsB", sum),
                              left, right));
    }
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int i = 0; i < {}; ++i)", tilesM));
    writer.line("#pragma unroll");
    writer.line(fmt::format("  for (int j = 0; j < {}; ++j)", tilesN));
    const std::string operands = fmt::format("{}[i][j], fragmentA[i], fragmentB[j]", numbered("sum", sum));
    writer.line(bytes ? fmt::format("    mma_m16n8k32({}, {}(), {}());", operands, left, right)
                      : fmt::format("    mma_m16n8k16({}, {}());", operands, sourceType(type).str()));
  }
  writer.line("}");
}

/// The sum at i, j, e with zero points and scales applied; row m, column n. May write lines.
std::string TensorEmitter::total(size_t sum) {
  std::string text = numbered("sum", sum) + "[i][j][e]";
  if (!bytes)
    return text;
  const std::optional<Decode> &a = problem.a.decode, &b = problem.products[sum].b.decode;
  auto entry = [&](bool isA, bool isScale) { return entryText(writer, problem, isA, sum, isScale, isA ? "m" : "0", isA ? "0" : "n"); };
  if (shifted) {
    text = "(u32)" + text;
    const std::string zeroA = writer.fresh("zero"), zeroB = writer.fresh("zero");
    if (a && a->zero) {
      writer.line(fmt::format("const u32 {} = (u32){};", zeroA, entry(true, false)));
      text += fmt::format(" - {} * (u32){}[j][e]", zeroA, numbered("columnsB", sum));
    }
    if (b && b->zero) {
      writer.line(fmt::format("const u32 {} = (u32){};", zeroB, entry(false, false)));
      text += fmt::format(" - {} * (u32)rowsA[i][e]", zeroB);
    }
    if (a && a->zero && b && b->zero)
      text += fmt::format(" + (u32){} * {} * {}", writer.size(problem.k), zeroA, zeroB);
    text = "(i32)(" + text + ")";
  }
  if (!isFloat(problem.a.value()))
    return text;
  if (!isFloat(problem.a.type))
    text = "(f32)" + text;
  if (a)
    text += " * " + entry(true, true);
  if (b)
    text += " * " + entry(false, true);
  return text;
}

void TensorEmitter::store() {
  writer.line("// Lane l holds rows l / 4 (+ 8) and columns 2 (l % 4) (+ 1) of every 16 x 8 piece.");
  forStoredProducts(writer, problem, [&](size_t first) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", tile.warpM() / 16));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int j = 0; j < {}; ++j) {{", tile.warpN() / 8));
    writer.line("#pragma unroll");
    writer.line("for (int e = 0; e < 4; ++e) {");
    writer.line("const i64 m = rowStart + warpM + i * 16 + lane / 4 + e / 2 * 8;");
    writer.line("const i64 n = columnStart + warpN + j * 8 + lane % 4 * 2 + e % 2;");
    writer.line(fmt::format("if (m < {} && n < {}) {{", writer.size(problem.m),
                            writer.size(problem.products[first].n)));
    llvm::SmallVector<std::string> sums;
    for (size_t sum = 0; sum < problem.sums(); ++sum)
      sums.push_back(total(sum));
    epilogue.emit(resultLine(writer, problem, "m"), "n", sums, first);
    for (int i = 0; i < 4; ++i)
      writer.line("}");
  });
}

/// `f32 sum[2][4][4]`, all zero.
void TensorEmitter::declareSums(const std::string &name, llvm::ArrayRef<int64_t> pieces) {
  std::string shape, index, indent;
  for (int64_t count : pieces)
    shape += fmt::format("[{}]", count);
  writer.line(fmt::format("{} {}{}[4];", bytes && !isFloat(problem.a.type) ? "i32" : "f32", name, shape));
  for (auto [place, count] : llvm::enumerate(pieces)) {
    const char variable = place == 0 ? 'i' : 'j';
    writer.line("#pragma unroll");
    writer.line(fmt::format("{0}for (int {1} = 0; {1} < {2}; ++{1})", indent, variable, count));
    index += fmt::format("[{}]", variable);
    indent += "  ";
  }
  writer.line(fmt::format("{0}{1}{2}[0] = {1}{2}[1] = {1}{2}[2] = {1}{2}[3] = 0;", indent, name, index));
}

KernelDraft TensorEmitter::emit() {
  const int64_t tilesM = tile.warpM() / 16, tilesN = tile.warpN() / 8;
  writer.comment(problem.op);
  // Bytes are moved as they are: one type serves operands of two.
  const std::string elementA = sourceType(bytes ? problem.a.type : type).str(),
                    elementB = sourceType(bytes ? problem.b.type : type).str();
  writer.line(fmt::format("SHARED({}, tileA, {});", elementA, 2 * sizeA));
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    writer.line(fmt::format("SHARED({}, {}, {});", elementB, numbered("tileB", sum), 2 * sizeB));
  writer.line("const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;");
  writer.line(fmt::format("const int warpM = warp / {0} * {1}, warpN = warp % {0} * {2};", tile.warpsN,
                          tile.warpM(), tile.warpN()));
  emitBlockPlace(writer, problem, tile.m, tile.n);
  emitBases(writer, problem);
  for (size_t sum = 0; sum < problem.sums(); ++sum) {
    declareSums(numbered("sum", sum), {tilesM, tilesN});
    if (shifted && hasZeros(problem.a))
      declareSums(numbered("columnsB", sum), {tilesN});
  }
  if (shifted && hasZeros(problem.b))
    declareSums("rowsA", {tilesM});
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  const std::string steps = writer.size(problem.k.ceilDiv(depth));
  writer.line("// Step s loads tile s and multiplies tile s - 1.");
  writer.line(fmt::format("for (i64 step = 0; step <= {}; ++step) {{", steps));
  writer.line(fmt::format("if (step < {}) {{", steps));
  writer.line(fmt::format("const i64 k0 = step * {};", depth));
  writer.line("const int stage = (int)(step % 2);");
  loadTile(true);
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    loadTile(false, sum);
  writer.line("}");
  writer.line("cp_async_commit();");
  writer.line("if (step > 0) {");
  writer.line("cp_async_wait<1>();");
  writer.line("barrier();");
  writer.line("const int stage = (int)((step - 1) % 2);");
  compute();
  writer.line("barrier();");
  writer.line("}");
  writer.line("}");
  store();
  // Left to itself, the compiler spills a few registers of f8 products to fit more blocks: below sm_89 it unpacks them.
  const uint32_t smallTiles = isFloat(problem.a.type) ? 2 : 3;
  const uint32_t residentBlocks = !bytes ? 0 : tile.m > 64 ? 1 : smallTiles;
  KernelDraft draft = writer.finish("matmul", Tiling::threads, residentBlocks);
  draft.gridX = blockCount(problem, tile.m, tile.n);
  return draft;
}

KernelDraft emitTensorCore(const Region &region, const KernelContext &context, const Problem &problem) {
  return TensorEmitter(region, context, problem).emit();
}

} // namespace fusion::matmul
