#pragma once
// What the compiler's architecture has: the device's side of codegen/target/TargetInfo.h. No other device
// file looks at the architecture's number.

#if __CUDA_ARCH__ >= 890
#define HAS_F8_CONVERSIONS 1
#define HAS_F8_MMA 1
#else
#define HAS_F8_CONVERSIONS 0
#define HAS_F8_MMA 0
#endif
#if __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS 1
#define HAS_PROGRAMMATIC_LAUNCH 1
#define HAS_TMA 1
#else
#define HAS_CLUSTERS 0
#define HAS_PROGRAMMATIC_LAUNCH 0
#define HAS_TMA 0
#endif
