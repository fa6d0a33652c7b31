#include "codegen/schedule/LinearAttention.h"

#include "codegen/body/Printer.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::linear_attention {

static std::string typeOf(Value value) { return value ? body::spelling(dtype(value)) : "void"; }

/// Head `head` of `of` heads in an operand of `count`: neighbours share one where there are fewer.
static std::string sharedHead(int64_t of, int64_t count) {
  return count == of ? "head" : count == 1 ? "0" : fmt::format("(head / {})", of / count);
}

KernelBuilder::KernelBuilder(const Problem &problem, StringRef variant)
    : problem(problem), op(problem.op), variant("linear_attention_" + variant.str()),
      source(problem.region, problem.context.inputs) {
  source.include(variant == "prepare" ? "linear_attention_prepared.cuh" : this->variant + ".cuh");
  source.config.setType("Query", typeOf(op.getQ()));
  source.config.setType("Key", typeOf(op.getK()));
  source.config.setType("Value", typeOf(op.getV()));
  source.config.setType("State", typeOf(op.getState()));
  source.config.setType("Decay", typeOf(op.getDecay()));
  source.config.setType("Beta", typeOf(op.getBeta()));
  config("depth", problem.depth);
  config("value_depth", problem.valueDepth);
  config("queries", problem.queries);
  config("decay_width", problem.decayWidth);
  source.config.set("f32", "scale", body::literal(DType::F32, op.getScale().convertToDouble()));
  source.body.method("DEVICE i64 heads() const", source.body.size(Dim(problem.heads)));
  count("tokens", problem.tokens);
  rows("query", op.getQ(), sharedHead(problem.resultHeads, problem.queryHeads));
  rows("key", op.getK(), sharedHead(problem.heads, problem.keyHeads));
  rows("value", op.getV(), "head");
  rows("state", op.getState(), "head");
  if (op.getDecay())
    rows("decay", op.getDecay(), "head");
  if (op.getBeta())
    rows("beta", op.getBeta(), problem.view(op.getBeta()).shape[1] == Dim(1) ? "0" : "head",
         /*columnStride=*/false);
  stores();
}

std::string KernelBuilder::term(const std::string &index, const Dim &stride) {
  if (stride == Dim(0) || index == "0")
    return "";
  return stride == Dim(1) ? " + " + index : fmt::format(" + {} * {}", index, source.body.size(stride));
}

void KernelBuilder::rows(const char *name, Value operand, const std::string &head, bool columnStride) {
  const View &view = problem.view(operand);
  source.body.method(
      fmt::format("DEVICE const {} *{}_rows(i64 entry, i64 head) const", typeOf(operand), name),
      source.body.input(problem.inputOf(operand)) +
          (view.offset == Dim(0) ? "" : " + " + source.body.size(view.offset)) +
          term("entry", view.strides[0]) + term(head, view.strides[1]));
  count(fmt::format("{}_stride", name), view.strides[2]);
  if (columnStride)
    count(fmt::format("{}_column_stride", name), view.strides[3]);
}

/// The result is contiguous, in the order of dims that a transpose after it gives. What does not leave is
/// not stored.
void KernelBuilder::stores() {
  SmallVector<int64_t> order = {0, 1, 2, 3};
  Value result = op.getY();
  for (Operation *later : problem.region.ops)
    if (later != op && llvm::is_contained(later->getOperands(), result)) {
      if (auto transpose = dyn_cast<nn::TransposeOp>(later))
        order.assign(transpose.getPerm().begin(), transpose.getPerm().end());
      result = later->getResult(0);
    }
  auto store = [&](Value value, const char *signature, ArrayRef<std::string> indices, ArrayRef<Dim> sizes,
                   ArrayRef<int64_t> dims) {
    body::Code code(2);
    const auto output = llvm::find(problem.region.outputs, value);
    if (output != problem.region.outputs.end())
      code.line(
          fmt::format("store_vec({} + {}, vec_from_f32<{}>(values));",
                      source.body.output(static_cast<unsigned>(output - problem.region.outputs.begin())),
                      source.body.place(indices, sizes, dims), typeOf(value)));
    source.body.method(
        fmt::format("template <int N> DEVICE void {}, i64 column, const Vec<f32, N> &values) const",
                    signature),
        code);
  };
  store(result, "store(i64 entry, i64 head, i64 token", {"entry", "head", "token", "column"},
        {problem.batch, Dim(problem.resultHeads), problem.tokens, Dim(problem.valueDepth)}, order);
  store(op.getNewState(), "store_state(i64 entry, i64 head, i64 row", {"entry", "head", "row", "column"},
        {problem.batch, Dim(problem.heads), Dim(problem.depth), Dim(problem.valueDepth)}, {0, 1, 2, 3});
}

KernelDraft KernelBuilder::finish(int64_t warps, int64_t columns, int64_t dynamicSharedBytes,
                                  int64_t residentBlocks, const std::string &argument) {
  body::Entry entry;
  entry.schedule = "linear_attention";
  entry.function = variant;
  entry.arguments = argument;
  entry.name = fmt::format("{}_{}_d{}", variant, typeOf(op.getQ()), problem.depth);
  entry.threads = static_cast<uint32_t>(32 * warps);
  entry.residentBlocks = static_cast<uint32_t>(residentBlocks);
  KernelDraft draft = source.finish(entry);
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(dynamicSharedBytes);
  draft.gridX = problem.batch * Dim(problem.heads) * Dim(problem.valueDepth).ceilDiv(columns);
  draft.flops = problem.flops();
  return draft;
}

} // namespace fusion::linear_attention
