/* The C interface, with names and layouts that stay: a library of the same FUSION_ABI_VERSION runs what was
 * compiled against an older header.
 *
 *   fusion_options *options = fusion_options_create();
 *   fusion_graph *graph = NULL;
 *   fusion_program *program = NULL;
 *   if (fusion_graph_load("model.onnx", options, &graph) || fusion_compile(graph, options, &program))
 *     return fail(fusion_last_error());
 *
 * Every function that can fail returns a fusion_status and leaves its results alone unless that is FUSION_OK;
 * the reason, one line, is fusion_last_error() of the same thread. No function throws or exits.
 *
 * Threads: any handle may be used by several threads at once, except fusion_options, which one thread fills.
 * Calls of one program, and compilations of one graph, take turns. A handle must not be destroyed while a
 * call uses it; a program needs neither its graph nor its options any longer, and a tensor not its program.
 *
 * Memory: the _destroy function of its kind releases a handle, and accepts NULL. fusion_free() releases texts
 * that are returned through a char **. A const char * lives as long as the handle that returned it. */
#ifndef FUSION_FUSION_H
#define FUSION_FUSION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FUSION_ABI_VERSION 1
#define FUSION_API __attribute__((visibility("default")))

/* DLPack's, of the layout without a version (github.com/dmlc/dlpack). */
struct DLManagedTensor;

typedef enum fusion_status {
  FUSION_OK = 0,
  FUSION_ANSWER_IS_NO = 1, /* a comparison failed or a requirement was not met */
  FUSION_BAD_INPUT = 2,    /* an argument, file or tensor that cannot be used */
  FUSION_LACKING = 3       /* the machine lacks something; the message names it */
} fusion_status;

typedef struct fusion_options fusion_options;
typedef struct fusion_graph fusion_graph;
typedef struct fusion_program fusion_program;
typedef struct fusion_tensor fusion_tensor;

/* An input or output of a graph. A dim is a number or an expression of symbols: "16", "batch", "past + 1". */
typedef struct fusion_port {
  const char *name;
  const char *type; /* "f16", "bf16", "i64", ... */
  size_t rank;
  const char *const *dims;
} fusion_port;

/* An input of a run that is extended in place, and the output that is its extension. */
typedef struct fusion_cache {
  const char *past, *present;
} fusion_cache;

typedef void (*fusion_release)(void *context);

FUSION_API uint32_t fusion_abi_version(void);   /* FUSION_ABI_VERSION of the library */
FUSION_API const char *fusion_version(void);    /* "0.1.0" */
FUSION_API const char *fusion_last_error(void); /* of this thread's last call that failed; "" if none did */
FUSION_API void fusion_free(char *text);

/* ---- Progress: of the whole process ---- */

/* Takes a step of long work: `title` says what is done ("compile kernels for sm_90a"), `step` which part of
 * it is done or begins, number `done` of `total` (0: unknown). */
typedef void (*fusion_progress)(void *context, const char *title, const char *step, int64_t done,
                                int64_t total);
/* Who takes steps, on any thread and until another is set. NULL, as at first: stderr, where they are a line
 * that is drawn again on a terminal, else some lines. */
FUSION_API void fusion_set_progress(fusion_progress progress, void *context);
/* Not 0: neither steps nor notes. */
FUSION_API void fusion_set_quiet(int quiet);

/* ---- Options ---- */

FUSION_API fusion_options *fusion_options_create(void);
FUSION_API void fusion_options_destroy(fusion_options *options);
/* Sets one by name; an unknown name or value is FUSION_BAD_INPUT. yes/no are "1" and "0".
 *
 * When a graph is loaded:
 * - shared-caches: yes/no; caches of GroupQueryAttention are buffers of full capacity
 * - ranks: how many files the {rank} of a path stands for
 * - sample: greedy, or some of temperature=0.8,top-k=50,top-p=0.9; adds a result next_tokens: see
 *   LoadOptions::sampling in Fusion.h
 *
 * When it is compiled:
 * - device: auto (default), cpu, cuda, emulate
 * - target: sm_90a, ...; default: that of GPU 0
 * - fuse: yes/no, default yes
 * - fuse-disable: the name of a pattern to leave out; repeatable
 * - patterns: a file with more patterns; repeatable
 * - kernel: NAME=FILE.cu, an edited kernel; repeatable
 * - profit: auto (default), model, measure
 * - tp: ranks of tensor parallelism, default 1
 * - tp-vocabulary: yes/no; they divide embedding and head too
 * - launcher: yes/no; the rank of this process is in its launcher's variables
 * - kv-capacity: positions that key/value caches hold; 0 (default): they are copied to grow
 * - donate-caches: yes/no; caches given dense and of full capacity are written where they lie
 * - assume-finite: yes/no, default yes; experts of weight 0 need not run, and scores of attention are finite
 * - batch-invariant: yes/no; a row's result does not depend on the other rows of a run
 * - cache: folder for compiled kernels, plans and reports */
