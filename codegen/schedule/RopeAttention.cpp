// The writes of new keys and values into a cache, with rotations of queries and keys if there are any, and
// the attention that reads them: for few queries one kernel, which makes what its tiles need before it looks
// at keys; for others kernels of the two parts, as they would be without the group.
#include "codegen/schedule/AttentionHeads.h"
#include "codegen/schedule/PlannedParts.h"
#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {
/// A region in parts, and how each is computed by itself.
class RopeAttention {
public:
  /// Why the region is none; nothing if it is one.
  static std::variant<std::shared_ptr<RopeAttention>, std::string> of(const Region &region,
                                                                      const KernelContext &context) {
    auto split = attention::ropeAttentionParts(region);
    if (auto *reason = std::get_if<std::string>(&split))
      return *reason;
    auto made = std::make_shared<RopeAttention>();
    made->region = region;
    made->parts = std::move(std::get<attention::RopeAttentionParts>(split));
    if (auto reason = made->plan(context))
      return *reason;
    return std::move(made);
  }

  std::vector<PlannedAlternative> alternatives(const KernelContext &context) {
    std::vector<PlannedAlternative> few;
    const KernelContext anywhere = after.contextIn(context);
    const attention::Problem problem(parts.attention, anywhere);
    const KernelEmitter emitter = [this](const KernelContext &its) { return emit(its); };
    for (PlannedAlternative &one : alternativesWhere(attention::predicates(problem), region, emitter)) {
      KernelContext own = anywhere;
      own.when = one.when;
      const attention::Problem within(parts.attention, own);
      if (within.mostQueries <= attention::decodeQueries(within))
        few.push_back(std::move(one));
    }
    if (problem.queries.constant())
      return few;
    std::vector<PlannedAlternative> all = oneAfterTheOther(before.alternatives(), after.alternatives());
    if (context.batchInvariant)
      return all;
    for (PlannedAlternative &one : all)
      one.variant = kernelVariant;
    for (PlannedAlternative &one : few) {
      one.variant = otherKernelVariant;
      all.push_back(std::move(one));
    }
    return all;
  }

  /// The region as one kernel.
  KernelDraft emit(const KernelContext &context) const {
    const KernelContext apart = after.contextIn(context);
    const attention::Problem plain(parts.attention, apart);
    auto made = attention::madeHeads(parts, region, context,
                                     parts.isExtended && attention::keepsNewRows(plain)
                                         ? plain.storedKeys.tensor
                                         : Value());
    const attention::MadeHeads &heads = *std::get<std::unique_ptr<attention::MadeHeads>>(made);
    const SmallVector<View> inputs = inputsOfAttention(context, heads);
    KernelContext own = context;
    own.inputs = inputs;
    own.outputs = {};
    attention::Problem problem(parts.attention, own);
    problem.made = &heads;
    KernelDraft draft = attention::emitDecode(problem);
    draft.flops = problem.flops();
    return draft;
  }

private:
  std::optional<std::string> plan(const KernelContext &context) {
    if (auto reason = before.make(parts.heads, region, rowSchedule(), context))
      return reason;
    if (auto reason = after.make(parts.attention, region, attentionSchedule(), context))
      return reason;
    const KernelContext apart = after.contextIn(context);
    const attention::Problem problem(parts.attention, apart);
    const int64_t most = attention::decodeQueries(problem);
    if (problem.isLatent())
      return std::string("heads too large for the registers in which new keys stay");
    if (problem.table)
      return std::string("one kernel is for caches of each entry, not for pages");
    if (std::optional<int64_t> queries = problem.queries.constant();
        queries && (*queries < 1 || *queries > most))
      return fmt::format("one kernel is for 1 to {} new positions: here there are {}", most, *queries);
    if (!problem.group.constant())
      return std::string("a number of heads that is not static");
    for (Operation *op : parts.heads.ops)
      if (auto write = dyn_cast<nn::CacheWriteOp>(op);
          write && !(context.shape(write.getFresh())[2] == problem.queries))
        return std::string("other new keys than queries");
    if (parts.isExtended && !(problem.queries + context.shape(parts.caches[0].past)[2] == problem.keys))
      return std::string("other new keys than queries");
    for (const auto &cache : parts.caches)
      if (cache.whole != problem.storedKeys.tensor && cache.whole != problem.storedValues.tensor)
        return std::string("a cache that nn.attention does not read as it is");
    auto made = attention::madeHeads(parts, region, context);
    if (auto *reason = std::get_if<std::string>(&made))
      return *reason;
    return std::nullopt;
  }

  static SmallVector<View> inputsOfAttention(const KernelContext &context,
                                             const attention::MadeHeads &heads) {
    SmallVector<View> inputs(context.inputs.begin(), context.inputs.end());
    llvm::append_range(inputs, heads.outputs);
    return inputs;
  }

  Region region;
  attention::RopeAttentionParts parts;
  PlannedPart before, after;
};

class RopeAttentionSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "rope_attention"; }
  /// Caches leave beside the result.
  bool concerns(const Region &region) const override {
    return region.outputs.size() > 1 && holdsAny<nn::AttentionOp>(region);
  }
  bool keepsParts() const override { return true; }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto made = RopeAttention::of(region, context);
    if (auto *reason = std::get_if<std::string>(&made))
      return refusal(*reason);
    auto found = std::get<std::shared_ptr<RopeAttention>>(made);
    SchedulePlan plan{[found](const KernelContext &context) { return found->emit(context); }};
    plan.split = [found, context] { return found->alternatives(context); };
    plan.batchInvariant = true; // by the number of queries, as nn.attention
    return plan;
  }
};
} // namespace

const Schedule &ropeAttentionSchedule() {
  static const RopeAttentionSchedule schedule;
  return schedule;
}

} // namespace fusion
