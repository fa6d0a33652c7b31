#include "api/Generate.h"
#include "api/c/Handles.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>

using namespace fusion;

fusion_program::fusion_program(Program made)
    : program(std::move(made)), inputs(program.inputs()), outputs(program.outputs()),
      device(program.device()), cacheNames(program.caches()) {
  for (const Port &port : program.outputs())
    outputNames.push_back(port.name);
  for (const Program::Cache &cache : cacheNames)
    caches.push_back({cache.past.c_str(), cache.present.c_str()});
}

void fusion_program_destroy(fusion_program *program) { delete program; }
const fusion_port *fusion_program_inputs(const fusion_program *program, size_t *count) {
  return program->inputs.get(count);
}
const fusion_port *fusion_program_outputs(const fusion_program *program, size_t *count) {
  return program->outputs.get(count);
}
const char *fusion_program_device(const fusion_program *program) { return program->device.c_str(); }
int fusion_program_rank(const fusion_program *program) { return program->program.rank(); }

const fusion_cache *fusion_program_caches(const fusion_program *program, size_t *count) {
  if (count)
    *count = program->caches.size();
  return program->caches.data();
}

static Result<NamedTensors> named(size_t count, const char *const *names,
                                  const fusion_tensor *const *tensors) {
  NamedTensors result;
  for (size_t i = 0; i < count; ++i) {
    if (!names || !tensors || !names[i] || !tensors[i])
      return badInput("input " + std::to_string(i) + " has no name or no tensor");
    if (!result.emplace(names[i], tensors[i]->tensor).second)
      return badInput(std::string("input ") + names[i] + " is given twice");
  }
  return result;
}

/// A bound handle is in one call at a time, which may take its tensor for as long as it runs: no copy, and
/// nothing to count.
static Tensor &lent(const fusion_tensor &handle) { return const_cast<fusion_tensor &>(handle).tensor; }

c::InputMaps::Lent::Lent(InputMaps &owner, const std::vector<Port> &ports,
                         const fusion_tensor *const *tensors)
    : owner(owner), tensors(tensors) {
  {
    std::lock_guard lock(owner.mutex);
    if (!owner.spare.empty())
      held.splice(held.begin(), owner.spare, owner.spare.begin());
  }
  if (held.empty()) {
    Map &made = held.emplace_back();
    for (const Port &port : ports)
      made.places.push_back(&made.map[port.name]);
  }
}

const NamedTensors *c::InputMaps::Lent::take() {
  const std::vector<Tensor *> &places = held.front().places;
  for (; taken < places.size(); ++taken) {
    const fusion_tensor &given = *tensors[taken];
    if (!given.lender)
      *places[taken] = given.tensor;
    else if (given.tensor.storage().use_count() > 0)
      swap(*places[taken], lent(given));
    else
      return nullptr; // it is here already
  }
  return &held.front().map;
}

c::InputMaps::Lent::~Lent() {
  static const Tensor none;
  const std::vector<Tensor *> &places = held.front().places;
  for (size_t i = 0; i < taken; ++i)
    if (tensors[i]->lender)
      swap(*places[i], lent(*tensors[i]));
    else
      *places[i] = none; // its room for a shape stays
  std::lock_guard lock(owner.mutex);
  owner.spare.splice(owner.spare.begin(), held);
}

/// Hands `made` out in the order of `names`.
static Status give(Result<NamedTensors> made, const std::vector<std::string> &names,
                   fusion_tensor **handles) {
  if (!made)
    return made.error();
  std::vector<std::unique_ptr<fusion_tensor>> all;
  for (const std::string &name : names) {
    auto tensor = made->find(name);
    if (tensor == made->end())
      return badInput("there is no result " + name);
    all.push_back(std::make_unique<fusion_tensor>(fusion_tensor{std::move(tensor->second)}));
  }
  for (size_t i = 0; i < all.size(); ++i)
    handles[i] = all[i].release();
  return {};
}

/// Gives `run` the inputs by name. Those in the order of the program's, as in a loop over them, are not
/// looked up: they go into a map that is there. Their names need not be read where they are the ports' own.
template <class Run>
static fusion_status runWith(fusion_program &program, size_t count, const char *const *names,
                             const fusion_tensor *const *tensors, fusion_tensor **outputs, Run run) {
  return c::guarded([&]() -> Status {
    size_t ports = 0;
    const fusion_port *port = program.inputs.get(&ports);
    bool inOrder = count == ports && names && tensors;
    for (size_t i = 0; inOrder && i < count; ++i)
      inOrder =
          names[i] && tensors[i] && (names[i] == port[i].name || std::strcmp(names[i], port[i].name) == 0);
    if (inOrder) {
      c::InputMaps::Lent lent(program.inputMaps, program.program.inputs(), tensors);
      if (const NamedTensors *inputs = lent.take())
        return give(run(*inputs), program.outputNames, outputs);
    }
    auto given = named(count, names, tensors);
    return given ? give(run(*given), program.outputNames, outputs) : Status(given.error());
  });
}

fusion_status fusion_program_run(fusion_program *program, size_t count, const char *const *names,
                                 const fusion_tensor *const *inputs, fusion_tensor **outputs) {
  return runWith(*program, count, names, inputs, outputs,
                 [&](const NamedTensors &given) { return program->program.run(given); });
}

