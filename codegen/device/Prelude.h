// The text that stands in front of every emitted kernel.
#pragma once

#include <string>
#include <string_view>
#include <string_view>

namespace fusion {

/// For NVRTC, sm_80 and later: types, conversions, memory, warps, math. Includes no header.
std::string_view cudaPrelude();
/// The same functions for the host compiler (C++17, clang or gcc): what emulation compiles. Includes no
/// header; the emulator attaches itself through codegen/device/emulation_abi.h.
std::string_view hostPrelude();

/// Whether a kernel exchanges data with other ranks: then one of these texts stands behind the prelude.
bool usesExchange(std::string_view source);
std::string_view cudaExchangePrelude();
std::string_view hostExchangePrelude();

} // namespace fusion
