// The functors of A and B: where elements lie, and how they are decoded.
#include "codegen/schedule/ElementGraph.h"
#include "codegen/schedule/MatmulSource.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <numeric>

using namespace mlir;

namespace fusion::matmul {

namespace {

using scalar::Graph;

/// A, or the B of all matmuls, as rows of k elements: what differs between the B is chosen by `matmul`.
class OperandWriter {
public:
  OperandWriter(const Problem &problem, bool isA, body::Functor &functor,
                scalar::Access access = scalar::Access::Plain)
      : problem(problem), isA(isA), functor(functor), access(access) {
    if (isA)
      operands.push_back(&problem.a);
    else
      for (const Matmul &matmul : problem.matmuls)
        operands.push_back(&matmul.b);
  }
  void write();
  /// What the elements are, without where they lie.
  void writeElements();
  void writeDecoder();
  /// Of B, those of `count` neighbouring blocks along k. See GemmSource::finishSwapCodes().
  void writeDecoders(int64_t count);
  /// Of B, where the entries lie: see entry_words.cuh.
  void writeEntries();

private:
  const Operand &first() const { return *operands.front(); }
  const Dim &strideK(const Operand &operand) const { return isA ? operand.columnStride : operand.rowStride; }
  const std::optional<ScaleOrZero> &entry(const Operand &operand, bool isScale) const {
    return isScale ? operand.decode->scale : operand.decode->zero;
  }
  /// The number of neighbours, along k or along the rows, that share scale and zero point; 0: all.
  int64_t neighbours(bool alongK) const;
  void writeMatrix();
  void writeRow();
  void writeDepth();
  /// The scale or zero point at row i (of A, or of B seen as rows) and k.
  scalar::Value entryValue(Graph &graph, bool isScale);
  scalar::Value entryOf(Graph &graph, const ScaleOrZero &found);
  scalar::Value placeOf(Graph &graph, const ScaleOrZero &found);
  std::string vectorText(bool isScale, int64_t count, body::Code &code);
  /// `load` makes an expression of an address; a literal is an Alike, nothing a NoZeroPoint.
  std::string entriesText(bool isScale, body::Code &code,
                          llvm::function_ref<std::string(const ScaleOrZero &, const std::string &)> load);
  std::string decoderType() const;
  scalar::Value scaled(Graph &graph, scalar::Value index, const Dim &stride) {
    return stride == Dim(0) ? graph.index(0) : graph.mul(index, functor.size(graph, stride));
  }
  /// Index `linear` over rowDims, by these strides.
  scalar::Value alongRows(Graph &graph, scalar::Value linear, ArrayRef<Dim> strides);
  /// `values[matmul]`, or the one value where all are equal.
  static scalar::Value chosen(Graph &graph, ArrayRef<scalar::Value> values);
  static scalar::Value at(Graph &graph, const char *name) {
    return graph.input(name, DType::I64, scalar::Level::Element);
  }
  void method(const std::string &signature, Graph &graph, scalar::Value result);

