// What the libFuzzer targets share: an error is one line, and of bad input.
#pragma once

#include "ir/base/MappedFile.h"
#include "ir/base/Result.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace fusion::fuzz {

inline void check(bool holds, const char *what, const std::string &message) {
  if (holds)
    return;
  std::fprintf(stderr, "%s: %s\n", what, message.c_str());
  std::abort();
}

inline void checkError(const Error &error) {
  check(!error.message.empty() && error.message.find('\n') == std::string::npos, "not one line",
        error.message);
  check(error.kind == ErrorKind::BadInput, "not of bad input", error.message);
}

inline std::string_view textOf(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

/// The bytes as a file, as long as this lives.
class InputFile {
public:
  InputFile(const uint8_t *data, size_t size)
      : bytes(textOf(data, size)), file(MappedFile::ofMemory(std::as_bytes(std::span(bytes)), nullptr)) {}
  const std::string &path() const { return file->path(); }

private:
  std::string bytes;
  std::shared_ptr<MappedFile> file;
};

} // namespace fusion::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
