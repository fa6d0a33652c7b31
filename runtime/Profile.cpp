#include "runtime/Profile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

namespace fusion {

double leastMicroseconds(double bytes, double flops, const DevicePeaks &peaks) {
  double moving = peaks.bytesPerMicrosecond > 0 ? bytes / peaks.bytesPerMicrosecond : 0;
  double computing = peaks.flopsPerMicrosecond > 0 ? flops / peaks.flopsPerMicrosecond : 0;
  return std::max(moving, computing);
}

std::string profileTable(std::span<const LaunchTiming> timings, const DevicePeaks &peaks) {
  struct Row {
    std::string name;
    int calls = 0;
    double microseconds = 0, bytes = 0, flops = 0, least = 0;

    void add(const LaunchTiming &timing, const DevicePeaks &peaks) {
      calls += 1;
      microseconds += timing.microseconds;
      bytes += timing.bytes;
      flops += timing.flops;
      least += leastMicroseconds(timing.bytes, timing.flops, peaks);
    }
  };
  std::map<std::string, Row> byKernel;
  Row sum{"total"};
  size_t width = 6;
  for (const LaunchTiming &timing : timings) {
    Row &row = byKernel[timing.kernel];
    row.name = timing.fusion.empty() ? timing.kernel : timing.kernel + " " + timing.fusion;
    row.add(timing, peaks);
    sum.add(timing, peaks);
    width = std::max(width, row.name.size());
  }
  std::vector<Row> rows;
  for (auto &[name, row] : byKernel)
    rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row &a, const Row &b) { return a.microseconds > b.microseconds; });
  rows.push_back(sum);
  std::string text = peaks.source.empty() ? "" : peaks.source + "\n";
  text += fmt::format("{:<{}}  {:>5}  {:>10}  {:>5}  {:>9}  {:>8}  {:>9}  {:>8}  {:>8}\n", "kernel", width,
                      "calls", "us", "%", "MB", "GB/s", "GFLOP", "TFLOP/s", "of limit");
  for (const Row &row : rows) {
    double time = std::max(row.microseconds, 1e-3);
    std::string limit = row.least > 0 ? fmt::format("{:.0f} %", 100 * row.least / time) : "-";
    text +=
        fmt::format("{:<{}}  {:>5}  {:>10.1f}  {:>5.1f}  {:>9.3f}  {:>8.1f}  {:>9.3f}  {:>8.2f}  {:>8}\n",
                    row.name, width, row.calls, row.microseconds,
                    sum.microseconds > 0 ? 100 * row.microseconds / sum.microseconds : 0, row.bytes * 1e-6,
                    row.bytes / time * 1e-3, row.flops * 1e-9, row.flops / time * 1e-6, limit);
  }
  return text;
}

namespace {

/// "model.layers.0.mlp" -> model, layers.0, mlp: a number belongs to the name before it.
std::vector<std::string> layersOf(const std::string &location) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= location.size();) {
    size_t end = std::min(location.find('.', begin), location.size());
    std::string part = location.substr(begin, end - begin);
    bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    if (number && !parts.empty())
      parts.back() += "." + part;
    else if (!part.empty())
      parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

enum Track { layerTrack = 1, kernelTrack = 2 };

nlohmann::json span(const std::string &name, const std::string &category, Track track, double begin,
                    double duration) {
  return {{"name", name}, {"cat", category},   {"ph", "X"}, {"ts", begin},
          {"dur", duration}, {"pid", 0}, {"tid", track}};
}

nlohmann::json title(const char *what, int track, const std::string &name) {
  return {{"name", what}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}};
}

struct Placed {
  std::vector<std::string> layers;
  double begin, end;
};

/// A span for each run of launches in one layer, around those of the layers in it.
void addLayers(std::span<const Placed> launches, size_t depth, nlohmann::json &events) {
  for (size_t first = 0; first < launches.size();) {
    if (launches[first].layers.size() <= depth) {
      ++first;
      continue;
    }
    const std::string &name = launches[first].layers[depth];
    size_t end = first;
    while (end < launches.size() && launches[end].layers.size() > depth &&
           launches[end].layers[depth] == name)
      ++end;
    events.push_back(span(name, "layer", layerTrack, launches[first].begin,
                          launches[end - 1].end - launches[first].begin));
    addLayers(launches.subspan(first, end - first), depth + 1, events);
    first = end;
  }
}

} // namespace

std::string chromeTrace(std::span<const LaunchTiming> timings, const DevicePeaks &peaks) {
  nlohmann::json events = nlohmann::json::array();
  events.push_back(title("process_name", 0, "fusion: kernels one after another, without the gaps of a run"));
  events.push_back(title("thread_name", layerTrack, "layers"));
  events.push_back(title("thread_name", kernelTrack, "kernels"));
  std::vector<Placed> placed;
  double now = 0;
  for (const LaunchTiming &timing : timings) {
    placed.push_back({layersOf(timing.location), now, now + timing.microseconds});
    now += timing.microseconds;
  }
  addLayers(placed, 0, events);
  for (size_t i = 0; i < timings.size(); ++i) {
    const LaunchTiming &timing = timings[i];
    nlohmann::json event =
        span(timing.kernel, timing.schedule, kernelTrack, placed[i].begin, timing.microseconds);
    event["args"] = {{"location", timing.location},
                     {"fusion", timing.fusion},
                     {"bytes", timing.bytes},
                     {"flops", timing.flops},
                     {"least_us", leastMicroseconds(timing.bytes, timing.flops, peaks)}};
    events.push_back(std::move(event));
  }
  return nlohmann::json(
             {{"traceEvents", events}, {"displayTimeUnit", "ns"}, {"otherData", {{"limits", peaks.source}}}})
      .dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace fusion
