// What the code generator hands to the runtime: plain data, no MLIR. A program is a list of kernels, the
// steps that launch them in order, and the buffers that they read and write. Every size that depends on the
// input shapes is a Dim, evaluated once per set of input shapes.
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

/// A matrix multiplication by cuBLASLt: C = A B for each matrix of a batch, accumulated in f32, f64 or i32
/// and rounded once. Parameters: the pointers a, b and c, then m, n, k, the number of matrices, and for each
/// of a, b and c its leading dimension and its batch stride, in elements. A matrix is row-major where it is
/// not said to be column-major.
struct LibraryMatmul {
  DType a = DType::F32, b = DType::F32, c = DType::F32;
  bool columnMajorA = false, columnMajorB = false;
  static constexpr size_t parameters = 13;
  friend bool operator==(const LibraryMatmul &, const LibraryMatmul &) = default;
};

/// One kernel: CUDA source that needs only the prelude in front of it.
struct KernelPlan {
  std::string name;                 ///< entry point; the same in `source`
  std::string schedule; ///< "row", "pointwise", "matmul", "attention", "scan", "copy", "collective"
  /// The kernel's text without the prelude. The parameters in the order of `parameters`.
  std::string source;
  struct Parameter {
    /// What a launch gives for it: the alternatives of KernelArgument, in their order.
    enum class Kind : uint8_t { Pointer, Scalar, TensorMap, Workspace, Exchange } kind = Kind::Pointer;
    std::string type; ///< C++ spelling in `source`: "const f16 *", "i64", "const GRID_CONSTANT TensorMap"
    std::string name;
  };
  std::vector<Parameter> parameters;
  // Attributes of every launch of the kernel: its code is written for them.
  uint32_t blockX = 256, blockY = 1, blockZ = 1;
  uint32_t clusterX = 1, clusterY = 1,
           clusterZ = 1; ///< set by the launch; 1: what the source itself declares
  uint32_t dynamicSharedBytes = 0;
  bool usesPdl =
      false; ///< programmatic launch: waits with pdl_wait() before touching memory another kernel wrote
  bool cooperative = false; ///< all blocks of the grid are resident at once and may wait for each other
  uint32_t features =
      0; ///< of the target that the source needs: a set of Feature (codegen/target/TargetInfo.h)
  bool emulatable = true;           ///< false when it uses what the emulation lacks
  std::string whyNotEmulatable;
  /// No source: the runtime calls a library. The communication library for `all_reduce`, with the parameters
  /// (from, to, elements), or cuBLASLt.
  bool isLibraryCall = false;
  std::optional<LibraryMatmul> matmul = {}; ///< of a library call
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
  enum class Kind : uint8_t {
    Input,
    Weight,
    Temporary,
    Output,
    Prepared, ///< written once, by ProgramPlan::preparation, and kept for all runs
  };
  Kind kind = Kind::Temporary;
  std::string name;                 ///< the graph's name for it, or a location
  DType type = DType::F32;
  DimShape shape;
  /// For Weight: where the bytes are. A Tensor for constants that the compiler made. Elements of 4 bits lie
  /// two to a byte in a Weight, low half first (a Tensor of bytes), and have a byte each elsewhere.
  std::variant<std::monostate, FileSpan, Tensor> contents;
  /// For a Weight of which this rank needs a part: the contents are of shape `whole`, and the buffer's first
  /// element is the one at `starts`, which may depend on the rank. Whole bytes, and never outside, for any
  /// rank.
  struct Window {
    Shape whole;
    DimShape starts;
  };
  std::optional<Window> window = {};
  /// For a Weight of which every rank has one of its own: where, by rank; `contents` are rank 0's.
  std::vector<FileSpan> perRank = {};
  /// For a Weight in parts: equal spans whose bytes are its own, one after the other; `contents` are the
  /// first's.
  std::vector<FileSpan> parts = {};
  /// For a Temporary: where its writer takes the two-shot algorithm, each rank has only the rows that it
  /// reduces. All launches that read it take the same algorithm for the same sizes.
  bool isScattered = false;
};

/// The address of `buffer` plus `byteOffset`.
struct PointerArgument {
  BufferId buffer = 0;
  Dim byteOffset = 0;
  bool written = false;             ///< the kernel writes through this pointer
  /// For a written one: arguments whose buffers it may share the memory of, from their start, if they are as
  /// large and nothing later reads them.
  std::vector<uint32_t> mayReplace = {};
};

/// A 64-bit integer.
struct ScalarArgument {
  Dim value = 0;
};

