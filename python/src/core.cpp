// fusion._core: the C interface (fusion.h) for Python. What people use is in ../fusion; this has no names or
// defaults of its own.
#include "Program.h"
#include "Values.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

using namespace fusion::python;

namespace {
using NamedObjects = std::vector<std::pair<std::string, nb::object>>;

/// Options as the C interface takes them, with what keeps the caller's objects alive while it is used.
struct Options {
  Options() : handle(fusion_options_create()) {}
  void set(const std::string &name, const std::string &value) {
    check(fusion_options_set(handle.get(), name.c_str(), value.c_str()));
  }
  void weight(const std::string &name, const Tensor &tensor) {
    check(fusion_options_weight(handle.get(), name.c_str(), tensor.get()));
  }
  void constant(const std::string &name, const Tensor &tensor) {
    check(fusion_options_constant(handle.get(), name.c_str(), tensor.get()));
  }
  void file(const std::string &location, nb::object bytes) {
    Buffer *buffer = Buffer::of(bytes);
    check(fusion_options_file(handle.get(), location.c_str(), buffer->data(), buffer->size(),
                              &Buffer::release, buffer));
  }
  void rank(int rank, int ranks, int gpu, const std::optional<std::string> &host, nb::object gather) {
    allGather = std::move(gather);
    check(fusion_options_rank(handle.get(), rank, ranks, gpu, host ? host->c_str() : nullptr,
                              &Options::gather, this));
  }

  /// A callback of fusion.h: `allGather(bytes) -> list of bytes`. What it raises is raised by the call that
  /// compiles.
  static int gather(void *self, const char *mine, size_t size, fusion_answer answer, void *sink) {
    nb::gil_scoped_acquire held;
    auto &options = *static_cast<Options *>(self);
    try {
      int rank = 0;
      for (nb::handle brought : options.allGather(nb::bytes(mine, size))) {
        auto bytes = nb::cast<nb::bytes>(brought);
        answer(sink, rank++, bytes.c_str(), bytes.size());
      }
      return 0;
    } catch (...) {
      options.raised = std::current_exception();
      return 1;
    }
  }
  /// As check(), but what a callback raised comes first.
  void checkCall(fusion_status status) {
    if (raised)
      std::rethrow_exception(std::exchange(raised, nullptr));
    check(status);
  }

  Handle<fusion_options, fusion_options_destroy> handle;
  nb::object allGather;
  std::exception_ptr raised;
};

using Graph = Handle<fusion_graph, fusion_graph_destroy>;
using Ports = std::vector<std::tuple<std::string, std::string, std::vector<std::string>>>;

Ports portsOf(const fusion_port *ports, size_t count) {
  Ports result;
  for (size_t i = 0; i < count; ++i)
    result.emplace_back(ports[i].name, ports[i].type,
                        std::vector<std::string>(ports[i].dims, ports[i].dims + ports[i].rank));
  return result;
}

/// Without the interpreter's lock: a run that holds the program's may be waiting for it.
template <class Call>
std::string textOf(Call call) {
  Text text;
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = call(text.out());
  }
  check(status);
  return text.str();
}

Graph *loadFile(const std::string &path, Options &options) {
  fusion_graph *graph = nullptr;
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = fusion_graph_load(path.c_str(), options.handle.get(), &graph);
  }
  check(status);
  return new Graph(graph);
}

Graph *loadBytes(nb::object bytes, const std::string &path, Options &options) {
  fusion_graph *graph = nullptr;
  Buffer *buffer = Buffer::of(bytes);
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = fusion_graph_load_bytes(buffer->data(), buffer->size(), &Buffer::release, buffer, path.c_str(),
                                     options.handle.get(), &graph);
  }
  check(status);
  return new Graph(graph);
}

/// Who is told of steps; None: stderr. Guarded by the interpreter's lock, and never destroyed.
PyObject *progress = nullptr;

void showStep(void *, const char *title, const char *step, int64_t done, int64_t total) {
  if (!Py_IsInitialized())
    return;
  nb::gil_scoped_acquire held;
  if (!progress)
    return;
  const nb::object show = nb::borrow(progress);
  try {
    show(nb::str(title), nb::str(step), done, total);
  } catch (nb::python_error &problem) { // the work goes on
    problem.restore();
    PyErr_WriteUnraisable(show.ptr());
  }
}

void setProgress(nb::object show) {
  const bool isQuiet = show.ptr() == Py_False;
  const bool isCalled = !isQuiet && show.ptr() != Py_True;
  nb::object before = nb::steal(std::exchange(progress, isCalled ? show.release().ptr() : nullptr));
  fusion_set_quiet(isQuiet);
  fusion_set_progress(isCalled ? showStep : nullptr, nullptr);
}

