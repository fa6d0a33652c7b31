// What a GPU architecture has: data for schedules, compilers and reports. Adding an architecture is adding a
// row in TargetInfo.cpp; nothing else compares architecture numbers.
#pragma once

#include "ir/base/Result.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fusion {

/// What some architectures can do and others cannot.
enum class Feature : uint32_t {
  F8Conversions = 1 << 0,      ///< between f8 and f16 or f32, by an instruction
  F8Mma = 1 << 1,              ///< mma.sync of f8
  Clusters = 1 << 2,           ///< blocks that reach each other's shared memory
  ProgrammaticLaunch = 1 << 3, ///< a kernel starts while the one before it ends (griddepcontrol)
  Tma = 1 << 4,                ///< tensor copies by the copy engine (cp.async.bulk.tensor)
  TmaMulticast = 1 << 5,       ///< one such copy for several blocks of a cluster
  Wgmma = 1 << 6,              ///< matrix products of a warpgroup, from shared memory
  Tcgen05 = 1 << 7,            ///< matrix products with accumulators in tensor memory
  F4Conversions = 1 << 8,      ///< between f4 (e2m1), f6 and f16
  BlockScaledMma = 1 << 9,     ///< products of f8, f6 and f4 with a scale for each block of k
  Tcgen05Integers = 1 << 10,   ///< of the products with accumulators in tensor memory those of 8-bit integers
};
constexpr Feature operator|(Feature a, Feature b) {
  return static_cast<Feature>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
/// "TMA multicast", "tcgen05": for reports.
std::string_view featureName(Feature feature);
/// The feature with that name, if there is one.
Result<Feature> featureNamed(std::string_view name);

/// One instruction for matrix products: D[m][n] += A[m][k] B[k][n].
struct MatrixAtom {
  std::string_view name;       ///< "mma.m16n8k16", "wgmma.m64k16"
  std::string_view operands;   ///< element type of A and B
  std::string_view accumulator;
  int m, n, k;                 ///< n: the largest
  int threads;                 ///< that take part
};

/// An architecture as a kernel meets it. Sizes in bytes.
struct TargetInfo {
  std::string name;             ///< what to compile for: "sm_90a"
  int number = 0;               ///< 90: for messages only
  int multiprocessors = 0;      ///< of a present device, else of the largest product
  int64_t l2Bytes = 0;          ///< likewise
  int64_t sharedBytesPerBlock = 0;
  int64_t sharedBytesPerMultiprocessor = 0;
  int threadsPerMultiprocessor = 0;
  int blocksPerMultiprocessor = 0;
  int registersPerMultiprocessor = 65536;
  int threadsPerBlock = 1024;
  int matrixOpsPerClock = 0;    ///< dense 16-bit operations of a multiprocessor; 0: not known
  uint32_t features = 0;        ///< a set of Feature
  std::span<const MatrixAtom> atoms;
  std::pair<int, int> oldestNvrtc = {12, 8}; ///< version that compiles for it

  /// The row of "sm_90a", "sm_90", "sm_100f", …: `a` allows an architecture's own instructions, `f` those of
  /// its family; sm_90 is taken as sm_90a. Unknown names are refused by a message that names the known ones
  /// (BadInput).
  static Result<TargetInfo> find(std::string_view name);
  /// The row of a device of that compute capability; one without a row gets what the newest older one has.
  static TargetInfo ofDevice(int major, int minor);
  /// sm_90a: what is planned for where nobody names a target.
  static const TargetInfo &standard();
  /// "sm_80, sm_86, …, sm_120a"
  static std::string knownNames();
  /// Of the row with the most.
  static int64_t mostSharedBytesPerBlock();
  /// The names of all rows.
  static std::vector<std::string> all();

  bool has(Feature feature) const {
    return (features & static_cast<uint32_t>(feature)) == static_cast<uint32_t>(feature);
  }
  /// Clusters of `blocks` blocks, 1 to 8, that the device holds at once where a multiprocessor holds
  /// `together` of their blocks, 1 or 2. Those of a cluster are neighbours, so that some places stay empty.
  int64_t clustersAtOnce(int64_t blocks, int64_t together) const;
  /// A cubin compiled for `name` runs on a device of compute capability major.minor.
  bool runsOn(int major, int minor) const;
  /// Names of features that no kernel of this compiler uses yet.
  std::vector<std::string_view> unusedFeatures() const;
};

} // namespace fusion
