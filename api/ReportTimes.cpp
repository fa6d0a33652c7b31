#include "api/ReportTimes.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <deque>

namespace fusion {

Report withTimes(const Report &report, const Profile &profile) {
  auto json = llvm::json::parse(report.json());
  llvm::json::Object *object = json ? json->getAsObject() : nullptr;
  llvm::json::Array *launches = object ? object->getArray("launches") : nullptr;
  if (!json)
    llvm::consumeError(json.takeError());
  if (!launches)
    return report;
  std::map<std::pair<std::string, std::string>, std::deque<llvm::json::Object *>> waiting;
  for (llvm::json::Value &value : *launches)
    if (llvm::json::Object *launch = value.getAsObject())
      waiting[{launch->getString("kernel").value_or("").str(),
               launch->getString("location").value_or("").str()}]
          .push_back(launch);
  for (const Profile::Launch &launch : profile.launches)
    if (auto found = waiting.find({launch.kernel, launch.location});
        found != waiting.end() && !found->second.empty()) {
      (*found->second.front())["microseconds"] = launch.microseconds;
      found->second.pop_front();
    }
  return Report(llvm::formatv("{0:2}\n", *json).str());
}

} // namespace fusion
