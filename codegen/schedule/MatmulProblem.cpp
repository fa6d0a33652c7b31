#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

std::optional<Dim> mergedStride(ArrayRef<Dim> shape, ArrayRef<Dim> strides) {
  std::optional<Dim> stride, next; // the innermost, and what the dim further out must have
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == Dim(1))
      continue;
    if (stride && strides[i] != *next)
      return std::nullopt;
    if (!stride)
      stride = strides[i];
    next = strides[i] * shape[i];
  }
  return stride ? *stride : Dim(0);
}

DType sumType(DType operand) {
  if (isFloat(operand))
    return operand == DType::F64 ? DType::F64 : DType::F32;
  return byteSize(operand) == 1 ? DType::U32 : DType::U64;
}

/// A that each block computes.
static Source prologueSource(Value value, const KernelContext &context) {
  Source source;
  source.input = ~0u;
  source.type = dtype(value);
  source.view = View::contiguous(value, context.shape(value));
  return source;
}

std::optional<std::string> placeScales(Operand &operand, size_t rows) {
  if (!operand.decode)
    return std::nullopt;
  for (std::optional<ScaleOrZero> *entry : {&operand.decode->scale, &operand.decode->zero}) {
    if (!*entry || (*entry)->literal)
      continue;
    DimShape &strides = (*entry)->rowStrides;
    while (strides.size() < rows)
      strides.insert(strides.begin(), Dim(0));
    while (strides.size() > rows) {
      if (!(strides.front() == Dim(0)))
        return std::string("scales that differ between the matrices of a batch");
      strides.erase(strides.begin());
    }
    if (rows > 1 && (*entry)->rowBlock > 1 && (*entry)->alongRows())
      return std::string("scales for blocks of rows of the first operand");
  }
  return std::nullopt;
}

std::variant<Problem, std::string> analyse(const Region &region, const KernelContext &context) {
  Problem problem;
  for (Operation *op : region.ops)
    if (auto matmul = dyn_cast<nn::MatmulOp>(op))
      problem.matmuls.push_back({Product(matmul.getY()), {}, 1, {}});
  if (problem.matmuls.empty())
    return std::string("no nn.matmul");
  problem.op = problem.matmuls.front().op;
  auto foundA = sourceOf(region, context, problem.op.getA()),
       foundB = sourceOf(region, context, problem.op.getB());
  if (auto *reason = std::get_if<std::string>(&foundA)) {
    problem.prologue = prologueOps(region, problem.op);
    if (problem.prologue.empty())
      return *reason;
    foundA = prologueSource(problem.op.getA(), context);
  }
  if (auto *reason = std::get_if<std::string>(&foundB))
    return *reason;
  const Source &a = std::get<Source>(foundA), &b = std::get<Source>(foundB);
  const DType typeA = dtype(problem.op.getA()), typeB = dtype(problem.op.getB());
  if (isFloat(typeA) != isFloat(typeB) || typeA == DType::Bool || typeB == DType::Bool ||
      (sumType(typeA) != sumType(typeB)))
    return "nn.matmul of " + std::string(name(typeA)) + " and " + std::string(name(typeB));
  if (auto reason = epilogueRefuses(region, context, problem.prologue))
    return *reason;

  const DimShape &result = context.shape(problem.op.getY());
  const size_t own = (a.view.shape.size() > 1 ? 1u : 0u) + (b.view.shape.size() > 1 ? 1u : 0u);
  problem.batch.assign(result.begin(), result.end() - static_cast<ptrdiff_t>(own));
  Dim kOfB = 0;
  problem.a = makeOperand(a, problem.op.getTransposeA(), false, problem.batch, problem.m, problem.k);
  problem.b = makeOperand(b, problem.op.getTransposeB(), true, problem.batch, kOfB, problem.n);
  problem.rowDims = {problem.m};
  problem.rowStrides = {problem.a.rowStride};
  if (!problem.batch.empty() &&
      llvm::all_of(problem.b.batchStrides, [](const Dim &stride) { return stride == Dim(0); })) {
    problem.folded = true;
    problem.rowDims = problem.batch;
    problem.rowDims.push_back(problem.m);
    problem.rowStrides = problem.a.batchStrides;
    problem.rowStrides.push_back(problem.a.rowStride);
    problem.m = product(problem.rowDims);
    problem.batch.clear();
    problem.a.batchStrides.clear();
    problem.b.batchStrides.clear();
  }
  if (auto reason = placeScales(problem.a, problem.rowDims.size()))
    return *reason;
  if (auto reason = placeScales(problem.b, 1))
    return *reason;
  problem.matmuls.front().b = problem.b;
  problem.matmuls.front().n = problem.n;
  for (Matmul &matmul : llvm::drop_begin(problem.matmuls)) {
    auto found = sourceOf(region, context, matmul.op.getB());
    if (auto *reason = std::get_if<std::string>(&found))
      return *reason;
    if (tensorType(matmul.op.getB()).getRank() != 2 || tensorType(problem.op.getB()).getRank() != 2)
      return std::string("several matmuls, and a second operand that is no matrix");
    matmul.b =
        makeOperand(std::get<Source>(found), matmul.op.getTransposeB(), true, problem.batch, kOfB, matmul.n);
    if (auto reason = placeScales(matmul.b, 1))
      return *reason;
  }
  if (auto reason = arrangeMatmuls(region, context, problem))
    return *reason;
  if (context.batchInvariant) {
    problem.leastRows = rowsOfAnyBatch;
  } else if (std::optional<int64_t> rows = problem.m.constant()) {
    problem.leastRows = problem.mostRows = *rows;
  } else if (const SizeRange *range = context.rangeOf(problem.m)) {
    problem.leastRows = range->least;
    problem.mostRows = range->most;
  }
  if (auto reason = refusesPrologue(region, context, problem))
    return *reason;
  return problem;
}

