// The C interface, by libfusion.so alone.
#include "Footprint.h"

#include <fusion.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

// DLPack's structs, as a user's own header has them.
extern "C" {
struct DLTensor {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(DLManagedTensor *);
};
}

namespace {
const std::string model = FUSION_SOURCE_DIR "/examples/llama/model.onnx";

struct Options {
  Options() { EXPECT_EQ(fusion_options_set(handle.get(), "device", "cpu"), FUSION_OK); }
  std::unique_ptr<fusion_options, void (*)(fusion_options *)> handle{fusion_options_create(),
                                                                     fusion_options_destroy};
};
using Graph = std::unique_ptr<fusion_graph, void (*)(fusion_graph *)>;
using Program = std::unique_ptr<fusion_program, void (*)(fusion_program *)>;
using Tensor = std::unique_ptr<fusion_tensor, void (*)(fusion_tensor *)>;

Graph load(const Options &options) {
  fusion_graph *graph = nullptr;
  EXPECT_EQ(fusion_graph_load(model.c_str(), options.handle.get(), &graph), FUSION_OK) << fusion_last_error();
  return {graph, fusion_graph_destroy};
}

Program compile(const Graph &graph, const Options &options) {
  fusion_program *program = nullptr;
  EXPECT_EQ(fusion_compile(graph.get(), options.handle.get(), &program), FUSION_OK) << fusion_last_error();
  return {program, fusion_program_destroy};
}

Program compileText(const std::string &text) {
  const Options options;
  fusion_graph *graph = nullptr;
  EXPECT_EQ(fusion_graph_load_bytes(text.data(), text.size(), nullptr, nullptr, "g.mlir",
                                    options.handle.get(), &graph),
            FUSION_OK)
      << fusion_last_error();
  return compile(Graph(graph, fusion_graph_destroy), options);
}

/// Token ids 1, 2, … of a batch of 2, which count how often they are let go.
struct Ids {
  explicit Ids(int first) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = first + static_cast<int64_t>(i);
    view = {{values.data(), 1, 0, 2, 0, 64, 1, shape, nullptr, 0}, &released, [](DLManagedTensor *view) {
              ++*static_cast<std::atomic<int> *>(view->manager_ctx);
            }};
  }
  Tensor tensor() {
    fusion_tensor *tensor = nullptr;
    EXPECT_EQ(fusion_tensor_from_dlpack(&view, &tensor), FUSION_OK) << fusion_last_error();
    return {tensor, fusion_tensor_destroy};
  }
  std::vector<int64_t> values = std::vector<int64_t>(32);
  int64_t shape[2] = {2, 16};
  std::atomic<int> released = 0;
  DLManagedTensor view;
};

std::vector<uint16_t> run(fusion_program *program, Ids &ids) {
  const Tensor input = ids.tensor();
  const char *name = "input_ids";
  const fusion_tensor *inputs[] = {input.get()};
  fusion_tensor *output = nullptr;
  EXPECT_EQ(fusion_program_run(program, 1, &name, inputs, &output), FUSION_OK) << fusion_last_error();
  DLManagedTensor *view = nullptr;
  EXPECT_EQ(fusion_tensor_to_dlpack(output, &view), FUSION_OK);
  fusion_tensor_destroy(output); // the view lives on
  const DLTensor &logits = view->dl_tensor;
  EXPECT_EQ(logits.bits, 16);
  std::vector<uint16_t> values(static_cast<size_t>(logits.shape[0] * logits.shape[1] * logits.shape[2]));
  std::memcpy(values.data(), logits.data, values.size() * 2);
  view->deleter(view);
  return values;
}
} // namespace

