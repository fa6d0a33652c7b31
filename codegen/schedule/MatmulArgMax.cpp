// A matmul with the ops of its epilogue, and the place of the largest element of each row: for few rows
// gemm_swap_ab, or of quantised weights gemm_small_m_codes or gemm_swap_codes, finds it while it stores them,
// and a small kernel looks at what its warps have found; for others kernels of the two parts, as they would
// be without the group.
#include "codegen/schedule/MatmulSwap.h"
#include "codegen/schedule/PlannedParts.h"
#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {
using Largest = matmul::Problem::Largest;

/// A region in parts, and how each is computed by itself.
class MatmulArgMax {
public:
  /// Why the region is none; nothing if it is one.
  static std::variant<std::shared_ptr<MatmulArgMax>, std::string> of(const Region &region,
                                                                     const KernelContext &context) {
    auto made = std::make_shared<MatmulArgMax>();
    made->region = region;
    if (auto reason = made->split())
      return *reason;
    if (auto reason = made->plan(context))
      return *reason;
    return std::move(made);
  }

  std::vector<PlannedAlternative> alternatives(const KernelContext &context) const {
    std::vector<PlannedAlternative> ofMatmul;
    for (PlannedAlternative &one : products.alternatives())
      if (llvm::StringRef(one.variant).empty() || one.variant == std::string_view(kernelVariant))
        ofMatmul.push_back(std::move(one));
    const std::vector<PlannedAlternative> parts = oneAfterTheOther(ofMatmul, choice.alternatives());
    if (context.batchInvariant)
      return parts;
    std::vector<PlannedAlternative> all;
    auto addParts = [&](int64_t least, int64_t most, const char *variant) {
      for (const PlannedAlternative &one : parts)
        if (auto when = both(one.when, {{rows, least, most}}); when && least <= most) {
          all.push_back(one);
          all.back().when = rows.constant() ? Predicate() : *when;
          all.back().variant = variant;
        }
    };
    auto addTogether = [&](int64_t least, int64_t most, const char *variant) {
      for (int64_t end = takesOne ? 1 : 8; least <= most; least = end + 1, end = end == 1 ? 4 : 2 * end)
        if (least <= end)
          all.push_back(together(SizeRange{rows, least, std::min(end, most)}, variant));
    };
    if (const std::optional<int64_t> known = rows.constant()) {
      if (*known < usualRows)
        addParts(*known, *known, kernelVariant);
      all.push_back(together({}, *known < usualRows ? otherKernelVariant : kernelVariant));
      if (*known >= usualRows)
        addParts(*known, *known, otherKernelVariant);
      return all;
    }
    addParts(1, usualRows - 1, kernelVariant);
    addTogether(usualRows, mostRows, kernelVariant);
    addParts(mostRows + 1, INT64_MAX, kernelVariant);
    addTogether(1, usualRows - 1, otherKernelVariant);
    addParts(usualRows, mostRows, otherKernelVariant);
    return all;
  }

private:
  std::optional<std::string> split() {
    auto found = llvm::find_if(region.ops, llvm::IsaPred<nn::ArgMaxOp>);
    if (found == region.ops.end())
      return std::string("no nn.arg_max");
    auto argMax = cast<nn::ArgMaxOp>(*found);
    elements = argMax.getX();
    places = argMax.getY();
    const auto rank = tensorType(elements).getRank(), axis = static_cast<int64_t>(argMax.getAxis());
    if (axis != -1 && axis != rank - 1)
      return std::string("nn.arg_max along another dim than the columns of the matmul");
    for (Region *part : {&productsRegion, &choiceRegion}) {
      part->inputs = region.inputs;
      part->anchor = region.anchor;
      part->pattern = region.pattern;
    }
    llvm::copy_if(region.ops, std::back_inserter(productsRegion.ops),
                  [&](Operation *op) { return op != argMax; });
    if (!llvm::is_contained(productsRegion.ops, elements.getDefiningOp()))
      return std::string("nn.arg_max of what the matmul does not make");
    if (!isFloat(dtype(elements)) || byteSize(dtype(elements)) > 4)
      return std::string("nn.arg_max of integers or f64");
    for (Value output : region.outputs)
      if (output != elements && output != places)
        return std::string("another result than the elements and the places of the largest");
    productsRegion.outputs = {elements};
    choiceRegion.ops = {argMax};
    choiceRegion.outputs = {places};
    partsChoice = choiceRegion;
    partsChoice.inputs.push_back(elements);
    return std::nullopt;
  }

