// Prints what a row kernel computes as the body of row_kernel(): see codegen/device/row.cuh.
#pragma once

#include "codegen/body/KernelSource.h"
#include "codegen/body/Printer.h"
#include "codegen/schedule/RowExchange.h"

namespace fusion::row {

/// Body, and the lines of the function of it that is being written.
class Writer : public body::Functor {
public:
  Writer(body::KernelSource &kernel, const std::string &name) : Functor(kernel, name), source(kernel) {}
  void line(const llvm::Twine &text) { code.line(text.str()); }
  void comment(mlir::Operation *op);
  std::string fresh(llvm::StringRef stem) { return source.names.fresh(stem.str()); }
  /// The lines that `write` writes.
  body::Code captured(llvm::function_ref<void()> write);
  /// The expression of a value of a graph, with declarations in front of it.
  std::string print(const scalar::Graph &graph, scalar::Value value);
  std::string print(body::Printer &printer, scalar::Value value) { return printer.value(value, code); }

private:
  body::KernelSource &source;
  body::Code code{2};
};

/// Prints the functions of one body, each on one vector of columns, and the values that it keeps between
/// them.
class BodyPrinter {
public:
  /// `name`: what its structs' names begin with; empty if they are the only ones of the kernel.
  BodyPrinter(const Region &region, const KernelContext &context, const Graph &graph, const Layout &layout,
              body::KernelSource &kernel, std::string name = "")
      : graph(graph), layout(layout), context(context),
        plan(planPasses(graph, layout.inRegisters, layout.inCluster())), kernel(kernel),
        writer(kernel, name + "Body"), name(std::move(name)),
        quantizes(llvm::any_of(region.ops, llvm::IsaPred<nn::QuantizeOp, nn::DynamicQuantizeOp>)) {}
  /// With a sum over ranks, for all_reduce_row_kernel().
  BodyPrinter &over(const Exchange &ranks) {
    exchange = &ranks;
    return *this;
  }
  /// As a part of another kernel, which lets the next one start itself.
  BodyPrinter &within() {
    launches = false;
    return *this;
  }
  /// With so many 32-bit registers for what is requested before the first pass; what the kernel just before
  /// does not write is then requested before that has ended, also for rows of a few lanes.
  BodyPrinter &ahead(int64_t registers) {
    mostRegisters = registers;
    asksEarly = true;
    return *this;
  }
  /// Declares Config and Body in front of the kernel. Returns the call of the template;
  /// `block`: the expression that numbers the blocks of these rows from 0, if that is not block_x().
  std::string print(llvm::StringRef block = "");
  /// The same for another template over a row body: returns its arguments `NameConfig` and `NameBody{…}`.
  std::pair<std::string, std::string> declare();

private:
  /// Which column an expression speaks of. The row's own are `chunk + lane`; rotary embeddings look
  /// elsewhere.
  struct Position {
    std::string key;    ///< empty: the thread's own columns
    std::string chunk;  ///< first column of the vector; empty if the columns are no vector
    std::string lane;   ///< place in the vector
    std::string column; ///< empty until the element is reached, if there is no vector
    std::string held;   ///< which of the vectors that the thread has in registers this is; empty if none
    int64_t vector = 1; ///< elements of a vector there
    const Position *from = nullptr;
    ColumnMap map;
  };

  body::Config config() const;
  std::string structs() const;
  void countUses();
  /// A member of Row or Live, as it is named in the body's functions.
  std::string rowMember(const std::string &type, llvm::StringRef stem);
  std::string liveMember(const std::string &type, llvm::StringRef stem, const std::string &count);
  /// Appends a function unless `write` writes nothing and `mayBeMissing`.
  void function(const std::string &signature, llvm::function_ref<void()> write, bool mayBeMissing = false);
  void rowFunction();
  void sizes();
  void requests();
  void passFunctions(unsigned number);
  void storeFunction();

  // RowLoads.cpp
  std::vector<const Node *> loadsOfColumns() const;
  void choosePreloads();
  void preload(bool early);
  void scalars(bool early);
  void choose(bool early);
  void prefetch(bool early);
  bool isPairFolded(const Node *load) const;
  std::string heldVectors(const Node *load) const;
  void fillPreload(const Node *load, bool early);
  bool isPreloaded(const Node *node) const { return preloaded.contains(node); }
  bool isConstant(const Node *load) const;
  bool isEarly(const Node *load) const;
  bool readsVectors(const Access &access) const;
  std::string loadVector(const Node *load, const std::string &column, int64_t vector, bool early);

  // RowPasses.cpp
  void declareLive(unsigned number);
  void pass(unsigned number);
  void stores(unsigned number);
  void storeVector(const Store *store, std::string vector);
  void storeGroup(const Store *store);
  void finish(unsigned number);
  void rowValuesOf(unsigned number);
  void accumulate(const Node *reduction);
  std::string guard(bool ofRows, const Store *store = nullptr);
  std::string placedRow(const Store *store);
  std::string targetOf(const Store *store);
  std::string storedElement(const Store *store);
  void storeValues(const Store *store, const std::string &pack);
  void finishReduction(const Node *reduction);
  bool writesVectors(const Store *store) const;

