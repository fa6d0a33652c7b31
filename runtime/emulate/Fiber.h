// Cooperative threads on stacks of their own: a switch is a dozen instructions.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// ThreadSanitizer follows switches that it is told of.
#if defined(__SANITIZE_THREAD__)
#define FUSION_TSAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FUSION_TSAN_FIBERS 1
#endif
#endif

namespace fusion::emulate {

/// A suspended flow of control, or a place to suspend the current one.
class Fiber {
public:
  /// Makes the next switch to this fiber call `entry(argument)` at the top of `stack`. `entry` must not
  /// return. What the fiber did before is forgotten.
  void prepare(char *stack, size_t bytes, void (*entry)(void *), void *argument);
  /// Suspends the caller into `from` and continues `to`.
  static void switchTo(Fiber &from, Fiber &to);

private:
#if defined(__x86_64__)
  void *stackPointer = nullptr;
#else
  ucontext_t context;
#endif
#if defined(FUSION_TSAN_FIBERS)
  /// What ThreadSanitizer knows a fiber by; it is let go of when the fiber begins anew.
  struct Known {
    void *fiber = nullptr;
    bool isOwn = false;
    Known() = default;
    Known(Known &&other) noexcept
        : fiber(std::exchange(other.fiber, nullptr)), isOwn(std::exchange(other.isOwn, false)) {}
    ~Known();
    void begin();
  };
  Known known;
#endif
};

/// Stacks with a page below each that faults, made on demand and kept.
class FiberStacks {
public:
  static constexpr size_t usableBytes = 128 << 10;

  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks &) = delete;
  FiberStacks &operator=(const FiberStacks &) = delete;

  /// At least `count` stacks; false when the system has no memory for them.
  bool reserve(size_t count);
  /// The lowest usable byte of stack `index`.
  char *at(size_t index) const { return stacks[index]; }

private:
  std::vector<char *> stacks;
};

} // namespace fusion::emulate
