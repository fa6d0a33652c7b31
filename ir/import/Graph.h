// The walk over an ONNX graph: scopes, lazily built values, order of nodes, inlining.
#pragma once

#include "ir/import/DataRows.h"
#include "ir/import/InputShapes.h"
#include "ir/import/NodeImporter.h"
#include "ir/import/Onnx.h"
#include "ir/import/TensorData.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <deque>
#include <map>
#include <set>

namespace fusion::onnx {

/// A named value of the file. It becomes a value of the module when an op first needs it there.
struct GraphValue {
  std::string name;
  mlir::Value value; ///< null until built
  DimShape shape;
  mlir::Type element;
  /// The contents, row-major, if they are integers known at import. `shape` is static then.
  std::optional<DimShape> known;
  /// An initialiser that has not been built.
  const proto::TensorProto *tensor = nullptr;
  TensorInfo info;
  /// The entries of a sequence, which is no value of the module.
  std::optional<std::vector<GraphValue *>> sequence;
  /// An optional that holds nothing; one that holds something is what it holds.
  bool isEmptyOptional = false;

  /// What this is if it is no tensor; empty if it is one.
  std::string whyNoTensor() const;
  bool isTensor() const { return !sequence && !isEmptyOptional; }
};

using AttributeMap = std::map<std::string, const proto::AttributeProto *, std::less<>>;
using OpsetMap = std::map<std::string, int64_t, std::less<>>;

/// The names visible at one point: a graph's own, then those of the graphs around it.
struct Scope {
  const Scope *parent = nullptr;
  llvm::StringMap<GraphValue *> values;
  llvm::StringMap<const proto::ValueInfoProto *> declared;
  const AttributeMap *attributes = nullptr; ///< of the function being inlined
  std::set<std::string, std::less<>> omitted; ///< inputs of that function that its caller leaves out
  const OpsetMap *opsets = nullptr;
  std::string modulePath; ///< for nodes that carry none
  int depth = 0;
  llvm::StringMap<std::string> missing; ///< outputs that their node's importer does not make, and the node

  GraphValue *find(llvm::StringRef name) const;
  bool isOmitted(std::string_view name) const;
  /// A dim of `name` that the exporter wrote into the graph; nothing if it did not.
  std::optional<Dim> declaredDim(llvm::StringRef name, unsigned dim) const;
  /// Why `name` cannot be found.
  std::string whyUndefined(const std::string &name) const;
};

class GraphImporter {
public:
  /// `given`: what a first import has learnt about the dims of the inputs.
  GraphImporter(mlir::MLIRContext &context, const ModelFile &model, std::string path,
                const ImportOptions &options, DimReplacements given = {});

  Result<mlir::OwningOpRef<mlir::ModuleOp>> run();
  /// After run(): see InputShapes::learnt.
  DimReplacements learntDims() const { return inputs.learnt(replacements); }
  const DimReplacements &shiftedDims() const { return inputs.shiftedDims; }

  // ── For NodeImporter
  // ──────────────────────────────────────────────────────────────────────────────────────
  mlir::OpBuilder builder;
  TensorStore tensors;

  const Scope &scope() const { return *current; }
  /// Defines a value in the current graph; fails on the second definition of a name.
  Status define(const std::string &name, GraphValue *value);
  GraphValue *newValue(std::string name);
  /// Builds an initialiser or known integers where that has not happened.
  Result<mlir::Value> materialise(GraphValue &value, mlir::Location location);
  /// Elements known at import, of initialisers too.
  Result<const DimShape *> known(GraphValue &value);
  /// The contents of a small value that is computed from constants alone.
  std::optional<Tensor> computed(mlir::Value value);
  Result<GraphValue *> fromTensor(const proto::TensorProto &tensor, std::string name);
  const DimShape &shapeOf(mlir::Value value) const;
  void setShape(mlir::Value value, DimShape shape) { shapes[value] = std::move(shape); }
  /// Takes note that two dims are equal, so that later divisions come out even.
  void learn(const Dim &left, const Dim &right);
  /// `dim` with what has been learnt.
  Dim resolve(const Dim &dim) const { return dim.substitute(replacements); }
  /// Runs a subgraph in place, on `inputs`: its outputs in order.
  Result<std::vector<GraphValue *>> inlineGraph(const proto::GraphProto &graph,
                                                llvm::ArrayRef<GraphValue *> inputs = {});
  /// See ImportOptions::sharedCaches.
  bool sharesCaches() const { return options.sharedCaches; }
  /// What has been learnt about dims: to forget what holds in one branch only.
  const DimReplacements &learntSoFar() const { return replacements; }
  void forgetSince(DimReplacements before) { replacements = std::move(before); }
  mlir::Value buildKnown(llvm::ArrayRef<Dim> values, llvm::ArrayRef<int64_t> shape, mlir::Type element,
                         mlir::Location location);
  /// Where the node around all loops stands whose bodies are being built: what is stored in the file is built
  /// there.
  std::optional<mlir::OpBuilder::InsertPoint> outermost;
  /// Once run() has failed for a branch that is not known: see importOnnx.
  std::optional<DecidingInput> deciding;
  int64_t loops = 0; ///< whose bodies have been begun
  DataRows dataRows;
  /// Runs `check` with diagnostics of MLIR caught: what they said if it fails.
  std::string verifyText(mlir::Operation *op);

private:
  Status importInputs(const proto::GraphProto &graph, mlir::func::FuncOp function);
  /// What the caller says that an input holds.
  Result<std::optional<Tensor>> givenConstant(const std::string &name, DType type,
                                              const DimShape &shape) const;
  Status addInitializers(const proto::GraphProto &graph);
  Status importNodes(const google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes);
  Status importNode(const proto::NodeProto &node);
  Status callFunction(const proto::FunctionProto &function, const proto::NodeProto &node,
                      const std::string &modulePath);
  Status returnOutputs(const proto::GraphProto &graph, mlir::func::FuncOp function);
  const proto::FunctionProto *findFunction(const proto::NodeProto &node) const;
  Result<GraphValue *> outputValue(const std::string &name);
  Error nodeError(const proto::NodeProto &node, int64_t opset, const std::string &reason) const;

  const ModelFile &model;
  std::string path;
  const ImportOptions &options;
  Scope *current = nullptr;
  int64_t nodesImported = 0; ///< those of inlined functions each time
  OpsetMap modelOpsets;
  std::deque<GraphValue> storage;
  /// A matrix of ones on and below its diagonal and zeros above, said by positions; null if `value` is
  /// something else.
  Result<mlir::Value> triangle(const GraphValue &value, mlir::Location location);
  mlir::Attribute foldedConstant(mlir::Value value, int depth);

  llvm::DenseMap<mlir::Value, DimShape> shapes;
  llvm::DenseSet<mlir::Value> notConstant;
  DimReplacements replacements, given;
  InputShapes inputs;
};

/// Indices of the nodes such that each comes after those whose outputs it reads: the file's own order if that
/// will do. Fails on a cycle with the name of a node in it.
Result<std::vector<int>> topologicalOrder(const google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes);

/// The module path that the exporter left in the node's metadata; empty if it left none.
std::string modulePathOf(const proto::NodeProto &node);
/// `name (domain.Op)`, for messages.
std::string describeNode(const proto::NodeProto &node);

/// The version of `domain` among `opsets`; 1 if absent.
int64_t opsetOf(const OpsetMap *opsets, llvm::StringRef domain);

} // namespace fusion::onnx
