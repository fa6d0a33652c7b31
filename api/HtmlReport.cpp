#include "api/HtmlReport.h"

#include "api/ReportText.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace fusion {

/// As the contents of a script element, which no text in it can end.
static std::string dataOf(const std::string &json) {
  auto report = llvm::json::parse(json);
  if (!report) {
    llvm::consumeError(report.takeError());
    return "{}";
  }
  std::string data;
  for (char c : llvm::formatv("{0}", *report).str()) // < stands in strings only
    if (c == '<')
      data += "\\u003c";
    else
      data += c;
  return data;
}

std::string htmlReport(const std::string &json) {
  std::string style, script;
  for (auto [name, text] : report_text::files)
    if (name.ends_with(".css"))
      style += text;
    else if (name.ends_with(".js"))
      script += text;
  std::string page;
  std::string_view rest = report_text::page_html;
  for (auto &[marker, text] : {std::pair<std::string_view, std::string>("{{style}}", style),
                               {"{{report}}", dataOf(json)},
                               {"{{script}}", script}}) {
    const size_t at = rest.find(marker);
    page.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + marker.size());
  }
  return page.append(rest);
}

} // namespace fusion
