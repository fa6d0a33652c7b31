// Writes the source of a row kernel: sweeps over the row, each ending in the reductions that the next one
// needs.
#pragma once

#include "codegen/schedule/RowLayout.h"

namespace fusion::row {

/// How the ranks exchange the rows of a graph with a sum over them, and the memory that this takes.
struct Exchange {
  Exchange(const KernelContext &context, int64_t ranks, const Graph &graph, const Layout &layout);
  CollectiveForm form;
  int64_t ranks;
  Dim blocks;                     ///< that take part
  const Node *sum = nullptr;
  int64_t rowBytes = 0;           ///< of a row in a slot
  Dim slotBytes, areaBytes, messageBytes;
  Dim roundBytes;                 ///< at least areaBytes, and the same for all regions with the same sum
  /// What an owner sends back: the sum, or the finished row, which is then what stores write.
  bool finished = false;
  std::map<const Store *, int64_t> replies; ///< if finished: what is sent, and where in the row's part of a slot
  int64_t replyBytes = 0;                   ///< of a row
  Dim replySlotBytes;
  /// Where each block has one row.
  OwnedRows ownedRows(const Region &region, const Graph &graph) const;

private:
  bool findReplies(const Graph &graph, const Layout &layout, const KernelContext &context);
};

/// How many elements of a row a store writes.
int64_t elementsOfRow(const Graph &graph, const Store &store);

class Emitter {
public:
  /// `block`: the expression that numbers the blocks of this graph from 0. `launches`: lets the next kernel
  /// start once it has waited for those before.
  Emitter(const KernelContext &context, const Graph &graph, const Layout &layout, KernelWriter &writer,
          std::string block, bool launches = true)
      : graph(graph), layout(layout), context(context), plan(planSweeps(graph, layout.inRegisters, layout.inCluster())), writer(writer),
        block(std::move(block)), launches(launches) {}
  Emitter &over(const Exchange &ranks) {
    exchange = &ranks;
    return *this;
  }
  void emit();

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

  void header();
  void shareBlock(const std::string &rows);
  void countUses();
  void pointers();
  // RowPreload.cpp
  void choosePreloads();
  void preload(bool early);
  void fetchAhead(bool early);
  bool isPairFolded(const Node *load) const;
  std::string preloadedChunks(const Node *load) const;
  void declarePreload(const Node *load);
  void fillPreload(const Node *load, bool settled);
  bool isPreloaded(const Node *node) const { return preloaded.contains(node); }
  bool isConstant(const Node *load) const;
  bool isEarly(const Node *load) const;
  bool readsVectors(const Access &access) const;
  std::string loadVector(const Node *load, const std::string &column, int64_t vector, bool settled);
  void sweep(unsigned number);
  void declare(unsigned number);
  void chunkBody(unsigned number);
  void accumulate(const Node *reduction);
  std::string chunkColumn() const;
  std::string chunkCount() const { return layout.inCluster() ? "chunks" : std::to_string(layout.chunks); }
  std::string guard(bool ofRows, const Store *store = nullptr) const;
  std::string storedElement(const Store *store);
  void storeValues(const Store *store, const std::string &pack);
  void finishReduction(const Node *reduction);
  bool evenMoments() const { return !layout.shifted && !isGuarded(); }
  void beginMoments(const Node *squares);
  void finishMoments(const Node *squares);
  void storeRow(const Store *store);

