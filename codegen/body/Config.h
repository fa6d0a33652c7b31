// A struct of constants, by which a kernel configures its template.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fusion::body {

class Config {
public:
  /// `base`: the struct of defaults that it derives from, if there is one.
  explicit Config(std::string name = "Config", std::string base = "")
      : name(std::move(name)), base(std::move(base)) {}

  /// A member `static constexpr TYPE NAME = VALUE;`.
  void set(std::string_view type, std::string_view member, std::string_view value);
  /// An int or a bool.
  template <std::integral T>
  void set(std::string_view member, T value) {
    if constexpr (std::is_same_v<T, bool>)
      set("bool", member, value ? "true" : "false");
    else
      set("int", member, std::to_string(value));
  }
  /// A member `using NAME = TYPE;`.
  void setType(std::string_view member, std::string_view type);

  /// The struct, members of one type in one line.
  std::string text() const;

private:
  std::string name, base;
  std::vector<std::string> types;
  std::vector<std::pair<std::string, std::string>> constants; ///< by type, in the order of the first of each
};

} // namespace fusion::body
