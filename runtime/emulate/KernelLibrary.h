// Emitted kernels as shared libraries of this machine: built, kept in a folder, opened.
#pragma once

#include "codegen/device/emulation_abi.h"
#include "codegen/plan/ProgramPlan.h"
#include "ir/base/PrivateFolder.h"
#include "runtime/emulate/HostCompiler.h"

#include <memory>
#include <string>
#include <vector>

namespace fusion::emulate {

using KernelEntry = void (*)(void *const *arguments);

/// An open library, attached to the emulator.
class KernelLibrary {
public:
  /// The error says why the file is not one of ours, or what the loader misses.
  static Result<std::shared_ptr<KernelLibrary>> open(const std::string &path);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary &) = delete;
  KernelLibrary &operator=(const KernelLibrary &) = delete;

  /// The kernel built under `key`; null when it is not in this library.
  KernelEntry entry(const std::string &key) const;
  /// Where the calling OS thread tells the library which thread it runs.
  fusion_emulation::Thread **threadSlot() const { return slot(); }

private:
  KernelLibrary() = default;
  void *handle = nullptr;
  fusion_emulation::Thread **(*slot)() = nullptr;
};

/// Whether the file of the folder, a library or a precompiled header, is as LibraryFolder wrote it.
bool isAuthentic(const PrivateFolder &folder, const std::string &name);

/// Names a kernel's compiled form: its text but for comments, its parameters, the compiler and its flags.
std::string kernelKey(const KernelPlan &plan, const HostCompiler &compiler);

/// The folder of libraries: `<key>.so` for each kernel; kernels built together share one file by hard links.
/// Each ends with a code of its contents: opening a library runs it.
class LibraryFolder {
public:
  /// `path`, a PrivateFolder, made if absent. What it cannot take, since it is read-only, full or not to be
  /// trusted, goes to a temporary folder, removed with this object.
  static Result<LibraryFolder> open(const std::string &path);
  LibraryFolder(LibraryFolder &&other) noexcept;
  LibraryFolder &operator=(LibraryFolder &&) = delete;
  ~LibraryFolder();

  std::shared_ptr<KernelLibrary> find(const std::string &key) const;

  struct Unit {
    const KernelPlan *plan;
    std::string key;
  };
  /// Compiles `units` as one translation unit and files the result under each key.
  Result<std::shared_ptr<KernelLibrary>> build(const HostCompiler &compiler,
                                               const std::vector<Unit> &units) const;

private:
  LibraryFolder() = default;
  using Folder = std::shared_ptr<const PrivateFolder>;
  /// The precompiled form of a header with this text, made when it is absent; empty when it cannot be made.
  std::string precompiled(const HostCompiler &compiler, const std::string &text) const;
  Result<std::shared_ptr<KernelLibrary>> buildIn(const PrivateFolder &folder, const HostCompiler &compiler,
                                                 const std::vector<Unit> &units) const;
  /// Made when it is first asked for; null if it cannot be made.
  Folder temporaryFolder() const;

  Folder kept; ///< null: none, or not to be trusted
  bool keepsMore = false;
  struct Temporary;
  std::unique_ptr<Temporary> temporary;
};

} // namespace fusion::emulate
