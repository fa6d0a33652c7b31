#include "codegen/schedule/RopeAttentionParts.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace fusion::attention {

namespace {
class Splitter {
public:
  explicit Splitter(const Region &region) : region(region) {}

  std::variant<RopeAttentionParts, std::string> run() {
    auto op = llvm::find_if(region.ops, llvm::IsaPred<nn::AttentionOp>);
    if (op == region.ops.end())
      return std::string("no nn.attention");
    attention = cast<nn::AttentionOp>(*op);
    if (auto reason = findOutputs())
      return *reason;
    assign();
    if (auto reason = connect())
      return *reason;
    return std::move(parts);
  }

private:
  bool isMade(Value value) const {
    return value.getDefiningOp() && llvm::is_contained(region.ops, value.getDefiningOp());
  }

  /// Two caches, each the past and what is new, and what the attention makes.
  std::optional<std::string> findOutputs() {
    for (Value output : region.outputs) {
      Operation *write = output.getDefiningOp();
      if (!isa<nn::ConcatOp, nn::CacheWriteOp>(write)) {
        if (parts.result)
          return std::string("more leaves than the result of nn.attention and two caches");
        parts.result = output;
        continue;
      }
      auto placed = dyn_cast<nn::CacheWriteOp>(write);
      const auto axis = static_cast<int64_t>(placed ? placed.getAxis() : cast<nn::ConcatOp>(write).getAxis());
      if ((!placed && write->getNumOperands() != 2) ||
          !llvm::is_contained(region.inputs, write->getOperand(0)) || tensorType(output).getRank() != 4 ||
          (axis != 2 && axis != -2))
        return std::string("a cache whose new rows are not put, along dim 2, into an input");
      if (!parts.caches.empty() && parts.isExtended == static_cast<bool>(placed))
        return std::string("a cache that is extended beside one whose new rows data places");
      parts.isExtended = !placed;
      parts.caches.push_back({output, write->getOperand(0)});
    }
    if (!parts.result || parts.caches.size() != 2)
      return std::string("no two caches and a result of nn.attention that leave");
    if (isMade(attention.getQ()))
      parts.queries = attention.getQ();
    return std::nullopt;
  }

  /// Ops that the queries and the caches are made of, and the others. Numbers are in both.
  void assign() {
    llvm::DenseSet<Operation *> made;
    SmallVector<Value> pending;
    if (parts.queries)
      pending.push_back(parts.queries);
    for (const auto &cache : parts.caches)
      pending.push_back(cache.whole);
    while (!pending.empty()) {
      const Value value = pending.pop_back_val();
      Operation *op = isMade(value) ? value.getDefiningOp() : nullptr;
      if (op && made.insert(op).second)
        pending.append(op->operand_begin(), op->operand_end());
    }
    for (Operation *op : region.ops) {
      const bool isNumber = isa<nn::ConstantOp, nn::DimConstantOp>(op);
      if (made.contains(op))
        parts.heads.ops.push_back(op);
      if (!made.contains(op) || isNumber)
        parts.attention.ops.push_back(op);
    }
    // Numbers that nobody there reads.
    llvm::erase_if(parts.attention.ops, [&](Operation *op) {
      return isa<nn::ConstantOp, nn::DimConstantOp>(op) &&
             llvm::none_of(op->getUsers(),
                           [&](Operation *user) { return llvm::is_contained(parts.attention.ops, user); });
    });
  }

  std::optional<std::string> connect() {
    for (Region *part : {&parts.heads, &parts.attention}) {
      part->inputs = region.inputs;
      part->anchor = region.anchor;
      part->pattern = region.pattern;
    }
    if (parts.queries)
      parts.heads.outputs = {parts.queries};
    for (const auto &cache : parts.caches)
      parts.heads.outputs.push_back(cache.whole);
    parts.attention.outputs = {parts.result};
    parts.attention.inputs.append(parts.heads.outputs);
    if (!llvm::is_contained(parts.attention.ops, attention.getOperation()))
      return std::string("a cache that is made of the result of nn.attention");
    for (Operation *op : parts.attention.ops)
      for (Value operand : op->getOperands())
        if (Operation *made = operand.getDefiningOp(); made && llvm::is_contained(parts.heads.ops, made) &&
                                                       !llvm::is_contained(parts.attention.ops, made) &&
                                                       !llvm::is_contained(parts.heads.outputs, operand))
          return (op->getName().getStringRef() + " reads what the caches are made of").str();
    return std::nullopt;
  }

  const Region &region;
  nn::AttentionOp attention;
  RopeAttentionParts parts;
};
} // namespace

std::variant<RopeAttentionParts, std::string> ropeAttentionParts(const Region &region) {
  return Splitter(region).run();
}

} // namespace fusion::attention
