// How the ranks exchange the rows of a graph with a sum over them.
#pragma once

#include "codegen/body/Config.h"
#include "codegen/schedule/RowLayout.h"

namespace fusion::row {

/// Of a row of addends as it travels: a multiple of 16.
int64_t sentRowBytes(int64_t width, DType type);

/// The memory that an exchange takes, and what travels through it.
struct Exchange {
  Exchange(const KernelContext &context, int64_t ranks, const Graph &graph, const Layout &layout);
  CollectiveAlgorithm algorithm;
  int64_t ranks;
  Dim blocks; ///< that take part
  const Node *sum = nullptr;
  int64_t rowBytes = 0; ///< of a row in a slot
  Dim slotBytes, areaBytes, messageBytes;
  bool isSent = false; ///< KernelContext's; the addends are in memory, too, but are not read there
  Dim roundBytes; ///< at least areaBytes, and the same for all regions with the same sum
  /// Two-shot: what is gathered after the reduce-scatter. The sum, or the row that its reducer has
  /// normalised, which is then what stores write.
  bool gathersRows = false;
  std::map<const Store *, int64_t> gathered; ///< if so: what is sent, and where in the row's part of a slot
  int64_t gatheredBytes = 0;                 ///< of a row
  Dim gatherSlotBytes;
  /// Where each block has one row.
  ScatteredRows scatteredRows(const Region &region, const Graph &graph) const;
  /// Adds what describes it; see codegen/device/all_reduce_row.cuh.
  void configure(body::Config &config) const;

private:
  bool findGathered(const Graph &graph, const Layout &layout, const KernelContext &context);
};

} // namespace fusion::row
