#include "runtime/emulate/TensorMemory.h"

#include "ir/base/DType.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>

namespace fusion::emulate {

using fusion_emulation::TensorKind;

constexpr unsigned poison = ~0u; // a NaN

static unsigned bitsOf(uint64_t from, unsigned first, unsigned count) {
  return static_cast<unsigned>(from >> first & ((uint64_t(1) << count) - 1));
}

uint16_t TensorMemory::Range::units() const {
  const unsigned first = begin / unit, last = (end + unit - 1) / unit;
  return static_cast<uint16_t>((1u << last) - (1u << first));
}

void TensorMemory::reset(unsigned char *of, size_t bytes, unsigned count) {
  shared = of;
  sharedBytes = bytes;
  memory.clear();
  allocations.clear();
  mostColumns = columns;
  isRelinquished = false;
  now = 0;
  pending.clear();
  written.fill(0);
  fencedReads.fill(0);
  threads.assign(count, {});
}

std::string TensorMemory::allocate(unsigned count, unsigned &address) {
  if (!std::has_single_bit(count) || count < unit || count > columns)
    return fmt::format("tcgen05_allocate: {} columns are no power of two from 32 to 512", count);
  if (isRelinquished)
    return "tcgen05_allocate: the block has relinquished the right to allocate";
  if (count > mostColumns)
    return "tcgen05_allocate: more columns than the allocation before";
  Range range{0, count}; // the last ones, so that no address is 0 by chance
  for (unsigned begin = columns; begin >= count; begin -= unit) {
    range = {begin - count, begin};
    if (std::none_of(allocations.begin(), allocations.end(),
                     [&](const Range &other) { return other.overlaps(range); })) {
      if (memory.empty())
        memory.resize(size_t(lanes) * columns);
      for (unsigned lane = 0; lane < lanes; ++lane)
        std::fill_n(memory.begin() + lane * columns + range.begin, count, poison);
      allocations.push_back(range);
      mostColumns = count;
      address = range.begin;
      return "";
    }
  }
  return fmt::format("tcgen05_allocate: waits for ever for {} columns", count);
}

std::string TensorMemory::free(unsigned address, unsigned count) {
  auto found = std::find_if(allocations.begin(), allocations.end(), [&](const Range &range) {
    return range.begin == address && range.end == address + count;
  });
  if (found == allocations.end())
    return "tcgen05_free: the columns were not allocated so";
  for (const Product &product : pending)
    if (!product.commit && product.columns.overlaps(*found))
      return "tcgen05_free: products that write there have not ended";
  for (const ThreadState &thread : threads) {
    for (const Load &load : thread.loads)
      if (load.columns.overlaps(*found))
        return "tcgen05_free: a thread still reads there, tcgen05_wait_loads() is missing";
    if (thread.unfencedReads & found->units())
      return "tcgen05_free: a thread has read there without tcgen05_fence_before_sync()";
  }
  allocations.erase(found);
  return "";
}

bool TensorMemory::isAllocated(const Range &range) const {
  return std::any_of(allocations.begin(), allocations.end(),
                     [&](const Range &one) { return one.begin <= range.begin && range.end <= one.end; });
}

/// PTX ISA 9.0, 9.7.16.3.3 "Canonical Layouts", in bytes: T is 16 of them.
size_t TensorMemory::Matrix::place(unsigned row, unsigned k, unsigned elementBytes) const {
  const size_t span = size_t(16) << swizzle;
  size_t offset;
  if (byDepth) {
    const size_t byte = size_t(row) * elementBytes;
    offset = swizzle ? byte % span + byte / span * leading + k % 8 * span + k / 8 * stride
                     : byte % 16 + byte / 16 * stride + k % 8 * 16 + k / 8 * leading;
  } else {
    const size_t byte = size_t(k) * elementBytes;
    offset = swizzle ? row % 8 * span + row / 8 * stride + byte
                     : row % 8 * 16 + row / 8 * stride + byte % 16 + byte / 16 * leading;
  }
  const size_t address = start + offset, mask = (size_t(1) << swizzle) - 1;
  return address ^ (address >> 7 & mask) << 4;
}

/// PTX ISA 9.0, 9.7.16.4.1, table 40.
std::string TensorMemory::decode(uint64_t descriptor, unsigned rows, bool byDepth, unsigned elementBytes,
                                 const char *of, Matrix &matrix) const {
  auto fault = [&](const char *what) {
    return fmt::format("tcgen05_multiply: {}'s descriptor {}", of, what);
  };
  if (bitsOf(descriptor, 46, 3) != 1)
    return fault("has not 0b001 in bits 46 to 48");
  if (bitsOf(descriptor, 49, 3) != 0 || bitsOf(descriptor, 52, 1) != 0)
    return fault("has a base offset or absolute addresses, which are not emulated");
  if (bitsOf(descriptor, 53, 8) != 0 || bitsOf(descriptor, 14, 2) != 0 || bitsOf(descriptor, 30, 2) != 0)
    return fault("has bits that are no field's");
  switch (bitsOf(descriptor, 61, 3)) {
  case 0:
    matrix.swizzle = 0;
    break;
  case 6:
    matrix.swizzle = 1;
    break;
  case 4:
    matrix.swizzle = 2;
    break;
  case 2:
    matrix.swizzle = 3;
    break;
  default:
    return fault("has a swizzling mode that is none, or not emulated");
  }
  matrix.start = uint64_t(bitsOf(descriptor, 0, 14)) << 4;
  matrix.leading = uint64_t(bitsOf(descriptor, 16, 14)) << 4;
  matrix.stride = uint64_t(bitsOf(descriptor, 32, 14)) << 4;
  matrix.byDepth = byDepth;
  const unsigned depth = 32 / elementBytes, each = 16 / elementBytes;
  matrix.begin = SIZE_MAX;
  for (unsigned row = 0; row < rows; row += byDepth ? each : 1)
    for (unsigned k = 0; k < depth; k += byDepth ? 1 : each) {
      const size_t place = matrix.place(row, k, elementBytes);
      matrix.begin = std::min(matrix.begin, place);
      matrix.end = std::max(matrix.end, place + 16);
    }
  return matrix.end > sharedBytes ? fault("leads out of the block's dynamic shared memory") : "";
}

/// The instruction's descriptor: PTX ISA 9.0, 9.7.16.4.2, table 42.
std::string TensorMemory::multiply(unsigned thread, const fusion_emulation::TensorProduct &product,
                                   const AsyncProxy &proxy) {
  const uint64_t bits = product.instruction;
  const bool isF16 = product.kind == TensorKind::F16, isI8 = product.kind == TensorKind::I8;
  const unsigned m = bitsOf(bits, 24, 5) << 4, n = bitsOf(bits, 17, 6) << 3, elementBytes = isF16 ? 2 : 1,
                 typeA = bitsOf(bits, 7, 3), typeB = bitsOf(bits, 10, 3);
  if (bitsOf(bits, 0, 4) || bitsOf(bits, 6, 1) || bitsOf(bits, 13, 2) || bitsOf(bits, 23, 1) ||
      bitsOf(bits, 29, 3))
    return "tcgen05_multiply: the instruction's descriptor has bits that are not emulated";
  if (bitsOf(bits, 4, 2) != (isI8 ? 2u : 1u) || typeA > 1 || typeB > 1)
    return "tcgen05_multiply: the instruction's descriptor has types that its kind has not";
  if (m != lanes || n < 8 || n > 256 || (isI8 && n > 32 && n % 16 != 0))
    return fmt::format("tcgen05_multiply: {} x {} is no shape, or one that is not emulated", m, n);
  Product made{thread, product, {}, {}, {product.d & 0xffff, (product.d & 0xffff) + n}, nullptr};
  if (product.d >> 16)
    return "tcgen05_multiply: the result does not begin with lane 0";
  if (!isAllocated(made.columns))
    return "tcgen05_multiply: the result's columns are not allocated";
  for (bool isA : {true, false}) {
    Matrix &matrix = isA ? made.a : made.b;
    const bool byDepth = bitsOf(bits, isA ? 15 : 16, 1) != 0;
    if (byDepth && !isF16 && !isA && n % 16 != 0)
      return "tcgen05_multiply: B of bytes by depth has columns in sixteens";
    if (std::string fault =
            decode(isA ? product.a : product.b, isA ? m : n, byDepth, elementBytes, isA ? "A" : "B", matrix);
        !fault.empty())
      return fault;
    if (std::string fault =
            proxy.checkRead(shared + matrix.begin, matrix.end - matrix.begin, "tcgen05_multiply");
        !fault.empty())
      return fault;
  }
  for (const ThreadState &other : threads) {
    if (other.unfencedReads & made.columns.units())
      return "tcgen05_multiply: a thread has read the result's columns without tcgen05_fence_before_sync()";
    for (const Load &load : other.loads)
      if (load.columns.overlaps(made.columns))
        return "tcgen05_multiply: a thread still reads the result's columns, tcgen05_wait_loads() is missing";
  }
  for (unsigned u = 0; u < units; ++u)
    if (made.columns.units() >> u & 1 && fencedReads[u] > threads[thread].fencedAfter)
      return "tcgen05_multiply: others have read the result's columns, tcgen05_fence_after_sync() is missing";
  for (const Product &other : pending)
    if (!other.commit && other.columns.overlaps(made.columns) && other.thread != thread)
      return "tcgen05_multiply: products of another thread to the same columns have not ended";
  pending.push_back(made);
  return "";
}

template <class Sum, class Decode>
void TensorMemory::accumulate(const Product &product, unsigned depth, unsigned elementBytes,
                              const Decode &decode) {
  const unsigned n = product.columns.end - product.columns.begin,
                 typeA = bitsOf(product.product.instruction, 7, 3),
                 typeB = bitsOf(product.product.instruction, 10, 3);
  std::vector<Sum> b(size_t(depth) * n);
  for (unsigned k = 0; k < depth; ++k)
    for (unsigned column = 0; column < n; ++column)
      b[size_t(k) * n + column] = decode(shared + product.b.place(column, k, elementBytes), typeB);
  std::vector<Sum> sums(n);
  for (unsigned row = 0; row < lanes; ++row) {
    unsigned *to = &memory[size_t(row) * columns + product.columns.begin];
    if (product.product.accumulate)
      std::memcpy(sums.data(), to, n * sizeof(Sum));
    else
      std::fill(sums.begin(), sums.end(), Sum());
    for (unsigned k = 0; k < depth; ++k) {
      const Sum a = decode(shared + product.a.place(row, k, elementBytes), typeA);
      const Sum *of = &b[size_t(k) * n];
      for (unsigned column = 0; column < n; ++column)
        sums[column] += a * of[column];
    }
    std::memcpy(to, sums.data(), n * sizeof(Sum));
  }
}

void TensorMemory::execute(const Product &product) {
  switch (product.product.kind) {
  case TensorKind::F16:
    accumulate<float>(product, 16, 2, [](const unsigned char *from, unsigned type) {
      uint16_t bits;
      std::memcpy(&bits, from, 2);
      return type == 0 ? f16ToF32(bits) : bf16ToF32(bits);
    });
    break;
  case TensorKind::F8:
    accumulate<float>(product, 32, 1, [](const unsigned char *from, unsigned type) {
      return type == 0 ? f8e4m3ToF32(*from) : f8e5m2ToF32(*from);
    });
    break;
  case TensorKind::I8:
    accumulate<uint32_t>(product, 32, 1, [](const unsigned char *from, unsigned type) {
      return type == 0 ? uint32_t(*from) : static_cast<uint32_t>(static_cast<signed char>(*from));
    });
    break;
  }
  ++now;
  for (unsigned u = 0; u < units; ++u)
    if (product.columns.units() >> u & 1)
      written[u] = now;
}

std::string TensorMemory::poll(void *barrier, AsyncProxy &proxy, bool &some) {
  const auto last =
      std::find_if(pending.begin(), pending.end(), [&](const Product &one) { return one.commit == barrier; });
  some = last != pending.end();
  if (!some)
    return "";
  for (size_t count = static_cast<size_t>(last - pending.begin()) + 1; count > 0; --count) {
    const Product product = pending.front();
    pending.pop_front();
    if (!product.commit)
      execute(product);
    else if (std::string fault = proxy.arrive(product.commit, 0); !fault.empty())
      return "tcgen05_commit: " + fault;
  }
  return "";
}

std::string TensorMemory::checkWrite(const void *to, size_t bytes) const {
  const auto *begin = static_cast<const unsigned char *>(to);
  for (const Product &product : pending)
    for (const Matrix *matrix : {&product.a, &product.b})
      if (!product.commit && begin < shared + matrix->end && shared + matrix->begin < begin + bytes)
        return "tma_load_tile: products that read there have not ended";
  return "";
}

std::string TensorMemory::load(unsigned thread, unsigned address, unsigned repeats, unsigned *to) {
  const unsigned lane = address >> 16, column = address & 0xffff, warp = thread / 32 % 4;
  const Range range{column, column + 8 * repeats};
  if (lane != 32 * warp && lane != 32 * warp + 16)
    return fmt::format("tcgen05_load: lane {} on is not for warp {} of a warpgroup to read", lane, warp);
  if (!isAllocated(range))
    return "tcgen05_load: the columns are not allocated";
  for (const Product &product : pending)
    if (!product.commit && product.columns.overlaps(range))
      return "tcgen05_load: products that write there have not been waited for";
  for (unsigned u = 0; u < units; ++u)
    if (range.units() >> u & 1 && written[u] > threads[thread].fencedAfter)
      return "tcgen05_load: tcgen05_fence_after_sync() is missing after the wait for the products";
  std::fill_n(to, 4 * repeats, poison);
  threads[thread].loads.push_back({range, lane, repeats, to});
  return "";
}

/// Figure 186 of the PTX ISA: registers 0 and 1 are of row l / 4, 2 and 3 of row l / 4 + 8.
void TensorMemory::awaitLoads(unsigned thread) {
  ThreadState &mine = threads[thread];
  for (const Load &load : mine.loads) {
    const unsigned row = load.lane + thread % 32 / 4, column = load.columns.begin + thread % 4 * 2;
    for (unsigned repeat = 0; repeat < load.repeats; ++repeat)
      for (unsigned e = 0; e < 4; ++e)
        load.to[4 * repeat + e] = memory[size_t(row + e / 2 * 8) * columns + column + 8 * repeat + e % 2];
    mine.unfencedReads |= load.columns.units();
  }
  mine.loads.clear();
}

void TensorMemory::fenceBefore(unsigned thread) {
  ThreadState &mine = threads[thread];
  ++now;
  for (unsigned u = 0; u < units; ++u)
    if (mine.unfencedReads >> u & 1)
      fencedReads[u] = now;
  mine.unfencedReads = 0;
}

std::string TensorMemory::checkEnd() const {
  if (!allocations.empty())
    return "ends without tcgen05_free() of what it has allocated";
  return pending.empty() ? "" : "ends before its products, or the arrivals after them, have been waited for";
}

} // namespace fusion::emulate