fusion_status fusion_program_enqueue(fusion_program *program, void *stream, size_t count,
                                     const char *const *names, const fusion_tensor *const *inputs,
                                     fusion_tensor **outputs) {
  return runWith(*program, count, names, inputs, outputs,
                 [&](const NamedTensors &given) { return program->program.enqueue(given, stream); });
}

fusion_status fusion_program_generate(fusion_program *program, size_t prompt_count,
                                      const int64_t *const *prompts, const size_t *lengths, int64_t tokens,
                                      const int64_t *end_token, int64_t chunk, uint64_t seed, size_t count,
                                      const char *const *names, const fusion_tensor *const *inputs,
                                      fusion_token each, void *context, int at_once) {
  return c::guarded([&]() -> Status {
    if ((prompt_count > 0 && (!prompts || !lengths)) || !each)
      return badInput("a generation needs its prompts, their lengths, and what takes the tokens");
    std::vector<std::vector<int64_t>> given;
    for (size_t i = 0; i < prompt_count; ++i) {
      if (!prompts[i] && lengths[i] > 0)
        return badInput("prompt " + std::to_string(i) + " has no tokens");
      given.emplace_back(prompts[i], prompts[i] + lengths[i]);
    }
    auto others = named(count, names, inputs);
    if (!others)
      return others.error();
    GenerateOptions options{
        .tokens = tokens, .chunk = chunk, .endToken = {}, .seed = seed, .inputs = *others, .onToken = {}};
    if (end_token)
      options.endToken = *end_token;
    bool ended = false;
    if (at_once)
      options.onToken = [&](size_t prompt, int64_t token) -> Status {
        ended = each(context, prompt, token) != 0;
        return ended ? Status(badInput("the caller ended the generation")) : Status();
      };
    auto generation = generate(program->program, given, options);
    if (!generation)
      return ended ? Status() : Status(generation.error());
    for (size_t prompt = 0; !at_once && prompt < prompt_count; ++prompt)
      for (int64_t token : generation->tokens[prompt])
        if (each(context, prompt, token) != 0)
          return {};
    return {};
  });
}

fusion_status fusion_program_fetch(fusion_program *program, size_t count, const char *const *names,
                                   const fusion_tensor *const *tensors, fusion_tensor **copies) {
  return c::guarded([&]() -> Status {
    auto given = named(count, names, tensors);
    return given
               ? give(program->program.fetch(*given), std::vector<std::string>(names, names + count), copies)
               : Status(given.error());
  });
}

fusion_status fusion_program_bench(fusion_program *program, size_t count, const char *const *names,
                                   const fusion_tensor *const *inputs, int iterations, int cold,
                                   double *times) {
  return c::guarded([&]() -> Status {
    if (iterations < 1)
      return badInput("a benchmark takes a number of runs, not " + std::to_string(iterations));
    auto given = named(count, names, inputs);
    if (!given)
      return given.error();
    auto measured = program->program.bench(*given, iterations, cold != 0);
    if (!measured)
      return measured.error();
    std::copy(measured->begin(), measured->end(), times);
    return {};
  });
}

fusion_status fusion_program_profile(fusion_program *program, size_t count, const char *const *names,
                                     const fusion_tensor *const *inputs, char **table, char **trace) {
  return c::guarded([&]() -> Status {
    auto given = named(count, names, inputs);
    if (!given)
      return given.error();
    auto profile = program->program.profile(*given);
    if (!profile)
      return profile.error();
    if (table)
      *table = c::copyText(profile->table);
    if (trace)
      *trace = c::copyText(profile->chromeTrace);
    return {};
  });
}

static Result<std::string> inFormat(const Report &report, const char *format) {
  const std::string_view wanted = format ? format : "";
  if (wanted == "json")
    return report.json();
  if (wanted == "markdown")
    return report.markdown();
  if (wanted == "html")
    return report.html();
  return badInput("a report is json, markdown or html, not '" + std::string(wanted) + "'");
}

static Status copyResult(const Result<std::string> &result, char **text) {
  if (!result)
    return result.error();
  *text = c::copyText(*result);
  return {};
}

fusion_status fusion_program_report(const fusion_program *program, const char *format, char **text) {
  return c::guarded([&] { return copyResult(inFormat(program->program.report(), format), text); });
}

fusion_status fusion_report_text(const char *report, const char *format, char **text) {
  return c::guarded([&]() -> Status {
    if (!report || !nlohmann::json::parse(report, nullptr, /*allow_exceptions=*/false).is_object())
      return badInput("the report is no JSON of fusion_graph_explain()");
    return copyResult(inFormat(Report(std::string(report)), format), text);
  });
}

fusion_status fusion_program_source(const fusion_program *program, char **text) {
  return c::guarded([&] { return copyResult(program->program.cudaSource(), text); });
}

fusion_status fusion_program_statistics(const fusion_program *program, char **json) {
  return c::guarded([&]() -> Status {
    const RunStatistics all = program->program.statistics();
    const nlohmann::json fields = {{"runs", all.runs},
                                   {"plans", all.plans},
                                   {"updates", all.updates},
                                   {"speculated", all.speculated},
                                   {"evaluations", all.evaluations},
                                   {"recordings", all.recordings},
                                   {"replays", all.replays},
                                   {"changed_launches", all.changedLaunches},
                                   {"why_one_by_one", all.whyOneByOne},
                                   {"host_microseconds", all.hostMicroseconds},
                                   {"variants", all.variants}};
    *json = c::copyText(fields.dump());
    return {};
  });
}
