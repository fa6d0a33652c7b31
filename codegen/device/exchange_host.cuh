#pragma once

#include "exchange_abi.h"
#include "machine.cuh"

// Memory that other ranks, which are other OS threads, write while this kernel runs: whole words, atomically.

template <class Word> DEVICE void put_word(void *to, u32 value) {
  __atomic_store_n(reinterpret_cast<Word *>(to), (Word)value, __ATOMIC_RELAXED);
}
template <int Bytes> DEVICE void put_words(void *to, const u32 (&words)[(Bytes + 3) / 4]) {
  check_aligned(to, Bytes);
  if constexpr (Bytes == 1) {
    put_word<u8>(to, words[0]);
  } else if constexpr (Bytes == 2) {
    put_word<u16>(to, words[0]);
  } else {
    for (int i = 0; i < Bytes / 4; ++i)
      put_word<u32>(reinterpret_cast<u32 *>(to) + i, words[i]);
  }
}
template <int Bytes> DEVICE void get_words(u32 (&words)[(Bytes + 3) / 4], const void *from) {
  check_aligned(from, Bytes);
  if constexpr (Bytes == 1) {
    words[0] = __atomic_load_n(reinterpret_cast<const u8 *>(from), __ATOMIC_RELAXED);
  } else if constexpr (Bytes == 2) {
    words[0] = __atomic_load_n(reinterpret_cast<const u16 *>(from), __ATOMIC_RELAXED);
  } else {
    for (int i = 0; i < Bytes / 4; ++i)
      words[i] = __atomic_load_n(reinterpret_cast<const u32 *>(from) + i, __ATOMIC_RELAXED);
  }
}
DEVICE u32 load_now(const unsigned *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
DEVICE u64 load_now(const unsigned long long *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
DEVICE void store_now(unsigned *to, u32 value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
DEVICE bool first_to_set(unsigned *flag) { return __atomic_exchange_n(flag, 1u, __ATOMIC_ACQ_REL) == 0; }
DEVICE void fence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

DEVICE u64 nanoseconds() { return machine->nanoseconds(); }
DEVICE void pause() { machine->pause(); }
// A look ends the thread's turn, which on a busy host takes milliseconds.
constexpr u32 looksPerCheck = 1;
