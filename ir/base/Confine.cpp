#include "ir/base/Confine.h"

#include <filesystem>
#include <fmt/format.h>

namespace fusion {

namespace files = std::filesystem;

Status confined(const std::string &folder, const std::string &path) {
  constexpr const char *wayOut = "; --trust-paths takes it from there";
  bool leaves = files::path(path).is_absolute();
  for (const files::path &part : files::path(path))
    leaves |= part == "..";
  if (leaves)
    return badInput(fmt::format("'{}' lies outside the model's folder{}", path, wayOut));
  std::error_code error;
  const files::path place = files::path(folder.empty() ? "." : folder),
                    real = files::canonical(place / path, error);
  if (error)
    return {};
  const files::path home = files::canonical(place, error);
  const files::path inside = real.lexically_relative(home);
  if (error || inside.empty() || *inside.begin() == "..")
    return badInput(fmt::format("'{}' leads outside the model's folder by a link{}", path, wayOut));
  if (files::is_regular_file(real, error) && files::hard_link_count(real, error) > 1)
    return badInput(fmt::format("'{}' has another name elsewhere, by a hard link{}", path, wayOut));
  return {};
}

} // namespace fusion
