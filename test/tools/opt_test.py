"""fusion-opt as its users call it."""
import json
import os
import unittest

from harness import ToolTest, graph

LLAMA = graph("llama-fp32-op18")
GRAPHS = sorted(os.listdir(os.path.dirname(os.path.dirname(LLAMA))))
GRAPHS = [name for name in GRAPHS if os.path.exists(graph(name))]


class RoundTrip(ToolTest):
    def test_every_graph(self):
        for name in GRAPHS:
            with self.subTest(name):
                self.run_tool("fusion-opt", graph(name), "-o", "a.mlir")
                out, _ = self.run_tool("fusion-opt", "a.mlir")
                self.assertEqual(out, self.read("a.mlir"))

    def test_fused_graph(self):
        self.run_tool("fusion-opt", LLAMA, "--fuse", "-o", "a.mlir")
        self.assertIn("fusion.group", self.read("a.mlir"))
        out, _ = self.run_tool("fusion-opt", "a.mlir")
        self.assertEqual(out, self.read("a.mlir"))

    def test_locations(self):
        self.run_tool("fusion-opt", LLAMA, "--mlir-print-debuginfo", "-o", "a.mlir")
        self.assertIn("m.model.layers.1.post_attention_layernorm", self.read("a.mlir"))
        out, _ = self.run_tool("fusion-opt", "a.mlir", "--mlir-print-debuginfo")
        self.assertEqual(out, self.read("a.mlir"))

    def test_text_fuses_like_the_model(self):
        self.run_tool("fusion-opt", LLAMA, "--mlir-print-debuginfo", "-o", "a.mlir")
        direct, _ = self.run_tool("fusion-opt", LLAMA, "--fuse")
        text, _ = self.run_tool("fusion-opt", "a.mlir", "--fuse", "--trust-paths")
        self.assertEqual(direct, text)


# A location that is markup.
MARKUP = """
func.func @main(%x: tensor<4x128xf32>, %r: tensor<4x128xf32>, %w: tensor<128xf32>) -> tensor<4x128xf32> {
  %s = nn.add %x, %r : (tensor<4x128xf32>, tensor<4x128xf32>) -> tensor<4x128xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<4x128xf32>, tensor<128xf32>) -> tensor<4x128xf32> loc("<b>\\"a\\" & 'b'</b>")
  return %n : tensor<4x128xf32>
}
"""


class Reports(ToolTest):
    def report(self, *options):
        self.run_tool("fusion-opt", LLAMA, "--fuse", "--report=r.json", "-o", "f.mlir", *options)
        return json.loads(self.read("r.json"))

    def test_json_keys(self):
        report = self.report("--target=sm_80")
        self.assertEqual(set(report) - {"nominal", "profit", "raises", "unmeasured"}, {
            "version", "model", "target", "patterns", "kernels", "bytes", "layers", "graph", "launches",
            "kernel_sources",
            "unused_features"})
        self.assertEqual(report["model"], LLAMA)
        self.assertEqual(report["target"], "sm_80")
        for key in ("kernels", "bytes"):
            self.assertEqual(set(report[key]), {"before", "after"})
            self.assertLess(report[key]["after"], report[key]["before"])
        for name, pattern in report["patterns"].items():
            self.assertEqual(set(pattern), {"fired", "applies", "sites", "missed"}, name)
            self.assertEqual(pattern["fired"], len(pattern["sites"]))
            for site in pattern["sites"]:
                self.assertEqual(set(site), {"location", "ops", "bytes_saved", "node"})
                self.assertTrue(site["location"])
            for miss in pattern["missed"]:
                self.assertEqual(set(miss) - {"node"}, {"location", "reason", "bytes"})
                self.assertTrue(miss["reason"])
        raises = {name: entry["fired"] for name, entry in report["raises"].items()}
        self.assertEqual(raises, {"rms_norm": 5, "rope": 4, "attention": 2, "silu": 2})
        for layer in report["layers"]:
            self.assertEqual(set(layer), {"name", "kernels"})
        epilogues = report["patterns"]["matmul_epilogue"]
        self.assertEqual(epilogues["fired"], 3)
        self.assertIn("m.model.layers.0.mlp.down_proj", [site["location"] for site in epilogues["sites"]])

    def test_markdown_and_html(self):
        self.run_tool("fusion-opt", LLAMA, "--fuse", "--report=r.md", "-o", "f.mlir")
        self.assertIn("add_norm", self.read("r.md"))
        self.run_tool("fusion-opt", LLAMA, "--fuse", "--report=r.html", "-o", "f.mlir")
        self.assertIn("add_norm", self.read("r.html"))

    def test_markup_in_names(self):
        self.write("m.mlir", MARKUP)
        self.run_tool("fusion-opt", "m.mlir", "--fuse", "--report=r.html", "-o", "f.mlir")
        page = self.read("r.html")
        self.assertTrue(page.startswith("<!doctype html>"))
        self.assertEqual(page.count("</script>"), 2)
        self.assertNotIn("<b>", page)

    def test_disabled(self):
        report = self.report("--fuse-disable=matmul_epilogue")
        self.assertEqual(report["patterns"]["matmul_epilogue"]["fired"], 0)
        self.assertEqual(report["patterns"]["add_norm"]["fired"], 4)

    def test_bad_options(self):
        self.refuse("fusion-opt", LLAMA, "--fuse", "--report=r.txt", says=[".json, .md or .html", "r.txt"])
        self.refuse("fusion-opt", LLAMA, "--report=r.json", says="--fuse")
        self.refuse("fusion-opt", LLAMA, "--fuse", "--report=no/such/r.json", says="no/such/r.json")
        self.refuse("fusion-opt", LLAMA, "--fuse", "--fuse-disable=nosuch", says=["'nosuch'", "add_norm"])


