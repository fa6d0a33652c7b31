// What every tool does around its work: options, exit codes, a last word on errors.
#pragma once

#include "ir/base/Result.h"

#include "llvm/Support/CommandLine.h"

#include <functional>

namespace fusion {

/// Starts a tool's main. --version prints `tool`'s; of the options known so far, --help shows only those of `own`
/// and --help-hidden all.
void prepareOptions(const char *tool, llvm::cl::OptionCategory &own);

/// Visible options outside of `own`, which were registered since prepareOptions(), go under `others` in --help-hidden.
void categorizeNewOptions(llvm::cl::OptionCategory &own, llvm::cl::OptionCategory &others);

/// Parses the command line. An error has been printed, as one line, if this is false.
bool parseOptions(int argc, char **argv, const char *tool, const char *purpose);

/// Runs `work` and returns the exit code; prints an error as `tool: message`, nothing if the message is empty
/// (it has been printed). A closed pipe is an error of the write, not the end of the process.
int runTool(const char *tool, const std::function<Status()> &work);

} // namespace fusion
