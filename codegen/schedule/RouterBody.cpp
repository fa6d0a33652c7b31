// The functor of the router's kernels.
#include "codegen/schedule/Router.h"

#include "codegen/body/Printer.h"
#include "codegen/body/Spelling.h"
#include "codegen/schedule/ElementGraph.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

DimShape RouterWriter::rowShape() const {
  DimShape rows = context.shape(nn::TopKOp(routes.topK).getX());
  rows.back() = 1;
  return rows;
}

Dim RouterWriter::rows() const { return product(rowShape()); }

void RouterWriter::write(bool inMemory) {
  nn::TopKOp topK = routes.topK;
  source.config.set("width", *context.shape(topK.getX()).back().constant());
  source.config.set("count", *context.shape(topK.getY()).back().constant());
  source.config.set("softmax", bool(routes.softmax));
  source.config.set("Weights", "weights",
                    routes.quotient        ? "Weights::Divided"
                    : routes.weightSoftmax ? "Weights::Softmax"
                                           : "Weights::AsTheyAre");
  source.body.member("i64", "line");
  body::Code begin(2);
  begin.line("line = row;");
  source.body.method("DEVICE void begin_row(i64 row)", begin);
  if (inMemory)
    writeElement();
  else
    writeScore();
  if (routes.shift)
    writeChoice();
  if (routes.limit)
    router::configureLimit(routes.limit, source);
  if (routes.limitsWeights)
    source.config.set("limits_weights", true);
  if (routes.least)
    writeDivisor();
  writePut("DEVICE void put(i64 line, i64 rank, i64 place) const", topK.getY(),
           [](scalar::Graph &graph) { return graph.input("place", DType::I64, scalar::Level::Element); });
  writePut("DEVICE void put_weight(i64 line, i64 rank, f32 taken) const", routes.weight,
           [&](scalar::Graph &graph) {
             nn::SoftmaxOp softmax = routes.weightSoftmax;
             const DType type = dtype(softmax ? Value(softmax.getY()) : nn::TopKOp(routes.topK).getX());
             scalar::Value taken = graph.input("taken", DType::F32, scalar::Level::Element);
             if (scalar::isNarrow(type))
               taken = graph.convert(type, taken);
             return applied(graph, routes.after, taken);
           });
}

void RouterWriter::writeElement() {
  scalar::Graph graph;
  body::Printer printer(graph, source.names);
  body::Code code(2);
  const auto input = static_cast<unsigned>(llvm::find(region.inputs, routes.scores) - region.inputs.begin());
  auto index =
      source.body.delinearize(graph, graph.input("line", DType::I64, scalar::Level::Element), rowShape());
  index.back() = graph.input("at", DType::I64, scalar::Level::Element);
  const scalar::Value element =
      graph.load(source.body.pointer(input), source.body.address(graph, context.inputs[input], index));
  const scalar::Value score = applied(graph, routes.before, element);
  code.line(fmt::format("return {};", printer.value(graph.convertRegister(DType::F32, score), code)));
  source.body.method("DEVICE f32 element(i64 at) const", code);
}

void RouterWriter::writeScore() {
  scalar::Graph graph;
  body::Printer printer(graph, source.names);
  body::Code code(2);
  const scalar::Value score =
      applied(graph, routes.before, graph.input("held", DType::F32, scalar::Level::Element));
  code.line(fmt::format("return {};", printer.value(graph.convertRegister(DType::F32, score), code)));
  source.body.method("DEVICE f32 score(f32 held) const", code);
}

