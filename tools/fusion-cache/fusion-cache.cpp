// fusion-cache: what the folder of compiled kernels, plans and reports holds.
#include "Output.h"
#include "Tool.h"

#include "api/CacheFolder.h"

#include "llvm/Support/CommandLine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Options");
cl::opt<std::string> command(cl::Positional, cl::desc("COMMAND: list, check or clear"), cl::cat(category));
cl::opt<std::string> folderPath("cache", cl::desc("The folder (default: that of the other tools)"),
                                cl::value_desc("DIR"), cl::cat(category));
cl::opt<std::string> keep("keep",
                          cl::desc("With clear: keep what was used last, up to so many bytes, such as 512M"),
                          cl::value_desc("SIZE"), cl::cat(category));
std::vector<Word> commands() { return {{"list", ""}, {"check", ""}, {"clear", ""}}; }

Status run() {
  if (command != "list" && command != "check" && command != "clear")
    return badInput(command.empty() ? "no COMMAND; see fusion-cache --help"
                                    : "there is no command '" + command + "': list, check or clear");
  if (!keep.empty() && (command != "clear" || !parseBytes(keep.getValue())))
    return badInput("--keep takes a size such as 512M, with clear, not '" + keep + "'");
  const std::string path = folderPath.empty() ? CacheFolder::defaultPath() : folderPath;
  if (path.empty())
    return environment("there is no cache folder: HOME is not set, nor FUSION_CACHE_DIR");
  auto cache = CacheFolder::open(path);
  if (!cache)
    return cache.error();
  if (command == "clear") {
    cache->shrink(keep.empty() ? 0 : *parseBytes(keep.getValue()));
    return {};
  }
  std::string text;
  uint64_t bytes = 0;
  size_t damaged = 0;
  const std::vector<PrivateFolder::Entry> entries = cache->entries();
  for (const PrivateFolder::Entry &entry : entries) {
    const std::optional<std::string> kind = cache->kindOf(entry);
    bytes += entry.bytes;
    damaged += !kind;
    if (command == "list" || !kind)
      text += fmt::format("{:8} {:>10} {:%Y-%m-%d %H:%M} {}\n", kind.value_or("damaged"), entry.bytes,
                          fmt::gmtime(static_cast<std::time_t>(entry.used)), entry.names.front());
  }
  text +=
      fmt::format("{}: {} files, {} bytes of {}{}\n", path, entries.size(), bytes, CacheFolder::mostBytes(),
                  damaged ? fmt::format(", {} damaged", damaged) : std::string());
  if (Status status = writeOutput("-", text); !status)
    return status;
  return damaged && command == "check" ? Status(Error{ErrorKind::AnswerIsNo, ""}) : Status();
}
} // namespace

int main(int argc, char **argv) {
  noteExtra(command, {.initial = {}, .words = commands, .otherWords = false});
  return toolMain(
      argc, argv,
      {.name = "fusion-cache",
       .purpose = "list, check or clear compiled kernels",
       .description =
           "The folder of compiled kernels, plans and reports that programs keep between runs: list shows "
           "what it holds, check what is damaged in it, clear removes it.",
       .categories = {&category}},
      run);
}
