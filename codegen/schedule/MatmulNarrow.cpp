// The kernel for up to 64 rows of A on tensor cores, at the speed at which memory gives B. B's columns are the 16 rows
// of mma.m16n8k16, A's rows its 8 columns. The order of k inside a sum is free: a lane takes the 16 bytes that lie side
// by side in memory for what the instruction calls k = 2 q, 2 q + 1, 2 q + 8 and 2 q + 9, of both operands alike, so
// that B goes from memory to registers without shared memory between. Each warp keeps a ring of requests on its way; the
// warps of a block take turns along K and add up their parts in the end.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

namespace fusion::matmul {

namespace {
constexpr int64_t mostRows = 64, piece = 8; // of 16 bytes

/// Multiprocessors of a large GPU, about, and the warps on one of them that keep its share of the memory busy.
constexpr int64_t processors = 128, busyWarps = 16;

bool liesByLines(const Problem &problem) {
  return problem.b.columnStride == Dim(1) && problem.b.rowStride != Dim(1);
}

/// How B's columns and K are shared out. Measured on an H200, see benchmarks/notes-matmul.md.
struct Sharing {
  int64_t tiles = 1;  ///< of 16 columns, that a warp computes of each product
  int64_t warps = 4;  ///< of a block
  int64_t stages = 2; ///< steps along K that a warp has asked for
  int64_t columns() const { return 16 * tiles; }
  int64_t threads() const { return 32 * warps; }
};

/// All blocks should be on the GPU at once, with as many warps for each product.
Sharing chooseSharing(const Problem &problem) {
  const bool byLines = liesByLines(problem);
  const int64_t rows = problem.mostRows;
  const auto sums = static_cast<int64_t>(problem.sums());
  Sharing sharing;
  auto blocks = [&] { return columnBlocks(problem, sharing.columns()).constant().value_or(processors) * problem.batchCount().constant().value_or(1); };
  if (byLines) // 128, 64 or 32 bytes of a line
    sharing.tiles = 4;
  else if (sums == 1 && (rows <= 16 || rows > 32))
    sharing.tiles = 2;
  while (sharing.tiles > 1 && blocks() < processors * 15 / 16)
    sharing.tiles /= 2;
  if (sums * sharing.tiles * (byLines && rows > 8 ? 2 : 1) > 4 || rows > 32)
    sharing.stages = 1;
  // Registers of a thread, about: requests, sums, addresses.
  auto registers = [&] {
    const int64_t groups = (rows + 7) / 8, pieces = byLines ? 8 * sharing.stages + 8 : 16 * sharing.stages + 4;
    return 40 + 2 * groups + sums * sharing.tiles * (pieces + 4 * groups);
  };
  sharing.warps = 2;
  while (2 * sharing.warps * sums * blocks() <= processors * busyWarps && 2 * sharing.threads() * registers() <= 1 << 16)
    sharing.warps *= 2;
  if (sharing.warps == 16 && !byLines && sums * sharing.tiles > 1) // enough is on its way
    sharing.stages = 1;
  return sharing;
}

class NarrowEmitter {
public:
  NarrowEmitter(const Region &region, const KernelContext &context, const Problem &problem)
      : problem(problem), share(chooseSharing(problem)), groups((problem.mostRows + 7) / 8),
        byLines(liesByLines(problem)), depth(byLines ? 32 : 64),
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
  void merge();
  /// `valid ? text : zeros`, where a step along K may reach beyond the last.
  std::string within(const std::string &k, const std::string &text, const std::string &vec) const;
  void unroll() { writer.line("#pragma unroll"); }

