#include "runtime/collective/Nccl.h"

#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>

namespace fusion {
namespace {

constexpr auto lookEvery = std::chrono::milliseconds(50);
constexpr int sum = 0;

/// NCCL's number for a type; nothing for those that it does not add.
std::optional<int> numberOf(DType type) {
  switch (type) {
  case DType::I32: return 2;
  case DType::I64: return 4;
  case DType::F16: return 6;
  case DType::F32: return 7;
  case DType::F64: return 8;
  case DType::BF16: return 9;
  default: return std::nullopt;
  }
}

/// NCCL notices that another rank has stopped a little sooner than the host hears why.
Status reason(Rendezvous &host, const std::string &otherwise) {
  for (int i = 0; i < 20; ++i) {
    if (Status status = host.check(); !status)
      return status;
    std::this_thread::sleep_for(lookEvery);
  }
  return environment(otherwise);
}

} // namespace

Result<const Nccl *> Nccl::instance() {
  static std::mutex mutex;
  static const Nccl *opened = nullptr;
  std::lock_guard lock(mutex);
  if (!opened) {
    Result<Nccl> nccl = open();
    if (!nccl)
      return nccl.error();
    opened = new Nccl(*nccl); // lives as long as the library, which is never closed
  }
  return opened;
}

Result<Nccl> Nccl::open() {
  Library::Request request;
  request.purpose = "NCCL (libnccl.so.2)";
  request.files = {"libnccl.so.2"};
  request.advice =
      "install Debian's or NVIDIA's libnccl2, or `pip install nvidia-nccl-cu13` (PyTorch brings it too), and "
      "set FUSION_NCCL to the path of libnccl.so.2 if it is in an unusual place";
  if (std::string file = environmentVariable("FUSION_NCCL"); !file.empty()) {
    request.files = {file}; // the user's choice, or none
  } else {
    request.fallbacks = wheelFolders("nvidia/nccl/lib");
    request.fallbacks.insert(request.fallbacks.end(), {"/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64"});
  }
  setenv("NCCL_NVLS_ENABLE", "0",
         0); // multicast over NVLink needs rights that containers lack, and hangs without them
  Result<Library> library = Library::open(request);
  if (!library)
    return library.error();
  Nccl nccl = {};
  const char *missing = nullptr;
#define FUSION_RESOLVE(symbol)                                                                               \
  if (!library->resolve(#symbol, nccl.symbol))                                                               \
  missing = #symbol
  FUSION_RESOLVE(ncclGetVersion);
  FUSION_RESOLVE(ncclGetUniqueId);
  FUSION_RESOLVE(ncclCommInitRank);
  FUSION_RESOLVE(ncclCommDestroy);
  FUSION_RESOLVE(ncclCommAbort);
  FUSION_RESOLVE(ncclCommGetAsyncError);
  FUSION_RESOLVE(ncclAllReduce);
  FUSION_RESOLVE(ncclGetErrorString);
#undef FUSION_RESOLVE
  if (missing)
    return environment(fmt::format("{} has no {}: install NCCL 2.10 or newer", library->path(), missing));
  return nccl;
}

std::string Nccl::version() const {
  int number = 0;
  if (ncclGetVersion(&number) != 0)
    return "of unknown version";
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

/// "+", the version and rank 0's id, or "-" and why not.
static std::string introduction(const Result<const Nccl *> &nccl, bool first) {
  if (!nccl)
    return "-" + nccl.error().message;
  std::string text = fmt::format("+{:<32}", (*nccl)->version());
  if (!first)
    return text;
  Nccl::UniqueId id = {};
  if (int code = (*nccl)->ncclGetUniqueId(&id))
    return fmt::format("-NCCL does not start: {}", (*nccl)->ncclGetErrorString(code));
  return text.append(id.bytes, sizeof id.bytes);
}

Result<std::unique_ptr<NcclRank>> NcclRank::make(Rendezvous &host, std::function<Status()> activate) {
  Result<const Nccl *> nccl = Nccl::instance();
  // Its network may belong to the device that is current.
  if (Status status = activate(); !status)
    nccl = status.error();
  auto all = host.gather(introduction(nccl, host.rank() == 0));
  if (!all)
    return all.error();
  constexpr size_t headBytes = 33;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const std::string &said = (*all)[rank];
    if (!said.starts_with('+'))
      return environment(fmt::format("rank {}: {}", rank, said.substr(std::min<size_t>(said.size(), 1))));
    if (said.compare(0, headBytes, all->front(), 0, headBytes) != 0)
      return environment(fmt::format("rank 0 has NCCL {}, rank {} has {}: install the same",
                                     all->front().substr(1, headBytes - 1), rank,
                                     said.substr(1, headBytes - 1)));
  }
  Nccl::UniqueId id = {};
  if (all->front().size() != headBytes + sizeof id.bytes)
    return environment("rank 0 sent no NCCL id");
  std::memcpy(id.bytes, all->front().data() + headBytes, sizeof id.bytes);
  return std::unique_ptr<NcclRank>(new NcclRank(**nccl, host, std::move(activate), id, (*nccl)->version()));
}

NcclRank::~NcclRank() {
  if (!comm || aborted)
    return;
  if (host.check()) // a communicator whose ranks are not all there cannot end in order
    nccl.ncclCommDestroy(comm);
  else
    abort();
}

/// In a thread of its own, because it waits for ever for a rank that does not come.
Status NcclRank::connect() {
  struct Attempt {
    std::atomic<bool> done = false;
    Status outcome;
    Nccl::Comm comm = nullptr;
  };
  auto attempt = std::make_shared<Attempt>();
  const int rank = host.rank(), ranks = host.ranks();
  std::thread([attempt, rank, ranks, id = id, activate = activate, &nccl = nccl] {
    attempt->outcome = activate();
    if (attempt->outcome)
      if (int code = nccl.ncclCommInitRank(&attempt->comm, ranks, id, rank))
        attempt->outcome =
            environment(fmt::format("NCCL does not connect the ranks: {} (NCCL_DEBUG=INFO says more)",
                                    nccl.ncclGetErrorString(code)));
    attempt->done = true;
  }).detach();
  while (!attempt->done) {
    if (Status status = host.check(); !status)
      return status;
    std::this_thread::sleep_for(lookEvery);
  }
  if (!attempt->outcome)
    return attempt->outcome;
  comm = attempt->comm;
  return {};
}

Status NcclRank::allReduce(const void *from, void *to, size_t elements, DType type, void *stream) {
  const std::optional<int> number = numberOf(type);
  if (!number)
    return badInput(fmt::format("NCCL does not sum {}", name(type)));
  if (Status status = activate(); !status)
    return status;
  if (!comm)
    if (Status status = connect(); !status)
      return status;
  if (Status status = check(); !status)
    return status;
  int code = nccl.ncclAllReduce(from, to, elements, *number, sum, comm, stream);
  if (code == 0)
    return {};
  return reason(
      host, fmt::format("rank {}: an all-reduce by NCCL: {}", host.rank(), nccl.ncclGetErrorString(code)));
}

Status NcclRank::check() const {
  if (Status status = host.check(); !status)
    return status;
  if (aborted)
    return environment(fmt::format("rank {}: NCCL was stopped", host.rank()));
  int code = 0;
  if (comm && (nccl.ncclCommGetAsyncError(comm, &code) != 0 || code != 0))
    return reason(host, fmt::format("rank {}: NCCL: {}", host.rank(), nccl.ncclGetErrorString(code)));
  return {};
}

void NcclRank::abort() {
  if (!aborted.exchange(true) && comm)
    nccl.ncclCommAbort(comm);
}

GroupWatch::GroupWatch(Rendezvous &host, std::function<void()> whenFailed)
    : thread([this, &host, whenFailed = std::move(whenFailed)] {
        while (!stopping) {
          if (!host.check()) {
            whenFailed();
            return;
          }
          std::this_thread::sleep_for(lookEvery);
        }
      }) {}

GroupWatch::~GroupWatch() {
  stopping = true;
  thread.join();
}

} // namespace fusion
