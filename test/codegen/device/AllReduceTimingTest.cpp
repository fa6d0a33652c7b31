// The kernels by which all-reduces are timed add up what the ranks have: emulated, a thread for each rank,
// and compiled.
#include "codegen/device/Includes.h"
#include "codegen/device/exchange_abi.h"
#include "ir/base/DType.h"
#include "runtime/collective/GpuCollectiveTimer.h"
#include "test/codegen/device/Emulation.h"

#include <cstring>
#include <fmt/format.h>
#include <thread>

using namespace fusion;
using namespace fusion::samples;

namespace {

/// The symmetric workspaces of all ranks.
struct Workspaces {
  Workspaces(size_t ranks, size_t roundBytes) : exchanges(ranks), failures(ranks) {
    for (size_t rank = 0; rank < ranks; ++rank)
      memory.emplace_back(fusion_exchange::rounds * roundBytes / 16, Words{{~0u, ~0u, ~0u, ~0u}});
    for (size_t rank = 0; rank < ranks; ++rank) {
      fusion_exchange::Exchange &exchange = exchanges[rank];
      exchange.rank = static_cast<unsigned>(rank);
      exchange.ranks = static_cast<unsigned>(ranks);
      exchange.roundBytes = roundBytes;
      for (size_t other = 0; other < ranks; ++other)
        exchange.memory[other] = reinterpret_cast<unsigned char *>(memory[other].data());
      exchange.spinTimeout = uint64_t(100) * 1000000000;
      exchange.failure = &failures[rank];
    }
  }
  struct alignas(16) Words {
    uint32_t words[4];
  };
  std::vector<fusion_exchange::Exchange> exchanges;
  std::vector<fusion_exchange::Failure> failures;
  std::vector<std::vector<Words>> memory;
};

/// What rank `rank` adds at element `i` in call `call`: sums of these are exact in eight bits.
float addend(size_t rank, size_t i, size_t call) { return static_cast<float>((rank + i + i / 7 + call) % 3); }

void sumsOverRanks(const TimingKernel &timing, size_t ranks) {
  SCOPED_TRACE(fmt::format("{} of {} ranks", timing.plan.name, ranks));
  constexpr size_t calls = 4;
  const size_t rows = 2 * ranks + 1, elements = rows * timing.rowBytes / 2;
  const TimingKernel::Sizes sizes = timing.sizes(rows * timing.rowBytes, static_cast<int>(ranks));
  auto kernel = compiled(timing.plan);
  ASSERT_TRUE(kernel);
  Workspaces workspaces(ranks, static_cast<size_t>(sizes.areaBytes));
  std::vector<std::vector<std::vector<uint16_t>>> results(ranks);
  std::vector<std::string> errors(ranks);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        for (size_t call = 0; call < calls; ++call) {
          std::vector<uint16_t> from(elements), &to = results[rank].emplace_back(elements);
          for (size_t i = 0; i < elements; ++i)
            from[i] = f32ToBF16(addend(rank, i, call));
          void *in = from.data(), *out = to.data(), *exchange = &workspaces.exchanges[rank];
          TimingKernel::Sizes own = sizes;
          void *arguments[] = {&in, &out, &exchange, &own.slotBytes, &own.gatherSlotBytes, &own.areaBytes};
          if (Status status = kernel->launch(static_cast<uint32_t>(rows), 1, 1, arguments); !status)
            errors[rank] = status.error().message;
        }
      });
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(errors[rank], "") << "rank " << rank;
    ASSERT_EQ(workspaces.failures[rank].happened, 0u) << "rank " << rank;
    for (size_t call = 0; call < calls; ++call)
      for (size_t i = 0; i < elements; ++i) {
        float sum = 0;
        for (size_t other = 0; other < ranks; ++other)
          sum += addend(other, i, call);
        const uint16_t *to = results[rank][call].data();
        const size_t row = i * 2 / timing.rowBytes, first = row * timing.rowBytes / 2;
        // Gathered rows are of eight bits, except on the rank that reduces them.
        if (timing.collective.gathersRows && row % ranks != rank)
          ASSERT_EQ(reinterpret_cast<const uint8_t *>(to + first)[i - first], f32ToF8E4M3(sum)) << i;
        else
          ASSERT_EQ(bf16ToF32(to[i]), sum) << "rank " << rank << ", call " << call << ", element " << i;
      }
  }
}

} // namespace

TEST(AllReduceTiming, SumsOverRanks) {
  for (size_t ranks : {2, 3})
    for (const TimingKernel &timing : timingKernels(static_cast<int>(ranks)))
      sumsOverRanks(timing, ranks);
}

TEST(AllReduceTiming, Compiles) {
  for (int ranks : {2, 4, 8})
    for (const TimingKernel &timing : timingKernels(ranks))
      test::checkSpills(timing.plan, test::Targets::One);
}
