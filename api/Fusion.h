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

/// How the next token is chosen from the logits of the last position.
struct Sampling {
  double temperature = 0;  ///< 0: the most likely token is taken; else a token is drawn
  int64_t topK = 0;        ///< draws among this many most likely tokens; 0: among all
  double topP = 1;         ///< and of those among the most likely ones that together have this probability
  bool keepsLogits = true; ///< else the logits are no result any more, and need not be stored
};
/// "greedy", or some of "temperature=0.8,top-k=50,top-p=0.9"; and "no-logits".
Result<Sampling> samplingNamed(std::string_view text);
/// Ports of a graph that chooses tokens: the result that holds them, and the input, i64 [2], that holds the
/// key and the counter of the random numbers; see nn.sample in ir/dialect/NNSample.td. The caller changes the
/// counter at each step.
inline constexpr std::string_view nextTokensName = "next_tokens", sampleSeedName = "sample_seed",
                                  tokenIdsName = "input_ids";

struct LoadOptions {
  /// Graph inputs whose contents are known now; they become constants. If one boolean input alone decides
  /// which branch of an If runs, and the branches are too large to run both, the graph is loaded for both
  /// values unless its value stands here: see Program::run.
  NamedTensors constants;
  /// The same as text: a number, true or false; several with commas between them for a vector.
  std::map<std::string, std::string> constantTexts;
  /// The caller passes the caches of GroupQueryAttention as buffers of full capacity
  /// (past_present_share_buffer). The length that the graph declares for the node's results is ignored.
  bool sharedCaches = false;
  /// Sizes of symbolic dims that are known now, by name (`batch`): the program accepts these sizes only.
  /// Kernels take two dims that meet for equal: one that the graph broadcasts must be known to be 1 before
  /// they are written. Where it is not said here, Program::run finds it out.
  SymbolValues dims;
  /// For a model that was cut beforehand into a file for each rank, with com.microsoft AllReduce ops: the
  /// number of files. The path holds `{rank}`, which stands for 0, 1, … Compile it with the same
  /// `tensorParallel`.
  int ranks = 1;
  /// Contents of initialisers, and of graph inputs that stay the same, by name. They replace what the model
  /// holds or names. Dense memory is not copied, and must not change as long as the graph or a program lives.
  /// 4-bit elements are stored two to a byte, as u8. A tensor on the program's GPU is read where it lies if
  /// its address is a multiple of 16 bytes, and is copied on the GPU otherwise; programs on the host fetch
  /// it. Whatever writes the contents must have finished before.
  NamedTensors weights;
  /// Contents of external data files as u8, by the location that the model gives. These files are not read
  /// from disk.
  NamedTensors files;
  /// Weights may lie anywhere that the file says. Otherwise they must lie in the file's folder; links that
  /// lead out of it are refused.
  bool trustPaths = false;
  /// Adds a result `next_tokens` [batch, 1], of the type of `input_ids`, and an input `sample_seed` if tokens
  /// are drawn. The logits are reduced to those of the last position, [batch, 1, vocabulary].
  std::optional<Sampling> sampling = {};
};

/// A model in memory.
struct ModelBytes {
  std::span<const std::byte> bytes;
  /// Keeps the bytes alive and unchanged, since weights inside are not copied. Null: the caller keeps them as
  /// long as the graph or a program lives.
  std::shared_ptr<const void> owner;
  /// The name in messages; external data is looked for beside it. If it ends with .mlir, the bytes are a
  /// graph as text.
  std::string path = "model.onnx";
};

/// An imported transformer graph. Cheap to copy. Several threads may compile it; the calls take turns.
class Graph {
public:
  /// `.onnx` (external data is mapped, never read whole) or `.mlir`. Errors are BadInput: file, node and
  /// reason.
  static Result<Graph> load(const std::string &path, const LoadOptions &options = {});
  static Result<Graph> load(const ModelBytes &model, const LoadOptions &options = {});
  const std::vector<Port> &inputs() const;
  const std::vector<Port> &outputs() const;
  /// The graph in textual form, as `fusion-opt` prints it; both graphs where an input decides between two.
  std::string text() const;

