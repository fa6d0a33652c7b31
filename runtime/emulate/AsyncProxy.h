// The asynchronous proxy of one block: mbarriers, tiles on their way between global and shared memory, and
// what a real one would not see. Faults are texts; empty: none.
#pragma once

#include "codegen/device/emulation_abi.h"
#include "codegen/device/tensor_map_abi.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fusion::emulate {

/// Of one tile.
size_t bytesOf(const fusion_emulation::TensorMap &map);

class AsyncProxy {
public:
  /// For a new block, whose shared memory this is.
  void reset(unsigned char *shared, size_t bytes, unsigned threads);
  /// Tiles that were asked for and have not come.
  unsigned pendingTiles() const { return static_cast<unsigned>(loads.size()); }

  std::string initBarrier(void *barrier, unsigned arrivals);
  /// Those that were initialised until now can be used.
  void publishBarriers();
  std::string arrive(void *barrier, unsigned expectedBytes);
  /// Lets the tiles come that the barrier waits for; whether the phase of this parity has completed.
  std::string poll(void *barrier, unsigned parity, bool &completed);

  std::string load(void *to, const fusion_emulation::TensorMap &map, void *barrier, const int *place,
                   unsigned rank);
  std::string store(unsigned thread, const fusion_emulation::TensorMap &map, const void *from,
                    const int *place, unsigned rank);
  void commitStores(unsigned thread);
  void awaitStores(unsigned thread, unsigned groupsLeft);

  void publishShared();
  std::string checkAccess(const void *address, size_t bytes) const;
  std::string checkRead(const void *address, size_t bytes, const char *operation) const;
  /// Before the thread ends.
  std::string checkEnd(unsigned thread) const;

private:
  struct Barrier {
    unsigned arrivals = 0, missing = 0;
    int64_t bytes = 0; ///< that are expected and have not come
    unsigned phase = 0;
    bool isPublished = false;
  };
  struct Load {
    void *barrier;
    unsigned char *to;
    size_t bytes;
    fusion_emulation::TensorMap map;
    int place[5];
  };
  struct Store {
    const unsigned char *from;
    fusion_emulation::TensorMap map;
    int place[5];
    unsigned group;
  };
  struct ThreadStores {
    std::vector<Store> pending;
    unsigned committed = 0;
  };
  std::string placeProblem(const void *shared, const fusion_emulation::TensorMap &map, unsigned rank,
                           const char *operation) const;
  void complete(Barrier &barrier);

  unsigned char *shared = nullptr;
  size_t sharedBytes = 0;
  std::map<void *, Barrier> barriers;
  std::vector<Load> loads;
  std::vector<ThreadStores> stores; ///< by thread
  std::vector<unsigned char> published; ///< shared memory as the proxy sees it; empty: nobody has asked yet
};

} // namespace fusion::emulate
