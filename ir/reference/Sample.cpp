// Tokens drawn from rows of scores. A weight is an integer, so that a sum of them is the same in any order.
#include "ir/dialect/Sample.h"
#include "ir/base/Parallel.h"
#include "ir/reference/SampleWeight.h"
#include "ir/reference/Support.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace fusion::reference {
namespace {

using Wide = unsigned __int128;

constexpr uint32_t dropUnits = 1u << 16;

/// How far a score lies below the largest, in units of 2^-16 powers of two; nothing for what is never drawn.
std::optional<uint32_t> dropOf(float score, float largest, float scale) {
  if (score == largest)
    return 0;
  const float units = (largest - score) * scale;
  if (!(units < 40.0f * dropUnits))
    return std::nullopt;
  return static_cast<uint32_t>(units);
}

} // namespace

// Of 2^(1 - fraction), a polynomial in fraction - 1/2, 24 bits are kept.
uint64_t sampleWeight(uint32_t drop) {
  constexpr float terms[] = {-0.00189510675f, 0.0136019858f, -0.0784934834f,
                             0.339731574f,    -0.980258167f, 1.41421354f};
  const float t = static_cast<float>(drop % dropUnits) / dropUnits - 0.5f;
  float power = 0.000218657849f;
  for (float term : terms)
    power = std::fma(power, t, term);
  const auto bits = static_cast<uint64_t>(power * 0x1p23f); // 1 to 2: a whole number
  return (bits << 16) >> (drop / dropUnits);
}

namespace {
/// The first two words of Philox4x32-10 (Salmon et al., 2011).
uint64_t philox(uint64_t key, uint64_t counter, uint64_t stream) {
  uint32_t words[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                       static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t(0xD2511F53) * words[0], second = uint64_t(0xCD9E8D57) * words[2];
    words[0] = static_cast<uint32_t>(second >> 32) ^ words[1] ^ low;
    words[2] = static_cast<uint32_t>(first >> 32) ^ words[3] ^ high;
    words[1] = static_cast<uint32_t>(second);
    words[3] = static_cast<uint32_t>(first);
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  return words[0] | uint64_t(words[1]) << 32;
}

struct Sampling {
  float scale;
  int64_t count;
  uint64_t share;
};

int64_t draw(const std::vector<float> &scores, const Sampling &how, uint64_t key, uint64_t counter,
             uint64_t row) {
  float largest = -std::numeric_limits<float>::infinity();
  for (float score : scores)
    largest = score > largest ? score : largest;
  std::map<uint32_t, int64_t> drops; // how many scores have each
  for (float score : scores)
    if (auto drop = dropOf(score, largest, how.scale))
      ++drops[*drop];
  if (drops.empty())
    return 0;
  auto cut = std::prev(drops.end());
  if (how.count > 0) {
    int64_t taken = 0;
    for (auto drop = drops.begin(); drop != drops.end() && taken < how.count; ++drop) {
      taken += drop->second;
      cut = drop;
    }
  }
  auto sumTo = [&](auto last) {
    uint64_t sum = 0;
    for (auto drop = drops.begin(); drop != std::next(last); ++drop)
      sum += sampleWeight(drop->first) * static_cast<uint64_t>(drop->second);
    return sum;
  };
  if (how.share > 0) {
    const auto wanted = static_cast<uint64_t>((Wide(sumTo(cut)) * how.share) >> 64);
    uint64_t sum = 0;
    for (auto drop = drops.begin(); drop != std::next(cut); ++drop)
      if ((sum += sampleWeight(drop->first) * static_cast<uint64_t>(drop->second)) >=
          std::max<uint64_t>(wanted, 1)) {
        cut = drop;
        break;
      }
  }
  const auto drawn = static_cast<uint64_t>((Wide(philox(key, counter, row)) * sumTo(cut)) >> 64);
  uint64_t sum = 0;
  for (size_t place = 0; place < scores.size(); ++place)
    if (auto drop = dropOf(scores[place], largest, how.scale); drop && *drop <= cut->first)
      if ((sum += sampleWeight(*drop)) > drawn)
        return static_cast<int64_t>(place);
  return 0;
}

Result<Tensors> sample(const Call &call) {
  auto op = llvm::cast<nn::SampleOp>(call.op);
  const Tensor &scores = call.operand(0);
  const std::vector<int64_t> seed = call.operand(1).toInts();
  Shape shape = scores.shape();
  const int64_t length = shape.back();
  shape.pop_back();
  std::vector<int64_t> places(static_cast<size_t>(elementCount(shape)));
  if (length == 0 && !places.empty())
    return problem("rows of no scores");
  const Sampling how{op.scale(), static_cast<int64_t>(op.getTopK()), op.share()};
  parallelFor(static_cast<int64_t>(places.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(length));
    for (int64_t i = begin; i < end; ++i) {
      loadElements(scores, i * length, length, row.data());
      places[static_cast<size_t>(i)] = draw(row, how, static_cast<uint64_t>(seed[0]),
                                            static_cast<uint64_t>(seed[1]), static_cast<uint64_t>(i));
    }
  });
  return Tensors{Tensor::of<int64_t>(DType::I64, shape, std::span<const int64_t>(places))
                     .convertedTo(call.resultType())};
}

} // namespace

llvm::ArrayRef<Entry> sampleEntries() {
  static constexpr Entry entries[] = {{"nn.sample", sample}};
  return entries;
}

} // namespace fusion::reference
