"""--constant: graph inputs that are known beforehand, such as which branch of a merged decoder is meant."""
import unittest

from harness import ToolTest, graph

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77)

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info
HEADS, SIZE, WORDS = 2, 8, 11
WIDTH = HEADS * SIZE


def branch(prefix, with_cache):
    """A layer of a decoder: its queries see the cache, if there is one, and the new tokens."""
    name = lambda text: f"{prefix}_{text}"
    heads = lambda value, out: [
        node("Reshape", [value, "split"], [name(out + "_split")]),
        node("Transpose", [name(out + "_split")], [name(out)], perm=[0, 2, 1, 3])
    ]
    nodes = [node("Gather", ["table", "input_ids"], [name("x")])]
    for kind in "qkv":
        nodes += [
            node("MatMul", [name("x"), "w" + kind], [name("flat_" + kind)]),
            *heads(name("flat_" + kind), "new_" + kind)
        ]
    for kind in "kv":
        parts = [f"past_{kind}", name(f"new_{kind}")] if with_cache else [name(f"new_{kind}")]
        nodes.append(node("Concat", parts, [name(f"present_{kind}")], axis=2))
    nodes += [
        node("Transpose", [name("present_k")], [name("turned")], perm=[0, 1, 3, 2]),
        node("MatMul", [name("new_q"), name("turned")], [name("scores")]),
        node("Softmax", [name("scores")], [name("shares")], axis=-1),
        node("MatMul", [name("shares"), name("present_v")], [name("mixed")]),
        node("Transpose", [name("mixed")], [name("together")], perm=[0, 2, 1, 3]),
        node("Reshape", [name("together"), "joined"], [name("rows")]),
        node("MatMul", [name("rows"), "head"], [name("logits")])
    ]
    outputs = [info(name(text), FLOAT, None) for text in ("logits", "present_k", "present_v")]
    return helper.make_graph(nodes, prefix, [], outputs)


