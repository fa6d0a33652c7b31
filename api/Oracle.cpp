// Which schedule takes a group: asked of the code generator without emitting anything.
#include "api/Lower.h"
#include "codegen/ChooseSchedule.h"

using namespace mlir;

namespace fusion {

namespace {
class CodegenOracle : public ScheduleOracle {
public:
  CodegenOracle(TargetInfo target, ScheduleSet schedules, bool batchInvariant)
      : target(std::move(target)), schedules(std::move(schedules)), batchInvariant(batchInvariant) {}

  void begin(func::FuncOp function, const nn::SymbolicShapes &analysed) override {
    shapes = &analysed;
    views.emplace(Views::compute(function, analysed));
  }

  Result<std::string> schedule(ArrayRef<Operation *> ops, const GroupPorts &ports) override {
    return nameOfFirst(regionOf(ops, ports));
  }

  SmallVector<GroupPorts> parts(ArrayRef<Operation *> ops, const GroupPorts &ports, StringRef name) override {
    const Schedule *schedule = schedules.find(name);
    if (!schedule || !schedule->keepsParts())
      return {};
    const Region region = regionOf(ops, ports);
    const SmallVector<View> inputs = viewsOf(region.inputs), outputs = outputViews(region, *views);
    auto plan = planWith(*schedule, region, contextOf(inputs, outputs));
    if (!plan)
      return {};
    return portsOfKernels(*plan, region);
  }

  SmallVector<GroupPorts> parts(GroupOp group) override {
    const Schedule *schedule = schedules.find(group.getSchedule());
    if (!schedule || !schedule->keepsParts())
      return {};
    const Region region = Region::of(group);
    const SmallVector<View> inputs = inputViews(region, *views), outputs = outputViews(region, *views);
    auto plan = planWith(*schedule, region, contextOf(inputs, outputs));
    return plan ? portsOfKernels(*plan, region) : SmallVector<GroupPorts>();
  }

  std::optional<std::string> refusal(GroupOp group) override {
    const Schedule *schedule = schedules.find(group.getSchedule());
    if (!schedule)
      return ("there is no schedule \"" + group.getSchedule() + "\"").str();
    const Region region = Region::of(group);
    const SmallVector<View> inputs = inputViews(region, *views), outputs = outputViews(region, *views);
    auto plan = planWith(*schedule, region, contextOf(inputs, outputs));
    return plan ? std::nullopt : std::optional(plan.error().message);
  }

  SmallVector<Operation *> launches(func::FuncOp function) override {
    SmallVector<Operation *> ops;
    for (Operation &op : function.getBody().front().without_terminator())
      if (!nn::isStored(&op) && !isBodyConstant(&op) && !views->isView(&op))
        ops.append(kernelsOf(&op), &op);
    return ops;
  }

  bool isView(Operation *op) const override { return views->isView(op); }
  Value extendedInPlace(Value value) const override {
    return views->isInPlace(value) ? (*views)[value].base : Value();
  }

private:
  /// What the kernels that run where nothing is measured read and write.
  static SmallVector<GroupPorts> portsOfKernels(const SchedulePlan &plan, const Region &region) {
    const std::vector<PlannedAlternative> alternatives = plan.alternatives(region);
    SmallVector<GroupPorts> parts;
    for (const PlannedKernel &kernel : alternatives.front().kernels) {
      GroupPorts &own = parts.emplace_back();
      own.outputs.assign(kernel.region.outputs.begin(), kernel.region.outputs.end());
      for (Operation *op : kernel.region.ops)
        for (Value operand : op->getOperands())
          if (llvm::is_contained(kernel.region.inputs, operand) && !llvm::is_contained(own.inputs, operand))
            own.inputs.push_back(operand);
    }
    return parts;
  }
  size_t kernelsOf(Operation *op) {
    auto group = dyn_cast<GroupOp>(op);
    return group ? std::max<size_t>(1, parts(group).size()) : 1;
  }

  static Region regionOf(ArrayRef<Operation *> ops, const GroupPorts &ports) {
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
    return region;
  }

  SmallVector<View> viewsOf(ArrayRef<Value> values) const {
    SmallVector<View> all;
    for (Value value : values)
      all.push_back((*views)[value]);
    return all;
  }

  KernelContext contextOf(ArrayRef<View> inputs, ArrayRef<View> outputs) const {
    return {.shapes = *shapes,
            .inputs = inputs,
            .target = target,
            .outputs = outputs,
            .schedules = schedules,
            .batchInvariant = batchInvariant};
  }

  Result<std::string> nameOfFirst(const Region &region) {
    const SmallVector<View> inputs = viewsOf(region.inputs), outputs = outputViews(region, *views);
    const KernelContext context = contextOf(inputs, outputs);
    auto first = firstSchedule(region, context);
    return first ? Result<std::string>(first->first->name().str()) : badInput(first.error().message);
  }

  TargetInfo target;
  ScheduleSet schedules;
  bool batchInvariant;
  const nn::SymbolicShapes *shapes = nullptr;
  std::optional<Views> views;
};
} // namespace

std::unique_ptr<ScheduleOracle> makeScheduleOracle(const TargetInfo &target, const ScheduleSet &schedules,
                                                   bool batchInvariant) {
  return std::make_unique<CodegenOracle>(target, schedules, batchInvariant);
}

} // namespace fusion
