#include "ir/base/PrivateFolder.h"

#include "ir/base/Authentication.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fusion {

namespace files = std::filesystem;

namespace {

constexpr const char *keyName = "key", *checkedName = "checked";
constexpr size_t fastKeyBytes = 16, secretBytes = 32;
constexpr int64_t secondsBetweenChecks = 600, secondsBetweenNotes = 600;
constexpr mode_t othersMayWrite = S_IWGRP | S_IWOTH;

struct File {
  int number;
  explicit File(const std::string &path, int flags, mode_t mode = 0)
      : number(open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  ~File() {
    if (number >= 0)
      close(number);
  }
};

/// Whether only `owner`, who is this user or root, could have written it.
bool isOf(const struct stat &facts, uint32_t owner) {
  return facts.st_uid == owner && !(facts.st_mode & othersMayWrite);
}

std::optional<std::string> contentsOf(int file, size_t size) {
  std::string text(size, 0);
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::read(file, text.data() + done, size - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return std::nullopt;
    done += static_cast<size_t>(count);
  }
  return text;
}

/// Makes the key of the folder, unless another process is faster. 0 or an errno.
int makeKey(const std::string &folder) {
  const std::string key = randomBytes(fastKeyBytes + secretBytes), path = folder + "/" + keyName;
  std::string temporary = path + ".XXXXXX"; // mkstemp gives it mode 0600
  const int file = key.empty() ? -1 : mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0)
    return key.empty() ? ENOSYS : errno;
  int code =
      write(file, key.data(), key.size()) == static_cast<ssize_t>(key.size()) && fsync(file) == 0 ? 0 : EIO;
  close(file);
  if (code == 0 && link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST)
    code = rename(temporary.c_str(), path.c_str()) == 0 ? 0 : errno; // a file system without links
  unlink(temporary.c_str());
  return code;
}

constexpr std::string_view building = "building-";

/// "building-<process>-…" and "….XXXXXX": until it is whole, a file has such a name.
bool isUnfinished(const std::string &file) {
  const size_t dot = file.rfind('.');
  return file.starts_with(building) || (dot != std::string::npos && file.size() - dot == 7);
}

std::string fileOf(const std::string &name) { return name.substr(name.rfind('/') + 1); }

/// Unfinished, of a process that is gone, or that was killed an hour ago or earlier.
bool isLeftOver(const std::string &name, const struct stat &facts, int64_t now) {
  const std::string file = fileOf(name);
  if (file.starts_with(building)) {
    int process = 0;
    std::from_chars(file.data() + building.size(), file.data() + file.size(), process);
    return process <= 0 || (kill(process, 0) != 0 && errno == ESRCH) || now - facts.st_mtim.tv_sec > 86400;
  }
  return isUnfinished(file) && now - facts.st_mtim.tv_sec > 3600;
}

} // namespace

Result<std::shared_ptr<const PrivateFolder>> PrivateFolder::open(const std::string &path, bool make) {
  using Folder = std::shared_ptr<const PrivateFolder>;
  struct stat facts;
  if (make && stat(path.c_str(), &facts) != 0) {
    std::error_code error;
    const files::path parent = files::path(path).parent_path();
    if (!parent.empty())
      files::create_directories(parent, error);
    if (error)
      return environment(error.message());
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return environment(std::strerror(errno));
  }
  if (stat(path.c_str(), &facts) != 0)
    return make ? Result<Folder>(environment(std::strerror(errno))) : Folder();
  if (!S_ISDIR(facts.st_mode))
    return environment("it is not a folder");
  if (facts.st_uid != geteuid() && facts.st_uid != 0)
    return Error{ErrorKind::AnswerIsNo, "it belongs to another user"};
  if (facts.st_mode & othersMayWrite)
    return Error{ErrorKind::AnswerIsNo, "others may write to it: chmod go-w"};
  std::shared_ptr<PrivateFolder> folder(new PrivateFolder);
  folder->root = path;
  folder->owner = facts.st_uid;
  std::optional<std::string> key = folder->read(keyName, false);
  if (!key && make) {
    if (access(path.c_str(), W_OK | X_OK) != 0)
      return environment(std::strerror(errno));
    if (struct stat there; lstat((path + "/" + keyName).c_str(), &there) == 0)
      return Error{ErrorKind::AnswerIsNo, "its key is of another user, or others may write to it"};
    if (facts.st_uid == geteuid() && (facts.st_mode & 077)) // of a version that did not mind
      (void)chmod(path.c_str(), 0700);
    if (int code = makeKey(path))
      return environment(std::strerror(code));
    key = folder->read(keyName, false);
  }
  if (!key)
    return make ? Result<Folder>(environment("its key cannot be read")) : Folder();
  if (key->size() != fastKeyBytes + secretBytes)
    return Error{ErrorKind::AnswerIsNo, "its key is damaged"};
  folder->key = std::move(*key);
  return Folder(folder);
}

