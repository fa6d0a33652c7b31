// Buffers whose rows stay scattered over the ranks: all launches that touch one take the same algorithm for
// their collectives, whatever the limits between algorithms are.
#include "codegen/plan/VerifySteps.h"

#include <fmt/format.h>

#include <map>

namespace fusion {
namespace {

/// What a communicator chooses by, and which algorithms it finds.
struct Choice {
  std::string text;
  const KernelLaunch *first = nullptr;
};

std::string choiceText(const Step &step) {
  std::string text;
  std::optional<CollectiveAlgorithm> before;
  for (const Alternative &alternative : step.alternatives) {
    const Collective &collective = *alternative.collective;
    if (before == collective.algorithm)
      continue;
    text += before ? "" : collective.messageBytes.str();
    before = collective.algorithm;
    text += fmt::format(", {}", variantName(alternative));
    if (collective.algorithm == CollectiveAlgorithm::TwoShot)
      text += fmt::format(" of {} bytes{}", collective.roundBytes.str(),
                          collective.gathersRows ? ", gathering rows" : "");
  }
  return text;
}

} // namespace

Status verifyScattering(const ProgramPlan &plan) {
  std::map<BufferId, Choice> choices;
  for (const Step &step : plan.steps) {
    const bool isCollective = step.choice == Step::Choice::Ranks;
    const std::string text = isCollective ? choiceText(step) : std::string();
    for (const Alternative &alternative : step.alternatives)
      for (const KernelLaunch &launch : alternative.launches)
        for (const KernelArgument &argument : launch.arguments) {
          const BufferId *buffer = bufferOf(argument);
          if (!buffer || !plan.buffers[*buffer].isScattered)
            continue;
          const std::string &name = plan.buffers[*buffer].name;
          if (!isCollective)
            return badInput(fmt::format(
                "launch of {} at {}: reads or writes {}, whose rows stay scattered over the ranks",
                plan.kernels[launch.kernel].name, launch.location, name));
          auto [known, isNew] = choices.try_emplace(*buffer, Choice{text, &launch});
          if (!isNew && known->second.text != text)
            return badInput(fmt::format(
                "the launches at {} and {} share {}, whose rows stay scattered over the ranks, and "
                "may take different algorithms: {}; {}",
                known->second.first->location, launch.location, name, known->second.text, text));
        }
  }
  return {};
}

} // namespace fusion
