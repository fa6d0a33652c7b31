// The C++ compiler of this machine, found and started at run time.
#pragma once

#include "ir/base/Result.h"

#include <string>
#include <vector>

namespace fusion::emulate {

struct HostCompiler {
  std::string path;         ///< absolute
  std::string identity;     ///< changes when the program at `path` does
  bool precompiles = false; ///< clang, which takes precompiled headers by their names
  std::string linker = {};  ///< absolute; empty if there is none on PATH, and the compiler must find it

  /// FUSION_HOST_CXX (a path or a name on PATH), else the first of clang++-22, clang++, c++, g++ on PATH.
  static Result<HostCompiler> find();

  /// Options that give the same arithmetic whatever the compiler.
  static const std::vector<std::string> &flags();

  /// Compiles `sourceFile` into the shared library `libraryFile`; what the compiler says goes to `logFile`.
  /// On failure the error quotes the first complaint. No shell is involved.
  /// `header`: a file made by precompile(), whose text is thought in front of the source. A function whose
  /// stack frame a fiber's stack does not hold is an error; with `FewVariables`, which takes longer, values
  /// that do not live at the same time share their place.
  enum Frames { EachItsPlace, FewVariables };
  Status compile(const std::string &sourceFile, const std::string &libraryFile, const std::string &logFile,
                 const std::string &header = {}, Frames frames = EachItsPlace) const;
  /// Whether that is what an error of compile() says.
  static bool isFrameTooLarge(const Error &error);
  /// Compiles a header that stays where it is.
  Status precompile(const std::string &headerFile, const std::string &precompiledFile,
                    const std::string &logFile) const;

private:
  Status run(std::vector<std::string> arguments, const std::string &logFile) const;
  static Status start(std::vector<std::string> words, const std::string &logFile);
};

} // namespace fusion::emulate
