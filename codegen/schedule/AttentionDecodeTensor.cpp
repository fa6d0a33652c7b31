// Attention of a few rows of queries, which is as fast as keys and values come from memory: blocks of a cluster share the
// keys, each warp goes through its own 16 at a time, and what the warps found is merged at the end. In the products keys
// (and, transposed, values) are the operand of 16 rows and the queries the 8 columns. A lane reads 16 neighbouring bytes at
// a time: both operands have their k in the order which that makes. So each lane needs just what it reads itself: the next
// keys and values come straight into its registers. Of large heads they would be too many: those wait in shared memory, in
// places of the lane's own, though that way is slower.
#include "codegen/ScalarCode.h"
#include "codegen/schedule/AttentionUnits.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

namespace {

constexpr int64_t tileKeys = 16, columnRows = 8, pieceLength = 8;
constexpr int64_t pieceBytes = 32 * 16; ///< of a warp
constexpr int64_t warps = 8;

/// Of shared memory that a block may have, less what the merge needs beside the requests.
int64_t sharedBytes(uint32_t arch) {
  const int64_t kib = arch == 80 || arch == 87 ? 163 : arch >= 90 && arch < 120 ? 227 : 99;
  return (kib - 26) * 1024;
}

/// Whether the rows of a tensor's last dim can be read 16 bytes at a time.
bool readsPieces(const View &view) {
  auto fits = [](const Dim &distance) { return distance.knownMultipleOf(pieceLength); };
  for (size_t i = 0; i < 3; ++i)
    if (view.shape[i] != Dim(1) && !fits(view.strides[i]))
      return false;
  return view.strides[3] == Dim(1) && fits(view.shape[3]) && fits(view.offset);
}

class DecodeTensorEmitter {
public:
  explicit DecodeTensorEmitter(const Problem &problem)
      : problem(problem), op(problem.op), type(sourceType(dtype(op.getK())).str()), writer(problem.region),
        code(problem, writer), keyPieces(llvm::divideCeil(problem.depth, 4 * pieceLength)),
        valuePieces(llvm::divideCeil(problem.valueDepth, 8 * pieceLength)), columns(columnsOf(problem)),
        tileRows(columns * columnRows), pieces(2 * keyPieces + 4 * valuePieces),
        queriesInRegisters(keyPieces * columns <= 4),
        inRegisters(pieces + 4 * valuePieces * columns <= (columns == 1 ? 36 : 30)),
        stages(inRegisters ? 0 : stagesOf(problem)), shares(problem, writer, code, tileRows, warps, /*resident=*/1) {}

  /// Whether the pieces that wait in shared memory have room there.
  bool fits() const { return inRegisters || warps * pieces * pieceBytes <= sharedBytes(problem.context.arch); }
  KernelDraft emit();

private:
  /// Two columns of 8 rows, if their sums fit a thread's registers.
  int64_t columnsOf(const Problem &problem) const {
    const std::optional<int64_t> rows = problem.mostRows();
    return (!rows || *rows > columnRows) && keyPieces + 2 * valuePieces <= 8 ? 2 : 1;
  }
  int64_t stagesOf(const Problem &problem) const {
    return std::clamp<int64_t>(sharedBytes(problem.context.arch) / (warps * pieces * pieceBytes), 1, 4);
  }
  std::string piece(const std::string &index) const {
    return fmt::format(inRegisters ? fmt::runtime("words[{}]") : fmt::runtime("piece(from, {})"), index);
  }
  void open(const std::string &variable, int64_t count);
  void place();
  void loadQueries();
  void declareLoads();
  void loadPiece(const std::string &index, const std::string &from, const std::string &inside);
  void scores();
  void finishScores();
  void softmaxStep();
  void weighValues();
  void goThroughRegisters();
  void goThroughShared();
  void mergeWarps();

