// rope_kv_write: the rotations of the queries and the keys of one attention, with their norms, and the writes
// of the new keys and values after those of the past, with their quantisation if the cache holds codes. Where
// no nn.attention reads the caches, what belongs together is rotated by the same angles.
#include "passes/fuse/Propose.h"

#include "ir/dialect/AttentionSink.h"
#include "ir/dialect/InPlace.h"
#include "ir/dialect/PagedKeys.h"
#include "ir/dialect/ScaledCodes.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {
std::string nameOf(Value value) {
  Operation *op = value.getDefiningOp();
  return op ? op->getName().getStringRef().str() : "an argument";
}

/// Whether an attention reads it, through transposes.
bool reachesAttention(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<nn::AttentionOp>(user) || (isa<nn::TransposeOp>(user) && reachesAttention(user->getResult(0)));
  });
}

/// Whether an attention reads it or the cache that it is written to: all layers may share their angles.
bool isOfAnAttention(Value value) {
  return reachesAttention(value) || llvm::any_of(value.getUsers(), [](Operation *user) {
           return isa<nn::TransposeOp, nn::ConcatOp, nn::CacheWriteOp>(user) &&
                  isOfAnAttention(user->getResult(0));
         });
}

/// What one attention wants as one kernel.
class CacheWrite {
public:
  explicit CacheWrite(nn::AttentionOp attention) : attention(attention) {}

  /// Of a cache of keys that no attention reads: its rotation's ops, those of the same angles, and the write
  /// of the next tensor like it, the values. Nothing if what it writes is not rotated.
  static SmallVector<Operation *> alone(Operation *keys) {
    CacheWrite write({});
    write.takeNew(keys);
    auto rope = llvm::find_if(write.ops, [](Operation *op) { return isa<nn::RopeOp>(op); });
    if (rope == write.ops.end())
      return {};
    auto rotation = cast<nn::RopeOp>(*rope);
    for (Operation &op : *keys->getBlock())
      if (auto other = dyn_cast<nn::RopeOp>(op);
          other && other != rotation && other.getCos() == rotation.getCos() &&
          other.getSin() == rotation.getSin() && !isOfAnAttention(other.getResult()))
        write.takeRotation(other.getResult());
    write.take(keys);
    for (Operation *op = keys->getNextNode(); op; op = op->getNextNode())
      if (Operation *values = op; isa<nn::ConcatOp, nn::CacheWriteOp>(values) &&
                                  values->getName() == keys->getName() &&
                                  values->getAttrDictionary() == keys->getAttrDictionary() &&
                                  values->getNumOperands() == keys->getNumOperands() &&
                                  values->getResultTypes() == keys->getResultTypes()) {
        if (CacheWrite other({}); !other.isRotated(values))
          write.take(values);
        break;
      }
    return write.ops;
  }

  /// The ops, or why there is no such kernel.
  Result<SmallVector<Operation *>> collect() {
    const std::optional<nn::AttentionSink> sink = nn::matchAttentionSink(attention);
    auto keys = cacheWrite(sink ? sink->keys : attention.getK(), "keys");
    if (!keys)
      return keys.error();
    auto values = cacheWrite(sink ? sink->values : attention.getV(), "values");
    if (!values)
      return values.error();
    const bool isPaged = isa<nn::ScatterNdOp>(*keys);
    takeRotation(isPaged ? nn::behindReshapes(attention.getQ()) : attention.getQ());
    takeNew(*keys);
    takeNew(*values);
    take(*keys);
    take(*values);
    return ops;
  }

private:
  /// The op that joins past and new positions, of which an operand of the attention is the result, through
  /// transposes; or that writes new rows into the pages that it is gathered from.
  Result<Operation *> cacheWrite(Value operand, const std::string &what) {
    int64_t positions = tensorType(operand).getRank() - 2;
    auto codes = operand.getDefiningOp<nn::DequantizeOp>();
    Value value = codes ? Value(codes.getX()) : operand;
    if (auto scaled = nn::matchScaledCodes(operand); scaled && scaled->packed)
      return badInput("the " + what +
                      " are codes of 4 bits, two to a byte: what is rotated is packed by another kernel");
    if (auto paging = nn::matchPagedKeys(value))
      if (auto scatter = nn::behindReshapes(paging->pages).getDefiningOp<nn::ScatterNdOp>())
        return scatter.getOperation();
    while (auto transpose = value.getDefiningOp<nn::TransposeOp>()) {
      positions = transpose.getPerm()[static_cast<size_t>(positions)];
      value = transpose.getX();
    }
    const int64_t rank = tensorType(value).getRank();
    auto along = [&](int64_t axis) { return axis < 0 ? axis + rank : axis; };
    if (auto write = value.getDefiningOp<nn::CacheWriteOp>(); write && along(write.getAxis()) == positions)
      return write.getOperation();
    auto concat = value.getDefiningOp<nn::ConcatOp>();
    if (!concat)
      return badInput("the " + what + " of nn.attention are produced by " + nameOf(value) +
                      ", not by nn.concat of the past and the new ones");
    if (concat->getNumOperands() != 2)
      return badInput("the " + what + " are an nn.concat of " + std::to_string(concat->getNumOperands()) +
                      " parts, not of the past and the new ones");
    if (along(concat.getAxis()) != positions)
      return badInput("nn.concat joins the " + what + " along dim " + std::to_string(concat.getAxis()) +
                      ", the positions are dim " + std::to_string(positions));
    return concat.getOperation();
  }

