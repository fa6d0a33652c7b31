// Ranks as processes of one host whose kernels are emulated.
#include "runtime/MemoryPlan.h"
#include "runtime/collective/HostExchange.h"
#include "runtime/collective/Nccl.h"
#include "runtime/collective/Shards.h"
#include "runtime/collective/ProcessCommunicator.h"
#include "runtime/collective/Socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fusion {
namespace {

using fusion_exchange::Failure;

constexpr size_t mostToldAtOnce = 16 << 20;

/// The same in processes that can open each other's files under /proc, and in no others.
std::string hostIdentity() {
  char names[64] = {};
  if (readlink("/proc/self/ns/pid", names, sizeof names - 1) < 0)
    names[0] = 0;
  return bootIdentity() + names;
}

struct Unmap {
  size_t bytes;
  void operator()(void *memory) const { munmap(memory, bytes); }
};

/// Memory of the file; null if the system refuses.
std::shared_ptr<void> map(const Descriptor &file, size_t bytes) {
  void *memory = file ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0) : MAP_FAILED;
  return memory == MAP_FAILED ? nullptr : std::shared_ptr<void>(memory, Unmap{bytes});
}

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Whether the file is memory that a process of this user made in allocateAreas(), with so many bytes.
bool isShared(const Descriptor &file, size_t bytes) {
  struct stat facts;
  const int sealed = file ? fcntl(file.get(), F_GET_SEALS) : -1;
  return sealed >= 0 && (sealed & seals) == seals && fstat(file.get(), &facts) == 0 &&
         S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && static_cast<size_t>(facts.st_size) == bytes;
}

class SharedMemoryCommunicator : public HostExchangeCommunicator {
public:
  static Result<std::unique_ptr<Communicator>> make(std::unique_ptr<Rendezvous> host) {
    std::unique_ptr<SharedMemoryCommunicator> made(new SharedMemoryCommunicator(std::move(host)));
    if (Status status = made->configure(); !status)
      return status.error();
    auto hosts = made->rendezvous->gather(hostIdentity());
    if (!hosts)
      return hosts.error();
    for (size_t rank = 1; rank < hosts->size(); ++rank)
      if ((*hosts)[rank] != hosts->front())
        return environment(
            fmt::format("emulated ranks share memory, but rank {} is on another host (or in another "
                        "container) than rank 0",
                        rank));
    return std::unique_ptr<Communicator>(std::move(made));
  }
  std::string description() const override { return "memory shared by processes"; }

  Status allReduce(const void *from, void *to, size_t elements, DType type, void *) override {
    const size_t step = mostToldAtOnce / byteSize(type);
    for (size_t done = 0; done < elements; done += step) {
      const size_t count = std::min(step, elements - done), offset = done * byteSize(type);
      auto told = rendezvous->gather({static_cast<const char *>(from) + offset, count * byteSize(type)});
      if (!told)
        return told.error();
      std::vector<Tensor> parts;
      for (std::string &bytes : *told) {
        if (bytes.size() != count * byteSize(type))
          return badInput("the ranks bring different sizes to an all-reduce");
        parts.push_back(Tensor::wrap(type, {static_cast<int64_t>(count)}, bytes.data(), nullptr, {}));
      }
      auto sum = sumOf(parts);
      if (!sum)
        return sum.error();
      std::memcpy(static_cast<char *>(to) + offset, sum->data(), sum->bytes());
    }
    return {};
  }

  void stop(const std::string &reason) override {
    rendezvous->abandon(reason);
    giveUp();
  }

protected:
  Status finish() override { return {}; }

  Result<std::shared_ptr<void>> allocateAreas(size_t bytes) override {
    // It has no name and ends with the processes; of a size that nobody can change, since touching what was
    // cut off would end them too.
    file = Descriptor(memfd_create("fusion-exchange", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    size = alignedSize(bytes);
    std::shared_ptr<void> memory;
    if (file && ftruncate(file.get(), static_cast<off_t>(size)) == 0 &&
        fcntl(file.get(), F_ADD_SEALS, seals) == 0)
      memory = map(file, size);
    if (!memory)
      return environment(
          fmt::format("sharing {} MiB of host memory: {}", (size >> 20) + 1, std::strerror(errno)));
    std::memset(memory.get(), fusion_exchange::emptyWord & 0xff, size);
    return memory;
  }

  Result<Peers> shareAreas(void *own) override {
    auto files = rendezvous->gather(fmt::format("{} {}", getpid(), file.get()));
    if (!files)
      return files.error();
    Peers peers;
    auto mapped = std::make_shared<std::vector<std::shared_ptr<void>>>();
    for (size_t rank = 0; rank < files->size(); ++rank) {
      if (static_cast<int>(rank) == rendezvous->rank()) {
        peers.addresses.push_back(own);
        continue;
      }
      int process = 0, number = 0;
      if (std::sscanf((*files)[rank].c_str(), "%d %d", &process, &number) != 2)
        return environment(fmt::format("rank {} does not say where its memory is", rank));
      const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
      const Descriptor theirs(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
      std::shared_ptr<void> memory = isShared(theirs, size) ? map(theirs, size) : nullptr;
      if (!memory)
        return environment(
            fmt::format("rank {} cannot open the memory of rank {} ({}): {}", rendezvous->rank(), rank, path,
                        theirs ? "it is not of this user, or of another size" : std::strerror(errno)));
      peers.addresses.push_back(memory.get());
      mapped->push_back(std::move(memory));
    }
    peers.mapping = mapped;
    if (Status status = rendezvous->barrier(); !status) // now all have opened it
      return status.error();
    file.reset();
    return peers;
  }

private:
  explicit SharedMemoryCommunicator(std::unique_ptr<Rendezvous> host)
      : HostExchangeCommunicator(std::move(host)),
        watch(*rendezvous, [this] { giveUp(); }) {}
  /// Kernels of this process no longer wait for others.
  void giveUp() { std::atomic_ref(ownFailure.happened).store(1); }

  Descriptor file; ///< of the own areas, until the others have opened it
  size_t size = 0;
  GroupWatch watch; ///< last, so that it ends first
};

} // namespace

std::string bootIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

Result<std::unique_ptr<Communicator>> makeSharedMemoryCommunicator(std::unique_ptr<Rendezvous> host) {
  return SharedMemoryCommunicator::make(std::move(host));
}

} // namespace fusion
