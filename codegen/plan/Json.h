// Helpers shared by the readers and writers of JSON in this project's plain-data rooms. Internal.
#pragma once

#include "ir/base/Result.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace fusion {

std::string encodeBase64(std::span<const std::byte> bytes);
Result<std::string> decodeBase64(std::string_view text);

/// Thrown inside a reader and caught at its entry; never leaves this project's functions.
struct JsonProblem {
  std::string message;
};

/// `object[key]` as T, or a JsonProblem that names the key and what was found.
template <class T>
T jsonField(const nlohmann::json &object, const char *key) {
  auto found = object.find(key);
  if (found == object.end())
    throw JsonProblem{std::string("field '") + key + "' is missing"};
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception &) {
    throw JsonProblem{std::string("field '") + key + "' has the wrong type: " + found->type_name()};
  }
}

/// `object[key]` as an array.
const nlohmann::json &jsonArray(const nlohmann::json &object, const char *key);

} // namespace fusion
