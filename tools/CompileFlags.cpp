#include "CompileFlags.h"

#include "api/Lower.h"

#include "llvm/ADT/StringSet.h"

namespace cl = llvm::cl;

namespace fusion {

CompileFlags::CompileFlags(cl::OptionCategory &category)
    : fuseDisable("fuse-disable", cl::CommaSeparated, cl::desc("Leave fusions out, by pattern name"),
                  cl::value_desc("NAME,..."), cl::cat(category)),
      profit("profit", "What decides between fusions", "auto", category,
             {{"auto", "measured time on a GPU of the target, if there is one"},
              {"model", "memory traffic and launches saved"},
              {"measure", "measured time, or an error"}}),
      patterns("patterns", cl::desc("More patterns (.pdll or PDL .mlir); repeatable"), cl::value_desc("FILE"),
               cl::cat(category)),
      kvCapacity("kv-capacity", "Positions that key/value caches hold: they are extended in place", category,
                 {.unit = "N", .what = "a number of positions", .least = 1}),
      sharedCaches("shared-caches",
                   cl::desc("Caches of GroupQueryAttention are given as buffers of full capacity"),
                   cl::cat(category)),
      dims("dim", cl::CommaSeparated, cl::desc("Sizes of dims that are known now, such as batch=1"),
           cl::value_desc("NAME=SIZE,..."), cl::cat(category)),
      constants("constant",
                cl::desc("A graph input that is known now: a number, true or false, or several with commas; "
                         "repeatable"),
                cl::value_desc("NAME=VALUE"), cl::cat(category)),
      tensorParallel("tp", "Divide the graph among N ranks of tensor parallelism", category,
                     {.unit = "N", .what = "a number of ranks", .initial = 1, .least = 1}),
      noAssumeFinite(
          "no-assume-finite",
          cl::desc(
              "Take no values for finite: experts of weight 0 run, and attention that clears NaN or masks "
              "by a finite number, and norms with statistics of f16 stay as written"),
          cl::cat(category)),
      batchInvariant("batch-invariant", cl::desc("A row's result does not depend on the other rows of a run"),
                     cl::cat(category)),
      trustPaths("trust-paths",
                 cl::desc("Take weights from wherever the file says: other folders, through links"),
                 cl::cat(category)),
      sample("sample",
             cl::desc("The graph chooses the next token: greedy, or drawn by temperature=T,top-k=K,top-p=P; "
                      "with no-logits beside it the logits are no result"),
             cl::value_desc("HOW"), cl::cat(category)),
      quiet("quiet", cl::desc("No progress on stderr"), cl::cat(category)) {
  noteExtra(fuseDisable, {.initial = {}, .words = fusionWords});
}

/// Name and size of `batch=1`.
static std::optional<std::pair<std::string, int64_t>> dimOf(llvm::StringRef text) {
  auto [name, size] = text.rsplit('=');
  int64_t number;
  if (name.empty() || size.getAsInteger(10, number) || number < 0)
    return std::nullopt;
  return std::pair(name.str(), number);
}

/// Name and value of `use_cache_branch=true`; the name may hold a `=`.
static std::optional<std::pair<std::string, std::string>> constantOf(llvm::StringRef text) {
  auto [name, value] = text.rsplit('=');
  return name.empty() || value.empty() ? std::nullopt : std::optional(std::pair(name.str(), value.str()));
}

Status CompileFlags::check() const {
  llvm::StringSet<> inputs;
  for (const std::string &constant : constants) {
    auto known = constantOf(constant);
    if (!known)
      return badInput("--constant takes NAME=VALUE, not '" + constant + "'");
    if (!inputs.insert(known->first).second)
      return badInput("--constant gives '" + known->first + "' twice");
  }
  llvm::StringSet<> named;
  for (const std::string &dim : dims) {
    auto known = dimOf(dim);
    if (!known)
      return badInput("--dim takes NAME=SIZE, not '" + dim + "'");
    if (!named.insert(known->first).second)
      return badInput("--dim gives '" + known->first + "' twice");
  }
  if (sample.getNumOccurrences())
    if (auto how = samplingNamed(sample.getValue()); !how)
      return badInput("--sample: " + how.error().message);
  return {};
}

std::optional<Sampling> CompileFlags::sampling() const {
  auto how = sample.getNumOccurrences() ? samplingNamed(sample.getValue()) : badInput("");
  return how ? std::optional(*how) : std::nullopt;
}

CompileOptions CompileFlags::options(Target target) const {
  CompileOptions options{.target = std::move(target)};
  options.disabledFusions.assign(fuseDisable.begin(), fuseDisable.end());
  options.patternFiles.assign(patterns.begin(), patterns.end());
  options.profit = profit == "auto"    ? ProfitMode::Auto
                   : profit == "model" ? ProfitMode::Model
                                       : ProfitMode::Measure;
  options.kvCapacity = kvCapacity;
  options.tensorParallel = tensorParallel;
  options.launcher = true;
  options.assumeFinite = !noAssumeFinite;
  options.batchInvariant = batchInvariant;
  return options;
}

LoadOptions CompileFlags::loading() const {
  LoadOptions options{.sharedCaches = sharedCaches, .trustPaths = trustPaths, .sampling = sampling()};
  for (const std::string &dim : dims)
    options.dims.insert(*dimOf(dim));
  for (const std::string &constant : constants)
    options.constantTexts.insert(*constantOf(constant));
  return options;
}

VocabularyFlag::VocabularyFlag(cl::OptionCategory &category)
    : value("tp-vocabulary", cl::desc("With --tp: divide the embedding and the head too"),
            cl::cat(category)) {}

Status VocabularyFlag::check(const CompileFlags &flags) const {
  return value && flags.tensorParallel == 1 ? badInput("--tp-vocabulary needs --tp") : Status();
}

static std::vector<Word> targetWords() {
  std::vector<Word> words;
  llvm::SmallVector<llvm::StringRef> names;
  const std::string known = Target::known();
  llvm::StringRef(known).split(names, ", ");
  for (llvm::StringRef name : names)
    words.push_back({name.str(), ""});
  return words;
}

WordOption targetOption(cl::OptionCategory &category) {
  return WordOption("target", "GPU architecture; no GPU needed", "sm_90a", category, targetWords(),
                    [](const std::string &name) { return Target{name}.isKnown(); });
}

std::vector<Word> fusionWords() {
  std::vector<Word> words;
  for (const std::string &name : builtinFusions())
    words.push_back({name, ""});
  return words;
}

KernelFlag::KernelFlag(cl::OptionCategory &category)
    : values("kernel",
             cl::desc(
                 "Take an edited kernel, check it against its body, time it beside the original; repeatable"),
             cl::value_desc("NAME=FILE.cu"), cl::cat(category)) {}

Status KernelFlag::check() const {
  for (const std::string &value : values)
    if (size_t equals = value.find('='); equals == 0 || equals >= value.size() - 1)
      return badInput("--kernel takes NAME=FILE.cu, not '" + value + "'");
  return {};
}

std::vector<KernelFile> KernelFlag::files() const {
  std::vector<KernelFile> files;
  for (const std::string &value : values)
    files.push_back({value.substr(0, value.find('=')), value.substr(value.find('=') + 1)});
  return files;
}

Status checkReportFile(const std::string &path) {
  return path.empty() || Report::isFile(path)
             ? Status()
             : Status(badInput("--report writes .json, .md or .html, not '" + path + "'"));
}

} // namespace fusion
