// Damaged copies of files, for tests that nothing crashes on them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fusion::test {

/// Damages a protobuf message. Most damage keeps the message parseable, so that it reaches the code behind
/// the parser: integers change their value, strings become another string of the file.
class MessageMutator {
public:
  explicit MessageMutator(std::string message);
  std::string mutate(std::mt19937 &random) const;

private:
  struct Range {
    size_t offset, length;
  };
  void collect(std::string_view part, int depth);

  std::string original;
  std::vector<Range> integers, strings;
};

/// Damages text: characters, numbers, words and lines change, go or come twice.
std::string mutateText(const std::string &text, std::mt19937 &random);

/// Flips bits, overwrites, removes and repeats bytes.
std::string mutateBytes(std::string bytes, std::mt19937 &random);

} // namespace fusion::test