/// A descriptor for the tensor memory accelerator (TMA) of a view of `buffer`. Encoded when the view's sizes
/// are known; the kernel takes it by value (`const GRID_CONSTANT TensorMap`). Dims are outermost first, as
/// everywhere; the innermost has stride 1, the others strides of whole 16 bytes, and the view begins at a
/// multiple of 16 bytes. One to five dims.
struct TensorMapArgument {
  enum class Swizzle : uint8_t { None, Bytes32, Bytes64, Bytes128 };
  enum class L2Promotion : uint8_t { None, Bytes64, Bytes128, Bytes256 };
  enum class OutOfBounds : uint8_t { Zeros, NaN }; ///< what elements outside of the view are read as
  BufferId buffer = 0;
  Dim byteOffset = 0;
  bool written = false;             ///< the kernel stores tiles through it
  DType type = DType::F32;
  DimShape shape, strides;          ///< strides in elements
  std::vector<uint32_t> box;        ///< extent of a tile in elements of the view, at most 256 each
  std::vector<uint32_t> elementStrides =
      {}; ///< every how manieth element of the box is taken; empty: every one
  Swizzle swizzle = Swizzle::None;
  L2Promotion l2Promotion = L2Promotion::None;
  OutOfBounds outOfBounds = OutOfBounds::Zeros;
};

/// Memory of the launch's own, aligned to 256 bytes.
struct WorkspaceArgument {
  enum class Contents : uint8_t {
    Undefined,
    Zeroed,   ///< the runtime writes zeros before each launch
    KeptZero, ///< zeros, which the kernel leaves as it finds them: cleared once when the memory is allocated
  };
  Dim bytes = 0;
  Contents contents = Contents::Undefined;
};

/// The address of the rank's Exchange (codegen/device/exchange_abi.h).
struct ExchangeArgument {};

/// What a launch gives for a kernel's parameter, of the parameter's Kind.
using KernelArgument =
    std::variant<PointerArgument, ScalarArgument, TensorMapArgument, WorkspaceArgument, ExchangeArgument>;
/// The buffer of a pointer or a tensor map; null else.
const BufferId *bufferOf(const KernelArgument &argument);
BufferId *bufferOf(KernelArgument &argument);
/// Whether the kernel writes to that buffer.
bool isWritten(const KernelArgument &argument);

struct KernelLaunch {
  uint32_t kernel = 0;              ///< index into ProgramPlan::kernels
  std::vector<KernelArgument> arguments;
  Dim gridX = 1, gridY = 1, gridZ = 1;  ///< a zero makes the launch a no-op
  /// The mesh axis over whose ranks it sums, or to which it sends what is summed: the plan's, unless that has
  /// one rank. Empty: none.
  std::string sumsOver;
  std::string location;             ///< model.layers.0.input_layernorm
  std::string fusion;               ///< pattern name, or empty
  std::vector<std::string> ops;     ///< the graph ops inside, for reports
  Dim bytesRead = 0, bytesWritten = 0, flops = 0;
};

/// Values of a size that only a run knows: least … most, both included.
struct SizeRange {
  Dim size;
  int64_t least = 1, most = INT64_MAX;
  bool holds(int64_t value) const { return least <= value && value <= most; }
  friend bool operator==(const SizeRange &, const SizeRange &) = default;
};
/// Holds where all of its ranges do; where there is none, for all sizes.
using Predicate = std::vector<SizeRange>;

/// The algorithms by which ranks add up what each has.
enum class CollectiveAlgorithm : uint8_t {
  OneShot, ///< each sends all it has to all, and adds for itself
  TwoShot, ///< reduce-scatter by rows, the ops after the sum on the rank's own rows, all-gather
  Library, ///< an all-reduce by NCCL, then a kernel of this rank's own
};

/// What the ranks choose an algorithm by.
struct Collective {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::OneShot;
  Dim messageBytes = 0;             ///< of the tensor that is summed
  Dim roundBytes = 0;               ///< that the kernel needs of Exchange::roundBytes
  /// Of the two-shot algorithm: ranks gather the rows as the ops after the sum leave them (normed,
  /// quantised), which most often are shorter than the sum. Otherwise they gather the sum.
  bool gathersRows = false;
};

/// Launches that do all of a step, one after the other.
struct Alternative {
  Predicate when;                   ///< the sizes that it is for
  std::vector<KernelLaunch> launches;
  /// Where a step is measured: kernelVariant, or what stands beside it: otherKernelVariant or libraryVariant.
  /// Empty else.
  std::string variant = {};
  std::optional<Collective> collective = {}; ///< where the ranks agree on an algorithm
  /// Steps one after the other are linked where the alternatives that are chosen are the First, perhaps one
  /// Between, and the Last of a link, outside of repetitions. Then `linked` is launched instead, and of the
  /// one between nothing.
  /// The first is a matmul's. Where the last sums over ranks, the matmul's kernel does as its own and sends the
  /// result to all ranks; the sum's waits for what they have sent, and begins while the matmul's is running.
  /// What that one reads and writes must not share memory with what this one writes.
  /// Where the last multiplies as well, behind a norm, the first kernel also sums up the squares of each row,
  /// by which the last normalises rows while it multiplies. A norm of its own is the one between.
  enum class Link : uint8_t { None, First, Between, Last } link = Link::None;
  std::optional<KernelLaunch> linked = {}; ///< of the first and the last
};
/// Our kernel; another one of ours; a library's.
inline constexpr const char *kernelVariant = "kernel", *otherKernelVariant = "other kernel",
                            *libraryVariant = "library";
