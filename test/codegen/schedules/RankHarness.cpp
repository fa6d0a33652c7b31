#include "RankHarness.h"

#include "Parsed.h"

#include "ir/reference/Reference.h"
#include "runtime/emulate/EmulatedKernel.h"

#include <cstdlib>
#include <cstring>
#include <thread>

using namespace mlir;

namespace fusion::test {

namespace {
using fusion_exchange::Failure;

/// The kernel of one algorithm, and what a launch of it takes.
struct Compiled {
  KernelDraft draft;
  std::shared_ptr<EmulatedKernel> kernel;

  Status launch(const Parsed &parsed, const std::vector<Tensor> &arguments, std::vector<Tensor> &outputs,
                fusion_exchange::Exchange &exchange, const SymbolValues &symbols) const {
    std::vector<uint64_t> values(draft.arguments.size());
    std::vector<void *> pointers;
    for (auto [index, argument] : llvm::enumerate(draft.arguments)) {
      const void *data = &exchange;
      if (argument.kind == KernelDraft::Argument::Kind::Output)
        data = outputs[argument.index].data();
      else if (argument.kind == KernelDraft::Argument::Kind::Input)
        data = arguments[cast<BlockArgument>(parsed.inputs[argument.index].base).getArgNumber()].data();
      values[index] = argument.kind == KernelDraft::Argument::Kind::Size
                          ? static_cast<uint64_t>(*argument.value.evaluate(symbols))
                          : reinterpret_cast<uint64_t>(data);
      pointers.push_back(&values[index]);
    }
    auto grid = [&](const Dim &dim) { return static_cast<uint32_t>(*dim.evaluate(symbols)); };
    return kernel->launch(grid(draft.gridX), grid(draft.gridY), grid(draft.gridZ), pointers.data());
  }
};

/// The exchange memory of all ranks.
struct Areas {
  Areas(int64_t ranks, size_t roundBytes, uint64_t spinTimeout) {
    exchanges.resize(static_cast<size_t>(ranks));
    failures.resize(exchanges.size());
    roundBytes = (roundBytes + 255) / 256 * 256 + 256;
    for (size_t rank = 0; rank < exchanges.size(); ++rank) {
      memory.emplace_back(std::aligned_alloc(256, fusion_exchange::rounds * roundBytes), std::free);
      std::memset(memory.back().get(), 0xff, fusion_exchange::rounds * roundBytes);
    }
    for (size_t rank = 0; rank < exchanges.size(); ++rank) {
      fusion_exchange::Exchange &exchange = exchanges[rank];
      exchange.rank = static_cast<unsigned>(rank);
      exchange.ranks = static_cast<unsigned>(ranks);
      exchange.roundBytes = roundBytes;
      for (size_t other = 0; other < exchanges.size(); ++other)
        exchange.memory[other] = static_cast<unsigned char *>(memory[other].get());
      exchange.spinTimeout = spinTimeout;
      exchange.failure = &failures[rank];
    }
  }
  std::vector<fusion_exchange::Exchange> exchanges;
  std::vector<Failure> failures;
  std::vector<std::unique_ptr<void, void (*)(void *)>> memory;
};

std::optional<Compiled> compiled(const Parsed &parsed, CollectiveAlgorithm algorithm, bool spills,
                                 const std::vector<bool> &scattered = {}) {
  KernelContext context = parsed.kernelContext(90);
  context.algorithm = algorithm;
  const llvm::SmallVector<bool> flags(scattered.begin(), scattered.end());
  context.scattered = flags;
  context.gathersFullSizeRows = !flags.empty();
  auto plan = collectiveSchedule().plan(parsed.region, context);
  if (!plan) {
    ADD_FAILURE() << "refused: " << plan.error().message;
    return std::nullopt;
  }
  Compiled result{plan->emit(context), nullptr};
  if (spills)
    checkSpills(result.draft.kernel, Targets::One);
  auto kernel = EmulatedKernel::compile(result.draft.kernel, emulationCacheFolder());
  if (!kernel) {
    ADD_FAILURE() << kernel.error().message << "\n" << result.draft.kernel.source;
    return std::nullopt;
  }
  result.kernel = std::move(*kernel);
  return result;
}

/// What one rank has and makes in one call.
struct Share {
  std::vector<Tensor> arguments, outputs;
  std::optional<Tensor> whole; ///< argument 1, of which `arguments` has this rank's rows
};
using Call = std::vector<Share>; ///< by rank

/// Calls `body` with place and size of each row that belongs to another rank.
void forRowsOfOthers(const Tensor &tensor, size_t rank, size_t ranks,
                     llvm::function_ref<void(size_t, size_t)> body) {
  const size_t rows = static_cast<size_t>(tensor.shape()[0]), bytes = rows ? tensor.bytes() / rows : 0;
  for (size_t row = 0; row < rows; ++row)
    if (row % ranks != rank)
      body(row * bytes, bytes);
}

/// Checks that nobody has written other ranks' rows of an output, and fills them in from those.
void gather(Call &call, unsigned output) {
  for (size_t rank = 0; rank < call.size(); ++rank) {
    Tensor &mine = call[rank].outputs[output];
    const size_t rows = static_cast<size_t>(mine.shape()[0]);
    forRowsOfOthers(mine, rank, call.size(), [&](size_t at, size_t bytes) {
      auto *data = static_cast<unsigned char *>(mine.data()) + at;
      EXPECT_TRUE(std::all_of(data, data + bytes, [](unsigned char byte) { return byte == 0xa5; }))
          << "rank " << rank;
      const size_t reducer = at / (mine.bytes() / rows) % call.size();
      std::memcpy(data, static_cast<const char *>(call[reducer].outputs[output].data()) + at, bytes);
    });
  }
}

Call shares(const Parsed &parsed, const RankCase &test, const SymbolValues &symbols, unsigned seed) {
  Call call(static_cast<size_t>(parsed.region.ranks()));
  for (auto [rank, share] : llvm::enumerate(call)) {
    for (auto [index, argument] : llvm::enumerate(func::FuncOp(parsed.function).getArguments())) {
      Tensor tensor = Tensor::zeros(dtype(argument), evaluated((*parsed.shapes)[argument], symbols));
      fillRandom(tensor, seed * 100 + static_cast<unsigned>(index) * 10 +
                             (index == 0 ? static_cast<unsigned>(rank) : 0));
      if (test.fill)
        test.fill(static_cast<int64_t>(rank), static_cast<unsigned>(index), tensor);
      if (index == 1 && !test.scattered.empty()) {
        share.whole = Tensor::uninitialized(tensor.type(), tensor.shape());
        std::memcpy(share.whole->data(), tensor.data(), tensor.bytes());
        forRowsOfOthers(tensor, rank, call.size(), [&](size_t at, size_t bytes) {
          std::memset(static_cast<char *>(tensor.data()) + at, 0xff, bytes);
        });
      }
      share.arguments.push_back(std::move(tensor));
    }
    for (Value output : parsed.region.outputs) {
      share.outputs.push_back(
          Tensor::uninitialized(dtype(output), evaluated((*parsed.shapes)[output], symbols)));
      std::memset(share.outputs.back().data(), 0xa5, share.outputs.back().bytes());
    }
  }
  return call;
}

/// The sum of argument 0 over the ranks, in f32 in their order.
Tensor sumOf(const Call &call) {
  Tensor sum = call[0].arguments[0].convertedTo(DType::F32);
  for (size_t rank = 1; rank < call.size(); ++rank) {
    const Tensor part = call[rank].arguments[0].convertedTo(DType::F32);
    for (int64_t i = 0; i < sum.size(); ++i)
      sum.as<float>()[i] += part.as<float>()[i];
  }
  return sum;
}

void compareWithReference(const Parsed &parsed, const RankCase &test, const SymbolValues &symbols,
                          Call &call) {
  for (unsigned output = 0; output < test.scattered.size(); ++output)
    if (test.scattered[output])
      gather(call, output);
  if (call[0].whole)
    call[0].arguments[1] = std::move(*call[0].whole);
  ReferenceOptions options;
  options.allReduce = [&](const Tensor &part, std::string_view) {
    Tensor sum = sumOf(call), shaped = Tensor::zeros(DType::F32, part.shape());
    std::memcpy(shaped.data(), sum.data(), sum.bytes());
    return Result<Tensor>(shaped);
  };
  auto expected = evaluateRegion(func::FuncOp(parsed.function).front(), call[0].arguments, symbols, options);
  ASSERT_TRUE(expected) << expected.error().message;
  for (auto [rank, share] : llvm::enumerate(call))
    for (auto [index, output] : llvm::enumerate(share.outputs)) {
      auto difference = compare(output, (*expected)[index]);
      ASSERT_TRUE(difference) << difference.error().message;
      EXPECT_LE(difference->relativeL2, test.tolerance)
          << "rank " << rank << ", output " << index << ", worst at " << difference->worstIndex;
      // The ranks agree to the last bit.
      EXPECT_EQ(std::memcmp(output.data(), call[0].outputs[index].data(), output.bytes()), 0)
          << "ranks 0 and " << rank << " have different outputs " << index;
    }
}

/// Every rank makes all calls, as fast as it can; call i in algorithm i % algorithms.
void run(const Parsed &parsed, const RankCase &test, llvm::ArrayRef<Compiled> algorithms) {
  size_t roundBytes = 0;
  std::vector<Call> calls;
  for (const SymbolValues &symbols : test.calls) {
    for (const Compiled &algorithm : algorithms)
      roundBytes = std::max(roundBytes,
                            static_cast<size_t>(*algorithm.draft.collective->roundBytes.evaluate(symbols)));
    calls.push_back(shares(parsed, test, symbols, static_cast<unsigned>(calls.size()) + 1));
  }
  const int64_t ranks = parsed.region.ranks();
  Areas areas(ranks, roundBytes, uint64_t(100) * 1000000000);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < errors.size(); ++rank)
      threads.emplace_back([&, rank] {
        for (size_t i = 0; i < calls.size(); ++i) {
          Share &share = calls[i][rank];
          Status status = algorithms[i % algorithms.size()].launch(parsed, share.arguments, share.outputs,
                                                                   areas.exchanges[rank], test.calls[i]);
          if (!status && errors[rank].empty())
            errors[rank] = status.error().message;
        }
      });
  }
  for (auto [rank, error] : llvm::enumerate(errors)) {
    EXPECT_EQ(error, "") << "rank " << rank;
    EXPECT_EQ(areas.failures[rank].happened, 0u)
        << "rank " << rank << " waits for " << areas.failures[rank].awaited;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE("call " + std::to_string(i));
    compareWithReference(parsed, test, test.calls[i], calls[i]);
  }
}

