#pragma once

#include "exchange_abi.h"
#include "machine.cuh"

// Memory that other devices write while this kernel runs: every access is a whole word or more, seen by the
// whole system.

template <int Bytes> DEVICE void put_words(void *to, const u32 (&words)[(Bytes + 3) / 4]) {
  static_assert(Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16, "one access");
  if constexpr (Bytes == 16)
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1])
                 : "memory");
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
    asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(from)
                 : "memory");
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
DEVICE u64 load_now(const unsigned long long *from) {
  return *reinterpret_cast<const volatile unsigned long long *>(from);
}
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