  struct Implementation;
  Graph() = default;
  explicit Graph(std::shared_ptr<Implementation> implementation) : shared(std::move(implementation)) {}
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

/// What decides between overlapping fusions, and whether a fusion is applied at all.
enum class ProfitMode {
  Auto,    ///< measured time where the program is for the GPU of this machine, else the model
  Model,   ///< memory traffic and launches saved
  Measure, ///< measured time; an Environment error where that cannot be
};

/// An edited kernel: a source file that replaces the kernel of that name. See docs/kernels.md.
struct KernelFile {
  std::string kernel, path;
};

/// Writes the kernels of regions that it accepts: codegen/Schedule.h.
class Schedule;

/// Which of several ranks this process is, where the ranks are processes.
struct ProcessRank {
  int rank = 0, ranks = 1;
  int gpu = 0; ///< of this process, that the rank runs on
  /// Returns the values of all ranks in the ranks' order: MPI_Allgather, or
  /// torch.distributed.all_gather_object. compile() and Program::open() call it once on every rank, on the
  /// calling thread, so that the ranks find each other. From then on they communicate over TCP.
  std::function<Result<std::vector<std::string>>(const std::string &mine)> allGather;
  std::string host; ///< where the other ranks reach this one; empty: its host name, or the loopback if all
                    ///< ranks are on one host
};

struct CompileOptions {
  Target target = Target::current();
  RunOn device = RunOn::Auto;
  bool fuse = true;
  std::vector<std::string> disabledFusions;  ///< pattern names to leave out
  std::vector<std::string> patternFiles;     ///< more patterns: .pdll or PDL .mlir
  /// The caller's own schedules, which are tried before the built-in ones. They must outlive the programs
  /// that are compiled with them. Such plans are not kept in the cache.
  std::vector<const Schedule *> schedules;
  ProfitMode profit = ProfitMode::Auto;
  /// Ranks among which the graph is divided. A graph that holds collectives already runs unchanged on each
  /// rank. Rank r runs on GPU r of this process; fewer GPUs are an Environment error. On the host the ranks
  /// are threads. With `processRank` or `launcher` each process runs its own rank.
  int tensorParallel = 1;
  std::optional<ProcessRank> processRank;
  /// Takes this process's rank from the environment variables of the launcher that started it, such as
  /// torchrun, if there is one: see docs/tensor-parallel.md.
  bool launcher = false;
  bool vocabularyParallel = false;           ///< ranks divide the embedding's rows and the head's columns too
  /// Positions (tokens) that a key/value cache holds; 0: caches grow by being copied. With a capacity, an
  /// input that the graph extends, by Concat(past, new) or GroupQueryAttention into a result, has a buffer of
  /// that many positions, and a run writes only what is new; the state of a linear attention is replaced
  /// where it lies. See Program::run. An error if the graph has no such input, and for a bundle, which keeps
  /// the capacity it was compiled with. The reference gives the same numbers and copies.
  int64_t kvCapacity = 0;
  /// Caches that are given as dense tensors of full capacity, on the program's device and at a multiple of 16
  /// bytes, are written where they lie: the caller's tensors change. Others are copied first, as all are
  /// without it. Not on the reference.
  bool donateCaches = false;
  /// Assumes that experts compute finite numbers, so that an expert whose weight is 0 need not run (0 times
  /// infinity would not be 0), and that scores of attention are finite and lie above the number that masks
  /// them, and that squares of f16 are, so that a norm may compute them in f32. Without it a graph that runs
  /// every expert on every row stays as it is (docs/routed-experts.md), as does attention that clears NaN or
  /// masks by a finite number (docs/attention.md), and a norm whose statistics are f16 or bf16.
  bool assumeFinite = true;
  /// A row's result is the same bit by bit whatever the other rows and sequences of the run are: their
  /// number, their contents, and the row's place among them. See docs/determinism.md. For one rank. BadInput
  /// if the graph holds an op for which no kernel guarantees that.
  bool batchInvariant = false;
  /// Edited kernels, which run instead of the emitted ones. compile() checks their parameters, tryKernels()
  /// their results.
  std::vector<KernelFile> kernels;
  /// Bytes of the device's memory that a program may use, and each of its variants (see Program::run); 0: all
  /// that is free. A run that needs more is an Environment error that says how much more.
  size_t memoryLimit = 0;
  /// Inputs of the largest run that will come; only their types and shapes matter. The memory for that run is
  /// reported on stderr, and checked before anything is allocated. With one rank only.
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
  /// One self-contained page, which fetches nothing: the graph before and after fusion, the misses, the
  /// tables and, if there is a plan, the kernels' source.
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
  /// The number of the model's layers, told by the graph's names; 0 if these do not tell.
  size_t layers() const;
  int kernelsBefore() const;
  int kernelsAfter() const;
  /// Why no kernels of the target compute the graph, and for which op. Empty if they do, and in reports of
  /// programs that run on the CPU.
  std::string noPlan() const;

private:
  std::shared_ptr<const Contents> contents;
};

/// Where the time of a run went, launch by launch.
struct Profile {
  struct Launch {
    std::string kernel, schedule, fusion, location;
    double microseconds = 0, bytes = 0, flops = 0;
    /// The larger of the times for its bytes and its flops at the device's peak rates; 0 where those are not
    /// known.
    double leastMicroseconds = 0;
  };
  std::vector<Launch> launches;
  std::string table;       ///< for people, a line a kernel
  std::string chromeTrace; ///< JSON for chrome://tracing or Perfetto, with the model's layers
};

/// A compiled graph. `run` may be called from several threads; runs take turns.
class Program {
public:
  /// Takes inputs by name: host tensors, or device tensors of the program's GPU. Returns outputs by name.
  /// Errors: a missing, unknown or misshapen input (BadInput), or what the machine lacks (Environment).
  ///
  /// With a kvCapacity, a result that extends a cache is a view, with strides, of a buffer on the device that
  /// `present` and `past` share. Passed back as the next run's `past`, it is extended where it lies; any
  /// other tensor, such as a host tensor or another view, is copied into a free buffer first. So each view
  /// may be extended once: of two continuations of one `past` the later overwrites the positions of the
  /// earlier. A state is replaced as a whole: the view that was passed then shows the new state. A run that
  /// needs more positions than the capacity is refused (BadInput).
  ///
  /// With several ranks, divided inputs are host tensors, and results are dense host tensors, except those
  /// that extend a cache: such a result stays on the ranks' devices, a shard on each (its device has the
  /// ordinal -1, and only fetch() reads it), and is extended where it lies when it is passed back to the same
  /// program. Without a kvCapacity caches go through the host. An error of one rank stops all ranks; after it
  /// the program runs no more, unless the inputs were wrong (BadInput).
  ///
  /// Where a symbol of the inputs' dims is 1 that the graph takes for equal to a dim that is not, and the
  /// graph broadcasts it, a variant of the graph in which it is 1 runs (`--dim=batch=1`). The first such run
  /// compiles it, with a note on stderr; it is kept, reads the same weights, and takes the same caches. One
  /// program has at most 8 variants for such runs; a ninth is BadInput. A program for several ranks, of a
  /// bundle or of a graph in text form, and one that is batchInvariant, has none: there such a run is
  /// BadInput on devices, as it is everywhere if neither dim is 1.
  ///
  /// Where an input decides which branch of an If runs, as `use_cache_branch` of merged decoders, each of its
  /// values has a variant, too. compile() makes the one where it is true (or that `largestRun` asks for),
  /// which report(), caches() and cudaSource() are of; enqueue() takes that input from the host.
  ///
  /// `where` matters on one GPU only. With Results::Device only fetch() brings results to the host. With
  /// Results::Queued the next run may take the results of this one before they are computed.
  Result<NamedTensors> run(const NamedTensors &inputs, Results where = Results::Host);
  /// The same on the caller's stream, a cudaStream_t of the GPU, without waiting. The results are device
  /// tensors; kernels that are queued later on the stream see their values. Device inputs must keep their
  /// contents until the stream has passed the run. If the stream is recording a graph, the launches become
  /// part of it, provided that these shapes have run before; replays must not overlap other runs. Without a
  /// GPU everything is done on return, and `stream` is unused. Refused (BadInput) if this process has several
  /// GPUs, since a stream belongs to one.
  Result<NamedTensors> enqueue(const NamedTensors &inputs, void *stream);
  /// Dense copies of results on the host, made as soon as the runs that compute them are done, also while
  /// later ones, queued by run(), still work; where enqueue() has come since, after everything that is
  /// queued. Where ranks are processes, all of them call it, as they do with run().
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  /// Inputs of many runs, copied once to where these read them: on one GPU, dense copies on it. They may be
  /// passed on whole or in parts. Elsewhere, and of inputs that runs look into, since they index a table or
  /// decide which branch of an If runs, the tensors themselves.
  Result<NamedTensors> place(const NamedTensors &tensors);
  /// Microseconds of each of `iterations` runs, after three that are not measured: the device's time on a
  /// GPU, and the slowest rank's with several. `cold` empties the GPU's cache before each run.
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold = false);
  /// Kernel by kernel; not on the reference.
  Result<Profile> profile(const NamedTensors &inputs);