  const Problem &problem;
  nn::AttentionOp op;
  const std::string type; ///< of queries, keys and values
  KernelWriter writer;
  Code code;
  const int64_t keyPieces;   ///< that a lane has of each of its two keys
  const int64_t valuePieces; ///< that a lane has of each of its four keys' values
  const int64_t columns;     ///< of 8 rows each
  const int64_t tileRows;
  const int64_t pieces;          ///< of keys and values that a lane reads at a time
  const bool queriesInRegisters; ///< else in shared memory
  const bool inRegisters;        ///< the next pieces, else in shared memory
  const int64_t stages;          ///< of pieces in shared memory
  Units shares;
};

void DecodeTensorEmitter::open(const std::string &variable, int64_t count) {
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) {{", variable, count));
}

// Which rows and which of their scores are this lane's.
void DecodeTensorEmitter::place() {
  shares.place();
  writer.line("// Of 16 keys this lane has the scores of keys line and line + 8 for rows 2 * part and 2 * part + 1 of 8.");
  writer.line("const int line = lane / 4, part = lane % 4;");
  const bool byQuery = op.getCausal() || op.getWindow() > 0;
  if (byQuery || op.getMask()) {
    if (byQuery)
      writer.line(fmt::format("int queries[{}];", 2 * columns));
    if (op.getMask()) {
      writer.line(fmt::format("const {} *maskRows[{}];", sourceType(dtype(op.getMask())).str(), 2 * columns));
      writer.line(fmt::format("{} maskNext[{}][2];", registerType(dtype(op.getMask())) == "bool" ? "bool" : "f32",
                              2 * columns));
    }
    open("i", 2 * columns);
    writer.line("const i64 wanted = row0 + i / 2 * 8 + part * 2 + i % 2, row = wanted < lastRow ? wanted : lastRow;");
    writer.line(fmt::format("const i64 query = {};", code.queryOf("row")));
    if (byQuery)
      writer.line("queries[i] = (int)query;");
    if (op.getMask()) {
      writer.line(fmt::format("const i64 head = {};", code.headOf("row")));
      code.maskRow("maskRow", "head", "query");
      writer.line("maskRows[i] = maskRow;");
    }
    writer.line("}");
  }
}

// Row 8 n + line's columns part * 8 … + 7 of every 32.
void DecodeTensorEmitter::loadQueries() {
  const bool pieces = readsPieces(problem.view(op.getQ()));
  const std::string from = writer.input(problem.inputOf(op.getQ()));
  const std::string at = queriesInRegisters ? "queryWords[n][c]" : "words";
  if (queriesInRegisters) {
    writer.line(fmt::format("u32 queryWords[{}][{}][4];", columns, keyPieces));
  } else {
    writer.line(fmt::format("SHARED(u32, queryWords, {});", columns * keyPieces * 128));
    writer.line("if (warp == 0) {");
  }
  open("n", columns);
  writer.line("const i64 wanted = row0 + n * 8 + line, row = wanted < lastRow ? wanted : lastRow;");
  open("c", keyPieces);
  writer.line("const int column = c * 32 + part * 8;");
  if (!queriesInRegisters)
    writer.line("u32 words[4];");
  if (pieces) {
    writer.line(fmt::format("load_piece({}, {} + {}, {});", at, from, code.queryOffset("row", "column"),
                            problem.depth % 32 == 0 ? "true" : fmt::format("column < {}", problem.depth)));
  } else {
    writer.line(fmt::format("Vec<{}, 8> piece = Vec<{}, 8>();", type, type));
    open("e", pieceLength);
    writer.line(fmt::format("if (column + e < {})", problem.depth));
    writer.line(fmt::format("  piece[e] = load({} + {});", from, code.queryOffset("row", "(column + e)")));
    writer.line("}");
    writer.line(fmt::format("copy_bytes({}, &piece, 16);", at));
  }
  if (!queriesInRegisters)
    writer.line(fmt::format("copy_bytes(queryWords + ((n * {} + c) * 32 + lane) * 4, words, 16);", keyPieces));
  writer.line("}");
  writer.line("}");
  if (!queriesInRegisters) {
    writer.line("}");
    writer.line("barrier();");
  }
}

void DecodeTensorEmitter::loadPiece(const std::string &index, const std::string &from, const std::string &inside) {
  writer.line(inRegisters ? fmt::format("load_piece(words[{}], {}, {});", index, from, inside)
                          : fmt::format("cp_async_16(to + ({}) * {}, {}, {});", index, pieceBytes, from, inside));
}

// What the lane reads of the 16 keys from j on: its pieces of two keys, then of four keys' values.
void DecodeTensorEmitter::declareLoads() {
  auto inside = [](int64_t width, int64_t all) {
    return width % all == 0 ? std::string("key < end") : fmt::format("key < end && column < {}", width);
  };
  if (inRegisters)
    writer.line(fmt::format("u32 words[{}][4];", pieces));
  else
    writer.line(fmt::format("u8 *const waiting = dynamic_shared() + warp * {} + lane * 16;", stages * pieces * pieceBytes));
  writer.line(inRegisters ? "auto load_keys = [&](i64 j) {" : "auto request = [&](i64 j, u8 *to) {");
  open("i", 2);
  writer.line("const i64 key = j + line + 8 * i;");
  open("c", keyPieces);
  writer.line("const int column = c * 32 + part * 8;");
  loadPiece(fmt::format("i * {} + c", keyPieces),
            fmt::format("keyRows{} + column", code.term("key", problem.view(op.getK()).strides[2])),
            inside(problem.depth, 32));
  writer.line("}");
  writer.line("}");
  if (inRegisters) {
    writer.line("};");
    writer.line("auto load_values = [&](i64 j) {");
  }
  open("i", 4);
  writer.line("const i64 key = j + 2 * part + i / 2 * 8 + i % 2;");
  open("c", valuePieces);
  writer.line("const int column = c * 64 + line * 8;");
  loadPiece(fmt::format("{} + c * 4 + i", 2 * keyPieces),
            fmt::format("valueRows{} + column", code.term("key", problem.view(op.getV()).strides[2])),
            inside(problem.valueDepth, 64));
  writer.line("}");
  writer.line("}");
  if (!inRegisters)
    writer.line("cp_async_commit();");
  writer.line("};");
  if (!inRegisters) {
    writer.line("auto piece = [&](const u8 *from, int index) {");
    writer.line(fmt::format("return load_vec<u32, 4>(reinterpret_cast<const u32 *>(from + index * {}));", pieceBytes));
    writer.line("};");
  }
  if (!op.getMask())
    return;
  writer.line("auto load_mask = [&](i64 j) {");
  open("i", 2 * columns);
  open("half", 2);
  writer.line("const i64 key = j + line + 8 * half;");
  writer.line(fmt::format("maskNext[i][half] = key < end ? {} : {};", code.maskElement("maskRows[i]", "key"),
                          dtype(op.getMask()) == DType::Bool ? "false" : "0.f"));
  writer.line("}");
  writer.line("}");
  writer.line("};");
}

void DecodeTensorEmitter::scores() {
  writer.line(fmt::format("f32 score[{}][4] = {{}};", columns));
  open("c", keyPieces);
  writer.line(fmt::format("const auto &low = {}, &high = {};", piece("c"), piece(fmt::format("{} + c", keyPieces))));
  open("n", columns);
  const std::string words = queriesInRegisters ? "queryWords[n][c]" : "words";
  if (!queriesInRegisters)
    writer.line(fmt::format("const Vec<u32, 4> words = load_vec<u32, 4>(queryWords + ((n * {} + c) * 32 + lane) * 4);",
                            keyPieces));
  open("w", 2);
  writer.line("const u32 a[4] = {low[2 * w], high[2 * w], low[2 * w + 1], high[2 * w + 1]};");
  writer.line(fmt::format("const u32 b[2] = {{{0}[2 * w], {0}[2 * w + 1]}};", words));
  writer.line(fmt::format("mma_m16n8k16(score[n], a, b, {}());", type));
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

void DecodeTensorEmitter::finishScores() {
  const bool byQuery = op.getCausal() || op.getWindow() > 0;
  open("i", 2 * columns);
  open("half", 2);
  writer.line("const i64 key = j + line + 8 * half;");
  writer.line("f32 s = score[i / 2][i % 2 + 2 * half];");
  code.finishScore("s", "key", byQuery ? "queries[i]" : "", "maskNext[i][half]");
  writer.line("score[i / 2][i % 2 + 2 * half] = s;");
  writer.line("}");
  writer.line("}");
  if (op.getMask())
    writer.line("load_mask(j + step);");
}

// Weights are relative to the warp's largest score so far; what was summed before is scaled down when that grows.
void DecodeTensorEmitter::softmaxStep() {
  writer.line(fmt::format("f32 shrink[{}];", 2 * columns));
  writer.line(fmt::format("u32 weights[{0}][2], rests[{0}][2];", columns));
  open("i", 2 * columns);
  writer.line("f32 &low = score[i / 2][i % 2], &high = score[i / 2][i % 2 + 2];");
  writer.line("const f32 top = max_nan(largest[i], column_max(max_nan(low, high)));");
  writer.line("shrink[i] = weight_of(largest[i], top);");
  writer.line("largest[i] = top;");
  writer.line("low = weight_of(low, top);");
  writer.line("high = weight_of(high, top);");
  writer.line("total[i] = total[i] * shrink[i] + (low + high);");
  writer.line("}");
  open("n", columns);
  open("half", 2);
  writer.line(fmt::format("split_pair<{}>(score[n][2 * half], score[n][2 * half + 1], weights[n][half], rests[n][half]);", type));
  writer.line("weights[n][half] = transpose_matrix(weights[n][half]);");
  writer.line("rests[n][half] = transpose_matrix(rests[n][half]);");
  writer.line("}");
  open("i", 4 * valuePieces);
  open("e", 4);
  writer.line("mixed[n][i][e] = mixed[n][i][e] * shrink[2 * n + e % 2];");
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

// Neighbouring keys of a column come together in a register.
void DecodeTensorEmitter::weighValues() {
  open("c", valuePieces);
  for (int i = 0; i < 4; ++i)
    writer.line(fmt::format("const auto &v{} = {};", i, piece(fmt::format("{} + c * 4", 2 * keyPieces + i))));
  open("w", 4);
  writer.line("const u32 a[4] = {permute_bytes(v0[w], v1[w], 0x5410u), permute_bytes(v0[w], v1[w], 0x7632u),");
  writer.line("                  permute_bytes(v2[w], v3[w], 0x5410u), permute_bytes(v2[w], v3[w], 0x7632u)};");
  open("n", columns);
  writer.line(fmt::format("mma_m16n8k16(mixed[n][4 * c + w], a, weights[n], {}());", type));
  writer.line(fmt::format("mma_m16n8k16(mixed[n][4 * c + w], a, rests[n], {}());", type));
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

// The sums of the block's warps, all relative to the largest score of the block.
void DecodeTensorEmitter::mergeWarps() {
  if (!inRegisters)
    writer.line("cp_async_wait<0>();");
  shares.declareResults();
  open("i", 2 * columns);
  writer.line("total[i] = column_sum(total[i]);");
  writer.line("if (line == 0) {");
  writer.line(fmt::format("const int r = warp * {} + i / 2 * 8 + part * 2 + i % 2;", tileRows));
  writer.line("tops[r] = largest[i];");
  writer.line("totals[r] = total[i];");
  writer.line("}");
  writer.line("}");
  writer.line("barrier(); // also: what was requested is not needed any more");
  open("i", 2 * columns);
  writer.line("const int r = i / 2 * 8 + part * 2 + i % 2;");
  shares.factor("r", "largest[i]");
  open("p", 4 * valuePieces);
  writer.line("const int column = p / 4 * 64 + line * 8 + p % 4 * 2;");
  writer.line("Vec<f32, 2> pair;");
  writer.line("pair[0] = mixed[i / 2][p][i % 2] * factor;");
  writer.line("pair[1] = mixed[i / 2][p][i % 2 + 2] * factor;");
  writer.line(fmt::format("{}store_vec(sums + (warp * {} + r) * {} + column, pair);",
                          problem.valueDepth % 64 == 0 ? "" : fmt::format("if (column < {}) ", problem.valueDepth),
                          tileRows, shares.pitch()));
  writer.line("}");
  writer.line("}");
}

void DecodeTensorEmitter::goThroughRegisters() {
  writer.line("load_keys(j);");
  writer.line("load_values(j);");
  writer.line("#pragma unroll 1");
  writer.line("for (; j < end; j += step) {");
  scores();
  writer.line("load_keys(j + step);");
  finishScores();
  softmaxStep();
  weighValues();
  writer.line("load_values(j + step);");
  writer.line("}");
}

void DecodeTensorEmitter::goThroughShared() {
  const int64_t stageBytes = pieces * pieceBytes;
  open("stage", stages);
  writer.line(fmt::format("request(j + stage * step, waiting + stage * {});", stageBytes));
  writer.line("}");
  writer.line("int stage = 0;");
  writer.line("#pragma unroll 1");
  writer.line("for (; j < end; j += step) {");
  writer.line(fmt::format("cp_async_wait<{}>();", stages - 1));
  writer.line(fmt::format("u8 *const from = waiting + stage * {};", stageBytes));
  scores();
  finishScores();
  softmaxStep();
  weighValues();
  writer.line(fmt::format("request(j + {} * step, from);", stages));
  writer.line(fmt::format("stage = stage + 1 < {} ? stage + 1 : 0;", stages));
  writer.line("}");
}

KernelDraft DecodeTensorEmitter::emit() {
  writer.comment(op);
  place();
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  loadQueries();
  declareLoads();
  writer.line(fmt::format("f32 largest[{0}], total[{0}], mixed[{1}][{2}][4] = {{}};", 2 * columns, columns, 4 * valuePieces));
  open("i", 2 * columns);
  writer.line("largest[i] = -inf_f32();");
  writer.line("total[i] = 0.f;");
  writer.line("}");
  writer.line(fmt::format("const i64 step = sharing * {};", warps * tileKeys));
  writer.line(fmt::format("i64 j = first + (share * {} + warp) * {};", warps, tileKeys));
  if (op.getMask())
    writer.line("load_mask(j);");
  if (inRegisters)
    goThroughRegisters();
  else
    goThroughShared();
  mergeWarps();
  shares.merge();
  return shares.finish(warps * stages * pieces * pieceBytes);
}

} // namespace

bool decodesOnTensorCores(const Problem &problem) {
  nn::AttentionOp op = problem.op;
  const DType type = dtype(op.getK());
  return (type == DType::F16 || type == DType::BF16) && dtype(op.getQ()) == type && dtype(op.getV()) == type &&
         readsPieces(problem.view(op.getK())) && readsPieces(problem.view(op.getV())) &&
         DecodeTensorEmitter(problem).fits();
}

KernelDraft emitDecodeTensor(const Problem &problem) { return DecodeTensorEmitter(problem).emit(); }

} // namespace fusion::attention
