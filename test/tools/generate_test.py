"""fusion-run --generate, --sample: against onnxruntime's greedy loop, and the devices against each other."""
import os
import struct
import tarfile
import tempfile
import unittest

from exporters_test import PACKED, fill
from harness import ToolTest, graph, named, read_safetensors, write_safetensors

# What onnxruntime 1.32 chooses, one token after the other, shorter prompts padded in front under the mask.
PROMPTS = ["--prompt=1,5,9,200,7", "--prompt=3,4"]
OLMO = [[15, 15, 15, 15, 229, 183, 15, 15], [179, 222, 216, 141, 90, 138, 123, 77]]
QWEN = [[133, 245, 81, 106, 211, 39, 20, 106]]
# Chooses the sum of a token's three positions, of its row in the caches and of all that it sees, modulo 8.
POSITIONS = """
func.func @main(%ids: tensor<?x?xi64> {nn.name = "input_ids", nn.dims = ["batch", "sequence"]},
    %positions: tensor<3x?x?xi64> {nn.name = "position_ids", nn.dims = [3, "batch", "sequence"]},
    %rows: tensor<?xi64> {nn.name = "cache_position", nn.dims = ["sequence"]},
    %mask: tensor<?x?xi64> {nn.name = "attention_mask", nn.dims = ["batch", "past + sequence"]},
    %past: tensor<?x1x?x8xf32> {nn.name = "past.0.key", nn.dims = ["batch", 1, "past", 8]})
    -> (tensor<?x?x8xf32> {nn.name = "logits"}, tensor<?x1x?x8xf32> {nn.name = "present.0.key"}) {
  %table = nn.constant {value = dense<1.0> : tensor<8x8xf32>} : () -> tensor<8x8xf32>
  %0 = nn.gather %table, %ids {axis = 0 : i64} : (tensor<8x8xf32>, tensor<?x?xi64>) -> tensor<?x?x8xf32>
  %1 = nn.reshape %0 {shape = ["batch", 1, "sequence", 8]} : (tensor<?x?x8xf32>) -> tensor<?x1x?x8xf32>
  %2 = nn.concat %past, %1 {axis = 2 : i64} : (tensor<?x1x?x8xf32>, tensor<?x1x?x8xf32>) -> tensor<?x1x?x8xf32>
  %3 = nn.reduce %positions {axes = array<i64: 0>, keepdims = false, kind = "sum"} : (tensor<3x?x?xi64>) -> tensor<?x?xi64>
  %4 = nn.add %3, %rows : (tensor<?x?xi64>, tensor<?xi64>) -> tensor<?x?xi64>
  %seen = nn.reduce %mask {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x?xi64>) -> tensor<?x1xi64>
  %all = nn.add %4, %seen : (tensor<?x?xi64>, tensor<?x1xi64>) -> tensor<?x?xi64>
  %eight = nn.constant {value = dense<8> : tensor<i64>} : () -> tensor<i64>
  %token = nn.mod %all, %eight : (tensor<?x?xi64>, tensor<i64>) -> tensor<?x?xi64>
  %5 = nn.reshape %token {shape = ["batch", "sequence", 1]} : (tensor<?x?xi64>) -> tensor<?x?x1xi64>
  %columns = nn.constant {value = dense<[0, 1, 2, 3, 4, 5, 6, 7]> : tensor<8xi64>} : () -> tensor<8xi64>
  %6 = nn.sub %columns, %5 : (tensor<8xi64>, tensor<?x?x1xi64>) -> tensor<?x?x8xi64>
  %7 = nn.cast %6 : (tensor<?x?x8xi64>) -> tensor<?x?x8xf32>
  %8 = nn.mul %7, %7 : (tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %9 = nn.neg %8 : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %9, %2 : tensor<?x?x8xf32>, tensor<?x1x?x8xf32>
}
"""
DRAWN = "--sample=temperature=1.5,top-k=40,top-p=0.95"


