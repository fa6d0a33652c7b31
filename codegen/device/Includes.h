// The device files (codegen/device/*.cuh), and a kernel's source with the text of those that it includes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fusion {

/// For which machine a source is compiled: NVRTC's (sm_80 and later), or the host compiler's (C++17, clang or
/// gcc), whose program attaches itself to the emulator through codegen/device/emulation_abi.h.
enum class Flavour { Cuda, Emulated };

/// A kernel's source, cut in two.
struct KernelText {
  std::vector<std::string> includes; ///< names of device files
  std::string rest;                  ///< as many lines as the source
};
/// A source without a line `#include "..."` includes prelude.cuh, which is everything that kernels share, and
/// exchange.cuh if it talks to other ranks.
KernelText splitIncludes(std::string_view source);

/// Whether a kernel is compiled by itself: it defines macros, or includes device files of its own.
bool standsAlone(const KernelText &kernel);

/// The text of `includes` and of what they include, each file once and none that another flavour needs.
/// Compilers name the files in their messages (#line). A name with a folder in it is a file on disk, which
/// finds what it includes beside itself first. A name that is no file stays an #include line, which the
/// compiler refuses.
std::string expandIncludes(const std::vector<std::string> &includes, Flavour flavour);

/// `source` with its includes expanded: it compiles as it is. Compilers' messages call it `name`.
std::string expandSource(std::string_view source, Flavour flavour, std::string_view name = "kernel.cu");

/// The texts of the templates that `includes` reach: of files that are no part of prelude.cuh.
std::string templateText(const std::vector<std::string> &includes);

/// Name and text of every device file.
std::span<const std::pair<std::string_view, std::string_view>> deviceFiles();

/// The texts of all device files: part of the key of whatever was measured with them.
std::string_view deviceText();

/// Whether a kernel exchanges data with other ranks.
bool usesExchange(std::string_view source);

} // namespace fusion
