// The C++ interface: load a graph, compile it, run it. No function throws; no MLIR type appears.
//
//   auto graph = fusion::Graph::load("model.onnx");
//   if (!graph) return fail(graph.error().message);
//   auto program = fusion::compile(*graph, {.device = fusion::RunOn::Auto});
//   auto outputs = program->run({{"input_ids", ids}});
//   std::puts(program->report().markdown().c_str());
#pragma once

#include "ir/base/DLPack.h"
#include "ir/base/Dim.h"
#include "ir/base/Result.h"
#include "ir/base/Safetensors.h"
#include "ir/base/Tensor.h"
#include "runtime/Results.h"
#include "runtime/RunStatistics.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fusion {

/// An input or output of a graph. Dims may be symbolic: `batch`, `s15 + 1`.
struct Port {
  std::string name;
  DType type = DType::F32;
  DimShape shape;
};

/// How the next token is chosen by the logits of the last position.
struct Sampling {
  double temperature = 0; ///< 0: the most likely one; else one is drawn
  int64_t topK = 0;       ///< among so many most likely ones; 0: among all
  double topP = 1;        ///< of those, among the most likely that have this probability together
};
/// "greedy", or some of "temperature=0.8,top-k=50,top-p=0.9".
Result<Sampling> samplingNamed(std::string_view text);
/// Ports of a graph that chooses tokens: the result that holds them, and the input of a key and a counter,
/// i64 [2], by which one is drawn; see nn.sample in ir/dialect/NNSample.td. The counter differs from step to
/// step.
inline constexpr std::string_view nextTokensName = "next_tokens", sampleSeedName = "sample_seed",
                                  tokenIdsName = "input_ids";

struct LoadOptions {
  /// Graph inputs whose contents are known now; they become constants.
  NamedTensors constants;
  /// Caches of GroupQueryAttention are given as buffers of full capacity (past_present_share_buffer),
  /// whatever length the graph declares for them behind the node.
  bool sharedCaches = false;
  /// Sizes of symbolic dims that are known now, by name (`batch`): the program takes these sizes only. Where
  /// the graph broadcasts a dim to another, a device needs to know that it is 1.
  SymbolValues dims;
  /// How many ranks' files there are where the path holds `{rank}`, which stands for 0, 1, … A model that was
  /// cut beforehand, with com.microsoft AllReduce between; compile it with `tensorParallel` as many.
  int ranks = 1;
  /// Contents of initialisers, and of graph inputs that stay the same, by name: instead of what the model has
  /// or where it says they are. Memory that is not copied if dense and must not change as long as the graph
  /// or a program lives; 4-bit elements two to a byte, as u8. On the GPU that a program runs on they are read
  /// where they lie, if that is at a multiple of 16 bytes, else copied there; what computes on the host
  /// fetches them. What fills them must be done.
  NamedTensors weights;
  /// Contents of external data files by the location that the model calls them, as u8. Those are not looked
  /// for on disk.
  NamedTensors files;
  /// Weights may lie anywhere that the file says; else only in its folder, by no kind of link outside.
  bool trustPaths = false;
  /// The graph gets one more result, `next_tokens` [batch, 1], of the type of `input_ids`; where a token is
  /// drawn, an input `sample_seed` too. Its logits become those of the last position alone, [batch, 1,
  /// vocabulary].
  std::optional<Sampling> sampling = {};
};

/// A model in memory.
struct ModelBytes {
  std::span<const std::byte> bytes;
  /// Keeps them alive and unchanged: weights inside are not copied. Null: the caller does, as long as the
  /// graph or a program lives.
  std::shared_ptr<const void> owner;
  /// What messages call it; external data lies beside it. A name that ends with .mlir: the bytes are a graph
  /// as text.
  std::string path = "model.onnx";
};

/// An imported transformer graph. Cheap to copy; safe to compile from several threads one at a time.
class Graph {
public:
  /// `.onnx` (external data is mapped, never read whole) or `.mlir`. Errors are BadInput: file, node and
  /// reason.
  static Result<Graph> load(const std::string &path, const LoadOptions &options = {});
  static Result<Graph> load(const ModelBytes &model, const LoadOptions &options = {});
  const std::vector<Port> &inputs() const;
  const std::vector<Port> &outputs() const;
  /// The graph in textual form, as `fusion-opt` prints it.
  std::string text() const;