  bool isRotated(Operation *write) { return takeNew(write); }

  /// What makes the new part of a cache: the quantisation, if it holds codes, and the rotation, with the
  /// transposes in between. Whether there is a rotation.
  bool takeNew(Operation *write) {
    SmallVector<Operation *> between;
    Value value = isa<nn::ScatterNdOp>(write) ? write->getOperand(2) : write->getOperand(1);
    bool quantises = false;
    while (Operation *op = value.getDefiningOp()) {
      const bool isCast = isa<nn::CastOp>(op) && quantises && isFloat(dtype(op->getOperand(0)));
      if (!isa<nn::TransposeOp, nn::QuantizeOp>(op) && !isCast)
        break;
      quantises = quantises || isa<nn::QuantizeOp>(op);
      between.push_back(op);
      value = op->getOperand(0);
    }
    const bool isRotated = takeRotation(value);
    if (!isRotated && !quantises)
      return false;
    if (!isRotated) // transposes in front of the quantisation stay views
      while (!between.empty() && isa<nn::TransposeOp>(between.back()))
        between.pop_back();
    for (Operation *op : between)
      take(op);
    return isRotated;
  }

  /// A rotation, and the norm before or after it.
  bool takeRotation(Value value) {
    nn::RopeOp rope = producingRotation(value);
    if (!rope)
      return false;
    for (Operation *op : normBefore(rope))
      take(op);
    take(rope);
    if (rope != value.getDefiningOp())
      take(value.getDefiningOp());
    return true;
  }

  void take(Operation *op) {
    if (!llvm::is_contained(ops, op))
      ops.push_back(op);
  }

  nn::AttentionOp attention;
  SmallVector<Operation *> ops;
};
} // namespace

Proposals proposeCacheWrites(const ProposalContext &context) {
  Proposals proposals;
  for (Operation &write : context.block) {
    const bool joins =
        isa<nn::CacheWriteOp>(write) || (isa<nn::ConcatOp>(write) && write.getNumOperands() == 2);
    if (!joins || !isa<BlockArgument>(nn::behindReshapes(write.getOperand(0))) ||
        reachesAttention(write.getResult(0)))
      continue;
    Candidate candidate;
    candidate.pattern = "rope_kv_write";
    candidate.root = &write;
    candidate.ops = CacheWrite::alone(&write);
    if (!candidate.ops.empty())
      proposals.candidates.push_back(std::move(candidate));
  }
  for (auto attention : context.block.getOps<nn::AttentionOp>()) {
    auto ops = CacheWrite(attention).collect();
    if (!ops) {
      proposals.misses.push_back({attention, ops.error().message});
      continue;
    }
    Candidate candidate;
    candidate.pattern = "rope_kv_write";
    candidate.root = attention;
    candidate.ops = std::move(*ops);
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

} // namespace fusion