FUSION_API fusion_status fusion_options_set(fusion_options *options, const char *name, const char *value);
/* The contents of an initializer or graph input when a graph is loaded, on the host or a GPU. The tensor is
 * not copied and must not change: see LoadOptions::weights in Fusion.h. */
FUSION_API fusion_status fusion_options_weight(fusion_options *options, const char *name,
                                               const fusion_tensor *tensor);
/* A graph input whose contents are known when the graph is loaded; it becomes a constant. A boolean that
 * alone decides which branch of an If runs need not be given: see Program::run in Fusion.h. */
FUSION_API fusion_status fusion_options_constant(fusion_options *options, const char *name,
                                                 const fusion_tensor *tensor);
/* An external data file by the location that the model names, not copied. `release` (may be NULL) is called
 * with `context` when no graph or program needs it any more, on any thread. */
FUSION_API fusion_status fusion_options_file(fusion_options *options, const char *location, const void *bytes,
                                             size_t size, fusion_release release, void *context);
/* Gathers the `size` bytes at `mine` of every rank on every rank: calls `answer(sink, rank, bytes, size)` for
 * each rank in order. Returns 0, or anything else on failure. */
typedef void (*fusion_answer)(void *sink, int rank, const char *bytes, size_t size);
typedef int (*fusion_all_gather)(void *context, const char *mine, size_t size, fusion_answer answer,
                                 void *sink);
/* Makes this process rank `rank` of `ranks`, on its GPU `gpu`. Each compilation calls `all_gather` once on
 * every rank, on the thread that compiles. `host` (may be NULL): where the other ranks reach this one. */
FUSION_API fusion_status fusion_options_rank(fusion_options *options, int rank, int ranks, int gpu,
                                             const char *host, fusion_all_gather all_gather, void *context);

/* ---- Graphs ---- */

/* A file: .onnx or .mlir. */
FUSION_API fusion_status fusion_graph_load(const char *path, const fusion_options *options,
                                           fusion_graph **graph);
/* The same in memory, not copied; `release` as in fusion_options_file(), also after a failure. `path`: what
 * messages call it, and where external data lies; one that ends with .mlir says that the bytes are a graph as
 * text. */
FUSION_API fusion_status fusion_graph_load_bytes(const void *bytes, size_t size, fusion_release release,
                                                 void *context, const char *path,
                                                 const fusion_options *options, fusion_graph **graph);
FUSION_API void fusion_graph_destroy(fusion_graph *graph);
FUSION_API const fusion_port *fusion_graph_inputs(const fusion_graph *graph, size_t *count);
FUSION_API const fusion_port *fusion_graph_outputs(const fusion_graph *graph, size_t *count);
/* Fuses and plans for the target, without a GPU. `text` is in the form `what`: mlir, cuda, plan or dot.
 * `report` is JSON. Either may be NULL. */
FUSION_API fusion_status fusion_graph_explain(const fusion_graph *graph, const fusion_options *options,
                                              const char *what, char **text, char **report);
/* A report as json, markdown or html. `report`: JSON of fusion_graph_explain(). */
FUSION_API fusion_status fusion_report_text(const char *report, const char *format, char **text);
/* Checks rewrites and kernels against what they replaced, on random inputs; a difference is
 * FUSION_ANSWER_IS_NO. */
FUSION_API fusion_status fusion_graph_verify(const fusion_graph *graph, const fusion_options *options);
/* Writes the folder that fusion_program_open() opens: kernels for the target, plan and weights. */
FUSION_API fusion_status fusion_graph_write_bundle(const fusion_graph *graph, const fusion_options *options,
                                                   const char *folder);

/* ---- Tensors: shared, not changed by anybody ---- */

/* Dense, row-major memory of the host, not copied. `type` as in fusion_port; `release` as in
 * fusion_options_file(), also after a failure. */
FUSION_API fusion_status fusion_tensor_wrap(const char *type, size_t rank, const int64_t *shape, void *data,
                                            fusion_release release, void *context, fusion_tensor **tensor);
FUSION_API const char *fusion_tensor_type(const fusion_tensor *tensor);
FUSION_API const int64_t *fusion_tensor_shape(const fusion_tensor *tensor, size_t *rank);
/* In elements; NULL: dense. */
FUSION_API const int64_t *fusion_tensor_strides(const fusion_tensor *tensor);
/* On the host, or on the GPU of the program that computed it. */
FUSION_API const void *fusion_tensor_data(const fusion_tensor *tensor);
/* `view` is dense and row-major, on the host or a CUDA GPU. Unless the call fails, the tensor owns it. */
FUSION_API fusion_status fusion_tensor_from_dlpack(struct DLManagedTensor *view, fusion_tensor **tensor);
/* A view for another library, which calls the view's deleter. The tensor may be destroyed before that. A
 * cache of several ranks has no view. */
