#include "runtime/emulate/AsyncProxy.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace fusion::emulate {

using fusion_emulation::TensorMap;

constexpr unsigned char poisonByte = 0xff; // a NaN in every float type

static unsigned stepOf(const TensorMap &map, unsigned dim) { return map.elementStrides[dim]; }
/// Elements that a tile takes along a dim.
static size_t extentOf(const TensorMap &map, unsigned dim) {
  return (map.box[dim] + stepOf(map, dim) - 1) / stepOf(map, dim);
}

size_t bytesOf(const TensorMap &map) {
  size_t bytes = map.elementBytes;
  for (unsigned dim = 0; dim < map.rank; ++dim)
    bytes *= extentOf(map, dim);
  return bytes;
}

/// Where byte `offset` of a tile at shared-memory address `tile` lies: vectors of 16 bytes change places.
static size_t swizzled(const TensorMap &map, size_t tile, size_t offset) {
  const size_t address = tile + offset, mask = (size_t(1) << map.swizzle) - 1;
  return address ^ (address >> 7 & mask) << 4;
}

/// What elements outside of the tensor are read as.
static void fillOutside(const TensorMap &map, unsigned char *element) {
  std::memset(element, 0, map.elementBytes);
  if (map.nanExponentBits == 0)
    return;
  const uint64_t nan = ((uint64_t(1) << (map.nanExponentBits + 1)) - 1)
                       << (map.elementBytes * 8 - 2 - map.nanExponentBits);
  std::memcpy(element, &nan, map.elementBytes);
}

/// Calls `visit(offset in the tile, address in global memory or null)` for each element.
template <class Visit>
static void eachElement(const TensorMap &map, const int *place, const Visit &visit) {
  size_t index[5] = {};
  const size_t count = bytesOf(map) / map.elementBytes;
  for (size_t i = 0; i < count; ++i) {
    unsigned char *address = map.base;
    for (unsigned dim = 0; dim < map.rank && address; ++dim) {
      const int64_t at = place[dim] + static_cast<int64_t>(index[dim] * stepOf(map, dim));
      address = at < 0 || at >= static_cast<int64_t>(map.shape[dim])
                    ? nullptr
                    : address + static_cast<uint64_t>(at) * map.strides[dim];
    }
    visit(i * map.elementBytes, address);
    for (unsigned dim = 0; dim < map.rank && ++index[dim] == extentOf(map, dim); ++dim)
      index[dim] = 0;
  }
}

void AsyncProxy::reset(unsigned char *memory, size_t bytes, unsigned threads) {
  shared = memory;
  sharedBytes = bytes;
  barriers.clear();
  loads.clear();
  published.clear();
  stores.assign(threads, {});
}

std::string AsyncProxy::initBarrier(void *barrier, unsigned arrivals) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 != 0 || arrivals == 0)
    return "mbarrier_init: not aligned to 8 bytes, or for no arrivals";
  barriers[barrier] = {arrivals, arrivals, 0, 0, false};
  return "";
}

void AsyncProxy::publishBarriers() {
  for (auto &[address, barrier] : barriers)
    barrier.isPublished = true;
}

void AsyncProxy::complete(Barrier &barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0)
    return;
  ++barrier.phase;
  barrier.missing = barrier.arrivals;
}

std::string AsyncProxy::arrive(void *barrier, unsigned expectedBytes) {
  auto found = barriers.find(barrier);
  if (found == barriers.end())
    return "arrives at an mbarrier that nobody has initialised";
  if (found->second.missing == 0)
    return "arrives at an mbarrier at which all have arrived in this phase";
  --found->second.missing;
  found->second.bytes += expectedBytes;
  complete(found->second);
  return "";
}

std::string AsyncProxy::poll(void *barrier, unsigned parity, bool &completed) {
  auto found = barriers.find(barrier);
  if (found == barriers.end())
    return "waits for an mbarrier that nobody has initialised";
  for (size_t i = 0; i < loads.size();) {
    if (loads[i].barrier != barrier) {
      ++i;
      continue;
    }
    const Load load = loads[i];
    loads.erase(loads.begin() + static_cast<ptrdiff_t>(i));
    const size_t tile = static_cast<size_t>(load.to - shared);
    eachElement(load.map, load.place, [&](size_t offset, const unsigned char *address) {
      unsigned char *to = shared + swizzled(load.map, tile, offset);
      if (address)
        std::memcpy(to, address, load.map.elementBytes);
      else
        fillOutside(load.map, to);
    });
    if (published.empty()) // what the proxy writes it sees
      published.assign(sharedBytes, poisonByte);
    std::memcpy(published.data() + tile, load.to, load.bytes);
    found->second.bytes -= static_cast<int64_t>(load.bytes);
    complete(found->second);
  }
  completed = (found->second.phase & 1) != parity;
  return "";
}

