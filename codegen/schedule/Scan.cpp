// Ops along one axis that no row schedule takes: running sums, arg_max; and scattered writes.
#include "codegen/ScalarCode.h"
#include "codegen/schedule/Schedules.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fusion {

namespace {

constexpr uint32_t blockThreads = 256;
constexpr int64_t rowsPerBlock = blockThreads / 32;
constexpr int64_t mostBlocks = 65536;

size_t normalised(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

/// A kernel in which each warp walks the rows of `x` along `axis`.
class RowWalk {
public:
  RowWalk(const Region &region, const KernelContext &context, int64_t axis)
      : region(region), context(context), shape(context.shape(region.inputs[0])),
        axis(normalised(axis, shape.size())), writer(region) {
    rows = shape;
    rows[this->axis] = 1;
  }

  /// Up to the loop over rows, which the caller closes.
  void begin() {
    writer.line("pdl_wait();");
    writer.line("pdl_launch_dependents();");
    writer.line("const u32 lane = lane_id();");
    writer.line("const i64 warps = (i64)grid_dim_x() * " + std::to_string(rowsPerBlock) + ";");
    writer.line("for (i64 row = (i64)block_x() * " + std::to_string(rowsPerBlock) + " + warp_id(); row < " +
                writer.size(product(rows)) + "; row += warps) {");
    index = writer.delinearize("row", rows);
  }
  std::string length() { return writer.size(shape[axis]); }
  std::string load(const std::string &at) {
    auto place = index;
    place[axis] = at;
    return loadElement(dtype(region.inputs[0]), writer.input(0), writer.address(context.inputs[0], place));
  }
  std::string outputAddress(const std::string &at) {
    auto place = index;
    place[axis] = at;
    return writer.address(shape, place);
  }
  KernelDraft finish() {
    writer.line("}");
    KernelDraft draft = writer.finish("scan", blockThreads);
    draft.gridX = Dim::min(product(rows).ceilDiv(rowsPerBlock), mostBlocks);
    draft.flops = product(shape);
    return draft;
  }

  const Region &region;
  const KernelContext &context;
  DimShape shape, rows;
  size_t axis;
  KernelWriter writer;
  llvm::SmallVector<std::string> index;
};

/// Integers are added as u64, which wraps as their own type does.
KernelDraft emitCumSum(nn::CumSumOp op, const Region &region, const KernelContext &context) {
  RowWalk walk(region, context, static_cast<int64_t>(op.getAxis()));
  KernelWriter &writer = walk.writer;
  DType type = dtype(op.getY());
  std::string sum = isFloat(type) ? registerType(type).str() : "u64";
  walk.begin();
  writer.comment(op);
  writer.line(sum + " carried = 0;");
  writer.line("for (i64 begin = 0; begin < " + walk.length() + "; begin += 32) {");
  writer.line("const i64 step = begin + lane;");
  writer.line("const bool inside = step < " + walk.length() + ";");
  writer.line("const i64 at = " + (op.getReverse() ? walk.length() + " - 1 - step" : std::string("step")) +
              ";");
  writer.line(sum + " running = 0;");
  writer.line("if (inside)");
  writer.line("  running = (" + sum + ")" + walk.load("at") + ";");
  writer.line("for (u32 distance = 1; distance < 32; distance *= 2) {");
  writer.line("const " + sum + " earlier = shuffle_up(running, distance);");
  writer.line("if (lane >= distance)");
  writer.line("  running = running + earlier;");
  writer.line("}");
  writer.line("running = carried + running;");
  std::string result = "running";
  if (op.getExclusive()) {
    writer.line("const " + sum + " before = shuffle_up(running, 1);");
    result = "(lane == 0 ? carried : before)";
  }
  if (!isFloat(type))
    result = ("(" + sourceType(type) + ")" + result).str();
  writer.line("if (inside)");
  writer.line("  " + storeElement(type, writer.output(0), walk.outputAddress("at"), result) + ";");
  writer.line("carried = shuffle_index(running, 31);");
  writer.line("}");
  return walk.finish();
}

/// A NaN counts as the largest; of equals the first wins.
KernelDraft emitArgMax(nn::ArgMaxOp op, const Region &region, const KernelContext &context) {
  RowWalk walk(region, context, static_cast<int64_t>(op.getAxis()));
  KernelWriter &writer = walk.writer;
  DType type = dtype(op.getX());
  std::string held = isFloat(type) ? registerType(type).str() : isSignedInteger(type) ? "i64" : "u64";
  auto above = [&](StringRef a, StringRef b) {
    std::string larger = (a + " > " + b).str();
    return isFloat(type) ? larger + (" || (is_nan(" + a + ") && !is_nan(" + b + "))").str() : larger;
  };
  walk.begin();
  writer.comment(op);
  writer.line(held + " best = 0;");
  writer.line("i64 place = -1;");
  writer.line("for (i64 at = lane; at < " + walk.length() + "; at += 32) {");
  writer.line("const " + held + " candidate = (" + held + ")" + walk.load("at") + ";");
  writer.line("if (place < 0 || " + above("candidate", "best") + ") {");
  writer.line("best = candidate;");
  writer.line("place = at;");
  writer.line("}");
  writer.line("}");
  writer.line("for (int mask = 16; mask > 0; mask /= 2) {");
  writer.line("const " + held + " other = shuffle_xor(best, mask);");
  writer.line("const i64 otherPlace = shuffle_xor(place, mask);");
  writer.line("const bool larger = " + above("other", "best") + ";");
  writer.line("const bool smaller = " + above("best", "other") + ";");
  writer.line("if (otherPlace >= 0 && (place < 0 || larger || (!smaller && otherPlace < place))) {");
  writer.line("best = other;");
  writer.line("place = otherPlace;");
  writer.line("}");
  writer.line("}");
  DType result = dtype(op.getY());
  writer.line("if (lane == 0)");
  writer.line("  " +
              storeElement(result, writer.output(0), "row",
                           ("(" + sourceType(result) + ")(place < 0 ? 0 : place)").str()) +
              ";");
  return walk.finish();
}

/// Writes the updates over a copy of x; an index out of range writes nothing.
KernelDraft emitScatter(nn::ScatterNdOp op, const Region &region, const KernelContext &context) {
  KernelWriter writer(region);
  auto input = [&](Value value) {
    return static_cast<unsigned>(llvm::find(region.inputs, value) - region.inputs.begin());
  };
  const unsigned indices = input(op.getIndices()), updates = input(op.getUpdates());
  const DimShape &target = context.shape(op.getX()), &indexShape = context.shape(op.getIndices());
  const DimShape &updateShape = context.shape(op.getUpdates());
  const size_t leading = indexShape.size() - 1;
  const int64_t depth = indexShape.back().value();
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  writer.line("const i64 threads = (i64)grid_dim_x() * block_dim_x();");
  writer.line("for (i64 element = (i64)block_x() * block_dim_x() + thread_x(); element < " +
              writer.size(product(updateShape)) + "; element += threads) {");
  auto index = writer.delinearize("element", updateShape);
  writer.comment(op);
  llvm::SmallVector<std::string> place, inside;
  for (int64_t i = 0; i < depth; ++i) {
    llvm::SmallVector<std::string> entry(index.begin(), index.begin() + leading);
    entry.push_back(std::to_string(i));
    std::string chosen = writer.fresh("chosen"), at = writer.fresh("at"), size = writer.size(target[i]);
    writer.line("const i64 " + chosen + " = " +
                loadElement(dtype(op.getIndices()), writer.input(indices),
                            writer.address(context.inputs[indices], entry)) +
                ";");
    writer.line("const i64 " + at + " = " + chosen + " < 0 ? " + chosen + " + " + size + " : " + chosen +
                ";");
    inside.push_back(at + " >= 0 && " + at + " < " + size);
    place.push_back(at);
  }
  place.append(index.begin() + leading, index.end());
  DType type = dtype(op.getX());
  if (!inside.empty())
    writer.line("if (" + llvm::join(inside, " && ") + ")");
  writer.line(
      "  " +
      storeElement(type, writer.output(0), writer.address(target, place),
                   loadElement(type, writer.input(updates), writer.address(context.inputs[updates], index))) +
      ";");
  writer.line("}");
  KernelDraft draft = writer.finish("scan", blockThreads);
  draft.gridX = Dim::min(product(updateShape).ceilDiv(static_cast<int64_t>(blockThreads)), mostBlocks);
  return draft;
}

class ScanSchedule : public Schedule {
public:
  StringRef name() const override { return "scan"; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
    if (auto reason = readsPacked(region, context))
      return reason;
    if (region.ops.size() != 1)
      return "takes one op alone, not " + std::to_string(region.ops.size());
    if (!llvm::isa<nn::CumSumOp, nn::ArgMaxOp, nn::ScatterNdOp>(region.ops[0]))
      return (region.ops[0]->getName().getStringRef() + " is none of cumsum, arg_max and scatter_nd").str();
    if (region.outputs.size() != 1 || region.outputs[0].getDefiningOp() != region.ops[0])
      return "the op's result does not leave the region";
    return std::nullopt;
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    return llvm::TypeSwitch<Operation *, KernelDraft>(region.ops[0])
        .Case([&](nn::CumSumOp op) { return emitCumSum(op, region, context); })
        .Case([&](nn::ArgMaxOp op) { return emitArgMax(op, region, context); })
        .Case([&](nn::ScatterNdOp op) { return emitScatter(op, region, context); });
  }

  std::optional<unsigned> updatedInput(const Region &region) const override {
    auto scatter = llvm::dyn_cast<nn::ScatterNdOp>(region.ops[0]);
    if (!scatter)
      return std::nullopt;
    return static_cast<unsigned>(llvm::find(region.inputs, scatter.getX()) - region.inputs.begin());
  }
};

} // namespace

const Schedule &scanSchedule() {
  static const ScanSchedule schedule;
  return schedule;
}

} // namespace fusion