  /// With a kvCapacity: each input that is a cache, and the result that extends it. Empty on the reference.
  struct Cache {
    std::string past, present;
  };
  std::vector<Cache> caches() const;
  /// How runs were brought to the device. Of the first rank; empty on the reference.
  RunStatistics statistics() const;

  const Report &report() const;
  const std::vector<Port> &inputs() const;
  const std::vector<Port> &outputs() const;
  /// "cpu reference", "emulated", or the GPU's name.
  std::string device() const;
  /// This process's rank if the ranks are processes; else 0.
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
/// The form of that name: mlir, cuda, plan or dot. Nothing for other names.
std::optional<Emit> emitNamed(std::string_view name);

struct Explanation {
  Report report;
  std::string text; ///< in the form that `what` names
};
/// Fuses and plans without compiling a kernel; needs no GPU unless fusions are to be measured.
Result<Explanation> explain(const Graph &graph, const CompileOptions &options, Emit what);

/// Checks on random inputs every rewrite against the ops that it replaced, and the kernels of every fusion
/// against its body, on the GPU if there is one and else by emulation. A difference is an AnswerIsNo error
/// that names fusion, location and element.
Status verifyFusions(const Graph &graph, const CompileOptions &options);

/// Writes NAME.cu for each kernel, and beside them the device files that they include. If a file exists with
/// other contents, that is an error and nothing is written.
Status writeKernels(const Graph &graph, const CompileOptions &options, const std::string &folder);

/// An edited kernel that agrees with the body of what it computes.
struct KernelTrial {
  std::string kernel, path;
  std::string device;
  double original = 0, edited = 0; ///< median microseconds; 0 without a GPU to time on
  /// "kernel … agrees with its body …", a line.
  std::string text() const;
};
/// Runs each of `options.kernels`, and the kernel that it replaces, alone on random inputs. Their shapes are
/// those that the step has for `inputs`, and small without any. On the GPU if there is one, else by
/// emulation. Errors: a kernel that differs from the body (AnswerIsNo), with the size and place of the
/// difference; a name that no kernel has, a file that does not compile, a kernel that cannot run alone
/// (BadInput).
Result<std::vector<KernelTrial>> tryKernels(const Graph &graph, const CompileOptions &options,
                                            const NamedTensors &inputs = {});

/// Compiles every kernel for `options.target` and writes a folder with cubins, plan and weights. Needs no
/// GPU.
Status writeBundle(const Graph &graph, const CompileOptions &options, const std::string &folder);

} // namespace fusion
