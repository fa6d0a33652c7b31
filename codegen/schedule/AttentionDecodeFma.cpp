// The same for operands of any types and head sizes: each warp takes some keys at a time, and all its lanes have columns
// of each. Of the scores that come of their sums each lane has one, of key lane / 4 for row lane % 4.
#include "codegen/ScalarCode.h"
#include "codegen/schedule/AttentionUnits.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

namespace {

constexpr int64_t tileRows = 4, warps = 8;

/// Which columns of a row a lane has: neighbours part * length + (0 … length - 1) of every 32 * length.
struct Columns {
  Columns(const View &view, DType type, int64_t width) : width(width) {
    const auto bytes = static_cast<int64_t>(byteSize(type));
    auto fits = [&](int64_t many) {
      for (size_t i = 0; i < 3; ++i)
        if (view.shape[i] != Dim(1) && !view.strides[i].knownMultipleOf(many))
          return false;
      return view.strides[3] == Dim(1) && width % many == 0 && view.offset.knownMultipleOf(many);
    };
    while (length * bytes < 16 && 32 * length < width && fits(2 * length))
      length *= 2;
    pieces = llvm::divideCeil(width, 32 * length);
  }
  int64_t width, length = 1, pieces = 1;
  int64_t count() const { return length * pieces; }
  std::string inside(const std::string &also) const {
    return width % (32 * length) == 0 ? also : also + fmt::format(" && column < {}", width);
  }
};

class DecodeFmaEmitter {
public:
  explicit DecodeFmaEmitter(const Problem &problem)
      : problem(problem), op(problem.op), writer(problem.region), code(problem, writer),
        keys(problem.view(op.getK()), dtype(op.getK()), problem.depth),
        values(problem.view(op.getV()), dtype(op.getV()), problem.valueDepth),
        batch(keys.count() + values.count() <= 8 ? 8 : 4), shares(problem, writer, code, tileRows, warps, /*resident=*/1) {}

  KernelDraft emit();

private:
  void open(const std::string &variable, int64_t count);
  void place();
  void loadQueries();
  void declareLoads();
  void declareLoad(const char *name, Value operand, const Columns &columns, const char *rows);
  void scores();
  void softmaxStep();
  void weighValues();
  void mergeWarps();

