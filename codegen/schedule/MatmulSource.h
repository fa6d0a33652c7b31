// Writes a matmul kernel: the template's Config, its functors, and the entry point. See
// codegen/device/gemm.cuh for what the functors say.
#pragma once

#include "codegen/body/KernelSource.h"
#include "codegen/body/Printer.h"
#include "codegen/schedule/MatmulProblem.h"

namespace fusion::matmul {

/// What a template hands the epilogue: so many neighbouring columns, accumulators of this type.
struct Sums {
  DType type = DType::F32; ///< of 16 bits: rounded to it
  int64_t width = 1;
  bool readsAhead =
      false; ///< what the epilogue reads is asked for before; the first column is a multiple of the width
  bool sends = false;     ///< as KernelContext::sendsTo asks; the epilogue's store is not StoreAt then
  bool squares = false;   ///< as KernelContext::sumsSquares asks; nor is it then
  int64_t partsOfRow = 0; ///< where Problem::largest: of each row, what warps find
  int64_t warps = 4;      ///< of a block, that do
};

struct TileHeads;

/// The text of a kernel around the template `name`, of the file `name`.cuh.
class GemmSource {
public:
  GemmSource(const Region &region, const KernelContext &context, const Problem &problem, std::string name);

  /// Members of Config.
  void set(llvm::StringRef member, int64_t value) { source.config.set(member, value); }
  void set(llvm::StringRef member, bool value) { source.config.set(member, value); }
  void set(llvm::StringRef member, llvm::StringRef type, llvm::StringRef value) {
    source.config.set(type, member, value);
  }
  void setType(llvm::StringRef member, llvm::StringRef type) { source.config.setType(member, type); }
  /// Config::weights_before_wait: whether B, and which expert's it is, can be read before pdl_wait().
  void setWeightsBeforeWait();
  /// B also says where scales and zero points lie: see entry_words.cuh.
  void nameEntries() { namesEntries = true; }
  /// Registers are for two blocks on a multiprocessor.
  void shareMultiprocessor() { residentBlocks = 2; }
  /// The prologue takes an array of this type for the rows of A, instead of a pointer.
  void computeRows(llvm::StringRef type, PrologueRegisters registers) {
    rowsType = type.str();
    prologueRegisters = registers;
  }

  /// `takesPrologue`: the template takes one, where the problem has none too.
  KernelDraft finish(const Sums &sums, uint32_t threads, uint32_t residentBlocks, bool takesPrologue);

  /// For kernels with more functors than one epilogue: sizes, A, B and, of nn.expert_matmul, the routing.
  llvm::SmallVector<std::string> operands();
  /// Declares the ops of `part` after its product as a functor; an object of it. `handsOut`: see
  /// EpilogueWriter.
  std::string declareEpilogue(const std::string &functor, const Region &part, const Problem &its,
                              bool handsOut);
  body::KernelSource &kernel() { return source; }
  std::string kernelName() const;
  /// Of gemm_sm90: sizes, the number of matrices of a batch, the epilogue and the maps of A and of each B.
  KernelDraft finishTiles(const Sums &sums, uint32_t threads, const TensorMapArgument &mapOfA,
                          llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf);

  /// Of expert_sm90: sizes, A, the plan of so many elements, the epilogue and the maps of B.
  KernelDraft finishExperts(const Sums &sums, uint32_t threads, const Dim &planElements,
                            llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf);

  /// Of gemm_swap_ab: sizes, scales or what computes A where that is not in memory, the epilogue, and maps of
  /// A and of each B. `heads`: what is made of the columns, for one part of them after the other.
  KernelDraft finishSwapAB(const Sums &sums, uint32_t threads, uint32_t clusterBlocks,
                           const TensorMapArgument &mapOfA,
                           llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf,
                           const TileHeads *heads = nullptr);
  /// Of gemm_swap_codes: sizes, scales and zero points, the epilogue, and maps of A and of the codes of each
  /// B. `isEarly`: scales are read before pdl_wait(). `entriesAtOnce`: so many scales that neighbour along k,
  /// and zero points, are read as one vector each, from multiples of their block on; 0: one by one.
  KernelDraft finishSwapCodes(const Sums &sums, uint32_t threads, uint32_t clusterBlocks, bool isEarly,
                              int64_t entriesAtOnce, const TensorMapArgument &mapOfA,
                              llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf);

private:
  KernelDraft finishWithMaps(llvm::SmallVector<std::string> arguments, uint32_t threads,
                             uint32_t clusterBlocks, const TensorMapArgument *mapOfA,
                             llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf,
                             const std::string &before = "");
  /// The epilogue that makes heads; the lines in front of its use.
  std::string headEpilogue(const Sums &sums, const TileHeads &heads, body::Code &entry);
  /// What B's elements are and how they are decoded.
  std::string codes(bool isEarly, int64_t entriesAtOnce);
  std::string sizes();
  /// Of gemm_sm90 and gemm_swap_ab: what multiplies the sums of quantised operands.
  std::string scales();
  /// A, or B seen as rows of k elements.
  std::string operand(bool isA);
  /// The Matrix where the operand is one, else nothing.
  std::optional<std::string> matrix(bool isA);
  std::string prologue(body::Code &entry, uint32_t threads);
  std::string epilogue(const Sums &sums);
  /// Problem::norm, of gemm_swap_ab.
  std::string norm();
  /// The epilogue that also does as Problem::largest says.
  std::string findingLargest(const std::string &epilogue, const Sums &sums);
  /// StoreRounded where nothing is after the matmuls, else nothing.
  std::optional<std::string> plainEpilogue(const Sums &sums);

