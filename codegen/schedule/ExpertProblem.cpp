// What a kernel of nn.expert_matmul computes.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

/// B of all experts, with the columns that a slice of the product takes.
static std::variant<Source, std::string> weightsOf(const Region &region, const KernelContext &context,
                                                   const Product &product) {
  auto found = sourceOf(region, context, product.getB());
  auto *source = std::get_if<Source>(&found);
  auto slice = product.getY().getDefiningOp<nn::SliceOp>();
  if (!source || !slice)
    return found;
  const DimShape starts = nn::dimsFromAttr(slice.getStarts()), &whole = context.shape(slice.getX()),
                 &part = context.shape(slice.getY());
  for (size_t i = 0; i + 1 < whole.size(); ++i)
    if (whole[i] != part[i])
      return std::string("a slice of the rows of nn.expert_matmul");
  const int64_t step = slice.getSteps().back();
  const size_t columns = product.getTransposeB() ? 1 : 2;
  source->view.offset = source->view.offset + starts.back() * source->view.strides[columns];
  source->view.shape[columns] = part.back();
  source->view.strides[columns] = source->view.strides[columns] * Dim(step);
  for (std::optional<Source::Scales> *scales : {&source->scale, &source->zero}) {
    if (!*scales || (*scales)->literal || (*scales)->view.strides[columns] == Dim(0))
      continue;
    const int64_t block = (*scales)->blocks[columns];
    if (block > 1 && (step != 1 || !starts.back().knownMultipleOf(block)))
      return std::string("a slice of nn.expert_matmul across the blocks of its scales");
    View &view = (*scales)->view;
    view.offset = view.offset + starts.back().floorDiv(block) * view.strides[columns];
    view.strides[columns] = view.strides[columns] * Dim(step);
  }
  return found;
}

