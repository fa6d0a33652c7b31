#include "codegen/schedule/AttentionProblem.h"

#include "codegen/ScalarCode.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

static constexpr int64_t manyQueries = int64_t(1) << 40;

Problem::Problem(const Region &region, const KernelContext &context)
    : region(region), context(context), op(cast<nn::AttentionOp>(region.ops.front())) {
  const DimShape &q = context.shape(op.getQ()), &k = context.shape(op.getK()), &v = context.shape(op.getV());
  batch = q[0], heads = q[1], queries = q[2], kvHeads = k[1], keys = k[2];
  depth = q[3].value(), valueDepth = v[3].value();
  group = heads.floorDiv(kvHeads);
  rows = queries * group;
  mostQueries = queries.constant().value_or(INT64_MAX);
  leastQueries = queries.constant().value_or(0);
  mostPairs = (batch * kvHeads).constant().value_or(INT64_MAX);
  const SizeRange *range = context.range;
  if (!range)
    return;
  if (queries.constant()) {
    mostPairs = range->most;
  } else if (range->most < manyQueries) {
    leastQueries = 1;
    mostQueries = decodeQueries(*this);
    mostPairs = std::min(mostPairs, range->most);
  } else {
    leastQueries = decodeQueries(*this) + 1;
  }
}

std::vector<SizeRange> ranges(const Problem &problem) {
  const int64_t few = decodeQueries(problem);
  if (problem.leastQueries > few)
    return {};
  // Pairs for few queries; manyQueries and more for others.
  const Dim pairs = problem.batch * problem.kvHeads;
  Dim size = pairs;
  if (!problem.queries.constant())
    size = Dim::min(1, problem.queries.floorDiv(few + 1)) * Dim(manyQueries) + Dim::min(pairs, manyQueries - 1);
  std::vector<SizeRange> ranges;
  int64_t next = 1;
  auto add = [&](int64_t most) {
    ranges.push_back({size, next, most});
    next = most + 1;
  };
  if (!pairs.constant() && problem.context.arch >= 90)
    for (int64_t limit : pairLimits)
      add(limit);
  if (!problem.queries.constant())
    add(manyQueries - 1);
  else if (ranges.empty())
    return {};
  add(INT64_MAX);
  return ranges;
}

unsigned Problem::inputOf(Value operand) const {
  return static_cast<unsigned>(llvm::find(region.inputs, operand) - region.inputs.begin());
}

const View &Problem::view(Value operand) const { return context.inputs[inputOf(operand)]; }

std::optional<int64_t> Problem::mostRows() const {
  std::optional<int64_t> each = group.constant();
  if (!each || mostQueries == INT64_MAX)
    return std::nullopt;
  return *each * mostQueries;
}

Dim Problem::flops() const { return batch * heads * queries * keys * Dim(2 * (depth + valueDepth)); }

int64_t decodeQueries(const Problem &problem) {
  constexpr int64_t fewRows = 16, fewQueries = 4;
  const std::optional<int64_t> group = problem.group.constant();
  return group && *group > 0 ? std::max(fewRows / *group, fewQueries) : fewQueries;
}

