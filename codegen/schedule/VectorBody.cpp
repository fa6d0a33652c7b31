#include "codegen/schedule/VectorBody.h"

#include "codegen/ScalarCode.h"
#include "codegen/schedule/Elements.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

std::string VectorBody::arguments(DType type) const {
  return fmt::format("<{}, {}>", sourceType(type).str(), width);
}

bool VectorBody::isFloatQuantize(Operation *op) const {
  return isa<nn::QuantizeOp>(op) && isFloat(dtype(op->getResult(0)));
}

bool VectorBody::isConstant(unsigned input) const {
  Operation *producer = context.inputs[input].base.getDefiningOp();
  return producer && isa<nn::WeightOp, nn::ConstantOp>(producer);
}

bool VectorBody::runsInPairs(Operation *op) const {
  const DType type = dtype(op->getResult(0));
  return width > 1 && isa<nn::AddOp, nn::SubOp, nn::MulOp>(op) &&
         (type == DType::F16 || type == DType::BF16) &&
         llvm::all_of(op->getOperands(), [&](Value operand) { return dtype(operand) == type; });
}

/// Operand 0 of a quantisation is the quotient.
std::string VectorBody::expression(Operation *op, llvm::ArrayRef<std::string> operands) const {
  if (isScalarOp(op))
    return scalarExpression(op, operands);
  const DType type = dtype(op->getResult(0));
  const std::string zero = operands.size() == 3 ? operands[2] : "";
  if (isa<nn::QuantizeOp>(op))
    return quantizedExpression(type, operands[0], zero);
  return rounded(
      type, fmt::format("((f32){}{}) * {}", operands[0], zero.empty() ? "" : " - (f32)" + zero, operands[1]));
}

void VectorBody::scalar(Operation *op) {
  Value result = op->getResult(0);
  const DType type = dtype(result);
  std::string &name = held[result].scalar;
  if (auto dims = dyn_cast<nn::DimConstantOp>(op)) {
    const Dim dim = nn::dimsFromAttr(dims.getValues())[0];
    name = dim.isStatic() ? integerLiteral(type, dim.value())
                          : fmt::format("(({}){})", sourceType(type).str(), writer.size(dim));
    return;
  }
  if (auto constant = dyn_cast<nn::ConstantOp>(op)) {
    name = constantLiterals(constant)[0];
    return;
  }
  llvm::SmallVector<std::string> operands;
  for (Value operand : op->getOperands())
    operands.push_back(held.lookup(operand).scalar);
  if (isa<nn::QuantizeOp>(op))
    operands[0] += " / " + operands[1];
  writer.comment(op);
  name = writer.fresh("r");
  writer.line(fmt::format("const {} {} = {};", registerType(type).str(), name, expression(op, operands)));
}

void VectorBody::scalars() {
  for (Operation *op : region.ops) {
    if (isScalar(op->getResult(0)))
      continue;
    if (llvm::all_of(op->getOperands(), [&](Value operand) { return isScalar(operand); })) {
      scalar(op);
    } else if (isa<nn::QuantizeOp>(op) && isScalar(op->getOperand(1)) &&
               !divisors.contains(op->getOperand(1))) {
      const std::string name = writer.fresh("by");
      writer.line(fmt::format("const Divisor {} = divisor({});", name, held.lookup(op->getOperand(1)).scalar));
      divisors[op->getOperand(1)] = name;
    }
  }
}

void VectorBody::uniforms(bool constants) {
  for (auto [number, input] : llvm::enumerate(region.inputs)) {
    if (!space.isUniform(number) || input.use_empty() || isConstant(number) != constants)
      continue;
    const DType type = dtype(input);
    const std::string name = writer.fresh("r");
    writer.line(
        fmt::format("const {} {} = {};", registerType(type).str(), name,
                    loadElement(type, writer.input(number), writer.size(context.inputs[number].offset))));
    held[input].scalar = name;
  }
  if (constants)
    scalars();
}

void VectorBody::load(llvm::ArrayRef<std::string> places) {
  for (auto [number, input] : llvm::enumerate(region.inputs)) {
    if (space.isUniform(number) || input.use_empty())
      continue;
    const DType type = dtype(input);
    if (space.isRepeated(number)) {
      held[input].scalar = writer.fresh("r");
      writer.line(fmt::format("const {} {} = {};", registerType(type).str(), held[input].scalar,
                              loadElement(type, writer.input(number), places[number])));
      continue;
    }
    held[input].vector = writer.fresh("v");
    writer.line(fmt::format("const Vec{0} {1} = load_vec{0}({2} + {3});", arguments(type), held[input].vector,
                            writer.input(number), places[number]));
  }
}

void VectorBody::plan() {
  work.clear();
  stages = 1;
  for (Operation *op : region.ops) {
    if (isScalar(op->getResult(0)))
      continue;
    work.push_back(op);
    unsigned stage = 0;
    for (Value operand : op->getOperands()) {
      if (isScalar(operand))
        continue;
      // Quantisations divide whole vectors.
      const bool fromLoop = operand.getDefiningOp() && !llvm::is_contained(region.inputs, operand) &&
                            !isVector(operand.getDefiningOp());
      const bool behindLoop = fromLoop && (isVector(op) || isa<nn::QuantizeOp>(op));
      stage = std::max(stage, held.lookup(operand).stage + (behindLoop ? 1u : 0u));
    }
    held[op->getResult(0)].stage = stage;
    stages = std::max(stages, stage + 1);
  }
}

