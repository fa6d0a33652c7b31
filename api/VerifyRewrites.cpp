// Translation validation of what normalise and raise did: the ops replaced against the ops made, on the
// reference.
#include "api/Trial.h"
#include "api/Verify.h"
#include "ir/base/Progress.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {
bool isNarrow(Type type) { return type.isF16() || type.isBF16(); }

Type widened(Type type) {
  auto tensor = llvm::cast<RankedTensorType>(type);
  return isNarrow(tensor.getElementType()) ? tensor.clone(Float32Type::get(type.getContext())) : type;
}

/// Every f16 and bf16 becomes f32: what the function means before its roundings.
void widen(func::FuncOp function) {
  MLIRContext *context = function.getContext();
  Block &block = function.getBody().front();
  for (BlockArgument argument : block.getArguments())
    argument.setType(widened(argument.getType()));
  for (Operation &op : block) {
    for (Value result : op.getResults())
      result.setType(widened(result.getType()));
    if (auto constant = llvm::dyn_cast<nn::ConstantOp>(op))
      if (Tensor value = toTensor(constant.getValue());
          value.type() == DType::F16 || value.type() == DType::BF16)
        constant.setValueAttr(toAttribute(context, value.convertedTo(DType::F32)));
    for (NamedAttribute attribute : llvm::to_vector(op.getAttrs()))
      if (auto type = llvm::dyn_cast<TypeAttr>(attribute.getValue()); type && isNarrow(type.getValue()))
        op.setAttr(attribute.getName(), TypeAttr::get(Float32Type::get(context)));
  }
  SmallVector<Type> results(block.getTerminator()->getOperandTypes());
  function.setType(FunctionType::get(context, block.getArgumentTypes(), results));
}

Result<NamedTensors> run(func::FuncOp function, const NamedTensors &inputs) {
  auto interpreter = Interpreter::create(function, "");
  if (!interpreter)
    return interpreter.error();
  return interpreter->run(inputs);
}

class RewriteCheck {
public:
  explicit RewriteCheck(const Rewrite &rewrite)
      : rewrite(rewrite), before(function("before")), after(function("after")),
        exactModule(llvm::cast<ModuleOp>(rewrite.module.get()->clone())) {
    if (rewrite.raises)
      widen(exactModule->lookupSymbol<func::FuncOp>("before"));
  }

  std::string what() const { return rewrite.name + " at " + rewrite.location; }

  Status run(std::mt19937 &random) {
    for (const TrialValues &values : trials()) {
      Status status = runOn(values, unequalSizes, random);
      auto isOfSizes = [&] { return !status && status.error().kind != ErrorKind::AnswerIsNo; };
      if (isOfSizes())
        status = runOn(values, equalSizes, random);
      for (const TrialSizes &sizes : otherSizes)
        if (isOfSizes())
          if (Status other = runOn(values, sizes, random);
              other || other.error().kind == ErrorKind::AnswerIsNo)
            status = other;
      if (!status)
        return Error{status.error().kind, what() + ": " + status.error().message};
    }
    return {};
  }

private:
  func::FuncOp function(StringRef name) const {
    ModuleOp module = *rewrite.module;
    return module.lookupSymbol<func::FuncOp>(name);
  }

  /// Ordinary, large and tiny values. Where there are scores, large ones are not so large that f32 cannot
  /// tell the best two apart; a tensor that multiplies them makes them large by itself. In f16 a number that
  /// masks a score is not far from the scores that large values give: the ops replaced overflow there, and
  /// mask nothing. Beside the lowest f16 scores from -16 on do so: that is twelve deviations of 32 products
  /// without outliers. Experts of weight 0 are taken for finite, which large values do not leave in f16, and
  /// of tiny ones their products leave nothing. So are squares of f16, whose mean is eps where they are tiny.
  SmallVector<TrialValues> trials() {
    bool scores = false, scoresInHalf = false;
    before.walk([&](nn::SoftmaxOp softmax) {
      scores = true;
      scoresInHalf |= computedInHalf(softmax.getX());
    });
    const bool leavesExpertsOut =
        contains<nn::ExpertMatmulOp>(after) && !contains<nn::ExpertMatmulOp>(before);
    bool inHalf = false;
    before.walk([&](Operation *op) {
      inHalf |= llvm::any_of(op->getResults(), [](Value result) { return elementType(result).isF16(); });
    });
    if (leavesExpertsOut && inHalf)
      return {{0.5f, 1}};
    const bool makesNorm = (contains<nn::RmsNormOp>(after) && !contains<nn::RmsNormOp>(before)) ||
                           (contains<nn::LayerNormOp>(after) && !contains<nn::LayerNormOp>(before));
    if (makesNorm && inHalf)
      return {{0.5f, 1}, {4}};
    if (scoresInHalf)
      return {{0.5f, 1}, {1e-3f}};
    if (scores && hasFactorOfScores())
      return {{1}, {1e-3f}};
    if (scores)
      return {{1}, {4, 8}, {1e-3f}};
    return {{1}, {64}, {1e-3f}};
  }

