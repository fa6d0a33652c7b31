// Parts of random graphs: what fusions match, and often something just beside it.
#pragma once

#include "GraphBuilder.h"

namespace fusion::fuzz {

using Motif = void (*)(GraphBuilder &);

// Motifs.cpp: rows of the hidden width.
void addNorm(GraphBuilder &builder);
void matmulEpilogue(GraphBuilder &builder);
void gatedMatmul(GraphBuilder &builder);
void gatedActivation(GraphBuilder &builder);
void normMatmuls(GraphBuilder &builder);
void softmax(GraphBuilder &builder);
void normByHand(GraphBuilder &builder);
void siblingNorms(GraphBuilder &builder);
void step(GraphBuilder &builder); ///< one op
// MotifsHeads.cpp: [batch, heads, positions, width]; positions of a cache are p, new ones s.
void attention(GraphBuilder &builder);
void ropes(GraphBuilder &builder);
void cacheWrite(GraphBuilder &builder);
void decode(GraphBuilder &builder);
void headsOfMatmul(GraphBuilder &builder);
void pages(GraphBuilder &builder);
// MotifsQuantized.cpp: 8 bits.
void normQuantized(GraphBuilder &builder);
void scaledMatmul(GraphBuilder &builder);
void integerMatmul(GraphBuilder &builder);
// MotifsRouted.cpp: experts, tokens, and states.
void router(GraphBuilder &builder);
void experts(GraphBuilder &builder);
void tokens(GraphBuilder &builder);
void linearAttention(GraphBuilder &builder);
void causalConvolution(GraphBuilder &builder);

} // namespace fusion::fuzz