def merged_decoder(condition="use_cache_branch", before=()):
    """As Optimum merges a decoder and the one with past. `before`: nodes that make the condition."""
    own = numpy.random.default_rng(3)
    normal = lambda *shape: (own.standard_normal(shape) / 3).astype(numpy.float32)
    weights = {"table": normal(WORDS, WIDTH), "head": normal(WIDTH, WORDS)}
    weights |= {"w" + kind: normal(WIDTH, WIDTH) for kind in "qkv"}
    weights |= {
        "split": numpy.array([0, 0, HEADS, SIZE], numpy.int64),
        "joined": numpy.array([0, 0, WIDTH], numpy.int64)
    }
    cache = ["batch", HEADS, "past", SIZE]
    inputs = [
        info("input_ids", INT64, ["batch", "tokens"]),
        info("past_k", FLOAT, cache),
        info("past_v", FLOAT, cache),
        info("use_cache_branch", BOOL, [1])
    ]
    choice = node("If", [condition], ["logits", "present_k", "present_v"],
                  then_branch=branch("with", True),
                  else_branch=branch("without", False))
    outputs = [info(name, FLOAT, None) for name in ("logits", "present_k", "present_v")]
    initialisers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    made = helper.make_graph([*before, choice], "g", inputs, outputs, initialisers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Constants(ToolTest):

    def feeds(self, tokens, past):
        own = numpy.random.default_rng(tokens)
        cache = lambda: own.standard_normal((2, HEADS, past, SIZE)).astype(numpy.float32)
        return {"input_ids": own.integers(0, WORDS, (2, tokens)), "past_k": cache(), "past_v": cache()}

    def test_both_branches_of_a_merged_decoder(self):
        onnx.save(merged_decoder(), self.path("m.onnx"))
        session = onnxruntime.InferenceSession(self.path("m.onnx"), providers=["CPUExecutionProvider"])
        for value, text in ((True, "true"), (False, "false"), (True, "1")):
            feeds = self.feeds(1, 5) if value else self.feeds(4, 0)
            save_file(feeds, self.path("i.safetensors"))
            expected = session.run(None, feeds | {"use_cache_branch": numpy.array([value])})
            save_file(dict(zip(("logits", "present_k", "present_v"), expected)), self.path("o.safetensors"))
            for device in ("cpu", "emulate"):
                out, _ = self.run_tool("fusion-run", "m.onnx", f"--constant=use_cache_branch={text}",
                                       f"--device={device}", "--inputs=i.safetensors",
                                       "--expect=o.safetensors")
                self.assertEqual(out.count("PASS"), 3, out)

    def test_generates_by_the_branch_with_a_past(self):
        """--generate needs no --constant: the past of a prompt is empty."""
        onnx.save(merged_decoder(), self.path("m.onnx"))
        session = onnxruntime.InferenceSession(self.path("m.onnx"), providers=["CPUExecutionProvider"])
        ids, tokens = numpy.array([[1, 5, 7]]), []
        past = numpy.zeros((1, HEADS, 0, SIZE), numpy.float32)
        caches = {"past_k": past, "past_v": past}
        for _ in range(6):
            logits, key, value = session.run(
                None, {"input_ids": ids, "use_cache_branch": numpy.array([True]), **caches})
            caches = {"past_k": key, "past_v": value}
            ids = logits[:, -1:].argmax(-1)
            tokens.append(ids.item())
        for device in ("cpu", "emulate"):
            out, _ = self.run_tool("fusion-run", "m.onnx", "--generate=6", "--prompt=1,5,7",
                                   "--kv-capacity=16", f"--device={device}")
            self.assertIn("tokens: " + " ".join(map(str, tokens)), out)

    def test_every_tool_takes_it(self):
        onnx.save(merged_decoder(), self.path("m.onnx"))
        text, _ = self.run_tool("fusion-opt", "m.onnx", "--constant=use_cache_branch=true", "--emit=mlir")
        self.assertNotIn('nn.name = "use_cache_branch"', text)
        self.assertIn('nn.name = "past_k"', text)
        ports, _ = self.run_tool("fusion-run", "m.onnx", "--constant=use_cache_branch=false", "--describe")
        self.assertNotIn("use_cache_branch", ports)
        self.refuse(
            "fusion-compile",
            "m.onnx",
            "--constant=use_cach_branch=true",
            "-o",
            "b",
            says="the graph has no input 'use_cach_branch' for a constant; did you mean 'use_cache_branch'?")

    def test_a_branch_on_data_says_how(self):
        before = [
            node("ReduceMax", ["input_ids"], ["largest"], keepdims=0),
            node("Cast", ["largest"], ["any"], to=BOOL)
        ]
        onnx.save(merged_decoder("any", before), self.path("m.onnx"))
        self.refuse("fusion-opt",
                    "m.onnx",
                    says=["'any') depends on run-time data", "too much to run both"])
        feeds = self.feeds(4, 0)
        text = ",".join(str(id) for id in feeds["input_ids"][0])
        self.refuse("fusion-opt",
                    "m.onnx",
                    f"--constant=input_ids={text}",
                    says="input 'input_ids': 4 values for a tensor of [batch, tokens]")

    def test_types_and_shapes(self):
        """What the text is follows from the input that it is for."""
        kinds = {
            "flag": (BOOL, [], "false"),
            "small": (TensorProto.INT8, [1], "-7"),
            "count": (INT64, ["n"], "3,-4,5"),
            "half": (TensorProto.FLOAT16, [2], "0.5,1e-3"),
            "one": (FLOAT, [1, 1], "-inf"),
            "wide": (TensorProto.DOUBLE, [], "0.1")
        }
        inputs = [info("x", FLOAT, ["k"])
                  ] + [info(name, kind, shape) for name, (kind, shape, _) in kinds.items()]
        nodes = [node("Identity", [name], ["y_" + name]) for name in ("x", *kinds)]
        outputs = [onnx.ValueInfoProto(name="y_" + name) for name in ("x", *kinds)]
        model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs),
                                  opset_imports=[helper.make_opsetid("", 17)],
                                  ir_version=8)
        onnx.save(model, self.path("m.onnx"))
        save_file({"x": numpy.ones(2, numpy.float32)}, self.path("i.safetensors"))
        given = [f"--constant={name}={text}" for name, (_, _, text) in kinds.items()]
        self.run_tool("fusion-run", "m.onnx", "--inputs=i.safetensors", "--device=cpu",
                      "--outputs=o.safetensors", *given)
        made = load_file(self.path("o.safetensors"))
        for name, value in (("flag", numpy.array(False)), ("small", numpy.array([-7], numpy.int8)),
                            ("count", numpy.array([3, -4,
                                                   5])), ("half", numpy.array([0.5, 1e-3], numpy.float16)),
                            ("one", numpy.array([[-numpy.inf]], numpy.float32)), ("wide", numpy.array(0.1))):
            self.assertEqual(made["y_" + name].dtype, value.dtype)
            numpy.testing.assert_array_equal(made["y_" + name], value)
        for text, says in (("flag=2", "'2' is not a value of i1"), ("small=128",
                                                                    "'128' is not a value of i8"),
                           ("small=1,2", "2 values for a tensor of [1]"), ("count=1,,2",
                                                                           "'' is not a value of i64"),
                           ("count=1.5", "'1.5' is not a value of i64"), ("half=a,b",
                                                                          "'a' is not a value of f16"),
                           ("half=1", "1 value for a tensor of [2]"), ("flag=yes",
                                                                       "'yes' is not a value of i1")):
            with self.subTest(text):
                self.refuse("fusion-opt",
                            "m.onnx",
                            f"--constant={text}",
                            says=[f"input '{text.split('=')[0]}': ", says])

    def test_what_makes_no_sense(self):
        for wrong in ("x", "=1", "x="):
            self.refuse("fusion-opt",
                        "m.onnx",
                        f"--constant={wrong}",
                        says=f"--constant takes NAME=VALUE, not '{wrong}'")
        self.refuse("fusion-opt",
                    "m.onnx",
                    "--constant=x=1",
                    "--constant=x=2",
                    says="--constant gives 'x' twice")
        self.write("g.mlir",
                   "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
        self.refuse("fusion-opt",
                    "g.mlir",
                    "--constant=x=1",
                    says="inputs can be made constants of ONNX files only")
        self.refuse("fusion-opt",
                    "g.mlir",
                    "--dim=x=1",
                    says="sizes of dims can be given for ONNX files only")
        save_file({"x": numpy.ones(2, numpy.float32)}, self.path("i.safetensors"))
        self.refuse("fusion-run",
                    self.folder,
                    "--constant=x=1",
                    "--inputs=i.safetensors",
                    says="--constant is for graphs")


if __name__ == "__main__":
    unittest.main()
