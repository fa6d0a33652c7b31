// The arguments of a launch as words that a backend takes.
#pragma once

#include "runtime/Backend.h"
#include "runtime/ShapePlan.h"

#include <optional>
#include <string>

namespace fusion {

/// Whether a tensor map's view has no elements: it may begin behind an empty buffer then.
bool isEmptyView(const ShapePlan::Argument &sizes);

/// Why the tensor map cannot be encoded at these sizes for a buffer of so many bytes; nothing if it can. Of a
/// view without elements a kernel loads no tile.
std::optional<std::string> tensorMapProblem(const TensorMapArgument &map, const ShapePlan::Argument &sizes,
                                            size_t bufferBytes);

/// Backend::Launch::arguments of `launch` into `words`. `places`: the address of each of ShapePlan's places.
Status resolveArguments(const ShapePlan::Launch &launch, std::span<void *const> places, void *exchange,
                        Backend &backend, std::vector<uint64_t> &words);

/// Queues zeros to the workspace of `launch` that begins with them.
Status clearWorkspace(const ShapePlan::Launch &launch, std::span<void *const> places, Backend &backend);

} // namespace fusion
