// What the code generator hands to the runtime: plain data, no MLIR. A program is a list of kernels, the
// launches that call them in order, and the buffers that they read and write. Every size that depends on
// the input shapes is a Dim, evaluated once per set of input shapes.
#pragma once

#include "ir/base/DType.h"
#include "ir/base/Dim.h"
#include "ir/base/Result.h"
#include "ir/base/Tensor.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fusion {

/// One kernel: CUDA source that needs only the prelude in front of it.
struct KernelPlan {
  std::string name;                 ///< entry point; the same in `source`
  std::string schedule;             ///< "row", "pointwise", "matmul", "attention", "scan", "copy", "collective"
  /// The kernel's text without the prelude. The parameters in the order of `parameters`.
  std::string source;
  struct Parameter {
    enum class Kind : uint8_t { Pointer, Int64 } kind = Kind::Pointer;
    std::string type;               ///< C++ spelling in `source`: "const f16 *", "f32 *", "i64"
    std::string name;
  };
  std::vector<Parameter> parameters;
  uint32_t blockX = 256, blockY = 1, blockZ = 1;
  uint32_t dynamicSharedBytes = 0;
  uint32_t minimumArch = 80;        ///< sm_XX that the source needs
  bool emulatable = true;           ///< false when it uses wgmma, TMA or peer memory
  std::string whyNotEmulatable;
  bool usesPdl = false;             ///< waits with pdl_wait() before touching memory another kernel wrote
  /// No source: the runtime calls a library. The communication library for `all_reduce`, with the parameters (from, to,
  /// elements), or that of matrix products.
  bool isLibraryCall = false;
  /// C = A B for each matrix of a batch, summed in f32, f64 or i32 and rounded once. Parameters: the pointers a, b and c,
  /// then m, n, k, the number of matrices, and for each of a, b and c how many elements a line and a matrix begin behind
  /// the one before. A line is a row, or a column where it says so; its elements lie side by side.
  struct Product {
    DType a = DType::F32, b = DType::F32, c = DType::F32;
    bool columnsOfA = false, columnsOfB = false;
    friend bool operator==(const Product &, const Product &) = default;
  };
  static constexpr size_t productParameters = 13;
  std::optional<Product> product = {}; ///< of a library call
};

/// Bytes in a file that the loader maps; never copied on the host.
struct FileSpan {
  std::string path;
  uint64_t offset = 0;
  uint64_t length = 0;
};

using BufferId = uint32_t;

/// One allocation: contiguous, row-major, element type and shape as given.
struct BufferPlan {
  enum class Kind : uint8_t { Input, Weight, Temporary, Output };
  Kind kind = Kind::Temporary;
  std::string name;                 ///< the graph's name for it, or a location
  DType type = DType::F32;
  DimShape shape;
  /// For Weight: where the bytes are. A Tensor for constants that the compiler made. Elements of 4 bits lie two to a
  /// byte in a Weight, low half first (a Tensor of bytes), and have a byte each elsewhere.
  std::variant<std::monostate, FileSpan, Tensor> contents;
  /// For a Weight of which this rank needs a part: the contents are of shape `whole`, and the buffer's first element is
  /// the one at `starts`, which may depend on the rank. Whole bytes, and never outside, for any rank.
  struct Window {
    Shape whole;
    DimShape starts;
  };
  std::optional<Window> window = {};
  /// For a Weight of which every rank has one of its own: where, by rank; `contents` are rank 0's.
  std::vector<FileSpan> perRank = {};
  /// For a Temporary: where its writer takes the two-shot form, each rank has those rows only that it owns. All who read it
  /// take the same form for the same sizes.
  bool ownersRows = false;
};

/// Values of a size that only a run knows: least … most, both included.
struct SizeRange {
  Dim size;
  int64_t least = 1, most = INT64_MAX;
  bool holds(int64_t value) const { return least <= value && value <= most; }
};

/// The ways in which ranks add up what each has.
enum class CollectiveForm : uint8_t {
  OneShot, ///< each sends all it has to all, and adds for itself
  TwoShot, ///< each row has an owner, which adds, finishes the row and sends it back
  Library, ///< an all-reduce by NCCL, then a kernel of this rank's own
};

/// The ways of computing matrix products and what is behind them.
enum class ProductWay : uint8_t {
  Kernel,  ///< a kernel of our own does all
  Library, ///< a library multiplies, and a kernel behind it does the rest
};