class Generate(ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.place.cleanup)
        wanted = ("mobius-olmo2-cuda", "genaib-qwen3-fp32-cpu")
        with tarfile.open(PACKED) as packed:
            packed.extractall(cls.place.name, [member for member in packed if member.name.split("/")[1:2]
                                               and member.name.split("/")[1] in wanted])
        cls.olmo, cls.qwen = (fill(os.path.join(cls.place.name, "exporters", name)) for name in wanted)

    def expect(self, tokens):
        data = b"".join(struct.pack("<q", token) for row in tokens for token in row)
        write_safetensors(self.path("tokens.safetensors"),
                          {"tokens": ("I64", [len(tokens), len(tokens[0])], data)})
        return "--expect=" + self.path("tokens.safetensors")

    def test_as_onnxruntime(self):
        for more in (["--device=cpu"], ["--device=cpu", "--chunk=2", "--kv-capacity=16"]):
            out, _ = self.run_tool("fusion-run", self.olmo, "--generate=8", *PROMPTS, self.expect(OLMO),
                                   *more)
            self.assertRegex(out, r"^tokens 2x8 i64 PASS\ngenerate: 16 tokens of 2 prompts, the first after \S+ us, then one in \S+ us, ")
        for more in (["--device=cpu"], ["--device=emulate", "--kv-capacity=16", "--chunk=3"]):
            self.run_tool("fusion-run", self.qwen, "--generate=8", PROMPTS[0], self.expect(QWEN), *more)
        out, _ = self.run_tool("fusion-run", self.qwen, "--generate=8", "--prompt=1,5,9,200,8",
                               self.expect(QWEN), "--device=cpu", exit=1)
        self.assertRegex(out, r"^tokens 1x8 i64 FAIL token \d of prompt 0 is \d+, not \d+\n")

    def test_all_devices_draw_the_same(self):
        def draw(*more):
            return self.run_tool("fusion-run", self.olmo, "--quiet", "--generate=8", *PROMPTS, DRAWN,
                                 *more)[0].split("generate:")[0]

        first = draw("--device=cpu")
        self.assertRegex(first, r"^(tokens:( \d+){8}\n){2}$")
        self.assertEqual(draw("--device=emulate", "--kv-capacity=16", "--chunk=2"), first)
        self.assertNotEqual(draw("--device=cpu", "--seed=1"), first)

    def test_end(self):
        out, _ = self.run_tool("fusion-run", self.qwen, "--quiet", "--device=cpu", "--generate=8", PROMPTS[0],
                               "--end-token=106")
        self.assertTrue(out.startswith("tokens: 133 245 81 106\n"), out)

    def test_one_token_at_a_time(self):
        """A graph of one position takes prompts so; its prompts come from a file."""
        ids = struct.pack("<6q", 0, 0, 7, 1, 2, 3)
        write_safetensors(self.path("in.safetensors"),
                          {"input_ids": ("I64", [2, 3], ids),
                           "attention_mask": ("I64", [2, 3], struct.pack("<6q", 0, 0, 1, 1, 1, 1))})
        model = graph("llama-fp16-decode")
        out, _ = self.run_tool("fusion-run", model, "--quiet", "--device=cpu", "--generate=4",
                               "--inputs=" + self.path("in.safetensors"))
        same, _ = self.run_tool("fusion-run", model, "--quiet", "--device=cpu", "--generate=4", "--prompt=7",
                                "--prompt=1,2,3")
        self.assertEqual(out.split("generate:")[0], same.split("generate:")[0])

    def test_positions(self):
        """Of a multimodal model's text all kinds of positions are alike; rows of caches count the padding."""
        self.write("positions.mlir", POSITIONS)
        prompts = {"--prompt=1 --prompt=5,2": (1, 0), "--prompt=5,2 --prompt=3,4": (0, 0)}
        for given, padding in prompts.items():
            tokens = [[(3 * (row - pad) + row + row + 1 - pad) % 8 for row in range(1, 281)] for pad in padding]
            for device in ("cpu", "emulate"):
                self.run_tool("fusion-run", self.path("positions.mlir"), "--quiet", "--device=" + device,
                              "--generate=280", *given.split(), self.expect(tokens))
        self.write("flat.mlir", POSITIONS.replace("3x?x?xi64", "?x?x?xi64").replace("[3, ", '["kinds", '))
        self.refuse("fusion-run", self.path("flat.mlir"), "--device=cpu", "--generate=2", "--prompt=1",
                    says="generating needs position_ids of [batch, sequence], or a number of such in front")

    def test_refusals(self):
        self.refuse("fusion-run", graph("llama-fp32-op18"), "--device=cpu", "--generate=2", "--prompt=1",
                    says="generating needs caches")
        self.refuse("fusion-run", self.qwen, "--device=cpu", "--generate=2", *PROMPTS,
                    says="prompts of different lengths need inputs attention_mask and position_ids")
        self.refuse("fusion-run", self.qwen, "--device=cpu", "--generate=0", "--prompt=1",
                    says="--generate takes a number of tokens")
        self.refuse("fusion-run", self.qwen, "--device=cpu", "--generate=2", "--prompt=a",
                    says="--prompt takes token ids")
        self.refuse("fusion-run", self.qwen, "--device=cpu", "--generate=2", says="--generate needs prompts")
        self.refuse("fusion-run", self.qwen, "--device=cpu", "--seed=2", says="--seed needs --generate")
        for bad in ("hot", "temperature=0", "top-p=2", "top-k=-1", "no-logits", "greedy,top-p=0.5", "greedy,",
                    "no-logits=1,greedy"):
            self.refuse("fusion-run", self.qwen, "--device=cpu", "--sample=" + bad, "--generate=1",
                        "--prompt=1", says="--sample: ")


