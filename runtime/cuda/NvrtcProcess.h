// NVRTC in a process of its own. Threads of one process take turns in NVRTC: on 16 cores 16 threads compile
// twice as fast as one, 16 processes seven times.
#pragma once

#include "ir/base/TemporaryPath.h"
#include "runtime/cuda/NvrtcLibrary.h"

#include <memory>
#include <optional>
#include <span>

namespace fusion {

/// The program that the process runs: it compiles what comes from its standard input, a socket, until that
/// ends. Its arguments: the version of the messages, and the library.
inline constexpr const char *nvrtcProgramName = "fusion-nvrtc", *nvrtcMessageVersion = "1";

/// One of these processes. Not for several threads at once.
class NvrtcProcess {
public:
  /// For a library of this path. The process starts with the first request.
  explicit NvrtcProcess(std::string library) : library(std::move(library)) {}
  ~NvrtcProcess();
  NvrtcProcess(const NvrtcProcess &) = delete;
  NvrtcProcess &operator=(const NvrtcProcess &) = delete;

  /// Nothing where the program is not found, does not start, or is one of another version: then the caller
  /// compiles itself. A process that ends while it compiles is an error in the answer.
  std::optional<NvrtcAnswer> compile(const NvrtcRequest &request);

  /// Where the program is: FUSION_NVRTC_PROCESS says it, else it is looked for beside this code and where it
  /// is installed. Empty: nowhere, or FUSION_NVRTC_PROCESS=0.
  static std::string program();

private:
  friend class NvrtcProcesses;
  bool start();
  void hangUp();
  std::string library;
  int socket = -1;
  bool cannotStart = false;
  std::unique_ptr<TemporaryProcess> process;
};

/// Processes that wait for their next request. They are kept since a process needs longer to start than to
/// compile a small kernel; one that has waited for some seconds ends.
class NvrtcProcesses {
public:
  /// For the library of this path; give it back when nothing is compiled.
  static std::unique_ptr<NvrtcProcess> take(const std::string &library);
  static void giveBack(std::unique_ptr<NvrtcProcess> process);
  /// Ends those that wait, if there are any: nothing more is expected to be compiled. Does not wait for their
  /// end.
  static void dismiss();
};

/// A message is a list of texts. False if the other side is gone.
bool sendTexts(int socket, std::span<const std::string> texts);
/// Nothing if the other side is gone.
std::optional<std::vector<std::string>> receiveTexts(int socket);

/// What the program does: answers the requests that come from `socket` until there are no more, or none for
/// so long.
void answerNvrtcRequests(const NvrtcLibrary &nvrtc, int socket, int idleMilliseconds = 10000);

} // namespace fusion