struct KernelLaunch {
  uint32_t kernel = 0;              ///< index into ProgramPlan::kernels
  struct Argument {
    /// Pointer: address of `buffer` plus `byteOffset`, or of the rank's Exchange. Int64: `value`.
    std::optional<BufferId> buffer;
    Dim byteOffset = 0;
    Dim value = 0;
    bool written = false;           ///< the kernel writes through this pointer
    bool exchange = false;          ///< see codegen/device/exchange_abi.h
    /// For a written one: arguments whose buffers it may share the memory of, from their start, if they are as
    /// large and nothing later reads them.
    std::vector<uint32_t> mayReplace;
  };
  std::vector<Argument> arguments;
  Dim gridX = 1, gridY = 1, gridZ = 1;  ///< a zero makes the launch a no-op
  /// Launched only for these values. The same op's kernels for larger values follow in order: together they take
  /// every value from 1 on once; at 0 there is nothing to compute.
  std::optional<SizeRange> when;
  /// Computes what those of the launches behind it read that are for the same values, `when` to the largest integer:
  /// the op is two kernels for these and one for smaller ones.
  bool ahead = false;
  /// One of several ways to do the same, which follow each other in the plan and write the same results; the
  /// communicator takes one by the bytes of a rank's message. Of the library form there are several launches.
  struct Collective {
    CollectiveForm form = CollectiveForm::OneShot;
    Dim messageBytes = 0;           ///< of the tensor that is summed
    Dim roundBytes = 0;             ///< that the kernel needs of Exchange::roundBytes
    /// Of the two-shot form: a row comes back as its owner has finished it, most often shorter than the sum.
    bool finishedRows = false;
  };
  std::optional<Collective> collective;
  /// One of the two ways to do the same, which follow each other in the plan, first Kernel, and write the same results. Those
  /// of the library are all for the same sizes; the kernels do for all. The executor takes the way that is faster on its
  /// device.
  std::optional<ProductWay> way;
  std::string location;             ///< model.layers.0.input_layernorm
  std::string fusion;               ///< pattern name, or empty
  std::vector<std::string> ops;     ///< the graph ops inside, for reports
  Dim bytesRead = 0, bytesWritten = 0, flops = 0;
};

/// An interface tensor. Several results may name the same buffer; a result may also name an input's. A port with strides
/// is a cache: it lies in the front corner of a larger buffer, row-major, of which a run uses as much as it needs. A result
/// with strides lies in the buffer of an input with the same strides, behind whose elements the run writes its own.
struct PortPlan {
  std::string name;
  DType type = DType::F32;
  DimShape shape;
  BufferId buffer = 0;
  Dim byteOffset = 0;
  DimShape strides = {};           ///< in elements; empty: contiguous
  /// Of a tensor divided among ranks each has one of `pieces` equal pieces along `axis`: rank * pieces / ranks.
  struct Shard {
    int64_t axis = 0, pieces = 1;
  };
  std::optional<Shard> shard = {};
};

struct ProgramPlan {
  std::string model;
  std::string target;               ///< sm_90a
  int64_t ranks = 1;                ///< each runs this plan with its own number as the symbol tp_rank
  std::vector<BufferPlan> buffers;
  std::vector<PortPlan> inputs, outputs;
  std::vector<KernelPlan> kernels;
  std::vector<KernelLaunch> launches;
  /// How many a run makes: of the launches for several ranges of a size one, of several ways the first.
  int64_t launchesOfRun() const;
  /// Where the ways of the collective end that launch `begin` is the first of; `begin` if it is none. The library's form,
  /// where there is one, is the last; library forms that follow each other count as one collective.
  size_t endOfCollective(size_t begin) const;
  /// Where the ways of the matrix products end that launch `begin` is the first of; `begin` if it is none.
  size_t endOfProducts(size_t begin) const;
  /// Whether the launch is of a collective or of products in another than the first way.
  bool isOtherWay(size_t launch) const;
  /// Dims that the graph needs equal; checked before each new shape is run.
  struct Equality {
    Dim left, right;
    std::string reason;             ///< location and op
  };
  std::vector<Equality> equalities;
  /// The fusion report as JSON text, kept with the plan so that a warm start prints the same one.
  std::string report;
};

/// Every index is in range, arguments fit their kernel's parameters, weights have contents of their
/// shape's size, ports name buffers of the right kind, port names are unique.
Status verify(const ProgramPlan &plan);

/// JSON text and back; Tensor contents are base64. Used for the cache and for bundles. A plan that does
/// not verify, or that another format version wrote, is an error.
std::string toJson(const ProgramPlan &plan);
Result<ProgramPlan> programPlanFromJson(std::string_view text);

} // namespace fusion
