// When two computations of a random graph agree.
#pragma once

#include "ir/base/Tensor.h"

#include <vector>

namespace fusion::fuzz {

struct Agreement {
  double tolerance = 0; ///< relative L2
  double smallest = 0;  ///< absolute, of one element: what roundings near 0 come to
  int steps = 0; ///< that integers of 8 bits, which are quantised floats, may be apart; 0 in other graphs
  bool byRows =
      false; ///< each row of the last dim by itself: values of very different sizes do not hide each other
};

/// More of the graph as written, where the first comparison fails; empty tensors where there is none.
struct Evidence {
  std::vector<Tensor> shaken; ///< its inputs moved by one step of their types (f32 by one of the graph's
                              ///< narrowest), and its GELU's tails 0
  Tensor wide; ///< all its floats of 16 and 32 bits in f64: no rounding, no overflow on the way
};

/// Why `actual` is not what was expected; empty if it is.
///   - Type and shape are the same. Integers are, but for quantised floats, which may lie `steps` apart, in
///     L2 as floats.
///   - An element that is NaN is NaN in both, whatever its sign and payload; an infinite one is the same
///     infinity. Zeros of both signs are equal.
///   - Of the finite ones the L2 distance is at most `tolerance` times the length of what was expected.
/// With evidence there is more that agrees:
///   - An element that is not of one kind (NaN, an infinity, finite), or not one integer, in all shaken
///     computations is not compared: a rounding of the inputs decides it. The finite ones may differ by 8
///     times as much as those do.
///   - Nor is one compared that is of another kind in the wide computation: as written it overflows on the
///     way, where a named op, which rounds once, does not.
///   - A row of which the shaken computations change a tenth is not compared, where rows are, but for kinds:
///     a sum of 256 numbers has 256 roundings of its largest, and they have one.
///   - An integer may be what the wide computation gives.
///   - The finite ones may be as near to the wide computation as the graph as written is, and half as much
///     again.
std::string difference(const Tensor &actual, const Tensor &expected, const Agreement &rule,
                       const Evidence &evidence = {});

} // namespace fusion::fuzz
