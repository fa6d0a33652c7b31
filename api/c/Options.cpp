#include "api/c/Handles.h"
#include "ir/base/Nearest.h"

#include <charconv>

using namespace fusion;

namespace {
Result<bool> yes(const std::string &name, const std::string &value) {
  if (value == "1" || value == "0")
    return value == "1";
  return badInput("option " + name + " takes 1 or 0, not '" + value + "'");
}

template <class Integer>
Status setNumber(const std::string &name, const std::string &value, Integer least, Integer &target) {
  Integer number = 0;
  const char *end = value.data() + value.size();
  auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < least)
    return badInput("option " + name + " takes a number from " + std::to_string(least) + " on, not '" +
                    value + "'");
  target = number;
  return {};
}

Status setKernel(CompileOptions &options, const std::string &value) {
  const size_t equals = value.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == value.size())
    return badInput("option kernel takes NAME=FILE.cu, not '" + value + "'");
  options.kernels.push_back({value.substr(0, equals), value.substr(equals + 1)});
  return {};
}

using Setter = Status (*)(fusion_options &options, const std::string &name, const std::string &value);

/// A setter for a yes/no option.
template <auto member>
Status setFlag(fusion_options &options, const std::string &name, const std::string &value) {
  auto on = yes(name, value);
  if (!on)
    return on.error();
  options.compile.*member = *on;
  return {};
}

const std::map<std::string_view, Setter> &setters() {
  using O = CompileOptions;
  static const std::map<std::string_view, Setter> all = {
      {"assume-finite", setFlag<&O::assumeFinite>},
      {"batch-invariant", setFlag<&O::batchInvariant>},
      {"cache", [](fusion_options &o, const std::string &,
                   const std::string &v) { return o.compile.cacheFolder = v, Status(); }},
      {"device",
       [](fusion_options &o, const std::string &, const std::string &v) -> Status {
         const auto device = runOnNamed(v);
         if (!device)
           return badInput("option device takes auto, cpu, cuda or emulate, not '" + v + "'");
         o.compile.device = *device;
         return {};
       }},
      {"donate-caches", setFlag<&O::donateCaches>},
      {"fuse", setFlag<&O::fuse>},
      {"fuse-disable", [](fusion_options &o, const std::string &,
                          const std::string &v) { return o.compile.disabledFusions.push_back(v), Status(); }},
      {"kernel",
       [](fusion_options &o, const std::string &, const std::string &v) { return setKernel(o.compile, v); }},
      {"kv-capacity", [](fusion_options &o, const std::string &n,
                         const std::string &v) { return setNumber<int64_t>(n, v, 0, o.compile.kvCapacity); }},
      {"launcher", setFlag<&O::launcher>},
      {"patterns", [](fusion_options &o, const std::string &,
                      const std::string &v) { return o.compile.patternFiles.push_back(v), Status(); }},
      {"profit",
       [](fusion_options &o, const std::string &, const std::string &v) -> Status {
         if (v != "auto" && v != "model" && v != "measure")
           return badInput("option profit takes auto, model or measure, not '" + v + "'");
         o.compile.profit = v == "auto"    ? ProfitMode::Auto
                            : v == "model" ? ProfitMode::Model
                                           : ProfitMode::Measure;
         return {};
       }},
      {"ranks", [](fusion_options &o, const std::string &n,
                   const std::string &v) { return setNumber<int>(n, v, 1, o.load.ranks); }},
      {"sample",
       [](fusion_options &o, const std::string &, const std::string &v) -> Status {
         auto sampling = samplingNamed(v);
         if (!sampling)
           return sampling.error();
         o.load.sampling = *sampling;
         return {};
       }},
      {"shared-caches",
       [](fusion_options &o, const std::string &n, const std::string &v) -> Status {
         auto on = yes(n, v);
         if (!on)
           return on.error();
         o.load.sharedCaches = *on;
         return {};
       }},
      {"target",
       [](fusion_options &o, const std::string &, const std::string &v) -> Status {
         if (!Target{v}.isKnown())
           return badInput("option target takes one of " + Target::known() + ", not '" + v + "'");
         o.compile.target.arch = v;
         return {};
       }},
      {"tp", [](fusion_options &o, const std::string &n,
                const std::string &v) { return setNumber<int>(n, v, 1, o.compile.tensorParallel); }},
      {"tp-vocabulary", setFlag<&O::vocabularyParallel>}};
  return all;
}

/// The caller's function as Fusion.h has it.
struct Gathering {
  fusion_all_gather function;
  void *context;

  Result<std::vector<std::string>> operator()(const std::string &mine) const {
    struct Sink {
      std::vector<std::string> answers;
      bool inOrder = true;
    } sink;
    const int status = function(
        context, mine.data(), mine.size(),
        [](void *sink, int rank, const char *bytes, size_t size) {
          auto &kept = *static_cast<Sink *>(sink);
          kept.inOrder = kept.inOrder && rank == static_cast<int>(kept.answers.size());
          kept.answers.emplace_back(bytes, size);
        },
        &sink);
    if (status != 0)
      return environment("the ranks could not be gathered: all_gather returned " + std::to_string(status));
    if (!sink.inOrder)
      return badInput("all_gather did not answer in the order of the ranks");
    return std::move(sink.answers);
  }
};

Status put(NamedTensors &tensors, const char *name, const fusion_tensor *tensor) {
  if (!name || !tensor)
    return badInput("a tensor needs a name and a handle");
  tensors.insert_or_assign(name, tensor->tensor);
  return {};
}
} // namespace

fusion_options *fusion_options_create(void) {
  try {
    return new fusion_options();
  } catch (const std::exception &problem) {
    c::fail(environment(problem.what()));
    return nullptr;
  }
}

void fusion_options_destroy(fusion_options *options) { delete options; }

fusion_status fusion_options_set(fusion_options *options, const char *name, const char *value) {
  return c::guarded([&]() -> Status {
    if (!options || !name || !value)
      return badInput("an option needs a handle, a name and a value");
    auto setter = setters().find(name);
    if (setter == setters().end())
      return badInput(std::string("there is no option '") + name + "'" + didYouMean(name, setters()));
    return setter->second(*options, name, value);
  });
}

fusion_status fusion_options_weight(fusion_options *options, const char *name, const fusion_tensor *tensor) {
  return c::guarded([&] { return put(options->load.weights, name, tensor); });
}

fusion_status fusion_options_constant(fusion_options *options, const char *name,
                                      const fusion_tensor *tensor) {
  return c::guarded([&] { return put(options->load.constants, name, tensor); });
}

fusion_status fusion_options_file(fusion_options *options, const char *location, const void *bytes,
                                  size_t size, fusion_release release, void *context) {
  return c::guarded([&]() -> Status {
    if (!location || (!bytes && size > 0))
      return badInput("a file in memory needs a location and its bytes");
    options->load.files.insert_or_assign(location, Tensor::wrap(DType::U8, {static_cast<int64_t>(size)},
                                                                const_cast<void *>(bytes),
                                                                c::ownerOf(release, context)));
    return {};
  });
}

fusion_status fusion_options_rank(fusion_options *options, int rank, int ranks, int gpu, const char *host,
                                  fusion_all_gather all_gather, void *context) {
  return c::guarded([&]() -> Status {
    if (!all_gather)
      return badInput("a rank needs all_gather: the ranks cannot find each other");
    options->compile.processRank =
        ProcessRank{rank, ranks, gpu, Gathering{all_gather, context}, host ? host : ""};
    return {};
  });
}
