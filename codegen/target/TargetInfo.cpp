#include "codegen/target/TargetInfo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace fusion {

namespace {

constexpr MatrixAtom mma16{"mma.m16n8k16", "16-bit floats", "f32", 16, 8, 16, 32};
constexpr MatrixAtom mmaInt8{"mma.m16n8k32", "8-bit integers", "i32", 16, 8, 32, 32};
constexpr MatrixAtom mmaF8{"mma.m16n8k32", "f8", "f32", 16, 8, 32, 32};
constexpr MatrixAtom wgmma16{"wgmma.m64k16", "16-bit floats", "f32", 64, 256, 16, 128};
constexpr MatrixAtom wgmma8{"wgmma.m64k32", "f8 and 8-bit integers", "f32 or i32", 64, 256, 32, 128};
constexpr MatrixAtom tcgen16{"tcgen05.mma.k16", "16-bit floats", "f32", 256, 256, 16, 128};
constexpr MatrixAtom tcgen8{"tcgen05.mma.k32", "f8, f6 and f4", "f32", 256, 256, 32, 128};
constexpr MatrixAtom tcgenInt8{"tcgen05.mma.k32", "8-bit integers", "i32", 256, 256, 32, 128};
constexpr MatrixAtom tcgen4{"tcgen05.mma.block_scale.k64", "f4", "f32", 256, 256, 64, 128};
constexpr MatrixAtom mmaF4{"mma.m16n8k64.block_scale", "f4", "f32", 16, 8, 64, 32};

constexpr MatrixAtom ampereAtoms[] = {mma16, mmaInt8};
constexpr MatrixAtom adaAtoms[] = {mma16, mmaInt8, mmaF8};
constexpr MatrixAtom hopperAtoms[] = {wgmma16, wgmma8, mma16, mmaInt8, mmaF8};
constexpr MatrixAtom blackwellAtoms[] = {tcgen16, tcgen8, tcgenInt8, tcgen4, mma16, mmaInt8, mmaF8};
constexpr MatrixAtom laterBlackwellAtoms[] = {tcgen16, tcgen8, tcgen4, mma16, mmaInt8, mmaF8};
constexpr MatrixAtom workstationAtoms[] = {mma16, mmaInt8, mmaF8, mmaF4};

constexpr uint32_t bits(Feature features) { return static_cast<uint32_t>(features); }
constexpr uint32_t ada = bits(Feature::F8Conversions | Feature::F8Mma);
constexpr uint32_t since90 =
    ada | bits(Feature::Clusters | Feature::ProgrammaticLaunch | Feature::Tma | Feature::TmaMulticast);
constexpr uint32_t ofHopper = bits(Feature::Wgmma);
constexpr uint32_t ofBlackwell = bits(Feature::Tcgen05 | Feature::F4Conversions | Feature::BlockScaledMma);
/// With `a` after the name, and not of a family: tcgen05.mma.kind::i8, says the PTX ISA.
constexpr uint32_t notOfFamilies = bits(Feature::Tcgen05Integers), ofB200 = ofBlackwell | notOfFamilies;
constexpr uint32_t ofWorkstations = bits(Feature::F4Conversions | Feature::BlockScaledMma);

struct Row {
  int number;
  int multiprocessors;
  int64_t l2MiB, blockKiB, multiprocessorKiB; ///< L2; shared memory
  int threads, blocks;                        ///< that a multiprocessor holds
  int matrixOps;
  uint32_t features;
  uint32_t ownFeatures; ///< with `a` or, of families, `f` after the name only
  std::span<const MatrixAtom> atoms;
  std::pair<int, int> oldestNvrtc = {12, 8};
};

/// After the CUDA programming guide's "Technical specifications per compute capability"; multiprocessors and
/// L2 of the largest product. Not every figure has been checked; where a device is present, what its driver
/// tells counts. In order of numbers.
constexpr Row rows[] = {
    {80, 108, 40, 163, 164, 2048, 32, 2048, 0, 0, ampereAtoms},                             // A100
    {86, 84, 6, 99, 100, 1536, 16, 1024, 0, 0, ampereAtoms},                                // A40, A10
    {87, 16, 4, 163, 164, 1536, 16, 1024, 0, 0, ampereAtoms},                               // Orin
    {89, 142, 96, 99, 100, 1536, 24, 1024, ada, 0, adaAtoms},                               // L40S
    {90, 132, 50, 227, 228, 2048, 32, 4096, since90, ofHopper, hopperAtoms},                // H100, H200
    {100, 148, 126, 227, 228, 2048, 32, 8192, since90, ofB200, blackwellAtoms},             // B200
    {103, 148, 126, 227, 228, 2048, 32, 8192, since90, ofBlackwell, laterBlackwellAtoms, {12, 9}}, // B300
    {120, 188, 128, 99, 100, 1536, 24, 1024, since90, ofWorkstations, workstationAtoms},    // RTX PRO 6000
    {121, 48, 24, 99, 100, 1536, 24, 1024, since90, ofWorkstations, workstationAtoms, {12, 9}}, // GB10
};

struct Named {
  Feature feature;
  std::string_view name;
  bool used; ///< by at least one template in codegen/device
};
constexpr Named featureNames[] = {
    {Feature::F8Conversions, "f8 conversions", true},
    {Feature::F8Mma, "f8 mma.sync", true},
    {Feature::Clusters, "clusters", true},
    {Feature::ProgrammaticLaunch, "programmatic dependent launch", true},
    {Feature::Tma, "TMA", true},
    {Feature::TmaMulticast, "TMA multicast", false},
    {Feature::Wgmma, "wgmma", true},
    {Feature::Tcgen05, "tcgen05", true},
    {Feature::F4Conversions, "f4 conversions", false},
    {Feature::BlockScaledMma, "block-scaled mma", false},
    {Feature::Tcgen05Integers, "tcgen05 of integers", true},
};

/// The architectures whose plain name means the one with `a`, which has the features that kernels use.
bool alwaysOwn(const Row &row) { return row.ownFeatures & ofHopper; }

TargetInfo made(const Row &row, std::string suffix) {
  if (suffix.empty() && alwaysOwn(row))
    suffix = "a";
  TargetInfo info;
  info.name = fmt::format("sm_{}{}", row.number, suffix);
  info.number = row.number;
  info.multiprocessors = row.multiprocessors;
  info.l2Bytes = row.l2MiB << 20;
  info.sharedBytesPerBlock = row.blockKiB << 10;
  info.sharedBytesPerMultiprocessor = row.multiprocessorKiB << 10;
  info.threadsPerMultiprocessor = row.threads;
  info.blocksPerMultiprocessor = row.blocks;
  info.matrixOpsPerClock = row.matrixOps;
  info.features = row.features | (suffix.empty() ? 0 : row.ownFeatures);
  if (suffix != "a")
    info.features &= ~notOfFamilies;
  info.atoms = row.atoms;
  info.oldestNvrtc = row.oldestNvrtc;
  return info;
}

/// The best name of a row.
std::string suffixOf(const Row &row) { return row.ownFeatures ? "a" : ""; }

} // namespace

