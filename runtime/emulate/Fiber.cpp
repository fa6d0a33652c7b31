#include "runtime/emulate/Fiber.h"

#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>
#if defined(FUSION_TSAN_FIBERS)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// The callee-saved registers go to the stack, so the stack pointer is all there is to a fiber.
asm(R"(
  .text
  .globl fusionSwitchStack
  .hidden fusionSwitchStack
  .type fusionSwitchStack, @function
fusionSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size fusionSwitchStack, .-fusionSwitchStack

  .globl fusionEnterFiber
  .hidden fusionEnterFiber
  .type fusionEnterFiber, @function
fusionEnterFiber:
  movq %r12, %rdi
  jmpq *%r13
  .size fusionEnterFiber, .-fusionEnterFiber
)");
extern "C" void fusionSwitchStack(void **from, void *to);
extern "C" void fusionEnterFiber();
#endif

namespace fusion::emulate {

#if defined(FUSION_TSAN_FIBERS)
Fiber::Known::~Known() {
  if (isOwn)
    __tsan_destroy_fiber(fiber);
}

void Fiber::Known::begin() {
  if (isOwn)
    __tsan_destroy_fiber(fiber);
  fiber = __tsan_create_fiber(0);
  isOwn = true;
}
#endif

#if defined(__x86_64__)

void Fiber::prepare(char *stack, size_t bytes, void (*entry)(void *), void *argument) {
  // As fusionSwitchStack left it: r15 r14 r13 r12 rbx rbp, then where to return to. A function starts with
  // its stack 8 bytes off a multiple of 16.
  auto *top = reinterpret_cast<void **>(stack + bytes) - 2;
  *top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(fusionEnterFiber);
  *--top = nullptr;                         // rbp
  *--top = nullptr;                         // rbx
  *--top = argument;                        // r12
  *--top = reinterpret_cast<void *>(entry); // r13
  *--top = nullptr;                         // r14
  *--top = nullptr;                         // r15
  stackPointer = top;
#if defined(FUSION_TSAN_FIBERS)
  known.begin();
#endif
}

void Fiber::switchTo(Fiber &from, Fiber &to) {
#if defined(FUSION_TSAN_FIBERS)
  if (!from.known.isOwn)
    from.known.fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.known.fiber, 0);
#endif
  fusionSwitchStack(&from.stackPointer, to.stackPointer);
}

#else

static void enter(unsigned entryHigh, unsigned entryLow, unsigned argumentHigh, unsigned argumentLow) {
  auto joined = [](unsigned high, unsigned low) {
    return static_cast<uintptr_t>(uint64_t(high) << 32 | low);
  };
  auto entry = reinterpret_cast<void (*)(void *)>(joined(entryHigh, entryLow));
  entry(reinterpret_cast<void *>(joined(argumentHigh, argumentLow)));
}

void Fiber::prepare(char *stack, size_t bytes, void (*entry)(void *), void *argument) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  const uint64_t code = reinterpret_cast<uintptr_t>(entry), data = reinterpret_cast<uintptr_t>(argument);
  makecontext(&context, reinterpret_cast<void (*)()>(enter), 4, unsigned(code >> 32), unsigned(code),
              unsigned(data >> 32), unsigned(data));
}

void Fiber::switchTo(Fiber &from, Fiber &to) { swapcontext(&from.context, &to.context); }

#endif

static size_t pageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

bool FiberStacks::reserve(size_t count) {
  while (stacks.size() < count) {
    void *memory = mmap(nullptr, pageBytes() + usableBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return false;
    if (mprotect(memory, pageBytes(), PROT_NONE) != 0) {
      munmap(memory, pageBytes() + usableBytes);
      return false;
    }
    stacks.push_back(static_cast<char *>(memory) + pageBytes());
  }
  return true;
}

FiberStacks::~FiberStacks() {
  for (char *stack : stacks)
    munmap(stack - pageBytes(), pageBytes() + usableBytes);
}

} // namespace fusion::emulate