  const Problem &problem;
  const Sharing share;
  const int64_t groups; ///< of 8 rows of A
  const bool byLines;   ///< B lies with n innermost
  const int64_t depth;  ///< of a step along K
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
  writer.line("// A lane's rows of A and columns of B; what comes of those beyond the last is not stored.");
  writer.line(fmt::format("const {} *rows[{}];", type, groups));
  unroll();
  writer.line(fmt::format("for (int j = 0; j < {}; ++j) {{", groups));
  const bool allRows = problem.leastRows >= 8 * groups;
  writer.line(allRows ? "const i64 row = j * 8 + group;"
                      : fmt::format("const i64 row = j * 8 + group < {0} ? j * 8 + group : {0} - 1;", rows));
  writer.line(fmt::format("rows[j] = a + {} + quad * {};", rowOffset(writer, problem, "row"), piece));
  writer.line("}");
  if (byLines) {
    const std::string mine = fmt::format("columnStart + group * {}", 2 * share.tiles);
    writer.line(fmt::format("const i64 column = {0} < {1} ? {0} : 0;", mine, width));
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("const {} *{} = {} + {} + column;", type, numbered("line", s), numbered("b", s),
                              sumOf({alongK(writer, problem, fmt::format("(quad * {})", piece))})));
  } else {
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("const {} *{}[{}];", type, numbered("columns", s), 2 * share.tiles));
    unroll();
    writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", 2 * share.tiles));
    writer.line("const i64 wanted = columnStart + i * 8 + group;");
    writer.line(fmt::format("const i64 column = wanted < {0} ? wanted : {0} - 1;", width));
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("{}[i] = {} + {} + quad * {};", numbered("columns", s), numbered("b", s),
                              sumOf({alongN(writer, problem, "column")}), piece));
    writer.line("}");
  }
}

/// Asks for B's pieces of the step at `k`.
void NarrowEmitter::request(const std::string &stage, const std::string &k) {
  const int64_t words = byLines ? share.tiles : 4;
  const std::string vec = fmt::format("Vec<u32, {}>", words);
  auto load = [&](const std::string &from) {
    return fmt::format("load_lines_vec<u32, {}>(reinterpret_cast<const u32 *>({}))", words, from);
  };
  unroll();
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", byLines ? 8 : 2 * share.tiles));
  if (byLines) {
    if (problem.sums() > 1)
      writer.line("{");
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("  {}[{}][i] = {};", numbered("pieces", s), stage,
                              within(fmt::format("{} + quad * {} + i", k, piece),
                                     load(sumOf({numbered("line", s), alongK(writer, problem, fmt::format("({} + i)", k))})),
                                     vec)));
    if (problem.sums() > 1)
      writer.line("}");
    return;
  }
  unroll();
  writer.line("for (int h = 0; h < 2; ++h) {");
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("{}[{}][i][h] = {};", numbered("pieces", s), stage,
                            within(fmt::format("{} + h * 32 + quad * {}", k, piece),
                                   load(fmt::format("{}[i] + {} + h * 32", numbered("columns", s), k)), vec)));
  writer.line("}");
}

/// The step at `k`, whose pieces of B are those of stage u.
void NarrowEmitter::multiply() {
  if (byLines) {
    writer.line("// Neighbours along n become neighbours along k.");
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("Vec<u32, 4> {}[{}];", numbered("turned", s), 2 * share.tiles));
    unroll();
    writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", share.tiles));
    for (size_t s = 0; s < problem.sums(); ++s)
      writer.line(fmt::format("turn_lines({0}[2 * i], {0}[2 * i + 1], {1}[u], i);", numbered("turned", s),
                              numbered("pieces", s)));
    writer.line("}");
  } else {
    unroll();
    writer.line("for (int h = 0; h < 2; ++h)");
  }
  unroll();
  writer.line(fmt::format("for (int j = 0; j < {}; ++j) {{", groups));
  const std::string at = byLines ? "" : " + h * 32";
  writer.line(fmt::format("const Vec<u32, 4> left = {};",
                          within(fmt::format("k{} + quad * {}", at, piece),
                                 fmt::format("load_vec<u32, 4>(reinterpret_cast<const u32 *>(rows[j] + k{}))", at),
                                 "Vec<u32, 4>")));
  unroll();
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", share.tiles));
  for (size_t s = 0; s < problem.sums(); ++s) {
    const std::string low = byLines ? numbered("turned", s) + "[2 * i]" : numbered("pieces", s) + "[u][2 * i][h]",
                      high = byLines ? numbered("turned", s) + "[2 * i + 1]" : numbered("pieces", s) + "[u][2 * i + 1][h]";
    writer.line(fmt::format("mma_pieces({}[i][j], {}, {}, left, {}());", numbered("sum", s), low, high, type));
  }
  writer.line("}");
  writer.line("}");
}

