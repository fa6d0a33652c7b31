// Rows that each rank has of its own alone: all launches that touch them take one form of their collective, whatever its
// limits are.
#include "codegen/plan/VerifyOwners.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace fusion {
namespace {

/// What a communicator chooses by, and which forms it finds.
struct Choice {
  std::string text;
  const KernelLaunch *first = nullptr;
};

std::string choiceText(const ProgramPlan &plan, size_t begin, size_t end) {
  std::string text = plan.launches[begin].collective->messageBytes.str();
  std::optional<CollectiveForm> before;
  for (size_t i = begin; i < end; ++i) {
    const KernelLaunch::Collective &way = *plan.launches[i].collective;
    if (before == way.form)
      continue;
    before = way.form;
    text += fmt::format(", form {}", static_cast<int>(way.form));
    if (way.form == CollectiveForm::TwoShot)
      text += fmt::format(" of {} bytes{}", way.roundBytes.str(), way.finishedRows ? ", finished" : "");
  }
  return text;
}

} // namespace

Status verifyOwners(const ProgramPlan &plan) {
  std::map<BufferId, Choice> choices;
  for (size_t begin = 0; begin < plan.launches.size();) {
    const size_t end = std::max(plan.endOfCollective(begin), begin + 1);
    const bool isCollective = plan.launches[begin].collective.has_value();
    const std::string text = isCollective ? choiceText(plan, begin, end) : std::string();
    for (size_t i = begin; i < end; ++i)
      for (const KernelLaunch::Argument &argument : plan.launches[i].arguments) {
        if (!argument.buffer || !plan.buffers[*argument.buffer].ownersRows)
          continue;
        const KernelLaunch &launch = plan.launches[i];
        const std::string &name = plan.buffers[*argument.buffer].name;
        if (!isCollective)
          return badInput(fmt::format("launch of {} at {}: reads or writes {}, of which ranks have their own rows only",
                                      plan.kernels[launch.kernel].name, launch.location, name));
        auto [known, isNew] = choices.try_emplace(*argument.buffer, Choice{text, &launch});
        if (!isNew && known->second.text != text)
          return badInput(fmt::format("the launches at {} and {} share {}, of which ranks have their own rows only, and may "
                                      "take different forms: {}; {}",
                                      known->second.first->location, launch.location, name, known->second.text, text));
      }
    begin = end;
  }
  return {};
}

} // namespace fusion
