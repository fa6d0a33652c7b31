// The kernel for up to 64 rows of A on tensor cores, at the speed at which memory gives B. B's columns are the 16 rows
// of mma.m16n8k16, A's rows its 8 columns. The order of k inside a sum is free: a lane takes the 16 bytes that lie side
// by side in memory for what the instruction calls k = 2 q, 2 q + 1, 2 q + 8 and 2 q + 9, of both operands alike, so
// that B goes from memory to registers without shared memory between. Each warp keeps a ring of requests on its way; the
// warps of a block take turns along K and add up their parts in the end.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

namespace {
constexpr int64_t mostRows = 64, piece = 8; // elements along k of a product's operands, 16 bytes

/// Multiprocessors of a large GPU, and the warps on one of them that keep its share of the memory busy.
constexpr int64_t processors = 132, busyWarps = 16;

bool liesByLines(const Problem &problem) {
  return problem.b.columnStride == Dim(1) && problem.b.rowStride != Dim(1);
}

int64_t bitsOf(const Operand &operand) {
  return operand.packed ? 4 : 8 * static_cast<int64_t>(byteSize(operand.type));
}

/// How B's columns and K are shared out. Measured on an H200, see benchmarks/notes-matmul.md.
struct Sharing {
  int64_t tiles = 1;  ///< of 16 columns, that a warp computes of each product
  int64_t across = 1; ///< warps of a block side by side: they read the same rows of A at about the same time
  int64_t turns = 2;  ///< warps that take turns along K
  int64_t stages = 2; ///< steps along K that a warp has asked for
  int64_t width() const { return 16 * tiles; }
  int64_t columns() const { return width() * across; }
  int64_t threads() const { return 32 * across * turns; }
};

/// All blocks should be on the GPU at once, with as many warps for each product.
Sharing chooseSharing(const Problem &problem) {
  const bool byLines = liesByLines(problem);
  const int64_t rows = problem.mostRows;
  const auto sums = static_cast<int64_t>(problem.sums());
  Sharing sharing;
  auto blocks = [&](int64_t columns) {
    return columnBlocks(problem, columns).constant().value_or(processors) * problem.batchCount().constant().value_or(1);
  };
  const int64_t enough = processors * 9 / 10;
  // Registers of a thread, about: requests, sums, addresses.
  auto registers = [&] {
    const int64_t groups = (rows + 7) / 8, turned = byLines || problem.b.decode ? 8 : 0;
    const int64_t pieces = (byLines ? 8 : 16) * sharing.stages + turned + 4;
    return (groups > 2 ? 64 : 40) + 2 * groups + sums * sharing.tiles * (pieces + 4 * groups);
  };
  auto fits = [&](int64_t turns) { return 32 * sharing.across * turns * registers() <= 1 << 16; };
  // Of more rows than a multiprocessor's L1 holds, warps side by side save what they would read from the L2.
  if (!byLines && rows > 16) {
    sharing.stages = 1;
    const int64_t each = (blocks(16) + processors - 1) / processors; // pieces of 16 columns
    if (sums == 1 && rows <= 32) {
      sharing.tiles = blocks(64) >= enough ? 2 : 1;
      sharing.across = sharing.tiles;
      sharing.turns = sharing.tiles == 2 ? 4 : 8;
      if (sharing.tiles == 1)
        sharing.stages = 2;
    } else {
      const int64_t warps = rows > 32 ? 8 : busyWarps; // registers for the sums
      sharing.across = each <= warps / 2 ? each : 4;
      sharing.turns = warps / sharing.across;
    }
    while (sharing.turns > 1 && !fits(sharing.turns))
      --sharing.turns;
    return sharing;
  }
  if (byLines) // 128, 64 or 32 bytes of a line of 16-bit elements
    sharing.tiles = 4;
  else if (sums == 1)
    sharing.tiles = 2;
  const int64_t fewest = byLines ? std::max<int64_t>(1, 16 / bitsOf(problem.b)) : 1; // 4 bytes of a line
  while (sharing.tiles > fewest && (blocks(sharing.columns()) < enough || (rows > 16 && registers() > 240)))
    sharing.tiles /= 2;
  if (sums * sharing.tiles * (byLines && rows > 8 ? 2 : 1) > 4 || rows > 32)
    sharing.stages = 1;
  while (sharing.turns < busyWarps && 2 * sharing.turns * sums * blocks(sharing.columns()) <= processors * busyWarps) {
    if (fits(2 * sharing.turns))
      sharing.turns *= 2;
    else if (sharing.stages > 1)
      sharing.stages = 1;
    else
      break;
  }
  if (sharing.turns == 16 && !byLines && sums * sharing.tiles > 1) // enough is on its way
    sharing.stages = 1;
  return sharing;
}

class NarrowEmitter {
public:
  NarrowEmitter(const Region &region, const KernelContext &context, const Problem &problem)
      : problem(problem), share(chooseSharing(problem)), groups((problem.mostRows + 7) / 8),
        byLines(liesByLines(problem)), bits(bitsOf(problem.b)),
        depth(byLines ? 32 : std::max<int64_t>(64, 512 / bits)), pieces(byLines ? 1 : std::max<int64_t>(2, 16 / bits)),
        lane(byLines ? piece : std::max<int64_t>(piece, problem.b.decode ? 128 / bits : piece)), words(byLines ? share.tiles * bits / 16 : 4),
        type(sourceType(*tensorCoreType(problem)).str()), writer(region, context.inputs),
        epilogue(region, context, problem, writer) {
    isEarly = llvm::all_of(problem.products,
                           [&](const Product &product) { return context.isSettled(product.b.input); });
  }
  KernelDraft emit();

private:
  void place();
  void request(const std::string &stage, const std::string &k);
  void multiply();
  void decode();
  int64_t loads() const { return byLines || problem.b.decode ? 1 : 2; }
  void merge();
  /// `valid ? text : zeros`, where a step along K may reach beyond the last.
  std::string within(const std::string &k, const std::string &text, const std::string &vec) const;
  void unroll() { writer.line("#pragma unroll"); }

