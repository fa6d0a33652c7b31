// Which schedule takes a group: asked of the code generator without emitting anything.
#include "codegen/BuildPlan.h"
#include "runtime/api/Lower.h"
#include "runtime/cuda/Nvrtc.h"

using namespace mlir;

namespace fusion {

namespace {
class CodegenOracle : public ScheduleOracle {
public:
  explicit CodegenOracle(const std::string &target) : arch(archNumber(target)) {}

  void begin(func::FuncOp function, const nn::SymbolicShapes &analysed) override {
    shapes = &analysed;
    views.emplace(Views::compute(function, analysed));
  }

  Result<std::string> schedule(ArrayRef<Operation *> ops, const GroupPorts &ports) override {
    Region region;
    region.ops.assign(ops.begin(), ops.end());
    region.inputs = ports.inputs;
    region.outputs = ports.outputs;
    region.anchor = ops.back();
    // Constants that the commit will clone into the body are part of the region.
    SmallVector<Operation *> constants;
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp();
            producer && isBodyConstant(producer) && !llvm::is_contained(region.ops, producer) &&
            !llvm::is_contained(constants, producer))
          constants.push_back(producer);
    region.ops.insert(region.ops.begin(), constants.begin(), constants.end());
    return firstSchedule(region);
  }

  SmallVector<Operation *> launches(func::FuncOp function) override {
    SmallVector<Operation *> ops;
    for (Operation &op : function.getBody().front().without_terminator())
      if (!llvm::isa<nn::ConstantOp, nn::WeightOp>(op) && !isBodyConstant(&op) && !views->isView(&op))
        ops.push_back(&op);
    return ops;
  }

  bool isView(Operation *op) const override { return views->isView(op); }
  Value extendedInPlace(Value value) const override {
    return views->isInPlace(value) ? (*views)[value].base : Value();
  }

private:
  Result<std::string> firstSchedule(const Region &region) {
    SmallVector<View> inputs;
    for (Value input : region.inputs)
      inputs.push_back((*views)[input]);
    SmallVector<View> outputs = outputViews(region, *views);
    KernelContext context{*shapes, inputs, static_cast<uint32_t>(arch), nullptr, outputs};
    std::string reasons;
    for (const Schedule *schedule : schedulesFor(region)) {
      auto why = schedule->refuses(region, context);
      if (!why)
        return schedule->name().str();
      reasons += (reasons.empty() ? "" : "; ") + schedule->name().str() + ": " + *why;
    }
    return badInput(reasons);
  }

  int arch;
  const nn::SymbolicShapes *shapes = nullptr;
  std::optional<Views> views;
};
} // namespace

std::unique_ptr<ScheduleOracle> makeScheduleOracle(const std::string &target) {
  return std::make_unique<CodegenOracle>(target);
}

} // namespace fusion