  struct Implementation;
  const std::shared_ptr<Implementation> &implementation() const { return shared; }

private:
  std::shared_ptr<Implementation> shared;
};

enum class RunOn {
  Auto,    ///< the GPU if there is one, else the reference
  Cpu,     ///< the reference on the host
  Cuda,    ///< emitted kernels on a GPU
  Emulate, ///< emitted kernels on the host
};

/// The device of that name: auto, cpu, cuda or emulate. Nothing for other names.
std::optional<RunOn> runOnNamed(std::string_view name);

/// A GPU architecture such as sm_90a.
struct Target {
  std::string arch = "sm_90a";
  /// That of GPU 0, or sm_90a where there is none.
  static Target current();
  /// Whether kernels can be compiled for it.
  bool isKnown() const;
  /// The names of those: "sm_80, sm_86, …".
  static std::string known();
};

/// What decides between fusions that overlap, and whether one is worth having.
enum class ProfitMode {
  Auto,    ///< measured time where the program is for the GPU of this machine, else the model
  Model,   ///< memory traffic and launches saved
  Measure, ///< measured time; an Environment error where that cannot be
};

/// An edited kernel: a file with source that takes the place of the kernel of that name. See docs/kernels.md.
struct KernelFile {
  std::string kernel, path;
};

/// Writes kernels for what it takes: codegen/Schedule.h.
class Schedule;

/// Which of several ranks this process is, where the ranks are processes.
struct ProcessRank {
  int rank = 0, ranks = 1;
  int gpu = 0; ///< of this process, that the rank runs on
  /// What each rank gives, in the ranks' order: MPI_Allgather, or torch.distributed.all_gather_object.
  /// compile() and Program::open() call it once, on their thread, on all ranks alike, for the ranks to find
  /// each other; from then on they talk over TCP.
  std::function<Result<std::vector<std::string>>(const std::string &mine)> allGather;
  std::string host; ///< as the other ranks reach this one; empty: its host name, or the loopback where all
                    ///< are on one host
};

struct CompileOptions {
  Target target = Target::current();
  RunOn device = RunOn::Auto;
  bool fuse = true;
  std::vector<std::string> disabledFusions;  ///< pattern names to leave out
  std::vector<std::string> patternFiles;     ///< more patterns: .pdll or PDL .mlir
  /// The caller's own, asked before the built-in ones. They must outlive what is compiled with them; plans
  /// with them are not kept in the cache.
  std::vector<const Schedule *> schedules;
  ProfitMode profit = ProfitMode::Auto;
  /// Ranks among which the graph is divided; one that holds collectives runs on each as it is. On GPUs rank r
  /// runs on GPU r of this process; fewer GPUs are an Environment error. On the host the ranks are threads.
  /// With `processRank` or `launcher` each process runs its own rank.
  int tensorParallel = 1;
  std::optional<ProcessRank> processRank;
  /// Takes the process's rank from the variables of the launcher that started it, such as torchrun's, if one
  /// did: see docs/tensor-parallel.md.
  bool launcher = false;
  bool vocabularyParallel = false;           ///< ranks divide the embedding's rows and the head's columns too
  /// Positions (tokens) that a key/value cache holds; 0: caches grow by being copied. With a capacity, an
  /// input that the graph extends, by Concat(past, new) or GroupQueryAttention into a result, has a buffer of
  /// that many positions, and a run writes only what is new; the state of a linear attention is replaced
  /// where it lies. See Program::run. An error if the graph has no such input, and for a bundle, which keeps
  /// the capacity it was compiled with. The reference gives the same numbers and copies.
  int64_t kvCapacity = 0;
  /// Experts that a router gives weight 0 are not run, although 0 times infinity is not 0: the graph is taken
  /// to compute finite numbers there. Otherwise a graph that runs every expert on every row stays as it is.
  /// See docs/routed-experts.md.
  bool assumeFinite = true;
  /// A row's result does not depend, bit by bit, on the other rows and sequences of a run: on how many there
  /// are, what is in them, and which of them it is. See docs/determinism.md. For one rank; BadInput for a
  /// graph that holds an op of which no kernel can promise that.
  bool batchInvariant = false;
  /// Run instead of the emitted kernels. compile() checks their parameters, tryKernels() what they compute.
  std::vector<KernelFile> kernels;
  /// Bytes of the device's memory that a program may use; 0: what is free. A run that needs more is an
  /// Environment error, by how much.
  size_t memoryLimit = 0;
  /// Inputs, of which only type and shape count, of the largest run that is to come: what it needs is told on
  /// stderr and checked before anything is allocated. With one rank only.
  NamedTensors largestRun = {};
  /// Folder for compiled kernels, plans and reports; empty: the default ($FUSION_CACHE_DIR,
  /// $XDG_CACHE_HOME/fusion, ~/.cache/fusion).
  std::string cacheFolder;
};