  const Problem &problem;
  const Sharing share;
  const int64_t groups; ///< of 8 rows of A
  const bool byLines;   ///< B lies with n innermost
  const int64_t bits;   ///< of an element of B in memory
  const int64_t depth;  ///< of a step along K
  const int64_t pieces; ///< of a step, for each column
  const int64_t lane;   ///< neighbours along k that a lane holds
  const int64_t words;  ///< of 32 bits, of a request
  const std::string type;
  KernelWriter writer;
  Epilogue epilogue;
  bool isEarly; ///< B is asked for before the kernels ahead have finished
};

std::string NarrowEmitter::within(const std::string &k, const std::string &text, const std::string &vec) const {
  return problem.k.knownMultipleOf(depth) ? text : fmt::format("{} < kEnd ? {} : {}{{}}", k, text, vec);
}

void NarrowEmitter::place() {
  emitStripPlace(writer, problem, share.columns());
  emitBases(writer, problem);
  const std::string width = widthText(writer, problem), rows = writer.size(problem.m);
  const std::string strip = share.across == 1 ? "columnStart" : fmt::format("columnStart + side * {}", share.width());
  writer.line("// A lane's rows of A and columns of B; what comes of those beyond the last is not stored.");
  writer.line(fmt::format("const {} *rows[{}];", type, groups));
  unroll();
  writer.line(fmt::format("for (int j = 0; j < {}; ++j) {{", groups));
  const bool allRows = problem.leastRows >= 8 * groups;
  writer.line(allRows ? "const i64 row = j * 8 + group;"
                      : fmt::format("const i64 row = j * 8 + group < {0} ? j * 8 + group : {0} - 1;", rows));
  writer.line(fmt::format("rows[j] = a + {} + quad * {};", rowOffset(writer, problem, "row"), lane));
  writer.line("}");
  if (byLines) {
    const std::string mine = fmt::format("{} + group * {}", strip, 2 * share.tiles);
    writer.line(fmt::format("const i64 column = {0} < {1} ? {0} : 0;", mine, width));
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(pointerDeclaration(
          problem.b.type, problem.b.packed, numbered("line", s),
          fmt::format("{} + {} + column", numbered("b", s), sumOf({alongK(writer, problem, "(quad * 8)")}))));
    return;
  }
  if (problem.b.decode)
    writer.line(fmt::format("i64 numbers[{}];", 2 * share.tiles));
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("const u32 *{}[{}];", numbered("columns", s), 2 * share.tiles));
  unroll();
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", 2 * share.tiles));
  writer.line(fmt::format("const i64 wanted = {} + i * 8 + group;", strip));
  writer.line(fmt::format("const i64 column = wanted < {0} ? wanted : {0} - 1;", width));
  if (problem.b.decode)
    writer.line("numbers[i] = column;");
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("{}[i] = words_at({} + ({} + quad * {}));", numbered("columns", s), numbered("b", s),
                            sumOf({alongN(writer, problem, "column")}), lane));
  writer.line("}");
}

