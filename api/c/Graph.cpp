#include "api/c/Handles.h"

using namespace fusion;

static const LoadOptions &loadOptions(const fusion_options *options) {
  static const LoadOptions defaults;
  return options ? options->load : defaults;
}

static CompileOptions compileOptions(const fusion_options *options) {
  return options ? options->compile : CompileOptions();
}

static Status keep(Result<Graph> loaded, fusion_graph **graph) {
  if (!loaded)
    return loaded.error();
  *graph = new fusion_graph(std::move(*loaded));
  return {};
}

fusion_status fusion_graph_load(const char *path, const fusion_options *options, fusion_graph **graph) {
  return c::guarded([&]() -> Status {
    if (!path || !graph)
      return badInput("a graph needs a path, and a place for the result");
    return keep(Graph::load(path, loadOptions(options)), graph);
  });
}

fusion_status fusion_graph_load_bytes(const void *bytes, size_t size, fusion_release release, void *context,
                                      const char *path, const fusion_options *options, fusion_graph **graph) {
  return c::guarded([&]() -> Status {
    ModelBytes model{{static_cast<const std::byte *>(bytes), size}, c::ownerOf(release, context)};
    if ((!bytes && size > 0) || !graph)
      return badInput("a graph needs its bytes, and a place for the result");
    if (path)
      model.path = path;
    return keep(Graph::load(model, loadOptions(options)), graph);
  });
}

void fusion_graph_destroy(fusion_graph *graph) { delete graph; }
const fusion_port *fusion_graph_inputs(const fusion_graph *graph, size_t *count) {
  return graph->inputs.get(count);
}
const fusion_port *fusion_graph_outputs(const fusion_graph *graph, size_t *count) {
  return graph->outputs.get(count);
}

fusion_status fusion_graph_explain(const fusion_graph *graph, const fusion_options *options, const char *what,
                                   char **text, char **report) {
  return c::guarded([&]() -> Status {
    const auto emit = graph && what ? emitNamed(what) : std::nullopt;
    if (!emit)
      return badInput(std::string("a graph is explained as mlir, cuda, plan or dot, not as '") +
                      (what ? what : "") + "'");
    std::lock_guard lock(graph->mutex);
    auto explained = explain(graph->graph, compileOptions(options), *emit);
    if (!explained)
      return explained.error();
    if (text)
      *text = c::copyText(explained->text);
    if (report)
      *report = c::copyText(explained->report.json());
    return {};
  });
}

fusion_status fusion_graph_verify(const fusion_graph *graph, const fusion_options *options) {
  return c::guarded([&]() -> Status {
    std::lock_guard lock(graph->mutex);
    return verifyFusions(graph->graph, compileOptions(options));
  });
}

fusion_status fusion_graph_write_bundle(const fusion_graph *graph, const fusion_options *options,
                                        const char *folder) {
  return c::guarded([&]() -> Status {
    if (!folder || !*folder)
      return badInput("a bundle needs a folder");
    std::lock_guard lock(graph->mutex);
    return writeBundle(graph->graph, compileOptions(options), folder);
  });
}

fusion_status fusion_compile(const fusion_graph *graph, const fusion_options *options,
                             fusion_program **program) {
  return c::guarded([&]() -> Status {
    if (!graph || !program)
      return badInput("a program needs a graph, and a place for the result");
    std::lock_guard lock(graph->mutex);
    auto made = compile(graph->graph, compileOptions(options));
    if (!made)
      return made.error();
    *program = new fusion_program(std::move(*made));
    return {};
  });
}

fusion_status fusion_program_open(const char *folder, const fusion_options *options,
                                  fusion_program **program) {
  return c::guarded([&]() -> Status {
    if (!folder || !program)
      return badInput("a program needs a folder, and a place for the result");
    auto made = Program::open(folder, compileOptions(options));
    if (!made)
      return made.error();
    *program = new fusion_program(std::move(*made));
    return {};
  });
}