  const Problem &problem;
  const bool isA;
  body::Functor &functor;
  const scalar::Access access; ///< of scales and zero points
  SmallVector<const Operand *> operands;
};

int64_t OperandWriter::neighbours(bool alongK) const {
  int64_t count = 0;
  if (first().decode)
    for (const std::optional<ScaleOrZero> *found : {&first().decode->scale, &first().decode->zero})
      if (*found && (alongK == isA ? (*found)->alongColumns() : (*found)->alongRows()))
        count = std::gcd(count, alongK == isA ? (*found)->columnBlock : (*found)->rowBlock);
  return count;
}

scalar::Value OperandWriter::chosen(Graph &graph, ArrayRef<scalar::Value> values) {
  scalar::Value choice = values.back();
  const scalar::Value matmul = graph.input("matmul", DType::I32, scalar::Level::Element);
  for (size_t i = values.size() - 1; i-- > 0;)
    choice = graph.select(
        graph.compare(scalar::Kind::Equal, matmul, graph.integer(DType::I32, static_cast<int64_t>(i))),
        values[i], choice);
  return choice;
}

scalar::Value OperandWriter::alongRows(Graph &graph, scalar::Value linear, ArrayRef<Dim> strides) {
  if (std::optional<Dim> stride = mergedStride(problem.rowDims, strides))
    return scaled(graph, linear, *stride);
  const auto index = functor.delinearize(graph, linear, problem.rowDims);
  scalar::Value sum = graph.index(0);
  for (size_t i = 0; i < index.size(); ++i)
    sum = graph.add(sum, scaled(graph, index[i], strides[i]));
  return sum;
}

void OperandWriter::method(const std::string &signature, Graph &graph, scalar::Value result) {
  body::Names names;
  body::Printer printer(graph, names);
  body::Code code(2);
  const std::string text = printer.value(result, code);
  code.line(fmt::format("return {};", text));
  functor.method(signature, code);
}

void OperandWriter::writeMatrix() {
  Graph graph;
  body::Names names;
  body::Printer printer(graph, names);
  body::Code code(2);
  SmallVector<scalar::Value> index, offsets;
  if (!problem.batch.empty())
    index = functor.delinearize(graph, at(graph, "z"), problem.batch);
  for (const Operand *operand : operands) {
    scalar::Value offset = functor.size(graph, operand->offset);
    if (!isA && problem.routing)
      offset = graph.add(offset, scaled(graph, at(graph, "expert"), operand->batchStrides[0]));
    for (size_t i = 0; i < index.size(); ++i)
      offset = graph.add(offset, scaled(graph, index[i], operand->batchStrides[i]));
    offsets.push_back(offset);
  }
  printer.announce(offsets);
  std::string choice;
  for (auto [number, operand] : llvm::enumerate(operands)) {
    const std::string pointer = functor.input(operand->input);
    std::string text =
        operand->packed ? fmt::format("packed<{}>({})", body::spelling(operand->type), pointer) : pointer;
    if (!graph.isInteger(offsets[number], 0))
      text += " + (" + printer.value(offsets[number], code) + ")";
    choice += number + 1 < operands.size() ? fmt::format("matmul == {} ? {} : ", number, text) : text;
  }
  code.line(fmt::format("return {};", choice));
  functor.method("DEVICE auto matrix(int matmul, i64 z) const", code);
}

void OperandWriter::writeRow() {
  Graph graph;
  const scalar::Value i = at(graph, "i");
  SmallVector<scalar::Value> values;
  if (isA)
    values.push_back(alongRows(graph, i, problem.rowStrides));
  else
    for (const Operand *operand : operands)
      values.push_back(scaled(graph, i, operand->columnStride));
  method("DEVICE i64 row(int matmul, i64 i) const", graph, chosen(graph, values));
}

void OperandWriter::writeDepth() {
  Graph graph;
  SmallVector<scalar::Value> values;
  for (const Operand *operand : operands)
    values.push_back(scaled(graph, at(graph, "k"), strideK(*operand)));
  method("DEVICE i64 depth(int matmul, i64 k) const", graph, chosen(graph, values));
}

scalar::Value OperandWriter::entryOf(Graph &graph, const ScaleOrZero &found) {
  if (found.literal)
    return constantValue(graph, functor, nn::ConstantOp(found.literal));
  return graph.load(functor.pointer(found.input, access), placeOf(graph, found));
}

scalar::Value OperandWriter::placeOf(Graph &graph, const ScaleOrZero &found) {
  const scalar::Value row = at(graph, isA ? "i" : "k"), column = at(graph, isA ? "k" : "i");
  auto block = [&](scalar::Value index, int64_t size) { return graph.div(index, graph.index(size)); };
  scalar::Value place = functor.size(graph, found.offset);
  if (!isA && problem.routing)
    place = graph.add(place, scaled(graph, at(graph, "expert"), found.expertStride));
  place = graph.add(place, found.rowStrides.size() == 1
                               ? scaled(graph, block(row, found.rowBlock), found.rowStrides[0])
                               : alongRows(graph, row, found.rowStrides));
  return graph.add(place, scaled(graph, block(column, found.columnBlock), found.columnStride));
}

scalar::Value OperandWriter::entryValue(Graph &graph, bool isScale) {
  SmallVector<scalar::Value> values;
  for (const Operand *operand : operands)
    values.push_back(entryOf(graph, *entry(*operand, isScale)));
  return chosen(graph, values);
}

void OperandWriter::writeDecoder() {
  if (!first().decode) {
    functor.method("DEVICE Exact decoder(int, i64, i64) const", "{}");
    return;
  }
  const Decode &decode = *first().decode;
  Graph graph;
  body::Names names;
  body::Printer printer(graph, names);
  printer.inlineAll();
  body::Code code(2);
  SmallVector<std::string> members;
  if (decode.scale)
    members.push_back(printer.value(graph.convertRegister(DType::F32, entryValue(graph, true)), code));
  members.push_back(decode.zero ? printer.value(entryValue(graph, false), code) : "{}");
  functor.method(fmt::format("DEVICE {} decoder(int matmul, i64 i, i64 k) const", decoderType()),
                 fmt::format("{{{}}}", llvm::join(members, ", ")));
}

std::string OperandWriter::decoderType() const {
  const Decode &decode = *first().decode;
  const std::string zeroType =
      decode.zero ? body::spelling(scalar::registerType(decode.zero->type)) : "NoZeroPoint";
  return decode.scale ? fmt::format("Dequantise<{}, {}>", body::spelling(decode.type), zeroType)
                      : fmt::format("Shift<{}>", zeroType);
}

std::string OperandWriter::vectorText(bool isScale, int64_t count, body::Code &code) {
  return entriesText(isScale, code, [&](const ScaleOrZero &found, const std::string &address) {
    return fmt::format("{}<{}, {}>({})", access == scalar::Access::Early ? "load_early_vec" : "load_vec",
                       body::spelling(found.type), count, address);
  });
}

void OperandWriter::writeEntries() {
  auto asIs = [](const ScaleOrZero &, const std::string &address) { return address; };
  for (bool isScale : {true, false}) {
    body::Code code(2);
    code.line(fmt::format("return {};", entriesText(isScale, code, asIs)));
    functor.method(
        fmt::format("DEVICE auto {}(int matmul, i64 i, i64 k) const", isScale ? "scales" : "zeros"), code);
  }
}

std::string
OperandWriter::entriesText(bool isScale, body::Code &code,
                           llvm::function_ref<std::string(const ScaleOrZero &, const std::string &)> load) {
  if (!entry(first(), isScale))
    return "NoZeroPoint{}";
  std::string choice;
  for (auto [number, operand] : llvm::enumerate(operands)) {
    const ScaleOrZero &found = *entry(*operand, isScale);
    Graph graph;
    body::Names names;
    body::Printer printer(graph, names);
    printer.inlineAll();
    const std::string type = body::spelling(found.type);
    std::string text;
    if (found.literal)
      text = fmt::format("Alike<{}>{{{}}}", body::spelling(scalar::registerType(found.type)),
                         printer.value(entryOf(graph, found), code));
    else
      text = load(found,
                  fmt::format("{} + ({})",
                              found.packed ? fmt::format("packed<{}>({})", type, functor.input(found.input))
                                           : functor.input(found.input),
                              printer.value(placeOf(graph, found), code)));
    choice += number + 1 < operands.size() ? fmt::format("matmul == {} ? {} : ", number, text) : text;
  }
  return choice;
}

void OperandWriter::writeDecoders(int64_t count) {
  body::Code code(2);
  const std::string scales = vectorText(true, count, code), zeros = vectorText(false, count, code);
  code.line(fmt::format("return decoders_of<{}>({}, {});", decoderType(), scales, zeros));
  functor.method("DEVICE auto decoders(int matmul, i64 i, i64 k) const", code);
}

void OperandWriter::writeElements() {
  const Operand &operand = first();
  const int64_t bits = operand.packed ? 4 : 8 * static_cast<int64_t>(byteSize(operand.type));
  functor.declare(fmt::format("  using element = {};\n", body::spelling(operand.type)));
  functor.declare(fmt::format("  static constexpr bool quantised = {}, k_major = {};\n",
                              operand.decode.has_value(), isKMajor(problem, isA)));
  functor.declare(fmt::format("  static constexpr int bits = {}, k_per_scale = {}, rows_per_scale = {};\n",
                              bits, neighbours(true), neighbours(false)));
}

void OperandWriter::write() {
  writeElements();
  if (!isA && problem.routing)
    functor.member("i64", "expert");
  writeMatrix();
  writeRow();
  writeDepth();
  writeDecoder();
}
} // namespace

int64_t neighboursPerScale(const Problem &problem) {
  int64_t count = 0;
  for (const std::optional<ScaleOrZero> *found : {&problem.b.decode->scale, &problem.b.decode->zero})
    if (*found && (*found)->alongRows())
      count = std::gcd(count, (*found)->rowBlock);
  return count;
}

bool isKMajor(const Problem &problem, bool isA) {
  if (isA)
    return problem.a.columnStride == Dim(1) || problem.a.rowStride != Dim(1);
  return problem.b.columnStride != Dim(1) || problem.b.rowStride == Dim(1);
}

std::optional<std::string> GemmSource::matrix(bool isA) {
  const Operand &any = isA ? problem.a : problem.b;
  const bool kMajor = isKMajor(problem, isA);
  if (!problem.batch.empty() || any.decode || any.packed || (!isA && problem.routing))
    return std::nullopt;
  SmallVector<const Operand *> operands;
  SmallVector<Dim> strides;
  if (isA)
    operands.push_back(&problem.a);
  else
    for (const Matmul &matmul : problem.matmuls)
      operands.push_back(&matmul.b);
  for (const Operand *operand : operands) {
    const std::optional<Dim> rows =
        isA ? mergedStride(problem.rowDims, problem.rowStrides) : operand->columnStride;
    const Dim &k = isA ? operand->columnStride : operand->rowStride;
    if (!rows || !(operand->offset == Dim(0)) || !((kMajor ? k : *rows) == Dim(1)))
      return std::nullopt;
    strides.push_back(kMajor ? *rows : k);
  }
  const std::string type = fmt::format("{}, {}", body::spelling(any.type), kMajor);
  if (operands.size() == 1)
    return fmt::format("Matrix<{}>{{{}, {}}}", type, source.input(any.input), source.size(strides[0]));
  if (!llvm::all_of(strides, [](const Dim &stride) { return stride.constant(); }))
    return std::nullopt;
  SmallVector<std::string> pointers, numbers;
  for (auto [operand, stride] : llvm::zip(operands, strides)) {
    pointers.push_back(source.input(operand->input));
    numbers.push_back(source.size(stride));
  }
  return fmt::format("Matrices<{}, {}>{{{}}}", type, llvm::join(numbers, ", "), llvm::join(pointers, ", "));
}

std::string GemmSource::operand(bool isA) {
  if (isA && !problem.prologue.empty()) // in shared memory, row after row
    return fmt::format("Matrix<{}, true>{{nullptr, {}}}", body::spelling(problem.a.type),
                       source.size(problem.k));
  if (auto plain = matrix(isA))
    return *plain;
  body::Functor functor(source, isA ? "A" : "B");
  OperandWriter writer(problem, isA, functor);
  writer.write();
  if (!isA && namesEntries)
    writer.writeEntries();
  source.declare(functor.text());
  return functor.instance();
}

std::string GemmSource::codes(bool isEarly, int64_t entriesAtOnce) {
  body::Functor functor(source, "Weights");
  OperandWriter writer(problem, false, functor, isEarly ? scalar::Access::Early : scalar::Access::Plain);
  writer.writeElements();
  writer.writeDecoder();
  if (entriesAtOnce > 0)
    writer.writeDecoders(entriesAtOnce);
  source.declare(functor.text());
  return functor.instance();
}

std::string GemmSource::scales() {
  auto isScaled = [](const Operand &operand) { return operand.decode && operand.decode->scale; };
  if (!isScaled(problem.a) && !isScaled(problem.b))
    return "Unscaled{}";
  SmallVector<std::string> decoders;
  for (bool isA : {true, false}) {
    body::Functor functor(source, isA ? "A" : "B");
    OperandWriter(problem, isA, functor).writeDecoder();
    source.declare(functor.text());
    decoders.push_back(functor.instance());
  }
  return fmt::format("scaled_sums({})", llvm::join(decoders, ", "));
}

} // namespace fusion::matmul
