// Attention on plain f32 units: a block takes a tile of queries of one key/value head and streams keys and values
// through shared memory with a running softmax.
#include "codegen/schedule/AttentionProblem.h"

#include "codegen/ScalarCode.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

namespace {

constexpr int64_t tileRows = 16, threads = 128, threadsPerRow = threads / tileRows;

class FmaEmitter {
public:
  explicit FmaEmitter(const Problem &problem)
      : problem(problem), op(problem.op), depth(problem.depth), valueDepth(problem.valueDepth), writer(problem.region),
        code(problem, writer) {
    // Odd pitches: threads that read different rows meet different banks.
    pitchD = depth | 1;
    pitchV = valueDepth | 1;
    const int64_t pitch = std::max(pitchD, pitchV);
    tileKeys = (tileRows * pitchD + 32 * pitch + tileRows * 33) * 4 <= 48 * 1024 ? 32 : 16;
  }

  KernelDraft emit();

private:
  void place();
  void loadQueries();
  void loadTile(Value operand, int64_t width, int64_t pitch, const char *pointer);
  void scores();
  void maskScores();
  void softmaxStep();
  void weighValues();
  void store();

  const Problem &problem;
  nn::AttentionOp op;
  const int64_t depth, valueDepth;
  KernelWriter writer;
  Code code;
  int64_t pitchD = 0, pitchV = 0, tileKeys = 32;
};

// Which rows this block has, and which of them this thread works on.
void FmaEmitter::place() {
  writer.line("const int thread = (int)thread_x();");
  writer.line(
      fmt::format("// {} threads work on a row; a row is one query of one of the {} heads that share keys.",
                  threadsPerRow, writer.size(problem.group)));
  writer.line(fmt::format("const int mine = thread / {0}, part = thread % {0};", threadsPerRow));
  code.place(tileRows);
  writer.line("const bool active = row0 + mine <= lastRow;");
  writer.line("const i64 row = active ? row0 + mine : lastRow;");
  writer.line(fmt::format("const i64 query = {}, head = {};", code.queryOf("row"), code.headOf("row")));
}

void FmaEmitter::loadQueries() {
  writer.line(fmt::format("for (int e = thread; e < {}; e += {}) {{", tileRows * depth, threads));
  writer.line(fmt::format("const int r = e / {0}, c = e % {0};", depth));
  writer.line("const i64 at = row0 + r <= lastRow ? row0 + r : lastRow;");
  writer.line(fmt::format("const i64 offset = {};", code.queryOffset("at", "c")));
  writer.line(fmt::format("queryTile[r * {} + c] = {};", pitchD,
                          code.floatElement(op.getQ(), writer.input(problem.inputOf(op.getQ())), "offset")));
  writer.line("}");
}

void FmaEmitter::loadTile(Value operand, int64_t width, int64_t pitch, const char *pointer) {
  const View &source = problem.view(operand);
  writer.line(fmt::format("for (int e = thread; e < {}; e += {}) {{", tileKeys * width, threads));
  writer.line(fmt::format("const int r = e / {0}, c = e % {0};", width));
  writer.line(fmt::format("const i64 offset = 0{}{};", code.term("(j0 + r)", source.strides[2]),
                          code.term("c", source.strides[3])));
  writer.line(fmt::format("tile[r * {} + c] = j0 + r < {} ? {} : 0.f;", pitch, writer.size(problem.keys),
                          code.floatElement(operand, pointer, "offset")));
  writer.line("}");
}

void FmaEmitter::scores() {
  const int64_t held = tileKeys / threadsPerRow;
  writer.line(fmt::format("f32 score[{}];", held));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", held));
  writer.line("  score[i] = 0.f;");
  writer.line("#pragma unroll 8");
  writer.line(fmt::format("for (int c = 0; c < {}; ++c) {{", depth));
  writer.line(fmt::format("const f32 factor = queryTile[mine * {} + c];", pitchD));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", held));
  writer.line(fmt::format("  score[i] = fma_(factor, tile[(part + {} * i) * {} + c], score[i]);",
                          threadsPerRow, pitchD));
  writer.line("}");
}

void FmaEmitter::maskScores() {
  writer.line("f32 largest = -inf_f32();");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", tileKeys / threadsPerRow));
  writer.line(fmt::format("const i64 key = j0 + part + {} * i;", threadsPerRow));
  writer.line("f32 s = score[i];");
  code.finishScore("s", "key", "query", op.getMask() ? code.maskElement("maskRow", "key") : "");
  writer.line("score[i] = s;");
  writer.line("largest = max_nan(largest, s);");
  writer.line("}");
}

// Weights are relative to the largest score so far; what was summed before is scaled down when that grows.
void FmaEmitter::softmaxStep() {
  writer.line(fmt::format("const f32 top = max_nan(running, lanes_max<{}>(largest));", threadsPerRow));
  writer.line("const bool empty = top == -inf_f32();");
  writer.line("const f32 shrink = empty ? 1.f : exp_(running - top);");
  writer.line("running = top;");
  writer.line("f32 sum = 0.f;");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", tileKeys / threadsPerRow));
  writer.line("const f32 weight = empty ? 0.f : exp_(score[i] - top);");
  writer.line(fmt::format("weightTile[mine * {} + part + {} * i] = weight;", tileKeys + 1, threadsPerRow));
  writer.line("sum = sum + weight;");
  writer.line("}");
  writer.line(fmt::format("total = total * shrink + lanes_sum<{}>(sum);", threadsPerRow));
}

void FmaEmitter::weighValues() {
  const int64_t held = (valueDepth + threadsPerRow - 1) / threadsPerRow;
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", held));
  writer.line("  mixed[i] = mixed[i] * shrink;");
  writer.line("#pragma unroll 4");
  writer.line(fmt::format("for (int j = 0; j < {}; ++j) {{", tileKeys));
  writer.line(fmt::format("const f32 weight = weightTile[mine * {} + j];", tileKeys + 1));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", held));
  const std::string inside = valueDepth % threadsPerRow == 0
                                 ? ""
                                 : fmt::format("if (part + {} * i < {}) ", threadsPerRow, valueDepth);
  writer.line(fmt::format("  {}mixed[i] = fma_(weight, tile[j * {} + part + {} * i], mixed[i]);", inside,
                          pitchV, threadsPerRow));
  writer.line("}");
}

void FmaEmitter::store() {
  const DType type = dtype(op.getY());
  writer.line("if (active) {");
  writer.line("// Largest score -inf: a row in which nothing was kept.");
  writer.line("const f32 share = " + code.share("running", "total") + ";");
  writer.line("#pragma unroll");
  writer.line(
      fmt::format("for (int i = 0; i < {}; ++i) {{", (valueDepth + threadsPerRow - 1) / threadsPerRow));
  writer.line(fmt::format("const int c = part + {} * i;", threadsPerRow));
  writer.line("const f32 value = mixed[i] * share;");
  writer.line(fmt::format("if (c < {}) {};", valueDepth,
                          storeElement(type, writer.output(0), code.resultOffset("head", "query", "c"), "value")));
  writer.line("}");
  writer.line("}");
}

KernelDraft FmaEmitter::emit() {
  const int64_t pitch = std::max(pitchD, pitchV), held = (valueDepth + threadsPerRow - 1) / threadsPerRow;
  writer.comment(op);
  if (auto reason = tensorRefusal(problem))
    writer.line("// Not on tensor cores: " + *reason + ".");
  writer.line(fmt::format("SHARED(f32, queryTile, {});", tileRows * pitchD));
  writer.line(fmt::format("SHARED(f32, tile, {}); // keys, then values", tileKeys * pitch));
  writer.line(fmt::format("SHARED(f32, weightTile, {});", tileRows * (tileKeys + 1)));
  place();
  code.keyAndValueRows();
  code.maskRow("maskRow", "head", "query");
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  loadQueries();
  writer.line("f32 running = -inf_f32(), total = 0.f;");
  writer.line(fmt::format("f32 mixed[{}];", held));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", held));
  writer.line("  mixed[i] = 0.f;");
  code.keyBounds(tileRows);
  writer.line(fmt::format("for (i64 j0 = first; j0 < end; j0 += {}) {{", tileKeys));
  writer.line("barrier();");
  loadTile(op.getK(), depth, pitchD, "keyRows");
  writer.line("barrier();");
  scores();
  maskScores();
  softmaxStep();
  writer.line("barrier();");
  loadTile(op.getV(), valueDepth, pitchV, "valueRows");
  writer.line("barrier();");
  weighValues();
  writer.line("}");
  store();
  KernelDraft draft = writer.finish("attention", threads, /*residentBlocks=*/4);
  draft.gridX = problem.rows.ceilDiv(tileRows) * problem.kvHeads * problem.batch;
  return draft;
}

} // namespace

KernelDraft emitFma(const Problem &problem) { return FmaEmitter(problem).emit(); }

} // namespace fusion::attention
