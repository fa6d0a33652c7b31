#include "runtime/collective/Agreement.h"

#include "ir/base/Hash.h"
#include "runtime/ShapePlan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fusion {
namespace {

constexpr const char *rankSymbol = "tp_rank";
constexpr size_t mostShownOfALine = 240;

class Description {
public:
  Description(const ProgramPlan &plan, const SymbolValues &symbols, const Communicator *communicator)
      : plan(plan), symbols(symbols), communicator(communicator) {
    this->symbols[rankSymbol] = 0; // what follows from the own number differs by right
  }

  Result<std::string> run(const std::vector<std::string> &versions) {
    Result<ShapePlan> shapes = planShapes(plan, symbols, communicator);
    if (!shapes)
      return shapes.error();
    line("{} ranks along {}", plan.ranks, plan.axis);
    for (const std::string &version : versions)
      line("{}", version);
    // Before the model: of ranks with different inputs these lines say best what is wrong.
    for (const PortPlan &port : plan.inputs)
      addPort("input", port);
    line("model {} for {}", plan.model, plan.target);
    for (const PortPlan &port : plan.outputs)
      addPort("output", port);
    for (const BufferPlan &buffer : plan.buffers)
      addWeight(buffer);
    for (const KernelPlan &kernel : plan.kernels)
      line("kernel {} ({}), text {}, blocks of {} {} {}, {} bytes shared", kernel.name, kernel.schedule,
           contentHash(kernel.source), kernel.blockX, kernel.blockY, kernel.blockZ,
           kernel.dynamicSharedBytes);
    for (const ShapePlan::Launch &launch : shapes->launches)
      addLaunch(launch);
    return text;
  }

private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments &&...arguments) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Arguments>(arguments)...);
    text += '\n';
  }
  std::string value(const Dim &dim) const {
    Result<int64_t> value = dim.evaluate(symbols);
    return value ? std::to_string(*value) : dim.str();
  }
  std::string values(const DimShape &shape) const {
    std::vector<std::string> dims;
    for (const Dim &dim : shape)
      dims.push_back(value(dim));
    return fmt::format("[{}]", fmt::join(dims, ", "));
  }
  void addPort(const char *kind, const PortPlan &port) {
    std::string shard =
        port.shard ? fmt::format(", one of {} shards along {}", port.shard->count, port.shard->axis) : "";
    line("{} {} {} {}{}{}", kind, port.name, name(port.type), values(port.shape),
         port.strides.empty() ? "" : " with strides " + values(port.strides), shard);
  }
  void addWeight(const BufferPlan &buffer) {
    if (buffer.kind != BufferPlan::Kind::Weight)
      return;
    std::string contents;
    if (auto *span = std::get_if<FileSpan>(&buffer.contents))
      contents = fmt::format("{} bytes of a file", span->length * std::max<size_t>(buffer.parts.size(), 1));
    else if (auto *tensor = std::get_if<Tensor>(&buffer.contents))
      contents = "constant " + contentHash({static_cast<const char *>(tensor->data()), tensor->bytes()});
    line("weight {} {} {}, {}", buffer.name, name(buffer.type), values(buffer.shape), contents);
  }
  void addLaunch(const ShapePlan::Launch &launch) {
    static constexpr const char *algorithms[] = {"one-shot", "two-shot", "library"};
    std::string algorithm;
    if (const std::optional<Collective> &collective = launch.alternative->collective)
      algorithm =
          fmt::format(", {} of {} bytes in rounds of {}", algorithms[static_cast<int>(collective->algorithm)],
                      value(collective->messageBytes), value(collective->roundBytes));
    std::vector<std::string> arguments;
    for (size_t i = 0; i < launch.arguments.size(); ++i)
      arguments.push_back(std::visit([&](const auto &kind) { return describe(kind, launch.arguments[i]); },
                                     launch.launch->arguments[i]));
    line("launch {} at {}, grid {} {} {}{}: {}", plan.kernels[launch.kernel].name, launch.launch->location,
         launch.grid[0], launch.grid[1], launch.grid[2], algorithm, fmt::join(arguments, ", "));
  }
  // An argument by its kind.
  std::string describe(const PointerArgument &pointer, const ShapePlan::Argument &sizes) const {
    return fmt::format("{} + {}", plan.buffers[pointer.buffer].name, sizes.value);
  }
  std::string describe(const ScalarArgument &, const ShapePlan::Argument &sizes) const {
    return std::to_string(static_cast<int64_t>(sizes.value));
  }
  std::string describe(const TensorMapArgument &map, const ShapePlan::Argument &sizes) const {
    return fmt::format("tiles [{}] of [{}] in {} + {}", fmt::join(map.box, ", "),
                       fmt::join(sizes.extents, ", "), plan.buffers[map.buffer].name, sizes.value);
  }
  std::string describe(const WorkspaceArgument &, const ShapePlan::Argument &sizes) const {
    return fmt::format("workspace of {}", sizes.value);
  }
  std::string describe(const ExchangeArgument &, const ShapePlan::Argument &) const { return "exchange"; }

  const ProgramPlan &plan;
  SymbolValues symbols;
  const Communicator *communicator;
  std::string text;
};

std::string_view takeLine(std::string_view &text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string shown(std::string_view line) {
  if (line.size() > mostShownOfALine)
    return std::string(line.substr(0, mostShownOfALine)) + " ...";
  return line.empty() ? "nothing" : std::string(line);
}

} // namespace

Result<std::string> describeRun(const ProgramPlan &plan, const SymbolValues &symbols,
                                const std::vector<std::string> &versions, const Communicator *communicator) {
  return Description(plan, symbols, communicator).run(versions);
}

Status agree(Rendezvous &host, const std::string &text) {
  auto hashes = host.gather(contentHash(text));
  if (!hashes)
    return hashes.error();
  auto other =
      std::find_if(hashes->begin(), hashes->end(), [&](const auto &hash) { return hash != hashes->front(); });
  if (other == hashes->end())
    return {};
  auto texts = host.gather(text);
  if (!texts)
    return texts.error();
  const auto rank = static_cast<size_t>(other - hashes->begin());
  std::string_view mine = texts->front(), theirs = (*texts)[rank];
  std::string_view left, right;
  do {
    left = takeLine(mine);
    right = takeLine(theirs);
  } while (left == right && !(mine.empty() && theirs.empty()));
  return badInput(fmt::format("the ranks would not run the same; rank 0: {}; rank {}: {}", shown(left), rank,
                              shown(right)));
}

} // namespace fusion