TEST(CInterface, RunsGraphsFromFilesAndBytes) {
  EXPECT_EQ(fusion_abi_version(), static_cast<uint32_t>(FUSION_ABI_VERSION));
  const Options options;
  Graph graph = load(options);
  size_t count = 0;
  const fusion_port *inputs = fusion_graph_inputs(graph.get(), &count);
  ASSERT_EQ(count, 1u);
  EXPECT_STREQ(inputs[0].name, "input_ids");
  EXPECT_STREQ(inputs[0].type, "i64");
  ASSERT_EQ(inputs[0].rank, 2u);
  EXPECT_STREQ(inputs[0].dims[0], "batch");
  const Program program = compile(graph, options);
  graph.reset(); // the program needs it no longer
  Ids ids(1);
  const auto expected = run(program.get(), ids);
  EXPECT_EQ(ids.released, 1);

  std::ifstream file(model, std::ios::binary);
  struct Held {
    std::string bytes;
    std::atomic<int> released = 0;
  } held{{std::istreambuf_iterator<char>(file), {}}};
  auto release = [](void *context) { ++static_cast<Held *>(context)->released; };
  fusion_graph *read = nullptr;
  ASSERT_EQ(fusion_graph_load_bytes(held.bytes.data(), held.bytes.size(), release, &held, "in memory",
                                    options.handle.get(), &read),
            FUSION_OK)
      << fusion_last_error();
  Program again = compile(Graph(read, fusion_graph_destroy), options);
  EXPECT_EQ(held.released, 0) << "the program's weights lie there";
  EXPECT_EQ(run(again.get(), ids), expected);
  again.reset();
  EXPECT_EQ(held.released, 1);
}

