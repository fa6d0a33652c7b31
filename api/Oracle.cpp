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
    return partsOf(name, regionOf(ops, ports));
  }
  SmallVector<GroupPorts> parts(GroupOp group) override {
    return partsOf(group.getSchedule(), Region::of(group));
  }

  int64_t kernels(ArrayRef<Operation *> ops, const GroupPorts &ports, StringRef name,
                  const SymbolValues &sizes) override {
    return kernelsOf(name, regionOf(ops, ports), sizes);
  }
  int64_t kernels(Operation *op, const SymbolValues &sizes) override {
    if (auto group = dyn_cast<GroupOp>(op))
      return kernelsOf(group.getSchedule(), Region::of(group), sizes);
    const Region region = regionOf(op, portsOf(op));
    return inContext(region, [&](const KernelContext &context) {
      auto first = firstSchedule(region, context);
      return first ? kernelsAt(first->second, region, sizes) : 1;
    });
  }

  std::optional<std::string> refusal(GroupOp group) override {
    return planned(group.getSchedule(), Region::of(group), [](const Result<SchedulePlan> &plan) {
      return plan ? std::nullopt : std::optional(plan.error().message);
    });
  }

  SmallVector<Operation *> launching(func::FuncOp function) override {
    return llvm::filter_to_vector(
        llvm::make_pointer_range(function.getBody().front().without_terminator()),
        [&](Operation *op) { return !nn::isStored(op) && !isBodyConstant(op) && !views->isView(op); });
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
  SmallVector<GroupPorts> partsOf(StringRef name, const Region &region) {
    const Schedule *schedule = schedules.find(name);
    if (!schedule || !schedule->keepsParts())
      return {};
    return planned(name, region, [&](const Result<SchedulePlan> &plan) {
      return plan ? portsOfKernels(*plan, region) : SmallVector<GroupPorts>();
    });
  }
  int64_t kernelsOf(StringRef name, const Region &region, const SymbolValues &sizes) {
    return planned(name, region, [&](const Result<SchedulePlan> &plan) {
      return plan ? kernelsAt(*plan, region, sizes) : 1;
    });
  }
  /// Of the first alternative that is for these sizes. Where a library adds up over ranks there is none.
  static int64_t kernelsAt(const SchedulePlan &plan, const Region &region, const SymbolValues &sizes) {
    for (const PlannedAlternative &one : plan.alternatives(region))
      if (llvm::all_of(one.when, [&](const SizeRange &range) {
            auto size = range.size.evaluate(sizes);
            return size && range.holds(*size);
          }))
        return std::max<int64_t>(1, static_cast<int64_t>(one.kernels.size()));
    return 1;
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

  /// What `use` makes of the region's context, which ends with the call.
  template <class Use>
  std::invoke_result_t<Use, const KernelContext &> inContext(const Region &region, const Use &use) const {
    const SmallVector<View> inputs = inputViews(region, *views), outputs = outputViews(region, *views);
    return use(KernelContext{.shapes = *shapes,
                             .inputs = inputs,
                             .target = target,
                             .outputs = outputs,
                             .schedules = schedules,
                             .batchInvariant = batchInvariant});
  }
  /// What `use` makes of the plan of the schedule of that name, or of the reason why there is none.
  template <class Use>
  std::invoke_result_t<Use, const Result<SchedulePlan> &> planned(StringRef name, const Region &region,
                                                                  const Use &use) const {
    return inContext(region, [&](const KernelContext &context) {
      const Schedule *schedule = schedules.find(name);
      return use(schedule ? planWith(*schedule, region, context)
                          : badInput(("there is no schedule \"" + name + "\"").str()));
    });
  }

  Result<std::string> nameOfFirst(const Region &region) {
    return inContext(region, [&](const KernelContext &context) {
      auto first = firstSchedule(region, context);
      return first ? Result<std::string>(first->first->name().str()) : badInput(first.error().message);
    });
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