  const Problem &problem;
  nn::AttentionOp op;
  KernelWriter writer;
  Code code;
  const Columns keys, values;
  const int64_t batch; ///< keys at a time
  Units shares;
};

void DecodeFmaEmitter::open(const std::string &variable, int64_t count) {
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) {{", variable, count));
}

void DecodeFmaEmitter::place() {
  shares.place();
  writer.line(fmt::format("// This lane's score: of key `place` of {}, for row lane % {}.", batch, tileRows));
  writer.line(fmt::format("const int place = lane % {} / {};", batch * tileRows, tileRows));
  writer.line(fmt::format("const i64 wanted = row0 + lane % {}, row = wanted < lastRow ? wanted : lastRow;", tileRows));
  writer.line(fmt::format("const i64 query = {};", code.queryOf("row")));
  if (op.getMask()) {
    writer.line(fmt::format("const i64 head = {};", code.headOf("row")));
    code.maskRow("maskRow", "head", "query");
  }
}

void DecodeFmaEmitter::loadQueries() {
  writer.line(fmt::format("f32 queries[{}][{}][{}];", tileRows, keys.pieces, keys.length));
  open("r", tileRows);
  writer.line("const i64 at = row0 + r < lastRow ? row0 + r : lastRow;");
  open("c", keys.pieces);
  open("e", keys.length);
  writer.line(fmt::format("const int column = (c * 32 + lane) * {} + e;", keys.length));
  writer.line(fmt::format("queries[r][c][e] = {} ? {} : 0.f;", keys.inside("true"),
                          code.floatElement(op.getQ(), writer.input(problem.inputOf(op.getQ())),
                                            code.queryOffset("at", "column"))));
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

void DecodeFmaEmitter::declareLoad(const char *name, Value operand, const Columns &columns, const char *rows) {
  const View &view = problem.view(operand);
  writer.line(fmt::format("f32 {}[{}][{}][{}];", name, batch, columns.pieces, columns.length));
  writer.line(fmt::format("auto load_{} = [&](i64 j) {{", name));
  open("b", batch);
  writer.line("const i64 key = j + b;");
  open("c", columns.pieces);
  writer.line(fmt::format("const int column = (c * 32 + lane) * {};", columns.length));
  writer.line(fmt::format("load_floats({}[b][c], {}{}{}, {});", name, rows, code.term("key", view.strides[2]),
                          code.term("column", view.strides[3]), columns.inside("key < end")));
  writer.line("}");
  writer.line("}");
  writer.line("};");
}

void DecodeFmaEmitter::declareLoads() {
  declareLoad("keys", op.getK(), keys, "keyRows");
  declareLoad("values", op.getV(), values, "valueRows");
  if (!op.getMask())
    return;
  const bool keeps = dtype(op.getMask()) == DType::Bool;
  writer.line(fmt::format("{} masked;", keeps ? "bool" : "f32"));
  writer.line("auto load_mask = [&](i64 j) {");
  writer.line("const i64 key = j + place;");
  writer.line(fmt::format("masked = key < end ? {} : {};", code.maskElement("maskRow", "key"), keeps ? "false" : "0.f"));
  writer.line("};");
}

void DecodeFmaEmitter::scores() {
  writer.line(fmt::format("f32 parts[{}];", batch * tileRows));
  open("b", batch);
  open("r", tileRows);
  writer.line("f32 sum = 0.f;");
  open("c", keys.pieces);
  open("e", keys.length);
  writer.line("sum = fma_(queries[r][c][e], keys[b][c][e], sum);");
  writer.line("}");
  writer.line("}");
  writer.line(fmt::format("parts[b * {} + r] = sum;", tileRows));
  writer.line("}");
  writer.line("}");
  writer.line("const i64 key = j + place;");
  writer.line("f32 s = sum_each(parts);");
  code.finishScore("s", "key", "query", "masked");
}

void DecodeFmaEmitter::softmaxStep() {
  writer.line("const f32 top = max_nan(largest, column_max(s)), shrink = weight_of(largest, top), weight = weight_of(s, top);");
  writer.line("largest = top;");
  writer.line(batch * tileRows == 32 ? "total = total * shrink + weight;"
                                     : fmt::format("total = total * shrink + (lane < {} ? weight : 0.f);", batch * tileRows));
}

void DecodeFmaEmitter::weighValues() {
  auto forColumns = [&](const std::string &statement) {
    open("c", values.pieces);
    open("e", values.length);
    writer.line(statement);
    writer.line("}");
    writer.line("}");
  };
  open("r", tileRows);
  writer.line("const f32 factor = shuffle_index(shrink, r);");
  forColumns("mixed[r][c][e] = mixed[r][c][e] * factor;");
  open("b", batch);
  writer.line(fmt::format("const f32 each = shuffle_index(weight, b * {} + r);", tileRows));
  forColumns("mixed[r][c][e] = fma_(each, values[b][c][e], mixed[r][c][e]);");
  writer.line("}");
  writer.line("}");
}

void DecodeFmaEmitter::mergeWarps() {
  shares.declareResults();
  writer.line("total = column_sum(total);");
  writer.line(fmt::format("if (lane < {}) {{", tileRows));
  writer.line(fmt::format("tops[warp * {} + lane] = largest;", tileRows));
  writer.line(fmt::format("totals[warp * {} + lane] = total;", tileRows));
  writer.line("}");
  writer.line("barrier();");
  open("r", tileRows);
  shares.factor("r", "shuffle_index(largest, r)");
  open("c", values.pieces);
  open("e", values.length);
  writer.line(fmt::format("const int column = (c * 32 + lane) * {} + e;", values.length));
  writer.line(fmt::format("if ({})", values.inside("true")));
  writer.line(fmt::format("  sums[(warp * {} + r) * {} + column] = mixed[r][c][e] * factor;", tileRows, shares.pitch()));
  for (int i = 0; i < 3; ++i)
    writer.line("}");
}

KernelDraft DecodeFmaEmitter::emit() {
  writer.comment(op);
  place();
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  loadQueries();
  declareLoads();
  writer.line(fmt::format("f32 largest = -inf_f32(), total = 0.f, mixed[{}][{}][{}] = {{}};", tileRows, values.pieces,
                          values.length));
  writer.line(fmt::format("const i64 step = sharing * {};", warps * batch));
  writer.line(fmt::format("i64 j = first + (share * {} + warp) * {};", warps, batch));
  writer.line("load_keys(j);");
  writer.line("load_values(j);");
  if (op.getMask())
    writer.line("load_mask(j);");
  writer.line("#pragma unroll 1");
  writer.line("for (; j < end; j += step) {");
  scores();
  writer.line("load_keys(j + step);");
  if (op.getMask())
    writer.line("load_mask(j + step);");
  softmaxStep();
  weighValues();
  writer.line("load_values(j + step);");
  writer.line("}");
  mergeWarps();
  shares.merge();
  return shares.finish(0);
}

} // namespace

KernelDraft emitDecodeFma(const Problem &problem) { return DecodeFmaEmitter(problem).emit(); }

} // namespace fusion::attention