bool VectorBody::leavesLoop(Operation *op) const {
  Value result = op->getResult(0);
  return llvm::is_contained(region.outputs, result) || llvm::any_of(result.getUsers(), [&](Operation *user) {
           return llvm::is_contained(work, user) &&
                  (isVector(user) || isa<nn::QuantizeOp>(user) ||
                   held.lookup(user->getResult(0)).stage != held.lookup(result).stage);
         });
}

std::string VectorBody::element(Value value) const {
  const Held from = held.lookup(value);
  if (!from.scalar.empty() || !from.lane.empty())
    return from.scalar.empty() ? from.lane : from.scalar;
  return registerType(dtype(value)) == sourceType(dtype(value)) ? from.vector + "[lane]"
                                                                : "element_f32(" + from.vector + ", lane)";
}

std::string VectorBody::vectorOf(Value value) const {
  const Held from = held.lookup(value);
  if (from.scalar.empty())
    return from.vector;
  const DType type = dtype(value);
  const bool same = registerType(type) == sourceType(type);
  return fmt::format("splat_vec{}({})", arguments(type),
                     same ? from.scalar
                          : fmt::format("from_f32<{}>({})", sourceType(type).str(), from.scalar));
}

void VectorBody::vectors(unsigned stage) {
  for (Operation *op : work) {
    Value result = op->getResult(0);
    if (held.lookup(result).stage != stage)
      continue;
    const std::string type = arguments(dtype(result));
    if (isa<nn::QuantizeOp>(op)) {
      const std::string quotient = writer.fresh("quotient");
      writer.comment(op);
      writer.line(fmt::format("const Vec<f32, {}> {} = quotients({}, {});", width, quotient, vectorOf(op->getOperand(0)),
                              divisors.lookup(op->getOperand(1))));
      quotients[op] = quotient;
    }
    if (!isVector(op))
      continue;
    const std::string name = writer.fresh("v");
    if (isFloatQuantize(op)) {
      writer.line(fmt::format("const Vec{} {} = vec_from_f32<{}>({});", type, name,
                              sourceType(dtype(result)).str(), quotients.lookup(op)));
    } else {
      writer.comment(op);
      writer.line(fmt::format("const Vec{} {} = {}_vec({}, {});", type, name,
                              op->getName().stripDialect().str(), vectorOf(op->getOperand(0)),
                              vectorOf(op->getOperand(1))));
    }
    held[result].vector = name;
  }
}

void VectorBody::loop(unsigned stage) {
  llvm::SmallVector<Operation *> ops;
  llvm::SmallVector<std::pair<Operation *, std::string>>
      rounding; ///< floats that become narrow behind the loop
  llvm::DenseMap<Operation *, std::string> arrays;
  for (Operation *op : work) {
    if (held.lookup(op->getResult(0)).stage != stage || isVector(op))
      continue;
    ops.push_back(op);
    if (!leavesLoop(op))
      continue;
    const DType type = dtype(op->getResult(0));
    arrays[op] = writer.fresh("y");
    if (registerType(type) == sourceType(type)) {
      writer.line(fmt::format("Vec{} {};", arguments(type), arrays[op]));
    } else {
      writer.line(fmt::format("Vec<f32, {}> {};", width, arrays[op]));
      rounding.push_back({op, arrays[op]});
    }
  }
  if (ops.empty())
    return;
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int lane = 0; lane < {}; ++lane) {{", width));
  for (Operation *op : ops) {
    Value result = op->getResult(0);
    const DType type = dtype(result);
    llvm::SmallVector<std::string> operands;
    for (Value operand : op->getOperands())
      operands.push_back(element(operand));
    if (isa<nn::QuantizeOp>(op))
      operands[0] = quotients.lookup(op) + "[lane]";
    writer.comment(op);
    std::string text = expression(op, operands);
    const bool readHere =
        llvm::any_of(result.getUsers(), [&](Operation *user) { return llvm::is_contained(ops, user); });
    if (readHere) {
      held[result].lane = writer.fresh("x");
      writer.line(fmt::format("const {} {} = {};", registerType(type).str(), held[result].lane, text));
      text = held[result].lane;
    }
    if (arrays.contains(op))
      writer.line(fmt::format("{}[lane] = {};", arrays[op], unrounded(type, text).value_or(text)));
  }
  writer.line("}");
  for (auto &[op, array] : rounding) {
    const DType type = dtype(op->getResult(0));
    const std::string name = writer.fresh("v");
    writer.line(fmt::format("const Vec{} {} = vec_from_f32<{}>({});", arguments(type), name,
                            sourceType(type).str(), array));
    arrays[op] = name;
  }
  for (Operation *op : ops) {
    held[op->getResult(0)].lane.clear();
    if (arrays.contains(op))
      held[op->getResult(0)].vector = arrays[op];
  }
}

void VectorBody::emit(int64_t vectorWidth, llvm::ArrayRef<std::string> places, const std::string &to) {
  width = vectorWidth;
  const auto outside = held;
  const auto outsideDivisors = divisors;
  load(places);
  scalars();
  plan();
  for (unsigned stage = 0; stage < stages; ++stage) {
    vectors(stage);
    loop(stage);
  }
  for (auto [number, output] : llvm::enumerate(region.outputs))
    writer.line(fmt::format("store_vec{}({} + {}, {});", arguments(dtype(output)), writer.output(number), to,
                            vectorOf(output)));
  held = outside;
  divisors = outsideDivisors;
}

} // namespace fusion
