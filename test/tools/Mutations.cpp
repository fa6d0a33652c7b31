#include "Mutations.h"

#include "ir/import/WireFormat.h"

#include <algorithm>
#include <cctype>

namespace fusion::test {

namespace {
size_t below(std::mt19937 &random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

uint64_t interestingInteger(std::mt19937 &random) {
  static constexpr int64_t values[] = {0,  1,   2,   3,   5,   7,   8,   11,        16,        17,
                                       -1, -2,  -3,  64,  127, 128, 255, 1'000'000, INT32_MAX, INT32_MIN,
                                       18, 100, 999, 10, INT64_MAX, INT64_MIN, int64_t{1} << 40};
  return random() % 4 == 0 ? random() % 64 : static_cast<uint64_t>(values[below(random, std::size(values))]);
}

/// A varint of exactly `length` bytes.
std::string varint(uint64_t value, size_t length) {
  std::string bytes;
  for (size_t i = 0; i < length; ++i) {
    bytes.push_back(static_cast<char>((value & 0x7f) | (i + 1 < length ? 0x80 : 0)));
    value >>= 7;
  }
  return bytes;
}
} // namespace

MessageMutator::MessageMutator(std::string message) : original(std::move(message)) { collect(original, 0); }

/// The schema is not known here: what parses as a message is taken for one.
void MessageMutator::collect(std::string_view part, int depth) {
  onnx::WireReader reader(part);
  while (auto field = reader.next()) {
    size_t end = static_cast<size_t>(field->encoding.data() - original.data()) + field->encoding.size();
    if (field->wireType == 0) {
      size_t length = 1;
      while (length < field->encoding.size() && (original[end - length - 1] & 0x80))
        ++length;
      integers.push_back({end - length, length});
    } else if (field->wireType == 2 && !field->payload.empty()) {
      onnx::WireReader trial(field->payload);
      while (trial.next())
        ;
      if (!trial.damaged() && depth < 16)
        collect(field->payload, depth + 1);
      else if (field->payload.size() <= 64)
        strings.push_back({end - field->payload.size(), field->payload.size()});
    }
  }
}

std::string MessageMutator::mutate(std::mt19937 &random) const {
  std::string bytes = original;
  for (size_t changes = 1 + below(random, 3); changes > 0; --changes) {
    size_t kind = below(random, 16);
    if (kind < 7 && !integers.empty()) {
      Range at = integers[below(random, integers.size())];
      bytes.replace(at.offset, at.length, varint(interestingInteger(random), at.length));
    } else if (kind < 14 && !strings.empty()) {
      Range at = strings[below(random, strings.size())];
      for (int attempt = 0; attempt < 200; ++attempt) {
        Range other = strings[below(random, strings.size())];
        if (other.length != at.length ||
            original.compare(at.offset, at.length, original, other.offset, other.length) == 0)
          continue;
        bytes.replace(at.offset, at.length, original, other.offset, other.length);
        break;
      }
    } else if (changes == 1) { // moves the fields, so no other change can follow
      bytes = mutateBytes(std::move(bytes), random);
    }
  }
  return bytes;
}

std::string mutateBytes(std::string bytes, std::mt19937 &random) {
  for (size_t changes = 1 + below(random, 3); changes > 0 && !bytes.empty(); --changes) {
    size_t at = below(random, bytes.size());
    size_t length = std::min(bytes.size() - at, 1 + below(random, 40));
    switch (below(random, 6)) {
    case 0:
    case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8))); break;
    case 2: bytes[at] = static_cast<char>(random()); break;
    case 3: bytes.erase(at, length); break;
    case 4: bytes.insert(below(random, bytes.size()), bytes.substr(at, length)); break;
    default: bytes.resize(at); break;
    }
  }
  return bytes;
}

namespace {
/// The places where a word (of name characters) or a number begins, with its length.
std::vector<std::pair<size_t, size_t>> words(const std::string &text, bool numbers) {
  std::vector<std::pair<size_t, size_t>> found;
  auto inWord = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && inWord(text[end]))
      ++end;
    if (end > i && (std::isdigit(static_cast<unsigned char>(text[i])) != 0) == numbers)
      found.emplace_back(i, end - i);
    i = std::max(end, i + 1);
  }
  return found;
}

std::vector<std::string> lines(const std::string &text) {
  std::vector<std::string> result;
  for (size_t i = 0; i < text.size();) {
    size_t end = std::min(text.find('\n', i), text.size() - 1) + 1;
    result.push_back(text.substr(i, end - i));
    i = end;
  }
  return result;
}

std::string replaceWord(const std::string &text, bool numbers, std::mt19937 &random) {
  auto found = words(text, numbers);
  if (found.empty())
    return text;
  auto [at, length] = found[below(random, found.size())];
  auto [other, otherLength] = found[below(random, found.size())];
  bool fresh = numbers && random() % 2 == 0;
  return text.substr(0, at) +
         (fresh ? std::to_string(static_cast<int64_t>(interestingInteger(random)))
                : text.substr(other, otherLength)) +
         text.substr(at + length);
}

std::string changeLines(const std::string &text, std::mt19937 &random) {
  std::vector<std::string> all = lines(text);
  size_t at = below(random, all.size()), other = below(random, all.size());
  switch (below(random, 3)) {
  case 0: all.erase(all.begin() + static_cast<std::ptrdiff_t>(at)); break;
  case 1: std::swap(all[at], all[other]); break;
  default: all.insert(all.begin() + static_cast<std::ptrdiff_t>(at), std::string(all[other])); break;
  }
  std::string joined;
  for (const std::string &line : all)
    joined += line;
  return joined;
}
} // namespace

std::string mutateText(const std::string &text, std::mt19937 &random) {
  std::string result = text;
  for (size_t changes = 1 + below(random, 2); changes > 0 && !result.empty(); --changes)
    switch (below(random, 8)) {
    case 0: result = mutateBytes(std::move(result), random); break;
    case 1: result = changeLines(result, random); break;
    case 2:
    case 3:
    case 4: result = replaceWord(result, /*numbers=*/false, random); break;
    default: result = replaceWord(result, /*numbers=*/true, random); break;
    }
  return result;
}

} // namespace fusion::test
