// gemm_swap_ab with the norm of its rows, of which the matmul before has summed up the squares: the functor
// of swap_ab_norm.cuh, and the region that the kernel is for.
#include "codegen/InputView.h"
#include "codegen/NormedMatmul.h"
#include "codegen/schedule/MatmulChainParts.h"
#include "codegen/schedule/MatmulSource.h"
#include "codegen/schedule/MatmulSwap.h"
#include "ir/dialect/Types.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {
namespace matmul {

static constexpr int64_t columnsOfSum = 64;

bool hasNormedRows(const Problem &problem) { return problem.leastRows > 8 && problem.mostRows <= 32; }

Dim squaresOfRow(const Dim &columns) { return columns.ceilDiv(columnsOfSum); }

/// `1 / sqrt(sum / width + eps)`, as a row kernel computes it.
static body::Code scaleOfRow(nn::RmsNormOp op, int64_t width) {
  scalar::Graph graph;
  body::Names names;
  body::Printer printer(graph, names);
  body::Code code(2);
  const scalar::Value sum = graph.input("sum", DType::F32, scalar::Level::Row);
  printer.bind(sum, "sum");
  const scalar::Value mean = graph.mul(sum, graph.number(DType::F32, 1.0 / static_cast<double>(width)));
  const scalar::Value root =
      graph.call("inverse_sqrt_", {graph.add(mean, graph.number(DType::F32, op.getEps().convertToFloat()))});
  code.line(fmt::format("return {};", printer.value(root, code)));
  return code;
}

/// Eight neighbours of a row.
static body::Code normalised(nn::RmsNormOp op) {
  const DType type = dtype(op.getX()), factorType = *dtypeOf(op.scaleType());
  scalar::Graph graph;
  body::Names names;
  body::Printer printer(graph, names);
  body::Code code(2);
  auto neighbours = [&](const char *name, DType element) {
    const scalar::Value value = graph.input(name, element, scalar::Level::Element);
    printer.bindVector(value, name, element);
    return graph.convertRegister(DType::F32, value);
  };
  const scalar::Value scale = graph.input("scale", DType::F32, scalar::Level::Row);
  printer.bind(scale, "scale");
  auto rounded = [&](scalar::Value value) {
    return graph.convertRegister(DType::F32, graph.convert(factorType, value));
  };
  scalar::Value factor = neighbours("weights", dtype(op.getWeight()));
  if (const float bias = op.getWeightBias().convertToFloat(); bias != 0)
    factor = graph.add(factor, graph.like(factor, bias));
  const scalar::Value normal = rounded(graph.mul(neighbours("x", type), scale)),
                      product = graph.mul(normal, rounded(factor));
  const body::Result results[] = {{graph.convert(type, product), type}};
  code.line(fmt::format("return {};", printer.vectors(results, 8, code).front()));
  return code;
}

std::string GemmSource::norm() {
  nn::RmsNormOp op = problem.norm->op;
  const Dim parts = squaresOfRow(problem.k);
  body::Functor functor(source, "Norm");
  functor.declare(fmt::format("  using Weight = {};\n  static constexpr int parts = {};\n",
                              body::spelling(dtype(op.getWeight())), *parts.constant()));
  functor.argument("const f32 *", source.squares(problem.m * parts, false));
  functor.method("DEVICE const Weight *weight() const",
                 functor.input(problem.norm->weight) + " + " + functor.size(problem.norm->view.offset));
  functor.method("DEVICE f32 scale(f32 sum) const", scaleOfRow(op, *problem.k.constant()));
  functor.method(fmt::format("DEVICE Vec<{0}, 8> normalise(const Vec<{0}, 8> &x, f32 scale, "
                             "const Vec<Weight, 8> &weights) const",
                             body::spelling(problem.a.type)),
                 normalised(op));
  source.declare(functor.text());
  return functor.instance();
}

} // namespace matmul

std::optional<NormOfRows> normOfRows(const Region &region, const KernelContext &context) {
  auto ops = llvm::make_filter_range(region.ops, [](Operation *op) { return !isa<nn::ConstantOp>(op); });
  auto op = llvm::hasSingleElement(ops) ? dyn_cast<nn::RmsNormOp>(*ops.begin()) : nn::RmsNormOp();
  if (!op || region.outputs.size() != 1)
    return std::nullopt;
  const auto rows = inputView(region, context, op.getX()),
             weight = inputView(region, context, op.getWeight());
  const DType type = dtype(op.getX());
  const bool is16Bit = isFloat(type) && byteSize(type) == 2 && type == dtype(op.getY());
  const int64_t width = context.shape(op.getX()).back().constant().value_or(0);
  constexpr int64_t mostColumns = 12288; // a thread holds a quarter of a row's sums
  if (!rows || !weight || !is16Bit || width < 1 || width > mostColumns || width % matmul::columnsOfSum != 0 ||
      dtype(op.getWeight()) == DType::F64 || !rows->second.isContiguous() || !weight->second.isContiguous() ||
      !weight->second.offset.knownMultipleOf(8))
    return std::nullopt;
  return NormOfRows{op, rows->second, weight->second};
}

std::optional<NormedMatmul> NormedMatmul::of(const Region &region, const KernelContext &context,
                                             const std::optional<NormOfRows> &before) {
  NormedMatmul made;
  made.region = region;
  made.inputs.assign(context.inputs.begin(), context.inputs.end());
  std::optional<NormOfRows> norm = before;
  if (!before) {
    auto split = matmul::chainParts(region, context);
    auto *parts = std::get_if<matmul::ChainParts>(&split);
    if (!parts || !parts->rows || !parts->heads.ops.empty() || !(norm = normOfRows(parts->norm, context)))
      return std::nullopt;
    made.region = parts->products;
    // What lies as the rows do, and is not there.
    made.inputs.push_back(View::contiguous(norm->rows.base, context.shape(norm->op.getY())));
  }
  made.norm = norm->op;
  KernelContext own = context;
  own.inputs = made.inputs;
  own.independent = {};
  auto analysed = matmul::analyse(made.region, own);
  auto *problem = std::get_if<matmul::Problem>(&analysed);
  if (!problem || !problem->prologue.empty())
    return std::nullopt;
  const unsigned normal = problem->a.input;
  const Value rows = made.region.inputs[normal];
  auto isOther = [&](Operation *op) {
    auto product = dyn_cast<nn::MatmulOp>(op);
    return llvm::is_contained(op->getOperands(), rows) &&
           !(product && product.getA() == rows && product.getB() != rows);
  };
  if ((!before && normal + 1 != made.inputs.size()) || !made.inputs[normal].isContiguous() ||
      llvm::any_of(made.region.ops, isOther))
    return std::nullopt;
  made.region.inputs.append({made.norm.getX(), made.norm.getWeight()});
  made.inputs.append({norm->rows, norm->weight});
  return made;
}

KernelDraft NormedMatmul::emit(const KernelContext &context) const {
  auto analysed = matmul::analyse(region, context);
  auto *problem = std::get_if<matmul::Problem>(&analysed);
  const auto weight = static_cast<unsigned>(inputs.size() - 1), rows = weight - 1;
  if (!problem || !matmul::hasNormedRows(*problem) ||
      matmul::swapABRows(*problem, context.target) < problem->mostRows ||
      !context.isIndependentOfPredecessor(weight))
    return {};
  problem->a.input = rows;
  problem->norm = {norm, rows, weight, inputs[weight]};
  Region named = region;
  named.ops.insert(named.ops.begin(), norm);
  return matmul::counted(matmul::emitSwapAB(named, context, *problem), *problem);
}

} // namespace fusion
