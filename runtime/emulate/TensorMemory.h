// The tensor memory of one block, and the products of tcgen05 that write it: what is asked for happens when
// somebody waits for it, and what a device would leave undefined is a fault. Faults are texts; empty: none.
#pragma once

#include "codegen/device/emulation_abi.h"
#include "runtime/emulate/AsyncProxy.h"

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace fusion::emulate {

class TensorMemory {
public:
  static constexpr unsigned lanes = 128, columns = 512;

  /// For a new block, whose dynamic shared memory this is.
  void reset(unsigned char *shared, size_t sharedBytes, unsigned threads);

  std::string allocate(unsigned count, unsigned &address);
  std::string free(unsigned address, unsigned count);
  void relinquish() { isRelinquished = true; }

  /// D (+)= A B, as the descriptors' bits say.
  std::string multiply(unsigned thread, const fusion_emulation::TensorProduct &product,
                       const AsyncProxy &proxy);
  /// The mbarrier is arrived at when the thread's products so far have ended.
  void commit(unsigned thread, void *barrier) { pending.push_back({thread, {}, {}, {}, {}, barrier}); }
  /// Lets the products end that the mbarrier waits for; whether there were some.
  std::string poll(void *barrier, AsyncProxy &proxy, bool &some);
  /// A fault where a product that has not ended reads these bytes of shared memory.
  std::string checkWrite(const void *to, size_t bytes) const;

  /// tcgen05.ld.16x256b: 16 lanes from the address' on, `repeats` times 8 columns. They come when the thread
  /// waits.
  std::string load(unsigned thread, unsigned address, unsigned repeats, unsigned *to);
  void awaitLoads(unsigned thread);
  void fenceBefore(unsigned thread);
  void fenceAfter(unsigned thread) { threads[thread].fencedAfter = now; }

  /// When the block has ended.
  std::string checkEnd() const;

private:
  static constexpr unsigned unit = 32, units = columns / unit; ///< what is allocated and ordered together

  struct Range {
    unsigned begin = 0, end = 0; ///< columns
    bool overlaps(const Range &other) const { return begin < other.end && other.begin < end; }
    uint16_t units() const;
  };
  /// Where A or B lies in shared memory.
  struct Matrix {
    uint64_t start = 0, leading = 0, stride = 0;
    unsigned swizzle = 0;      ///< 16 << swizzle bytes; 0: none
    bool byDepth = false;      ///< neighbours in memory are rows of A, or columns of B, and not along k
    size_t begin = 0, end = 0; ///< the bytes
    size_t place(unsigned row, unsigned k, unsigned elementBytes) const;
  };
  struct Product {
    unsigned thread;
    fusion_emulation::TensorProduct product;
    Matrix a, b;
    Range columns;
    void *commit; ///< not null: a commit, and no product
  };
  struct Load {
    Range columns;
    unsigned lane, repeats;
    unsigned *to;
  };
  struct ThreadState {
    uint64_t fencedAfter = 0;
    uint16_t unfencedReads = 0; ///< units
    std::vector<Load> loads;
  };

  std::string decode(uint64_t descriptor, unsigned rows, bool byDepth, unsigned elementBytes, const char *of,
                     Matrix &matrix) const;
  bool isAllocated(const Range &range) const;
  void execute(const Product &product);
  template <class Sum, class Decode>
  void accumulate(const Product &product, unsigned depth, unsigned elementBytes, const Decode &decode);

  unsigned char *shared = nullptr;
  size_t sharedBytes = 0;
  std::vector<unsigned> memory; ///< [lane][column]; empty: nothing was allocated
  std::vector<Range> allocations;
  unsigned mostColumns = columns; ///< no allocation is larger than one before it
  bool isRelinquished = false;
  uint64_t now = 0;                                     ///< counts the events that fences order
  std::deque<Product> pending;                          ///< products and commits, in their order
  std::array<uint64_t, units> written{}, fencedReads{}; ///< when last
  std::vector<ThreadState> threads;
};

} // namespace fusion::emulate
