/* Runs a language model's graph on one sequence through the C interface: c_interface MODEL.onnx TOKEN... */
#include <fusion.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(fusion_status status) {
  fprintf(stderr, "c_interface: %s\n", fusion_last_error());
  return (int)status;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fputs("usage: c_interface MODEL.onnx TOKEN...\n", stderr);
    return FUSION_BAD_INPUT;
  }
  fusion_graph *graph = NULL;
  fusion_program *program = NULL;
  fusion_status status = fusion_graph_load(argv[1], NULL, &graph);
  if (status == FUSION_OK)
    status = fusion_compile(graph, NULL, &program); /* on the GPU if there is one */
  fusion_graph_destroy(graph);
  if (status != FUSION_OK)
    return fail(status);

  int64_t shape[2] = {1, argc - 2};
  int64_t *tokens = malloc((size_t)shape[1] * sizeof *tokens);
  if (!tokens)
    return FUSION_LACKING;
  for (int i = 0; i < argc - 2; ++i)
    tokens[i] = strtoll(argv[i + 2], NULL, 10);
  fusion_tensor *ids = NULL, *result = NULL, *logits = NULL;
  status = fusion_tensor_wrap("i64", 2, shape, tokens, free, tokens, &ids);
  const char *input = fusion_program_inputs(program, NULL)->name;
  const char *output = fusion_program_outputs(program, NULL)->name;
  if (status == FUSION_OK)
    status = fusion_program_run(program, 1, &input, (const fusion_tensor *const *)&ids, &result);
  if (status == FUSION_OK)
    status = fusion_program_fetch(program, 1, &output, (const fusion_tensor *const *)&result,
                                  &logits); /* to the host */
  if (status != FUSION_OK)
    return fail(status);

  size_t rank = 0;
  const int64_t *dims = fusion_tensor_shape(logits, &rank);
  printf("%s on %s: %s", output, fusion_program_device(program), fusion_tensor_type(logits));
  for (size_t i = 0; i < rank; ++i)
    printf(" %lld", (long long)dims[i]);
  putchar('\n');
  fusion_tensor_destroy(logits);
  fusion_tensor_destroy(result);
  fusion_tensor_destroy(ids);
  fusion_program_destroy(program);
  return 0;
}