Dim blockCount(const Problem &problem, int64_t tileM, int64_t tileN) {
  return problem.m.ceilDiv(tileM) * columnTiles(problem, tileN) * problem.batchCount();
}

bool readsVectors(const Problem &problem, bool isA, int64_t length, int64_t alignment) {
  auto even = [&](const Operand &operand, const Dim &stride) {
    return operand.offset.knownMultipleOf(alignment) && stride.knownMultipleOf(alignment) &&
           llvm::all_of(operand.batchStrides, [&](const Dim &dim) { return dim.knownMultipleOf(alignment); });
  };
  const Dim &k = problem.k;
  if (isA) {
    for (const auto &[dim, stride] : llvm::zip(problem.rowDims, problem.rowStrides))
      if (!(dim == Dim(1)) && !stride.knownMultipleOf(alignment))
        return false;
    return problem.a.columnStride == Dim(1) && k.knownMultipleOf(length) && even(problem.a, Dim(0));
  }
  return llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
    const Operand &b = matmul.b;
    if (!isKMajor(problem, false))
      return matmul.n.knownMultipleOf(length) && even(b, b.rowStride);
    return b.rowStride == Dim(1) && k.knownMultipleOf(length) &&
           even(b, matmul.n == Dim(1) ? Dim(0) : b.columnStride);
  });
}

int64_t resultVector(const Problem &problem, int64_t most) {
  while (most > 1 &&
         llvm::any_of(problem.matmuls, [&](const Matmul &matmul) { return !matmul.n.knownMultipleOf(most); }))
    most /= 2;
  return most;
}

KernelDraft counted(KernelDraft draft, const Problem &problem) {
  Dim columns = 0;
  for (const Matmul &matmul : problem.matmuls)
    columns = columns + matmul.n;
  draft.flops = problem.m * columns * problem.k * problem.batchCount() * Dim(2);
  return draft;
}

} // namespace fusion::matmul