  std::string rowValue(const Node *node);
  void rowValuesFor(const Node *node);
  std::string groupValue(const Node *node);
  void prepare(const Node *node, const Position &position);
  std::string element(const Node *node, const Position &position);
  std::string applied(const Node *node, const Position &position);
  const Position &moved(const Position &position, const ColumnMap &map);
  // RowPairs.cpp
  /// What is computed as whole vectors of 16-bit elements, given that operands and results lie in them.
  void choosePacked();
  bool isPacked(const Node *node, const Position &position) const;
  /// Where the other one of a pair lies in the same vector, that vector's own place.
  const Position &ofWholeVector(const Position &position) const;
  /// The vector of a packed node, or of a load that one reads.
  std::string packedVector(const Node *node, const Position &position);
  std::string textOf(const Node *node);
  // RowExchange.cpp
  void meetRanks();
  void exchangeRows();
  void endRound();
  void sumEverywhere(const std::string &declaration, llvm::function_ref<void(const std::string &)> keep);
  void sumAtOwners(const std::string &declaration, llvm::function_ref<void(const std::string &)> keep);
  std::string ownPart();
  // RowReplies.cpp
  /// Loaded for rows that this rank owns, and for no others.
  bool isOwners(const Node *load) const { return exchange && exchange->finished && load != exchange->sum->operands[0]; }
  std::string toReply(const Store *store, const std::string &column);
  bool isReply(const Store *store) const { return exchange && exchange->finished && exchange->replies.contains(store); }
  /// Sends and stores one element.
  void storeReply(const Store *store, const std::string &column, const std::string &guard, const std::string &value);
  void sendReply(const Store *store, const std::string &column, const std::string &guard, const std::string &values);
  void takeReplies();
  void takeReply(const Store *store, const std::string &column, const std::string &guard);
  void forChunks(llvm::function_ref<void(const std::string &at)> body);
  // RowHeads.cpp
  llvm::SmallVector<std::string> rowIndices(const DimShape &lead);
  bool movesChunks(const ColumnMap &map) const;
  std::string heldChunk(const Position &position, const ColumnMap &map) const;
  int64_t heldChunks(const Node *load) const;
  void findFolds();
  std::string mappedColumn(const ColumnMap &map, const std::string &column);
  std::string column(const Position &position);

  std::string expression(const Node *node, llvm::ArrayRef<std::string> operands, const std::string &column);
  /// A node's text with its operands in place.
  std::string filled(llvm::StringRef text, llvm::ArrayRef<std::string> operands, const std::string &column);
  std::string local(const std::string &type, llvm::StringRef stem, const std::string &expression);
  std::string columnOffset(const Access &access, const std::string &column);
  void pointerFor(const void *user, const Access &access, bool isOutput, const std::string &into = "");
  void comment(const Node *node);
  bool isKept(const Node *node) const;
  /// What a reduction reads of each element.
  const Node *termOf(const Node *reduction) const {
    auto pair = plan.moments.find(reduction);
    return (pair == plan.moments.end() ? reduction : pair->second)->operands[0];
  }
  bool isGuarded() const { return layout.inRegisters && layout.guarded(*graph.width.constant()); }
  bool vectors() const { return layout.vector > 1; }
  /// The thread's first column.
  std::string threadStart() const { return vectors() ? thread + " * " + std::to_string(layout.vector) : thread; }

  const Graph &graph;
  const Layout layout;
  const KernelContext &context;
  const SweepPlan plan;
  KernelWriter &writer;
  const std::string block;
  const bool launches;
  const Exchange *exchange = nullptr; ///< of a graph with a sum over ranks
  unsigned current = 0; ///< sweep
  std::string thread, active;
  std::string shift;        ///< if shifted: elements of the first vector that lie before the row
  std::string last, inside; ///< if guarded: the column of the last chunk, or 0, and whether it is in the row
  unsigned blockReductions = 0;
  std::map<const Node *, unsigned> uses; ///< by nodes and stores; what nothing uses is not there
  llvm::SmallVector<std::optional<llvm::SmallVector<std::string>>> leadIndices;
  std::string row;
  std::map<const void *, std::string> pointerNames; ///< of a Load node or a Store
  std::map<const Node *, std::string> rowNames, arrays, accumulators;
  std::map<const Node *, std::string> ownCounts, ownMeans; ///< by the squares of SweepPlan::moments: see beginMoments()
  /// Vectors requested before the first sweep, and the array that holds them: more loads in flight, and constants
  /// on their way while the kernel before this one still runs.
  std::vector<const Node *> preloads;
  std::map<const Node *, std::string> preloaded;
  std::map<const Node *, ColumnMap> folds; ///< by Load of a table of angles: how the row's columns go to its own
  mlir::Operation *commented = nullptr;
  struct Packed {
    DType type;
    std::string text; ///< on vectors; empty: each element is computed and rounded
  };
  std::map<const Node *, Packed> packed;

  // Inside one chunk.
  Position own;
  std::map<std::string, Position> positions;
  std::map<const Node *, std::string> groupNames;
  std::map<std::pair<const Node *, std::string>, std::string> vectorNames, elementNames, packedNames;
};

} // namespace fusion::row
