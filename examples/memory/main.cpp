// Everything lies in memory of the application: the model's bytes, a weight and the tensors. None of it is
// copied on the host. memory MODEL.onnx, with the graph of examples/llama: the weight of the last norm is an
// array of the application's, the ids are another library's tensor, handed over by DLPack. Uses the GPU if
// there is one. Exits with 1 if the numbers are wrong.
#include <fusion/Fusion.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

static int fail(const fusion::Error &error) {
  std::fprintf(stderr, "memory: %s\n", error.message.c_str());
  return static_cast<int>(error.kind);
}

// What another library hands over: its memory, and a function that lets go of it.
struct OtherLibrary {
  std::vector<int64_t> ids, shape;
  DLManagedTensor view{};
  bool released = false;

  explicit OtherLibrary(std::vector<int64_t> values) : ids(std::move(values)), shape{1, (int64_t)ids.size()} {
    view.dl_tensor = {ids.data(), {1, 0}, 2, {0, 64, 1}, shape.data(), nullptr, 0}; // i64 on the host
    view.manager_ctx = this;
    view.deleter = [](DLManagedTensor *self) {
      static_cast<OtherLibrary *>(self->manager_ctx)->released = true;
    };
  }
};

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fputs("usage: memory MODEL.onnx\n", stderr);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {}); // as if it had been received
  std::vector<uint16_t> norm(128, 0); // f16: zeros, so that every logit is zero
  OtherLibrary library({1, 5, 9});
  {
    fusion::LoadOptions options;
    options.weights["m.model.norm.weight"] =
        fusion::Tensor::wrap(fusion::DType::F16, {128}, norm.data(), nullptr);
    // Without an owner the bytes have to live as long as the program.
    auto graph = fusion::Graph::load({std::as_bytes(std::span(bytes)), nullptr, "received.onnx"}, options);
    if (!graph)
      return fail(graph.error());
    auto program = fusion::compile(*graph);
    if (!program)
      return fail(program.error());
    auto ids = fusion::fromDLPack(&library.view);
    if (!ids)
      return fail(ids.error());
    auto outputs = program->run({{"input_ids", *ids}});
    if (!outputs)
      return fail(outputs.error());

    const fusion::Tensor &logits = outputs->at("logits");
    const std::vector<float> values = logits.toFloats();
    if (std::any_of(values.begin(), values.end(), [](float value) { return value != 0; })) {
      std::puts("the model's own norm was used");
      return 1;
    }
    std::printf("logits %s of the given norm, on %s\n", fusion::shapeString(logits.shape()).c_str(),
                program->device().c_str());
  }
  std::printf("the ids were %s\n", library.released ? "given back" : "kept");
  return library.released ? 0 : 1;
}
