// The schedules, one instance each.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

const Schedule &pointwiseSchedule(); ///< one thread per output element, everything else recomputed
const Schedule &rowSchedule();       ///< a block or warp per row: norms, softmax, reductions of the last dims
const Schedule &scanSchedule();      ///< cumsum, arg_max, top_k, sample, scatter_nd
const Schedule &matmulSchedule();
const Schedule &matmulChainSchedule(); ///< a norm, matmuls of it, heads of their results
const Schedule &matmulArgMaxSchedule(); ///< a matmul, and the place of the largest of each row
const Schedule &expertSchedule();  ///< nn.expert_matmul
const Schedule &routerSchedule();  ///< the choice of experts
const Schedule &attentionSchedule();
const Schedule &linearAttentionSchedule();
const Schedule &ropeAttentionSchedule(); ///< rotations, writes into a cache, nn.attention
const Schedule &collectiveSchedule(); ///< a sum over ranks and rows after it

} // namespace fusion
