// The conversions of emitted kernels are those of the host library, which the reference uses.
#include "ir/base/DType.h"
#include "test/codegen/device/Machine.h"
#include "test/codegen/device/Samples.h"

#include <cmath>
#include <cstring>

using namespace fusion;
using namespace fusion::samples;

static DType dtypeOf(const std::string &deviceName) {
  static const std::vector<std::pair<std::string, DType>> names = {
      {"bool", DType::Bool}, {"i8", DType::I8},         {"u8", DType::U8},         {"i16", DType::I16},
      {"u16", DType::U16},   {"i32", DType::I32},       {"u32", DType::U32},       {"i64", DType::I64},
      {"u64", DType::U64},   {"f8e4m3", DType::F8E4M3}, {"f8e5m2", DType::F8E5M2}, {"f16", DType::F16},
      {"bf16", DType::BF16}, {"f32", DType::F32},       {"f64", DType::F64}};
  for (const auto &[name, type] : names)
    if (name == deviceName)
      return type;
  return DType::F32;
}

/// The bits of element `index`, all NaNs of a type made one.
static uint64_t canonical(DType type, const std::vector<uint8_t> &bytes, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * byteSize(type), byteSize(type));
  if (!isFloat(type))
    return bits;
  double value = 0;
  convert(type, bytes.data() + index * byteSize(type), DType::F64, &value, 1);
  return std::isnan(value) ? ~0ull : bits;
}

static void compare(Kernels &kernels, size_t index, const std::string &from, const std::string &to,
                    std::vector<uint8_t> source) {
  const DType fromType = dtypeOf(from), toType = dtypeOf(to);
  const int64_t count = int64_t(source.size() / byteSize(fromType));
  std::vector<uint8_t> expected(count * byteSize(toType)), got(expected.size());
  convert(fromType, source.data(), toType, expected.data(), size_t(count));
  Status status = kernels.launch(index, {uint32_t((count + 255) / 256)}, {source, got, count});
  ASSERT_TRUE(status) << status.error().message;
  if (std::memcmp(expected.data(), got.data(), got.size()) == 0)
    return;
  for (int64_t i = 0; i < count; ++i)
    ASSERT_EQ(canonical(toType, got, i), canonical(toType, expected, i))
        << from << " to " << to << ", source bits " << std::hex << canonical(fromType, source, i);
}

/// Every value of a narrow type; of wide ones bit patterns that sit on and beside the rounding boundaries of
/// narrower ones, and integers of every magnitude.
static std::vector<uint8_t> values(DType type) {
  std::vector<uint8_t> bytes;
  auto add = [&](uint64_t bits) {
    const auto *begin = reinterpret_cast<const uint8_t *>(&bits);
    bytes.insert(bytes.end(), begin, begin + byteSize(type));
  };
  if (type == DType::Bool) {
    add(0);
    add(1);
  } else if (byteSize(type) <= 2) {
    for (uint64_t bits = 0; bits < 1ull << (8 * byteSize(type)); ++bits)
      add(bits);
  } else if (type == DType::F32) {
    for (uint64_t high = 0; high < 1 << 16; ++high)
      for (uint64_t low : {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff})
        add(high << 16 | low);
  } else if (type == DType::F64) {
    for (int exponent = -40; exponent < 70; ++exponent)
      for (int step = 0; step < 64; ++step)
        for (double sign : {1., -1.}) {
          const double value = sign * std::ldexp(1 + step / 64., exponent);
          uint64_t bits;
          std::memcpy(&bits, &value, 8);
          add(bits);
        }
    for (uint64_t special : {0x7ff8000000000000ull, 0x7ff0000000000000ull, 0xfff0000000000000ull, 0ull})
      add(special);
  } else {
    for (int shift = 0; shift < int(8 * byteSize(type)); ++shift)
      for (int64_t offset = -9; offset <= 9; ++offset) {
        add((1ull << shift) + offset);
        add(~(1ull << shift) + offset);
      }
  }
  return bytes;
}

class Conversion : public OnMachine {};
INSTANTIATE_TEST_SUITE_P(, Conversion, testing::Values(Machine::Emulated, Machine::Cuda),
                         testing::PrintToStringParamName());

TEST_P(Conversion, EveryPairOfTypes) {
  std::vector<KernelPlan> plans;
  for (const std::string &from : elementTypes())
    for (const std::string &to : elementTypes())
      plans.push_back(conversion(from, to));
  auto kernels = compileFor(GetParam(), plans);
  ASSERT_TRUE(kernels) << kernels.error().message;
  size_t next = 0;
  for (const std::string &from : elementTypes()) {
    const std::vector<uint8_t> source = values(dtypeOf(from));
    for (const std::string &to : elementTypes()) {
      compare(**kernels, next++, from, to, source);
      if (HasFatalFailure())
        return;
    }
  }
}