TEST(CInterface, ThreadsShareAProgramAndHaveErrorsOfTheirOwn) {
  const Options options;
  const Graph graph = load(options);
  const Program program = compile(graph, options);
  std::vector<std::vector<uint16_t>> expected;
  for (int first : {1, 50}) {
    Ids ids(first);
    expected.push_back(run(program.get(), ids));
  }
  EXPECT_NE(expected[0], expected[1]);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      const std::string name = "option-" + std::to_string(thread);
      Options own;
      EXPECT_EQ(fusion_options_set(own.handle.get(), name.c_str(), "1"), FUSION_BAD_INPUT);
      const Program compiled = compile(graph, own); // of one graph at once
      for (int i = 0; i < 3; ++i) {
        Ids ids(thread % 2 ? 50 : 1);
        EXPECT_EQ(run(i % 2 ? compiled.get() : program.get(), ids),
                  expected[static_cast<size_t>(thread % 2)]);
      }
      EXPECT_NE(std::string(fusion_last_error()).find(name), std::string::npos) << fusion_last_error();
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(CInterface, HandlesLeaveNothing) {
  const auto cycle = [] {
    const Options options;
    const Graph graph = load(options);
    const Program program = compile(graph, options);
    for (int i = 0; i < 2; ++i) {
      Ids ids(i);
      run(program.get(), ids);
    }
    fusion_graph *none = nullptr;
    EXPECT_EQ(fusion_graph_load("/nonexistent.onnx", options.handle.get(), &none), FUSION_BAD_INPUT);
  };
  const int times = fusion::test::repeats("FUSION_LIFETIME_CYCLES", 40);
  for (int i = 0; i < 10; ++i)
    cycle();
  const auto before = fusion::test::Footprint::now();
  for (int i = 0; i < times; ++i)
    cycle();
  const auto after = fusion::test::Footprint::now();
  const double grown = static_cast<double>(after.heap) - static_cast<double>(before.heap);
  if (fusion::test::heapIsKnown)
    EXPECT_LT(grown / times, 4096) << "bytes a cycle";
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
}

TEST(CInterface, SaysWhatItRefuses) {
  const Options options;
  auto refuses = [&](fusion_status status, const std::string &reason) {
    EXPECT_EQ(status, FUSION_BAD_INPUT);
    EXPECT_NE(std::string(fusion_last_error()).find(reason), std::string::npos) << fusion_last_error();
  };
  fusion_options *handle = options.handle.get();
  refuses(fusion_options_set(handle, "kv_capacty", "1"), "did you mean 'kv-capacity'?");
  refuses(fusion_options_set(handle, "kv-capacity", "-1"), "a number from 0 on, not '-1'");
  refuses(fusion_options_set(handle, "fuse", "yes"), "takes 1 or 0");
  refuses(fusion_options_set(handle, "target", "sm_1"), "takes one of sm_");
  fusion_graph *graph = nullptr;
  refuses(fusion_graph_load("absent.onnx", handle, &graph), "absent.onnx: no such file");
  refuses(fusion_graph_load("two\nlines.onnx", handle, &graph), "two lines.onnx: no such file");
  refuses(fusion_options_set(handle, "sample", "top-k=2\n"), "not 'top-k=2_'");
  refuses(fusion_graph_load_bytes("text", 4, nullptr, nullptr, "mine", handle, &graph),
          "mine: not an ONNX model");
  EXPECT_EQ(graph, nullptr);
  const Graph loaded = load(options);
  char *text = nullptr;
  refuses(fusion_graph_explain(loaded.get(), handle, "pictures", &text, nullptr),
          "mlir, cuda, plan or dot, not as 'pictures'");
  const Program program = compile(loaded, options);
  refuses(fusion_program_report(program.get(), "pdf", &text), "json, markdown or html, not 'pdf'");
  fusion_tensor *output = nullptr;
  refuses(fusion_program_run(program.get(), 0, nullptr, nullptr, &output), "input_ids");
  EXPECT_EQ(output, nullptr);
}

TEST(CInterface, InputsComeInAnyOrder) {
  const std::string text = R"(func.func @main(%z: tensor<2xf32>, %a: tensor<2xf32>, %m: tensor<2xf32>)
      -> (tensor<2xf32> {fusion.name = "y"}) {
    %0 = nn.sub %z, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1 = nn.mul %0, %m : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  })";
  const Program program = compileText(text);
  size_t count = 0;
  const fusion_port *ports = fusion_program_inputs(program.get(), &count);
  ASSERT_EQ(count, 3u);
  float numbers[3][2] = {{7, 1}, {2, 3}, {10, 100}};
  int64_t shape[] = {2};
  std::vector<DLManagedTensor> views(3);
  std::vector<Tensor> tensors;
  std::map<std::string, const fusion_tensor *> byName;
  for (size_t i = 0; i < 3; ++i) {
    views[i] = {{numbers[i], 1, 0, 1, 2, 32, 1, shape, nullptr, 0}, nullptr, nullptr};
    fusion_tensor *tensor = nullptr;
    ASSERT_EQ(fusion_tensor_from_dlpack(&views[i], &tensor), FUSION_OK) << fusion_last_error();
    tensors.emplace_back(tensor, fusion_tensor_destroy);
    byName[ports[i].name] = tensor;
  }
  std::vector<size_t> order = {0, 1, 2}; // first that of the program, then all others
  do {
    std::vector<const char *> names;
    std::vector<const fusion_tensor *> given;
    for (size_t i : order) {
      names.push_back(ports[i].name);
      given.push_back(byName[ports[i].name]);
    }
    fusion_tensor *output = nullptr;
    ASSERT_EQ(fusion_program_run(program.get(), 3, names.data(), given.data(), &output), FUSION_OK)
        << fusion_last_error();
    DLManagedTensor *view = nullptr;
    ASSERT_EQ(fusion_tensor_to_dlpack(output, &view), FUSION_OK);
    fusion_tensor_destroy(output);
    const float *y = static_cast<const float *>(view->dl_tensor.data);
    EXPECT_EQ(y[0], 50);
    EXPECT_EQ(y[1], -200);
    view->deleter(view);
  } while (std::next_permutation(order.begin(), order.end()));
  const char *twice[] = {ports[0].name, ports[1].name, ports[1].name};
  const fusion_tensor *given[] = {tensors[0].get(), tensors[1].get(), tensors[2].get()};
  fusion_tensor *output = nullptr;
  EXPECT_EQ(fusion_program_run(program.get(), 3, twice, given, &output), FUSION_BAD_INPUT);
  EXPECT_NE(std::string(fusion_last_error()).find("is given twice"), std::string::npos)
      << fusion_last_error();
}

