#include "patterns/PatternSet.h"

#include "ir/base/MappedFile.h"
#include "ir/base/TextNesting.h"
#include "patterns/BuiltinPatterns.h"
#include "patterns/Validate.h"

#include "mlir/Dialect/PDL/IR/PDL.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace mlir;

namespace fusion {

namespace {
/// Parses PDL text; the error is the parser's first diagnostic.
Result<OwningOpRef<ModuleOp>> parse(llvm::StringRef text, llvm::StringRef name, MLIRContext *context) {
  std::string message;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    if (message.empty())
      message = diagnostic.str();
    return success();
  });
  if (Status status = checkNesting(text); !status)
    return badInput(name.str() + ": " + status.error().message);
  context->loadDialect<pdl::PDLDialect>();
  auto module = parseSourceString<ModuleOp>(text, ParserConfig(context), name);
  if (!module)
    return badInput(name.str() + ": " + (message.empty() ? "is not a PDL module" : message));
  return module;
}

/// Runs mlir-pdll, the only parser of PDLL that MLIR ships.
Result<std::string> compilePdll(const std::string &path) {
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName("mlir-pdll-22");
  if (!program)
    program = llvm::sys::findProgramByName("mlir-pdll");
  if (!program)
    return environment(path + ": mlir-pdll is needed for .pdll patterns; install Debian's mlir-22-tools");
  llvm::SmallString<128> output, errors;
  if (llvm::sys::fs::createTemporaryFile("fusion-patterns", "mlir", output) ||
      llvm::sys::fs::createTemporaryFile("fusion-patterns", "txt", errors))
    return environment("cannot create a temporary file");
  llvm::StringRef folder = llvm::sys::path::parent_path(path);
  llvm::SmallVector<llvm::StringRef> arguments = {*program, "-x=mlir", "-I", folder.empty() ? "." : folder,
                                                  path};
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, output.str(), errors.str()};
  constexpr unsigned seconds = 60; // an included file may be a pipe
  int code = llvm::sys::ExecuteAndWait(*program, arguments, std::nullopt, redirects, seconds);
  auto read = [](llvm::StringRef file) {
    auto buffer = llvm::MemoryBuffer::getFile(file);
    return buffer ? (*buffer)->getBuffer().str() : std::string();
  };
  std::string text = read(output), complaint = read(errors);
  llvm::sys::fs::remove(output);
  llvm::sys::fs::remove(errors);
  if (code < 0)
    return badInput(path + ": mlir-pdll crashed or did not end: is it nested, or included, without end?");
  if (code != 0)
    return badInput(complaint.empty() ? path + ": mlir-pdll failed"
                                      : llvm::StringRef(complaint).split('\n').first.str());
  return text;
}
} // namespace

bool WantedOp::accepts(Operation *op) const {
  return kind ? kind->holds(op) : op->getName().getStringRef() == name;
}

std::string WantedOp::shown(MLIRContext *context) const { return kind ? describe(*kind, context) : name; }

std::vector<llvm::StringRef> builtinFamilies() {
  std::vector<llvm::StringRef> names;
  for (auto [family, text] : builtin_patterns::files)
    names.emplace_back(family);
  return names;
}

Result<PatternSet> PatternSet::builtin(MLIRContext *context) {
  PatternSet set;
  for (auto [family, text] : builtin_patterns::files) {
    auto module = parse(text, family, context);
    if (!module)
      return module.error();
    if (Status status = set.addModule(std::move(*module), std::string(family)); !status)
      return status.error();
  }
  return set;
}

Status PatternSet::addFile(const std::string &path, MLIRContext *context) {
  if (!llvm::sys::fs::exists(path))
    return badInput(path + ": no such pattern file");
  auto file = MappedFile::open(path);
  if (!file)
    return file.error();
  std::string text;
  if (llvm::StringRef(path).ends_with(".pdll")) {
    auto compiled = compilePdll(path);
    if (!compiled)
      return compiled.error();
    text = std::move(*compiled);
  } else {
    const auto bytes = (*file)->bytes();
    text.assign(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  }
  auto module = parse(text, path, context);
  if (!module)
    return module.error();
  size_t before = list.size();
  if (Status status = addModule(std::move(*module), ""); !status)
    return status;
  return list.size() > before ? Status() : badInput(path + ": holds no pattern");
}

Status PatternSet::addModule(OwningOpRef<ModuleOp> module, const std::string &family) {
  auto kept = std::make_shared<OwningOpRef<ModuleOp>>(std::move(module));
  size_t before = list.size();
  for (auto pattern : kept->get().getOps<pdl::PatternOp>()) {
    if (Status status = validatePattern(pattern); !status) {
      list.resize(before);
      return status;
    }
    FusionPattern entry;
    entry.name = family.empty() ? pattern.getSymName().value_or("unnamed").str() : family;
    entry.pattern = pattern;
    entry.root = pattern.getRewriter().getRoot().getDefiningOp<pdl::OperationOp>();
    entry.isBuiltin = !family.empty();
    entry.wanted = wantedOps(pattern);
    entry.commutative = commutativeOps(pattern);
    list.push_back(entry);
  }
  owned.push_back(std::move(kept));
  return {};
}

std::vector<std::string> PatternSet::names() const {
  std::vector<std::string> names;
  for (const FusionPattern &pattern : list)
    if (!llvm::is_contained(names, pattern.name))
      names.push_back(pattern.name);
  return names;
}

} // namespace fusion
