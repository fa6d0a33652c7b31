// Matmuls by cuBLASLt on one device.
#pragma once

#include "runtime/Backend.h"
#include "runtime/cuda/CublasLt.h"

#include <map>

namespace fusion {

/// Belongs to a backend, on whose stream it queues. Which of the library's algorithms is the fastest is tried
/// by those who `mayTry`; the others take what was found then, in this process or by the cache, else what the
/// library proposes first.
class CublasLtRunner {
public:
  /// Errors: no cuBLASLt, or no memory for it (Environment).
  static Result<std::unique_ptr<CublasLtRunner>> make(Backend &backend, const std::string &cacheFolder,
                                                      bool mayTry);
  ~CublasLtRunner();

  /// Queues the matmul; the arguments as LibraryMatmul wants them.
  Status matmul(const LibraryMatmul &matmul, std::span<const uint64_t> arguments);

private:
  struct Problem;
  struct Prepared;
  CublasLtRunner(const CublasLt &library, Backend &backend, std::string cacheFolder, bool mayTry);
  Result<Prepared *> prepared(const Problem &problem, std::span<const uint64_t> arguments);
  Status describe(const Problem &problem, Prepared &prepared);
  Status chooseAlgorithm(const Problem &problem, Prepared &prepared, std::span<const uint64_t> arguments);
  Result<size_t> fastest(Prepared &prepared, std::span<const CublasLt::Heuristic> candidates,
                         std::span<const uint64_t> arguments);
  Status run(const Prepared &prepared, std::span<const uint64_t> arguments);

  const CublasLt &library;
  Backend &backend;
  const std::string cacheFolder;
  const bool mayTry;
  CublasLt::Handle handle = nullptr;
  std::shared_ptr<void> workspace;
  std::map<std::string, std::unique_ptr<Prepared>> known;
};

} // namespace fusion