/// Asks for B's pieces of the step at `k`.
void NarrowEmitter::request(const std::string &stage, const std::string &k) {
  auto load = [&](const std::string &from) { return fmt::format("load_lines_vec<u32, {}>({})", words, from); };
  const std::string vec = fmt::format("Vec<u32, {}>", words);
  unroll();
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", byLines ? 8 : 2 * share.tiles));
  unroll();
  writer.line(fmt::format("for (int h = 0; h < {}; ++h) {{", loads()));
  for (size_t s = 0; s < problem.sums(); ++s) {
    const std::string pieces = fmt::format("{}[{}][i][h]", numbered("pieces", s), stage);
    if (byLines) {
      const std::string offset = sumOf({alongK(writer, problem, fmt::format("({} + i)", k))});
      writer.line(fmt::format("{} = {};", pieces,
                              within(fmt::format("{} + quad * 8 + i", k),
                                     load(fmt::format("words_at({} + {})", numbered("line", s), offset)), vec)));
    } else {
      writer.line(fmt::format("{} = {};", pieces,
                              within(fmt::format("{} + h * 32 + quad * {}", k, lane),
                                     load(fmt::format("{}[i] + ({} + h * 32 >> {})", numbered("columns", s), k, bits == 16 ? 1 : bits == 8 ? 2 : 3)),
                                     vec)));
    }
  }
  writer.line("}");
}

/// Pieces of codes become pieces of the type that is multiplied, of 8 elements along k from `at` on.
void NarrowEmitter::decode() {
  const Operand &b = problem.b;
  const std::string code = sourceType(b.type).str();
  const std::string place = byLines ? "k + quad * 8" : fmt::format("k + quad * {} + h * 8", lane);
  writer.line(fmt::format("const i64 at = {};", within(place, place, "i64")));
  unroll();
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", 2 * share.tiles));
  const std::string column = byLines ? "(column + i)" : "numbers[i]";
  for (size_t s = 0; s < problem.sums(); ++s) {
    const std::string made = numbered("made", s);
    const bool once = b.decode->isOneFor(piece, false);
    const auto [zero, scale] = once ? emitEntries(writer, problem, false, s, "at", column) : std::pair<std::string, std::string>();
    const std::string element =
        byLines ? fmt::format("code_at<{}, {}>({}[u][e][0], i)", code, bits, numbered("pieces", s))
                : fmt::format("code_at<{}, {}>({}[u][i][0], h * 8 + e)", code, bits, numbered("pieces", s));
    const std::string q = isFloat(b.type) ? "to_f32(" + element + ")" : element;
    writer.line(fmt::format("Vec<{}, 8> {};", type, made));
    unroll();
    writer.line("for (int e = 0; e < 8; ++e) {");
    const std::string value = once ? decoded(*b.decode, b.type, q, zero, scale)
                                   : elementValue(writer, problem, false, s, q, "(at + e)", column);
    writer.line(fmt::format("{}[e] = from_f32<{}>({});", made, type, value));
    writer.line("}");
    writer.line(fmt::format("copy_bytes(&{}[i], &{}, 16);", numbered("turned", s), made));
  }
  writer.line("}");
}

