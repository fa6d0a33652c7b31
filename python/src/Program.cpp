#include "Program.h"

#include <algorithm>

namespace fusion::python {

Program::Program(fusion_program *made) : handle(made) {
  size_t count = 0;
  const fusion_port *ports = fusion_program_inputs(made, &count);
  memory.names.set(ports, count);
  ports = fusion_program_outputs(made, &count);
  for (size_t i = 0; i < count; ++i)
    outputs.push_back({nb::steal(PyUnicode_InternFromString(ports[i].name)), false});
  const fusion_cache *caches = fusion_program_caches(made, &count);
  for (Output &output : outputs)
    output.isCache = std::any_of(caches, caches + count, [&](const fusion_cache &cache) {
      return PyUnicode_CompareWithASCIIString(output.name.ptr(), cache.present) == 0;
    });
}

Program::~Program() {
  nb::gil_scoped_release released;
  handle.reset();
}

namespace {
/// A dict of `made`, which it takes over: of name(i) and value(i, made[i]).
template <class Name, class Value>
nb::dict named(const std::vector<fusion_tensor *> &made, Name name, Value value) {
  nb::dict result;
  size_t taken = 0;
  try {
    while (taken < made.size()) {
      const size_t i = taken++;
      result[name(i)] = value(i, made[i]);
    }
  } catch (...) {
    for (; taken < made.size(); ++taken)
      fusion_tensor_destroy(made[taken]);
    throw;
  }
  return result;
}

std::vector<fusion_tensor *> runOn(Program &program, const Arguments &given,
                                   std::optional<uintptr_t> stream) {
  std::vector<fusion_tensor *> outputs(program.outputs.size());
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status =
        stream ? fusion_program_enqueue(program.handle.get(), reinterpret_cast<void *>(*stream), given.size(),
                                        given.names.data(), given.handles.data(), outputs.data())
               : fusion_program_run(program.handle.get(), given.size(), given.names.data(),
                                    given.handles.data(), outputs.data());
  }
  check(status);
  return outputs;
}
} // namespace

nb::dict call(Program &program, const nb::dict &inputs, nb::handle typed) {
  const Arguments given(inputs, "input", program.memory, typed);
  std::optional<uintptr_t> stream;
  if (given.torchGpu >= 0)
    stream = given.torchStream();
  return named(
      runOn(program, given, stream), [&](size_t i) { return program.outputs[i].name; },
      [&](size_t i, fusion_tensor *made) {
        return program.outputs[i].isCache ? asTensor(made) : given.hasTorch ? asTorch(made) : asArray(made);
      });
}

nb::dict run(Program &program, const nb::dict &inputs, std::optional<uintptr_t> stream) {
  const Arguments given(inputs, "input", program.memory);
  return named(
      runOn(program, given, stream), [&](size_t i) { return program.outputs[i].name; },
      [](size_t, fusion_tensor *made) { return asTensor(made); });
}

nb::dict fetch(Program &program, const nb::dict &tensors) {
  const Arguments given(tensors, "tensor", program.memory);
  std::vector<fusion_tensor *> copies(given.size());
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = fusion_program_fetch(program.handle.get(), given.size(), given.names.data(),
                                  given.handles.data(), copies.data());
  }
  check(status);
  return named(
      copies, [&](size_t i) { return nb::str(given.names[i]); },
      [](size_t, fusion_tensor *made) { return asArray(made); });
}

std::vector<double> bench(Program &program, const nb::dict &inputs, int iterations, bool cold) {
  const Arguments given(inputs, "input", program.memory);
  std::vector<double> times(static_cast<size_t>(std::max(iterations, 0)));
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = fusion_program_bench(program.handle.get(), given.size(), given.names.data(),
                                  given.handles.data(), iterations, cold, times.data());
  }
  check(status);
  return times;
}

std::pair<std::string, std::string> profile(Program &program, const nb::dict &inputs) {
  const Arguments given(inputs, "input", program.memory);
  Text table, trace;
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = fusion_program_profile(program.handle.get(), given.size(), given.names.data(),
                                    given.handles.data(), table.out(), trace.out());
  }
  check(status);
  return {table.str(), trace.str()};
}

std::vector<std::vector<int64_t>> generate(Program &program, const std::vector<std::vector<int64_t>> &prompts,
                                           int64_t tokens, std::optional<int64_t> endToken, int64_t chunk,
                                           uint64_t seed, const nb::dict &inputs, nb::object each) {
  const Arguments given(inputs, "input", program.memory);
  std::vector<const int64_t *> starts;
  std::vector<size_t> lengths;
  for (const std::vector<int64_t> &prompt : prompts) {
    starts.push_back(prompt.data());
    lengths.push_back(prompt.size());
  }
  struct Context {
    std::vector<std::vector<int64_t>> tokens;
    nb::object each;
    std::exception_ptr raised;
  } context{std::vector<std::vector<int64_t>>(prompts.size()), std::move(each), nullptr};
  auto token = [](void *self, size_t prompt, int64_t token) {
    auto &context = *static_cast<Context *>(self);
    context.tokens[prompt].push_back(token);
    if (context.each.is_none())
      return 0;
    nb::gil_scoped_acquire held;
    try {
      if (PyErr_CheckSignals() != 0)
        throw nb::python_error();
      return nb::cast<bool>(nb::bool_(context.each(prompt, token))) ? 1 : 0;
    } catch (...) {
      context.raised = std::current_exception();
      return 1;
    }
  };
  fusion_status status;
  {
    nb::gil_scoped_release released;
    status = fusion_program_generate(program.handle.get(), prompts.size(), starts.data(), lengths.data(),
                                     tokens, endToken ? &*endToken : nullptr, chunk, seed, given.size(),
                                     given.names.data(), given.handles.data(), token, &context,
                                     !context.each.is_none());
  }
  if (context.raised)
    std::rethrow_exception(context.raised);
  check(status);
  return std::move(context.tokens);
}

} // namespace fusion::python
