// What tests of programs on several ranks share.
#pragma once

#include "TestDevice.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace fusion::test {

/// Runs with each of `inputs` in turn: results have the same bits as those of its first run. Many runs on
/// GPUs, where each replays a recorded graph.
inline void expectTheSameBitsAgain(Program &program, const std::vector<NamedTensors> &inputs) {
  const int runs = onGpus() ? 10'000 : 24;
  std::vector<NamedTensors> first;
  for (int run = 0; run < runs; ++run) {
    const size_t which = static_cast<size_t>(run) % inputs.size();
    auto outputs = program.run(inputs[which]);
    ASSERT_TRUE(bool(outputs)) << outputs.error().message;
    if (first.size() <= which) {
      first.push_back(std::move(*outputs));
      continue;
    }
    for (const auto &[name, value] : *outputs)
      ASSERT_EQ(std::memcmp(value.data(), first[which].at(name).data(), value.bytes()), 0)
          << name << " in run " << run;
  }
}

} // namespace fusion::test
