// What kernels that talk to other ranks and the runtime agree on: the symmetric workspace, through which the
// ranks exchange data. Each rank's device has one Exchange, which says where it lies. Both sides include this
// text: the kernel's side has no headers, so only built-in types appear.

#ifndef FUSION_EXCHANGE_ABI_H
#define FUSION_EXCHANGE_ABI_H
namespace fusion_exchange {

constexpr unsigned maxRanks = 8;
/// Collectives take turns over so many areas of every rank's memory. A rank clears the area of collective n
/// during n + 1; no rank writes there again before n + 3, which needs what that rank sends in n + 2.
constexpr unsigned rounds = 3;
/// A word that has not been written yet. As bf16, f16, f32 or f8 it is a NaN, which is sent with other bits.
constexpr unsigned emptyWord = 0xffffffffu;

/// Why a wait was given up; the host reads it.
struct Failure {
  unsigned happened; ///< not 0: kernels no longer wait
  unsigned awaited;  ///< the rank whose data did not come
  unsigned phase;    ///< 1: its part of a sum, 2: a gathered row
  unsigned row;      ///< which row of the tensor was waited for
};

struct Exchange {
  unsigned rank, ranks;
  unsigned long long roundBytes;   ///< size of one area
  unsigned char
      *memory[maxRanks]; ///< each rank's areas, as this rank reaches them; filled with emptyWord before use
  unsigned long long spinTimeout;  ///< nanoseconds that a wait may last
  Failure *failure;                ///< in host memory that the device reaches
  // Kernels write what follows; it starts as zeros.
  unsigned long long used[rounds]; ///< bytes at the start of an own area that are not empty any more
  unsigned round;                  ///< the area of the next collective
  unsigned finishedBlocks;         ///< of the running one, those that have read all this
  unsigned gaveUp; ///< not 0: a kernel of this rank has filled in `failure`, or found it filled in
};

} // namespace fusion_exchange
#endif
