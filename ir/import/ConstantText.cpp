#include "ir/import/ConstantText.h"

#include <charconv>
#include <fmt/format.h>
#include <limits>

namespace fusion::onnx {

namespace {

template <class T>
std::optional<T> number(std::string_view word) {
  T value = 0;
  auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && stop == word.data() + word.size() && !word.empty() ? std::optional(value)
                                                                                    : std::nullopt;
}

Error wrongWord(std::string_view word, DType type) {
  return badInput(fmt::format("'{}' is not a value of {}", word, name(type)));
}

/// Whether converting to `type` and back loses nothing.
bool holds(const Tensor &wide, DType type) {
  return wide.convertedTo(type).convertedTo(wide.type()).toInts() == wide.toInts();
}

Result<Tensor> vectorOf(const std::vector<std::string_view> &words, DType type) {
  const auto count = static_cast<int64_t>(words.size());
  if (isFloat(type)) {
    Tensor values = Tensor::uninitialized(DType::F64, {count});
    for (size_t i = 0; i < words.size(); ++i) {
      auto value = number<double>(words[i]);
      if (!value)
        return wrongWord(words[i], type);
      values.as<double>()[i] = *value;
    }
    return values.convertedTo(type);
  }
  Tensor values = Tensor::uninitialized(DType::I64, {count});
  for (size_t i = 0; i < words.size(); ++i) {
    const bool isTruth = type == DType::Bool && (words[i] == "true" || words[i] == "false");
    auto value = isTruth ? std::optional<int64_t>(words[i] == "true") : number<int64_t>(words[i]);
    if (!value || (type == DType::Bool && *value != 0 && *value != 1))
      return wrongWord(words[i], type);
    values.as<int64_t>()[i] = *value;
    if (!holds(Tensor::of<int64_t>(DType::I64, {1}, std::span(&*value, 1)), type))
      return wrongWord(words[i], type);
  }
  return values.convertedTo(type);
}

} // namespace

Result<Tensor> constantFromText(std::string_view text, DType type, const DimShape &shape) {
  std::vector<std::string_view> words;
  for (std::string_view rest = text; !text.empty();) {
    const size_t comma = rest.find(',');
    words.push_back(rest.substr(0, comma));
    if (comma == rest.npos)
      break;
    rest.remove_prefix(comma + 1);
  }
  const auto count = static_cast<int64_t>(words.size());
  Shape result;
  for (const Dim &dim : shape)
    result.push_back(dim.isStatic() ? dim.value() : shape.size() == 1 ? count : 1);
  if (elementCount(result) != count)
    return badInput(fmt::format("{} value{} for a tensor of {}", count, count == 1 ? "" : "s",
                                fusion::shapeString(shape)));
  auto values = vectorOf(words, type);
  return values ? Result<Tensor>(values->reshaped(result)) : values.error();
}

} // namespace fusion::onnx
