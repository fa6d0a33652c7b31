#include "codegen/device/Includes.h"

#include "codegen/device/DeviceText.h"
#include "codegen/plan/Comments.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>

namespace fusion {

static std::optional<std::string_view> findFile(std::string_view name) {
  for (const auto &[file, text] : device_text::files)
    if (file == name)
      return text;
  return std::nullopt;
}

static bool isPath(std::string_view name) { return name.find('/') != std::string_view::npos; }

static std::optional<std::string> readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Calls `visit` with each line, without its end.
template <class Visit> static void forEachLine(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    visit(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

/// The file that a line `#include "FILE"` names.
static std::optional<std::string_view> includedFile(std::string_view line) {
  constexpr std::string_view begin = "#include \"";
  if (!line.starts_with(begin))
    return std::nullopt;
  line.remove_prefix(begin.size());
  const size_t end = line.find('"');
  return end == std::string_view::npos ? std::nullopt : std::optional(line.substr(0, end));
}

namespace {

/// Which lines lie in branches of `#ifdef FUSION_EMULATED` that the flavour takes. Other conditions are the
/// compiler's.
class Branches {
public:
  explicit Branches(Flavour flavour) : emulated(flavour == Flavour::Emulated) {}

  /// Whether the line is one of these conditions, which the text does not show.
  bool consume(std::string_view line) {
    if (line.starts_with("#ifdef FUSION_EMULATED")) {
      open.push_back(emulated ? Kind::Taken : Kind::Skipped);
      return true;
    }
    if (line.starts_with("#if"))
      open.push_back(Kind::Other);
    if (open.empty() || open.back() == Kind::Other) {
      if (line.starts_with("#endif") && !open.empty())
        open.pop_back();
      return false;
    }
    if (line.starts_with("#else")) {
      open.back() = open.back() == Kind::Taken ? Kind::Skipped : Kind::Taken;
      return true;
    }
    if (line.starts_with("#endif")) {
      open.pop_back();
      return true;
    }
    return false;
  }
  bool skips() const { return std::find(open.begin(), open.end(), Kind::Skipped) != open.end(); }

private:
  enum class Kind { Taken, Skipped, Other };
  bool emulated;
  std::vector<Kind> open;
};

/// Collects files, each once, those that a file includes in front of it.
class Expansion {
public:
  explicit Expansion(Flavour flavour) : flavour(flavour) {}

  void add(const std::string &name) {
    if (!seen.insert(name).second)
      return;
    const std::optional<std::string> onDisk = isPath(name) ? readFile(name) : std::nullopt;
    const std::optional<std::string_view> file = isPath(name) ? onDisk : findFile(name);
    if (!file) {
      text += "#include \"" + name + "\"\n";
      return;
    }
    Branches branches(flavour);
    size_t number = 0;
    bool continues = false; // the line before is the one above in the file
    forEachLine(*file, [&](std::string_view line) {
      ++number;
      const bool hidden = branches.consume(line) || branches.skips() || line == "#pragma once";
      const std::optional<std::string_view> included = hidden ? std::nullopt : includedFile(line);
      if (included)
        add(besides(name, *included));
      if (hidden || included || (line.empty() && !continues)) {
        continues = false;
        return;
      }
      if (!continues)
        text += "#line " + std::to_string(number) + " \"" + name + "\"\n";
      text += line;
      text += '\n';
      continues = true;
    });
  }

  std::string text;
  std::set<std::string> seen;

private:
  /// What a file includes: of one on disk the file in the same folder, where there is one.
  static std::string besides(const std::string &includer, std::string_view name) {
    if (isPath(includer))
      if (std::string path = includer.substr(0, includer.rfind('/') + 1) + std::string(name);
          std::ifstream(path))
        return path;
    return std::string(name);
  }

  Flavour flavour;
};

} // namespace

KernelText splitIncludes(std::string_view source) {
  KernelText result;
  forEachLine(source, [&](std::string_view line) {
    if (std::optional<std::string_view> file = includedFile(line))
      result.includes.emplace_back(*file);
    else
      result.rest += line;
    result.rest += '\n';
  });
  if (result.includes.empty()) {
    result.includes.push_back("prelude.cuh");
    if (usesExchange(source))
      result.includes.push_back("exchange.cuh");
  }
  return result;
}

static std::string expanded(const std::vector<std::string> &includes, Flavour flavour) {
  Expansion expansion(flavour);
  for (const std::string &include : includes)
    expansion.add(include);
  return std::move(expansion.text);
}

std::string expandIncludes(const std::vector<std::string> &includes, Flavour flavour) {
  if (std::any_of(includes.begin(), includes.end(), isPath))
    return expanded(includes, flavour); // files on disk change
  static std::mutex mutex;
  static std::map<std::pair<std::vector<std::string>, Flavour>, std::string> known;
  std::lock_guard lock(mutex);
  auto [place, isNew] = known.try_emplace({includes, flavour});
  if (isNew)
    place->second = expanded(includes, flavour);
  return place->second;
}

std::string expandSource(std::string_view source, Flavour flavour, std::string_view name) {
  KernelText text = splitIncludes(source);
  return expandIncludes(text.includes, flavour) + "#line 1 \"" + std::string(name) + "\"\n" + text.rest;
}

std::string templateText(const std::vector<std::string> &includes) {
  Expansion shared(Flavour::Cuda), all(Flavour::Cuda);
  shared.add("prelude.cuh");
  for (const std::string &include : includes)
    all.add(include);
  std::string text;
  for (const std::string &name : all.seen)
    if (isPath(name))
      text += readFile(name).value_or("");
    else if (const auto file = shared.seen.contains(name) ? std::nullopt : findFile(name))
      text += *file;
  return text;
}

std::span<const std::pair<std::string_view, std::string_view>> deviceFiles() { return device_text::files; }

std::string_view deviceText() {
  static const std::string text = [] {
    std::string joined;
    for (const auto &[name, file] : device_text::files)
      joined += file;
    return joined;
  }();
  return text;
}

bool standsAlone(const KernelText &kernel) {
  return kernel.rest.find("#define") != std::string::npos ||
         std::any_of(kernel.includes.begin(), kernel.includes.end(),
                     [](const std::string &name) { return name.find('/') != std::string::npos; });
}

bool usesExchange(std::string_view source) {
  return withoutComments(source).find("Exchange *") != std::string::npos;
}

} // namespace fusion