/// The products of the region: the result of its nn.expert_matmul, or slices of it.
static std::variant<SmallVector<Product>, std::string> productsOf(const Region &region) {
  SmallVector<Product> products;
  for (Operation *op : region.ops) {
    auto experts = dyn_cast<nn::ExpertMatmulOp>(op);
    if (!experts)
      continue;
    SmallVector<Value> slices;
    bool whole = llvm::is_contained(region.outputs, experts.getY());
    for (Operation *user : experts->getUsers()) {
      if (!llvm::is_contained(region.ops, user))
        continue;
      auto slice = dyn_cast<nn::SliceOp>(user);
      whole |= !slice;
      if (slice)
        slices.push_back(slice.getY());
    }
    if (slices.empty()) {
      products.push_back(Product(experts.getY()));
      continue;
    }
    if (whole)
      return std::string("slices of nn.expert_matmul, whose whole result is read too");
    llvm::sort(slices,
               [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
    products.append(slices.begin(), slices.end());
  }
  if (products.empty())
    return std::string("no nn.expert_matmul");
  return products;
}

/// Takes the experts' stride of the scales out of those along k.
static std::optional<std::string> placeExpertScales(Operand &operand) {
  if (!operand.decode)
    return std::nullopt;
  for (std::optional<ScaleOrZero> *entry : {&operand.decode->scale, &operand.decode->zero}) {
    if (!*entry || (*entry)->literal || (*entry)->rowStrides.size() < 2)
      continue;
    (*entry)->expertStride = (*entry)->rowStrides.front();
    (*entry)->rowStrides.erase((*entry)->rowStrides.begin());
  }
  return placeScales(operand, 1);
}

static std::optional<std::string> placeWeights(const Region &region, const KernelContext &context,
                                               Matmul &matmul, const Dim &experts, Dim &k) {
  auto found = weightsOf(region, context, matmul.op);
  if (auto *reason = std::get_if<std::string>(&found))
    return *reason;
  matmul.b = makeOperand(std::get<Source>(found), matmul.op.getTransposeB(), true, {experts}, k, matmul.n);
  return placeExpertScales(matmul.b);
}

std::variant<Problem, std::string> analyseExperts(const Region &region, const KernelContext &context) {
  Problem problem;
  auto products = productsOf(region);
  if (auto *reason = std::get_if<std::string>(&products))
    return *reason;
  for (const Product &product : std::get<SmallVector<Product>>(products))
    problem.matmuls.push_back({product, {}, 1, {}});
  problem.op = problem.matmuls.front().op;
  auto op = cast<nn::ExpertMatmulOp>(problem.op.op());
  for (const Matmul &matmul : problem.matmuls)
    if (cast<nn::ExpertMatmulOp>(matmul.op.op()).getIndex() != op.getIndex())
      return std::string("products by different choices of experts");
  const Dim experts = context.shape(op.getW())[0];
  if (!experts.constant())
    return std::string("a number of experts that is known at run time only");
  if (*experts.constant() == 0)
    return std::string("no experts");
  auto index = inputView(region, context, op.getIndex());
  if (!index)
    return std::string("the choice of experts is computed in the region");
  problem.routing = Routing{index->first, index->second, *experts.constant()};

  auto foundA = sourceOf(region, context, op.getX());
  if (auto *reason = std::get_if<std::string>(&foundA))
    return *reason;
  const DType typeA = dtype(op.getX()), typeB = dtype(op.getW());
  if (typeA == DType::F64 || typeB == DType::F64)
    return std::string("nn.expert_matmul of f64");
  if (auto reason = epilogueRefuses(region, context, {}))
    return *reason;
  // All dims of the index are rows of A.
  problem.rowDims = context.shape(op.getIndex());
  const DimShape leading(problem.rowDims.begin(), problem.rowDims.end() - 1);
  problem.a = makeOperand(std::get<Source>(foundA), false, false, leading, problem.m, problem.k);
  if (problem.m == Dim(1))
    problem.a.rowStride = 0; // all slots of a row read the same
  problem.rowStrides = problem.a.batchStrides;
  problem.rowStrides.push_back(problem.a.rowStride);
  problem.a.batchStrides.clear();
  problem.m = product(problem.rowDims);
  problem.folded = true;
  if (auto reason = placeScales(problem.a, problem.rowDims.size()))
    return *reason;
  Dim kOfB = 0;
  for (Matmul &matmul : problem.matmuls)
    if (auto reason = placeWeights(region, context, matmul, experts, kOfB))
      return *reason;
  problem.b = problem.matmuls.front().b;
  problem.n = problem.matmuls.front().n;
  if (auto reason = arrangeMatmuls(region, context, problem))
    return *reason;
  if (problem.combined && problem.matmuls[0].b.batchStrides != problem.matmuls[1].b.batchStrides)
    return std::string("experts' matrices at different distances in one result");
  if (context.batchInvariant)
    return problem; // for any number of rows
  if (std::optional<int64_t> rows = problem.m.constant()) {
    problem.leastRows = problem.mostRows = *rows;
  } else if (const SizeRange *range = context.rangeOf(problem.m)) {
    problem.leastRows = range->least;
    problem.mostRows = range->most;
  }
  return problem;
}

int64_t rowsAtOnce(const Problem &problem) {
  if (!problem.routing)
    return problem.mostRows;
  // An expert's share, and half as many again, in eights.
  const int64_t experts = problem.routing->experts;
  if (problem.mostRows > 64 * experts)
    return problem.mostRows;
  const int64_t share = (problem.mostRows + experts - 1) / experts;
  return std::min<int64_t>(std::max<int64_t>(1, std::min(problem.mostRows, share + share / 2)), 64);
}

Dim expertGroups(const Problem &problem) {
  if (!problem.routing)
    return Dim(1);
  // A kernel for fewer rows than experts has a group for each row (see GemmSource), others one for each
  // expert.
  const int64_t experts = problem.routing->experts;
  const bool forAnyNumber = problem.leastRows < experts && problem.mostRows > experts;
  return forAnyNumber ? Dim(experts) : Dim::min(problem.m, Dim(experts));
}

} // namespace fusion::matmul
