// The phases as pass pipelines.
#pragma once

#include "passes/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace fusion {

/// One spelling for every graph: constants folded, no-ops gone, views composed, common subexpressions merged.
void buildNormalisePipeline(mlir::OpPassManager &manager);
/// Decomposed norms, activations, rotary embeddings, attention and routed experts become named ops. Expects a
/// normalised module. Without `assumeFinite` nothing is left out that only finite values allow to leave out.
/// `keeps`: of attention with large heads; null: none.
void buildRaisePipeline(mlir::OpPassManager &manager, bool assumeFinite = true, KeepsAttention keeps = {});
/// One rank's graph of `ranks`, tidied up; with `vocabulary`, embedding and head are divided too. Expects a
/// raised module.
void buildShardPipeline(mlir::OpPassManager &manager, int64_t ranks, bool vocabulary);
/// `--nn-normalise` and `--nn-raise`.
void registerPipelines();

} // namespace fusion
