#include "runtime/collective/Forms.h"

#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

/// Of one round's area. Every rank has three.
static constexpr size_t mostRoundBytes = size_t(512) << 20;

// H200, NVLink, a chain of all-reduce, add and norm over rows of 16 KiB (benchmarks/notes-collectives.md): of two ranks each
// sends as much in either form; of more, each rank's traffic of the one-shot form grows with their number. Three ranks, and
// more than four, are computed from what two and four take.
FormLimits defaultFormLimits(int ranks) {
  const size_t oneShot = ranks <= 2 ? 32 << 20 : ranks == 3 ? 384 << 10 : ranks == 4 ? 192 << 10 : 64 << 10;
  return {oneShot, size_t(256) << 20, std::min(oneShot, size_t(1536) << 10)};
}

std::string_view formName(CollectiveForm form) {
  switch (form) {
  case CollectiveForm::OneShot:
    return "one-shot";
  case CollectiveForm::TwoShot:
    return "two-shot";
  case CollectiveForm::Library:
    return "library";
  }
  return "";
}

Result<std::optional<CollectiveForm>> forcedForm() {
  const std::string text = environmentVariable("FUSION_COLLECTIVE");
  if (text.empty())
    return std::optional<CollectiveForm>();
  for (CollectiveForm form : {CollectiveForm::OneShot, CollectiveForm::TwoShot, CollectiveForm::Library})
    if (text == formName(form))
      return std::optional(form);
  return badInput(fmt::format("FUSION_COLLECTIVE is one-shot, two-shot or library, not '{}'", text));
}

CollectiveForm chooseForm(const FormLimits &limits, std::optional<CollectiveForm> wanted, size_t messageBytes,
                          std::span<const CollectiveWay> ways) {
  auto has = [&](CollectiveForm form) {
    return std::any_of(ways.begin(), ways.end(), [&](const CollectiveWay &way) {
      return way.form == form && (way.form == CollectiveForm::Library || way.roundBytes <= mostRoundBytes);
    });
  };
  if (wanted && has(*wanted))
    return *wanted;
  const bool finished = std::any_of(ways.begin(), ways.end(), [](const CollectiveWay &way) { return way.finishedRows; });
  if (messageBytes <= (finished ? limits.oneShotOfFinished : limits.oneShot) && has(CollectiveForm::OneShot))
    return CollectiveForm::OneShot;
  if (messageBytes <= limits.twoShot && has(CollectiveForm::TwoShot))
    return CollectiveForm::TwoShot;
  return has(CollectiveForm::Library) ? CollectiveForm::Library : ways.back().form; // the form for the larger messages
}

} // namespace fusion