/// The step at `k`, whose pieces of B are those of stage u.
void NarrowEmitter::multiply() {
  const bool turns = byLines || problem.b.decode;
  unroll();
  writer.line(fmt::format("for (int h = 0; h < {}; ++h) {{", pieces));
  if (turns)
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("Vec<u32, 4> {}[{}];", numbered("turned", s), 2 * share.tiles));
  if (problem.b.decode) {
    decode();
  } else if (byLines) {
    writer.line("// Neighbours along n become neighbours along k.");
    unroll();
    writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", share.tiles));
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("turn_lines({0}[2 * i], {0}[2 * i + 1], {1}[u], i);", numbered("turned", s),
                              numbered("pieces", s)));
    writer.line("}");
  }
  unroll();
  writer.line(fmt::format("for (int j = 0; j < {}; ++j) {{", groups));
  const std::string at = fmt::format("h * {}", problem.b.decode ? 8 : 32);
  writer.line(fmt::format("const Vec<u32, 4> left = {};",
                          within(fmt::format("k + {} + quad * {}", at, lane),
                                 fmt::format("load_vec<u32, 4>(words_at(rows[j] + (k + {})))", at), "Vec<u32, 4>")));
  unroll();
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", share.tiles));
  for (size_t s = 0; s < problem.sums(); ++s) {
    auto column = [&](const char *i) {
      return turns ? fmt::format("{}[{}]", numbered("turned", s), i) : fmt::format("{}[u][{}][h]", numbered("pieces", s), i);
    };
    writer.line(fmt::format("mma_pieces({}[i][j], {}, {}, left, {}());", numbered("sum", s), column("2 * i"),
                            column("2 * i + 1"), type));
  }
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

/// Adds up what the warps have, as many groups of rows at a time as fit in shared memory, and stores.
void NarrowEmitter::merge() {
  const int64_t pitch = share.columns() + 4; // lanes that write at once meet every bank once
  const auto sums = static_cast<int64_t>(problem.sums());
  auto bytes = [&](int64_t atOnce) { return sums * share.turns * atOnce * 8 * pitch * 4; };
  int64_t atOnce = groups;
  while (atOnce > 1 && (bytes(atOnce) > (24 << 10) || groups % atOnce != 0))
    --atOnce;
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("SHARED(f32, {}, {});", numbered("parts", s), share.turns * atOnce * 8 * pitch));
  const bool once = atOnce == groups;
  if (!once) {
    unroll();
    writer.line(fmt::format("for (int part = 0; part < {}; part += {}) {{", groups, atOnce));
    writer.line("if (part > 0)");
    writer.line("  barrier();");
  }
  const std::string group = once ? "j" : "part + j";
  writer.line("// Lane l holds columns l / 4 (+ 8) and rows 2 (l % 4) (+ 1) of every piece of 16 x 8.");
  unroll();
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", share.tiles));
  unroll();
  writer.line(fmt::format("for (int j = 0; j < {}; ++j)", atOnce));
  unroll();
  writer.line("for (int e = 0; e < 4; ++e) {");
  writer.line(fmt::format("const int at = (turn * {} + j * 8 + quad * 2 + e % 2) * {} + {}{};", atOnce * 8, pitch,
                          share.across == 1 ? "" : fmt::format("side * {} + ", share.width()),
                          byLines ? fmt::format("group * {} + i * 2 + e / 2", 2 * share.tiles)
                                  : "i * 16 + group + e / 2 * 8"));
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("{}[at] = {}[i][{}][e];", numbered("parts", s), numbered("sum", s), group));
  writer.line("}");
  writer.line("barrier();");
  writer.line(fmt::format("for (int i = thread; i < {}; i += {}) {{", atOnce * 8 * share.columns(), share.threads()));
  writer.line(fmt::format("const int r = i / {0}, c = i % {0};", share.columns()));
  writer.line(fmt::format("const i64 m = {}r, n = columnStart + c;", once ? "" : "part * 8 + "));
  llvm::SmallVector<std::string> totals;
  for (size_t s = 0; s < problem.sums(); ++s) {
    totals.push_back(numbered("total", s));
    writer.line(fmt::format("f32 {} = 0.f;", totals.back()));
    unroll();
    writer.line(fmt::format("for (int w = 0; w < {}; ++w)", share.turns));
    writer.line(fmt::format("  {} += {}[(w * {} + r) * {} + c];", totals.back(), numbered("parts", s), atOnce * 8,
                            pitch));
  }
  const bool allRows = problem.leastRows >= 8 * groups;
  writer.line(fmt::format("if ({}n < {}) {{", allRows ? "" : fmt::format("m < {} && ", writer.size(problem.m)),
                          widthText(writer, problem)));
  forStoredProducts(writer, problem,
                    [&](size_t first) { epilogue.emit(resultLine(writer, problem, "m"), "n", totals, first); });
  writer.line("}");
  writer.line("}");
  if (!once)
    writer.line("}");
}

