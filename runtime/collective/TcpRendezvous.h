// Ranks as processes that meet over TCP.
#pragma once

#include "runtime/collective/Communicator.h"
#include "runtime/collective/Launcher.h"

namespace fusion {

struct TcpRendezvousOptions {
  double joinSeconds = 60;    ///< until all ranks are there
  double gatherSeconds =
      600; ///< that ranks which live may come late to gather(): one may compile while others do not
  double beatSeconds = 1;     ///< between signs of life
  double silenceSeconds = 10; ///< after which a rank is gone that did not close its connection
  /// FUSION_RENDEZVOUS_SECONDS is joinSeconds, and gatherSeconds if that is more than 600. BadInput if it is
  /// no number.
  static Result<TcpRendezvousOptions> fromEnvironment();
};

/// The most that a rank may bring to a gather().
constexpr size_t mostGatheredBytes = 256 << 20;

/// Rank 0 listens, the others come. Both sides show that they know `place.secret`; what follows is not
/// encrypted. From then on a thread of its own in every process watches the others: one that ends without
/// having destroyed this object, or of which nothing is heard, makes gather() and check() of all ranks fail
/// with its number, host and process. abandon() and check() may be called by any thread; an end in between is
/// no failure to check(), only to a gather() that the rank would be needed for. Errors: a rank that does not
/// come in time, no port (Environment); no such host, a rank that is there twice, another number of ranks
/// (BadInput). A rank with another secret or of another launch is as good as none.
Result<std::unique_ptr<Rendezvous>> joinTcpRendezvous(const LaunchedRank &place,
                                                      const TcpRendezvousOptions &options);

} // namespace fusion
