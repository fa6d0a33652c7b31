#include "Tool.h"

#include "Documents.h"
#include "Output.h"

#include "ir/base/MappedFault.h"
#include "ir/base/PlainText.h"
#include "ir/base/TemporaryPath.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <new>
#include <unistd.h>

namespace cl = llvm::cl;

namespace fusion {

namespace {
cl::OptionCategory documents("Documents");
WordOption completion("completion", "Print what completes command lines", "", documents, shells());
cl::opt<bool> man("man-page", cl::desc("Print the manual page"), cl::cat(documents));

const char *toolName = "";

void say(const char *text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

bool isGeneric(llvm::StringRef name) { return name.starts_with("help") || name == "version"; }

/// --help shows the tool's own options; --help-hidden those of libraries too.
void hideOthers(const ToolFacts &tool, cl::OptionCategory *others) {
  for (auto &entry : cl::getRegisteredOptions()) {
    cl::Option *option = entry.second;
    const bool isOwn = llvm::any_of(tool.categories, [&](cl::OptionCategory *own) {
      return llvm::is_contained(option->Categories, own);
    });
    if (isOwn || isGeneric(entry.first) || option->getOptionHiddenFlag() != cl::NotHidden)
      continue;
    option->setHiddenFlag(cl::Hidden);
    if (others)
      option->addCategory(*others);
  }
}

/// The words before "--".
llvm::ArrayRef<char *> optionWords(int argc, char **argv) {
  const llvm::ArrayRef<char *> words(argv + std::min(argc, 1), static_cast<size_t>(std::max(argc - 1, 0)));
  return words.take_until([](const char *word) { return llvm::StringRef(word) == "--"; });
}

/// LLVM's own --help knows no defaults and prints before anything can be said about a full disk.
bool asksForHelp(int argc, char **argv) {
  return llvm::any_of(optionWords(argc, argv), [](llvm::StringRef word) {
    return word == "--help" || word == "-help" || word == "-h";
  });
}

/// An option whose name is too long to be one: LLVM would look for the nearest for minutes. Empty if there is
/// none.
llvm::StringRef endlessOption(int argc, char **argv) {
  constexpr size_t most = 200;
  for (llvm::StringRef word : optionWords(argc, argv))
    if (word.starts_with("-") && word.split('=').first.size() > most)
      return word;
  return {};
}

/// Parses the command line. An error has been printed, as one line, if this is false.
bool parseOptions(int argc, char **argv, const ToolFacts &tool) {
  if (llvm::StringRef word = endlessOption(argc, argv); !word.empty()) {
    llvm::errs() << tool.name << ": " << oneLine(("there is no option '" + word + "'").str()) << "\n";
    return false;
  }
  std::string text;
  llvm::raw_string_ostream errors(text);
  const std::string overview = tool.name + ": " + tool.purpose + "\n";
  const bool isParsed = cl::ParseCommandLineOptions(argc, argv, overview, &errors);
  std::string problem = isParsed ? wrongWord() : refusedValue();
  if (isParsed && problem.empty())
    return true;
  if (problem.empty()) {
    if (text.empty()) // a value that does not parse: LLVM has said so
      return false;
    // The first complaint explains the rest.
    llvm::StringRef line = llvm::StringRef(text).split('\n').first.trim();
    line.consume_front(llvm::StringRef(argv[0]).rsplit('/').second);
    line.consume_front(tool.name);
    line.consume_front(": ");
    // LLVM's guess is a line of its own.
    std::string guess;
    if (auto [before, after] = llvm::StringRef(text).split("Did you mean "); !after.empty())
      guess = ("; did you mean " + after.split('?').first + "?").str();
    if (!guess.empty()) // says more than where the help is
      line = line.split(".  Try").first;
    problem = line.str() + guess;
  }
  llvm::errs() << tool.name << ": " << oneLine(problem) << "\n";
  return false;
}

/// What LLVM's streams could not write is an error of ours at the end, not a crash.
void checkStreams() {
  llvm::errs().clear_error(); // nobody is there to be told
  llvm::outs().flush();
  if (!llvm::outs().has_error())
    return;
  const std::string reason = llvm::outs().error().message();
  llvm::outs().clear_error();
  for (const char *part : {toolName, ": cannot write to stdout: ", reason.c_str(), "\n"})
    say(part);
  _exit(static_cast<int>(ErrorKind::Environment));
}

/// Given back when the program ends for want of memory: what removes its files allocates.
void *reserve = nullptr;
constexpr size_t reservedBytes = size_t{4} << 20; // of addresses; no page is touched

/// Several threads may run out of memory at once: one says so.
[[noreturn]] void endWith(const char *reason) {
  static std::atomic<bool> ends = false;
  static thread_local bool isOurs = false;
  if (ends.exchange(true)) {
    if (isOurs) // again, while it ends
      _exit(static_cast<int>(ErrorKind::Environment));
    while (true)
      pause();
  }
  isOurs = true;
  for (const char *part : {toolName, ": ", reason, "\n"})
    say(part);
  std::free(reserve);
  try {
    removeTemporaryPaths();
  } catch (const std::bad_alloc &) { // some stay
  }
  _exit(static_cast<int>(ErrorKind::Environment));
}

void onFatalError(void *, const char *reason, bool) { endWith(reason); }

/// An exception of a thread: memory that is short, most often.
void onTerminate() {
  try {
    if (std::exception_ptr thrown = std::current_exception())
      std::rethrow_exception(thrown);
  } catch (const std::bad_alloc &) {
    endWith("out of memory");
  } catch (const std::exception &problem) {
    endWith(problem.what());
  } catch (...) {
  }
  std::abort();
}

/// A file that was cut short while it is mapped, or a disk that fails: one line, and no core.
void onBusError(int, siginfo_t *fault, void *) {
  const char *file = mappedFileAt(fault->si_addr);
  if (!file) { // a fault of ours
    std::signal(SIGBUS, SIG_DFL);
    return; // and again
  }
  static std::atomic<bool> ends = false;
  while (ends.exchange(true)) // several threads may read it at once: one says so
    pause();
  for (const char *part :
       {toolName, ": ", file, ": the file was cut short, or its disk failed, while it was read\n"})
    say(part);
  endAfterRemoval(static_cast<int>(ErrorKind::BadInput));
}

} // namespace

void openStandardDescriptors() {
  // The wrong direction: what is read or written fails as it did, and no file of ours gets the number.
  constexpr int directions[] = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(number, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/dev/null", directions[number]); // the lowest number that is free: this one
}

int runTool(const char *tool, const std::function<Status()> &work) {
  std::signal(SIGPIPE, SIG_IGN);
  toolName = tool;
  reserve = std::malloc(reservedBytes);
  std::set_new_handler(nullptr); // LLVM's ends the process
  std::set_terminate(onTerminate);
  struct sigaction busError = {};
  busError.sa_sigaction = onBusError;
  busError.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &busError, nullptr);
  Status status;
  try {
    removeTemporaryPathsAtSignals();
    status = work();
  } catch (const std::bad_alloc &) {
    status = environment("out of memory");
  } catch (const std::exception &problem) {
    status = environment(problem.what());
  }
  if (status)
    return 0;
  if (!status.error().message.empty())
    llvm::errs() << tool << ": " << oneLine(status.error().message) << "\n";
  return static_cast<int>(status.error().kind);
}

int toolMain(int argc, char **argv, const ToolFacts &tool, const std::function<Status()> &work) {
  openStandardDescriptors();
  toolName = tool.name.c_str();
  llvm::InitLLVM init(argc, argv);
  llvm::outs(), llvm::errs(); // made before what looks at them at the end
  std::atexit(checkStreams);
  llvm::install_fatal_error_handler(onFatalError);
  cl::SetVersionPrinter([&tool](llvm::raw_ostream &out) {
    out << tool.name << " " << FUSION_VERSION << " (LLVM " << LLVM_VERSION_STRING << ")\n";
  });
  hideOthers(tool, nullptr);
  if (tool.registerOthers) {
    tool.registerOthers();
    hideOthers(tool, tool.others);
  }
  if (asksForHelp(argc, argv))
    return runTool(toolName, [&] { return writeOutput("-", helpText(tool)); });
  if (!parseOptions(argc, argv, tool))
    return static_cast<int>(ErrorKind::BadInput);
  return runTool(toolName, [&]() -> Status {
    if (man)
      return writeOutput("-", manPage(tool, FUSION_VERSION));
    return completion.getNumOccurrences() ? writeOutput("-", completionOf(tool, completion)) : work();
  });
}

} // namespace fusion
