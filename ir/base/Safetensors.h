// Reading (by mmap) and writing safetensors files.
#pragma once

#include "ir/base/Tensor.h"

#include <map>
#include <string>

namespace fusion {

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

/// Tensors point into the mapped file, which lives as long as they do. A truncated or malformed file,
/// overlapping or out-of-range offsets are errors that name the file and the key.
Result<NamedTensors> readSafetensors(const std::string &path);
/// Writes to a temporary name beside `path` and renames: never a partial file.
Status writeSafetensors(const std::string &path, const NamedTensors &tensors);

} // namespace fusion