class Emit(ToolTest):
    def test_kinds(self):
        out, _ = self.run_tool("fusion-opt", LLAMA, "--fuse", "--emit=cuda")
        self.assertIn("KERNEL(", out)
        self.assertNotIn("#include <", out)
        out, _ = self.run_tool("fusion-opt", LLAMA, "--fuse", "--emit=plan")
        self.assertIn("matmul_epilogue", out)
        out, _ = self.run_tool("fusion-opt", LLAMA, "--fuse", "--emit=dot")
        self.assertTrue(out.startswith("digraph"))
        fused, _ = self.run_tool("fusion-opt", LLAMA, "--fuse", "--emit=mlir")
        self.assertEqual(fused, self.run_tool("fusion-opt", LLAMA, "--fuse")[0])
        self.refuse("fusion-opt", LLAMA, "--emit=ptx", says=["'ptx'", "mlir, cuda, plan or dot"])

    def test_targets(self):
        for good in ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_120"):
            self.run_tool("fusion-opt", LLAMA, "--fuse", "--emit=plan", f"--target={good}", "-o", "p")
        for bad in ("", "sm_", "90", "sm_75", "sm_900", "sm_80a", "sm_90f", "sm_90ab", "sm_-90",
                    "compute_90"):
            self.refuse("fusion-opt", LLAMA, "--fuse", f"--target={bad}", says=["--target", f"'{bad}'"])

    def test_output_file(self):
        self.refuse("fusion-opt", LLAMA, "-o", "no/such/folder.mlir", says="no/such/folder.mlir")
        self.refuse("fusion-opt", LLAMA, "-o", self.folder, says=self.folder)


class Require(ToolTest):
    def test_met(self):
        self.run_tool("fusion-opt", LLAMA, "--fuse", "--require=matmul_epilogue=3", "-o", "f.mlir")

    def test_unmet(self):
        out, err = self.run_tool("fusion-opt", LLAMA, "--fuse", "--require=matmul_epilogue=4", "-o", "f.mlir",
                                 exit=1)
        self.assertEqual(out, "")
        self.assertIn("required matmul_epilogue to fire 4 times, it fired 3", err)
        self.assertIn("missed at m.lm_head", err)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_plan(self):
        self.run_tool("fusion-opt", LLAMA, "--fuse", "--require-plan", "-o", "f.mlir")
        heads = "tensor<1x?x4x?xf32>"
        model = self.write("m.mlir", f"""
            func.func @main(%x: {heads} {{nn.name = "x", nn.dims = [1, "heads", 4, "size"]}},
                            %y: {heads} {{nn.name = "y", nn.dims = [1, "kv_heads", 4, "size"]}}) -> {heads} {{
              %0 = nn.attention %x, %y, %y {{scale = 1.0 : f32}} : ({heads}, {heads}, {heads}) -> {heads}
              return %0 : {heads}
            }}""")
        why = ["no GPU plan for sm_90a: nn.attention at", "the head size of the queries is not static"]
        out, err = self.run_tool("fusion-opt", model, "--fuse", "--require-plan", "-o", "g.mlir", exit=1)
        self.assertFalse(os.path.exists(self.path("g.mlir")))
        for word in why:
            self.assertIn(word, err)
        for report in ("r.json", "r.md", "r.html"):
            out, err = self.run_tool("fusion-opt", model, "--fuse", "-o", "g.mlir", f"--report={report}")
            for word in why:
                self.assertIn(word, err)
            self.assertIn("the head size of the queries is not static", self.read(report))
        self.refuse("fusion-opt", LLAMA, "--require-plan", says="--fuse")

    def test_unknown_and_malformed(self):
        self.refuse("fusion-opt", LLAMA, "--fuse", "--require=add_nrm=1", says="'add_nrm'")
        for bad in ("add_norm", "add_norm=", "=1", "add_norm=-1", "add_norm=x", "add_norm=1x"):
            self.refuse("fusion-opt", LLAMA, "--fuse", f"--require={bad}", says=["NAME=N", f"'{bad}'"])
        self.refuse("fusion-opt", LLAMA, "--require=add_norm=4", says="--fuse")


GOOD_PATTERN = """
Constraint StaticLastDim(x: Value);
Rewrite group2(first: Op, second: Op);

Pattern silu_after_matmul {
  let product = op<nn.matmul>(a: Value, b: Value);
  let root = op<nn.silu>(product);
  rewrite root with { group2(product, root); };
}
"""


