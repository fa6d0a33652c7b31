// The exported graphs that the end-to-end tests run, and inputs for them at any size.
#pragma once

#include "api/Fusion.h"

#include <random>
#include <string>
#include <vector>

namespace fusion::test {

/// Names of the folders under test/data/graphs (or $FUSION_GRAPHS).
std::vector<std::string> graphNames();
std::string graphFile(const std::string &graph, const std::string &file);

/// Token ids below 256, positions after `past` cached ones, an attention mask of ones, normal caches.
NamedTensors makeInputs(const std::vector<Port> &ports, int64_t batch, int64_t sequence, int64_t past,
                        std::mt19937 &random);

/// Relative L2 tolerance of a model of this type against the same model in PyTorch.
double modelTolerance(DType type);

/// That the program's results, wherever they are, are those of another program, within modelTolerance().
void expectClose(Program &program, const NamedTensors &actual, const NamedTensors &expected);

} // namespace fusion::test
