#include "Harness.h"

#include "codegen/device/Prelude.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "runtime/CompileKernels.h"
#include "runtime/emulate/EmulatedKernel.h"

#include "mlir/Parser/Parser.h"

#include <random>

using namespace mlir;

namespace fusion::test {

void set(Tensor &tensor, int64_t index, double value) {
  const size_t at = static_cast<size_t>(index) * byteSize(tensor.type());
  convert(DType::F64, &value, tensor.type(), tensor.as<char>() + at, 1);
}

void fillRandom(Tensor &tensor, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(-2, 2);
  std::uniform_int_distribution<int> integer(-5, 5);
  for (int64_t i = 0; i < tensor.size(); ++i)
    set(tensor, i,
        isFloat(tensor.type())           ? real(random)
        : tensor.type() == DType::Bool   ? random() % 4 != 0
        : isSignedInteger(tensor.type()) ? integer(random)
                                         : std::abs(integer(random)));
}

namespace {

struct Parsed {
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp function;
  Operation *target = nullptr;
  std::optional<nn::SymbolicShapes> shapes;
  std::optional<Views> views;
  Region region;
  std::vector<View> inputs;

  explicit Parsed(const std::string &text) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      return;
    function = *module->getOps<func::FuncOp>().begin();
    FailureOr<nn::SymbolicShapes> computed = nn::SymbolicShapes::compute(function);
    if (failed(computed))
      return;
    shapes = std::move(*computed);
    views = Views::compute(function, *shapes);
    target = function.front().getTerminator()->getOperand(0).getDefiningOp();
    auto group = dyn_cast<GroupOp>(target);
    region = group ? Region::of(group) : Region::of(target);
    for (auto [index, input] : llvm::enumerate(region.inputs))
      inputs.push_back((*views)[group ? group.getInputs()[index] : input]);
  }
  KernelContext kernelContext(uint32_t arch) const { return {*shapes, inputs, arch}; }
};

Shape evaluated(const DimShape &dims, const SymbolValues &symbols) {
  Shape shape;
  for (const Dim &dim : dims)
    shape.push_back(*dim.evaluate(symbols));
  return shape;
}

/// Each kernel for one of the architectures in turn: all of them would take minutes.
void checkSpills(const KernelPlan &kernel) {
  static constexpr const char *architectures[] = {"sm_80", "sm_90a", "sm_100"};
  static unsigned turn = 0;
  auto nvrtc = Nvrtc::instance();
  if (!nvrtc)
    return;
  const char *arch = architectures[turn++ % 3];
  auto cubin = (*nvrtc)->compile(fullSource(kernel), kernel.name, arch);
  if (!cubin) {
    ADD_FAILURE() << arch << ": " << cubin.error().message << "\n" << kernel.source;
    return;
  }
  EXPECT_EQ(cubin->spillBytes, 0) << arch << "\n" << kernel.source;
}

} // namespace

std::string refusal(const Schedule &schedule, const std::string &text) {
  Parsed parsed(text);
  if (!parsed.target) {
    ADD_FAILURE() << "does not parse: " << text;
    return "does not parse";
  }
  return schedule.refuses(parsed.region, parsed.kernelContext(90)).value_or("");
}

std::string check(const Schedule &schedule, const ScheduleCase &test) {
  SCOPED_TRACE(test.text);
  Parsed parsed(test.text);
  if (!parsed.target) {
    ADD_FAILURE() << "does not parse";
    return "";
  }
  if (auto reason = schedule.refuses(parsed.region, parsed.kernelContext(90))) {
    ADD_FAILURE() << "refused: " << *reason;
    return "";
  }
  const KernelDraft draft = schedule.emit(parsed.region, parsed.kernelContext(90));
  const std::string &source = draft.kernel.source;
  if (test.compiles)
    checkSpills(draft.kernel);

  std::vector<Tensor> arguments;
  for (auto [index, argument] : llvm::enumerate(parsed.function.getArguments())) {
    Tensor tensor = Tensor::zeros(dtype(argument), evaluated((*parsed.shapes)[argument], test.symbols));
    fillRandom(tensor, static_cast<unsigned>(index) + 1);
    if (test.fill)
      test.fill(static_cast<unsigned>(index), tensor);
    arguments.push_back(std::move(tensor));
  }
  auto expected = evaluateRegion(parsed.function.front(), arguments, test.symbols);
  if (!expected) {
    ADD_FAILURE() << expected.error().message;
    return source;
  }
  std::vector<Tensor> outputs;
  for (Value output : parsed.region.outputs)
    outputs.push_back(Tensor::zeros(dtype(output), evaluated((*parsed.shapes)[output], test.symbols)));

  auto compiled = EmulatedKernel::compile(draft.kernel, std::string(FUSION_BINARY_DIR) + "/test-kernels");
  if (!compiled) {
    ADD_FAILURE() << compiled.error().message << "\n" << source;
    return source;
  }
  std::vector<uint64_t> values(draft.arguments.size());
  std::vector<void *> pointers;
  for (auto [index, argument] : llvm::enumerate(draft.arguments)) {
    if (argument.kind == KernelDraft::Argument::Kind::Size) {
      values[index] = static_cast<uint64_t>(*argument.value.evaluate(test.symbols));
    } else {
      const void *data = nullptr;
      if (argument.kind == KernelDraft::Argument::Kind::Output)
        data = outputs[argument.index].data();
      else
        data = arguments[cast<BlockArgument>(parsed.inputs[argument.index].base).getArgNumber()].data();
      values[index] = reinterpret_cast<uint64_t>(data);
    }
    pointers.push_back(&values[index]);
  }
  auto grid = [&](const Dim &dim) { return static_cast<uint32_t>(*dim.evaluate(test.symbols)); };
  Status ran = (*compiled)->launch(grid(draft.gridX), grid(draft.gridY), grid(draft.gridZ), pointers.data());
  if (!ran) {
    ADD_FAILURE() << ran.error().message << "\n" << source;
    return source;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto difference = compare(outputs[i], (*expected)[i]);
    if (!difference) {
      ADD_FAILURE() << difference.error().message;
      continue;
    }
    EXPECT_LE(difference->relativeL2, test.tolerance)
        << "output " << i << ", worst at " << difference->worstIndex << "\n"
        << source;
  }
  return source;
}

} // namespace fusion::test