  // RowElements.cpp
  std::string rowValue(const Node *node);
  void rowValuesFor(const Node *node);
  std::string groupValue(const Node *node);
  void prepare(const Node *node, const Position &position);
  std::string element(const Node *node, const Position &position);
  std::string loadedElement(const Node *node, const Position &position);
  /// `rounded`: else what its value is rounded from; see scalar::Graph::isRoundedLast.
  std::string applied(const Node *node, const Position &position, bool rounded = true);
  const Position &moved(const Position &position, const ColumnMap &map);
  std::string column(const Position &position);
  bool isLive(const Node *node) const;

  // RowPairs.cpp
  /// What is computed as whole vectors of 16-bit elements, given that operands and results lie in them.
  void choosePacked();
  bool isPacked(const Node *node, const Position &position) const;
  /// Where the other one of a pair lies in the same vector, that vector's own place.
  const Position &ofWholeVector(const Position &position) const;
  /// The vector of a packed node, or of a load that one reads.
  std::string packedVector(const Node *node, const Position &position);
  bool isPairArithmetic(const Node *node, scalar::Value value, DType type) const;
  std::string pairText(const Node *node, scalar::Value value, const Position &position);

  // RowExchange.cpp
  void exchangeFunctions();
  void gatherFunctions();
  std::string ownPart();
  bool isReceived(const Node *node) const;
  /// Loaded for rows that this rank normalises, and for no others.
  bool isOfReducer(const Node *load) const {
    return exchange && exchange->gathersRows && load != exchange->sum->operands[0];
  }
  bool isGathered(const Store *store) const {
    return exchange && exchange->gathersRows && exchange->gathered.contains(store);
  }
  std::string gatherOffset(const Store *store, const std::string &column);
  /// Sends and stores one element.
  void storeGathered(const Store *store, const std::string &column, const std::string &guard,
                     const std::string &value);
  /// Stores what the rank that reduces the row has sent.
  void storeFromReducer(const Store *store, const std::string &column, const std::string &guard);

  // RowColumns.cpp
  llvm::SmallVector<scalar::Value> rowIndices(const DimShape &outer);
  bool movesChunks(const ColumnMap &map) const;
  std::string heldChunk(const Position &position, const ColumnMap &map) const;
  int64_t heldChunks(const Node *load) const;
  void findFolds();
  std::string mappedColumn(const ColumnMap &map, const std::string &column);
  std::string columnOffset(const Access &access, const std::string &column);

  /// Of an Apply or a Divisor, from the expressions of its operands.
  std::string expression(const Node *node, llvm::ArrayRef<std::string> operands, const std::string &column,
                         bool rounded = true);
  static std::string typeName(const Node *node);
  std::string local(const std::string &type, llvm::StringRef stem, const std::string &expression);
  void pointerFor(const void *user, const Access &access, bool isOutput, const std::string &array,
                  const std::string &arrayType = "");
  void comment(const Node *node);
  /// What a reduction reads of each element.
  const Node *termOf(const Node *reduction) const {
    auto pair = plan.moments.find(reduction);
    return (pair == plan.moments.end() ? reduction : pair->second)->operands[0];
  }
  bool isGuarded() const { return layout.inRegisters && layout.guarded(*graph.width.constant()); }
  bool vectors() const { return layout.vector > 1; }
  std::string vectorOf(DType type) const;

  const Graph &graph;
  const Layout layout;
  const KernelContext &context;
  const PassPlan plan;
  body::KernelSource &kernel;
  Writer writer;
  const std::string name;
  const bool quantizes;
  bool launches = true, asksEarly = false;
  /// 32-bit registers that may hold vectors loaded ahead; beyond it they would crowd out the values that live
  /// between passes.
  int64_t mostRegisters = 48;
  const Exchange *exchange = nullptr; ///< of a graph with a sum over ranks
  body::Members rowMembers, liveMembers;
  unsigned current = 0;                  ///< pass
  unsigned totals = 0;                   ///< reductions over the row
  std::map<const Node *, unsigned> uses; ///< by nodes and stores; what nothing uses is not there
  /// Where the row begins in a tensor.
  struct RowPointer {
    std::string name, base;
    scalar::Value offset;
  };
  scalar::Graph places;
  std::vector<RowPointer> pointers;
  llvm::SmallVector<std::optional<llvm::SmallVector<scalar::Value>>> outerIndices;
  std::map<const void *, std::string> pointerNames; ///< of a Load node or a Store
  std::map<const Node *, std::string> rowNames, arrays, accumulators;
  /// Vectors requested before the first pass, and the array that holds them: more loads in flight, and
  /// constants on their way while the kernel before this one still runs.
  std::vector<const Node *> preloads;
  std::map<const Node *, std::string> preloaded;
  std::map<const Node *, ColumnMap>
      folds; ///< by Load of a table of angles: how the row's columns go to its own
  mlir::Operation *commented = nullptr;
  struct Packed {
    DType type;
    bool inPairs; ///< else each element is computed, and the vector is rounded
  };
  std::map<const Node *, Packed> packed;

  // Inside one pass.
  Position own;
  std::map<std::string, Position> positions;
  std::map<const Node *, std::string> groupNames;
  std::map<std::pair<const Node *, std::string>, std::string> vectorNames, elementNames, packedNames;
};

} // namespace fusion::row
