#include "Values.h"

#include "api/Trial.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fusion::fuzz {
namespace {

/// Of an integer type.
void store(Tensor &tensor, int64_t i, int64_t value) {
  switch (byteSize(tensor.type())) {
  case 1:
    tensor.as<int8_t>()[i] = static_cast<int8_t>(value);
    return;
  case 2:
    tensor.as<int16_t>()[i] = static_cast<int16_t>(value);
    return;
  case 4:
    tensor.as<int32_t>()[i] = static_cast<int32_t>(value);
    return;
  default:
    tensor.as<int64_t>()[i] = value;
  }
}

class Filler {
public:
  Filler(Tensor &tensor, std::mt19937 &random) : tensor(tensor), random(random) {}

  void byRole(std::string_view role) {
    const bool isSigned = isSignedInteger(tensor.type());
    if (role == "angle")
      floats([&] { return 2 * fraction() - 1; });
    else if (role == "scale")
      floats([&] { return std::exp2(-6 + 4 * fraction()); });
    else if (role == "decay")
      floats([&] { return -2 * fraction(); });
    else if (role == "share")
      floats([&] { return fraction(); });
    else if (role == "zero")
      integers([&](int64_t) { return isSigned ? below(41) - 20 : 100 + below(41); });
    else if (role == "code")
      integers([&](int64_t) { return below(256); });
    else if (role == "page" || role == "sequence")
      integers([&](int64_t) { return below(role == "page" ? 6 : 2); });
    else if (role == "slot")
      slots();
    else if (role == "rows")
      rows();
    else if (role == "seed" || role == "wild")
      integers([&](int64_t) { return any(); });
  }

  /// Of one kind or of all, a few or one.
  void special(const SpecialValues &chosen) {
    static constexpr float infinity = std::numeric_limits<float>::infinity(),
                           nan = std::numeric_limits<float>::quiet_NaN();
    const float largest = std::min(largestOf(tensor.type()), chosen.largest),
                opposite = chosen.cancel ? -largest : largest,
                normal = std::ldexp(1.f, smallestExponent(tensor.type())), denormal = normal / 4;
    const std::vector<std::vector<float>> kinds = {
        {nan},
        {infinity, -infinity},
        {0, -0.f, denormal, -denormal, normal},
        {largest, opposite, largest / 2},
        {nan, infinity, -infinity, 0, -0.f, denormal, largest, opposite}};
    const std::vector<float> &kind = kinds[static_cast<size_t>(chosen.tiny ? 2 : below(kinds.size()))];
    std::vector<float> values = tensor.toFloats();
    const int64_t often = below(2) ? 64 : 8;
    for (float &value : values)
      if (below(static_cast<uint64_t>(often)) == 0)
        value = kind[static_cast<size_t>(below(kind.size()))];
    tensor = Tensor::of<float>(DType::F32, tensor.shape(), values).convertedTo(tensor.type());
  }

  int64_t below(uint64_t count) { return static_cast<int64_t>(random() % count); }

private:
  static float largestOf(DType type) {
    return type == DType::F16    ? 65504.f
           : type == DType::BF16 ? 3.3895314e38f
                                 : std::numeric_limits<float>::max();
  }
  static int smallestExponent(DType type) { return type == DType::F16 ? -14 : -126; }

  float fraction() { return static_cast<float>(random() % 4096) / 4096; }
  int64_t any() {
    static constexpr int64_t extremes[] = {INT64_MIN, INT64_MAX, INT32_MIN,       INT32_MAX,
                                           0,         -1,        int64_t{1} << 53};
    if (below(4) == 0)
      return extremes[below(std::size(extremes))];
    return static_cast<int64_t>(random()) << 32 | random();
  }
  template <class Value>
  void floats(Value value) {
    std::vector<float> values(static_cast<size_t>(tensor.size()));
    for (float &each : values)
      each = value();
    tensor = Tensor::of<float>(DType::F32, tensor.shape(), values).convertedTo(tensor.type());
  }
  template <class Value>
  void integers(Value value) {
    for (int64_t i = 0; i < tensor.size(); ++i)
      store(tensor, i, value(i));
  }
  void rows() {
    const int64_t count = tensor.rank() < 2 ? 1 : tensor.shape()[static_cast<size_t>(tensor.rank()) - 2];
    int64_t first = 0;
    integers([&](int64_t i) { return (i % count == 0 ? first = below(21) : first) + i % count; });
  }

  /// No two alike.
  void slots() {
    const int64_t first = below(2), step = below(2) ? 1 : -1;
    integers([&](int64_t i) { return step > 0 ? i + first : tensor.size() - 1 - i; });
  }

  Tensor &tensor;
  std::mt19937 &random;
};

} // namespace

NamedTensors randomValues(llvm::ArrayRef<PortShape> ports, const SymbolValues &symbols,
                          const std::optional<SpecialValues> &special, std::mt19937 &random) {
  NamedTensors inputs = randomInputs(ports, symbols, TrialValues{0.5f, 4.f}, random);
  for (auto &[name, tensor] : inputs) {
    Filler filler(tensor, random);
    const size_t end = name.find('_');
    const std::string role = end == std::string::npos ? "" : name.substr(0, end);
    filler.byRole(role);
    const bool isWide = isFloat(tensor.type()) && byteSize(tensor.type()) > 1;
    if (special && isWide && role.empty() && filler.below(2) == 0)
      filler.special(*special);
    if (special && !special->tiny && role == "decay" && tensor.size() > 0 && filler.below(4) == 0)
      tensor.as<float>()[filler.below(static_cast<uint64_t>(tensor.size()))] =
          -std::numeric_limits<float>::infinity();
  }
  return inputs;
}

/// `step` of the bits towards 0 or away from it.
template <class Bits>
static void shakeBits(Tensor &tensor, Bits infinity, std::mt19937 &random, Bits step = 1) {
  Bits *bits = tensor.as<Bits>();
  constexpr Bits magnitude = static_cast<Bits>(~Bits{0}) >> 1;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const Bits size = bits[i] & magnitude;
    if (size == 0 || size >= infinity)
      continue;
    const bool mayGrow = size + step < infinity, mayShrink = size >= step;
    if (!mayGrow && !mayShrink)
      continue;
    const bool shrinks = !mayGrow || (mayShrink && random() % 2 == 0);
    bits[i] = static_cast<Bits>(shrinks ? bits[i] - step : bits[i] + step);
  }
}

NamedTensors shaken(const NamedTensors &inputs, uint32_t step, std::mt19937 &random) {
  NamedTensors moved;
  for (const auto &[name, tensor] : inputs) {
    Tensor &copy = moved[name] = tensor.clone();
    if (copy.type() == DType::F32)
      shakeBits<uint32_t>(copy, 0x7f800000, random, step);
    else if (copy.type() == DType::F16)
      shakeBits<uint16_t>(copy, 0x7c00, random);
    else if (copy.type() == DType::BF16)
      shakeBits<uint16_t>(copy, 0x7f80, random);
  }
  return moved;
}

} // namespace fusion::fuzz
