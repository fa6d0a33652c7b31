// matmul_epilogue: a matmul and what is computed from each element of its result.
#include "passes/fuse/Grow.h"

#include "ir/dialect/Dialect.h"

using namespace mlir;

namespace fusion {

Proposals proposeEpilogues(const ProposalContext &context) {
  Proposals proposals;
  for (auto matmul : context.block.getOps<nn::MatmulOp>()) {
    OpSet ops;
    ops.insert(matmul);
    ScalarTail tail(context.traffic, matmul.getY(), /*wholeRows=*/false);
    while (tail.next(ops)) {
      Candidate candidate;
      candidate.pattern = "matmul_epilogue";
      candidate.root = matmul;
      candidate.ops.assign(ops.begin(), ops.end());
      proposals.candidates.push_back(std::move(candidate));
    }
    if (ops.size() == 1)
      proposals.misses.push_back({matmul, tail.reason()});
  }
  return proposals;
}

ArrayRef<Proposer> proposers() {
  static const Proposer all[] = {{"rope_kv_write", proposeCacheWrites},
                                 {"qkv_matmul", proposeMatmuls},
                                 {"expert_matmul", proposeExperts},
                                 {"router", proposeRouters},
                                 {"norm_matmul", proposeNormMatmuls},
                                 {"qkv_rope", proposeQkvRopes},
                                 {"rope_attention", proposeRopeAttentions},
                                 {"matmul_arg_max", proposeArgMaxes, /*isForRest=*/true},
                                 {"embedding_norm", proposeEmbeddingNorms, /*isForRest=*/true},
                                 {"sibling_norms", proposeSiblingNorms, /*isForRest=*/true},
                                 {"norm_epilogue", proposeNormEpilogues, /*isForRest=*/true},
                                 {"attention_layout", proposeAttentionLayouts, /*isForRest=*/true},
                                 {"matmul_epilogue", proposeEpilogues, /*isForRest=*/true},
                                 {"scaled_matmul", proposeScaledMatmuls, /*isForRest=*/true},
                                 {"scaled_attention", proposeScaledAttentions, /*isForRest=*/true},
                                 {"paged_attention", proposePagedAttentions, /*isForRest=*/true},
                                 {"latent_attention", proposeLatentAttentions, /*isForRest=*/true},
                                 {"sink_attention", proposeSinkAttentions, /*isForRest=*/true},
                                 {"bounded_attention", proposeBoundedAttentions, /*isForRest=*/true},
                                 {"row_reduction", proposeReductions, /*isForRest=*/true},
                                 {"pointwise", proposePointwise, /*isForRest=*/true}};
  return all;
}

} // namespace fusion