  template <class Op>
  static bool contains(func::FuncOp function) {
    return function.walk([](Op) { return WalkResult::interrupt(); }).wasInterrupted();
  }

  /// Whether a matmul's result is multiplied with or divided by more than one number.
  bool hasFactorOfScores() {
    const auto isFactor = [](Value value) {
      return !value.getDefiningOp<nn::ConstantOp>() || tensorType(value).getRank() != 0;
    };
    return before
        .walk([&](Operation *op) {
          if (llvm::isa<nn::MulOp, nn::DivOp>(op) && isFactor(op->getOperand(0)) &&
              isFactor(op->getOperand(1)) &&
              llvm::any_of(op->getOperands(), [](Value x) { return x.getDefiningOp<nn::MatmulOp>(); }))
            return WalkResult::interrupt();
          return WalkResult::advance();
        })
        .wasInterrupted();
  }

  /// Whether an op that leads to the value, a cast apart, computes in f16.
  static bool computedInHalf(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (!llvm::isa<nn::CastOp>(op) && elementType(value).isF16())
      return true;
    return llvm::any_of(op->getOperands(), computedInHalf);
  }

  Status runOn(const TrialValues &values, const TrialSizes &sizes, std::mt19937 &random) {
    auto interpreter = Interpreter::create(before, "");
    if (!interpreter)
      return interpreter.error();
    NamedTensors inputs = randomInputs(interpreter->inputs(), sizes, values, random);
    orderRows(before, interpreter->inputs(), inputs);
    keepExperts(after, interpreter->inputs(), inputs);
    auto expected = interpreter->run(inputs);
    if (!expected)
      return expected.error();
    auto actual = fusion::run(after, inputs);
    if (!actual)
      return actual.error();
    for (const auto &[name, value] : *expected)
      if (Status status = compareResult(name, actual->at(name), value, inputs); !status)
        return status;
    return {};
  }

  Status compareResult(const std::string &name, const Tensor &actual, const Tensor &expected,
                       const NamedTensors &inputs) {
    auto difference = compare(actual, expected);
    if (!difference)
      return Error{ErrorKind::AnswerIsNo, difference.error().message};
    double allowed = rewrite.raises ? roundingTolerance(actual.type(), inputs)
                                    : sameRoundingTolerance(actual.type(), inputs);
    if (difference->relativeL2 <= allowed || (rewrite.raises && isExact(name, actual, inputs, allowed)))
      return {};
    int64_t index = std::max<int64_t>(difference->worstIndex, 0);
    return Error{
        ErrorKind::AnswerIsNo,
        fmt::format("element {} is {} after the rewrite and was {} (relative L2 {:.3g}, allowed {:.3g})",
                    index, actual.toFloats()[index], expected.toFloats()[index], difference->relativeL2,
                    allowed)};
  }

  /// An op that rounds less often may be far from the ops it replaces where they were far from their own
  /// meaning.
  bool isExact(const std::string &name, const Tensor &actual, const NamedTensors &inputs, double allowed) {
    NamedTensors wide;
    for (const auto &[port, tensor] : inputs)
      wide[port] = tensor.type() == DType::F16 || tensor.type() == DType::BF16
                       ? tensor.convertedTo(DType::F32)
                       : tensor;
    auto exact = fusion::run(exactModule->lookupSymbol<func::FuncOp>("before"), wide);
    if (!exact)
      return false;
    auto difference = compare(actual, exact->at(name));
    return difference && difference->relativeL2 <= allowed;
  }

  const Rewrite &rewrite;
  func::FuncOp before, after;
  OwningOpRef<ModuleOp> exactModule;
};
} // namespace

Status verifyRewrites(const RewriteLog &log) {
  Progress progress("verifying rewrites", static_cast<int64_t>(log.rewrites().size()));
  std::mt19937 random(std::random_device{}());
  for (const Rewrite &rewrite : log.rewrites()) {
    RewriteCheck check(rewrite);
    progress.step(check.what());
    if (Status status = check.run(random); !status)
      return status;
  }
  return {};
}

} // namespace fusion
