// Which way of doing a collective is the fastest.
#pragma once

#include "runtime/collective/Communicator.h"

#include <optional>

namespace fusion {

/// The largest message, in bytes a rank, for which a form is the fastest; the library's takes what is larger than both.
struct FormLimits {
  size_t oneShot = 0, twoShot = 0;
  size_t oneShotOfFinished = 0; ///< instead of `oneShot` where the two-shot form sends finished rows back
  friend bool operator==(const FormLimits &, const FormLimits &) = default;
};

/// For GPUs of one host that nobody has measured.
FormLimits defaultFormLimits(int ranks);

/// What FUSION_COLLECTIVE names (one-shot, two-shot, library), for tests and comparisons; an error for anything else.
Result<std::optional<CollectiveForm>> forcedForm();

/// The form that `wanted` or the limits ask for if `ways` has it, else one that it has. Areas of more than some hundred
/// MiB are left to the library.
CollectiveForm chooseForm(const FormLimits &limits, std::optional<CollectiveForm> wanted, size_t messageBytes,
                          std::span<const CollectiveWay> ways);

/// "one-shot", "two-shot", "library".
std::string_view formName(CollectiveForm form);

} // namespace fusion
