// Ranks that find each other through their caller.
#pragma once

#include "runtime/collective/Launcher.h"

namespace fusion {

/// What each rank gives, in the ranks' order.
using AllGather = std::function<Result<std::vector<std::string>>(const std::string &mine)>;

/// Rank 0 tells the others through `allGather`, called once, where they meet, and the secret that they know
/// each other by: who hears it can join. `host`: as the other ranks
/// reach this one; empty: its host name, or the loopback where all give the same. Errors: those of
/// `allGather`, and an answer that is not one.
Result<LaunchedRank> bootstrapRank(int rank, int ranks, const std::string &host, const AllGather &allGather);

} // namespace fusion
