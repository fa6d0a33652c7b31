#include "runtime/CublasLtRunner.h"

#include "runtime/KernelCache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <mutex>

namespace fusion {
namespace {

/// NVIDIA's advice for Hopper and later. One is enough: a backend's work is done in order, whatever the
/// streams.
constexpr size_t workspaceBytes = 32 << 20;
constexpr int mostCandidates = 8;
constexpr int samples = 5;
constexpr size_t mostKnown = 512; ///< problems; a decode loop has new ones again and again

int numberOf(DType type) {
  switch (type) {
  case DType::F64: return CublasLt::f64;
  case DType::F16: return CublasLt::f16;
  case DType::BF16: return CublasLt::bf16;
  case DType::I8: return CublasLt::i8;
  case DType::I32: return CublasLt::i32;
  case DType::F8E4M3: return CublasLt::f8e4m3;
  case DType::F8E5M2: return CublasLt::f8e5m2;
  default: return CublasLt::f32;
  }
}

enum Argument : size_t { a, b, c, m, n, k, count, lda, ldb, ldc, strideA, strideB, strideC };

/// What a pointer is a multiple of, as far as the library cares.
uint32_t alignmentOf(uint64_t pointer) {
  return static_cast<uint32_t>(std::min<uint64_t>(pointer & ~(pointer - 1), 256));
}

/// Algorithms that were tried in this process.
struct Tried {
  std::mutex mutex;
  std::map<std::string, CublasLt::Algorithm> algorithms;
};
Tried &tried() {
  static Tried all;
  return all;
}

std::string textOf(const CublasLt::Algorithm &algorithm) {
  return fmt::format("{:016x}\n", fmt::join(algorithm, " "));
}

std::optional<CublasLt::Algorithm> algorithmFrom(const std::string &text) {
  CublasLt::Algorithm algorithm = {};
  const char *at = text.c_str();
  for (uint64_t &word : algorithm) {
    unsigned long long value = 0;
    int length = 0;
    if (std::sscanf(at, "%llx%n", &value, &length) != 1)
      return std::nullopt;
    word = value;
    at += length;
  }
  return algorithm;
}

} // namespace

struct CublasLtRunner::Problem {
  LibraryMatmul matmul;
  std::array<int64_t, 10> numbers; ///< from m on
  std::array<uint32_t, 3> alignments;

  /// With `about`, that of all problems with as many rows, or about as many.
  std::string key(bool about) const {
    auto shown = numbers;
    if (about)
      for (size_t i : {m - m, strideA - m, strideC - m}) // what depends on the number of rows
        shown[i] = std::bit_width(static_cast<uint64_t>(shown[i]));
    return fmt::format("{} {} {} {:d} {:d} {} {}", name(matmul.a), name(matmul.b), name(matmul.c),
                       matmul.columnMajorA, matmul.columnMajorB, fmt::join(shown, " "),
                       fmt::join(alignments, " "));
  }
};

/// The library's column-major view: C transposed, as B transposed times A transposed.
struct CublasLtRunner::Prepared {
  explicit Prepared(const CublasLt &library) : library(library) {}
  ~Prepared() {
    for (CublasLt::Layout layout : {left, right, result})
      if (layout)
        library.cublasLtMatrixLayoutDestroy(layout);
    if (operation)
      library.cublasLtMatmulDescDestroy(operation);
  }
  Prepared(const Prepared &) = delete;
  Prepared &operator=(const Prepared &) = delete;

