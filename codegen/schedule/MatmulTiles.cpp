// How the tensor-core kernel fills its tiles: whole pieces of 16 bytes on their way past the registers, pieces that are
// decoded or converted, or single elements.
#include "codegen/schedule/MatmulTensor.h"

#include <fmt/format.h>

namespace fusion::matmul {

/// Opens the loop over the tile's pieces of `length` elements: r and c are a piece's place in the tile.
void TensorEmitter::openPieces(bool isA, int64_t length) {
  const bool byColumns = !isA && tileByColumns;
  const int64_t rows = isA ? tile.m : byColumns ? depth : tile.n, perRow = (byColumns ? tile.n : depth) / length;
  const int64_t pieces = rows * perRow;
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", (pieces + Tiling::threads - 1) / Tiling::threads));
  writer.line(fmt::format("const int piece = i * {} + thread;", Tiling::threads));
  if (pieces % Tiling::threads != 0)
    writer.line(fmt::format("if (piece >= {}) continue;", pieces));
  writer.line(fmt::format("const int r = piece / {0}, c = piece % {0} * {1};", perRow, length));
}

/// Declares `valid` and returns the offset of the piece at r, c.
std::string TensorEmitter::pieceOffset(bool isA) {
  if (isA) {
    writer.line(fmt::format("const bool valid = rowStart + r < {} && k0 + c < {};", writer.size(problem.m),
                            writer.size(problem.k)));
    writer.line(fmt::format("const i64 row = rowStart + r < {0} ? rowStart + r : 0;", writer.size(problem.m)));
    return rowOffset(writer, problem, "row") + " + k0 + c";
  }
  if (tileByColumns) {
    writer.line(fmt::format("const bool valid = k0 + r < {} && columnStart + c < {};", writer.size(problem.k),
                            widthText(writer, problem)));
    return alongK(writer, problem, "(k0 + r)") + " + columnStart + c";
  }
  writer.line(fmt::format("const bool valid = columnStart + r < {} && k0 + c < {};", widthText(writer, problem),
                          writer.size(problem.k)));
  const std::string column = alongN(writer, problem, "(columnStart + r)");
  return (column.empty() ? "" : column + " + ") + "k0 + c";
}

void TensorEmitter::loadAsync(bool isA, size_t sum) {
  writer.line(fmt::format("// {}: pieces of 16 bytes, zeros beyond the edge.", isA ? "A" : "B"));
  openPieces(isA, piece);
  const std::string offset = pieceOffset(isA), matrix = isA ? "a" : numbered("b", sum);
  writer.line(fmt::format("cp_async_16({0} + stage * {1} + r * {2} + c, valid ? {3} + {4} : {3}, valid);",
                          isA ? "tileA" : numbered("tileB", sum), isA ? sizeA : sizeB, isA ? pitchA : pitchB,
                          matrix, offset));
  writer.line("}");
}

/// The tile's element from one in memory at `row`, `column` of A (m, k) or B (k, n).
std::string TensorEmitter::element(bool isA, size_t sum, const std::string &loaded, const std::string &row,
                                   const std::string &column) {
  const Operand &operand = isA ? problem.a : problem.products[sum].b;
  if (bytes || (!operand.decode && operand.type == type))
    return loaded;
  const std::string wide = isFloat(operand.type) ? "to_f32(" + loaded + ")" : loaded;
  return fmt::format("from_f32<{}>({})", sourceType(type).str(),
                     elementValue(writer, problem, isA, sum, wide, row, column));
}

/// Pieces of 8 elements that are converted on their way.
void TensorEmitter::loadPieces(bool isA, size_t sum) {
  const Operand &operand = isA ? problem.a : problem.products[sum].b;
  const std::string source = sourceType(operand.type).str(), target = sourceType(type).str();
  const std::string matrix = isA ? "a" : numbered("b", sum);
  writer.line(fmt::format("// {}: pieces of {} elements, {}, zeros beyond the edge.", isA ? "A" : "B", piece,
                          operand.decode ? "decoded" : "converted"));
  openPieces(isA, piece);
  const std::string offset = pieceOffset(isA);
  writer.line(fmt::format("Vec<{}, {}> made = {{}};", target, piece));
  writer.line("if (valid) {");
  writer.line(fmt::format("const Vec<{0}, {1}> codes = load_vec<{0}, {1}>({2} + {3});", source, piece, matrix, offset));
  // Where k runs along the piece, scales for whole blocks of pieces are one for it.
  const bool alongK = isA || !tileByColumns;
  const bool once = operand.decode && operand.decode->isOneFor(piece, alongK == isA);
  std::string row = isA ? "row" : alongK ? "(k0 + c)" : "(k0 + r)",
              column = isA ? "(k0 + c)" : alongK ? "(columnStart + r)" : "(columnStart + c)";
  std::string scale, zero;
  if (once)
    std::tie(zero, scale) = emitEntries(writer, problem, isA, sum, row, column);
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int e = 0; e < {}; ++e) {{", piece));
  if (once) {
    const std::string wide = isFloat(operand.type) ? "to_f32(codes[e])" : "codes[e]";
    writer.line(fmt::format("made[e] = from_f32<{}>({});", target, decoded(*operand.decode, operand.type, wide, zero, scale)));
  } else {
    (isA || !alongK ? column : row).insert((isA || !alongK ? column : row).size() - 1, " + e");
    const std::string value = element(isA, sum, "codes[e]", row, column);
    writer.line(fmt::format("made[e] = {};", value));
  }
  writer.line("}");
  writer.line("}");
  writer.line(fmt::format("store_vec<{0}, {1}>({2} + stage * {3} + r * {4} + c, made);", target, piece,
                          isA ? "tileA" : numbered("tileB", sum), isA ? sizeA : sizeB, isA ? pitchA : pitchB));
  writer.line("}");
}

/// Bytes of B that lie with n innermost: squares of 4 x 4, turned.
void TensorEmitter::loadTransposed(size_t sum) {
  const int64_t across = tile.n / 4, squares = across * depth / 4;
  const std::string matrix = numbered("b", sum), width = widthText(writer, problem), k = writer.size(problem.k);
  const std::string source = sourceType(problem.b.type).str();
  writer.line("// B: squares of 4 x 4 bytes, turned, zeros beyond the edge.");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", (squares + Tiling::threads - 1) / Tiling::threads));
  writer.line(fmt::format("const int square = i * {} + thread;", Tiling::threads));
  writer.line(fmt::format("const int r = square / {0} * 4, c = square % {0} * 4;", across));
  writer.line("u32 lines[4];");
  writer.line("#pragma unroll");
  writer.line("for (int l = 0; l < 4; ++l) {");
  writer.line("const i64 at = k0 + r + l;");
  writer.line(fmt::format("const bool valid = at < {} && columnStart + c < {};", k, width));
  writer.line(fmt::format("lines[l] = valid ? load(reinterpret_cast<const u32 *>({} + {} + columnStart + c)) : 0u;",
                          matrix, alongK(writer, problem, "at")));
  writer.line("}");
  writer.line("turn_bytes(lines);");
  writer.line("#pragma unroll");
  writer.line("for (int l = 0; l < 4; ++l)");
  writer.line(fmt::format("  store(reinterpret_cast<u32 *>({} + stage * {} + (c + l) * {} + r), lines[l]);",
                          numbered("tileB", sum), sizeB, pitchB));
  writer.line("}");
}

void TensorEmitter::loadElements(bool isA, size_t sum) {
  // Neighbouring threads read what lies side by side in memory.
  const bool kFast = isA ? problem.a.columnStride == Dim(1) || problem.a.rowStride != Dim(1) : !columnsOfB;
  const Operand &operand = isA ? problem.a : problem.products[sum].b;
  const int64_t outer = isA ? tile.m : tile.n;
  writer.line(fmt::format("// {}: element by element, zeros beyond the edge.", isA ? "A" : "B"));
  writer.line("#pragma unroll 4");
  writer.line(fmt::format("for (int e = thread; e < {}; e += {}) {{", outer * depth, Tiling::threads));
  writer.line(kFast ? fmt::format("const int r = e / {0}, c = e % {0};", depth)
                    : fmt::format("const int r = e % {0}, c = e / {0};", outer));
  const std::string place = isA ? "rowStart + r" : "columnStart + r";
  writer.line(fmt::format("{} value = {{0}};", sourceType(bytes ? operand.type : type).str()));
  writer.line(fmt::format("if ({} < {} && k0 + c < {}) {{", place,
                          isA ? writer.size(problem.m) : widthText(writer, problem), writer.size(problem.k)));
  std::string first, second, row = "(k0 + c)", column = "(columnStart + r)";
  if (isA) {
    row = "row";
    column = "(k0 + c)";
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
  const std::string loaded = fmt::format("load({} + {})", isA ? "a" : numbered("b", sum), offset);
  const std::string value = element(isA, sum, loaded, row, column);
  writer.line(fmt::format("value = {};", value));
  writer.line("}");
  const bool byColumns = !isA && tileByColumns;
  writer.line(fmt::format("{}[stage * {} + {} * {} + {}] = value;", isA ? "tileA" : numbered("tileB", sum),
                          isA ? sizeA : sizeB, byColumns ? "c" : "r", isA ? pitchA : pitchB,
                          byColumns ? "r" : "c"));
  writer.line("}");
}

void TensorEmitter::loadTile(bool isA, size_t sum) {
  const Operand &operand = isA ? problem.a : problem.products[sum].b;
  if (isA ? asyncA : asyncB)
    loadAsync(isA, sum);
  else if (!bytes && byteSize(operand.type) == 1 && readsPieces(problem, isA, piece, piece))
    loadPieces(isA, sum);
  else if (!isA && bytes && columnsOfB && readsPieces(problem, false, 4, 4))
    loadTransposed(sum);
  else
    loadElements(isA, sum);
}

} // namespace fusion::matmul