/// Behind the attention only a transpose, then a reshape: the result in another order of dims.
static std::optional<std::string> layoutRefusal(const Region &region) {
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

std::optional<std::string> refusal(const Region &region, const KernelContext &context) {
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

std::string Code::term(const std::string &index, const Dim &stride) {
  if (stride == Dim(0))
    return "";
  return stride == Dim(1) ? " + " + index : fmt::format(" + {} * {}", index, writer.size(stride));
}

std::string Code::floatElement(Value operand, const std::string &pointer, const std::string &offset) const {
  const std::string loaded = loadElement(dtype(operand), pointer, offset);
  return registerType(dtype(operand)) == "f32" ? loaded : "(f32)" + loaded;
}

void Code::place(int64_t tileRows, const std::string &block) {
  // 32-bit divisions: 64-bit ones are calls, around which registers spill. A grid is below 2^31.
  writer.line(fmt::format("const u32 block = {}, tiles = (u32){}, kvHeads = (u32){};", block,
                          writer.size(problem.rows.ceilDiv(tileRows)), writer.size(problem.kvHeads)));
  writer.line(fmt::format("const i64 row0 = (i64)(block % tiles) * {};", tileRows));
  writer.line("const i64 kvHead = block / tiles % kvHeads, entry = block / (tiles * kvHeads);");
  writer.line(fmt::format("const i64 lastRow = {} - 1;", writer.size(problem.rows)));
  writer.line("// Query i looks at keys around i + shift.");
  writer.line(
      fmt::format("const i64 shift = {} - {};", writer.size(problem.keys), writer.size(problem.queries)));
}

void Code::keyAndValueRows() {
  for (auto [operand, pointer] :
       {std::pair(op.getK(), "keyRows"), std::pair(op.getV(), "valueRows")}) {
    const View &source = problem.view(operand);
    writer.line(fmt::format("const {} *{} = {} + {}{}{};", sourceType(dtype(operand)).str(), pointer,
                            writer.input(problem.inputOf(operand)), writer.size(source.offset),
                            term("entry", source.strides[0]), term("kvHead", source.strides[1])));
  }
}

std::string Code::queryOffset(const std::string &row, const std::string &c) {
  const View &q = problem.view(op.getQ());
  return writer.size(q.offset) + term("entry", q.strides[0]) +
         term("(" + headOf(row) + ")", q.strides[1]) + term("(" + queryOf(row) + ")", q.strides[2]) +
         term(c, q.strides[3]);
}

std::string Code::queryOf(const std::string &row) {
  return fmt::format("{} / {}", row, writer.size(problem.group));
}

std::string Code::headOf(const std::string &row) {
  return fmt::format("kvHead * {0} + {1} % {0}", writer.size(problem.group), row);
}

void Code::maskRow(const std::string &name, const std::string &head, const std::string &query) {
  if (!op.getMask())
    return;
  const View &mask = problem.view(op.getMask());
  const std::string names[] = {"entry", head, query};
  std::string offset = writer.size(mask.offset);
  for (size_t fromEnd = 1; fromEnd < mask.shape.size(); ++fromEnd) {
    const size_t dim = mask.shape.size() - 1 - fromEnd;
    if (mask.shape[dim] != Dim(1))
      offset += term(names[3 - fromEnd], mask.strides[dim]);
  }
  writer.line(fmt::format("const {} *{} = {} + {};", sourceType(dtype(op.getMask())).str(), name,
                          writer.input(problem.inputOf(op.getMask())), offset));
}

std::string Code::maskElement(const std::string &maskRow, const std::string &key) {
  Value mask = op.getMask();
  const View &view = problem.view(mask);
  const Dim stride = view.shape.empty() || view.shape.back() == Dim(1) ? Dim(0) : view.strides.back();
  const std::string at = "0" + term(key, stride);
  return dtype(mask) == DType::Bool ? loadElement(DType::Bool, maskRow, at) : floatElement(mask, maskRow, at);
}

void Code::finishScore(const std::string &s, const std::string &key, const std::string &query,
                       const std::string &masked) {
  writer.line(fmt::format("{0} = {1} * {0};", s, literal(DType::F32, op.getScale().convertToDouble())));
  if (const double cap = op.getSoftcap().convertToDouble(); cap > 0)
    writer.line(fmt::format("{0} = {1} * tanh_({0} / {1});", s, literal(DType::F32, cap)));
  if (Value mask = op.getMask()) {
    const std::string kept = dtype(mask) == DType::Bool ? fmt::format("{} ? {} : -inf_f32()", masked, s)
                                                        : fmt::format("{} + {}", s, masked);
    writer.line(fmt::format("if ({} < {})", key, writer.size(problem.keys)));
    writer.line(fmt::format("  {} = {};", s, kept));
  }
  std::string kept = fmt::format("{} < {}", key, writer.size(problem.keys));
  if (op.getCausal())
    kept += fmt::format(" && {} <= {} + shift", key, query);
  if (op.getWindow() > 0)
    kept += fmt::format(" && {} > {} + shift - {}", key, query, static_cast<int64_t>(op.getWindow()));
  writer.line(fmt::format("{0} = {1} ? {0} : -inf_f32();", s, kept));
}

void Code::keyBounds(int64_t tileRows) {
  const std::string count = writer.size(problem.keys);
  writer.line("// Keys that no row of the tile looks at are not read.");
  std::string first = "0", end = count;
  if (op.getWindow() > 0) {
    writer.line(fmt::format("const i64 oldest = {} + shift - {};", queryOf("row0"),
                            static_cast<int64_t>(op.getWindow()) - 1));
    first = "oldest > 0 ? oldest : 0";
  }
  if (op.getCausal()) {
    writer.line(
        fmt::format("const i64 lastOfTile = row0 + {0} < lastRow ? row0 + {0} : lastRow;", tileRows - 1));
    writer.line(fmt::format("const i64 newest = {} + shift + 1;", queryOf("lastOfTile")));
    end = fmt::format("newest < {0} ? newest : {0}", count);
  }
  writer.line(fmt::format("const i64 first = {}, end = {};", first, end));
}

std::string Code::share(const std::string &largest, const std::string &total) {
  return fmt::format("{} == -inf_f32() ? {} : 1.f / {}", largest,
                     op.getZeroMaskedRows() ? "0.f" : "nan_f32()", total);
}

// Nested products need fewer sizes in registers than a stride for every dim.
std::string Code::resultOffset(const std::string &head, const std::string &query, const std::string &c) {
  SmallVector<int64_t> order = {0, 1, 2, 3};
  for (Operation *later : problem.region.ops)
    if (auto transpose = dyn_cast<nn::TransposeOp>(later))
      order.assign(transpose.getPerm().begin(), transpose.getPerm().end());
  const std::string indices[] = {"entry", head, query, c};
  const Dim sizes[] = {problem.batch, problem.heads, problem.queries, Dim(problem.valueDepth)};
  std::string offset = indices[order[0]];
  for (int64_t dim : llvm::drop_begin(order))
    offset = fmt::format("{} * {} + {}", offset.find(' ') == std::string::npos ? offset : "(" + offset + ")",
                         writer.size(sizes[dim]), indices[dim]);
  return offset;
}

} // namespace fusion::attention
