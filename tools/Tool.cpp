#include "Tool.h"

#include "ir/base/MappedFault.h"
#include "ir/base/TemporaryPath.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <unistd.h>

namespace cl = llvm::cl;

namespace fusion {

static bool isGeneric(const std::string &name) {
  return llvm::StringRef(name).starts_with("help") || name == "version";
}

static bool belongsTo(const cl::Option &option, const cl::OptionCategory &category) {
  return llvm::is_contained(option.Categories, &category);
}

void prepareOptions(const char *tool, cl::OptionCategory &own) {
  cl::SetVersionPrinter([tool](llvm::raw_ostream &out) {
    out << tool << " " << FUSION_VERSION << " (LLVM " << LLVM_VERSION_STRING << ")\n";
  });
  for (auto &entry : cl::getRegisteredOptions()) {
    cl::Option *option = entry.second;
    if (!belongsTo(*option, own) && !isGeneric(entry.first.str()) && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
  }
}

void categorizeNewOptions(cl::OptionCategory &own, cl::OptionCategory &others) {
  for (auto &entry : cl::getRegisteredOptions()) {
    cl::Option *option = entry.second;
    if (!belongsTo(*option, own) && !isGeneric(entry.first.str()) && option->getOptionHiddenFlag() == cl::NotHidden) {
      option->addCategory(others);
      option->setHiddenFlag(cl::Hidden);
    }
  }
}

bool parseOptions(int argc, char **argv, const char *tool, const char *purpose) {
  std::string text;
  llvm::raw_string_ostream errors(text);
  std::string overview = std::string(tool) + ": " + purpose + "\n";
  if (cl::ParseCommandLineOptions(argc, argv, overview, &errors))
    return true;
  if (text.empty()) // a value that does not parse: LLVM has said so
    return false;
  // The first complaint explains the rest.
  llvm::StringRef line = llvm::StringRef(text).split('\n').first.trim();
  line.consume_front(llvm::StringRef(argv[0]).rsplit('/').second);
  line.consume_front(tool);
  line.consume_front(": ");
  // LLVM's guess is a line of its own.
  std::string guess;
  if (auto [before, after] = llvm::StringRef(text).split("Did you mean "); !after.empty())
    guess = ("; did you mean " + after.split('?').first + "?").str();
  if (!guess.empty()) // says more than where the help is
    line = line.split(".  Try").first;
  llvm::errs() << tool << ": " << line << guess << "\n";
  return false;
}

static const char *toolName = "";

static void say(const char *text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

/// A file that was cut short while it is mapped, or a disk that fails: one line, and no core.
static void onBusError(int, siginfo_t *fault, void *) {
  const char *file = mappedFileAt(fault->si_addr);
  if (!file) { // a fault of ours
    std::signal(SIGBUS, SIG_DFL);
    return; // and again
  }
  for (const char *part : {toolName, ": ", file, ": the file was cut short, or its disk failed, while it was read\n"})
    say(part);
  _exit(static_cast<int>(ErrorKind::BadInput));
}

/// An ordinary thread waits for the signals that end the program, so that it may remove files first.
static void removeFilesAtSignals() {
  static sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([] {
    int number = 0;
    sigwait(&signals, &number);
    removeTemporaryPaths();
    std::signal(number, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    raise(number);
  }).detach();
}

int runTool(const char *tool, const std::function<Status()> &work) {
  std::signal(SIGPIPE, SIG_IGN);
  toolName = tool;
  std::set_new_handler(nullptr); // LLVM's ends the process
  struct sigaction busError = {};
  busError.sa_sigaction = onBusError;
  busError.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &busError, nullptr);
  removeFilesAtSignals();
  Status status;
  try {
    status = work();
  } catch (const std::bad_alloc &) {
    status = environment("out of memory");
  } catch (const std::exception &problem) {
    status = environment(problem.what());
  }
  if (status)
    return 0;
  if (!status.error().message.empty())
    llvm::errs() << tool << ": " << status.error().message << "\n";
  return static_cast<int>(status.error().kind);
}

} // namespace fusion
