#include "Deferred.h"
#include "Parsed.h"

#include "ir/dialect/InPlace.h"
#include "ir/reference/Reference.h"

#include <fmt/format.h>
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

Shape evaluated(const DimShape &dims, const SymbolValues &symbols) {
  Shape shape;
  for (const Dim &dim : dims)
    shape.push_back(*dim.evaluate(symbols));
  return shape;
}

namespace {

/// The constants that a region reads.
std::vector<nn::ConstantOp> constantsOf(const Parsed &parsed) {
  std::vector<nn::ConstantOp> constants;
  for (const View &view : parsed.inputs)
    if (auto constant = view.base.getDefiningOp<nn::ConstantOp>();
        constant && !llvm::is_contained(constants, constant))
      constants.push_back(constant);
  return constants;
}

/// The function argument whose memory a region input reads, or the constant, counted after the arguments.
unsigned argumentOf(const Parsed &parsed, unsigned input) {
  const Value base = parsed.inputs[input].base;
  if (auto argument = dyn_cast<BlockArgument>(base))
    return argument.getArgNumber();
  const std::vector<nn::ConstantOp> constants = constantsOf(parsed);
  const auto place = llvm::find(constants, base.getDefiningOp<nn::ConstantOp>());
  return func::FuncOp(parsed.function).getNumArguments() + static_cast<unsigned>(place - constants.begin());
}

/// A constant's memory: 4-bit elements lie two to a byte, low half first.
Tensor memoryOf(nn::ConstantOp constant) {
  const Tensor tensor = toTensor(constant.getValue());
  if (tensor.type() != DType::I4 && tensor.type() != DType::U4)
    return tensor;
  Tensor bytes = Tensor::zeros(DType::U8, {(tensor.size() + 1) / 2});
  for (int64_t i = 0; i < tensor.size(); ++i)
    bytes.as<uint8_t>()[i / 2] |= static_cast<uint8_t>((tensor.as<uint8_t>()[i] & 15) << (i % 2 * 4));
  return bytes;
}

/// The first elements along each dim.
Tensor cornerOf(const Tensor &tensor, const Shape &shape) {
  Shape strides(shape.size(), 1);
  for (size_t dim = shape.size() - 1; dim-- > 0;)
    strides[dim] = strides[dim + 1] * tensor.shape()[dim + 1];
  return Tensor::wrapStrided(tensor.type(), shape, strides, tensor.storage().get(), tensor.storage());
}

/// A copy of the tensor, with other elements in a corner.
Tensor withCorner(const Tensor &tensor, const Tensor &corner) {
  Tensor copy = Tensor::zeros(tensor.type(), tensor.shape());
  std::memcpy(copy.data(), tensor.data(), tensor.bytes());
  const Tensor place = cornerOf(copy, corner.shape());
  const size_t bytes = byteSize(corner.type());
  for (int64_t i = 0; i < corner.size(); ++i) {
    int64_t rest = i, at = 0;
    for (size_t dim = corner.shape().size(); dim-- > 0; rest /= corner.shape()[dim])
      at += rest % corner.shape()[dim] * place.strides()[dim];
    std::memcpy(copy.as<char>() + static_cast<size_t>(at) * bytes,
                corner.as<char>() + static_cast<size_t>(i) * bytes, bytes);
  }
  return copy;
}

/// The kernel of a variant, for the sizes of the case.
Result<KernelDraft> draftOf(const SchedulePlan &plan, const Parsed &parsed, const KernelContext &context,
                            const ScheduleCase &test) {
  if (test.variant.empty())
    return plan.emit(context);
  for (const PlannedAlternative &alternative : plan.alternatives(parsed.region))
    if (alternative.variant == test.variant && llvm::all_of(alternative.when, [&](const SizeRange &range) {
          return range.holds(*range.size.evaluate(test.symbols));
        }))
      return alternative.kernels.front().emit(context);
  return badInput("there is no variant " + test.variant);
}

/// The map as emulated kernels take it.
void encodeForEmulation(const TensorMapArgument &map, const void *tensor, const SymbolValues &symbols,
                        std::array<uint64_t, Backend::tensorMapWords> &words) {
  static const std::unique_ptr<Backend> backend = std::move(*makeEmulatedBackend({}));
  std::vector<int64_t> extents;
  for (const DimShape *dims : {&map.shape, &map.strides})
    for (const Dim &dim : *dims)
      extents.push_back(*dim.evaluate(symbols));
  auto *address = const_cast<char *>(static_cast<const char *>(tensor) + *map.byteOffset.evaluate(symbols));
  if (Status status = backend->encodeTensorMap(map, extents, address, words); !status)
    ADD_FAILURE() << status.error().message;
}

void emulateLater(DeferredCase common, const KernelDraft &draft, const Parsed &parsed,
                  std::vector<Tensor> arguments, std::vector<Tensor> outputs, const SymbolValues &symbols) {
  EmulatedRun run{std::move(common), {}, {}, std::move(arguments), std::move(outputs)};
  for (const KernelDraft::Argument &argument : draft.arguments) {
    auto &words = run.values.emplace_back();
    if (argument.kind == KernelDraft::Argument::Kind::Size) {
      words[0] = static_cast<uint64_t>(*argument.value.evaluate(symbols));
      continue;
    }
    const void *data = argument.kind == KernelDraft::Argument::Kind::Output
                           ? run.outputs[argument.index].data()
                           : run.arguments[argumentOf(parsed, argument.index)].data();
    if (argument.kind == KernelDraft::Argument::Kind::TensorMap)
      encodeForEmulation(argument.map, data, symbols, words);
    else
      words[0] = reinterpret_cast<uint64_t>(data);
  }
  const Dim *sizes[] = {&draft.gridX, &draft.gridY, &draft.gridZ};
  for (size_t i = 0; i < 3; ++i)
    run.grid[i] = static_cast<uint32_t>(*sizes[i]->evaluate(symbols));
  runLater(std::move(run));
}

TensorMapArgument fixedMap(const KernelDraft::Argument &argument, BufferId buffer,
                           llvm::function_ref<Dim(const Dim &)> fixed) {
  TensorMapArgument map = argument.map;
  map.buffer = buffer;
  map.byteOffset = fixed(map.byteOffset);
  for (DimShape *dims : {&map.shape, &map.strides})
    for (Dim &dim : *dims)
      dim = fixed(dim);
  return map;
}

/// The same launch as a program of one kernel.
void runOnDeviceLater(DeferredCase common, const KernelDraft &draft, const Parsed &parsed,
                      const std::vector<Tensor> &arguments, const std::vector<Tensor> &outputs,
                      const SymbolValues &symbols) {
  DeviceRun run{std::move(common), {}, {}};
  ProgramPlan &plan = run.plan;
  plan.target = deviceTarget()->name;
  plan.kernels.push_back(draft.kernel);
  auto staticDims = [](const Tensor &tensor) {
    return DimShape(tensor.shape().begin(), tensor.shape().end());
  };
  auto addBuffer = [&](BufferPlan::Kind kind, const std::string &name, const Tensor &tensor) {
    plan.buffers.push_back({kind, name, tensor.type(), staticDims(tensor), {}});
    PortPlan port{name, tensor.type(), staticDims(tensor), static_cast<BufferId>(plan.buffers.size() - 1), 0};
    (kind == BufferPlan::Kind::Input ? plan.inputs : plan.outputs).push_back(port);
  };
  for (auto [index, tensor] : llvm::enumerate(arguments)) {
    addBuffer(BufferPlan::Kind::Input, "in" + std::to_string(index), tensor);
    run.inputs["in" + std::to_string(index)] = tensor;
  }
  for (auto [index, tensor] : llvm::enumerate(outputs))
    addBuffer(BufferPlan::Kind::Output, "out" + std::to_string(index), tensor);
  KernelLaunch launch;
  auto fixed = [&](const Dim &dim) { return Dim(*dim.evaluate(symbols)); };
  for (const KernelDraft::Argument &argument : draft.arguments) {
    if (argument.kind == KernelDraft::Argument::Kind::Size)
      launch.arguments.push_back(ScalarArgument{fixed(argument.value)});
    else if (argument.kind == KernelDraft::Argument::Kind::Output)
      launch.arguments.push_back(
          PointerArgument{static_cast<BufferId>(arguments.size() + argument.index), 0, /*written=*/true});
    else if (argument.kind == KernelDraft::Argument::Kind::TensorMap)
      launch.arguments.push_back(fixedMap(argument, argumentOf(parsed, argument.index), fixed));
    else
      launch.arguments.push_back(PointerArgument{argumentOf(parsed, argument.index)});
  }
  launch.gridX = fixed(draft.gridX);
  launch.gridY = fixed(draft.gridY);
  launch.gridZ = fixed(draft.gridZ);
  plan.add(std::move(launch));
  runLater(std::move(run));
}

} // namespace

