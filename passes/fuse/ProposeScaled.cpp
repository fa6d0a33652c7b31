// scaled_matmul, scaled_attention, paged_attention, bounded_attention, sink_attention: a matmul of quantised
// operands, an attention over keys and values that are stored as codes, or in pages, with a mask that says
// which key is the last, or with a sink. Their kernels decode what they read, look up where it lies, stop at
// the last key, and add the sink's share at the end.
#include "passes/fuse/Propose.h"

#include "ir/dialect/AttentionSink.h"
#include "ir/dialect/KeyBounds.h"
#include "ir/dialect/PagedKeys.h"
#include "ir/dialect/RepeatedRows.h"
#include "ir/dialect/ScaledCodes.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

/// A cast of 8-bit integers to i32.
static nn::CastOp widening(Value value) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  return cast && dtype(cast.getY()) == DType::I32 && isInteger(dtype(cast.getX())) &&
                 byteSize(dtype(cast.getX())) == 1
             ? cast
             : nn::CastOp();
}

SmallVector<Operation *> decodingOps(Value operand) {
  if (auto dequantize = operand.getDefiningOp<nn::DequantizeOp>())
    return {dequantize};
  if (auto cast = widening(operand))
    return {cast};
  auto sub = operand.getDefiningOp<nn::SubOp>();
  auto cast = sub ? widening(sub.getLhs()) : nn::CastOp();
  if (!cast)
    return {};
  SmallVector<Operation *> ops{cast, sub};
  if (auto zero = widening(sub.getRhs()); zero && zero->getBlock() == sub->getBlock() && zero != cast)
    ops.push_back(zero);
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ops;
}

Value encodedOperand(Value operand) {
  SmallVector<Operation *> ops = decodingOps(operand);
  if (ops.empty())
    return operand;
  if (auto sub = llvm::dyn_cast<nn::SubOp>(operand.getDefiningOp()))
    return widening(sub.getLhs()).getX();
  return operand.getDefiningOp()->getOperand(0);
}

/// What spells the scales and zero points of a matrix's blocks, which are one for several rows and columns.
static SmallVector<Operation *> repeatingOps(Value operand) {
  SmallVector<Operation *> ops;
  auto dequantize = operand.getDefiningOp<nn::DequantizeOp>();
  if (!dequantize || dequantize.getBlockSize() == 0)
    return ops;
  for (Value entry : dequantize->getOperands().drop_front())
    for (auto rows = nn::matchRepeatedRows(entry); rows; rows = nn::matchRepeatedRows(rows->from))
      ops.append(rows->ops);
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  ops.erase(llvm::unique(ops), ops.end());
  return ops;
}

SmallVector<Operation *> decodingOpsOfKeys(Value operand) {
  if (auto codes = nn::matchScaledCodes(operand))
    return std::move(codes->ops);
  return operand.getDefiningOp<nn::DequantizeOp>() ? decodingOps(operand) : SmallVector<Operation *>();
}

/// Of keys or values, as elements or codes.
static std::optional<nn::PagedKeys> pagesOfKeys(Value operand) {
  if (auto codes = nn::matchScaledCodes(operand))
    return nn::matchPagedKeys(codes->codes);
  return nn::matchPagedKeys(encodedOperand(operand));
}

/// Those of its keys, or of those behind a sink, where the values have the same block table.
static std::optional<nn::PagedKeys> pagesOf(nn::AttentionOp attention) {
  const auto sink = nn::matchAttentionSink(attention);
  auto keys = pagesOfKeys(sink ? sink->keys : Value(attention.getK()));
  const auto values = pagesOfKeys(sink ? sink->values : Value(attention.getV()));
  return keys && values && keys->table == values->table ? keys : std::nullopt;
}

/// A kernel divides the keys' numbers by the size of a page.
static bool hasStaticSize(const nn::PagedKeys &paging) {
  return paging.rowDim == 0 || !tensorType(paging.pages).isDynamicDim(paging.rowDim);
}

static bool readsPages(nn::AttentionOp attention) {
  const auto paging = pagesOf(attention);
  return paging && hasStaticSize(*paging);
}

/// What the op's kernels do themselves as they read its operands: put a sink in front, decode codes, look up
/// pages, find the keys that a mask leaves. For each operand in block order, readers first.
static SmallVector<SmallVector<Operation *>> operandOps(Operation *op) {
  SmallVector<SmallVector<Operation *>> all;
  auto attention = llvm::dyn_cast<nn::AttentionOp>(op);
  if (llvm::isa<nn::MatmulOp, nn::ExpertMatmulOp>(op))
    for (Value operand : op->getOperands().take_front(2)) {
      all.push_back(repeatingOps(operand));
      all.back().append(decodingOps(operand));
    }
  if (!attention)
    return all;
  std::optional<nn::AttentionSink> sink = nn::matchAttentionSink(attention);
  if (sink)
    all.push_back(sink->ops);
  const bool isPaged = readsPages(attention);
  SmallVector<Operation *> tables; // after what reads them
  for (Value operand :
       {sink ? sink->keys : Value(attention.getK()), sink ? sink->values : Value(attention.getV())}) {
    all.push_back(decodingOpsOfKeys(operand));
    if (!isPaged)
      continue;
    const auto paging = pagesOfKeys(operand);
    all.back().insert(all.back().begin(), paging->ops.begin(), paging->ops.end());
    if (paging->tableOp && !llvm::is_contained(tables, paging->tableOp))
      tables.push_back(paging->tableOp);
  }
  for (Operation *join : joiningOps(attention))
    all.push_back({join});
  if (auto bounds = nn::matchKeyBounds(sink ? sink->mask : Value(attention.getMask())))
    all.push_back(std::move(bounds->ops));
  if (isPaged)
    all.push_back(std::move(tables));
  return all;
}

