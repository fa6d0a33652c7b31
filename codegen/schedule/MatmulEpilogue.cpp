// The scalar ops after the matmuls.
#include "codegen/schedule/MatmulSource.h"

#include "codegen/schedule/ElementGraph.h"
#include "ir/dialect/Formulas.h"
#include "ir/scalar/Quantize.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

/// Columns of a product.
static bool isProductSlice(Operation *op) {
  auto slice = dyn_cast<nn::SliceOp>(op);
  return slice && isa_and_nonnull<nn::ExpertMatmulOp>(slice.getX().getDefiningOp());
}

/// A quantisation to bytes, or a dequantisation; scales that are more than one lie in memory.
static bool isRescale(Operation *op, const Region &region, const KernelContext &context) {
  if (!isa<nn::QuantizeOp, nn::DequantizeOp>(op))
    return false;
  const DType from = dtype(op->getOperand(0)), to = dtype(op->getResult(0));
  const DType quantised = isa<nn::QuantizeOp>(op) ? to : from, numbers = isa<nn::QuantizeOp>(op) ? from : to;
  if (byteSize(quantised) != 1 || quantised == DType::I4 || quantised == DType::U4 || numbers == DType::F64)
    return false;
  return llvm::all_of(op->getOperands().drop_front(), [&](Value operand) {
    return product(context.shape(operand)) == Dim(1) || inputView(region, context, operand);
  });
}

/// A bias of each expert: rows of a table that are chosen as the experts are.
static bool isExpertRow(Operation *op, const Region &region, const KernelContext &context) {
  auto gather = dyn_cast<nn::GatherOp>(op);
  const auto axis = gather ? static_cast<int64_t>(gather.getAxis()) : -1;
  return (axis == 0 || axis == -2) && context.shape(gather.getX()).size() == 2 &&
         inputView(region, context, gather.getX()) && inputView(region, context, gather.getIndices()) &&
         llvm::any_of(region.ops, [&](Operation *other) {
           auto experts = dyn_cast<nn::ExpertMatmulOp>(other);
           return experts && experts.getIndex() == gather.getIndices();
         });
}

std::optional<std::string> epilogueRefuses(const Region &region, const KernelContext &context,
                                           ArrayRef<Operation *> prologue) {
  const llvm::SmallPtrSet<Operation *, 8> decoding = decodingOps(region);
  for (Operation *other : decoding)
    for (Operation *user : other->getUsers())
      if (llvm::is_contained(region.ops, user) && !decoding.contains(user) && !Product::of(user))
        return (other->getName().getStringRef() + " of an operand is read by " +
                user->getName().getStringRef() + " too")
            .str();
  for (Value output : region.outputs)
    if (Operation *op = output.getDefiningOp(); op && decoding.contains(op))
      return (op->getName().getStringRef() + " of an operand is a result").str();
  for (Operation *other : region.ops) {
    if (decoding.contains(other) || llvm::is_contained(prologue, other))
      continue;
    if (isa<nn::ConstantOp>(other) || Product::of(other) || isProductSlice(other) ||
        (other->hasTrait<nn::Pointwise>() && other->getNumResults() == 1) ||
        isRescale(other, region, context) || isExpertRow(other, region, context))
      continue;
    if (isa<nn::DynamicQuantizeOp>(other))
      return std::string(
          "nn.dynamic_quantize needs the largest element of whole rows, of which a block has parts");
    if (!inputView(region, context, other->getResult(0)))
      return (other->getName().getStringRef() + " after nn.matmul is no scalar op").str();
  }
  for (Operation *other : region.ops)
    if (isa<nn::ConstantOp>(other) && !constantScalar(other->getResult(0)))
      return std::string("a constant of several values inside the region");
  return std::nullopt;
}

scalar::Value EpilogueWriter::scale(Operation *op, Value operand) {
  if (product(context.shape(operand)) == Dim(1))
    return value(operand);
  auto found = inputView(region, context, operand);
  auto attribute = [&](StringRef name, int64_t otherwise) {
    auto number = op->getAttrOfType<IntegerAttr>(name);
    return number ? number.getInt() : otherwise;
  };
  const size_t rank = context.shape(op->getResult(0)).size();
  const int64_t axis = attribute("axis", -1), block = attribute("block_size", 0);
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
  View view = found->second;
  if (block == 0) { // an entry for each index of the axis
    const Dim size = view.shape[0], stride = view.strides[0];
    view.shape.assign(rank, Dim(1));
    view.strides.assign(rank, Dim(0));
    view.shape[at] = size;
    view.strides[at] = stride;
  }
  return input(found->first, view, at, std::max<int64_t>(block, 1));
}

