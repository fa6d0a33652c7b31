// Kernels of tests compile for devices, and their registers do not go to memory.
#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion::test {

/// What stands for the targets that kernels are written for. sm_86 and sm_89 have sm_80's instructions and
/// registers, and sm_103a has sm_100a's: what spills there spills here. FUSION_TEST_TARGETS=all adds them,
/// and every target to every kernel.
inline constexpr const char *testTargets[] = {"sm_80", "sm_90a", "sm_100a", "sm_120"};

/// For all of testTargets, or for one of them that the kernel's text decides, so that all are met by kernels
/// alike.
enum class Targets { All, One };

/// Has NVRTC compile the kernel when the test program ends, many kernels at a time: most of the time of a
/// small one goes into what it includes. What spills or does not compile is a failure that names the test.
/// Nothing without NVRTC. `mayCall`: functions that the kernel calls save registers around them, which is no
/// spill of its own.
void checkSpills(const KernelPlan &kernel, Targets targets, bool mayCall = false);

/// Where test programs share what they compile: kernels for the host and answers of NVRTC.
std::string testCacheFolder();
/// The part of it where executors keep emulated kernels.
std::string emulationCacheFolder();

} // namespace fusion::test
