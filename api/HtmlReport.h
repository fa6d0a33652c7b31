// The fusion report as a page.
#pragma once

#include <string>

namespace fusion {

/// One self-contained page, which holds the report's JSON and draws it. Fetches nothing.
std::string htmlReport(const std::string &json);

} // namespace fusion
