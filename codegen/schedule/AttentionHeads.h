// What an attention of few rows makes itself before it looks at keys: its queries, where they are not there
// as it reads them, and the last keys and values, as rows of row bodies. See
// codegen/device/attention_decode_heads.cuh.
#pragma once

#include "codegen/body/KernelSource.h"
#include "codegen/schedule/AttentionProblem.h"
#include "codegen/schedule/RopeAttentionParts.h"
#include "codegen/schedule/RowParts.h"

namespace fusion::attention {

/// Rows of heads, each a row of one row graph.
struct HeadRows {
  row::Part *part = nullptr;
  /// By which of entry, head and position, each of so many, its rows are numbered, the slowest first.
  llvm::SmallVector<std::pair<unsigned, Dim>> dims;
};

struct MadeHeads {
  const RopeAttentionParts &parts;
  const Region &kernel;                 ///< of which `parts` are
  KernelContext context;                ///< of it
  mlir::Value keptKeys = {}; ///< the cache of keys, if new rows stay in shared memory: attention_decode.cuh
  llvm::SmallVector<View> outputs = {}; ///< of parts.heads, as the attention reads them
  row::Parts rowParts = {};
  HeadRows queries = {}; ///< without a part: they are an input
  /// Of each of parts.caches what is new; where data places it, also rows that are cleared.
  llvm::SmallVector<HeadRows> fresh[2] = {};

  /// Whether no kernel that may still run when this one starts writes the caches.
  bool readsCachesEarly() const;
  /// The number of an output of the kernel.
  unsigned outputOf(mlir::Value value) const;
  /// The input of the kernel that is, or is the memory of, input `index` of parts.attention.
  unsigned inputOf(unsigned index) const;
  /// Declares the row bodies, and writes the functor `heads` into the entry point of a kernel with so many
  /// warps a block.
  void write(const Problem &problem, int64_t warps, body::KernelSource &source, body::Code &entry) const;
};

/// The heads of a kernel, or why a tile's warps cannot make them. What is passed must outlive them.
std::variant<std::unique_ptr<MadeHeads>, std::string>
madeHeads(const RopeAttentionParts &parts, const Region &kernel, const KernelContext &context,
          mlir::Value keptKeys = {});

} // namespace fusion::attention
