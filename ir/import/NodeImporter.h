// What the handler of one ONNX op sees: the node's inputs, attributes and outputs, and the builder.
//
// A handler is straight code. The first failure (of a look-up, an attribute or a shape function) is kept;
// from then on every function returns null or empty values and builds nothing, so a handler only has to test
// failed() before it indexes into a shape that it asked for.
#pragma once

#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/StringMap.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fusion::onnx {

namespace proto {
class AttributeProto;
class NodeProto;
} // namespace proto
class GraphImporter;
struct GraphValue;

class NodeImporter {
public:
  NodeImporter(GraphImporter &graph, const proto::NodeProto &node, int64_t opset, mlir::Location location);

  // ── The node
  // ──────────────────────────────────────────────────────────────────────────────────────────────
  llvm::StringRef opType() const;
  /// Version of the node's own domain that the model imports; 1 if it names none.
  int64_t opset() const { return version; }
  const proto::NodeProto &proto() const { return node; }
  GraphImporter &owner() { return graph; }
  mlir::MLIRContext *context() const;
  mlir::OpBuilder &builder();
  mlir::Location location() const { return where; }
  /// Keeps the first reason; the importer adds file, node, op and opset.
  void fail(const llvm::Twine &reason);
  bool failed() const { return !problem.empty(); }
  const std::string &reason() const { return problem; }

  // ── Inputs
  // ────────────────────────────────────────────────────────────────────────────────────────────────
  unsigned inputCount() const;
  /// Whether input `index` is given (not past the end, not the empty name).
  bool has(unsigned index) const;
  /// The input as a value of the module; built on first use if it is an initialiser or known integers. Fails
  /// if the input is not given.
  mlir::Value operand(unsigned index);
  /// Null if the input is not given.
  mlir::Value optionalOperand(unsigned index) { return has(index) ? operand(index) : mlir::Value(); }
  DimShape shape(unsigned index);
  int64_t rank(unsigned index) { return static_cast<int64_t>(shape(index).size()); }
  mlir::Type inputType(unsigned index);
  /// The elements, row-major, of an integer or i1 input whose contents are known at import; nothing
  /// otherwise.
  std::optional<DimShape> known(unsigned index);
  /// The same where the op needs them: fails with a reason that names the input. `what` says what the input
  /// is
  /// ("shape", "axes").
  DimShape requireKnown(unsigned index, llvm::StringRef what);
  /// The same where symbols make no sense.
  std::vector<int64_t> requireConstants(unsigned index, llvm::StringRef what);
  /// The value of a float or integer input of one element that is constant.
  std::optional<double> constantScalar(unsigned index);

  // ── Attributes
  // ────────────────────────────────────────────────────────────────────────────────────────────
  bool hasAttribute(llvm::StringRef name) const;
  int64_t intAttribute(llvm::StringRef name, int64_t otherwise);
  double floatAttribute(llvm::StringRef name, double otherwise);
  std::string stringAttribute(llvm::StringRef name, llvm::StringRef otherwise);
  std::vector<int64_t> intsAttribute(llvm::StringRef name, std::vector<int64_t> otherwise = {});
  std::vector<double> floatsAttribute(llvm::StringRef name);
  std::optional<Tensor> tensorAttribute(llvm::StringRef name);
  /// An attribute that holds a TensorProto data type (`to`, `dtype`, `stash_type`); `otherwise` if absent.
  mlir::Type typeAttribute(llvm::StringRef name, mlir::Type otherwise);
  /// The attribute itself, references to a function's attributes resolved; null if absent.
  const proto::AttributeProto *attribute(llvm::StringRef name) const;
  /// Says of attributes that their values change nothing here.
  void ignore(std::initializer_list<llvm::StringRef> names) const {
    asked.insert(names.begin(), names.end());
  }
  /// The name of an attribute of the node that no handler has read; empty if there is none.
  std::string unknownAttribute() const;
  /// Normalises a negative axis; fails if it is out of range.
  int64_t axis(int64_t value, int64_t rank);

  // ── Outputs
  // ───────────────────────────────────────────────────────────────────────────────────────────────
  unsigned outputCount() const;
  /// Whether output `index` has a name.
  bool wants(unsigned index) const;
  /// Does nothing for an output without a name.
  void result(unsigned index, mlir::Value value);
  /// Integers known at import: the op that uses them as data gets a constant. `shape` is static.
  void resultKnown(unsigned index, DimShape values, llvm::ArrayRef<int64_t> shape, mlir::Type elementType);
  /// The output is the input itself, which may be a sequence.
  void forward(unsigned index, unsigned input);
  /// The same of any value.
  void resultValue(unsigned index, GraphValue *value);
  /// A dim of output `index` that the exporter wrote into the file; nothing if it did not.
  std::optional<Dim> declaredDim(unsigned index, unsigned dim);

  // ── Building: shapes are inferred and stay symbolic
  // ───────────────────────────────────────────────────────
  /// Element type of the result: `elementType` if given, else as nn::createInferred says. For ops of one
  /// result.
  template <class OpTy>
  mlir::Value build(mlir::ValueRange operands, llvm::ArrayRef<mlir::NamedAttribute> attributes = {},
                    mlir::Type elementType = {}) {
    auto results = create(OpTy::getOperationName(), operands, attributes, elementType);
    return results.empty() ? mlir::Value() : results[0];
  }
  /// The same for ops of several results.
  mlir::SmallVector<mlir::Value> create(llvm::StringRef name, mlir::ValueRange operands,
                                        llvm::ArrayRef<mlir::NamedAttribute> attributes,
                                        llvm::ArrayRef<mlir::Type> elementTypes);
  /// The symbolic shape of any value of the module; empty for null.
  const DimShape &shapeOf(mlir::Value value) const;
  /// Two dims that the op needs equal, beside what shape functions record.
  void takeAsEqual(const Dim &left, const Dim &right);
  int64_t rankOf(mlir::Value value) const { return static_cast<int64_t>(shapeOf(value).size()); }
  /// Null for null.
  static mlir::Type typeOf(mlir::Value value);

