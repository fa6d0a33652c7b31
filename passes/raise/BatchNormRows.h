// Layer norms that are written as a batch normalisation of rows.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// Pattern: tf.keras's LayerNormalization, which sees the rows of x as the channels of [1, rows, size, 1]:
/// x r + (0 - mean r), with rows as its last dim again, [mul weight] [add bias] -> layer_norm(x, weight,
/// bias), where `inverse` is r = 1 / sqrt(sum((x - mean)^2) / size + eps) of each row.
void raiseBatchNormRows(nn::RsqrtOp inverse, Raiser &raiser);

} // namespace fusion::raise
