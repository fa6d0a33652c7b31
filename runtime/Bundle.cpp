#include "runtime/Bundle.h"

#include "ir/base/Hash.h"
#include "ir/base/MappedFile.h"
#include "ir/base/Parallel.h"
#include "ir/base/TemporaryPath.h"
#include "runtime/MemoryPlan.h"
#include "runtime/SpanFiles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <unistd.h>

namespace fs = std::filesystem;

namespace fusion {
namespace {

constexpr const char *planFile = "plan.json";
constexpr const char *manifestFile = "bundle.json";
constexpr const char *weightFile = "weights.bin";
constexpr int formatVersion = 3;
constexpr size_t digestedBytes =
    64 << 20; ///< of the weights to a digest, so that they are checked in parallel

/// Kernels of one module share the file of the first.
std::string cubinFile(const std::vector<std::string> &hashes, size_t index) {
  const auto first = std::find(hashes.begin(), hashes.end(), hashes[index]);
  return fmt::format("kernels/{}.cubin", first - hashes.begin());
}

Error writeError(const std::string &path) {
  return environment(fmt::format("{}: {}", path, std::strerror(errno)));
}

/// A file being written. close() makes it durable.
class OutputFile {
public:
  explicit OutputFile(const std::string &path) : path(path), file(std::fopen(path.c_str(), "wb")) {}
  ~OutputFile() {
    if (file)
      std::fclose(file);
  }
  Status write(const void *bytes, size_t count) {
    if (!file || (count > 0 && std::fwrite(bytes, 1, count, file) != count))
      return writeError(path);
    size += count;
    return {};
  }
  Status align() {
    static const char zeros[bufferAlignment] = {};
    return write(zeros, alignedSize(size) - size);
  }
  Status close() {
    if (!file || std::fflush(file) != 0 || fsync(fileno(file)) != 0)
      return writeError(path);
    int code = std::fclose(file);
    file = nullptr;
    return code == 0 ? Status() : writeError(path);
  }
  size_t size = 0;

private:
  std::string path;
  std::FILE *file;
};

Status writeFile(const std::string &path, std::string_view text) {
  OutputFile file(path);
  if (Status status = file.write(text.data(), text.size()); !status)
    return status;
  return file.close();
}

Result<std::string> readFile(const std::string &path) {
  auto file = MappedFile::open(path); // not what waits, or has no end
  if (!file)
    return file.error();
  const std::span<const std::byte> bytes = (*file)->bytes();
  return std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size());
}

Result<std::vector<std::string>> weightDigests(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.error();
  const std::string_view bytes(reinterpret_cast<const char *>((*file)->bytes().data()),
                               (*file)->bytes().size());
  std::vector<std::string> digests((bytes.size() + digestedBytes - 1) / digestedBytes);
  parallelFor(static_cast<int64_t>(digests.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      digests[i] = contentHash(bytes.substr(i * digestedBytes, digestedBytes));
  });
  return digests;
}

/// The plan of a bundle reads its own weights and no other file.
Status placeWeights(ProgramPlan &plan, const std::string &folder) {
  for (BufferPlan &buffer : plan.buffers) {
    std::vector<FileSpan *> spans;
    if (auto *span = std::get_if<FileSpan>(&buffer.contents))
      spans.push_back(span);
    for (std::vector<FileSpan> *more : {&buffer.perRank, &buffer.parts})
      for (FileSpan &span : *more)
        spans.push_back(&span);
    for (FileSpan *span : spans) {
      if (span->path != weightFile)
        return badInput(
            fmt::format("{}/{}: weight {} is not in {}", folder, planFile, buffer.name, weightFile));
      span->path = fmt::format("{}/{}", folder, weightFile);
    }
  }
  return {};
}

/// Copies every weight to `path` and lets the plan point there. Equal spans are stored once.
Status packWeights(ProgramPlan &plan, const std::string &path) {
  OutputFile output(path);
  SpanFiles files;
  std::map<std::tuple<std::string, uint64_t, uint64_t>, uint64_t> written;
  auto pack = [&](const FileSpan &span, const std::string &name) -> Result<FileSpan> {
    if (Status status = output.align(); !status)
      return status.error();
    auto [entry, fresh] = written.try_emplace({span.path, span.offset, span.length}, output.size);
    Result<const std::byte *> bytes = files.bytesOf(span, name);
    if (!bytes)
      return bytes.error();
    if (fresh)
      if (Status status = output.write(*bytes, span.length); !status)
        return status.error();
    return FileSpan{weightFile, entry->second, span.length};
  };
  for (BufferPlan &buffer : plan.buffers) {
    if (buffer.kind != BufferPlan::Kind::Weight)
      continue;
    if (Status status = output.align(); !status)
      return status;
    FileSpan packed{weightFile, output.size, 0};
    if (auto *tensor = std::get_if<Tensor>(&buffer.contents)) {
      packed.length = tensor->bytes();
      if (Status status = output.write(tensor->data(), tensor->bytes()); !status)
        return status;
    } else if (!buffer.parts.empty()) { // the bundle has them side by side
      for (const FileSpan &part : buffer.parts) {
        Result<const std::byte *> bytes = files.bytesOf(part, buffer.name);
        if (!bytes)
          return bytes.error();
        if (Status status = output.write(*bytes, part.length); !status)
          return status;
        packed.length += part.length;
      }
      buffer.parts.clear();
    } else {
      Result<FileSpan> placed = pack(std::get<FileSpan>(buffer.contents), buffer.name);
      for (FileSpan &own : buffer.perRank) {
        Result<FileSpan> other = placed ? pack(own, buffer.name) : placed;
        if (!other)
          return other.error();
        own = *other;
      }
      if (!placed)
        return placed.error();
      packed = *placed;
    }
    buffer.contents = packed;
  }
  return output.close();
}

Status writeContents(const std::string &folder, ProgramPlan plan, const std::string &arch,
                     std::span<const CompiledKernel> kernels) {
  std::error_code error;
  fs::create_directories(folder + "/kernels", error);
  if (error)
    return environment(fmt::format("{}: {}", folder, error.message()));
  std::vector<std::string> hashes;
  std::set<std::string> written;
  for (size_t i = 0; i < kernels.size(); ++i) {
    hashes.push_back(contentHash(kernels[i].bytes));
    const std::string file = cubinFile(hashes, i);
    if (!written.insert(file).second)
      continue;
    if (Status status = writeFile(fmt::format("{}/{}", folder, file), kernels[i].bytes); !status)
      return status;
  }
  if (Status status = packWeights(plan, fmt::format("{}/{}", folder, weightFile)); !status)
    return status;
  std::string text = toJson(plan);
  if (Status status = writeFile(fmt::format("{}/{}", folder, planFile), text); !status)
    return status;
  auto weights = weightDigests(fmt::format("{}/{}", folder, weightFile));
  if (!weights)
    return weights.error();
  nlohmann::json manifest = {{"fusion_bundle", formatVersion}, {"arch", arch}, {"plan", contentHash(text)},
                             {"kernels", hashes}, {"weights", *weights}};
  return writeFile(fmt::format("{}/{}", folder, manifestFile), manifest.dump(1));
}

} // namespace