/// Whether the kernels of all readers do it themselves.
static bool isReadersOwn(Operation *op) {
  return llvm::all_of(op->getUsers(), [op](Operation *user) {
    const bool mayBePart = llvm::isa<nn::CastOp, nn::SubOp, nn::MulOp, nn::AndOp, nn::LessEqualOp, nn::LessOp,
                                     nn::GreaterEqualOp, nn::GreaterOp, nn::GatherOp, nn::ReshapeOp,
                                     nn::TransposeOp, nn::DequantizeOp, nn::PadOp, nn::ConcatOp, nn::ExpandOp,
                                     nn::WhereOp, nn::AddOp>(user);
    return mayBePart ? isReadersOwn(user)
                     : llvm::any_of(operandOps(user), [op](const SmallVector<Operation *> &ops) {
                         return llvm::is_contained(ops, op);
                       });
  });
}

static bool hasCodes(Operation *op) {
  auto isAttention = llvm::isa<nn::AttentionOp>(op);
  return llvm::any_of(op->getOperands().slice(isAttention ? 1 : 0, 2), [&](Value operand) {
    return !(isAttention ? decodingOpsOfKeys(operand) : decodingOps(operand)).empty();
  });
}

Candidate withDecoding(const Candidate &candidate) {
  Candidate result = candidate;
  auto contains = [](ArrayRef<Operation *> ops, Operation *op) { return llvm::is_contained(ops, op); };
  for (Operation *op : candidate.ops) {
    for (const SmallVector<Operation *> &ops : operandOps(op)) {
      // From the operand up, so that an op is judged after its readers.
      for (Operation *decoding : llvm::reverse(ops)) {
        if (contains(result.ops, decoding) || contains(result.clones, decoding))
          continue;
        const bool readsMember = llvm::any_of(decoding->getOperands(), [&](Value value) {
          return value.getDefiningOp() && contains(candidate.ops, value.getDefiningOp());
        });
        if (readsMember)
          break;
        const bool isOwn = llvm::all_of(decoding->getUsers(),
                                        [&](Operation *user) { return contains(result.ops, user); });
        (isOwn ? result.ops : result.clones).push_back(decoding);
      }
    }
  }
  auto inOrder = [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); };
  llvm::sort(result.ops, inOrder);
  llvm::sort(result.clones, inOrder);
  llvm::copy_if(result.clones, std::back_inserter(result.replaced), isReadersOwn);
  return result;
}

template <class Wants>
static Proposals propose(const ProposalContext &context, llvm::StringRef pattern, Wants wants) {
  Proposals proposals;
  for (Operation &op : context.block) {
    if (!wants(&op))
      continue;
    Candidate candidate;
    candidate.pattern = pattern.str();
    candidate.isForOperands = true;
    candidate.root = &op;
    candidate.ops = {&op};
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

Proposals proposeScaledMatmuls(const ProposalContext &context) {
  return propose(context, "scaled_matmul", [](Operation *op) {
    return llvm::isa<nn::MatmulOp, nn::ExpertMatmulOp>(op) && hasCodes(op);
  });
}

Proposals proposeScaledAttentions(const ProposalContext &context) {
  return propose(context, "scaled_attention",
                 [](Operation *op) {
                   auto attention = llvm::dyn_cast<nn::AttentionOp>(op);
                   return attention && hasCodes(op) && !readsPages(attention);
                 });
}

Proposals proposePagedAttentions(const ProposalContext &context) {
  Proposals proposals = propose(context, "paged_attention", [](Operation *op) {
    auto attention = llvm::dyn_cast<nn::AttentionOp>(op);
    return attention && readsPages(attention);
  });
  for (auto attention : context.block.getOps<nn::AttentionOp>())
    if (auto paging = pagesOf(attention); paging && !hasStaticSize(*paging)) {
      const Dim size = context.traffic.shapes[paging->pages][paging->rowDim];
      proposals.misses.push_back({attention, "the size of a page, " + size.str() + ", is not static"});
    }
  return proposals;
}

Proposals proposeSinkAttentions(const ProposalContext &context) {
  return propose(context, "sink_attention", [](Operation *op) {
    auto attention = llvm::dyn_cast<nn::AttentionOp>(op);
    return attention && !readsPages(attention) && nn::matchAttentionSink(attention);
  });
}

Proposals proposeBoundedAttentions(const ProposalContext &context) {
  return propose(context, "bounded_attention", [](Operation *op) {
    auto attention = llvm::dyn_cast<nn::AttentionOp>(op);
    return attention && !hasCodes(op) && !readsPages(attention) && nn::matchKeyBounds(attention.getMask());
  });
}

} // namespace fusion
