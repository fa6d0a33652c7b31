// A model cut beforehand: one graph file for each rank, with com.microsoft AllReduce between.
#pragma once

#include "ir/import/Onnx.h"

namespace fusion {

/// Whether `path` stands for several files: it holds `{rank}`, which is 0, 1, … in their names.
bool namesRankFiles(const std::string &path);
/// The file of one rank.
std::string rankFile(const std::string &path, int rank);

/// The files of `ranks` ranks as one module, whose function carries `nn.mesh`: rank 0's graph, with every
/// weight that differs read from each rank's own file. Constants that differ are parts of one by the symbol
/// `tp_rank`. Errors: those of an import; graphs that differ in more than numbers, with the first op that
/// does.
Result<mlir::OwningOpRef<mlir::ModuleOp>> importRankFiles(mlir::MLIRContext &context, const std::string &path,
                                                          int ranks, const ImportOptions &options);

} // namespace fusion
