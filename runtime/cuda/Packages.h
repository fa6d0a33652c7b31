// Where a wheel's libraries find those of other wheels.
#pragma once

#include <string>

namespace fusion {

/// The folder of installed Python packages that `file` lies in; empty if it lies in none.
std::string packagesAround(const std::string &file);

} // namespace fusion
