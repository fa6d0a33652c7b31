// Queues runs without waiting for them, as a serving engine does: streams MODEL INPUTS.safetensors [RUNS]
// On a GPU the runs go to the default stream, one after the other, and the results stay on the device until
// they are fetched; a real engine passes its own cudaStream_t, and tensors of its own through
// fusion::fromDLPack. Without a GPU the same code runs on the host.
#include <fusion/Fusion.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

static int fail(const fusion::Error &error) {
  std::fprintf(stderr, "streams: %s\n", error.message.c_str());
  return static_cast<int>(error.kind);
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 4) {
    std::fputs("usage: streams MODEL INPUTS.safetensors [RUNS]\n", stderr);
    return 2;
  }
  auto graph = fusion::Graph::load(argv[1]);
  if (!graph)
    return fail(graph.error());
  auto inputs = fusion::readSafetensors(argv[2]);
  if (!inputs)
    return fail(inputs.error());
  auto program = fusion::compile(*graph);
  if (!program)
    return fail(program.error());

  void *stream = nullptr; // a cudaStream_t; null is the default stream
  const int runs = argc == 4 ? std::max(1, std::atoi(argv[3])) : 3;
  fusion::NamedTensors outputs;
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) { // from the third on, each is one CUDA graph
    auto queued = program->enqueue(*inputs, stream);
    if (!queued)
      return fail(queued.error());
    outputs = *queued;
  }
  std::chrono::duration<double, std::micro> queuing = std::chrono::steady_clock::now() - begin;

  // A view for another library: no copy, the memory lives until the view is released.
  for (const auto &[name, tensor] : outputs) {
    DLManagedTensor *view = fusion::toDLPack(tensor);
    std::printf("%s: %s, DLPack device %d\n", name.c_str(), fusion::shapeString(tensor.shape()).c_str(),
                static_cast<int>(view->dl_tensor.device.device_type));
    view->deleter(view);
  }
  auto results = program->fetch(outputs); // waits for everything queued
  if (!results)
    return fail(results.error());
  auto alone = program->run(*inputs);
  if (!alone)
    return fail(alone.error());
  for (const auto &[name, tensor] : *alone) {
    auto difference = fusion::compare(results->at(name), tensor);
    if (!difference)
      return fail(difference.error());
    std::printf("%s: differs by %g from a run alone\n", name.c_str(), difference->maxAbs);
    if (difference->maxAbs != 0)
      return 1;
  }
  std::printf("%d runs on %s, %.0f us to queue one\n", runs, program->device().c_str(),
              queuing.count() / runs);
  return 0;
}