class Sample(ToolTest):
    def test_last_position_alone(self):
        """The head multiplies the rows of the last position, and a kernel draws."""
        out, _ = self.run_tool("fusion-opt", graph("llama-fp32-op18"), "--fuse",
                               "--sample=temperature=0.7,top-k=5", "--emit=mlir")
        self.assertEqual(out.count("nn.slice"), 1)
        self.assertIn('starts = [0, "sequence - 1", 0]', out)
        self.assertRegex(out, r'tensor<\?x1x256xf32> {nn.dims = \["batch", 1, 256\], nn.name = "logits"}')
        self.assertEqual(out.count("fusion.group \"add_norm\""), 1)  # of the last norm
        self.assertRegex(out, r"nn\.sample [^\n]*\(tensor<\?x1x256xf32>, tensor<2xi64>\) -> tensor<\?x1xi64>")
        self.assertNotRegex(out, r"nn\.matmul [^\n]*tensor<\?x\?x256xf32>\n    return")

    def test_without_logits(self):
        """They are no result; without them the same token is chosen."""
        for sampling, kept in (("greedy", True), ("greedy,no-logits", False),
                               ("no-logits,temperature=0.7", False)):
            out, _ = self.run_tool("fusion-opt", graph("llama-fp32-op18"), "--sample=" + sampling, "--emit=mlir")
            self.assertEqual('nn.name = "logits"' in out, kept, sampling)
            self.assertIn('nn.name = "next_tokens"', out)
        inputs = named("llama-fp16-decode", device="emulate")
        self.run_tool("fusion-run", *inputs, "--sample=greedy", "--quiet", "--outputs=all.safetensors")
        run = (*inputs, "--sample=greedy,no-logits", "--quiet")
        self.run_tool("fusion-run", *run, "--outputs=fewer.safetensors")
        kept, fewer = (read_safetensors(self.path(name)) for name in ("all.safetensors", "fewer.safetensors"))
        self.assertEqual(kept.keys() - fewer.keys(), {"logits"})
        self.assertEqual(kept["next_tokens"], fewer["next_tokens"])


class Memory(ToolTest):
    def test_what_does_not_fit(self):
        """By how much, in one line, before anything is allocated."""
        self.refuse("fusion-run", *named("llama-fp16-decode", device="emulate"), "--quiet",
                    "--kv-capacity=2000", "--memory-limit=0.0005", exit=3,
                    says=" more than the 524.3 KiB there are for it on ")
        _, err = self.run_tool("fusion-run", *named("llama-fp16-decode", device="emulate"),
                               "--kv-capacity=2000", "--memory-limit=0.01")
        self.assertRegex(err, r"memory: caches 2\.0 MiB, temporaries \S+ KiB, results \S+ KiB; 10\.2 MiB there are\n")
        self.assertRegex(err, r"memory: at most \S+ MiB at once")


if __name__ == "__main__":
    unittest.main()
