// Attention in windows of a picture: a mask for each window, where batch and windows are one dim.
#pragma once

#include "passes/raise/MaskMatch.h"

namespace fusion::raise {

/// reshape(reshape(scores) + mask), where the scores are [batch * windows, heads, queries, keys] and the sum
/// [batch, windows, heads, queries, keys]; the mask is the same for all of the batch.
struct WindowMask {
  mlir::Value scores, mask;
  Dim windows;
};
std::optional<WindowMask> matchWindowMask(mlir::Value value, ShapeTable &shapes);

/// [batch * windows, heads, s, d] as [batch, windows * heads, s, d]: what lies in memory is the same. Null
/// where the first dim is not provably a multiple of the windows.
mlir::Value withWindowHeads(mlir::Value x, const Dim &windows, Raiser &raiser);
/// The mask over scores of [batch * windows, heads, ..], or a window's own if `ofWindows`, laid over those of
/// [batch, windows * heads, ..]. Null as above.
mlir::Value maskOfWindowHeads(mlir::Value mask, bool ofWindows, const Dim &windows, const Dim &heads,
                              Raiser &raiser);

} // namespace fusion::raise
