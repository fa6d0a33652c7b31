// The text that stands in front of every emitted kernel.
#pragma once

#include <string>
#include <string_view>

namespace fusion {

/// For NVRTC, sm_80 and later: types, conversions, memory, warps, math. Includes no header.
std::string_view cudaPrelude();
/// The same functions for the host compiler (C++17, clang or gcc): what emulation compiles. Includes no
/// header; the emulator attaches itself through codegen/device/emulation_abi.h.
std::string_view hostPrelude();

} // namespace fusion
