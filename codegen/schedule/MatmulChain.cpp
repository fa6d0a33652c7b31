// A norm, the matmuls of its result, and what is made of heads of theirs: kernels of their own, as they would
// be without the group, or, for few rows, gemm_swap_ab with both inside; of quantised weights
// gemm_small_m_codes with the norm. A device measures which is faster.
#include "codegen/LibraryMatmuls.h"
#include "codegen/schedule/MatmulChainParts.h"
#include "codegen/schedule/MatmulSwap.h"
#include "codegen/schedule/PlannedParts.h"
#include "codegen/schedule/RowGraph.h"
#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {
/// gemm_swap_ab is for so many rows: each of its blocks computes the norm of all of them.
constexpr int64_t mostSwappedRows = 8;

/// A region in parts, and how each is computed by itself.
class Chain {
public:
  /// Why the region is none; nothing if it is one.
  static std::variant<std::shared_ptr<Chain>, std::string> of(const Region &region,
                                                              const KernelContext &context) {
    auto split = matmul::chainParts(region, context);
    if (auto *reason = std::get_if<std::string>(&split))
      return *reason;
    auto chain = std::make_shared<Chain>();
    chain->region = region;
    chain->parts = std::move(std::get<matmul::ChainParts>(split));
    if (auto reason = chain->plan(context))
      return *reason;
    return std::move(chain);
  }

  std::vector<PlannedAlternative> alternatives(const KernelContext &context) {
    const std::vector<PlannedAlternative> before = norm.alternatives(), of = products.alternatives(),
                                          after = heads.alternatives();
    std::vector<PlannedAlternative> all = combined(before, of, after);
    if (context.batchInvariant)
      return all;
    for (PlannedAlternative &alternative : all)
      if (llvm::StringRef(alternative.variant).empty())
        alternative.variant = kernelVariant;
    // Quantised matmuls of more rows have variants, for each of the norm's sizes.
    llvm::stable_sort(all, [](const PlannedAlternative &one, const PlannedAlternative &other) {
      return isFirst(one) && !isFirst(other);
    });
    PlannedAlternative one{
        {}, {}, {PlannedKernel{region, [this](const KernelContext &its) { return emit(its); }}}};
    one.variant = otherKernelVariant;
    if (!rows.constant())
      one.when = {{rows, 1, mostRows()}};
    all.push_back(std::move(one));
    if (libraryRows) {
      PlannedAlternative library{{}, {}, {PlannedKernel{parts.products, {}, /*byLibrary=*/true}}};
      if (!libraryRows->size.constant())
        library.when = {*libraryRows};
      for (PlannedAlternative &alternative : combined(before, {library}, after)) {
        alternative.variant = libraryVariant;
        all.push_back(std::move(alternative));
      }
    }
    return all;
  }

  /// The region as one kernel.
  KernelDraft emit(const KernelContext &context) const {
    auto made = oneOf(context);
    const One &one = *std::get<std::unique_ptr<One>>(made);
    return matmul::counted(ofCodes ? matmul::emitSmallMCodes(one.kernel, one.context, one.problem)
                                   : matmul::emitSwapAB(one.kernel, one.context, one.problem, one.tile.get()),
                           one.problem);
  }

private:
  std::optional<std::string> plan(const KernelContext &context) {
    if (auto reason = norm.make(parts.norm, region, rowSchedule(), context))
      return reason;
    if (auto reason = products.make(parts.products, region, matmulSchedule(), context))
      return reason;
    if (auto reason = heads.make(parts.heads, region, rowSchedule(), context))
      return reason;
    const KernelContext own = products.contextIn(context);
    auto analysed = matmul::analyse(parts.products, own);
    if (auto *reason = std::get_if<std::string>(&analysed))
      return *reason;
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    rows = problem.m;
    ofCodes = matmul::swapABRows(problem, context.target) == 0;
    if (ofCodes && !parts.heads.ops.empty())
      return std::string("gemm_swap_ab does not take the matmuls");
    if (ofCodes && matmul::smallMCodesRows(problem, context.target) == 0)
      return std::string("neither gemm_swap_ab nor gemm_small_m_codes takes the matmuls");
    if (!context.batchInvariant && rows.constant().value_or(1) > mostRows())
      return fmt::format("one kernel is for 1 to {} rows: here there are {}", mostRows(), *rows.constant());
    if (rows.constant() == 0)
      return std::string("no rows");
    auto split = splitMatmuls(parts.products, own);
    if (auto *calls = std::get_if<LibraryMatmuls>(&split); calls && remainsForAllSizes(*calls, own))
      libraryRows = calls->rows;
    return refusesOne(context);
  }

