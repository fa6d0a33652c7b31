// Whether a file lies where a model may have its data.
#pragma once

#include "ir/base/Result.h"

#include <string>

namespace fusion {

/// Of an existing file `path`, relative to `folder` or absolute: BadInput, without the name of a file, if it
/// is not below that folder once all links are followed, or if it has another name elsewhere (a hard link). A
/// file that is not there is no error.
Status confined(const std::string &folder, const std::string &path);

} // namespace fusion
