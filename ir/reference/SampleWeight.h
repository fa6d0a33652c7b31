// The weight of a score of nn.sample.
#pragma once

#include <cstdint>

namespace fusion::reference {

/// 2^(40 - drop / 2^16), less than 2^-23 of it off, rounded down to a whole number. `drop`: below 40 * 2^16.
uint64_t sampleWeight(uint32_t drop);

} // namespace fusion::reference
