// What every tool does around its work: descriptors, options, help, exit codes, a last word on errors.
#pragma once

#include "Options.h"

#include "ir/base/Result.h"

#include <functional>
#include <string>

namespace fusion {

/// What a tool is, for its help, its man page and its errors.
struct ToolFacts {
  std::string name, purpose;
  std::string description; ///< for the man page: paragraphs with an empty line between them
  Categories categories;   ///< of its own options, in the order of --help; others are shown by --help-hidden
  /// Registers options of libraries; their visible ones go under `others` in --help-hidden. May be null.
  std::function<void()> registerOthers;
  llvm::cl::OptionCategory *others = nullptr;
};

/// A tool's main: reads the command line and runs `work`, unless only help was asked for. Returns the exit
/// code.
int toolMain(int argc, char **argv, const ToolFacts &tool, const std::function<Status()> &work);

/// Runs `work` and returns the exit code; prints an error as `tool: message`, nothing if the message is empty
/// (it has been printed). A closed pipe is an error of the write, not the end of the process.
int runTool(const char *tool, const std::function<Status()> &work);

/// Opens those of the descriptors 0 to 2 that are closed, so that no file gets their numbers. What is read
/// from or written to stdin and stdout still fails as if they were closed; what is said on stderr is lost.
void openStandardDescriptors();

} // namespace fusion
