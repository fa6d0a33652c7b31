#include "codegen/body/Config.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion::body {

void Config::set(std::string_view type, std::string_view member, std::string_view value) {
  auto place = std::find_if(constants.begin(), constants.end(),
                            [&](const auto &entry) { return entry.first == type; });
  if (place == constants.end())
    place = constants.insert(place, {std::string(type), ""});
  place->second += fmt::format("{}{} = {}", place->second.empty() ? "" : ", ", member, value);
}

void Config::setType(std::string_view member, std::string_view type) {
  types.push_back(fmt::format("using {} = {};", member, type));
}

std::string Config::text() const {
  std::string text = fmt::format("struct {}{}{} {{\n", name, base.empty() ? "" : " : ", base);
  for (size_t i = 0; i < types.size(); ++i)
    text += (i == 0 ? "  " : " ") + types[i] + (i + 1 == types.size() ? "\n" : "");
  for (const auto &[type, members] : constants)
    text += fmt::format("  static constexpr {} {};\n", type, members);
  return text + "};\n";
}

} // namespace fusion::body
