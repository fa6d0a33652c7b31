"""Graph files name nodes, tensors, scopes and sizes as they like. No name reaches emitted source as more than
a comment, and results do not depend on names."""
import os
import re
import sys
import unittest

from harness import ToolTest, graph, read_safetensors, write_safetensors

try:
    import onnx
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# What would change a kernel if it got into its text: new lines of other compilers and of Unicode, joined lines, ends of
# comments, quotes, trigraphs, words that the compiler looks for. "!" keeps the order of names.
ENDINGS = [
    "!\n#error newline\n",
    "!\r#error return\r",
    "!\u2028#error separator\u2028",
    "!\\",
    "!\\ ",
    "!??/",
    "!*/ #error /*",
    "!\"'R\"(",
    "!`<b>|x|</b>`",
    "!\0#error nul",
    "!\n}\n__builtin_trap();\n{",
    "! pdl_wait() barrier() Exchange * $0 {} %s @kernel@",
]
SYMBOL = r"[A-Za-z_]\w*\b(?!\()"


def rename(model, ending):
    """Appends the ending to every name of a model."""
    def ended(name):
        return name and name + ending

    def symbol(match):
        return "`" + ended(match[0]).replace("`", "_") + "`"  # as the importer names it

    def scope(match):
        return "'" + re.sub(r"(['\\])", r"\\\1", ended(match[1])) + "'"

    main = model.graph
    main.name = ended(main.name)
    for value in [*main.input, *main.output, *main.value_info]:
        value.name = ended(value.name)
        for dim in value.type.tensor_type.shape.dim:
            if not dim.dim_param:
                continue
            raw = value in main.input and re.fullmatch(r"\w+", dim.dim_param)
            dim.dim_param = ended(dim.dim_param) if raw else re.sub(SYMBOL, symbol, dim.dim_param)
    for weight in main.initializer:
        weight.name = ended(weight.name)
    for node in main.node:
        node.name = ended(node.name)
        for names in (node.input, node.output):
            names[:] = [ended(name) for name in names]
        for entry in node.metadata_props:
            if entry.key == "pkg.torch.onnx.name_scopes":
                entry.value = re.sub(r"'([^']*)'", scope, entry.value)


def code_of(source):
    """The lines of emitted source that are not comments."""
    return [line for line in source.split("\n") if not line.lstrip(" ").startswith("//")]


class HostileNames(ToolTest):
    def hostile(self, name, ending):
        """A graph of the test data with other names; its inputs and outputs lie beside it."""
        model = onnx.load(graph(name))
        rename(model, ending)
        onnx.save(model, self.path("hostile.onnx"))
        for file in ("inputs.safetensors", "outputs.safetensors"):
            tensors = read_safetensors(graph(name, file))
            write_safetensors(self.path(file), {key + ending: tensor for key, tensor in tensors.items()})
        return "hostile.onnx"

    def assert_plain(self, source):
        comments = [line for line in source.split("\n") if "//" in line]
        self.assertTrue(comments)
        for line in comments:
            self.assertRegex(line.replace("…", ""), r"^[ -\[\]-~]*$")
            self.assertNotIn("??", line)
            self.assertNotIn("*/", line)

    def check(self, name, endings):
        emit = ["--fuse", "--emit=cuda", "--target=sm_80"]
        expected, _ = self.run_tool("fusion-opt", graph(name), *emit)
        for ending in endings:
            with self.subTest(ending):
                hostile = self.hostile(name, ending)
                self.run_tool("fusion-opt", hostile, "--mlir-print-debuginfo", "-o", "text.mlir")
                for path in (hostile, "text.mlir"):
                    source, _ = self.run_tool("fusion-opt", path, *emit)
                    self.assert_plain(source)
                    self.assertEqual(code_of(source), code_of(expected))

    def test_source(self):
        self.check("bert-fp32-op18", ENDINGS)
        self.check("llama-fp16-decode", ENDINGS[:1])

    def test_results(self):
        for ending in ENDINGS[:2] + ENDINGS[-1:]:
            with self.subTest(ending):
                hostile = self.hostile("bert-fp32-op18", ending)
                out, _ = self.run_tool("fusion-run", hostile, "--inputs=inputs.safetensors",
                                       "--expect=outputs.safetensors", "--device=emulate", "--quiet")
                self.assertIn("PASS", out)

    def test_listings(self):
        for ending in ENDINGS:
            with self.subTest(ending):
                hostile = self.hostile("bert-fp32-op18", ending)
                plan, _ = self.run_tool("fusion-opt", hostile, "--fuse", "--emit=plan", "--quiet")
                for line in plan.rstrip("\n").split("\n"):
                    self.assertRegex(line, r"^(plan of |input |output |needs |%?\d+: |  (kernel|library|one-shot|two-shot|when|for other sizes)|    \w+ <<<)")
                dot, _ = self.run_tool("fusion-opt", hostile, "--fuse", "--emit=dot", "--quiet")
                for line in dot.rstrip("\n").split("\n")[1:-1]:
                    self.assertRegex(line, r'^  ([^"\\]|"(\\"|[^"\\])*")*;$')
                for report in ("r.md", "r.html"):
                    self.run_tool("fusion-opt", hostile, "--fuse", f"--report={report}", "-o", "f.mlir",
                                  "--quiet")
                self.assertNotIn("<b>", self.read("r.md"))
                for line in self.read("r.md").split("\n"):
                    self.assertRegex(line, r"^($|#|\||- |Kernels |Profit|Features of sm_)")
                    self.assertEqual(line.count("`") % 2, 0)
                self.assertEqual(self.read("r.html").lower().count("</script"), 2)

    def test_names_that_contradict(self):
        """ONNX wants one meaning for a name, and an attribute that refers to a function's only inside of
        one."""
        def refused(says, nodes, outputs):
            value = onnx.helper.make_tensor_value_info
            tensors = [[value(name, onnx.TensorProto.FLOAT, [2]) for name in names]
                       for names in (["a"], outputs)]
            made = onnx.helper.make_graph(nodes, "g", *tensors)
            onnx.save(onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 18)]),
                      self.path("m.onnx"))
            self.refuse("fusion-opt", "m.onnx", says=says)

        relu = onnx.helper.make_node("Relu", ["a"], ["b"])
        refused("the name 'b' is defined twice", [relu, relu], ["b"])
        long = "x" * 1000000
        refused("its name has 1000000 bytes", [onnx.helper.make_node("Relu", ["a"], [long])], [long])
        elu = onnx.helper.make_node("Elu", ["a"], ["b"], name=long)
        elu.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
        refused("attribute 'alpha' stands for one of a function, and this is none", [elu], ["b"])

    def test_verification(self):
        hostile = self.hostile("llama-fp16-decode", ENDINGS[0])
        self.run_tool("fusion-opt", hostile, "--fuse", "--verify-fusions", "-o", "f.mlir", "--quiet")


if __name__ == "__main__":
    unittest.main()
