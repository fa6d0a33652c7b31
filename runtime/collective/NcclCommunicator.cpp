#include "runtime/collective/Nccl.h"
#include "runtime/collective/ProcessCommunicator.h"

namespace fusion {
namespace {

class NcclCommunicator : public Communicator {
public:
  NcclCommunicator(std::unique_ptr<Rendezvous> host, std::unique_ptr<NcclRank> nccl)
      : meeting(std::move(host)), nccl(std::move(nccl)), watch(*meeting, [this] { this->nccl->abort(); }) {}
  int rank() const override { return meeting->rank(); }
  int ranks() const override { return meeting->ranks(); }
  std::string description() const override { return "NCCL " + nccl->version(); }
  Result<void *> exchange(size_t) override { return nullptr; }
  CollectiveForm choose(size_t, std::span<const CollectiveWay>) const override { return CollectiveForm::Library; }
  Status allReduce(const void *from, void *to, size_t elements, DType type, void *stream) override {
    return nccl->allReduce(from, to, elements, type, stream);
  }
  Status check() override { return nccl->check(); }
  Rendezvous &host() override { return *meeting; }

private:
  std::unique_ptr<Rendezvous> meeting;
  std::unique_ptr<NcclRank> nccl;
  GroupWatch watch; ///< last, so that it ends first
};

} // namespace

Result<std::unique_ptr<Communicator>> makeNcclCommunicator(std::unique_ptr<Rendezvous> host,
                                                           std::function<Status()> activate) {
  auto nccl = NcclRank::make(*host, std::move(activate));
  if (!nccl)
    return nccl.error();
  return std::unique_ptr<Communicator>(std::make_unique<NcclCommunicator>(std::move(host), std::move(*nccl)));
}

} // namespace fusion
