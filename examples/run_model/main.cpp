// Runs a graph through the C++ library: run_model MODEL.onnx INPUTS.safetensors [EXPECTED.safetensors]
// Uses the GPU if there is one. Exits with 1 if an output is further from the expected one than 1 % (relative
// L2).
#include <fusion/Fusion.h>

#include <cstdio>
#include <string>

static int fail(const fusion::Error &error) {
  std::fprintf(stderr, "run_model: %s\n", error.message.c_str());
  return static_cast<int>(error.kind);
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 4) {
    std::fputs("usage: run_model MODEL.onnx INPUTS.safetensors [EXPECTED.safetensors]\n", stderr);
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
  auto outputs = program->run(*inputs);
  if (!outputs)
    return fail(outputs.error());

  std::printf("ran on %s\n", program->device().c_str());
  for (const auto &[name, tensor] : *outputs)
    std::printf("%s: %s\n", name.c_str(), fusion::shapeString(tensor.shape()).c_str());
  std::puts(program->report().markdown().c_str());

  if (argc < 4)
    return 0;
  auto expected = fusion::readSafetensors(argv[3]);
  if (!expected)
    return fail(expected.error());
  bool close = true;
  for (const auto &[name, tensor] : *outputs) {
    auto known = expected->find(name);
    if (known == expected->end())
      continue;
    auto difference = fusion::compare(tensor, known->second);
    if (!difference)
      return fail(difference.error());
    std::printf("%s: relative L2 error %.2e\n", name.c_str(), difference->relativeL2);
    close = close && difference->relativeL2 <= 0.01;
  }
  return close ? 0 : 1;
}
