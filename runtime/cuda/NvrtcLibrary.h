// libnvrtc's functions: a program's source goes in, a cubin comes out.
#pragma once

#include "runtime/cuda/Library.h"

#include <string>
#include <vector>

namespace fusion {

/// What the compiler is asked.
struct NvrtcRequest {
  std::string source, file; ///< `file`: the name of the source in messages
  std::vector<std::string> options;
};

/// What it said.
struct NvrtcAnswer {
  std::string error; ///< of the call that failed, in the library's words; empty: there is a cubin
  std::string log;   ///< messages, ptxas's included, without white space at the end
  std::string cubin;
};

class NvrtcLibrary {
public:
  /// Nothing if the library lacks a function.
  static std::optional<NvrtcLibrary> of(const Library &library);
  const std::string &path() const { return library.path(); }
  int major() const { return majorVersion; }
  int minor() const { return minorVersion; }
  /// Thread-safe; but threads of one process take turns in most of it: see NvrtcProcess.
  NvrtcAnswer compile(const NvrtcRequest &request) const;

private:
  using Program = struct ProgramHandle *;
  explicit NvrtcLibrary(Library library) : library(std::move(library)) {}
  Library library;
  int majorVersion = 0, minorVersion = 0;
  int (*getVersion)(int *, int *) = nullptr;
  const char *(*getErrorString)(int) = nullptr;
  int (*createProgram)(Program *, const char *, const char *, int, const char *const *,
                       const char *const *) = nullptr;
  int (*destroyProgram)(Program *) = nullptr;
  int (*runCompiler)(Program, int, const char *const *) = nullptr;
  int (*getCubinSize)(Program, size_t *) = nullptr;
  int (*getCubin)(Program, char *) = nullptr;
  int (*getLogSize)(Program, size_t *) = nullptr;
  int (*getLog)(Program, char *) = nullptr;
};

} // namespace fusion
