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

std::string sumType(DType operand) {
  if (operand == DType::F64)
    return "f64";
  if (isFloat(operand))
    return "f32";
  return byteSize(operand) == 1 ? "u32" : "u64";
}

/// A that is computed ahead of the product, in the block.
static Source sourceAhead(Value value, const KernelContext &context) {
  Source source;
  source.input = ~0u;
  source.type = dtype(value);
  source.view = View::contiguous(value, context.shape(value));
  return source;
}

/// Gives the scales of an operand one stride for each of `rows` dims. The reason if they vary otherwise.
static std::optional<std::string> placeEntries(Operand &operand, size_t rows) {
  if (!operand.decode)
    return std::nullopt;
  for (std::optional<Entry> *entry : {&operand.decode->scale, &operand.decode->zero}) {
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
      problem.products.push_back({matmul, {}, 1, {}});
  if (problem.products.empty())
    return std::string("no nn.matmul");
  problem.op = problem.products.front().op;
  auto foundA = sourceOf(region, context, problem.op.getA()), foundB = sourceOf(region, context, problem.op.getB());
  if (auto *reason = std::get_if<std::string>(&foundA)) {
    problem.ahead = opsAhead(region, problem.op);
    if (problem.ahead.empty())
      return *reason;
    foundA = sourceAhead(problem.op.getA(), context);
  }
  if (auto *reason = std::get_if<std::string>(&foundB))
    return *reason;
  const Source &a = std::get<Source>(foundA), &b = std::get<Source>(foundB);
  const DType typeA = dtype(problem.op.getA()), typeB = dtype(problem.op.getB());
  if (isFloat(typeA) != isFloat(typeB) || typeA == DType::Bool || typeB == DType::Bool ||
      (sumType(typeA) != sumType(typeB)))
    return "nn.matmul of " + std::string(name(typeA)) + " and " + std::string(name(typeB));
  if (auto reason = Epilogue::refuses(region, context, problem.ahead))
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
  if (auto reason = placeEntries(problem.a, problem.rowDims.size()))
    return *reason;
  if (auto reason = placeEntries(problem.b, 1))
    return *reason;
  problem.products.front().b = problem.b;
  problem.products.front().n = problem.n;
  for (Product &product : llvm::drop_begin(problem.products)) {
    auto found = sourceOf(region, context, product.op.getB());
    if (auto *reason = std::get_if<std::string>(&found))
      return *reason;
    if (tensorType(product.op.getB()).getRank() != 2 || tensorType(problem.op.getB()).getRank() != 2)
      return std::string("several products, and a second operand that is no matrix");
    product.b = makeOperand(std::get<Source>(found), product.op.getTransposeB(), true, problem.batch, kOfB,
                            product.n);
    if (auto reason = placeEntries(product.b, 1))
      return *reason;
  }
  if (auto reason = arrangeProducts(region, context, problem))
    return *reason;
  if (std::optional<int64_t> rows = problem.m.constant()) {
    problem.leastRows = problem.mostRows = *rows;
  } else if (context.range && context.range->size == problem.m) {
    problem.leastRows = context.range->least;
    problem.mostRows = context.range->most;
  }
  if (auto reason = whyNotAhead(region, context, problem))
    return *reason;
  return problem;
}

std::string scaled(KernelWriter &writer, const std::string &index, const Dim &stride) {
  if (stride == Dim(0) || index == "0")
    return "";
  return stride == Dim(1) ? index : fmt::format("{} * {}", index, writer.size(stride));
}

std::string sumOf(ArrayRef<std::string> terms) {
  std::string sum;
  for (const std::string &term : terms)
    if (!term.empty())
      sum += sum.empty() ? term : " + " + term;
  return sum.empty() ? "0" : sum;
}

Dim blockCount(const Problem &problem, int64_t tileM, int64_t tileN) {
  return problem.m.ceilDiv(tileM) * columnBlocks(problem, tileN) * problem.batchCount();
}

void emitBlockPlace(KernelWriter &writer, const Problem &problem, int64_t tileM, int64_t tileN) {
  const std::string rows = writer.size(problem.m.ceilDiv(tileM)),
                    columns = writer.size(problem.n.ceilDiv(tileN));
  writer.line("// Blocks that read the same columns of B are neighbours.");
  writer.line("const i64 block = block_x();");
  writer.line(fmt::format("const i64 rowStart = block % {} * {};", rows, tileM));
  if (problem.sideBySide()) {
    emitProductChoice(writer, problem, fmt::format("block / {}", rows), tileN);
    writer.line(fmt::format("const i64 columnStart = part * {};", tileN));
  } else {
    writer.line(fmt::format("const i64 columnStart = block / {} % {} * {};", rows, columns, tileN));
  }
  if (!problem.batch.empty())
    writer.line(fmt::format("const i64 z = block / ({} * {});", rows, columns));
}

void emitStripPlace(KernelWriter &writer, const Problem &problem, int64_t columns) {
  const std::string strips = writer.size(problem.n.ceilDiv(columns));
  if (!problem.batch.empty())
    writer.line(fmt::format("const i64 z = block_x() / {};", strips));
  if (problem.sideBySide())
    emitProductChoice(writer, problem, "block_x()", columns);
  writer.line(fmt::format("const i64 columnStart = {}{} * {};", problem.sideBySide() ? "part" : "(i64)block_x()",
                          problem.batch.empty() ? "" : " % " + strips, columns));
}

bool readsPieces(const Problem &problem, bool isA, int64_t length, int64_t alignment) {
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
  const bool byLines = problem.b.columnStride == Dim(1) && problem.b.rowStride != Dim(1);
  return llvm::all_of(problem.products, [&](const Product &product) {
    const Operand &b = product.b;
    if (byLines)
      return product.n.knownMultipleOf(length) && even(b, b.rowStride);
    return b.rowStride == Dim(1) && k.knownMultipleOf(length) && even(b, product.n == Dim(1) ? Dim(0) : b.columnStride);
  });
}

/// `scaleA`, `zeroB1`.
static std::string entryName(bool isA, size_t sum, bool isScale) {
  return numbered(std::string(isScale ? "scale" : "zero") + (isA ? "A" : "B"), isA ? 0 : sum);
}

static const std::optional<Entry> &entryOf(const Operand &operand, bool isScale) {
  return isScale ? operand.decode->scale : operand.decode->zero;
}

/// Pointers to scales and zero points, and what differs between the products side by side.
static void emitEntryBases(KernelWriter &writer, const Problem &problem) {
  auto start = [&](const Entry &entry) {
    return sumOf({writer.input(entry.input), entry.offset == Dim(0) ? "" : writer.size(entry.offset)});
  };
  auto declare = [&](const Operand &operand, bool isA, size_t sum) {
    if (!operand.decode)
      return;
    for (bool isScale : {true, false}) {
      const std::optional<Entry> &entry = entryOf(operand, isScale);
      if (!entry)
        continue;
      const std::string name = entryName(isA, sum, isScale);
      SmallVector<std::string> starts, rows, columns;
      if (isA || !problem.sideBySide()) {
        if (!entry->literal)
          writer.line(pointerDeclaration(entry->type, entry->packed, name, start(*entry)));
        continue;
      }
      for (const Product &product : problem.products) {
        const Entry &other = *entryOf(product.b, isScale);
        if (other.literal) {
          starts.push_back(literal(other.type, *other.literal));
          continue;
        }
        starts.push_back(start(other));
        rows.push_back(writer.size(other.rowStrides[0]));
        columns.push_back(writer.size(other.columnStride));
      }
      if (entry->literal) {
        writer.line(fmt::format("const {} {} = {};", registerType(entry->type).str(), name, chosen(starts)));
        continue;
      }
      writer.line(pointerDeclaration(entry->type, entry->packed, name, chosen(starts)));
      if (!llvm::all_equal(rows))
        writer.line(fmt::format("const i64 {}StepK = {};", name, chosen(rows)));
      if (!llvm::all_equal(columns))
        writer.line(fmt::format("const i64 {}StepN = {};", name, chosen(columns)));
    }
  };
  declare(problem.a, true, 0);
  for (size_t sum = 0; sum < problem.sums(); ++sum)
    declare(problem.products[sum].b, false, sum);
}

std::string entryText(KernelWriter &writer, const Problem &problem, bool isA, size_t sum, bool isScale,
                      const std::string &row, const std::string &column) {
  const Operand &operand = isA ? problem.a : problem.products[sum].b;
  const Entry &entry = *entryOf(operand, isScale);
  const std::string name = entryName(isA, sum, isScale);
  const bool differ = !isA && problem.sideBySide();
  if (entry.literal)
    return differ ? name : literal(entry.type, *entry.literal);
  auto index = [](const std::string &at, int64_t block) {
    return block == 1 ? at : fmt::format("{} / {}", at, block);
  };
  /// One stride for all products side by side, or the variable that holds this block's.
  auto step = [&](const std::string &at, Dim (*stride)(const Entry &), const char *suffix) {
    const bool same = !differ || llvm::all_of(problem.products, [&](const Product &product) {
      return stride(*entryOf(product.b, isScale)) == stride(entry);
    });
    return same ? scaled(writer, at, stride(entry)) : at + " * " + name + suffix;
  };
  SmallVector<std::string> terms;
  if (!isA || entry.rowStrides.size() == 1) {
    terms.push_back(step(index(row, entry.rowBlock), [](const Entry &e) { return e.rowStrides[0]; }, "StepK"));
  } else if (std::optional<Dim> stride = mergedStride(problem.rowDims, entry.rowStrides)) {
    terms.push_back(scaled(writer, row, *stride));
  } else {
    SmallVector<std::string> at = writer.delinearize(row, problem.rowDims);
    for (size_t i = 0; i < at.size(); ++i)
      terms.push_back(scaled(writer, at[i], entry.rowStrides[i]));
  }
  terms.push_back(step(index(column, entry.columnBlock), [](const Entry &e) { return e.columnStride; }, "StepN"));
  return loadElement(entry.type, name, sumOf(terms));
}

std::pair<std::string, std::string> emitEntries(KernelWriter &writer, const Problem &problem, bool isA, size_t sum,
                                                const std::string &row, const std::string &column) {
  auto entry = [&](bool isScale) {
    const std::optional<Entry> &found = entryOf(isA ? problem.a : problem.products[sum].b, isScale);
    if (!found)
      return std::string();
    const std::string name = writer.fresh(isScale ? "scale" : "zero");
    writer.line(fmt::format("const {} {} = {};", registerType(found->type).str(), name,
                            entryText(writer, problem, isA, sum, isScale, row, column)));
    return name;
  };
  std::string zero = entry(false);
  return {std::move(zero), entry(true)};
}

std::string elementValue(KernelWriter &writer, const Problem &problem, bool isA, size_t sum, const std::string &q,
                         const std::string &row, const std::string &column) {
  const Operand &operand = isA ? problem.a : problem.products[sum].b;
  if (!operand.decode)
    return q;
  auto entry = [&](bool isScale) {
    return entryOf(operand, isScale) ? entryText(writer, problem, isA, sum, isScale, row, column) : std::string();
  };
  return decoded(*operand.decode, operand.type, q, entry(false), entry(true));
}

std::string factorText(KernelWriter &writer, const Problem &problem, bool isA, size_t sum, const std::string &element,
                       const std::string &across, const std::string &inner, int64_t length) {
  const Operand &operand = isA ? problem.a : problem.products[sum].b;
  const std::string wide =
      isFloat(operand.type) && operand.type != DType::F32 ? "to_f32(" + element + ")" : element;
  // Elements that share their scale name one place, so that it is read once.
  const bool shared = inner.empty() || (operand.decode && operand.decode->isOneFor(length, isA));
  const std::string k = shared ? "k" : "(k + " + inner + ")";
  return elementValue(writer, problem, isA, sum, wide, isA ? across : k, isA ? k : across);
}

void emitBases(KernelWriter &writer, const Problem &problem) {
  SmallVector<std::string> index;
  if (!problem.batch.empty())
    index = writer.delinearize("z", problem.batch);
  auto start = [&](const Operand &operand) {
    SmallVector<std::string> terms{operand.offset == Dim(0) ? "" : writer.size(operand.offset)};
    for (size_t i = 0; i < index.size(); ++i)
      terms.push_back(scaled(writer, index[i], operand.batchStrides[i]));
    return fmt::format("{} + {}", writer.input(operand.input), sumOf(terms));
  };
  auto declare = [&](const Operand &operand, const std::string &name, const std::string &value) {
    writer.line(pointerDeclaration(operand.type, operand.packed, name, value));
  };
  if (problem.ahead.empty()) {
    declare(problem.a, "a", start(problem.a));
  } else {
    writer.line(fmt::format("SHARED({}, normal, {});", sourceType(problem.a.type).str(),
                            problem.mostRows * problem.k.value()));
    declare(problem.a, "a", "normal");
  }
  if (!problem.sideBySide()) {
    for (auto [index, product] : llvm::enumerate(problem.products))
      declare(product.b, numbered("b", index), start(product.b));
  } else {
    SmallVector<std::string> starts;
    for (const Product &product : problem.products)
      starts.push_back(start(product.b));
    declare(problem.b, "b", chosen(starts));
  }
  emitEntryBases(writer, problem);
}

std::string rowOffset(KernelWriter &writer, const Problem &problem, const std::string &row) {
  if (std::optional<Dim> stride = mergedStride(problem.rowDims, problem.rowStrides))
    return sumOf({scaled(writer, row, *stride)});
  SmallVector<std::string> index = writer.delinearize(row, problem.rowDims), terms;
  for (size_t i = 0; i < index.size(); ++i)
    terms.push_back(scaled(writer, index[i], problem.rowStrides[i]));
  return sumOf(terms);
}

std::string rowText(const Problem &problem, int64_t i) {
  return i < problem.leastRows ? std::to_string(i) : fmt::format("line{}", i);
}

void emitRows(KernelWriter &writer, const Problem &problem) {
  for (int64_t i = 0; i < problem.mostRows; ++i) {
    const std::string row = rowText(problem, i);
    if (i >= problem.leastRows)
      writer.line(fmt::format("const i64 {0} = {1} < {2} ? {1} : {2} - 1;", row, i, writer.size(problem.m)));
    writer.line(pointerDeclaration(problem.a.type, problem.a.packed, fmt::format("row{}", i),
                                   "a + " + rowOffset(writer, problem, row)));
  }
}

std::string resultLine(KernelWriter &writer, const Problem &problem, const std::string &row) {
  return problem.batch.empty() ? row : fmt::format("(z * {} + {})", writer.size(problem.m), row);
}

} // namespace fusion::matmul