TEST(CInterface, TensorsOverMemoryOfTheCallers) {
  std::vector<int64_t> values(6, 7);
  const int64_t shape[] = {2, 3}, negative[] = {2, -3};
  int released = 0;
  const fusion_release release = [](void *context) { ++*static_cast<int *>(context); };
  fusion_tensor *made = nullptr;
  ASSERT_EQ(fusion_tensor_wrap("i64", 2, shape, values.data(), release, &released, &made), FUSION_OK)
      << fusion_last_error();
  size_t rank = 0;
  EXPECT_STREQ(fusion_tensor_type(made), "i64");
  EXPECT_EQ(fusion_tensor_shape(made, &rank)[1], 3);
  EXPECT_EQ(rank, 2u);
  EXPECT_EQ(fusion_tensor_strides(made), nullptr); // dense
  EXPECT_EQ(fusion_tensor_data(made), values.data());
  EXPECT_EQ(released, 0);
  fusion_tensor_destroy(made);
  EXPECT_EQ(released, 1);

  // Refused, and let go all the same; the result is left alone.
  made = nullptr;
  EXPECT_EQ(fusion_tensor_wrap("i65", 2, shape, values.data(), release, &released, &made), FUSION_BAD_INPUT);
  EXPECT_NE(std::string(fusion_last_error()).find("'i65'"), std::string::npos);
  EXPECT_EQ(fusion_tensor_wrap("i64", 2, negative, values.data(), release, &released, &made),
            FUSION_BAD_INPUT);
  EXPECT_NE(std::string(fusion_last_error()).find("2x-3"), std::string::npos) << fusion_last_error();
  EXPECT_EQ(fusion_tensor_wrap("i64", 2, shape, nullptr, release, &released, &made), FUSION_BAD_INPUT);
  EXPECT_NE(std::string(fusion_last_error()).find("without memory"), std::string::npos);
  EXPECT_EQ(released, 4);
  EXPECT_EQ(made, nullptr);
}

TEST(CInterface, TensorsBoundForACall) {
  const Program negated = compileText(R"(func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %0 = nn.neg %x : (tensor<?xf32>) -> tensor<?xf32>
    return %0 : tensor<?xf32>
  })");
  const Program same = compileText(R"(func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    return %x : tensor<?xf32>
  })");
  fusion_tensor *handle = nullptr, *output = nullptr;
  auto bind = [&](std::vector<float> &values, int64_t stride) {
    int64_t shape[] = {static_cast<int64_t>(values.size())}; // not kept
    const DLManagedTensor view = {{values.data(), 1, 0, 1, 2, 32, 1, shape, &stride, 0}, nullptr, nullptr};
    return fusion_tensor_bind(&view, &handle);
  };
  auto run = [&](const Program &program) {
    size_t count = 0;
    const char *name = fusion_program_inputs(program.get(), &count)->name;
    return fusion_program_run(program.get(), 1, &name, &handle, &output);
  };
  int released = 0;
  const fusion_release release = [](void *context) { ++*static_cast<int *>(context); };
  std::vector<float> two = {1, 2}, three = {3, 4, 5}, none;

  EXPECT_EQ(bind(two, 2), FUSION_BAD_INPUT);
  EXPECT_EQ(handle, nullptr);
  fusion_tensor *first = nullptr;
  for (std::vector<float> *values : {&two, &three, &none, &two}) {
    ASSERT_EQ(bind(*values, 1), FUSION_OK) << fusion_last_error();
    EXPECT_EQ(handle, first ? first : handle);
    first = handle;
    EXPECT_EQ(bind(three, 1), FUSION_BAD_INPUT); // is bound
    EXPECT_NE(std::string(fusion_last_error()).find("unbind it first"), std::string::npos);
    ASSERT_EQ(run(negated), FUSION_OK) << fusion_last_error();
    size_t rank = 0;
    ASSERT_EQ(fusion_tensor_shape(output, &rank)[0], static_cast<int64_t>(values->size()));
    for (size_t i = 0; i < values->size(); ++i)
      EXPECT_EQ(static_cast<const float *>(fusion_tensor_data(output))[i], -(*values)[i]);
    fusion_tensor_destroy(output);
    EXPECT_EQ(fusion_tensor_unbind(handle, release, &released), 0);
    EXPECT_EQ(bind(two, 2), FUSION_BAD_INPUT); // stays unbound
  }
  EXPECT_EQ(released, 0);

  ASSERT_EQ(bind(three, 1), FUSION_OK) << fusion_last_error();
  ASSERT_EQ(run(same), FUSION_OK) << fusion_last_error();
  EXPECT_EQ(fusion_tensor_data(output), three.data());
  EXPECT_EQ(fusion_tensor_unbind(handle, release, &released), 1); // the result has it
  fusion_tensor_destroy(handle);
  EXPECT_EQ(released, 0);
  fusion_tensor_destroy(output);
  EXPECT_EQ(released, 1);
}