/// What fused and what did not, with reasons.
class Report {
public:
  struct Contents;
  explicit Report(const std::string &json = "{}");
  explicit Report(std::shared_ptr<const Contents> contents);
  std::string json() const;
  std::string markdown() const;
  /// One self-contained page: the graph before and after fusion, with what was missed and, where there is a
  /// plan, the kernels' source; and the tables. Fetches nothing.
  std::string html() const;
  /// Whether `path` ends with a format of write().
  static bool isFile(std::string_view path);
  /// Writes .json, .md or .html, by the path's end. Never leaves a partial file.
  Status write(const std::string &path) const;

  /// How often the pattern fired; 0 for an unknown name.
  int fired(const std::string &pattern) const;
  /// An AnswerIsNo error with the reasons of the misses unless the pattern fired exactly `times`; BadInput
  /// for an unknown name.
  Status require(const std::string &pattern, size_t times) const;
  /// What is said about the graph as a whole.
  std::vector<std::string> remarks() const;
  /// Layers of the model, as far as the graph's names tell them; 0 if they do not.
  size_t layers() const;
  int kernelsBefore() const;
  int kernelsAfter() const;
  /// Why no kernels of the target compute the graph, with the op; empty where they do, and in reports of what
  /// only ran on the CPU.
  std::string noPlan() const;

private:
  std::shared_ptr<const Contents> contents;
};

/// Where the time of a run went, launch by launch.
struct Profile {
  struct Launch {
    std::string kernel, schedule, fusion, location;
    double microseconds = 0, bytes = 0, flops = 0;
    double leastMicroseconds =
        0; ///< bytes and flops at the device's peaks, the larger; 0 where they are not known
  };
  std::vector<Launch> launches;
  std::string table;       ///< for people, a line a kernel
  std::string chromeTrace; ///< JSON for chrome://tracing or Perfetto, with the model's layers
};

