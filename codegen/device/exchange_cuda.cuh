// Memory that other devices write while this kernel runs: every access is a whole word or more, seen by the whole system.

template <int Bytes> DEVICE void put_words(void *to, const u32 (&words)[(Bytes + 3) / 4]) {
  static_assert(Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16, "one access");
  if constexpr (Bytes == 16)
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
  else if constexpr (Bytes == 4)
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
  else if constexpr (Bytes == 2)
    asm volatile("st.relaxed.sys.global.u16 [%0], %1;" ::"l"(to), "h"((u16)words[0]) : "memory");
  else
    asm volatile("st.relaxed.sys.global.u8 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
}
template <int Bytes> DEVICE void get_words(u32 (&words)[(Bytes + 3) / 4], const void *from) {
  if constexpr (Bytes == 16) {
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(from)
                 : "memory");
  } else if constexpr (Bytes == 8) {
    asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from) : "memory");
  } else if constexpr (Bytes == 4) {
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(words[0]) : "l"(from) : "memory");
  } else if constexpr (Bytes == 2) {
    u16 half;
    asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(half) : "l"(from) : "memory");
    words[0] = half;
  } else {
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(words[0]) : "l"(from) : "memory");
  }
}
// Words in the host's memory, or which other blocks write.
DEVICE u32 load_now(const unsigned *from) { return *reinterpret_cast<const volatile unsigned *>(from); }
DEVICE void store_now(unsigned *to, u32 value) { *reinterpret_cast<volatile unsigned *>(to) = value; }
DEVICE bool first_to_set(unsigned *flag) { return atomicExch(flag, 1u) == 0; }
DEVICE void fence_system() { __threadfence_system(); }

DEVICE u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
DEVICE void pause() {}
constexpr u32 looksPerCheck = 256;

// Clusters of blocks, from sm_90 on. Where there are none, the first block of each does all the work: cluster_blocks is how
// many blocks work. Each cluster_arrive() is followed by one cluster_wait().
#if __CUDA_ARCH__ >= 900
#define KERNEL_CLUSTER(maxThreads, resident, blocks)                                                         \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(maxThreads, resident)
template <int Blocks> constexpr int cluster_blocks = Blocks;
DEVICE u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// `to` in the shared memory of this block names the same place in that of block `rank`.
DEVICE void store_in_cluster(f32 *to, u32 rank, f32 value) {
  u32 place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(shared_address(to)), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(place), "f"(value) : "memory");
}
#else
#define KERNEL_CLUSTER(maxThreads, resident, blocks) KERNEL_RESIDENT(maxThreads, resident)
template <int Blocks> constexpr int cluster_blocks = 1;
DEVICE u32 cluster_rank() { return 0; }
DEVICE void cluster_arrive() {}
DEVICE void cluster_wait() {}
DEVICE void store_in_cluster(f32 *, u32, f32) {}
#endif
