#include "runtime/emulate/HostCompiler.h"

#include "ir/base/TemporaryPath.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace fusion::emulate {

static bool isProgram(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

/// The absolute path of a program given by path or by its name on PATH; empty if there is none.
static std::string locate(const std::string &program) {
  std::string found;
  if (program.find('/') != std::string::npos) {
    found = program;
  } else {
    const char *variable = std::getenv("PATH");
    std::string path = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
    for (size_t begin = 0; begin <= path.size() && found.empty();) {
      const size_t end = std::min(path.find(':', begin), path.size());
      std::string candidate = path.substr(begin, end - begin) + "/" + program;
      if (isProgram(candidate))
        found = candidate;
      begin = end + 1;
    }
  }
  if (found.empty() || !isProgram(found))
    return {};
  char *absolute = realpath(found.c_str(), nullptr);
  if (!absolute)
    return {};
  // The name decides how clang behaves (clang++ is a link to clang), so only the folder is resolved.
  std::string folder = found.substr(0, found.rfind('/'));
  char *absoluteFolder = realpath(folder.empty() ? "/" : folder.c_str(), nullptr);
  std::string result = std::string(absoluteFolder ? absoluteFolder : folder) + found.substr(found.rfind('/'));
  free(absoluteFolder);
  free(absolute);
  return result;
}

static HostCompiler describe(const std::string &path) {
  HostCompiler compiler{path, path};
  struct stat info;
  if (stat(path.c_str(), &info) == 0)
    compiler.identity =
        fmt::format("{} {} {}.{}", path, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  compiler.precompiles = path.substr(path.rfind('/')).find("clang") != std::string::npos;
  compiler.linker = locate("ld");
  return compiler;
}

Result<HostCompiler> HostCompiler::find() {
  if (const char *chosen = std::getenv("FUSION_HOST_CXX"); chosen && *chosen) {
    std::string path = locate(chosen);
    if (path.empty())
      return environment(fmt::format("FUSION_HOST_CXX={}: no such program", chosen));
    return describe(path);
  }
  for (const char *name : {"clang++-22", "clang++", "c++", "g++"})
    if (std::string path = locate(name); !path.empty())
      return describe(path);
  return environment(
      "emulation needs a C++ compiler: none of clang++-22, clang++, c++, g++ is on PATH; install "
      "clang or g++, or set FUSION_HOST_CXX");
}

const std::vector<std::string> &HostCompiler::flags() {
  // Unoptimised: kernels run on small inputs, and compiling them takes most of the time.
  static const std::vector<std::string> options = {"-O0",
                                                   "-fPIC",
                                                   "-std=c++17",
                                                   "-ffp-contract=off",
                                                   "-fno-strict-aliasing",
                                                   "-fno-exceptions",
                                                   "-fno-rtti",
                                                   "-Wno-unknown-pragmas",
                                                   "-Wframe-larger-than=98304"};
  return options;
}

static std::string firstComplaint(const std::string &logFile) {
  std::ifstream log(logFile);
  std::string line, first;
  while (std::getline(log, line)) {
    if (line.find(" error: ") != std::string::npos)
      return line;
    if (first.empty())
      first = line;
  }
  return first;
}

Status HostCompiler::compile(const std::string &sourceFile, const std::string &libraryFile,
                             const std::string &logFile, const std::string &header, Frames frames) const {
  const std::string object = libraryFile + ".o";
  std::vector<std::string> arguments = {"-c", "-o", object, sourceFile};
  if (frames == FewVariables)
    arguments.push_back("-O1");
  if (!header.empty())
    arguments.insert(arguments.begin(), {"-include-pch", header});
  Status status = run(std::move(arguments), logFile);
  if (status) {
    // A compiler that links starts two or three programs more than the linker that a kernel needs: half of
    // the time. It knows its own library (libgcc: popcounts, wide divisions), which few kernels need.
    status = linker.empty() ? environment("no linker")
                            : start({linker, "-shared", "--no-undefined", "--as-needed", "-o", libraryFile,
                                     object, "-lm", "-lc"},
                                    logFile);
    if (!status)
      status = run({"-shared", "-o", libraryFile, object, "-Wl,--as-needed", "-lm"}, logFile);
  }
  unlink(object.c_str());
  return status;
}

bool HostCompiler::isFrameTooLarge(const Error &error) {
  return error.message.find("frame size") != std::string::npos; // of Clang and GCC
}

Status HostCompiler::precompile(const std::string &headerFile, const std::string &precompiledFile,
                                const std::string &logFile) const {
  // Another process may write the same header again, which changes its time.
  return run({"-Xclang", "-fno-pch-timestamp", "-fpch-instantiate-templates", "-x", "c++-header", "-o",
              precompiledFile, headerFile},
             logFile);
}

Status HostCompiler::run(std::vector<std::string> arguments, const std::string &logFile) const {
  std::vector<std::string> words = {path};
  words.insert(words.end(), flags().begin(), flags().end());
  words.insert(words.end(), std::make_move_iterator(arguments.begin()),
               std::make_move_iterator(arguments.end()));
  return start(std::move(words), logFile);
}

Status HostCompiler::start(std::vector<std::string> words, const std::string &logFile) {
  const std::string path = words.front();
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, logFile.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // Whoever waits for signals in a thread blocks them: the compiler is to end by them.
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  TemporaryProcess compiler([&](pid_t &child) {
    return posix_spawn(&child, path.c_str(), &actions, &attributes, argv.data(), environ);
  });
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (compiler.error())
    return environment(fmt::format("{}: cannot start: {}", path, std::strerror(compiler.error())));
  const int status = compiler.wait();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {};
  std::string complaint = firstComplaint(logFile);
  if (complaint.empty())
    complaint = WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                                    : fmt::format("exit status {}", WEXITSTATUS(status));
  return environment(fmt::format("{}: {}", path, complaint));
}

} // namespace fusion::emulate
