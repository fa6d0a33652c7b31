// Ranks as threads of one process.
#include "runtime/collective/Communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace fusion {

/// Longer than it takes to compile a program's kernels or to load its weights.
static constexpr auto timeout = std::chrono::minutes(10);

struct ThreadRendezvous::State {
  explicit State(int ranks) : brought(static_cast<size_t>(ranks)) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<std::string>> brought;
  std::vector<std::string> told; ///< what all brought to the last round that is complete
  size_t arrived = 0;
  uint64_t rounds = 0;
  std::optional<std::string> abandoned;
};

class ThreadRendezvous::Member : public Rendezvous {
public:
  Member(std::shared_ptr<State> state, int rank) : state(std::move(state)), number(rank) {}
  int rank() const override { return number; }
  int ranks() const override { return static_cast<int>(state->brought.size()); }

  Result<std::vector<std::string>> gather(const std::string &bytes) override {
    std::unique_lock lock(state->mutex);
    if (state->abandoned)
      return environment(*state->abandoned);
    const uint64_t round = state->rounds;
    state->brought[static_cast<size_t>(number)] = bytes;
    if (++state->arrived == state->brought.size()) {
      complete();
      return state->told;
    }
    // Nobody completes the next round before this rank has come to it: `told` stays until then.
    const bool inTime =
        state->changed.wait_for(lock, timeout, [&] { return state->abandoned || state->rounds != round; });
    if (state->rounds != round)
      return state->told;
    if (inTime)
      return environment(*state->abandoned);
    return environment(fmt::format("rank {} waited {} minutes for rank {}", number, timeout.count(),
                                   fmt::join(missing(), " and ")));
  }

  void abandon(const std::string &reason) override {
    std::lock_guard lock(state->mutex);
    if (!state->abandoned)
      state->abandoned = reason;
    state->changed.notify_all();
  }

  Status check() override {
    std::lock_guard lock(state->mutex);
    return state->abandoned ? Status(environment(*state->abandoned)) : Status();
  }

private:
  void complete() {
    state->told.clear();
    for (std::optional<std::string> &bytes : state->brought) {
      state->told.push_back(std::move(*bytes));
      bytes.reset();
    }
    state->arrived = 0;
    ++state->rounds;
    state->changed.notify_all();
  }
  std::vector<size_t> missing() const {
    std::vector<size_t> ranks;
    for (size_t i = 0; i < state->brought.size(); ++i)
      if (!state->brought[i])
        ranks.push_back(i);
    return ranks;
  }

  std::shared_ptr<State> state;
  int number;
};

ThreadRendezvous::ThreadRendezvous(int ranks) : state(std::make_shared<State>(ranks)) {}

std::unique_ptr<Rendezvous> ThreadRendezvous::member(int rank) const {
  return std::make_unique<Member>(state, rank);
}

void ThreadRendezvous::restart() {
  std::lock_guard lock(state->mutex);
  state->abandoned.reset();
  state->arrived = 0;
  for (std::optional<std::string> &bytes : state->brought)
    bytes.reset();
}

std::vector<std::unique_ptr<Rendezvous>> makeThreadRendezvous(int ranks) {
  ThreadRendezvous rendezvous(ranks);
  std::vector<std::unique_ptr<Rendezvous>> members;
  for (int rank = 0; rank < ranks; ++rank)
    members.push_back(rendezvous.member(rank));
  return members;
}

} // namespace fusion