bool isBundle(const std::string &path) {
  std::error_code ignored;
  return fs::is_regular_file(path + "/" + manifestFile, ignored);
}

Status writeBundle(const std::string &folder, const ProgramPlan &plan, const std::string &arch,
                   std::span<const CompiledKernel> kernels) {
  if (kernels.size() != plan.kernels.size())
    return badInput(
        fmt::format("{} compiled kernels for {} in the plan", kernels.size(), plan.kernels.size()));
  std::error_code error;
  std::string target = fs::path(folder).lexically_normal().string();
  while (target.size() > 1 && target.back() == '/')
    target.pop_back();
  bool exists = fs::exists(target, error);
  if (exists && !isBundle(target) && !(fs::is_directory(target, error) && fs::is_empty(target, error)))
    return badInput(fmt::format("{} exists and is not a bundle: remove it or choose another folder", target));

  const TemporaryPath partial(fmt::format("{}.{}.partial", target, getpid()));
  const std::string &temporary = partial.path();
  fs::remove_all(temporary, error);
  Status status = writeContents(temporary, plan, arch, kernels);
  if (status) {
    error.clear();
    // A folder cannot be renamed over a filled one: the two change places, and there is always one of them.
    const int code =
        renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), exists ? RENAME_EXCHANGE : 0);
    if (code != 0 && exists) { // a file system without that
      fs::remove_all(target, error);
      fs::rename(temporary, target, error);
    } else if (code != 0) {
      error = std::error_code(errno, std::generic_category());
    }
    if (error)
      status = environment(fmt::format("{}: {}", target, error.message()));
  }
  return status;
}

Result<Bundle> readBundle(const std::string &folder) {
  Result<std::string> manifestText = readFile(fmt::format("{}/{}", folder, manifestFile));
  if (!manifestText)
    return badInput(fmt::format("{} is not a bundle: {}", folder, manifestText.error().message));
  Bundle bundle;
  std::string planHash;
  std::vector<std::string> hashes, weights;
  try {
    nlohmann::json manifest = nlohmann::json::parse(*manifestText);
    if (int format = manifest.at("fusion_bundle").get<int>(); format != formatVersion)
      return badInput(
          fmt::format("{}: bundle format {}, this version reads {}", folder, format, formatVersion));
    bundle.arch = manifest.at("arch").get<std::string>();
    planHash = manifest.at("plan").get<std::string>();
    hashes = manifest.at("kernels").get<std::vector<std::string>>();
    weights = manifest.at("weights").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception &problem) {
    return badInput(fmt::format("{}/{} is damaged: {}", folder, manifestFile, problem.what()));
  }
  Result<std::string> planText = readFile(fmt::format("{}/{}", folder, planFile));
  if (!planText)
    return planText.error();
  if (contentHash(*planText) != planHash)
    return badInput(fmt::format("{}/{} is damaged: its content is not what was written", folder, planFile));
  Result<ProgramPlan> plan = programPlanFromJson(*planText);
  if (!plan)
    return badInput(fmt::format("{}/{}: {}", folder, planFile, plan.error().message));
  bundle.plan = std::move(*plan);
  if (hashes.size() != bundle.plan.kernels.size())
    return badInput(fmt::format("{}/{} is damaged: {} kernels for {} in the plan", folder, manifestFile,
                                hashes.size(), bundle.plan.kernels.size()));
  for (size_t i = 0; i < hashes.size(); ++i) {
    std::string path = fmt::format("{}/{}", folder, cubinFile(hashes, i));
    Result<std::string> cubin = readFile(path);
    if (!cubin)
      return cubin.error();
    if (contentHash(*cubin) != hashes[i])
      return badInput(path + " is damaged: its content is not what was written");
    bundle.cubins.push_back(std::move(*cubin));
  }
  const std::string weightPath = fmt::format("{}/{}", folder, weightFile);
  Result<std::vector<std::string>> found = weightDigests(weightPath);
  if (!found)
    return found.error();
  if (*found != weights)
    return badInput(weightPath + " is damaged: its content is not what was written");
  if (Status status = placeWeights(bundle.plan, folder); !status)
    return status.error();
  return bundle;
}

} // namespace fusion
