// Errors as values. Nothing in this project throws across a public interface.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace fusion {

/// What kind of failure it was; the value is the exit code of the tools.
enum class ErrorKind {
  AnswerIsNo = 1,  ///< a comparison failed or a requirement was not met
  BadInput = 2,    ///< bad usage, or a file or tensor that cannot be used
  Environment = 3, ///< the machine lacks something; the message names what to install or set
};

/// One line for a person: file, node and reason where there are any. Never ends in a newline.
struct Error {
  ErrorKind kind = ErrorKind::BadInput;
  std::string message;
};

inline Error badInput(std::string message) { return {ErrorKind::BadInput, std::move(message)}; }
inline Error environment(std::string message) { return {ErrorKind::Environment, std::move(message)}; }

/// Either a value or an Error. Test it before use: `if (!result) return result.error();`
template <class T>
class [[nodiscard]] Result {
public:
  Result(T value) : state(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state.index() == 0; }
  T &operator*() & { return get(); }
  const T &operator*() const & { return get(); }
  T &&operator*() && { return std::move(get()); }
  T *operator->() { return &get(); }
  const T *operator->() const { return &get(); }
  const Error &error() const {
    assert(state.index() == 1);
    return std::get<1>(state);
  }

private:
  T &get() {
    assert(state.index() == 0);
    return *std::get_if<0>(&state);
  }
  const T &get() const {
    assert(state.index() == 0);
    return *std::get_if<0>(&state);
  }
  std::variant<T, Error> state;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Error error) : failure(std::move(error)) {}
  explicit operator bool() const { return !failure; }
  const Error &error() const { return *failure; }

private:
  std::optional<Error> failure;
};
using Status = Result<void>;

} // namespace fusion
