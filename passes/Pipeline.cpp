#include "passes/Pipeline.h"

#include "passes/Passes.h"

#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace fusion {

void buildNormalisePipeline(OpPassManager &manager) {
  // Merged values show equal operands to the second round, and simpler graphs more constants.
  for (int round = 0; round < 2; ++round) {
    manager.addPass(createFoldConstants());
    manager.addPass(createCanonicalize());
    manager.addPass(createCSEPass());
    if (round == 0)
      manager.addPass(createFoldPositions());
  }
}

void buildRaisePipeline(OpPassManager &manager, bool assumeFinite, KeepsAttention keeps) {
  manager.addPass(createRaiseNorm({assumeFinite}));
  manager.addPass(createRaiseActivation());
  manager.addPass(createRaiseSoftmax());
  manager.addPass(createRaiseGroupLimit());
  manager.addPass(createRaiseExpertMatmul());
  manager.addPass(createRaiseDenseExperts({assumeFinite}));
  manager.addPass(createRaiseRope({assumeFinite}));
  manager.addPass(createRaiseAttention({assumeFinite}));
  manager.addPass(createDecomposeAttention(std::move(keeps)));
  manager.addPass(createUnpackGates());
  manager.addPass(createFoldConstants());
  manager.addPass(createStackWeights());
  manager.addPass(createCanonicalize());
  manager.addPass(createCSEPass());
}

void buildShardPipeline(OpPassManager &manager, int64_t ranks, bool vocabulary) {
  manager.addPass(createShard({ranks, vocabulary}));
  manager.addPass(createCanonicalize());
  manager.addPass(createCSEPass());
}

void registerPipelines() {
  PassPipelineRegistration<>("nn-normalise", "one spelling for every graph", buildNormalisePipeline);
  PassPipelineRegistration<>("nn-raise", "decomposed spellings become named ops",
                                     [](OpPassManager &manager) { buildRaisePipeline(manager); });
}

} // namespace fusion