/// A compiled graph. `run` may be called from several threads; runs take turns.
class Program {
public:
  /// Inputs by name; host tensors, or device tensors when the program runs on that GPU. Outputs by name.
  /// Errors: a missing, unknown or misshapen input (BadInput), or what the machine lacks (Environment).
  ///
  /// With a kvCapacity, a result that extends a cache is a view, with strides, of a buffer on the device that
  /// `present` and `past` share. Passed back as the next run's `past`, it is extended where it lies; any
  /// other tensor, such as a host tensor or another view, is copied into a free buffer first. So each view
  /// may be extended once: run two continuations of one `past` and the later overwrites the positions of the
  /// earlier. A state is replaced as a whole: the view that was passed shows the new one then. A run that
  /// needs more positions than the capacity is refused (BadInput). With several ranks divided inputs are host
  /// tensors, and results are dense host tensors, except for those that extend a cache: such a result stays
  /// on the devices of the ranks, a shard on each (its device has the ordinal -1, and only fetch() reads it),
  /// and is extended where it lies when it is passed back to the same program. Without a kvCapacity caches go
  /// through the host. `where` counts for one GPU alone: with Results::Device only fetch() brings results to
  /// the host, and with Results::Queued a run may be followed by the next, which takes its results, while it
  /// is computed. An error of one rank stops all; unless it is of the inputs (BadInput), no more runs follow.
  Result<NamedTensors> run(const NamedTensors &inputs, Results where = Results::Host);
  /// The same on the caller's stream, a cudaStream_t of the GPU, without waiting: the results are device
  /// tensors that hold their values once the stream has passed the run, as kernels queued after it there see
  /// them. Device inputs must keep their contents until then. A stream that records a graph takes the
  /// launches into it, once these shapes have run before; replays must not overlap other runs. Without a GPU
  /// all is done on return, and `stream` unused. Refused (BadInput) for several GPUs of this process: a
  /// stream belongs to one.
  Result<NamedTensors> enqueue(const NamedTensors &inputs, void *stream);
  /// Copies of results on the host, without gaps, after everything queued so far. Where ranks are processes
  /// all call it alike, as they do run().
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  /// Microseconds of each of `iterations` runs after three unmeasured ones: device time on a GPU, of several
  /// the slowest. `cold` empties its cache before each.
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold = false);
  /// Kernel by kernel; not on the reference.
  Result<Profile> profile(const NamedTensors &inputs);

  /// With a kvCapacity: each input that is a cache, and the result that extends it. Nothing on the reference.
  struct Cache {
    std::string past, present;
  };
  std::vector<Cache> caches() const;
  /// How runs were brought to the device; of several ranks the first's, of the reference nothing.
  RunStatistics statistics() const;

  const Report &report() const;
  const std::vector<Port> &inputs() const;
  const std::vector<Port> &outputs() const;
  /// "cpu reference", "emulated", or the GPU's name.
  std::string device() const;
  /// Of a program whose ranks are processes, this one's; else 0.
  int rank() const;
  /// All emitted kernels as CUDA source; empty on the reference.
  std::string cudaSource() const;

  /// Opens what fusion-compile wrote; needs no compiler.
  static Result<Program> open(const std::string &bundleFolder, const CompileOptions &options = {});

  struct Implementation;
  explicit Program(std::shared_ptr<Implementation> implementation) : shared(std::move(implementation)) {}

private:
  std::shared_ptr<Implementation> shared;
};

Result<Program> compile(const Graph &graph, const CompileOptions &options = {});

/// What can be printed of a graph that is lowered for `CompileOptions::target`.
enum class Emit {
  Mlir, ///< the graph after fusion
  Cuda, ///< the kernels' source
  Plan, ///< kernels, buffers and launches, one a line
  Dot,  ///< the plan as a Graphviz drawing
};
/// What is named mlir, cuda, plan or dot. Nothing for other names.
std::optional<Emit> emitNamed(std::string_view name);

struct Explanation {
  Report report;
  std::string text; ///< what was asked for
};
/// Fuses and plans without compiling a kernel; needs no GPU unless fusions are to be measured.
Result<Explanation> explain(const Graph &graph, const CompileOptions &options, Emit what);

/// Checks every rewrite against the ops that it replaced, and the kernels of every fusion against its body,
/// on random inputs: on the GPU if there is one, else emulated. A difference is an AnswerIsNo error that
/// names fusion, location and element.
Status verifyFusions(const Graph &graph, const CompileOptions &options);

/// Writes NAME.cu for each kernel, and beside them the device files that they include. A file that is there
/// with other contents is an error, and nothing is written.
Status writeKernels(const Graph &graph, const CompileOptions &options, const std::string &folder);

/// An edited kernel that agrees with the body of what it computes.
struct KernelTrial {
  std::string kernel, path;
  std::string device;
  double original = 0, edited = 0; ///< median microseconds; 0 without a GPU to time on
  /// "kernel … agrees with its body …", a line.
  std::string text() const;
};
/// Runs each of `options.kernels` and what it replaces alone, on random inputs of the shapes that the step
/// has for `inputs` (small ones where there are none). On the GPU if there is one, else emulated. Errors: a
/// kernel that differs from the body (AnswerIsNo), with the error's size and place; a name that no kernel
/// has, a file that does not compile, a kernel that cannot run alone (BadInput).
Result<std::vector<KernelTrial>> tryKernels(const Graph &graph, const CompileOptions &options,
                                            const NamedTensors &inputs = {});

/// Compiles every kernel for `options.target` and writes a folder with cubins, plan and weights. Needs no
/// GPU.
Status writeBundle(const Graph &graph, const CompileOptions &options, const std::string &folder);

} // namespace fusion
