// A stand-in for libnccl.so.2 whose ranks are threads and whose sums are done when the call returns. As the
// real one, it waits for ever for a rank that does not come, unless it is aborted.
#include "runtime/collective/Nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

using fusion::Nccl;

namespace {

struct Group {
  int ranks = 0, joined = 0, arrived = 0;
  uint64_t rounds = 0;
  bool aborted = false;
  std::vector<float> sums[2]; ///< of two rounds: no rank is further ahead of another
};
std::mutex mutex;
/// Never destroyed: that would wait for those who wait for a rank that does not come.
std::condition_variable &changed = *new std::condition_variable;
std::map<std::string, Group> groups;
int ids = 0, alive = 0, asyncError = 0;
constexpr int internalError = 3, invalidArgument = 4;

} // namespace

struct fusion::NcclCommHandle {
  Group *group;
};

extern "C" {
int fakeNcclAlive() { return alive; }
void fakeNcclFail(int code) { asyncError = code; }

int ncclGetVersion(int *version) { return *version = 22809, 0; }
const char *ncclGetErrorString(int code) { return code == internalError ? "internal error" : "an error"; }
int ncclGetUniqueId(Nccl::UniqueId *id) {
  std::lock_guard lock(mutex);
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::strcpy(id->bytes, ("id " + std::to_string(++ids)).c_str());
  return 0;
}
int ncclCommInitRank(Nccl::Comm *comm, int ranks, Nccl::UniqueId id, int rank) {
  std::unique_lock lock(mutex);
  Group &group = groups[id.bytes];
  group.ranks = ranks;
  if (rank >= ranks || group.joined == ranks)
    return invalidArgument;
  ++group.joined;
  changed.notify_all();
  changed.wait(lock, [&] { return group.joined == ranks; });
  *comm = new fusion::NcclCommHandle{&group};
  ++alive;
  return 0;
}
int ncclCommDestroy(Nccl::Comm comm) {
  std::lock_guard lock(mutex);
  delete comm;
  return --alive, 0;
}
int ncclCommAbort(Nccl::Comm comm) {
  std::lock_guard lock(mutex);
  comm->group->aborted = true;
  changed.notify_all();
  return --alive, 0; // not freed: another thread may be inside
}
int ncclCommGetAsyncError(Nccl::Comm, int *code) { return *code = asyncError, 0; }
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, Nccl::Comm comm, void *stream) {
  std::unique_lock lock(mutex);
  Group &group = *comm->group;
  if (type != 7 || op != 0 || !stream)
    return invalidArgument;
  const uint64_t round = group.rounds;
  std::vector<float> &sums = group.sums[round % 2];
  if (group.arrived == 0)
    sums.assign(count, 0);
  if (sums.size() != count)
    return invalidArgument;
  for (size_t i = 0; i < count; ++i)
    sums[i] += static_cast<const float *>(from)[i];
  if (++group.arrived == group.ranks) {
    group.arrived = 0;
    ++group.rounds;
    changed.notify_all();
  }
  changed.wait(lock, [&] { return group.aborted || group.rounds != round; });
  if (group.rounds == round)
    return internalError;
  std::copy_n(sums.data(), count, static_cast<float *>(to));
  return 0;
}
}