std::vector<CollectiveAlgorithm> ownAlgorithms(const Parsed &parsed) {
  std::vector<CollectiveAlgorithm> algorithms;
  auto plan = collectiveSchedule().plan(parsed.region, parsed.kernelContext(90));
  for (const PlannedAlternative &alternative : plan->alternatives(parsed.region))
    if (alternative.algorithm != CollectiveAlgorithm::Library &&
        !llvm::is_contained(algorithms, *alternative.algorithm))
      algorithms.push_back(*alternative.algorithm);
  return algorithms;
}
} // namespace

std::string checkRanks(const RankCase &test) {
  SCOPED_TRACE(test.text);
  Parsed parsed(test.text);
  if (!parsed.target) {
    ADD_FAILURE() << "does not parse";
    return "";
  }
  if (auto plan = collectiveSchedule().plan(parsed.region, parsed.kernelContext(90)); !plan) {
    ADD_FAILURE() << "refused: " << plan.error().message;
    return "";
  }
  std::vector<Compiled> algorithms;
  for (CollectiveAlgorithm algorithm : ownAlgorithms(parsed)) {
    if (!test.scattered.empty() && algorithm != CollectiveAlgorithm::TwoShot)
      continue;
    auto one = compiled(parsed, algorithm, test.compiles, test.scattered);
    if (!one)
      return "";
    algorithms.push_back(std::move(*one));
    SCOPED_TRACE(algorithms.back().draft.kernel.source);
    run(parsed, test, algorithms.back());
  }
  EXPECT_FALSE(algorithms.empty());
  if (test.calls.size() > 1 && algorithms.size() > 1)
    run(parsed, test, algorithms);
  return algorithms.empty() ? "" : algorithms.back().draft.kernel.source;
}

Failure failureAlone(const std::string &text, CollectiveAlgorithm algorithm) {
  Parsed parsed(text);
  auto one = compiled(parsed, algorithm, false);
  if (!one)
    return {};
  Call call = shares(parsed, {text}, {}, 1);
  Areas areas(parsed.region.ranks(), static_cast<size_t>(*one->draft.collective->roundBytes.evaluate({})),
              20000000);
  Status status = one->launch(parsed, call[0].arguments, call[0].outputs, areas.exchanges[0], {});
  EXPECT_TRUE(status) << status.error().message;
  return areas.failures[0];
}

} // namespace fusion::test
