#include "runtime/cuda/CublasLt.h"

#include <fmt/format.h>

#include <mutex>

namespace fusion {

Result<const CublasLt *> CublasLt::instance() {
  static std::mutex mutex;
  static const CublasLt *opened = nullptr;
  std::lock_guard lock(mutex);
  if (environmentVariable("FUSION_CUBLASLT") == "0")
    return environment("FUSION_CUBLASLT is 0");
  if (!opened) {
    Result<CublasLt> library = open();
    if (!library)
      return library.error();
    opened = new CublasLt(*library); // lives as long as the library, which is never closed
  }
  return opened;
}

Result<CublasLt> CublasLt::open() {
  Library::Request request;
  request.purpose = "cuBLASLt (libcublasLt)";
  request.files = {"libcublasLt.so.13", "libcublasLt.so.12"};
  request.advice =
      "install the CUDA toolkit's cuBLAS, or `pip install nvidia-cublas` (PyTorch brings it too), and set "
      "FUSION_CUBLASLT to the path of libcublasLt.so.13 if it is in an unusual place";
  if (const std::string file = environmentVariable("FUSION_CUBLASLT"); !file.empty()) {
    request.files = {file}; // the user's choice, or none
  } else {
    for (const char *folder : {"nvidia/cu13/lib", "nvidia/cublas/lib"})
      for (std::string &found : wheelFolders(folder))
        request.fallbacks.push_back(std::move(found));
    request.fallbacks.insert(request.fallbacks.end(), {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"});
  }
  Result<Library> library = Library::open(request);
  if (!library)
    return library.error();
  CublasLt lt = {};
  const char *missing = nullptr;
#define FUSION_RESOLVE(symbol)                                                                               \
  if (!library->resolve(#symbol, lt.symbol))                                                                 \
  missing = #symbol
  FUSION_RESOLVE(cublasLtGetVersion);
  FUSION_RESOLVE(cublasLtGetStatusString);
  FUSION_RESOLVE(cublasLtCreate);
  FUSION_RESOLVE(cublasLtDestroy);
  FUSION_RESOLVE(cublasLtMatmulDescCreate);
  FUSION_RESOLVE(cublasLtMatmulDescDestroy);
  FUSION_RESOLVE(cublasLtMatmulDescSetAttribute);
  FUSION_RESOLVE(cublasLtMatrixLayoutCreate);
  FUSION_RESOLVE(cublasLtMatrixLayoutDestroy);
  FUSION_RESOLVE(cublasLtMatrixLayoutSetAttribute);
  FUSION_RESOLVE(cublasLtMatmulPreferenceCreate);
  FUSION_RESOLVE(cublasLtMatmulPreferenceDestroy);
  FUSION_RESOLVE(cublasLtMatmulPreferenceSetAttribute);
  FUSION_RESOLVE(cublasLtMatmulAlgoGetHeuristic);
  FUSION_RESOLVE(cublasLtMatmulAlgoCheck);
  FUSION_RESOLVE(cublasLtMatmul);
#undef FUSION_RESOLVE
  if (missing)
    return environment(fmt::format("{} has no {}: install cuBLAS 12 or newer", library->path(), missing));
  int (*marker)() = nullptr;
  lt.standsIn = library->resolve("fusionStandsInForCublasLt", marker);
  return lt;
}

std::string CublasLt::version() const {
  const size_t number = cublasLtGetVersion(); // 130100 is 13.1.0
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

Status CublasLt::check(int code, const std::string &what) const {
  return code == 0 ? Status()
                   : environment(fmt::format("{}: cuBLASLt: {}", what, cublasLtGetStatusString(code)));
}

} // namespace fusion
