// Which motifs a random graph has.
#include "Motifs.h"

#include <array>

namespace fusion::fuzz {

/// Those of rows twice: most fusions are among them.
static constexpr std::array motifs = {
    addNorm,       matmulEpilogue, gatedMatmul, gatedActivation, normMatmuls,     softmax,
    normByHand,    siblingNorms,   addNorm,     matmulEpilogue,  gatedMatmul,     normMatmuls,
    attention,     ropes,          cacheWrite,  headsOfMatmul,   normQuantized,   scaledMatmul,
    integerMatmul, router,         experts,     tokens,          linearAttention, causalConvolution,
    ropes,         pages,          decode,      decode};

RandomGraph randomGraph(uint64_t seed) {
  GraphBuilder builder(seed);
  for (int i = 0, count = 1 + builder.random.below(4); i < count; ++i)
    if (builder.random.chance(75))
      motifs[static_cast<size_t>(builder.random.below(motifs.size()))](builder);
    else
      step(builder);
  if (builder.isEmpty())
    builder.keep(builder.unary("relu", builder.any()));
  return builder.finish();
}

} // namespace fusion::fuzz