FUSION_API fusion_status fusion_tensor_to_dlpack(const fusion_tensor *tensor, struct DLManagedTensor **view);
/* Memory that the caller keeps, for a call: `*tensor` is made if it is NULL, else it is an unbound handle, which
 * is bound anew without an allocation. Of `view`, as fusion_tensor_from_dlpack() takes it, dl_tensor alone is
 * read, and not kept. The memory stays until fusion_tensor_unbind(). Used by one thread at a time, for one call. */
FUSION_API fusion_status fusion_tensor_bind(const struct DLManagedTensor *view, fusion_tensor **tensor);
/* 0: nobody else shares the memory, and the handle is unbound. 1: somebody does, a result for instance, and
 * `release(context)` will be called with the last who do, of which the handle is one: destroy it. */
FUSION_API int fusion_tensor_unbind(fusion_tensor *tensor, fusion_release release, void *context);
FUSION_API void fusion_tensor_destroy(fusion_tensor *tensor);

/* ---- Programs ---- */

FUSION_API fusion_status fusion_compile(const fusion_graph *graph, const fusion_options *options,
                                        fusion_program **program);
/* What fusion-compile or fusion_graph_write_bundle() wrote. */
FUSION_API fusion_status fusion_program_open(const char *folder, const fusion_options *options,
                                             fusion_program **program);
FUSION_API void fusion_program_destroy(fusion_program *program);
FUSION_API const fusion_port *fusion_program_inputs(const fusion_program *program, size_t *count);
FUSION_API const fusion_port *fusion_program_outputs(const fusion_program *program, size_t *count);
FUSION_API const fusion_cache *fusion_program_caches(const fusion_program *program, size_t *count);
FUSION_API const char *fusion_program_device(const fusion_program *program);
FUSION_API int fusion_program_rank(const fusion_program *program);

/* Runs on `count` inputs by name. `outputs` has room for as many handles as fusion_program_outputs() has
 * ports, and gets one each in that order. An output that extends a cache is given back as it is to extend it
 * where it lies: as its handle, not by way of DLPack. See Program::run in Fusion.h for what holds of caches,
 * and for variants of the graph that are compiled when the first inputs come that need them.
 */
FUSION_API fusion_status fusion_program_run(fusion_program *program, size_t count, const char *const *names,
                                            const fusion_tensor *const *inputs, fusion_tensor **outputs);
/* The same on the caller's cudaStream_t, without waiting: see Program::enqueue in Fusion.h. */
FUSION_API fusion_status fusion_program_enqueue(fusion_program *program, void *stream, size_t count,
                                                const char *const *names, const fusion_tensor *const *inputs,
                                                fusion_tensor **outputs);
/* Receives a token of prompt number `prompt`. Returns 0, or anything else to end the generation. */
typedef int (*fusion_token)(void *context, size_t prompt, int64_t token);
/* Chooses up to `tokens` tokens for each of `prompts`, of `lengths` token ids each, step by step, and gives
 * them to `each` on this thread: `at_once`, step by step, as soon as they are on the host; else at the end,
 * prompt by prompt, and the device need not wait between steps. `end_token` (may be NULL): nothing follows
 * it. `chunk`: positions of the prompts in one run, 0 for all. `seed`: of what is drawn. `names` and
 * `inputs`: `count` inputs that are neither token ids, mask, positions nor caches. The graph was loaded with
 * the option sample, and takes attention_mask and position_ids where prompts differ in length: see
 * api/Generate.h. */
FUSION_API fusion_status fusion_program_generate(fusion_program *program, size_t prompt_count,
                                                 const int64_t *const *prompts, const size_t *lengths,
                                                 int64_t tokens, const int64_t *end_token, int64_t chunk,
                                                 uint64_t seed, size_t count, const char *const *names,
                                                 const fusion_tensor *const *inputs, fusion_token each,
                                                 void *context, int at_once);
/* Dense copies on the host, made after everything that is queued so far. */
FUSION_API fusion_status fusion_program_fetch(fusion_program *program, size_t count, const char *const *names,
                                              const fusion_tensor *const *tensors, fusion_tensor **copies);
/* Microseconds of each of `iterations` runs into `times`; `cold`: the GPU's cache is emptied before each. */
FUSION_API fusion_status fusion_program_bench(fusion_program *program, size_t count, const char *const *names,
                                              const fusion_tensor *const *inputs, int iterations, int cold,
                                              double *times);
/* Where the time of a run goes: a table for people, and a trace for Perfetto. Either may be NULL. */
FUSION_API fusion_status fusion_program_profile(fusion_program *program, size_t count,
                                                const char *const *names, const fusion_tensor *const *inputs,
                                                char **table, char **trace);
/* `format`: json, markdown or html. */
FUSION_API fusion_status fusion_program_report(const fusion_program *program, const char *format,
                                               char **text);
/* The emitted kernels as CUDA source; "" on the CPU. */
FUSION_API fusion_status fusion_program_source(const fusion_program *program, char **text);
/* How runs were brought to the device, as JSON: the fields of RunStatistics. */
FUSION_API fusion_status fusion_program_statistics(const fusion_program *program, char **json);

#ifdef __cplusplus
}
#endif
#endif