  static bool isFirst(const PlannedAlternative &alternative) {
    return llvm::StringRef(alternative.variant) == kernelVariant;
  }

  static std::vector<PlannedAlternative> combined(ArrayRef<PlannedAlternative> before,
                                                  ArrayRef<PlannedAlternative> of,
                                                  ArrayRef<PlannedAlternative> after) {
    return oneAfterTheOther(oneAfterTheOther(before, of), after);
  }

  /// What one kernel needs while it is written. The vectors are referred to.
  struct One {
    Region kernel, heads;
    SmallVector<View> inputs;
    KernelContext context, ofProducts;
    matmul::Problem problem;
    std::unique_ptr<matmul::TileHeads> tile;
    explicit One(const KernelContext &context) : context(context), ofProducts(context) {}
  };

  std::variant<std::unique_ptr<One>, std::string> oneOf(const KernelContext &context) const {
    auto one = std::make_unique<One>(context);
    one->kernel = region;
    one->inputs.assign(context.inputs.begin(), context.inputs.end());
    if (parts.rows)
      one->inputs.push_back(View::contiguous(parts.rows, context.shape(parts.rows)));
    one->context.inputs = one->ofProducts.inputs = one->inputs;
    one->context.when = one->ofProducts.when = {};
    one->ofProducts.outputs = {};
    auto analysed = matmul::analyse(parts.products, one->ofProducts);
    if (auto *reason = std::get_if<std::string>(&analysed))
      return *reason;
    matmul::Problem &problem = one->problem = std::move(std::get<matmul::Problem>(analysed));
    problem.leastRows = problem.m.constant().value_or(1);
    problem.mostRows = problem.m.constant().value_or(mostRows());
    if (!parts.heads.ops.empty()) {
      one->heads = parts.heads;
      one->heads.inputs = parts.products.inputs;
      one->heads.inputs.append(parts.products.outputs.begin(), parts.products.outputs.end());
      auto tile = matmul::tileHeads(parts.products, one->heads, one->kernel, problem, one->context);
      if (auto *reason = std::get_if<std::string>(&tile))
        return *reason;
      one->tile = std::move(std::get<std::unique_ptr<matmul::TileHeads>>(tile));
      problem.headTiles = one->tile->tiles;
    } else {
      for (matmul::Matmul &matmul : problem.matmuls)
        for (unsigned &output : matmul.outputs)
          output = numberOf(parts.products.outputs[output]);
    }
    problem.prologue = parts.norm.ops;
    if (parts.rows)
      for (Value output : region.outputs)
        if (llvm::is_contained(parts.norm.ops, output.getDefiningOp()))
          problem.prologueOutputs.push_back(numberOf(output));
    return std::move(one);
  }

  unsigned numberOf(Value output) const {
    return static_cast<unsigned>(llvm::find(region.outputs, output) - region.outputs.begin());
  }

  std::optional<std::string> refusesOne(const KernelContext &context) const {
    auto made = oneOf(context);
    if (auto *reason = std::get_if<std::string>(&made))
      return *reason;
    const One &one = *std::get<std::unique_ptr<One>>(made);
    if (parts.rows) {
      auto graph = row::buildGraph(parts.norm, norm.contextIn(context));
      if (auto *reason = std::get_if<std::string>(&graph))
        return "the norm: " + *reason;
      if (std::get<row::Graph>(graph).groupSize != 0)
        return std::string("values per group before the matmuls");
    }
    if (!ofCodes)
      return matmul::swapABRefusal(one.problem, context.target);
    if (!matmul::isSmallMCodes(one.problem, context.target))
      return std::string("no room for a ring beside the rows that a block computes");
    return std::nullopt;
  }

  int64_t mostRows() const { return ofCodes ? matmul::smallMCodesAlone : mostSwappedRows; }

  Region region;
  matmul::ChainParts parts;
  PlannedPart norm, products, heads;
  Dim rows = 1;
  bool ofCodes = false; ///< quantised weights: gemm_small_m_codes is the one kernel
  std::optional<SizeRange> libraryRows;
};

class MatmulChainSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "matmul_chain"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::MatmulOp>(region); }
  bool keepsParts() const override { return true; }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto chain = Chain::of(region, context);
    if (auto *reason = std::get_if<std::string>(&chain))
      return refusal(*reason);
    auto found = std::get<std::shared_ptr<Chain>>(chain);
    SchedulePlan plan{[found](const KernelContext &context) { return found->emit(context); }};
    plan.split = [found, context] { return found->alternatives(context); };
    plan.batchInvariant = true; // then the parts alone
    return plan;
  }
};
} // namespace

const Schedule &matmulChainSchedule() {
  static const MatmulChainSchedule schedule;
  return schedule;
}

} // namespace fusion