  std::optional<std::string> plan(const KernelContext &context) {
    if (auto reason = products.make(productsRegion, region, matmulSchedule(), context))
      return reason;
    if (auto reason = choice.make(partsChoice, region, scanSchedule(), context))
      return reason;
    auto analysed = matmul::analyse(productsRegion, products.contextIn(context));
    if (auto *reason = std::get_if<std::string>(&analysed))
      return *reason;
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    rows = problem.m;
    if (problem.matmuls.size() != 1)
      return std::string("several matmuls");
    mostRows = matmul::swapABRows(problem, context.target);
    if (mostRows == 0) {
      mostRows = matmul::swapCodesRows(problem, context.target);
      matmul::Problem few = problem;
      few.leastRows = few.mostRows = 1;
      takesOne = matmul::prefersSmallMCodes(few, context.target);
      usualRows = takesOne ? 1 : 5; // fewer are taken by gemm_swap_codes where it measured faster
    }
    if (mostRows == 0)
      return std::string("neither gemm_swap_ab nor gemm_swap_codes takes the matmul");
    if (!context.batchInvariant && (rows.constant().value_or(1) < 1 || rows.constant().value_or(1) > mostRows))
      return fmt::format("one kernel is for 1 to {} rows: here there are {}", mostRows, *rows.constant());
    return std::nullopt;
  }

  bool keepsElements() const { return llvm::is_contained(region.outputs, elements); }

  /// The matmul that finds the largest, for so many rows, and the kernel after it.
  PlannedAlternative together(llvm::ArrayRef<SizeRange> range, const char *variant) const {
    Region finding = productsRegion;
    finding.ops = region.ops;
    if (!keepsElements())
      finding.outputs.clear();
    auto matmul = [this](const KernelContext &context) { return emitMatmul(context); };
    auto look = [this](const KernelContext &context) { return emitPlaces(context); };
    PlannedAlternative made = alternativesFor(range, finding, matmul).front();
    made.kernels.push_back(alternativesFor(range, choiceRegion, look).front().kernels.front());
    made.variant = variant;
    return made;
  }

  matmul::Problem problemIn(const KernelContext &context) const {
    auto analysed = matmul::analyse(productsRegion, context);
    matmul::Problem problem = std::move(std::get<matmul::Problem>(analysed));
    problem.largest = keepsElements() ? Largest::Found : Largest::FoundAlone;
    return problem;
  }

  KernelDraft emitMatmul(const KernelContext &context) const {
    KernelContext own = context;
    const View unstored = View::contiguous(elements, context.shape(elements));
    if (!keepsElements())
      own.outputs = unstored;
    const matmul::Problem problem = problemIn(own);
    const TargetInfo &target = context.target;
    KernelDraft draft = matmul::prefersSmallMCodes(problem, target)
                            ? matmul::emitSmallMCodes(productsRegion, own, problem)
                        : matmul::swapCodesRows(problem, target) > 0
                            ? matmul::emitSwapCodes(productsRegion, own, problem)
                            : matmul::emitSwapAB(productsRegion, own, problem, nullptr);
    draft.flops = problem.m * problem.n * problem.k * Dim(2);
    return draft;
  }

  /// The place of the largest of what warps have found of each row.
  KernelDraft emitPlaces(const KernelContext &context) const {
    constexpr uint32_t threads = 128;
    KernelContext own = context;
    own.outputs = {};
    const matmul::Problem problem = problemIn(own);
    body::KernelSource source(choiceRegion, context.inputs);
    scalar::Graph graph;
    body::Printer printer(graph, source.names);
    body::Code code(2);
    const DType type = dtype(places);
    const std::string place = printer.stored(
        {graph.convert(type, graph.input("place", DType::I64, scalar::Level::Element)), type}, code);
    code.line(fmt::format("store({} + row, {});", source.body.output(0), place));
    source.include("arg_max_epilogue.cuh");
    source.config.set("threads", int64_t(threads));
    source.body.method("DEVICE void put(i64 row, i64 place) const", code);
    source.config.set("per_row", matmul::largestPartsOfRow(problem, context.target));
    std::string arguments =
        fmt::format("{}, {}", source.scratch(matmul::largestWords(problem.m, context.target), false),
                    source.size(problem.m));
    KernelDraft draft = source.finish({.schedule = "scan",
                                       .function = "place_of_largest",
                                       .arguments = std::move(arguments),
                                       .name = body::kernelName(choiceRegion, own),
                                       .threads = threads});
    draft.gridX = problem.m.ceilDiv(threads / 32);
    return draft;
  }

  Region region, productsRegion, choiceRegion, partsChoice;
  Value elements, places;
  PlannedPart products, choice;
  Dim rows = 1;
  int64_t mostRows = 0;  ///< that one kernel takes
  bool takesOne = false; ///< one row has a kernel of its own
  int64_t usualRows = 1; ///< from which on it is taken where nothing is measured
};

class MatmulArgMaxSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "matmul_arg_max"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::ArgMaxOp>(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto made = MatmulArgMax::of(region, context);
    if (auto *reason = std::get_if<std::string>(&made))
      return refusal(*reason);
    auto found = std::get<std::shared_ptr<MatmulArgMax>>(made);
    SchedulePlan plan;
    plan.split = [found, context] { return found->alternatives(context); };
    plan.batchInvariant = true; // then the parts alone
    return plan;
  }
};
} // namespace

const Schedule &matmulArgMaxSchedule() {
  static const MatmulArgMaxSchedule schedule;
  return schedule;
}

} // namespace fusion