void RouterWriter::writeChoice() {
  scalar::Graph graph;
  body::Printer printer(graph, source.names);
  body::Code code(2);
  const auto input = static_cast<unsigned>(llvm::find(region.inputs, routes.bias) - region.inputs.begin());
  SmallVector<scalar::Value> index(context.shape(routes.bias).size(), graph.integer(DType::I64, 0));
  index.back() = graph.input("at", DType::I64, scalar::Level::Element);
  const scalar::Value bias =
      graph.load(source.body.pointer(input), source.body.address(graph, context.inputs[input], index));
  const scalar::Value score = graph.input("score", DType::F32, scalar::Level::Element);
  nn::AddOp shift = routes.shift;
  const SmallVector<scalar::Value> operands = shift.getLhs() == routes.bias
                                                  ? SmallVector<scalar::Value>{bias, score}
                                                  : SmallVector<scalar::Value>{score, bias};
  const scalar::Value choice = cast<nn::ScalarFormula>(shift.getOperation()).formula(graph, operands);
  code.line(fmt::format("return {};", printer.value(choice, code)));
  source.config.set("has_bias", true);
  source.body.method("DEVICE f32 choice(i64 at, f32 score) const", code);
}

void RouterWriter::writeDivisor() {
  scalar::Graph graph;
  body::Printer printer(graph, source.names);
  body::Code code(2);
  Operation *least = nn::AddOp(routes.least);
  const scalar::Value divisor =
      applied(graph, least, graph.input("sum", DType::F32, scalar::Level::Element));
  code.line(fmt::format("return {};", printer.value(divisor, code)));
  source.config.set("has_divisor", true);
  source.body.method("DEVICE f32 divisor(f32 sum) const", code);
}

scalar::Value RouterWriter::applied(scalar::Graph &graph, ArrayRef<Operation *> ops, scalar::Value value) {
  for (Operation *op : ops) {
    SmallVector<scalar::Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(operand.getDefiningOp<nn::ConstantOp>()
                             ? constantValue(graph, source.body, operand.getDefiningOp())
                             : value);
    value = cast<nn::ScalarFormula>(op).formula(graph, operands);
  }
  return value;
}

void RouterWriter::writePut(const std::string &signature, Value output,
                            llvm::function_ref<scalar::Value(scalar::Graph &)> valueOf) {
  scalar::Graph graph;
  body::Printer printer(graph, source.names);
  body::Code code(2);
  const auto number = static_cast<unsigned>(llvm::find(region.outputs, output) - region.outputs.begin());
  auto index =
      source.body.delinearize(graph, graph.input("line", DType::I64, scalar::Level::Element), rowShape());
  index.back() = graph.input("rank", DType::I64, scalar::Level::Element);
  const scalar::Value place = source.body.address(graph, context.shape(output), index);
  const DType type = dtype(output);
  const body::Result result{graph.convert(type, valueOf(graph)), type};
  const std::string at = printer.value(place, code), stored = printer.stored(result, code);
  code.line(fmt::format("store({} + {}, {});", source.body.output(number), at, stored));
  source.body.method(signature, code);
}

void router::configureLimit(nn::LimitGroupsOp limit, body::KernelSource &source) {
  source.config.set("groups", static_cast<int64_t>(limit.getGroups()));
  source.config.set("kept", static_cast<int64_t>(limit.getKept()));
  source.config.set("summed", static_cast<int64_t>(limit.getSummed()));
  body::Code code(2);
  code.line(fmt::format("return {};", body::literal(DType::F32, limit.getOther().convertToDouble())));
  source.body.method("DEVICE f32 other() const", code);
}

KernelDraft router::emitAlone(const Region &region, const KernelContext &context) {
  constexpr uint32_t threads = 128;
  auto found = analyseRoutes(region, context);
  body::KernelSource source(region, context.inputs);
  source.config.set("threads", static_cast<int64_t>(threads));
  source.include("router.cuh");
  RouterWriter writer(region, context, std::get<Routes>(found), source);
  writer.write(/*inMemory=*/true);
  KernelDraft draft = source.finish({.schedule = "router",
                                     .function = "router",
                                     .arguments = source.size(writer.rows()),
                                     .name = body::kernelName(region, context),
                                     .threads = threads});
  draft.gridX = writer.rows().ceilDiv(threads / 32);
  return draft;
}

} // namespace fusion