/// Adds up what the warps have, as many groups of rows at a time as fit in shared memory, and stores.
void NarrowEmitter::merge() {
  const int64_t pitch = share.columns() + 4; // lanes that write at once meet every bank once
  const auto sums = static_cast<int64_t>(problem.sums());
  auto bytes = [&](int64_t atOnce) { return sums * share.warps * atOnce * 8 * pitch * 4; };
  int64_t atOnce = groups;
  while (atOnce > 1 && (bytes(atOnce) > (24 << 10) || groups % atOnce != 0))
    --atOnce;
  for (size_t s = 0; s < problem.sums(); ++s)
    writer.line(fmt::format("SHARED(f32, {}, {});", numbered("parts", s), share.warps * atOnce * 8 * pitch));
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
  writer.line(fmt::format("const int at = (warp * {} + j * 8 + quad * 2 + e % 2) * {} + {};", atOnce * 8, pitch,
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
    writer.line(fmt::format("for (int w = 0; w < {}; ++w)", share.warps));
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
  writer.line("const int group = lane / 4, quad = lane % 4;");
  place();
  writer.line(fmt::format("const i64 kEnd = {};", writer.size(problem.k)));
  for (size_t s = 0; s < problem.sums(); ++s) {
    writer.line(fmt::format("f32 {}[{}][{}][4] = {{}};", numbered("sum", s), share.tiles, groups));
    writer.line(byLines ? fmt::format("Vec<u32, {}> {}[{}][8];", share.tiles, numbered("pieces", s), share.stages)
                        : fmt::format("Vec<u32, 4> {}[{}][{}][2];", numbered("pieces", s), share.stages,
                                      2 * share.tiles));
  }
  const int64_t step = share.warps * depth;
  if (!isEarly)
    writer.line("pdl_wait();");
  unroll();
  writer.line(fmt::format("for (int u = 0; u < {}; ++u) {{", share.stages));
  writer.line(fmt::format("const i64 k = warp * {} + u * {};", depth, step));
  writer.line("if (k < kEnd) {");
  request("u", "k");
  writer.line("}");
  writer.line("}");
  if (isEarly)
    writer.line("pdl_wait();");
  writer.line(fmt::format("for (i64 start = warp * {}; start < kEnd; start += {}) {{", depth, share.stages * step));
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
  KernelDraft draft = writer.finish("matmul", static_cast<uint32_t>(share.threads()));
  draft.gridX = columnBlocks(problem, share.columns()) * problem.batchCount();
  return draft;
}
} // namespace

int64_t narrowRows(const Problem &problem) {
  if (!problem.ahead.empty() || multipliesBytes(problem) || !tensorCoreType(problem))
    return 0;
  const DType type = *tensorCoreType(problem);
  auto asIs = [&](const Operand &operand) { return !operand.decode && operand.type == type; };
  if (!asIs(problem.a) || !llvm::all_of(problem.products, [&](const Product &product) { return asIs(product.b); }))
    return 0;
  return readsPieces(problem, true, piece, piece) && readsPieces(problem, false, piece, piece) ? mostRows : 0;
}

bool isNarrow(const Problem &problem) { return problem.leastRows >= 1 && problem.mostRows <= narrowRows(problem); }

KernelDraft emitNarrow(const Region &region, const KernelContext &context, const Problem &problem) {
  return NarrowEmitter(region, context, problem).emit();
}

} // namespace fusion::matmul
