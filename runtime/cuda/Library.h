// Shared libraries that are opened while the program runs, so that one binary works with and without them.
#pragma once

#include "ir/base/Result.h"

#include <string>
#include <vector>

namespace fusion {

/// An open shared library; stays open until the process ends.
class Library {
public:
  struct Request {
    std::string purpose;                  ///< for the error: "the CUDA driver (libcuda)"
    std::vector<std::string> files;       ///< file names, the preferred one first
    std::vector<std::string> directories; ///< looked in before the system's loader path
    std::vector<std::string> fallbacks;   ///< looked in after it
    std::string advice;                   ///< what to install or set
  };
  /// An Environment error that carries `purpose`, the loader's complaint and `advice` if none opens.
  static Result<Library> open(const Request &request);
  /// Sets `function` to the symbol; false if the library lacks it.
  template <class Function>
  bool resolve(const char *symbol, Function *&function) const {
    function = reinterpret_cast<Function *>(address(symbol));
    return function != nullptr;
  }
  /// The file that was opened.
  const std::string &path() const { return file; }

private:
  Library(void *handle, std::string file) : handle(handle), file(std::move(file)) {}
  void *address(const char *symbol) const;
  void *handle;
  std::string file;
};

/// The environment variable's value, or empty.
std::string environmentVariable(const char *name);

/// The shared library or program that this code is in.
std::string ownFile();

/// Where `folder` of a PyPI wheel is installed (PyTorch brings many of NVIDIA's): "nvidia/nccl/lib".
std::vector<std::string> wheelFolders(const std::string &folder);

} // namespace fusion
