// The tensor-core kernel: tiles of A and B pass through shared memory, two at a time, while mma.m16n8k16
// consumes the previous pair.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

std::optional<DType> tensorCoreType(const Problem &problem) {
  auto fits = [&](DType type) {
    for (DType operand : {problem.a.type, problem.b.type})
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

static constexpr int64_t fewRows = 16, manyRows = 1024;

static bool isWide(const Problem &problem) {
  std::optional<int64_t> n = problem.n.constant();
  return n && *n >= 1024;
}

llvm::SmallVector<int64_t> tileLimits(const Problem &problem) {
  if (!tensorCoreType(problem))
    return {};
  if (isWide(problem))
    return {fewRows, manyRows - 1};
  return {fewRows};
}

namespace {

struct Tiling {
  int64_t m = 64, n = 64; ///< of a block
  int64_t warpsM = 2, warpsN = 2;
  static constexpr int64_t k = 32;
  int64_t warpM() const { return m / warpsM; }
  int64_t warpN() const { return n / warpsN; }
  static constexpr int64_t threads = 128;
};

/// As many accumulators as one thread's registers take.
Tiling chooseTiling(const Problem &problem) {
  if (problem.mostRows <= fewRows)
    return {16, 64, 1, 4};
  if (problem.leastRows >= manyRows && isWide(problem))
    return {128, problem.together ? 64 : 128, 2, 2};
  return {};
}

/// Rows of a tile lie 16 bytes more than their length apart: ldmatrix then meets every bank once.
constexpr int64_t padding = 8;

class Emitter {
public:
  Emitter(const Region &region, const KernelContext &context, const Problem &problem)
      : problem(problem), tile(chooseTiling(problem)), type(*tensorCoreType(problem)), writer(region),
        epilogue(region, context, problem, writer) {
    const Operand &a = problem.a, &b = problem.b;
    auto even = [](const Operand &operand, const Dim &stride) {
      return operand.offset.knownMultipleOf(8) && stride.knownMultipleOf(8) &&
             llvm::all_of(operand.batchStrides, [](const Dim &dim) { return dim.knownMultipleOf(8); });
    };
    asyncA = a.type == type && a.columnStride == Dim(1) && problem.k.knownMultipleOf(8) && even(a, Dim(0));
    for (const auto &[dim, stride] : llvm::zip(problem.rowDims, problem.rowStrides))
      asyncA = asyncA && (dim == Dim(1) || stride.knownMultipleOf(8));
    columnsOfB = b.columnStride == Dim(1) && b.rowStride != Dim(1);
    asyncB = llvm::all_of(problem.products, [&](const Product &product) {
      const Operand &b = product.b;
      return b.type == type && (columnsOfB ? product.n.knownMultipleOf(8) && even(b, b.rowStride)
                                           : b.rowStride == Dim(1) && problem.k.knownMultipleOf(8) &&
                                                 even(b, product.n == Dim(1) ? Dim(0) : b.columnStride));
    });
    pitchA = Tiling::k + padding;
    pitchB = (columnsOfB ? tile.n : Tiling::k) + padding;
    sizeA = tile.m * pitchA;
    sizeB = (columnsOfB ? Tiling::k : tile.n) * pitchB;
  }

  KernelDraft emit();

private:
  /// `sum`: which of the block's products, for B.
  void loadTile(bool isA, size_t sum = 0);
  void loadAsync(bool isA, size_t sum);
  void loadElements(bool isA, size_t sum);
  void compute();
  void store();
  std::string element(const Operand &operand, const std::string &pointer, const std::string &offset);

  const Problem &problem;
  const Tiling tile;
  const DType type;
  KernelWriter writer;
  Epilogue epilogue;
  bool asyncA = false, asyncB = false; ///< 16 bytes at a time, past the registers
  bool columnsOfB = false;             ///< B's tile lies as [k][n], else as [n][k]
  int64_t pitchA = 0, pitchB = 0, sizeA = 0, sizeB = 0;
};

std::string Emitter::element(const Operand &operand, const std::string &pointer, const std::string &offset) {
  const std::string loaded = fmt::format("load({} + {})", pointer, offset);
  return operand.type == type ? loaded
                              : fmt::format("from_f32<{}>(to_f32({}))", sourceType(type).str(), loaded);
}

void Emitter::loadAsync(bool isA, size_t sum) {
  const bool byColumns = !isA && columnsOfB;
  const int64_t rows = isA         ? tile.m
                       : byColumns ? Tiling::k
                                   : tile.n,
                perRow = (byColumns ? tile.n : Tiling::k) / 8;
  const int64_t pieces = rows * perRow;
  writer.line(fmt::format("// {}: pieces of 16 bytes, zeros beyond the edge.", isA ? "A" : "B"));
  writer.line("#pragma unroll");
  writer.line(
      fmt::format("for (int i = 0; i < {}; ++i) {{", (pieces + Tiling::threads - 1) / Tiling::threads));
  writer.line(fmt::format("const int piece = i * {} + thread;", Tiling::threads));
  if (pieces % Tiling::threads != 0)
    writer.line(fmt::format("if (piece < {}) {{", pieces));
  writer.line(fmt::format("const int r = piece / {0}, c = piece % {0} * 8;", perRow));
  std::string valid, offset;
  if (isA) {
    valid = fmt::format("rowStart + r < {} && k0 + c < {}", writer.size(problem.m), writer.size(problem.k));
    writer.line(
        fmt::format("const i64 row = rowStart + r < {0} ? rowStart + r : 0;", writer.size(problem.m)));
    offset = rowOffset(writer, problem, "row") + " + k0 + c";
  } else if (byColumns) {
    valid = fmt::format("k0 + r < {} && columnStart + c < {}", writer.size(problem.k),
                        widthText(writer, problem));
    offset = alongK(writer, problem, "(k0 + r)") + " + columnStart + c";
  } else {
    valid = fmt::format("columnStart + r < {} && k0 + c < {}", widthText(writer, problem),
                        writer.size(problem.k));
    const std::string column = alongN(writer, problem, "(columnStart + r)");
    offset = (column.empty() ? "" : column + " + ") + "k0 + c";
  }
  writer.line(fmt::format("const bool valid = {};", valid));
  const std::string matrix = isA ? "a" : numbered("b", sum);
  writer.line(fmt::format("cp_async_16({0} + stage * {1} + r * {2} + c, valid ? {3} + {4} : {3}, valid);",
                          isA ? "tileA" : numbered("tileB", sum), isA ? sizeA : sizeB, isA ? pitchA : pitchB,
                          matrix, offset));
  if (pieces % Tiling::threads != 0)
    writer.line("}");
  writer.line("}");
}

void Emitter::loadElements(bool isA, size_t sum) {
  // Neighbouring threads read what lies side by side in memory.
  const bool kFast = isA ? problem.a.columnStride == Dim(1) || problem.a.rowStride != Dim(1) : !columnsOfB;
  const int64_t outer = isA ? tile.m : tile.n;
  writer.line(fmt::format("// {}: element by element, zeros beyond the edge.", isA ? "A" : "B"));
  writer.line("#pragma unroll 4");
  writer.line(fmt::format("for (int e = thread; e < {}; e += {}) {{", outer * Tiling::k, Tiling::threads));
  writer.line(kFast ? fmt::format("const int r = e / {0}, c = e % {0};", Tiling::k)
                    : fmt::format("const int r = e % {0}, c = e / {0};", outer));
  const std::string row = isA ? "rowStart + r" : "columnStart + r";
  writer.line(fmt::format("{} value = {{0}};", sourceType(type).str()));
  writer.line(fmt::format("if ({} < {} && k0 + c < {}) {{", row,
                          isA ? writer.size(problem.m) : widthText(writer, problem), writer.size(problem.k)));
  std::string first, second;
  if (isA) {
    writer.line("const i64 row = rowStart + r;");
    first = rowOffset(writer, problem, "row");
    second = scaled(writer, "(k0 + c)", problem.a.columnStride);
  } else {
    first = alongN(writer, problem, "(columnStart + r)");
    second = alongK(writer, problem, "(k0 + c)");
  }
  std::string offset = first.empty() ? "0" : first;
  if (!second.empty())
    offset += " + " + second;
  writer.line(fmt::format("value = {};",
                          element(isA ? problem.a : problem.b, isA ? "a" : numbered("b", sum), offset)));
  writer.line("}");
  const bool byColumns = !isA && columnsOfB;
  writer.line(fmt::format("{}[stage * {} + {} * {} + {}] = value;", isA ? "tileA" : numbered("tileB", sum),
                          isA ? sizeA : sizeB, byColumns ? "c" : "r", isA ? pitchA : pitchB,
                          byColumns ? "r" : "c"));
  writer.line("}");
}

void Emitter::loadTile(bool isA, size_t sum) {
  (isA ? asyncA : asyncB) ? loadAsync(isA, sum) : loadElements(isA, sum);
}

void Emitter::compute() {
  const int64_t tilesM = tile.warpM() / 16, tilesN = tile.warpN() / 8;
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int kk = 0; kk < {}; kk += 16) {{", Tiling::k));
  writer.line(fmt::format("u32 fragmentA[{}][4], fragmentB[{}][2];", tilesM, tilesN));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", tilesM));
  writer.line(fmt::format(
      "  ldmatrix_x4(fragmentA[i], tileA + stage * {0} + (warpM + i * 16 + lane % 16) * {1} + kk + "
      "lane / 16 * 8);",
      sizeA, pitchA));
  for (size_t sum = 0; sum < problem.sums(); ++sum) {
    const std::string tileB = numbered("tileB", sum);
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int j = 0; j < {}; j += 2) {{", tilesN));
    writer.line("u32 pair[4];");
    if (columnsOfB)
      writer.line(
          fmt::format("ldmatrix_x4_trans(pair, {2} + stage * {0} + (kk + lane % 16) * {1} + warpN + j * 8 + "
                      "lane / 16 * 8);",
                      sizeB, pitchB, tileB));
    else
      writer.line(fmt::format(
          "ldmatrix_x4(pair, {2} + stage * {0} + (warpN + j * 8 + lane / 16 * 8 + lane % 8) * {1} + "
          "kk + lane / 8 % 2 * 8);",
          sizeB, pitchB, tileB));
    writer.line("fragmentB[j][0] = pair[0];");
    writer.line("fragmentB[j][1] = pair[1];");
    writer.line("fragmentB[j + 1][0] = pair[2];");
    writer.line("fragmentB[j + 1][1] = pair[3];");
    writer.line("}");
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int i = 0; i < {}; ++i)", tilesM));
    writer.line("#pragma unroll");
    writer.line(fmt::format("  for (int j = 0; j < {}; ++j)", tilesN));
    writer.line(fmt::format("    mma_m16n8k16({}[i][j], fragmentA[i], fragmentB[j], {}());",
                            numbered("sum", sum), sourceType(type).str()));
  }
  writer.line("}");
}

void Emitter::store() {
  writer.line("// Lane l holds rows l / 4 (+ 8) and columns 2 (l % 4) (+ 1) of every 16 x 8 piece.");
  llvm::SmallVector<std::string> sums;
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    sums.push_back(numbered("sum", sum) + "[i][j][e]");
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
    epilogue.emit(resultLine(writer, problem, "m"), "n", sums, first);
    for (int i = 0; i < 4; ++i)
      writer.line("}");
  });
}

KernelDraft Emitter::emit() {
  writer.comment(problem.op);
  const std::string element = sourceType(type).str();
  writer.line(fmt::format("SHARED({}, tileA, {});", element, 2 * sizeA));
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    writer.line(fmt::format("SHARED({}, {}, {});", element, numbered("tileB", sum), 2 * sizeB));
  writer.line("const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;");
  writer.line(fmt::format("const int warpM = warp / {0} * {1}, warpN = warp % {0} * {2};", tile.warpsN,
                          tile.warpM(), tile.warpN()));
  emitBlockPlace(writer, problem, tile.m, tile.n);
  emitBases(writer, problem);
  for (size_t sum = 0; sum < problem.sums(); ++sum) {
    const std::string name = numbered("sum", sum);
    writer.line(fmt::format("f32 {}[{}][{}][4];", name, tile.warpM() / 16, tile.warpN() / 8));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int i = 0; i < {}; ++i)", tile.warpM() / 16));
    writer.line("#pragma unroll");
    writer.line(fmt::format("  for (int j = 0; j < {}; ++j)", tile.warpN() / 8));
    writer.line(fmt::format("    {0}[i][j][0] = {0}[i][j][1] = {0}[i][j][2] = {0}[i][j][3] = 0.f;", name));
  }
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  const std::string steps = writer.size(problem.k.ceilDiv(Tiling::k));
  writer.line("// Step s loads tile s and multiplies tile s - 1.");
  writer.line(fmt::format("for (i64 step = 0; step <= {}; ++step) {{", steps));
  writer.line(fmt::format("if (step < {}) {{", steps));
  writer.line(fmt::format("const i64 k0 = step * {};", Tiling::k));
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
  KernelDraft draft = writer.finish("matmul", Tiling::threads);
  draft.gridX = blockCount(problem, tile.m, tile.n);
  return draft;
}

} // namespace

KernelDraft emitTensorCore(const Region &region, const KernelContext &context, const Problem &problem) {
  return Emitter(region, context, problem).emit();
}

} // namespace fusion::matmul