bool PrivateFolder::isWritable() const { return access(root.c_str(), W_OK | X_OK) == 0; }

std::string PrivateFolder::codeOf(std::string_view contents) const {
  return fastCode(std::string_view(key).substr(0, fastKeyBytes), contents);
}

std::string PrivateFolder::secret(std::string_view purpose) const {
  return messageCode(std::string_view(key).substr(fastKeyBytes), purpose);
}

std::optional<std::string> PrivateFolder::read(const std::string &name, bool used) const {
  // Without O_NONBLOCK a named pipe would wait for a writer.
  const File file(root + "/" + name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  struct stat facts;
  if (file.number < 0 || fstat(file.number, &facts) != 0 || !S_ISREG(facts.st_mode) || !isOf(facts, owner))
    return std::nullopt;
  std::optional<std::string> contents = contentsOf(file.number, static_cast<size_t>(facts.st_size));
  if (used && contents && std::time(nullptr) - facts.st_mtim.tv_sec > secondsBetweenNotes)
    (void)futimens(file.number, nullptr);
  return contents;
}

bool PrivateFolder::isTrusted(const std::string &name) const {
  struct stat facts;
  return lstat((root + "/" + name).c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && isOf(facts, owner);
}

std::vector<PrivateFolder::Entry> PrivateFolder::entries() const {
  std::map<std::pair<dev_t, ino_t>, Entry> found;
  std::error_code error;
  for (files::recursive_directory_iterator
           place(root, files::directory_options::skip_permission_denied, error),
       end;
       !error && place != end; place.increment(error)) {
    struct stat facts;
    const std::string path = place->path().string(), name = path.substr(root.size() + 1);
    if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) || name == checkedName ||
        path.ends_with(std::string("/") + keyName))
      continue;
    Entry &entry = found[{facts.st_dev, facts.st_ino}];
    entry.names.push_back(name);
    entry.bytes = static_cast<uint64_t>(facts.st_size);
    entry.used = facts.st_mtim.tv_sec;
  }
  std::vector<Entry> all;
  for (auto &[file, entry] : found)
    all.push_back(std::move(entry));
  std::sort(all.begin(), all.end(), [](const Entry &a, const Entry &b) { return a.used < b.used; });
  return all;
}

bool PrivateFolder::isInMotion(const Entry &entry) const {
  const std::string &name = entry.names.front();
  struct stat facts;
  if (lstat((root + "/" + name).c_str(), &facts) != 0)
    return true;
  return isUnfinished(fileOf(name)) && !isLeftOver(name, facts, std::time(nullptr));
}

void PrivateFolder::shrink(uint64_t most) const {
  const int64_t now = std::time(nullptr);
  uint64_t total = 0;
  auto remove = [&](const Entry &entry) {
    for (const std::string &name : entry.names)
      unlink((root + "/" + name).c_str());
  };
  std::vector<Entry> kept;
  for (Entry &entry : entries()) {
    struct stat facts;
    if (lstat((root + "/" + entry.names.front()).c_str(), &facts) == 0 &&
        isLeftOver(entry.names.front(), facts, now)) {
      remove(entry);
      continue;
    }
    total += entry.bytes;
    kept.push_back(std::move(entry));
  }
  if (total <= most)
    return;
  for (const Entry &entry : kept) {
    if (total <= most - most / 8)
      return;
    remove(entry);
    total -= entry.bytes;
  }
}

void PrivateFolder::noteWritten(uint64_t bytes, uint64_t most) const {
  static std::atomic<uint64_t> written = 0;
  const std::string stamp = root + "/" + checkedName;
  struct stat facts;
  const bool isOld =
      lstat(stamp.c_str(), &facts) != 0 || std::time(nullptr) - facts.st_mtim.tv_sec > secondsBetweenChecks;
  if ((written += bytes) < most / 8 && !isOld)
    return;
  written = 0;
  if (File file(stamp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600); file.number >= 0)
    (void)futimens(file.number, nullptr);
  shrink(most);
}

std::optional<uint64_t> parseBytes(std::string_view text) {
  uint64_t count = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  constexpr std::string_view units = "KMGT";
  if (error != std::errc() || unit.size() > 1)
    return std::nullopt;
  const size_t index = unit.empty() ? 0 : units.find(unit.front()) + 1;
  if (!unit.empty() && index == 0) // npos + 1
    return std::nullopt;
  const unsigned shift = 10 * static_cast<unsigned>(index);
  return count > (UINT64_MAX >> shift) ? std::nullopt : std::optional(count << shift);
}

} // namespace fusion
