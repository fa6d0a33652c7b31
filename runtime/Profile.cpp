#include "runtime/Profile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <vector>

namespace fusion {

std::string profileTable(std::span<const LaunchTiming> timings) {
  struct Row {
    std::string name;
    int calls = 0;
    double microseconds = 0, bytes = 0, flops = 0;
  };
  std::map<std::string, Row> byKernel;
  double total = 0;
  size_t width = 6;
  for (const LaunchTiming &timing : timings) {
    Row &row = byKernel[timing.kernel];
    row.name = timing.kernel;
    row.calls += 1;
    row.microseconds += timing.microseconds;
    row.bytes += timing.bytes;
    row.flops += timing.flops;
    total += timing.microseconds;
    width = std::max(width, timing.kernel.size());
  }
  std::vector<Row> rows;
  for (auto &[name, row] : byKernel)
    rows.push_back(row);
  std::sort(rows.begin(), rows.end(),
            [](const Row &a, const Row &b) { return a.microseconds > b.microseconds; });
  std::string text = fmt::format("{:<{}}  {:>5}  {:>10}  {:>5}  {:>8}  {:>8}\n", "kernel", width, "calls",
                                 "us", "%", "GB/s", "TFLOP/s");
  auto line = [&](const Row &row) {
    double time = std::max(row.microseconds, 1e-3);
    text += fmt::format("{:<{}}  {:>5}  {:>10.1f}  {:>5.1f}  {:>8.1f}  {:>8.2f}\n", row.name, width,
                        row.calls, row.microseconds, total > 0 ? 100 * row.microseconds / total : 0,
                        row.bytes / time * 1e-3, row.flops / time * 1e-6);
  };
  Row sum{"total"};
  for (const Row &row : rows) {
    line(row);
    sum.calls += row.calls;
    sum.microseconds += row.microseconds;
    sum.bytes += row.bytes;
    sum.flops += row.flops;
  }
  line(sum);
  return text;
}

std::string chromeTrace(std::span<const LaunchTiming> timings) {
  nlohmann::json events = nlohmann::json::array();
  double start = 0;
  for (const LaunchTiming &timing : timings) {
    events.push_back({{"name", timing.kernel},
                      {"cat", timing.schedule},
                      {"ph", "X"},
                      {"ts", start},
                      {"dur", timing.microseconds},
                      {"pid", 0},
                      {"tid", 0},
                      {"args",
                       {{"location", timing.location},
                        {"fusion", timing.fusion},
                        {"bytes", timing.bytes},
                        {"flops", timing.flops}}}});
    start += timing.microseconds;
  }
  return nlohmann::json({{"traceEvents", events}, {"displayTimeUnit", "ns"}})
      .dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace fusion
