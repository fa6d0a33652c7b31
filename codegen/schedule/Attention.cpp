// The attention schedule: a block takes a tile of queries of one key/value head and streams keys and values
// through shared memory with a running softmax. The heads that share keys and values are rows of one tile.
#include "codegen/ScalarCode.h"
#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {

constexpr int64_t tileRows = 16, threads = 128, threadsPerRow = threads / tileRows;
constexpr int64_t largestHead = 256;

class AttentionEmitter {
public:
  AttentionEmitter(const Region &region, const KernelContext &context, nn::AttentionOp op)
      : region(region), context(context), op(op), writer(region) {
    const DimShape &q = context.shape(op.getQ()), &k = context.shape(op.getK()),
                   &v = context.shape(op.getV());
    batch = q[0], heads = q[1], queries = q[2], kvHeads = k[1], keys = k[2];
    depth = q[3].value(), valueDepth = v[3].value();
    group = heads.floorDiv(kvHeads);
    rows = queries * group;
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
  std::string resultOffset();
  View view(Value operand) const;
  std::string floatElement(Value operand, const std::string &pointer, const std::string &offset) const;
  unsigned inputOf(Value operand) const;
  std::string term(const std::string &index, const Dim &stride);

  const Region &region;
  const KernelContext &context;
  nn::AttentionOp op;
  KernelWriter writer;
  Dim batch, heads, queries, kvHeads, keys, group, rows;
  int64_t depth = 0, valueDepth = 0, pitchD = 0, pitchV = 0, tileKeys = 32;
};

unsigned AttentionEmitter::inputOf(Value operand) const {
  return static_cast<unsigned>(llvm::find(region.inputs, operand) - region.inputs.begin());
}

View AttentionEmitter::view(Value operand) const { return context.inputs[inputOf(operand)]; }

std::string AttentionEmitter::floatElement(Value operand, const std::string &pointer,
                                           const std::string &offset) const {
  const std::string loaded = loadElement(dtype(operand), pointer, offset);
  return registerType(dtype(operand)) == "f32" ? loaded : "(f32)" + loaded;
}

/// `+ index * stride`, or nothing for a zero stride.
std::string AttentionEmitter::term(const std::string &index, const Dim &stride) {
  if (stride == Dim(0))
    return "";
  return stride == Dim(1) ? " + " + index : fmt::format(" + {} * {}", index, writer.size(stride));
}

// Which rows this block has, and which of them this thread works on.
void AttentionEmitter::place() {
  writer.line("const int thread = (int)thread_x();");
  writer.line(
      fmt::format("// {} threads work on a row; a row is one query of one of the {} heads that share keys.",
                  threadsPerRow, writer.size(group)));
  writer.line(fmt::format("const int mine = thread / {0}, part = thread % {0};", threadsPerRow));
  const std::string tiles = writer.size(rows.ceilDiv(tileRows));
  // 32-bit divisions: 64-bit ones are calls, around which registers spill. A grid is below 2^31.
  writer.line(fmt::format("const u32 block = block_x(), tiles = (u32){}, kvHeads = (u32){};", tiles,
                          writer.size(kvHeads)));
  writer.line(fmt::format("const i64 row0 = (i64)(block % tiles) * {};", tileRows));
  writer.line("const i64 kvHead = block / tiles % kvHeads, entry = block / (tiles * kvHeads);");
  writer.line(fmt::format("const i64 lastRow = {} - 1;", writer.size(rows)));
  writer.line("const bool active = row0 + mine <= lastRow;");
  writer.line("const i64 row = active ? row0 + mine : lastRow;");
  writer.line(
      fmt::format("const i64 query = row / {0}, head = kvHead * {0} + row % {0};", writer.size(group)));
  writer.line("// Query i looks at keys around i + shift.");
  writer.line(fmt::format("const i64 shift = {} - {};", writer.size(keys), writer.size(queries)));
}

void AttentionEmitter::loadQueries() {
  const View q = view(op.getQ());
  writer.line(fmt::format("for (int e = thread; e < {}; e += {}) {{", tileRows * depth, threads));
  writer.line(fmt::format("const int r = e / {0}, c = e % {0};", depth));
  writer.line("const i64 at = row0 + r <= lastRow ? row0 + r : lastRow;");
  const std::string g = writer.size(group);
  writer.line(fmt::format("const i64 offset = {}{}{}{}{};", writer.size(q.offset),
                          term("entry", q.strides[0]),
                          term(fmt::format("(kvHead * {0} + at % {0})", g), q.strides[1]),
                          term(fmt::format("(at / {})", g), q.strides[2]), term("c", q.strides[3])));
  writer.line(fmt::format("queryTile[r * {} + c] = {};", pitchD,
                          floatElement(op.getQ(), writer.input(inputOf(op.getQ())), "offset")));
  writer.line("}");
}

void AttentionEmitter::loadTile(Value operand, int64_t width, int64_t pitch, const char *pointer) {
  const View source = view(operand);
  writer.line(fmt::format("for (int e = thread; e < {}; e += {}) {{", tileKeys * width, threads));
  writer.line(fmt::format("const int r = e / {0}, c = e % {0};", width));
  writer.line(fmt::format("const i64 offset = 0{}{};", term("(j0 + r)", source.strides[2]),
                          term("c", source.strides[3])));
  writer.line(fmt::format("tile[r * {} + c] = j0 + r < {} ? {} : 0.f;", pitch, writer.size(keys),
                          floatElement(operand, pointer, "offset")));
  writer.line("}");
}

void AttentionEmitter::scores() {
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

void AttentionEmitter::maskScores() {
  writer.line("f32 largest = -inf_f32();");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", tileKeys / threadsPerRow));
  writer.line(fmt::format("const i64 key = j0 + part + {} * i;", threadsPerRow));
  writer.line(fmt::format("f32 s = {} * score[i];", literal(DType::F32, op.getScale().convertToDouble())));
  if (const double cap = op.getSoftcap().convertToDouble(); cap > 0)
    writer.line(fmt::format("s = {0} * tanh_(s / {0});", literal(DType::F32, cap)));
  if (op.getMask()) {
    const View mask = view(op.getMask());
    const Dim stride = mask.shape.empty() || mask.shape.back() == Dim(1) ? Dim(0) : mask.strides.back();
    const std::string at = "0" + term("key", stride);
    writer.line(fmt::format("if (key < {}) {{", writer.size(keys)));
    if (dtype(op.getMask()) == DType::Bool)
      writer.line(fmt::format("s = {} ? s : -inf_f32();", loadElement(DType::Bool, "maskRow", at)));
    else
      writer.line(fmt::format("s = s + {};", floatElement(op.getMask(), "maskRow", at)));
    writer.line("}");
  }
  std::string kept = fmt::format("key < {}", writer.size(keys));
  if (op.getCausal())
    kept += " && key <= query + shift";
  if (op.getWindow() > 0)
    kept += fmt::format(" && key > query + shift - {}", static_cast<int64_t>(op.getWindow()));
  writer.line(fmt::format("score[i] = {} ? s : -inf_f32();", kept));
  writer.line("largest = max_nan(largest, score[i]);");
  writer.line("}");
}

// Weights are relative to the largest score so far; what was summed before is scaled down when that grows.
void AttentionEmitter::softmaxStep() {
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

void AttentionEmitter::weighValues() {
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

void AttentionEmitter::store() {
  const DType type = dtype(op.getY());
  writer.line("if (active) {");
  writer.line("// Largest score -inf: a row in which nothing was kept.");
  writer.line(fmt::format("const f32 share = running == -inf_f32() ? {} : 1.f / total;",
                          op.getZeroMaskedRows() ? "0.f" : "nan_f32()"));
  writer.line("#pragma unroll");
  writer.line(
      fmt::format("for (int i = 0; i < {}; ++i) {{", (valueDepth + threadsPerRow - 1) / threadsPerRow));
  writer.line(fmt::format("const int c = part + {} * i;", threadsPerRow));
  writer.line("const f32 value = mixed[i] * share;");
  writer.line(fmt::format("if (c < {}) {};", valueDepth,
                          storeElement(type, writer.output(0), resultOffset(), "value")));
  writer.line("}");
  writer.line("}");
}

/// The offset in the output of column `c` of this thread's row. The output is contiguous in the order of dims that a
/// transpose behind asks for; nested products need fewer sizes in registers than a stride for every dim.
std::string AttentionEmitter::resultOffset() {
  SmallVector<int64_t> order = {0, 1, 2, 3};
  for (Operation *later : region.ops)
    if (auto transpose = dyn_cast<nn::TransposeOp>(later))
      order.assign(transpose.getPerm().begin(), transpose.getPerm().end());
  const std::string indices[] = {"entry", "head", "query", "c"};
  const Dim sizes[] = {batch, heads, queries, Dim(valueDepth)};
  std::string offset = indices[order[0]];
  for (int64_t dim : llvm::drop_begin(order))
    offset = fmt::format("{} * {} + {}", offset.find(' ') == std::string::npos ? offset : "(" + offset + ")",
                         writer.size(sizes[dim]), indices[dim]);
  return offset;
}

KernelDraft AttentionEmitter::emit() {
  const View k = view(op.getK()), v = view(op.getV());
  const int64_t pitch = std::max(pitchD, pitchV), held = (valueDepth + threadsPerRow - 1) / threadsPerRow;
  writer.comment(op);
  writer.line(fmt::format("SHARED(f32, queryTile, {});", tileRows * pitchD));
  writer.line(fmt::format("SHARED(f32, tile, {}); // keys, then values", tileKeys * pitch));
  writer.line(fmt::format("SHARED(f32, weightTile, {});", tileRows * (tileKeys + 1)));
  place();
  auto base = [&](Value operand, const View &source, const char *pointer) {
    writer.line(fmt::format("const {} *{} = {} + {}{}{};", sourceType(dtype(operand)).str(), pointer,
                            writer.input(inputOf(operand)), writer.size(source.offset),
                            term("entry", source.strides[0]), term("kvHead", source.strides[1])));
  };
  base(op.getK(), k, "keyRows");
  base(op.getV(), v, "valueRows");
  if (op.getMask()) {
    const View mask = view(op.getMask());
    const char *const names[] = {"entry", "head", "query"};
    std::string offset = writer.size(mask.offset);
    for (size_t fromEnd = 1; fromEnd < mask.shape.size(); ++fromEnd) {
      const size_t dim = mask.shape.size() - 1 - fromEnd;
      if (mask.shape[dim] != Dim(1))
        offset += term(names[3 - fromEnd], mask.strides[dim]);
    }
    writer.line(fmt::format("const {} *maskRow = {} + {};", sourceType(dtype(op.getMask())).str(),
                            writer.input(inputOf(op.getMask())), offset));
  }
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  loadQueries();
  writer.line("f32 running = -inf_f32(), total = 0.f;");
  writer.line(fmt::format("f32 mixed[{}];", held));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i)", held));
  writer.line("  mixed[i] = 0.f;");
  const std::string g = writer.size(group), count = writer.size(keys);
  writer.line("// Keys that no row of the tile looks at are not read.");
  std::string first = "0", end = count;
  if (op.getWindow() > 0) {
    writer.line(fmt::format("const i64 oldest = row0 / {} + shift - {};", g,
                            static_cast<int64_t>(op.getWindow()) - 1));
    first = "oldest > 0 ? oldest : 0";
  }
  if (op.getCausal()) {
    writer.line(
        fmt::format("const i64 lastOfTile = row0 + {0} < lastRow ? row0 + {0} : lastRow;", tileRows - 1));
    writer.line(fmt::format("const i64 newest = lastOfTile / {} + shift + 1;", g));
    end = fmt::format("newest < {0} ? newest : {0}", count);
  }
  writer.line(fmt::format("const i64 first = {}, end = {};", first, end));
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
  draft.gridX = rows.ceilDiv(tileRows) * kvHeads * batch;
  draft.flops = batch * heads * queries * keys * Dim(2 * (depth + valueDepth));
  return draft;
}

/// Behind the attention only a transpose, then a reshape: the result in another order of dims.
std::optional<std::string> layoutRefusal(const Region &region) {
  Value result = region.ops.front()->getResult(0);
  bool reshaped = false, transposed = false;
  for (Operation *op : llvm::drop_begin(region.ops)) {
    const bool isTranspose = isa<nn::TransposeOp>(op);
    if (!(isTranspose && !transposed && !reshaped) && !(isa<nn::ReshapeOp>(op) && !reshaped))
      return (op->getName().getStringRef() + " behind nn.attention").str();
    if (op->getOperand(0) != result)
      return "an operand of " + op->getName().getStringRef().str() + " is not the result of the attention";
    (isTranspose ? transposed : reshaped) = true;
    result = op->getResult(0);
  }
  if (region.outputs.size() != 1 || region.outputs[0] != result)
    return std::string("the result of nn.attention leaves in more than one order");
  return std::nullopt;
}

class AttentionSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "attention"; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
    auto op = region.ops.empty() ? nn::AttentionOp() : dyn_cast<nn::AttentionOp>(region.ops.front());
    if (!op)
      return std::string("does not begin with nn.attention");
    if (auto reason = layoutRefusal(region))
      return reason;
    for (Value operand : op->getOperands())
      if (!llvm::is_contained(region.inputs, operand))
        return std::string("an operand of nn.attention is computed in the region");
    for (auto [operand, what] : {std::pair(op.getQ(), "queries"), std::pair(op.getV(), "values")}) {
      std::optional<int64_t> size = context.shape(operand).back().constant();
      if (!size || *size < 1)
        return std::string("the head size of the ") + what + " is not static";
      if (*size > largestHead)
        return "a head size of " + std::to_string(*size) + ", more than " + std::to_string(largestHead);
    }
    return std::nullopt;
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    return AttentionEmitter(region, context, cast<nn::AttentionOp>(region.ops.front())).emit();
  }
};

} // namespace

const Schedule &attentionSchedule() {
  static const AttentionSchedule schedule;
  return schedule;
}

} // namespace fusion
