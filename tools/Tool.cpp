#include "Tool.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <exception>
#include <new>

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
    if (!belongsTo(*option, own) && !isGeneric(entry.first.str()) && option->getOptionHiddenFlag() == cl::NotHidden)
      option->addCategory(others);
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
  llvm::errs() << tool << ": " << line << "\n";
  return false;
}

int runTool(const char *tool, const std::function<Status()> &work) {
  std::signal(SIGPIPE, SIG_IGN);
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
