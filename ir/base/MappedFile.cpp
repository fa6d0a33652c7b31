#include "ir/base/MappedFile.h"

#include "ir/base/Authentication.h"
#include "ir/base/MappedFault.h"
#include "ir/base/TemporaryPath.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fusion {

namespace {

Error systemError(const std::string &path, int code) {
  // What the machine is short of is no fault of the path.
  const bool isShort =
      code == ENOSPC || code == EDQUOT || code == EIO || code == EMFILE || code == ENFILE || code == ENOMEM;
  return Error{isShort ? ErrorKind::Environment : ErrorKind::BadInput,
               fmt::format("{}: {}", path, std::strerror(code))};
}

/// Closes a descriptor at the end of the scope.
struct Descriptor {
  int number = -1;
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }
};

/// Tells a replaced or rewritten file from the one that was mapped.
struct Identity {
  dev_t device;
  ino_t inode;
  off_t size;
  int64_t seconds, nanoseconds;
  explicit Identity(const struct stat &facts)
      : device(facts.st_dev), inode(facts.st_ino), size(facts.st_size), seconds(facts.st_mtim.tv_sec),
        nanoseconds(facts.st_mtim.tv_nsec) {}
  friend bool operator==(const Identity &, const Identity &) = default;
};

struct OpenFiles {
  struct Entry {
    Identity identity;
    std::weak_ptr<MappedFile> file;
  };
  std::mutex mutex;
  std::map<std::string, Entry> entries;
  static OpenFiles &instance() {
    static OpenFiles files;
    return files;
  }
};

/// Files of memory by their numbers; the lowest that is free comes next.
struct MemoryFiles {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<MappedFile>> files;
  std::set<uint64_t> free;
  uint64_t next = 1;
  static MemoryFiles &instance() {
    static auto *files = new MemoryFiles; // tensors of static objects may outlive main
    return *files;
  }
};
constexpr std::string_view memoryPrefix = "/@memory/";

Result<std::shared_ptr<MappedFile>> openMemory(const std::string &path) {
  uint64_t number = 0;
  const char *end = path.data() + path.size();
  auto [stop, code] = std::from_chars(path.data() + memoryPrefix.size(), end, number);
  MemoryFiles &memory = MemoryFiles::instance();
  std::lock_guard lock(memory.mutex);
  auto found = code == std::errc() && stop == end ? memory.files.find(number) : memory.files.end();
  std::shared_ptr<MappedFile> file = found == memory.files.end() ? nullptr : found->second.lock();
  if (!file)
    return badInput(path + ": the graph that had these bytes in memory is gone");
  return file;
}

std::string canonicalPath(const std::string &path) {
  std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
  return resolved ? std::string(resolved.get()) : path;
}

/// 0, or the errno of the write that failed.
int writeAll(int descriptor, std::string_view contents) {
  while (!contents.empty()) {
    ssize_t written = ::write(descriptor, contents.data(), std::min<size_t>(contents.size(), 1u << 30));
    if (written < 0) {
      if (errno == EINTR)
        continue;
      return errno;
    }
    contents.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

/// What is mapped, for a signal handler. Of more files than this a fault has no name.
std::array<std::atomic<const MappedFile *>, 1024> mappings;

void noteMapping(const MappedFile *file, bool isThere) {
  for (auto &place : mappings) {
    const MappedFile *expected = isThere ? nullptr : file;
    if (place.compare_exchange_strong(expected, isThere ? file : nullptr))
      return;
  }
}

/// A new file beside `target`, whose mode the process's mask decides, which mkstemp ignores. Its name goes to
/// `path`.
int openTemporary(const std::string &target, mode_t mode, std::string &path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    path = target + "." + toHex(randomBytes(3));
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST)
      return file;
  }
  return -1;
}

Status writeInPlace(const std::string &path, std::span<const std::string_view> parts) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.number < 0)
    return systemError(path, errno);
  for (std::string_view part : parts)
    if (int code = writeAll(file.number, part))
      return systemError(path, code);
  return {};
}

/// Fills the temporary file; 0 or an errno. `mode`: of the file that it replaces, if there is one.
int fillTemporary(int descriptor, std::span<const std::string_view> parts, std::optional<mode_t> mode,
                  bool syncs) {
  for (std::string_view part : parts)
    if (int code = writeAll(descriptor, part))
      return code;
  if ((mode && ::fchmod(descriptor, *mode) != 0) || (syncs && ::fsync(descriptor) != 0))
    return errno;
  return 0;
}

} // namespace

std::shared_ptr<MappedFile> MappedFile::ofGpu(const OnGpu &place, std::shared_ptr<const void> owner,
                                              Fetch fetch) {
  std::shared_ptr<MappedFile> file = ofMemory({}, std::move(owner));
  file->gpu = place;
  file->fetch = std::move(fetch);
  return file;
}

std::optional<MappedFile::Found> MappedFile::onGpu(const std::string &path) {
  if (!path.starts_with(memoryPrefix))
    return std::nullopt;
  Result<std::shared_ptr<MappedFile>> file = openMemory(path);
  if (!file || !(*file)->gpu)
    return std::nullopt;
  return Found{*file, *(*file)->gpu};
}