scalar::Value EpilogueWriter::expertRow(nn::GatherOp gather) {
  const auto table = inputView(region, context, gather.getX()),
             index = inputView(region, context, gather.getIndices());
  View chosen = index->second; // one for all columns
  chosen.shape.push_back(Dim(1));
  chosen.strides.push_back(Dim(0));
  const View &view = table->second;
  const scalar::Value expert = graph.call(
      "gather_index",
      {graph.convertRegister(DType::I64, input(index->first, chosen)), functor.size(graph, view.shape[0])},
      DType::I64);
  scalar::Value at = column;
  if (sums.width > 1)
    at = graph.add(at, graph.input("lane", DType::I64, scalar::Level::Element));
  const auto along = [&](scalar::Value number, size_t dim) {
    return graph.mul(number, functor.size(graph, view.strides[dim]));
  };
  return graph.load(functor.pointer(table->first),
                    graph.add(functor.size(graph, view.offset), graph.add(along(expert, 0), along(at, 1))));
}

bool EpilogueWriter::readsVectors(unsigned index, const View &view, ArrayRef<Dim> strides) const {
  auto isEven = [&](const Dim &dim) { return dim.knownMultipleOf(sums.width); };
  return sums.readsAhead && sums.width > 1 && strides.back() == Dim(1) &&
         isFloat(dtype(region.inputs[index])) && !isPacked(view) && isEven(view.offset) &&
         llvm::all_of(strides.drop_back(), isEven);
}

scalar::Value EpilogueWriter::input(unsigned index, const View &view, size_t axis, int64_t block) {
  const DimShape &result = context.shape(op.getY());
  const bool hasColumn = op.hasColumns();
  DimShape strides(result.size(), Dim(0));
  for (size_t fromEnd = 0; fromEnd < view.shape.size() && fromEnd < result.size(); ++fromEnd)
    if (view.shape.end()[-1 - static_cast<ptrdiff_t>(fromEnd)] != Dim(1))
      strides.end()[-1 - static_cast<ptrdiff_t>(fromEnd)] =
          view.strides.end()[-1 - static_cast<ptrdiff_t>(fromEnd)];
  scalar::Value place = functor.size(graph, view.offset);
  auto add = [&](scalar::Value at, const Dim &stride) {
    if (!(stride == Dim(0)))
      place = graph.add(place, graph.mul(at, functor.size(graph, stride)));
  };
  auto divided = [&](scalar::Value at) { return graph.div(at, graph.index(block)); };
  ArrayRef<Dim> leading = result, leadingStrides = strides;
  const bool inBlocks = block > 1 && axis < result.size();
  const bool isVector = hasColumn && !inBlocks && readsVectors(index, view, strides);
  if (hasColumn) {
    scalar::Value at = column;
    if (sums.width > 1 && !isVector)
      at = graph.add(at, graph.input("lane", DType::I64, scalar::Level::Element));
    add(inBlocks && axis + 1 == result.size() ? divided(at) : at, strides.back());
    leading = leading.drop_back();
    leadingStrides = leadingStrides.drop_back();
  }
  const bool dividesRows = inBlocks && axis < leading.size() && !(leadingStrides[axis] == Dim(0));
  std::optional<Dim> stride = dividesRows ? std::nullopt : mergedStride(leading, leadingStrides);
  if (stride) {
    add(row, *stride);
  } else {
    auto at = functor.delinearize(graph, row, DimShape(leading.begin(), leading.end()));
    if (dividesRows)
      at[axis] = divided(at[axis]);
    for (size_t i = 0; i < at.size(); ++i)
      add(at[i], leadingStrides[i]);
  }
  const bool isUniform = (!hasColumn || strides.back() == Dim(0)) && !isPacked(view);
  if (isVector || (sums.readsAhead && isUniform))
    return readAhead(functor.pointer(index), place, isVector);
  return graph.load(functor.pointer(index), place);
}

scalar::Value EpilogueWriter::readAhead(const scalar::Pointer &from, scalar::Value place, bool isVector) {
  const std::string member = namesAhead.fresh("x"), whole = "operands." + member,
                    at = printerAhead.value(place, ahead);
  if (!isVector) {
    members += fmt::format("    {} {};\n", body::spelling(scalar::registerType(from.element)), member);
    ahead.line(fmt::format("read.{} = {};", member, body::loadElement(from.element, from.name, at)));
    return graph.input(whole, from.element, scalar::Level::Vector);
  }
  const std::string type = fmt::format("{}, {}", body::spelling(from.element), sums.width);
  members += fmt::format("    Vec<{}> {};\n", type, member);
  ahead.line(fmt::format("read.{} = load_vec<{}>({} + {});", member, type, from.name, at));
  const scalar::Value neighbours = graph.input(whole, from.element, scalar::Level::Element);
  printer.bindVector(neighbours, whole, from.element);
  return neighbours;
}