template <class Call>
Program *makeProgram(Options &options, Call call) {
  fusion_program *program = nullptr;
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = call(options.handle.get(), &program);
  }
  options.checkCall(status);
  return new Program(program);
}
} // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);
  module.attr("abi_version") = fusion_abi_version();
  module.attr("version") = fusion_version();
  module.def("set_errors", &setErrors);
  module.def("set_progress", &setProgress);
  module.def("set_value_hooks", &setValueHooks);

  nb::class_<Tensor>(module, "Tensor")
      .def_static("from_dlpack", &Tensor::fromDLPack)
      .def_static("from_pointer", &Tensor::fromPointer)
      .def("to_dlpack", &Tensor::toDLPack)
      .def("facts", &Tensor::facts);

  nb::class_<Array>(module, "Array").def_prop_ro("__array_struct__", &Array::interface);

  nb::class_<Options>(module, "Options")
      .def(nb::init<>())
      .def("set", &Options::set)
      .def("weight", &Options::weight)
      .def("constant", &Options::constant)
      .def("file", &Options::file)
      .def("rank", &Options::rank, nb::arg("rank"), nb::arg("ranks"), nb::arg("gpu"), nb::arg("host").none(),
           nb::arg("gather"));

  nb::class_<Graph>(module, "Graph")
      .def_static("load", &loadFile, nb::rv_policy::take_ownership)
      .def_static("load_bytes", &loadBytes, nb::rv_policy::take_ownership)
      .def_prop_ro("inputs",
                   [](const Graph &graph) {
                     size_t count = 0;
                     const fusion_port *ports = fusion_graph_inputs(graph.get(), &count);
                     return portsOf(ports, count);
                   })
      .def_prop_ro("outputs",
                   [](const Graph &graph) {
                     size_t count = 0;
                     const fusion_port *ports = fusion_graph_outputs(graph.get(), &count);
                     return portsOf(ports, count);
                   })
      .def("explain",
           [](const Graph &graph, Options &options, const std::string &what) {
             Text text, report;
             fusion_status status;
             {
               nb::gil_scoped_release released;
               status = fusion_graph_explain(graph.get(), options.handle.get(), what.c_str(), text.out(),
                                             report.out());
             }
             check(status);
             return std::pair(text.str(), report.str());
           })
      .def("verify",
           [](const Graph &graph, Options &options) {
             fusion_status status;
             {
               nb::gil_scoped_release released;
               status = fusion_graph_verify(graph.get(), options.handle.get());
             }
             check(status);
           })
      .def("write_bundle", [](const Graph &graph, Options &options, const std::string &folder) {
        fusion_status status;
        {
          nb::gil_scoped_release released;
          status = fusion_graph_write_bundle(graph.get(), options.handle.get(), folder.c_str());
        }
        check(status);
      });

  nb::class_<Program>(module, "Program")
      .def_static(
          "compile",
          [](const Graph &graph, Options &options) {
            return makeProgram(
                options, [&](auto *o, auto **program) { return fusion_compile(graph.get(), o, program); });
          },
          nb::rv_policy::take_ownership)
      .def_static(
          "open",
          [](const std::string &folder, Options &options) {
            return makeProgram(options, [&](auto *o, auto **program) {
              return fusion_program_open(folder.c_str(), o, program);
            });
          },
          nb::rv_policy::take_ownership)
      .def_prop_ro("inputs",
                   [](const Program &program) {
                     size_t count = 0;
                     const fusion_port *ports = fusion_program_inputs(program.handle.get(), &count);
                     return portsOf(ports, count);
                   })
      .def_prop_ro("outputs",
                   [](const Program &program) {
                     size_t count = 0;
                     const fusion_port *ports = fusion_program_outputs(program.handle.get(), &count);
                     return portsOf(ports, count);
                   })
      .def_prop_ro("caches",
                   [](const Program &program) {
                     size_t count = 0;
                     const fusion_cache *caches = fusion_program_caches(program.handle.get(), &count);
                     std::vector<std::pair<std::string, std::string>> pairs;
                     for (size_t i = 0; i < count; ++i)
                       pairs.emplace_back(caches[i].past, caches[i].present);
                     return pairs;
                   })
      .def_prop_ro(
          "device",
          [](const Program &program) { return std::string(fusion_program_device(program.handle.get())); })
      .def_prop_ro("rank", [](const Program &program) { return fusion_program_rank(program.handle.get()); })
      .def("call", &call)
      .def("run", &run, nb::arg("inputs"), nb::arg("stream").none())
      .def("generate", &generate, nb::arg("prompts"), nb::arg("tokens"), nb::arg("end_token").none(),
           nb::arg("chunk"), nb::arg("seed"), nb::arg("inputs"), nb::arg("each").none())
      .def("fetch", &fetch)
      .def("bench", &bench)
      .def("profile", &profile)
      .def("report",
           [](const Program &program, const std::string &format) {
             return textOf([&](char **text) {
               return fusion_program_report(program.handle.get(), format.c_str(), text);
             });
           })
      .def("source",
           [](const Program &program) {
             return textOf([&](char **text) { return fusion_program_source(program.handle.get(), text); });
           })
      .def("statistics", [](const Program &program) {
        return textOf([&](char **text) { return fusion_program_statistics(program.handle.get(), text); });
      });

  module.def("report_text", [](const std::string &report, const std::string &format) {
    Text text;
    check(fusion_report_text(report.c_str(), format.c_str(), text.out()));
    return text.str();
  });
}