std::string refusal(const Schedule &schedule, const std::string &text) {
  Parsed parsed(text);
  if (!parsed.target) {
    ADD_FAILURE() << "does not parse: " << text;
    return "does not parse";
  }
  auto plan = schedule.plan(parsed.region, parsed.kernelContext(90));
  return plan ? "" : plan.error().message;
}

std::vector<Predicate> predicatesOf(const SchedulePlan &plan, const Region &region) {
  std::vector<Predicate> predicates;
  for (const PlannedAlternative &alternative : plan.alternatives(region))
    if (!alternative.when.empty())
      predicates.push_back(alternative.when);
  return predicates;
}

std::string check(const Schedule &schedule, const ScheduleCase &test) {
  SCOPED_TRACE(test.text);
  Parsed parsed(test.text);
  if (!parsed.target) {
    ADD_FAILURE() << "does not parse";
    return "";
  }
  TargetInfo target =
      TargetInfo::ofDevice(static_cast<int>(test.arch / 10), static_cast<int>(test.arch % 10));
  target.l2Bytes = test.l2Bytes.value_or(target.l2Bytes);
  target.multiprocessors = test.multiprocessors.value_or(target.multiprocessors);
  KernelContext kernelContext{*parsed.shapes, parsed.inputs, target, {}, parsed.outputs};
  auto plan = schedule.plan(parsed.region, kernelContext);
  if (!plan) {
    ADD_FAILURE() << "refused: " << plan.error().message;
    return "";
  }
  const std::vector<Predicate> predicates = predicatesOf(*plan, parsed.region);
  auto valueOf = [&](const SizeRange &range) { return *range.size.evaluate(test.symbols); };
  for (const Predicate &when : predicates)
    if (llvm::all_of(when, [&](const SizeRange &range) { return range.holds(valueOf(range)); }))
      kernelContext.when = when;
  if (!predicates.empty() && kernelContext.when.empty()) {
    EXPECT_TRUE(llvm::any_of(predicates.front(), [&](const SizeRange &range) { return valueOf(range) == 0; }))
        << "no predicate holds";
    for (Value output : parsed.region.outputs)
      EXPECT_EQ(*product((*parsed.shapes)[output]).evaluate(test.symbols), 0) << "nothing is launched";
    return "";
  }
  const Result<KernelDraft> drafted = draftOf(*plan, parsed, kernelContext, test);
  if (!drafted) {
    ADD_FAILURE() << drafted.error().message;
    return "";
  }
  const KernelDraft &draft = *drafted;
  const std::string &source = draft.kernel.source;
  if (test.compiles && !deviceTarget()) // device time is for running
    checkSpills(draft.kernel, Targets::One);

  std::vector<Tensor> arguments;
  std::vector<Tensor> memory; // of arguments
  for (auto [index, argument] : llvm::enumerate(parsed.function.getArguments())) {
    const DimShape &shape = (*parsed.shapes)[argument];
    const auto storage = nn::storageOf(parsed.function, static_cast<unsigned>(index));
    Tensor tensor = Tensor::zeros(dtype(argument), evaluated(storage.value_or(shape), test.symbols));
    fillRandom(tensor, static_cast<unsigned>(index) + 1);
    if (test.fill)
      test.fill(static_cast<unsigned>(index), tensor);
    arguments.push_back(storage ? cornerOf(tensor, evaluated(shape, test.symbols)).dense() : tensor);
    memory.push_back(std::move(tensor));
  }
  auto expected = evaluateRegion(parsed.function.front(), arguments, test.symbols);
  if (!expected) {
    ADD_FAILURE() << expected.error().message;
    return source;
  }
  for (nn::ConstantOp constant : constantsOf(parsed))
    memory.push_back(memoryOf(constant));
  std::vector<Tensor> outputs;
  for (auto [index, output] : llvm::enumerate(parsed.region.outputs)) {
    const Value result = parsed.target->getResult(static_cast<unsigned>(index));
    if (!parsed.views->isInPlace(result)) {
      outputs.push_back(Tensor::zeros(dtype(output), evaluated((*parsed.shapes)[output], test.symbols)));
      continue;
    }
    // All of the argument's memory: what lies behind the result stays as it is.
    outputs.push_back(memory[cast<BlockArgument>((*parsed.views)[result].base).getArgNumber()]);
    (*expected)[index] = withCorner(outputs.back(), (*expected)[index]);
  }

  const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
  DeferredCase common{fmt::format("{}.{}\n{}", info->test_suite_name(), info->name(), test.text),
                      draft.kernel, std::move(*expected), test.tolerance};
  const TargetInfo *device = deviceTarget();
  // A program's results in place stay on the device.
  if (device && parsed.outputs.empty() && (draft.kernel.features & ~device->features) == 0)
    runOnDeviceLater(std::move(common), draft, parsed, memory, outputs, test.symbols);
  else
    emulateLater(std::move(common), draft, parsed, std::move(memory), std::move(outputs), test.symbols);
  return source;
}

} // namespace fusion::test