/// "kernel", "other kernel", "library", "one-shot", "two-shot"; empty where sizes alone choose.
std::string_view variantName(const Alternative &alternative);

/// A part of a program: one op or one group. A run makes the launches of one of its alternatives, all of
/// which write the same results.
///
/// Alternatives of one variant (variantName) stand side by side. Of each variant the first one whose
/// predicate holds is a candidate. There is one for all sizes from 1 on, in every variant of a Ranks step, in
/// the first of others; where a size is below 1, there is nothing to compute and no candidate is needed.
/// Among the candidates one is chosen:
struct Step {
  enum class Choice : uint8_t {
    Predicate,   ///< there is one variant, so one candidate
    Measurement, ///< the fastest on the device, timed when such sizes come first
    Ranks, ///< the communicator takes an algorithm by the bytes of a rank's message, the same on all ranks
  };
  Choice choice = Choice::Predicate;
  std::vector<Alternative> alternatives;
};

/// The sizes that the step's predicates speak of, each once.
std::vector<Dim> sizesOf(const Step &step);
/// Indices of the candidates, ascending. `holds(i)` says whether the predicate of alternative i does.
template <class Holds>
std::vector<uint32_t> candidates(const Step &step, const Holds &holds) {
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < step.alternatives.size(); ++i) {
    const bool hasOne =
        !found.empty() && variantName(step.alternatives[found.back()]) == variantName(step.alternatives[i]);
    if (!hasOne && holds(i))
      found.push_back(i);
  }
  return found;
}

/// An interface tensor. Several results may name the same buffer; a result may also name an input's. A port
/// with strides is a cache: it lies in the front corner of a larger buffer, row-major, of which a run uses as
/// much as it needs. A result with strides lies in the buffer of an input with the same strides, after whose
/// elements the run writes its own.
struct PortPlan {
  std::string name;
  DType type = DType::F32;
  DimShape shape;
  BufferId buffer = 0;
  Dim byteOffset = 0;
  DimShape strides = {};           ///< in elements; empty: contiguous
  /// Of a tensor divided among ranks each has one of `count` equal shards along `axis`: rank * count / ranks.
  struct Shard {
    int64_t axis = 0, count = 1;
  };
  std::optional<Shard> shard = {};
};

struct ProgramPlan {
  std::string model;
  std::string target;               ///< sm_90a
  std::string axis = "tp";          ///< the mesh axis along which the ranks are
  int64_t ranks = 1;                ///< each runs this plan with its own number as the symbol tp_rank
  std::vector<BufferPlan> buffers;
  std::vector<PortPlan> inputs, outputs;
  std::vector<KernelPlan> kernels;
  std::vector<Step> steps;
  /// Steps [first, end) are made `count` times, one round after the other, with the same arguments; not at
  /// all where that is below 1. What a round reads of the one before lies in buffers that are written before
  /// the first round too.
  struct Repetition {
    uint32_t first = 0, end = 0;
    Dim count;
  };
  std::vector<Repetition> repetitions; ///< in order, one inside of another behind that
  /// What follows from weights alone, made once when they are loaded: reads weights, writes Prepared buffers.
  /// Its sizes depend on nothing but the rank, and no ranks add up in it. Weights that only it reads are not
  /// kept.
  std::vector<Step> preparation;
  /// All launches of all alternatives, in their order. Their indices number the launches of the plan.
  std::vector<const KernelLaunch *> launches() const;
  std::vector<KernelLaunch *> launches();
  /// A step without alternatives, at the end.
  void add(KernelLaunch launch);
  /// How many a run makes that takes the first alternative of each step, and one round of repeated ones.
  int64_t launchesOfRun() const;
  /// Dims that the graph needs equal; checked before each new shape is run.
  struct Equality {
    Dim left, right;
    std::string reason;             ///< location and op
  };
  std::vector<Equality> equalities;
  /// The fusion report as JSON text, kept with the plan so that a warm start prints the same one.
  std::string report;
};

/// What runs with these values of the symbols may launch: the kernels of all candidates of each step. Indices
/// into `plan.kernels`, perhaps repeated.
std::vector<uint32_t> kernelsAt(const ProgramPlan &plan, const SymbolValues &symbols);

/// The preparation as a program of its own: no inputs, the Prepared buffers as results, named by their
/// numbers.
ProgramPlan preparationOf(const ProgramPlan &plan);

/// Every index is in range, arguments fit their kernel's parameters, steps have alternatives for all sizes
/// that write the same results, weights have contents of their shape's size, ports name buffers of the right
/// kind, port names are unique.
Status verify(const ProgramPlan &plan);

/// JSON text and back; Tensor contents are base64. Used for the cache and for bundles. A plan that does
/// not verify, or that another format version wrote, is an error.
std::string toJson(const ProgramPlan &plan);
Result<ProgramPlan> programPlanFromJson(std::string_view text);

} // namespace fusion