  const CublasLt &library;
  CublasLt::Operation operation = nullptr;
  CublasLt::Layout left = nullptr, right = nullptr, result = nullptr;
  CublasLt::Algorithm algorithm = {};
  bool inF64 = false;
};

Result<std::unique_ptr<CublasLtRunner>> CublasLtRunner::make(Backend &backend, const std::string &cacheFolder,
                                                             bool mayTry) {
  Result<const CublasLt *> library = CublasLt::instance();
  if (!library)
    return library.error();
  if ((*library)->standsIn != backend.sharesHostMemory())
    return environment(backend.description() + ": cuBLASLt works on a GPU, and its stand-in on the host");
  std::unique_ptr<CublasLtRunner> made(new CublasLtRunner(**library, backend, cacheFolder, mayTry));
  if (Status status = (*library)->check((*library)->cublasLtCreate(&made->handle), "starting cuBLASLt");
      !status)
    return status.error();
  Result<std::shared_ptr<void>> memory = backend.allocate(workspaceBytes);
  if (!memory)
    return memory.error();
  made->workspace = *memory;
  return made;
}

CublasLtRunner::CublasLtRunner(const CublasLt &library, Backend &backend, std::string cacheFolder,
                               bool mayTry)
    : library(library), backend(backend), cacheFolder(std::move(cacheFolder)), mayTry(mayTry) {}

CublasLtRunner::~CublasLtRunner() {
  known.clear();
  if (handle)
    library.cublasLtDestroy(handle);
}

Status CublasLtRunner::matmul(const LibraryMatmul &matmul, std::span<const uint64_t> arguments) {
  Problem problem{matmul, {}, {}};
  for (size_t i = 0; i < problem.numbers.size(); ++i)
    problem.numbers[i] = static_cast<int64_t>(arguments[m + i]);
  for (size_t i = 0; i < problem.alignments.size(); ++i)
    problem.alignments[i] = alignmentOf(arguments[i]);
  Result<Prepared *> found = prepared(problem, arguments);
  return found ? run(**found, arguments) : found.error();
}

Result<CublasLtRunner::Prepared *> CublasLtRunner::prepared(const Problem &problem,
                                                            std::span<const uint64_t> arguments) {
  const std::string key = problem.key(false);
  if (auto found = known.find(key); found != known.end())
    return found->second.get();
  if (known.size() == mostKnown)
    known.clear();
  auto made = std::make_unique<Prepared>(library);
  if (Status status = describe(problem, *made); !status)
    return status.error();
  if (Status status = chooseAlgorithm(problem, *made, arguments); !status)
    return status.error();
  return (known[key] = std::move(made)).get();
}

Status CublasLtRunner::describe(const Problem &problem, Prepared &prepared) {
  const auto &[matmul, numbers, alignments] = problem;
  auto number = [&](Argument argument) { return numbers[argument - m]; };
  prepared.inF64 = matmul.a == DType::F64;
  int code = library.cublasLtMatmulDescCreate(&prepared.operation,
                                              prepared.inF64 ? CublasLt::sumInF64 : CublasLt::sumInF32,
                                              prepared.inF64 ? CublasLt::f64 : CublasLt::f32);
  auto transpose = [&](CublasLt::OperationAttribute which, bool value) {
    const int32_t flag = value;
    if (code == 0)
      code = library.cublasLtMatmulDescSetAttribute(prepared.operation, which, &flag, sizeof flag);
  };
  transpose(CublasLt::transposeA, matmul.columnMajorB);
  transpose(CublasLt::transposeB, matmul.columnMajorA);
  auto layout = [&](CublasLt::Layout &made, DType type, int64_t rows, int64_t columns, bool columnMajor,
                    Argument leading, Argument batchStride) {
    const int64_t inLine = columnMajor ? rows : columns, lines = columnMajor ? columns : rows;
    const int32_t matrices = static_cast<int32_t>(number(count));
    const int64_t stride = number(batchStride);
    if (code == 0)
      code = library.cublasLtMatrixLayoutCreate(&made, numberOf(type), static_cast<uint64_t>(inLine),
                                                static_cast<uint64_t>(lines), number(leading));
    if (code == 0 && matrices > 1)
      code = library.cublasLtMatrixLayoutSetAttribute(made, CublasLt::batchCount, &matrices, sizeof matrices);
    if (code == 0 && matrices > 1)
      code = library.cublasLtMatrixLayoutSetAttribute(made, CublasLt::batchStride, &stride, sizeof stride);
  };
  layout(prepared.left, matmul.b, number(k), number(n), matmul.columnMajorB, ldb, strideB);
  layout(prepared.right, matmul.a, number(m), number(k), matmul.columnMajorA, lda, strideA);
  layout(prepared.result, matmul.c, number(m), number(n), false, ldc, strideC);
  return library.check(code, "describing a matmul");
}

Status CublasLtRunner::chooseAlgorithm(const Problem &problem, Prepared &prepared,
                                       std::span<const uint64_t> arguments) {
  auto usable = [&](const CublasLt::Algorithm &algorithm) {
    CublasLt::Heuristic checked = {};
    const int code =
        library.cublasLtMatmulAlgoCheck(handle, prepared.operation, prepared.left, prepared.right,
                                        prepared.result, prepared.result, &algorithm, &checked);
    return code == 0 && checked.state == 0 && checked.workspaceBytes <= workspaceBytes;
  };
  KernelCache cache(cacheFolder);
  const std::string key =
      fmt::format("matmul 1\n{}\n{}\n{}", backend.description(), library.version(), problem.key(true));
  {
    std::lock_guard lock(tried().mutex);
    auto found = tried().algorithms.find(key);
    std::optional<CublasLt::Algorithm> best;
    if (found != tried().algorithms.end())
      best = found->second;
    else if (std::optional<std::string> entry = cache.get(key))
      best = algorithmFrom(*entry);
    if (best && usable(*best)) {
      prepared.algorithm = *best;
      return {};
    }
  }
  CublasLt::Preference preference = nullptr;
  int code = library.cublasLtMatmulPreferenceCreate(&preference);
  auto prefer = [&](CublasLt::PreferenceAttribute which, auto value) {
    if (code == 0)
      code = library.cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value);
  };
  prefer(CublasLt::mostWorkspaceBytes, static_cast<uint64_t>(workspaceBytes));
  prefer(CublasLt::reductionSchemes, CublasLt::partsInSumType);
  prefer(CublasLt::alignmentA, problem.alignments[b]);
  prefer(CublasLt::alignmentB, problem.alignments[a]);
  prefer(CublasLt::alignmentC, problem.alignments[c]);
  prefer(CublasLt::alignmentD, problem.alignments[c]);
  std::array<CublasLt::Heuristic, mostCandidates> candidates = {};
  int found = 0;
  if (code == 0)
    code = library.cublasLtMatmulAlgoGetHeuristic(handle, prepared.operation, prepared.left, prepared.right,
                                                  prepared.result, prepared.result, preference,
                                                  mostCandidates, candidates.data(), &found);
  if (preference)
    library.cublasLtMatmulPreferenceDestroy(preference);
  if (Status status = library.check(code, "a matmul of " + problem.key(false)); !status)
    return status;
  auto end = std::remove_if(candidates.begin(), candidates.begin() + found,
                            [](const CublasLt::Heuristic &one) { return one.state != 0; });
  if (end == candidates.begin())
    return environment("cuBLASLt has no algorithm for a matmul of " + problem.key(false));
  prepared.algorithm = candidates.front().algorithm;
  Result<bool> capturing = backend.capturing();
  if (!capturing || *capturing || !mayTry)
    return capturing ? Status() : capturing.error();
  auto best =
      fastest(prepared, {candidates.data(), static_cast<size_t>(end - candidates.begin())}, arguments);
  if (!best)
    return best.error();
  prepared.algorithm = candidates[*best].algorithm;
  std::lock_guard lock(tried().mutex);
  tried().algorithms[key] = prepared.algorithm;
  cache.put(key, textOf(prepared.algorithm));
  return {};
}