RANGE_PATTERN = """
Constraint HasOneUse(values: ValueRange);
Rewrite group1(first: Op);

Pattern any_concat {
  let root = op<nn.concat>(values: ValueRange);
  HasOneUse(values);
  rewrite root with { group1(root); };
}
"""


class Patterns(ToolTest):
    def test_good_file(self):
        self.write("silu.pdll", GOOD_PATTERN)
        self.run_tool("fusion-opt", LLAMA, "--fuse", "--patterns=silu.pdll", "--report=r.json", "-o",
                      "f.mlir")
        silu = json.loads(self.read("r.json"))["patterns"]["silu_after_matmul"]
        self.assertEqual(silu["fired"] + len(silu["missed"]), 2)
        self.run_tool(
            *("fusion-opt", LLAMA, "--fuse", "--patterns=silu.pdll", "--require=silu_after_matmul=2"),
            *("--fuse-disable=gated_activation,gated_matmul,matmul_epilogue,qkv_matmul,pointwise", "-o",
              "f.mlir"),
        )

    def test_bad_files(self):
        self.refuse("fusion-opt", LLAMA, "--fuse", "--patterns=nosuch.pdll", says="nosuch.pdll")
        self.refuse("fusion-opt", LLAMA, "--fuse", f"--patterns={self.folder}", says=self.folder)
        for name, text in {
            "empty.pdll": "",
            "syntax.pdll": "Pattern { let",
            "words.pdll": "this is no pattern",
            "op.pdll": "Pattern x { let r = op<nn.nosuch>; erase r; }",
            "range.pdll": RANGE_PATTERN,
            "syntax.mlir": "module {",
            "none.mlir": "module {}",
            "other.mlir": "func.func @f() { return }",
            "file.txt": "Pattern { }",
        }.items():
            with self.subTest(name):
                self.write(name, text)
                self.refuse("fusion-opt", LLAMA, "--fuse", f"--patterns={name}", says=name)


class Verify(ToolTest):
    def test_fusions_hold(self):
        _, err = self.run_tool("fusion-opt", LLAMA, "--fuse", "--verify-fusions", "-o", "f.mlir")
        self.assertIn("add_norm", err)
        _, err = self.run_tool("fusion-opt", LLAMA, "--fuse", "--verify-fusions", "--tp=2", "-o", "f.mlir")
        self.assertRegex(err, r"verifying fusions \S+ all_reduce_add_norm at \S+, fed by nn\.matmul at ")
        _, err = self.run_tool("fusion-opt", LLAMA, "--fuse", "--verify-fusions", "--quiet", "-o", "f.mlir")
        self.assertEqual(err, "")

    def test_nothing_to_verify(self):
        self.refuse("fusion-opt", LLAMA, "--verify-fusions", says="add --fuse")


class Usage(ToolTest):
    def test_help(self):
        for tool in ("fusion-opt", "fusion-run", "fusion-compile"):
            out, err = self.run_tool(tool, "--help")
            self.assertEqual(err, "")
            self.assertLess(len(out.splitlines()), 90)
            self.assertNotIn("mlir-print", out)
            hidden, _ = self.run_tool(tool, "--help-hidden")
            self.assertGreater(len(hidden.splitlines()), len(out.splitlines()))
            out, _ = self.run_tool(tool, "--version")
            self.assertRegex(out, rf"^{tool} \d+\.\d+\.\d+")

    def test_unknown_option(self):
        for tool in ("fusion-opt", "fusion-run", "fusion-compile"):
            self.refuse(tool, "--nonsense", says="--nonsense")
            self.refuse(tool, "--qiuet", says="'--qiuet'; did you mean '--quiet'?")
            self.refuse(tool, LLAMA, "second-input", says="Too many")
        self.refuse("fusion-opt", LLAMA, "--fuse", "--fuse-disable=add_nrom",
                    says="'add_nrom' to disable; did you mean 'add_norm'?")
        self.refuse("fusion-opt", LLAMA, "--fuse", "--require=gated-matmull=2",
                    says="'gated-matmull'; did you mean 'gated_matmul'?")

    def test_files_that_are_no_graphs(self):
        self.write("empty.onnx", "")
        self.write("empty.mlir", "")
        self.write("text.onnx", "hello, this is not a model at all\n")
        for name in ("nosuch.onnx", "nosuch.mlir", "empty.onnx", "text.onnx", self.folder):
            self.refuse("fusion-opt", name, says=name)
            self.refuse("fusion-opt", name, "--fuse", says=name)
            self.refuse("fusion-compile", name, "-o", "bundle", says=name)
        self.refuse("fusion-opt", "empty.mlir", "--fuse", says="empty.mlir")

    def test_closed_pipe(self):
        with open("/dev/full", "w") as full:
            _, err = self.run_tool("fusion-opt", LLAMA, exit=3, stdout=full)
        self.assertIn("cannot write to stdout", err)
        reader, writer = os.pipe()
        os.close(reader)
        _, err = self.run_tool("fusion-opt", LLAMA, exit=3, stdout=writer)
        os.close(writer)
        self.assertIn("cannot write to stdout", err)


if __name__ == "__main__":
    unittest.main()