Status MappedFile::fetchOnce() {
  std::lock_guard lock(fetching);
  if (!gpu || fetched || gpu->size == 0)
    return {};
  auto copy = std::make_unique_for_overwrite<std::byte[]>(gpu->size);
  if (Status status = fetch(copy.get(), *gpu); !status)
    return status;
  fetched = std::move(copy);
  contents = {fetched.get(), gpu->size};
  return {};
}

std::shared_ptr<MappedFile> MappedFile::ofMemory(std::span<const std::byte> bytes,
                                                 std::shared_ptr<const void> owner) {
  std::shared_ptr<MappedFile> file(new MappedFile());
  MemoryFiles &memory = MemoryFiles::instance();
  std::lock_guard lock(memory.mutex);
  file->number = memory.free.empty() ? memory.next++ : memory.free.extract(memory.free.begin()).value();
  file->name = fmt::format("{}{}", memoryPrefix, *file->number);
  file->contents = bytes;
  file->owner = std::move(owner);
  memory.files[*file->number] = file;
  return file;
}

bool MappedFile::exists(const std::string &path) {
  if (path.starts_with(memoryPrefix))
    return bool(openMemory(path));
  return ::access(path.c_str(), F_OK) == 0;
}

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string &path) {
  if (path.starts_with(memoryPrefix)) {
    Result<std::shared_ptr<MappedFile>> file = openMemory(path);
    if (file)
      if (Status status = (*file)->fetchOnce(); !status)
        return status.error();
    return file;
  }
  // Without O_NONBLOCK a named pipe would wait here for a writer.
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.number < 0)
    return systemError(path, errno);
  struct stat facts {};
  if (::fstat(descriptor.number, &facts) != 0)
    return systemError(path, errno);
  if (!S_ISREG(facts.st_mode))
    return badInput(fmt::format("{}: not a regular file", path));

  Identity identity(facts);
  std::string canonical = canonicalPath(path);
  OpenFiles &files = OpenFiles::instance();
  std::lock_guard lock(files.mutex);
  if (auto entry = files.entries.find(canonical);
      entry != files.entries.end() && entry->second.identity == identity)
    if (std::shared_ptr<MappedFile> mapped = entry->second.file.lock())
      return mapped;

  std::shared_ptr<MappedFile> mapped(new MappedFile());
  mapped->name = path;
  if (facts.st_size > 0) { // mmap refuses an empty range
    size_t size = static_cast<size_t>(facts.st_size);
    void *address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.number, 0);
    if (address == MAP_FAILED)
      return systemError(path, errno);
    mapped->contents = {static_cast<const std::byte *>(address), size};
    noteMapping(mapped.get(), true);
  }
  std::erase_if(files.entries, [](const auto &entry) { return entry.second.file.expired(); });
  files.entries.insert_or_assign(std::move(canonical), OpenFiles::Entry{identity, mapped});
  return mapped;
}

const char *mappedFileAt(const void *address) {
  for (auto &place : mappings)
    if (const MappedFile *file = place.load()) {
      const std::byte *begin = file->bytes().data();
      if (address >= begin && address < begin + (file->bytes().size() + 4095) / 4096 * 4096)
        return file->path().c_str();
    }
  return nullptr;
}

MappedFile::~MappedFile() {
  if (number) {
    MemoryFiles &memory = MemoryFiles::instance();
    std::lock_guard lock(memory.mutex);
    memory.files.erase(*number);
    memory.free.insert(*number);
    return;
  }
  noteMapping(this, false);
  if (!contents.empty())
    ::munmap(const_cast<std::byte *>(contents.data()), contents.size());
}

Status writeFileAtomically(const std::string &path, std::string_view contents) {
  return writeFileAtomically(path, std::span<const std::string_view>(&contents, 1));
}

Status writeFileAtomically(const std::string &path, std::span<const std::string_view> parts,
                           const WriteOptions &options) {
  struct stat facts {};
  bool exists = ::stat(path.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode))
    return systemError(path, EISDIR);
  if (exists && !S_ISREG(facts.st_mode))
    return writeInPlace(path, parts);
  // A link keeps pointing at the file whose contents change.
  std::string target = exists ? canonicalPath(path) : path;
  std::string temporary;
  Descriptor file(openTemporary(target, options.mode, temporary));
  if (file.number < 0)
    return systemError(path, errno);
  const TemporaryPath removed(temporary);
  int code =
      fillTemporary(file.number, parts, exists ? std::optional<mode_t>(facts.st_mode & 07777) : std::nullopt,
                    options.syncs);
  if (code == 0 && ::rename(temporary.c_str(), target.c_str()) != 0)
    code = errno;
  if (code != 0)
    return systemError(path, code);
  if (!options.syncs)
    return {};
  // The rename itself survives a crash only once the folder is on disk; not every file system allows this.
  size_t slash = target.rfind('/');
  std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : target.substr(0, slash);
  Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.number >= 0)
    ::fsync(parent.number);
  return {};
}

} // namespace fusion
