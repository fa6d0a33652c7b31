// What random graphs are run on.
#pragma once

#include "ir/base/BindSymbols.h"
#include "ir/base/Tensor.h"

#include "llvm/ADT/ArrayRef.h"

#include <limits>
#include <optional>
#include <random>

namespace fusion::fuzz {

/// Some elements of floats without a role are NaN, infinite, zeros of both signs, denormal, or the largest
/// and smallest of their type and at most `largest`, and some decays are -infinity; with `tiny` zeros and
/// denormals only, without `cancel` no largest ones of both signs, whose sum is a rounding of the others.
struct SpecialValues {
  bool tiny = false, cancel = true;
  float largest = std::numeric_limits<float>::max();
};

/// The values of an input by its role, which stands before the _ in its name:
///   none    floats of mixed signs around 0.5, one in sixteen 4 times as large and one in sixteen 1000
///           times smaller; integers from 0 to 3
///   angle   from -1 to 1
///   scale   positive, from 1/64 to 1/4
///   zero    a zero point: of a signed type from -20 to 20, of an unsigned one from 100 to 140
///   code    any value of an integer type of 8 bits
///   decay   from -2 to 0
///   share   from 0 to 1
///   index   from 0 to 3
///   rows    [rows…, n, 1]: follow each other along n, from 0 to 20 on
///   seed, wild  any, the largest and smallest among them
NamedTensors randomValues(llvm::ArrayRef<PortShape> ports, const SymbolValues &symbols,
                          const std::optional<SpecialValues> &special, std::mt19937 &random);

/// `inputs` with each finite float of more than 8 bits that is not 0 moved to one of its two neighbours, away
/// from infinity; an f32 by `step` of its bits.
NamedTensors shaken(const NamedTensors &inputs, uint32_t step, std::mt19937 &random);

} // namespace fusion::fuzz
