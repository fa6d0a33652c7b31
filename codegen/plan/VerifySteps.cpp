// Whether the alternatives of each step are for all sizes, and do the same.
#include "codegen/plan/VerifySteps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace fusion {
namespace {

using Buffers = std::set<BufferId>;

std::string rangeText(const SizeRange &range) {
  return fmt::format("{} … {} of {}", range.least, range.most, range.size.str());
}

/// The alternatives of one variant, [begin, end) of a step's.
struct Variant {
  size_t begin, end;
};

std::vector<Variant> variantsOf(const Step &step) {
  std::vector<Variant> variants;
  for (size_t i = 0; i < step.alternatives.size(); ++i)
    if (i > 0 && variantName(step.alternatives[i]) == variantName(step.alternatives[i - 1]))
      ++variants.back().end;
    else
      variants.push_back({i, i + 1});
  return variants;
}

/// Which sizes reach the alternatives of a variant: every combination of sizes at which some range begins or
/// has ended stands for those up to the next one. Sizes of different expressions count as independent.
class Coverage {
public:
  Coverage(const Step &step, const Variant &variant)
      : step(step), variant(variant), reached(step.alternatives.size()) {
    for (size_t i = variant.begin; i < variant.end; ++i)
      for (const SizeRange &range : step.alternatives[i].when) {
        std::set<int64_t> &begins = corners[range.size.str()];
        begins.insert({1, range.least});
        if (range.most != INT64_MAX)
          begins.insert(range.most + 1);
      }
  }

  /// Sizes that no alternative is for, or an alternative that none reach; nothing if all is well.
  std::optional<std::string> problem() {
    size_t combinations = 1;
    for (const auto &[size, begins] : corners)
      if ((combinations *= begins.size()) > 100000)
        return "has predicates over too many sizes";
    if (!visit(corners.begin()))
      return fmt::format("is for no sizes with {}", uncovered);
    for (size_t i = variant.begin; i < variant.end; ++i)
      if (!reached[i])
        return fmt::format("never takes alternative {}: those before it are for its sizes", i);
    return std::nullopt;
  }

private:
  using Corners = std::map<std::string, std::set<int64_t>>;

  bool visit(Corners::const_iterator size) {
    if (size == corners.end())
      return choose();
    return std::all_of(size->second.begin(), size->second.end(), [&](int64_t value) {
      values[size->first] = value;
      return visit(std::next(size));
    });
  }

  bool choose() {
    for (size_t i = variant.begin; i < variant.end; ++i) {
      const Predicate &when = step.alternatives[i].when;
      if (std::all_of(when.begin(), when.end(),
                      [&](const SizeRange &range) { return range.holds(values[range.size.str()]); }))
        return reached[i] = true;
    }
    uncovered.clear();
    for (const auto &[size, value] : values)
      uncovered += fmt::format("{}{} = {}", uncovered.empty() ? "" : ", ", size, value);
    return variant.begin > 0 && step.choice == Step::Choice::Measurement; // then another variant is for them
  }