std::string AsyncProxy::placeProblem(const void *memory, const TensorMap &map, unsigned rank,
                                     const char *operation) const {
  const auto *begin = static_cast<const unsigned char *>(memory);
  if (rank != map.rank)
    return fmt::format("{}: {} coordinates for a tensor map of {} dims", operation, rank, map.rank);
  if (begin < shared || begin + bytesOf(map) > shared + sharedBytes)
    return fmt::format("{}: the tile lies outside the block's dynamic shared memory", operation);
  const size_t alignment = map.swizzle ? size_t(128) << map.swizzle : 128;
  if (static_cast<size_t>(begin - shared) % alignment != 0)
    return fmt::format("{}: the tile does not begin at a multiple of {} bytes", operation, alignment);
  return "";
}

std::string AsyncProxy::load(void *to, const TensorMap &map, void *barrier, const int *place, unsigned rank) {
  if (std::string problem = placeProblem(to, map, rank, "tma_load_tile"); !problem.empty())
    return problem;
  auto found = barriers.find(barrier);
  if (found == barriers.end() || !found->second.isPublished)
    return "tma_load_tile: its mbarrier is not initialised, or fence_mbarrier_init() is missing";
  if (std::string problem = checkAccess(to, bytesOf(map)); !problem.empty())
    return "tma_load_tile: another tile is on its way to the same place";
  Load load{barrier, static_cast<unsigned char *>(to), bytesOf(map), map, {}};
  std::copy_n(place, rank, load.place);
  std::memset(to, poisonByte, load.bytes);
  loads.push_back(load);
  return "";
}

std::string AsyncProxy::store(unsigned thread, const TensorMap &map, const void *from, const int *place,
                              unsigned rank) {
  if (std::string problem = placeProblem(from, map, rank, "tma_store_tile"); !problem.empty())
    return problem;
  if (std::string problem = checkRead(from, bytesOf(map), "tma_store_tile"); !problem.empty())
    return problem;
  Store store{static_cast<const unsigned char *>(from), map, {}, stores[thread].committed};
  std::copy_n(place, rank, store.place);
  stores[thread].pending.push_back(store);
  return "";
}

void AsyncProxy::commitStores(unsigned thread) { ++stores[thread].committed; }

void AsyncProxy::awaitStores(unsigned thread, unsigned groupsLeft) {
  ThreadStores &mine = stores[thread];
  std::erase_if(mine.pending, [&](const Store &store) {
    if (store.group + groupsLeft >= mine.committed)
      return false;
    const size_t tile = static_cast<size_t>(store.from - shared);
    eachElement(store.map, store.place, [&](size_t offset, unsigned char *address) {
      if (address)
        std::memcpy(address, shared + swizzled(store.map, tile, offset), store.map.elementBytes);
    });
    return true;
  });
}

void AsyncProxy::publishShared() {
  publishBarriers();
  published.assign(shared, shared + sharedBytes);
}

std::string AsyncProxy::checkAccess(const void *address, size_t bytes) const {
  const auto *begin = static_cast<const unsigned char *>(address);
  for (const Load &load : loads)
    if (begin < load.to + load.bytes && load.to < begin + bytes)
      return "uses a tile before the wait for its mbarrier has completed";
  return "";
}

std::string AsyncProxy::checkRead(const void *address, size_t bytes, const char *operation) const {
  if (std::string problem = checkAccess(address, bytes); !problem.empty())
    return fmt::format("{}: {}", operation, problem);
  const auto *begin = static_cast<const unsigned char *>(address);
  const size_t offset = static_cast<size_t>(begin - shared);
  if (begin < shared || begin + bytes > shared + sharedBytes)
    return fmt::format("{}: address outside the block's dynamic shared memory", operation);
  const bool isNew = published.empty() ? std::any_of(begin, begin + bytes,
                                                     [](unsigned char byte) { return byte != poisonByte; })
                                       : std::memcmp(published.data() + offset, begin, bytes) != 0;
  return isNew ? fmt::format("{}: reads what a thread has written without fence_proxy_async()", operation)
               : "";
}

std::string AsyncProxy::checkEnd(unsigned thread) const {
  return stores[thread].pending.empty()
             ? ""
             : "ends before its tile stores have read shared memory: tma_store_wait<0>() is missing";
}

} // namespace fusion::emulate
