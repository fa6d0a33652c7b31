#include "FakeKernels.h"

#include <map>
#include <string>

namespace {

constexpr int illegalAddress = 700;

float *floatsAt(uint64_t pointer) { return reinterpret_cast<float *>(pointer); }

int scale(const std::vector<uint64_t> &a, uint64_t threads) {
  auto count = static_cast<size_t>(a[3]);
  if (!isAllocated(a[0], count * 4) || !isAllocated(a[1], 16) || !isAllocated(a[2], count * 4) ||
      threads < count)
    return illegalAddress;
  for (size_t i = 0; i < count; ++i)
    floatsAt(a[2])[i] = 2.0f * floatsAt(a[0])[i] * floatsAt(a[1])[i % 4];
  return 0;
}

int add(const std::vector<uint64_t> &a, uint64_t threads) {
  auto count = static_cast<size_t>(a[4]);
  if (!isAllocated(a[0], count * 4) || !isAllocated(a[1], count * 4) || !isAllocated(a[2], 4) ||
      !isAllocated(a[3], count * 4) || threads < count)
    return illegalAddress;
  for (size_t i = 0; i < count; ++i)
    floatsAt(a[3])[i] = floatsAt(a[0])[i] + floatsAt(a[1])[i] + floatsAt(a[2])[0];
  return 0;
}

/// The stand-in's own encoding: the view's address, its rows and columns, and the bytes from row to row.
int tile(const std::vector<uint64_t> &a, uint64_t threads) {
  const uint64_t rows = a[1], columns = a[2], pitch = a[3];
  float *out = floatsAt(a[16]), *marks = floatsAt(a[17]);
  if (!isAllocated(a[0], (rows - 1) * pitch + columns * 4) || !isAllocated(a[16], rows * columns * 4) ||
      !isAllocated(a[17], 4) || threads < columns)
    return illegalAddress;
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t column = 0; column < columns; ++column)
      out[row * columns + column] = floatsAt(a[0] + row * pitch)[column] + marks[0];
  return 0;
}

const std::map<std::string, FakeKernel> kernels = {{"scale", {scale, {1, 1, 1, 1}}},
                                                   {"scale_few", {scale, {1, 1, 1, 1}}},
                                                   {"add", {add, {1, 1, 1, 1, 1}}},
                                                   {"tile", {tile, {16, 1, 1}}}};

} // namespace

const FakeKernel *findFakeKernel(const char *name) {
  auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : &found->second;
}