  const Step &step;
  const Variant variant;
  Corners corners; ///< for each expression
  std::map<std::string, int64_t> values;
  std::vector<bool> reached;
  std::string uncovered;
};

/// What is wrong with the choice between the variants of a step; empty if nothing is.
std::string problemOfChoice(const Step &step, const std::vector<Variant> &variants) {
  std::set<std::string_view> names;
  for (const Variant &variant : variants)
    if (!names.insert(variantName(step.alternatives[variant.begin])).second)
      return "has alternatives of one variant apart";
  for (const Alternative &alternative : step.alternatives) {
    const bool measured = step.choice == Step::Choice::Measurement,
               agreed = step.choice == Step::Choice::Ranks;
    if (alternative.variant.empty() == measured || alternative.collective.has_value() != agreed)
      return "has an alternative that does not fit to how it is chosen";
    if (agreed &&
        !(alternative.collective->messageBytes == step.alternatives.front().collective->messageBytes))
      return "has alternatives for messages of different sizes";
  }
  const bool byPredicate = step.choice == Step::Choice::Predicate;
  if (byPredicate != (variants.size() == 1) && step.choice != Step::Choice::Ranks)
    return byPredicate ? "has variants that sizes do not choose from"
                       : "has one variant, and nothing to measure";
  return "";
}

/// The buffers that other steps, or the readers of the outputs, read.
class Results {
public:
  explicit Results(const ProgramPlan &plan) : plan(plan) {
    for (size_t step = 0; step < plan.steps.size(); ++step)
      for (const Alternative &alternative : plan.steps[step].alternatives)
        for (const KernelLaunch &launch : alternative.launches)
          for (const KernelArgument &argument : launch.arguments)
            if (const BufferId *buffer = bufferOf(argument))
              users[*buffer].push_back({step, &alternative});
  }
  Buffers of(const Alternative &alternative) const {
    Buffers written;
    for (const KernelLaunch &launch : alternative.launches)
      for (const KernelArgument &argument : launch.arguments)
        if (const BufferId *buffer = bufferOf(argument); buffer && isWritten(argument) && isSeen(*buffer))
          written.insert(*buffer);
    return written;
  }

private:
  struct User {
    size_t step;
    const Alternative *alternative;
  };
  /// Not what is between launches of one alternative, or linked ones, nor between alternatives of several
  /// steps that run together: those for the same sizes, which alone choose.
  bool isSeen(BufferId buffer) const {
    if (plan.buffers[buffer].kind != BufferPlan::Kind::Temporary)
      return true;
    const auto found = users.find(buffer);
    if (found == users.end())
      return false; // between linked launches
    const std::vector<User> &all = found->second;
    const User &first = all.front();
    return !std::ranges::all_of(all, [&](const User &user) {
      return user.step == first.step || (plan.steps[user.step].choice == Step::Choice::Predicate &&
                                         plan.steps[first.step].choice == Step::Choice::Predicate &&
                                         user.alternative->when == first.alternative->when);
    });
  }
  const ProgramPlan &plan;
  std::map<BufferId, std::vector<User>> users;
};

std::string problemOf(const Step &step, const Results &results) {
  if (step.alternatives.empty())
    return "has no alternatives";
  for (const Alternative &alternative : step.alternatives) {
    if (alternative.launches.empty())
      return "has an alternative without launches";
    for (const SizeRange &range : alternative.when)
      if (range.least < 1 || range.most < range.least)
        return "has an alternative for " + rangeText(range);
  }
  const std::vector<Variant> variants = variantsOf(step);
  if (std::string problem = problemOfChoice(step, variants); !problem.empty())
    return problem;
  for (const Variant &variant : variants)
    if (auto problem = Coverage(step, variant).problem())
      return *problem;
  const Buffers wanted = results.of(step.alternatives.front());
  for (const Alternative &alternative : step.alternatives) {
    if (results.of(alternative) != wanted)
      return "has alternatives that write other buffers than the first";
    using Link = Alternative::Link;
    const bool isEnd = alternative.link == Link::First || alternative.link == Link::Last;
    if (alternative.linked.has_value() != isEnd)
      return isEnd ? "is an end of a link without a linked launch" : "has a linked launch without a link";
    if (!alternative.linked)
      continue;
    if (alternative.launches.size() != 1 && alternative.link == Link::First)
      return "has a linked launch instead of several";
    if (results.of(Alternative{{}, {*alternative.linked}}) != wanted)
      return "has a linked launch that writes other buffers";
  }
  return "";
}

} // namespace

Status verifySteps(const ProgramPlan &plan) {
  const Results results(plan);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step &step = plan.steps[i];
    const std::string problem = problemOf(step, results);
    if (problem.empty())
      continue;
    const bool hasLaunch = !step.alternatives.empty() && !step.alternatives.front().launches.empty();
    const std::string where = hasLaunch ? step.alternatives.front().launches.front().location : std::string();
    return badInput(fmt::format("step {}{}{} {}", i, where.empty() ? "" : " at ", where, problem));
  }
  return {};
}

} // namespace fusion