KernelDraft NarrowEmitter::emit() {
  writer.comment(problem.op);
  writer.line("const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;");
  writer.line(share.across == 1 ? "const int turn = warp;"
                                : fmt::format("const int turn = warp / {0}, side = warp % {0};", share.across));
  writer.line("const int group = lane / 4, quad = lane % 4;");
  place();
  writer.line(fmt::format("const i64 kEnd = {};", writer.size(problem.k)));
  for (size_t s = 0; s < problem.sums(); ++s) {
    writer.line(fmt::format("f32 {}[{}][{}][4] = {{}};", numbered("sum", s), share.tiles, groups));
    writer.line(fmt::format("Vec<u32, {}> {}[{}][{}][{}];", words, numbered("pieces", s), share.stages,
                            byLines ? 8 : 2 * share.tiles, loads()));
  }
  const int64_t step = share.turns * depth;
  if (!isEarly)
    writer.line("pdl_wait();");
  unroll();
  writer.line(fmt::format("for (int u = 0; u < {}; ++u) {{", share.stages));
  writer.line(fmt::format("const i64 k = turn * {} + u * {};", depth, step));
  writer.line("if (k < kEnd) {");
  request("u", "k");
  writer.line("}");
  writer.line("}");
  if (isEarly)
    writer.line("pdl_wait();");
  writer.line("#pragma unroll 1");
  writer.line(fmt::format("for (i64 start = turn * {}; start < kEnd; start += {}) {{", depth, share.stages * step));
  unroll();
  writer.line(fmt::format("for (int u = 0; u < {}; ++u) {{", share.stages));
  writer.line(fmt::format("const i64 k = start + u * {}, next = k + {};", step, share.stages * step));
  writer.line("if (k < kEnd) {");
  multiply();
  writer.line("}");
  writer.line("if (next < kEnd) {");
  request("u", "next");
  writer.line("}");
  writer.line("}");
  writer.line("}");
  // Not before: blocks of the next kernel, waiting, would take the place of this one's that still have to start.
  writer.line("pdl_launch_dependents();");
  merge();
  // Left to itself, the compiler spills a few registers of many to fit more blocks, which few rows of small blocks need.
  const bool hasMany = groups > 2 || share.threads() == 512 || (byLines && problem.sums() > 1);
  KernelDraft draft = writer.finish("matmul", static_cast<uint32_t>(share.threads()), hasMany && !problem.b.decode ? 1 : 0);
  draft.gridX = columnBlocks(problem, share.columns()) * problem.batchCount();
  return draft;
}
} // namespace

int64_t narrowRows(const Problem &problem) {
  if (!problem.ahead.empty() || multipliesBytes(problem) || !tensorCoreType(problem))
    return 0;
  const DType type = *tensorCoreType(problem);
  auto fits = [&](const Operand &operand) {
    return operand.decode ? operand.decode->type == type && byteSize(operand.type) == 1 : operand.type == type;
  };
  if (problem.a.decode || !fits(problem.a) || !llvm::all_of(problem.products, [&](const Product &product) { return fits(product.b); }))
    return 0;
  const int64_t length = liesByLines(problem) ? piece : std::max<int64_t>(piece, problem.b.decode ? 128 / bitsOf(problem.b) : 0);
  return readsPieces(problem, true, piece, piece) && readsPieces(problem, false, length, length) ? mostRows : 0;
}

bool isNarrow(const Problem &problem) {
  // Codes of up to four rows are decoded faster where no product of pieces needs their registers.
  const int64_t least = problem.b.decode && fewRows(problem) >= 4 ? 5 : 1;
  return problem.leastRows >= least && problem.mostRows <= narrowRows(problem);
}

KernelDraft emitNarrow(const Region &region, const KernelContext &context, const Problem &problem) {
  return NarrowEmitter(region, context, problem).emit();
}

} // namespace fusion::matmul
