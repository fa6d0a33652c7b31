// Where the temporaries of one set of shapes lie.
#include "runtime/ShapePlan.h"

#include <algorithm>
#include <numeric>

namespace fusion {

void ShapePlanner::placeTemporaries(ShapePlan &shapes) {
  std::vector<Lifetime> lifetimes(index.places.size(), {0, INT64_MAX, -1});
  for (size_t i = 0; i < shapes.launches.size(); ++i)
    for (const ShapePlan::Argument &argument : shapes.launches[i].arguments) {
      if (!argument.usesPlace() || !index.places[argument.place].isInArena)
        continue;
      Lifetime &lifetime = lifetimes[argument.place];
      lifetime.bytes = shapes.askedBytes[argument.place];
      lifetime.first = std::min(lifetime.first, static_cast<int64_t>(i));
      lifetime.last = static_cast<int64_t>(i);
      if (i + 1 < shapes.launches.size() && shapes.launches[i + 1].runsBesidePrevious)
        ++lifetime.last;
    }
  // What comes from before the rounds of a loop is read in each.
  for (const ShapePlan::Repetition &rounds : shapes.repetitions)
    for (Lifetime &lifetime : lifetimes)
      if (lifetime.first < rounds.first && lifetime.last >= rounds.first)
        lifetime.last = std::max(lifetime.last, static_cast<int64_t>(rounds.end));
  std::vector<bool> used;
  for (const Lifetime &lifetime : lifetimes)
    used.push_back(lifetime.last >= 0);
  const std::vector<uint32_t> places = shareMemory(shapes, lifetimes);
  for (Lifetime &lifetime : lifetimes) // sizes that take as much memory are the same
    lifetime.bytes = alignedSize(lifetime.bytes);
  if (lifetimes != lastLifetimes) {
    lastMemory = planMemory(lifetimes);
    lastLifetimes = std::move(lifetimes);
  }
  shapes.arenaOffsets.clear();
  shapes.roomBytes.clear();
  for (size_t i = 0; i < places.size(); ++i) {
    shapes.arenaOffsets.push_back(lastMemory.offsets[places[i]]);
    shapes.roomBytes.push_back(used[i] ? lastLifetimes[places[i]].bytes : SIZE_MAX);
  }
  shapes.arenaBytes = lastMemory.total;
}

std::vector<uint32_t> ShapePlanner::shareMemory(const ShapePlan &shapes,
                                                std::vector<Lifetime> &lifetimes) const {
  std::vector<uint32_t> places(lifetimes.size());
  std::iota(places.begin(), places.end(), 0);
  // Whether the launch before this one, beside which it runs, uses the memory.
  auto isStillUsed = [&](size_t i, uint32_t place) {
    return shapes.launches[i].runsBesidePrevious &&
           std::ranges::any_of(shapes.launches[i - 1].arguments, [&](const ShapePlan::Argument &argument) {
             return argument.usesPlace() && places[argument.place] == place;
           });
  };
  for (size_t i = 0; i < shapes.launches.size(); ++i) {
    const auto &arguments = shapes.launches[i].launch->arguments;
    auto now = static_cast<int64_t>(i);
    for (const KernelArgument &argument : arguments) {
      auto *output = std::get_if<PointerArgument>(&argument);
      for (uint32_t other : output ? output->mayReplace : std::vector<uint32_t>()) {
        const auto &input = std::get<PointerArgument>(arguments[other]);
        Lifetime &written = lifetimes[output->buffer], &read = lifetimes[places[input.buffer]];
        bool dies = written.bytes > 0 && written.first == now && read.bytes > 0 && read.last == now;
        // A buffer that begins elsewhere than its memory's owner would not line up.
        bool lineUp =
            output->byteOffset == Dim(0) && input.byteOffset == Dim(0) && read.bytes >= written.bytes;
        if (!dies || !lineUp || output->buffer == places[input.buffer] ||
            isStillUsed(i, places[input.buffer]))
          continue;
        read.last = written.last;
        written = {0, INT64_MAX, -1};
        places[output->buffer] = places[input.buffer];
        break;
      }
    }
  }
  return places;
}

} // namespace fusion
