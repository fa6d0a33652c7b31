// What is written from the table of a tool's options.
#pragma once

#include "Tool.h"

namespace fusion {

/// What --help prints.
std::string helpText(const ToolFacts &tool);
/// A man page of section 1, for man(7).
std::string manPage(const ToolFacts &tool, const std::string &version);
/// What bash, zsh or fish run to complete a command line of the tool; empty for another shell.
std::string completionOf(const ToolFacts &tool, const std::string &shell);
/// The shells that completionOf() knows.
std::vector<Word> shells();

/// Which files are completed as a value: by how --help names it ("FILE", "DIR", "F.safetensors") and by the
/// extensions that its text names (".json or .md").
enum class FileKind { None, Any, Folder, Extensions };
struct ValueFiles {
  FileKind kind = FileKind::None;
  std::vector<std::string> extensions; ///< without dots
};
ValueFiles filesOf(const std::string &valueName, const std::string &text);

} // namespace fusion