scalar::Value EpilogueWriter::value(Value v) {
  if (auto found = known.find(v); found != known.end())
    return found->second;
  scalar::Value result;
  if (auto view = inputView(region, context, v)) {
    result = input(view->first, view->second);
  } else if (Operation *definition = v.getDefiningOp(); isa<nn::ConstantOp>(definition)) {
    result = constantValue(graph, functor, definition);
  } else if (auto gather = dyn_cast<nn::GatherOp>(definition)) {
    result = expertRow(gather);
  } else {
    SmallVector<scalar::Value> operands;
    const bool rescales = isa<nn::QuantizeOp, nn::DequantizeOp>(definition);
    for (auto [number, operand] : llvm::enumerate(definition->getOperands()))
      operands.push_back(rescales && number > 0 ? scale(definition, operand) : value(operand));
    result = cast<nn::ScalarFormula>(definition).formula(graph, operands);
  }
  return known[v] = result;
}

scalar::Value EpilogueWriter::total(const Product &matmul, size_t accumulator) {
  const DType type = dtype(matmul.getY()), operandType = dtype(matmul.getA());
  const std::string vector = fmt::format("sums[{}]", accumulator);
  const std::string single = scalar::isNarrow(sums.type) ? "to_f32(" + vector + "[0])" : vector + "[0]";
  const scalar::Value sum = graph.input(sums.width > 1 ? vector : single, sums.type, scalar::Level::Element);
  if (sums.width > 1)
    printer.bindVector(sum, vector, sums.type);
  if (isFloat(operandType))
    return graph.convert(type, sum);
  // The sums are unsigned and wrap.
  const scalar::Value whole =
      graph.convertRegister(byteSize(operandType) == 1 ? DType::I32 : DType::I64, sum);
  return graph.convert(type, isFloat(type) ? graph.convertRegister(DType::F32, whole) : whole);
}

void EpilogueWriter::takeCasts(const Product &matmul, size_t accumulator) {
  if (!scalar::isNarrow(sums.type) || sums.type == dtype(matmul.getY()))
    return;
  const std::string vector = fmt::format("sums[{}]", accumulator);
  const scalar::Value sum =
      graph.input(sums.width > 1 ? vector : "to_f32(" + vector + "[0])", sums.type, scalar::Level::Element);
  if (sums.width > 1)
    printer.bindVector(sum, vector, sums.type);
  for (Operation *user : matmul.getY().getUsers())
    if (isa<nn::CastOp>(user) && dtype(user->getResult(0)) == sums.type)
      known[user->getResult(0)] = sum;
}

void EpilogueWriter::print(ArrayRef<unsigned> outputs) {
  std::vector<body::Result> results;
  std::vector<scalar::Value> roots;
  for (unsigned output : outputs) {
    results.push_back({value(region.outputs[output]), dtype(region.outputs[output])});
    roots.push_back(results.back().value);
  }
  if (sums.width > 1) {
    const std::vector<std::string> vectors = printer.vectors(results, sums.width, code);
    for (auto [output, vector] : llvm::zip(outputs, vectors))
      code.line(handsOut ? fmt::format("store({});", vector)
                         : fmt::format("store({}, {});", functor.output(output), vector));
    return;
  }
  printer.announce(roots);
  for (auto [output, result] : llvm::zip(outputs, results)) {
    const std::string stored = printer.stored(result, code);
    code.line(handsOut ? fmt::format("store({});", stored)
                       : fmt::format("store({}, {});", functor.output(output), stored));
  }
}

void EpilogueWriter::write(size_t first) {
  op = problem.matmuls[first].op;
  const std::string name = fmt::format("Operands{}", first);
  ahead.line(name + " read;");
  for (size_t sum = 0; sum < problem.accumulators(); ++sum) {
    const Product &matmul = problem.matmuls[first + sum].op;
    known[matmul.getY()] = total(matmul, sum);
    takeCasts(matmul, sum);
  }
  print(problem.matmuls[first].outputs);
  const std::string type = fmt::format("Vec<{}, {}>", body::spelling(sums.type), sums.width);
  std::string operands;
  if (sums.readsAhead) {
    functor.declare(fmt::format("  struct {} {{\n{}  }};\n", name, members));
    ahead.line("return read;");
    functor.method(fmt::format("DEVICE {} operands(Matmul<{}>, i64 row, i64 column) const", name, first),
                   ahead);
    operands = fmt::format("const {} &operands, ", name);
  }
  const bool takesAnyStore =
      handsOut || sums.sends || sums.squares || problem.largest != Problem::Largest::None;
  const std::string store = takesAnyStore ? "const Store &" : fmt::format("StoreAt<{}> ", sums.width);
  functor.method(
      fmt::format("{}DEVICE void operator()(Matmul<{}>, i64 row, i64 column, {}const {} (&sums)[{}], "
                  "{}store) const",
                  takesAnyStore ? "template <class Store>\n  " : "", first, operands, type,
                  problem.accumulators(), store),
      code);
}

} // namespace fusion::matmul
