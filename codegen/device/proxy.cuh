#pragma once
// Shared memory as the asynchronous proxy sees it: TMA, and the operands of warpgroup products.
#include "machine.cuh"

#ifdef FUSION_EMULATED
// A generic write is seen by the asynchronous proxy when the writing thread has come through this, and the
// asking thread through a barrier after it.
DEVICE void fence_proxy_async() { machine->publishShared(emulated_thread); }
// Fails where the proxy would read what a thread has written without fence_proxy_async(), or a tile that has
// not come yet.
DEVICE void check_async_read(const void *shared, u32 bytes, const char *operation) {
  machine->checkAsyncRead(emulated_thread, shared, bytes, operation);
}
#else
DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