std::string_view featureName(Feature feature) {
  for (const Named &named : featureNames)
    if (named.feature == feature)
      return named.name;
  return "";
}

Result<Feature> featureNamed(std::string_view name) {
  for (const Named &named : featureNames)
    if (named.name == name)
      return named.feature;
  return badInput(fmt::format("\"{}\" is no feature of an architecture", name));
}

Result<TargetInfo> TargetInfo::find(std::string_view name) {
  std::string_view digits = name;
  int number = 0;
  if (digits.starts_with("sm_")) {
    digits.remove_prefix(3);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const std::string suffix(end, digits.data() + digits.size());
    for (const Row &row : rows)
      if (error == std::errc() && row.number == number &&
          (suffix.empty() || (row.ownFeatures && (suffix == "a" || (suffix == "f" && !alwaysOwn(row))))))
        return made(row, suffix);
  }
  return badInput(
      fmt::format("'{}' is not an architecture that kernels are made for; known are {}", name, knownNames()));
}

TargetInfo TargetInfo::ofDevice(int major, int minor) {
  const int number = 10 * major + minor;
  const Row *best = &rows[0];
  for (const Row &row : rows)
    if (row.number <= number)
      best = &row;
  if (best->number == number)
    return made(*best, suffixOf(*best));
  TargetInfo info = made(*best, ""); // kernels of the older one, compiled for this one
  info.name = fmt::format("sm_{}", number);
  info.number = number;
  info.features = best->features;
  return info;
}

const TargetInfo &TargetInfo::standard() {
  static const TargetInfo info = *find("sm_90a");
  return info;
}

std::vector<std::string> TargetInfo::all() {
  std::vector<std::string> names;
  for (const Row &row : rows)
    names.push_back(made(row, suffixOf(row)).name);
  return names;
}

int64_t TargetInfo::mostSharedBytesPerBlock() {
  int64_t most = 0;
  for (const Row &row : rows)
    most = std::max(most, row.blockKiB << 10);
  return most;
}

std::string TargetInfo::knownNames() { return fmt::format("{}", fmt::join(all(), ", ")); }

int64_t TargetInfo::clustersAtOnce(int64_t blocks, int64_t together) const {
  // cudaOccupancyMaxActiveClusters on an H200; others are taken to be like it.
  constexpr int64_t measured = 132,
                    most[2][8] = {{132, 66, 39, 30, 22, 17, 15, 15}, {264, 132, 79, 62, 47, 39, 32, 30}};
  return most[together - 1][blocks - 1] * multiprocessors / measured;
}

bool TargetInfo::runsOn(int major, int minor) const {
  if (name.ends_with('a'))
    return number == 10 * major + minor;
  return number / 10 == major && number % 10 <= minor;
}

std::vector<std::string_view> TargetInfo::unusedFeatures() const {
  std::vector<std::string_view> names;
  for (const Named &named : featureNames)
    if (!named.used && has(named.feature))
      names.push_back(named.name);
  return names;
}

} // namespace fusion
