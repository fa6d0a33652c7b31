#include "runtime/collective/Launcher.h"

#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <charconv>

namespace fusion {
namespace {

constexpr int64_t mostRanks = 4096;
constexpr int defaultPort = 29711, portsToTry = 16;

/// How one kind of launcher calls what we want to know.
struct Names {
  const char *launcher, *rank, *ranks, *localRank, *localRanks, *hosts;
  std::vector<const char *> job; ///< the same in all processes of one launch, and in no other
};
const Names launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "", {"TORCHELASTIC_RUN_ID"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", {}},
    // Not SLURM_NTASKS, which a batch script has too without being one of the tasks.
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     "",
     "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

class Reader {
public:
  explicit Reader(const ReadVariable &variable) : variable(variable) {}
  Result<std::optional<LaunchedRank>> read();

private:
  std::string text(const char *name) const { return *name ? variable(name) : std::string(); }
  Result<std::optional<int64_t>> number(const char *name, int64_t least, int64_t most) const;
  Result<LaunchedRank> placeBy(const Names &names) const;
  Status addAddress(LaunchedRank &place, const Names &names) const;
  Status addPorts(LaunchedRank &place) const;
  std::string firstHostOfSlurm() const;
  const ReadVariable &variable;
};

Result<std::optional<int64_t>> Reader::number(const char *name, int64_t least, int64_t most) const {
  const std::string value = text(name);
  if (value.empty())
    return std::optional<int64_t>();
  int64_t parsed = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size() || parsed < least || parsed > most)
    return badInput(fmt::format("{}={}: not a number from {} to {}", name, value, least, most));
  return std::optional(parsed);
}

Result<LaunchedRank> Reader::placeBy(const Names &names) const {
  auto rank = number(names.rank, 0, mostRanks - 1), ranks = number(names.ranks, 1, mostRanks),
       localRank = number(names.localRank, 0, mostRanks - 1),
       localRanks = number(names.localRanks, 1, mostRanks);
  for (const auto *read : {&rank, &ranks, &localRank, &localRanks})
    if (!*read)
      return read->error();
  if (!*rank || !*ranks)
    return badInput(fmt::format("{} is set, {} is not: a launcher sets both",
                                *rank ? names.rank : names.ranks, *rank ? names.ranks : names.rank));
  if (**rank >= **ranks)
    return badInput(
        fmt::format("{}={}, but {}={}: ranks count from 0", names.rank, **rank, names.ranks, **ranks));
  if (*localRanks && **localRanks > **ranks)
    return badInput(
        fmt::format("{}={} is more than {}={}", names.localRanks, **localRanks, names.ranks, **ranks));
  if (*localRank && **localRank >= localRanks->value_or(**ranks))
    return badInput(fmt::format("{}={}, but {}={}: ranks count from 0", names.localRank, **localRank,
                                *localRanks ? names.localRanks : names.ranks, localRanks->value_or(**ranks)));
  LaunchedRank place;
  place.rank = static_cast<int>(**rank);
  place.ranks = static_cast<int>(**ranks);
  // Without the variable: launchers fill one host after the other.
  place.localRank = static_cast<int>(localRank->value_or(**rank % localRanks->value_or(**ranks)));
  place.launcher = names.launcher;
  place.group = names.launcher;
  for (const char *name : names.job)
    place.group += "|" + text(name);
  return place;
}

/// "node[03-07,9],other2" is a list of hosts that starts with node03.
std::string Reader::firstHostOfSlurm() const {
  std::string hosts = text("SLURM_STEP_NODELIST");
  if (hosts.empty())
    hosts = text("SLURM_JOB_NODELIST");
  const size_t end = hosts.find_first_of("[,");
  std::string first = hosts.substr(0, end);
  if (end != std::string::npos && hosts[end] == '[')
    first += hosts.substr(end + 1, hosts.find_first_of("-,]", end) - end - 1);
  return first;
}

Status Reader::addAddress(LaunchedRank &place, const Names &names) const {
  auto localRanks = number(names.localRanks, 1, mostRanks); // read before: a number or nothing
  if ((localRanks && localRanks->value_or(0) == place.ranks) || text(names.hosts) == "1") {
    place.onOneHost = true;
    place.address = "127.0.0.1";
    return {};
  }
  place.address = text("MASTER_ADDR");
  if (place.address.empty() && std::string_view(names.launcher) == "Slurm")
    place.address = firstHostOfSlurm();
  if (!place.address.empty()) {
    place.onOneHost = place.address == "localhost" || place.address == "127.0.0.1" || place.address == "::1";
    return {};
  }
  if (localRanks && localRanks->value_or(place.ranks) != place.ranks)
    return badInput(
        fmt::format("{} ranks on several hosts: set MASTER_ADDR to the host of rank 0", place.ranks));
  place.address = "127.0.0.1";
  place.onOneHost = true;
  return {};
}

Status Reader::addPorts(LaunchedRank &place) const {
  auto own = number("FUSION_MASTER_PORT", 1, 65535), master = number("MASTER_PORT", 1, 65535);
  if (!own || !master)
    return (!own ? own : master).error();
  if (*own) {
    place.ports = {static_cast<uint16_t>(**own)};
    return {};
  }
  const std::string store = text("TORCHELASTIC_USE_AGENT_STORE");
  const bool taken = store == "True" || store == "true" || store == "1";
  if (*master && !taken) {
    place.ports = {static_cast<uint16_t>(**master)};
    return {};
  }
  // Nobody keeps these ports for us, so the first free one is taken; `group` finds it again.
  int64_t port = *master ? **master + 1 : defaultPort;
  for (int i = 0; i < portsToTry; ++i, ++port) {
    if (port > 65535)
      port = 1025;
    place.ports.push_back(static_cast<uint16_t>(port));
  }
  return {};
}

Result<std::optional<LaunchedRank>> Reader::read() {
  const Names *chosen = nullptr;
  Result<LaunchedRank> place = LaunchedRank();
  for (const Names &names : launchers) {
    if (text(names.rank).empty() && (&names != &launchers[0] || text(names.ranks).empty()))
      continue;
    if (std::string_view(names.launcher) == "Slurm" && text(names.ranks).empty())
      continue; // a batch script outside of srun
    Result<LaunchedRank> next = placeBy(names);
    if (!next)
      return next.error();
    // Of other sizes they may be: an mpirun can start one torchrun a host.
    if (chosen && next->ranks == place->ranks && next->rank != place->rank)
      return badInput(fmt::format("{}={}, but {}={}: unset one of them", chosen->rank, place->rank,
                                  names.rank, next->rank));
    if (!chosen) {
      chosen = &names;
      place = next;
    }
  }
  if (!chosen)
    return std::optional<LaunchedRank>();
  if (Status status = addAddress(*place, *chosen); !status)
    return status.error();
  if (Status status = addPorts(*place); !status)
    return status.error();
  place->secret = text("FUSION_RENDEZVOUS_SECRET");
  return std::optional(*place);
}

} // namespace

Result<std::optional<LaunchedRank>> launchedRank(const ReadVariable &variable) {
  return Reader(variable).read();
}
Result<std::optional<LaunchedRank>> launchedRank() { return launchedRank(environmentVariable); }

} // namespace fusion
