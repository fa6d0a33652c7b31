#include "api/HtmlReport.h"
#include "api/PlanReport.h"
#include "api/ReportContents.h"
#include "ir/base/MappedFile.h"
#include "ir/base/Nearest.h"
#include "ir/base/PlainText.h"
#include "ir/base/Units.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace fusion {

/// A line for each kernel: how often it is launched, and where first.
static std::string launchTable(const std::string &text) {
  auto report = llvm::json::parse(text);
  const llvm::json::Object *object = report ? report->getAsObject() : nullptr;
  const llvm::json::Array *launches = object ? object->getArray("launches") : nullptr;
  if (!report)
    llvm::consumeError(report.takeError());
  if (!launches)
    return {};
  struct Row {
    size_t launches = 0;
    std::string fusion, location;
    double microseconds = 0;
  };
  llvm::MapVector<llvm::StringRef, Row> rows;
  bool timed = false;
  for (const llvm::json::Value &entry : *launches)
    if (const llvm::json::Object *launch = entry.getAsObject()) {
      Row &row = rows[launch->getString("kernel").value_or("")];
      if (row.launches++ == 0)
        row = {1, launch->getString("fusion").value_or("").str(),
               launch->getString("location").value_or("").str()};
      row.microseconds += launch->getNumber("microseconds").value_or(0);
      timed |= row.microseconds > 0;
    }
  std::string table = "\n## Kernels\n\n| kernel | launches | fusion | first at |";
  table += timed ? " time |\n|---|---|---|---|---|\n" : "\n|---|---|---|---|\n";
  for (const auto &[kernel, row] : rows) {
    table += llvm::formatv("| {0} | {1} | {2} | {3} |", markdownText(kernel.str()), row.launches,
                           markdownText(row.fusion), markdownText(row.location))
                 .str();
    if (timed)
      table += row.microseconds > 0 ? " " + microsecondsText(row.microseconds) + " |" : " |";
    table += "\n";
  }
  return table;
}

Report makeReport(FusionReport report, const ProgramPlan *plan) {
  auto kernelSources = [&](llvm::json::OStream &out) { writeKernelSources(out, *plan); };
  auto launches = [&](llvm::json::OStream &out) { writeLaunches(out, *plan, report); };
  std::string json = plan ? report.json(kernelSources, launches) : report.json();
  return Report(
      std::make_shared<const Report::Contents>(Report::Contents{std::move(json), std::move(report)}));
}

Report::Report(const std::string &json)
    : contents(std::make_shared<const Contents>(Contents{json, reportFromJson(json)})) {}
Report::Report(std::shared_ptr<const Contents> contents) : contents(std::move(contents)) {}

std::string Report::json() const { return contents->json; }
std::string Report::markdown() const { return contents->report.markdown() + launchTable(contents->json); }
std::string Report::html() const { return htmlReport(contents->json); }

bool Report::isFile(std::string_view path) {
  return path.ends_with(".json") || path.ends_with(".md") || path.ends_with(".html");
}

Status Report::write(const std::string &path) const {
  if (!isFile(path))
    return badInput("a report is written to .json, .md or .html, not '" + path + "'");
  return writeFileAtomically(path, path.ends_with(".json") ? json()
                                   : path.ends_with(".md") ? markdown()
                                                           : html());
}

int Report::fired(const std::string &pattern) const {
  const auto &patterns = contents->report.patterns;
  auto found = patterns.find(pattern);
  return found == patterns.end() ? 0 : static_cast<int>(found->second.fired.size());
}

Status Report::require(const std::string &pattern, size_t times) const {
  const FusionReport::Pattern *found = nullptr;
  for (const auto *named : {&contents->report.patterns, &contents->report.raises})
    if (auto entry = named->find(pattern); entry != named->end() && !found)
      found = &entry->second;
  if (!found)
    return badInput("--require names an unknown fusion '" + pattern + "'" +
                    didYouMean(pattern, contents->report.patterns));
  const size_t fired = found->fired.size();
  if (fired == times)
    return {};
  std::string message = "required " + pattern + " to fire " + std::to_string(times) + " times, it fired " +
                        std::to_string(fired);
  for (const FusionReport::Miss &miss : found->missed)
    message += "\n  missed at " + miss.location + ": " + miss.reason;
  return Error{ErrorKind::AnswerIsNo, message};
}

std::vector<std::string> Report::remarks() const {
  std::vector<std::string> lines;
  if (auto shard = contents->report.patterns.find("shard"); shard != contents->report.patterns.end())
    for (const FusionReport::Miss &miss : shard->second.missed)
      if (miss.location.empty())
        lines.push_back(miss.reason);
  return lines;
}

size_t Report::layers() const { return contents->report.layers.size(); }
int Report::kernelsBefore() const { return static_cast<int>(contents->report.kernelsBefore); }
std::string Report::noPlan() const { return contents->report.noPlan; }
int Report::kernelsAfter() const { return static_cast<int>(contents->report.kernelsAfter); }

} // namespace fusion