  mlir::NamedAttribute i64(llvm::StringRef name, int64_t value);
  mlir::NamedAttribute f32(llvm::StringRef name, double value);
  mlir::NamedAttribute flag(llvm::StringRef name, bool value);
  mlir::NamedAttribute text(llvm::StringRef name, llvm::StringRef value);
  mlir::NamedAttribute type(llvm::StringRef name, mlir::Type value);
  mlir::NamedAttribute dims(llvm::StringRef name, llvm::ArrayRef<Dim> value);
  mlir::NamedAttribute ints(llvm::StringRef name, llvm::ArrayRef<int64_t> value);

  /// The operand itself where there is nothing to do.
  mlir::Value cast(mlir::Value x, mlir::Type elementType);
  mlir::Value reshape(mlir::Value x, const DimShape &shape);
  mlir::Value transpose(mlir::Value x, llvm::ArrayRef<int64_t> perm);
  mlir::Value expand(mlir::Value x, const DimShape &shape);
  /// `size` elements from `start` of one axis, all of the others.
  mlir::Value slice(mlir::Value x, int64_t axis, const Dim &start, const Dim &size, int64_t step = 1);
  mlir::Value concat(mlir::ValueRange parts, int64_t axis);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value sub(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value div(mlir::Value a, mlir::Value b);
  /// `kind` as in nn.reduce.
  mlir::Value reduce(mlir::Value x, llvm::StringRef kind, llvm::ArrayRef<int64_t> axes, bool keepdims = true);
  /// A constant of rank 0.
  mlir::Value scalar(mlir::Type elementType, double value);
  mlir::Value constant(const Tensor &value);
  /// Integers known from the input shapes, as data: nn.constant where all are numbers, else nn.dim_constant.
  mlir::Value dimConstant(llvm::ArrayRef<Dim> values, llvm::ArrayRef<int64_t> shape, mlir::Type elementType);
  mlir::Type f32Type();
  mlir::Type i64Type();

private:
  GraphValue *input(unsigned index);
  void define(const std::string &name, GraphValue *value);

  GraphImporter &graph;
  const proto::NodeProto &node;
  int64_t version;
  mlir::Location where;
  std::string problem;
  mutable std::set<std::string, std::less<>> asked; ///< names of attributes
};

using Handler = std::function<void(NodeImporter &)>;

/// The ops that can be imported. Domain "" is ONNX's own ("ai.onnx" is the same).
class HandlerTable {
public:
  static const HandlerTable &instance();

  struct Entry {
    Handler handler;
    unsigned minInputs = 0;
    unsigned maxInputs = 0;
    /// Goes before a function of the op's name in the model file, whose body would be slower or cannot be
    /// imported.
    bool overFunction = false;
    /// Evaluates the node on known integers: true if it set all results. Tried first.
    std::function<bool(NodeImporter &)> evaluate;
  };
  static constexpr unsigned anyNumber = ~0u;
  /// Inputs before `minInputs` are checked to be given before the handler runs.
  void add(llvm::StringRef domain, llvm::StringRef opType, unsigned minInputs, unsigned maxInputs,
           Handler handler);
  void preferToFunction(llvm::StringRef domain, llvm::StringRef opType);
  void addEvaluator(llvm::StringRef opType, std::function<bool(NodeImporter &)> evaluate);
  /// Null if unknown.
  const Entry *find(llvm::StringRef domain, llvm::StringRef opType) const;

private:
  llvm::StringMap<Entry> entries;
};

// One file each; instance() calls them all.
void registerElementwise(HandlerTable &table);
void registerShapes(HandlerTable &table);
void registerSlices(HandlerTable &table);
void registerIndexing(HandlerTable &table);
void registerConstants(HandlerTable &table);
void registerControlFlow(HandlerTable &table);
void registerLoops(HandlerTable &table);
void registerRecurrent(HandlerTable &table);
void registerReductions(HandlerTable &table);
void registerMatmul(HandlerTable &table);
void registerConvolution(HandlerTable &table);
void registerNorms(HandlerTable &table);
void registerChannelNorms(HandlerTable &table);
void registerFloatWeights(HandlerTable &table);
void registerFourier(HandlerTable &table);
void registerPad(HandlerTable &table);
void registerResizing(HandlerTable &table);
void registerTransposedConvolution(HandlerTable &table);
void registerActivations(HandlerTable &table);
void registerRotary(HandlerTable &table);
void registerAttention(HandlerTable &table);
void registerContribAttention(HandlerTable &table);
void registerLinearAttention(HandlerTable &table);
void registerGatedDeltaNet(HandlerTable &table);
void registerContrib(HandlerTable &table);
void registerExperts(HandlerTable &table);
void registerScatter(HandlerTable &table);
void registerMultiHeadAttention(HandlerTable &table);
void registerEmbeddings(HandlerTable &table);
void registerQuantisedContrib(HandlerTable &table);
void registerEinsum(HandlerTable &table);
void registerPooling(HandlerTable &table);
void registerQuantisation(HandlerTable &table);
/// Evaluators on known integers.
void registerKnown(HandlerTable &table);

} // namespace fusion::onnx