  const Region &region;
  const KernelContext &context;
  const Problem &problem;
  bool readsEarly = false;     ///< see setWeightsBeforeWait()
  bool namesEntries = false;   ///< see nameEntries()
  uint32_t residentBlocks = 1; ///< of gemm_swap_ab and gemm_swap_codes
  std::string rowsType;        ///< see computeRows()
  PrologueRegisters prologueRegisters{.held = 32, .ahead = 0};
  std::string name;
  body::KernelSource source;
};

/// 32-bit words for what warps find, where Problem::largest, of so many rows.
Dim largestWords(const Dim &rows, const TargetInfo &target);

/// Declares Routing: where each row's expert lies. An object of it.
/// `isEarly`: it is read before pdl_wait().
std::string declareRouting(body::KernelSource &source, const Problem &problem, bool isEarly = false);

/// Writes Epilogue: the ops after the matmuls, for neighbouring columns of a row.
class EpilogueWriter {
public:
  EpilogueWriter(const Region &region, const KernelContext &context, const Problem &problem,
                 body::Functor &functor, const Sums &sums, bool handsOut = false)
      : region(region), context(context), problem(problem), functor(functor), sums(sums), handsOut(handsOut),
        printer(graph, names), row(graph.input("row", DType::I64, scalar::Level::Vector)),
        column(graph.input("column", DType::I64, scalar::Level::Vector)) {}

  /// operator() of the matmul `index`, of all where they are combined.
  void write(size_t index);

private:
  /// An element, in row `row` of all and column `column`, or, of neighbours, `column + lane`.
  scalar::Value value(mlir::Value value);
  /// The scale or zero point that belongs to the element.
  scalar::Value scale(mlir::Operation *op, mlir::Value operand);
  /// The element of an input, broadcast to the result's shape; with `block`, the index of `axis` counts
  /// blocks of as many.
  scalar::Value input(unsigned index, const View &view, size_t axis = 0, int64_t block = 1);
  /// The element of a table's row that is chosen as the row's expert is.
  scalar::Value expertRow(nn::GatherOp gather);
  /// Whether neighbouring columns of an input can be read at once, if it has these strides.
  bool readsVectors(unsigned index, const View &view, llvm::ArrayRef<Dim> strides) const;
  /// An element of an input that is read ahead, or as many neighbours of it as there are columns.
  scalar::Value readAhead(const scalar::Pointer &from, scalar::Value place, bool isVector);
  /// The accumulator of a matmul, rounded to its result's type.
  scalar::Value total(const Product &matmul, size_t accumulator);
  /// The casts of a product that is handed out rounded to what they make of it.
  void takeCasts(const Product &matmul, size_t accumulator);
  void print(llvm::ArrayRef<unsigned> outputs);

  const Region &region;
  const KernelContext &context;
  const Problem &problem;
  body::Functor &functor;
  const Sums sums;
  const bool handsOut; ///< results are for the template, store(value), and not for memory
  scalar::Graph graph;
  body::Names names;
  body::Printer printer;
  body::Code code{2};
  /// What is read ahead: members, and statements that read them.
  std::string members;
  body::Names namesAhead;
  body::Printer printerAhead{graph, namesAhead};
  body::Code ahead{2};
  const scalar::Value row, column;
  Product op; ///< the first of those that the epilogue follows
  llvm::DenseMap<mlir::Value, scalar::Value> known;
};

} // namespace fusion::matmul
