// What a kernel compiled for emulation and the emulator agree on. Both sides include this text: the kernel's
// side has no headers, so only built-in types appear.

#ifndef FUSION_EMULATION_ABI_H
#define FUSION_EMULATION_ABI_H
namespace fusion_emulation {

/// Where a thread is; the emulator sets it before the thread runs.
struct Block {
  unsigned index[3];            ///< blockIdx
  unsigned dim[3];              ///< blockDim
  unsigned grid[3];             ///< gridDim
  unsigned char *dynamicShared; ///< aligned to 1024 bytes
  unsigned pendingTiles;        ///< that are on their way to shared memory: accesses are checked
};
struct Thread {
  unsigned index[3]; ///< threadIdx
  unsigned linear;   ///< x fastest
  Block *block;
};

/// What all lanes of a warp do together: those that wait for each other must have come to the same operation.
enum class WarpOperation : unsigned {
  Barrier,
  Shuffle,
  Vote,
  LoadMatrix,
  StoreMatrix,
  MultiplyMatrix,
  TensorMemory
};

constexpr unsigned slotBytes = 64; ///< what a lane may bring to an operation

struct TensorMap; ///< tensor_map_abi.h

/// What tcgen05.mma is asked for: its operands' bits.
enum class TensorKind : unsigned { F16, F8, I8 };
struct TensorProduct {
  unsigned long long a, b; ///< descriptors; addresses count from the block's dynamic shared memory
  unsigned d;              ///< address in tensor memory
  unsigned instruction;    ///< descriptor
  TensorKind kind;
  bool accumulate;
};

/// The emulator's side of every operation that involves another thread. `self` is the calling thread.
struct Machine {
  void (*barrier)(Thread *self);
  /// Waits for all lanes of the warp, each with `bytes` bytes of `mine`; the last to come runs `compute` on
  /// the 32 slots when it is not null. Returns the slots, valid until this lane's next operation.
  unsigned char *(*warpOperation)(Thread *self, WarpOperation kind, const void *mine, unsigned bytes,
                         void (*compute)(unsigned char *slots));
  /// The block's array that belongs to `key`, made on first use and filled with NaN patterns.
  void *(*sharedArray)(Thread *self, const void *key, unsigned long long bytes);
  /// Fails unless the bytes lie in the block's shared memory and are aligned to 16.
  void (*checkShared)(Thread *self, const void *address, unsigned bytes, const char *operation);
  void (*copyAsync)(Thread *self, void *shared, const void *global, unsigned bytes);
  void (*commitCopies)(Thread *self);
  void (*awaitCopies)(Thread *self, unsigned groupsLeft);
  /// Fails if the bytes belong to a tile that has not come yet.
  void (*checkAccess)(Thread *self, const void *address, unsigned long long bytes);
  /// Likewise, and if a thread has written to them since it called publishShared.
  void (*checkAsyncRead)(Thread *self, const void *address, unsigned bytes, const char *operation);
  void (*publishShared)(Thread *self);
  // mbarriers: their state is the emulator's, their address their name.
  void (*initBarrier)(Thread *self, void *barrier, unsigned arrivals);
  void (*publishBarriers)(Thread *self);
  void (*arriveAtBarrier)(Thread *self, void *barrier, unsigned expectedBytes);
  void (*awaitBarrier)(Thread *self, void *barrier, unsigned parity);
  void (*loadTile)(Thread *self, void *shared, const TensorMap *map, void *barrier, const int *place,
                   unsigned rank);
  void (*storeTile)(Thread *self, const TensorMap *map, const void *shared, const int *place, unsigned rank);
  void (*commitStores)(Thread *self);
  void (*awaitStores)(Thread *self, unsigned groupsLeft);
  // Tensor memory. Of operations of a warp each lane makes the call, but those of allocation.
  unsigned (*allocateTensor)(Thread *self, unsigned columns);
  void (*freeTensor)(Thread *self, unsigned address, unsigned columns);
  void (*relinquishTensor)(Thread *self);
  void (*multiplyTensor)(Thread *self, const TensorProduct *product);
  void (*commitProducts)(Thread *self, void *barrier);
  void (*loadTensor)(Thread *self, unsigned address, unsigned repeats, unsigned *to);
  void (*awaitTensorLoads)(Thread *self);
  void (*fenceTensor)(Thread *self, bool after);
  /// Ends the launch with an error that names the block and the thread. Does not return.
  void (*fail)(Thread *self, const char *message);
  /// What the caller waits for comes from another OS thread.
  void (*pause)();
  unsigned long long (*nanoseconds)();
};

} // namespace fusion_emulation
#endif