TEST(CInterface, OneBoundTensorForTwoInputs) {
  const Program program = compileText(R"(func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
    %0 = nn.sub %x, %y : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  })");
  float one = 1, other = 10;
  auto bound = [&](float &value) {
    fusion_tensor *handle = nullptr;
    const DLManagedTensor view = {{&value, 1, 0, 0, 2, 32, 1, nullptr, nullptr, 0}, nullptr, nullptr};
    EXPECT_EQ(fusion_tensor_bind(&view, &handle), FUSION_OK);
    return handle;
  };
  fusion_tensor *a = bound(one), *b = bound(other);
  const fusion_port *ports = fusion_program_inputs(program.get(), nullptr);
  const char *px = ports[0].name, *py = ports[1].name;
  auto first = [&](std::vector<const char *> names, std::vector<const fusion_tensor *> tensors) {
    fusion_tensor *output = nullptr;
    EXPECT_EQ(fusion_program_run(program.get(), 2, names.data(), tensors.data(), &output), FUSION_OK);
    const float value = output ? *static_cast<const float *>(fusion_tensor_data(output)) : -1;
    fusion_tensor_destroy(output);
    return value;
  };
  EXPECT_EQ(first({px, py}, {a, a}), 0);
  EXPECT_EQ(first({px, py}, {a, b}), -9);
  EXPECT_EQ(first({std::string(px).c_str(), std::string(py).c_str()}, {b, a}), 9);
  EXPECT_EQ(first({py, px}, {b, a}), -9);
  for (fusion_tensor *each : {a, b}) {
    EXPECT_EQ(fusion_tensor_unbind(each, nullptr, nullptr), 0);
    fusion_tensor_destroy(each);
  }
}

TEST(CInterface, ExplainsWithoutAGpu) {
  const Options options;
  const Graph graph = load(options);
  char *text = nullptr, *report = nullptr, *page = nullptr;
  ASSERT_EQ(fusion_graph_explain(graph.get(), options.handle.get(), "cuda", &text, &report), FUSION_OK)
      << fusion_last_error();
  EXPECT_NE(std::string(text).find("__global__"), std::string::npos);
  ASSERT_EQ(fusion_report_text(report, "markdown", &page), FUSION_OK) << fusion_last_error();
  EXPECT_NE(std::string(page).find("| rope | 2 |"), std::string::npos) << page;
  for (char *each : {text, report, page})
    fusion_free(each);
}