Result<size_t> CublasLtRunner::fastest(Prepared &prepared, std::span<const CublasLt::Heuristic> candidates,
                                   std::span<const uint64_t> arguments) {
  size_t best = 0;
  double least = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    prepared.algorithm = candidates[i].algorithm;
    if (Status status = run(prepared, arguments); !status) // loads the code too
      return status.error();
    auto recording = backend.record([&] { return run(prepared, arguments); });
    if (!recording)
      return recording.error();
    std::vector<double> times;
    for (int sample = 0; sample < samples; ++sample) {
      if (Status status = backend.emptyCache(); !status)
        return status.error();
      Result<double> time =
          backend.time([&] { return *recording ? (*recording)->replay() : run(prepared, arguments); });
      if (!time)
        return time.error();
      times.push_back(*time);
    }
    std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
    if (i == 0 || times[samples / 2] < least) {
      least = times[samples / 2];
      best = i;
    }
  }
  return best;
}

Status CublasLtRunner::run(const Prepared &prepared, std::span<const uint64_t> arguments) {
  const float one = 1, nothing = 0;
  const double wideOne = 1, wideNothing = 0;
  auto pointer = [&](Argument argument) { return reinterpret_cast<void *>(arguments[argument]); };
  const int code = library.cublasLtMatmul(
      handle, prepared.operation, prepared.inF64 ? static_cast<const void *>(&wideOne) : &one, pointer(b),
      prepared.left, pointer(a), prepared.right,
      prepared.inF64 ? static_cast<const void *>(&wideNothing) : &nothing, pointer(c), prepared.result,
      pointer(c), prepared.result, &prepared.algorithm, workspace.get(), workspaceBytes, backend.stream());
  return code == 0 ? Status() : library.check(code, "a matmul");
}

} // namespace fusion
