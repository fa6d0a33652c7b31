"""Small files with large demands: numbers that wrap, shapes that nothing can hold, text nested without end. One line and
the right exit code, in seconds and in little memory."""
import os
import resource
import shutil
import sys
import unittest

from harness import ToolTest, write_safetensors

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
import numpy as np

seconds, gigabyte = 10, 1 << 30
LARGE = 2**63 - 1


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (gigabyte, gigabyte))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Hostile(ToolTest):
    def compile_refused(self, file, says):
        self.refuse("fusion-opt", file, "--fuse", "--emit=plan", "--quiet", says=says, preexec_fn=limits)

    def run_refused(self, file, says, exit=2, sizes="", devices=("cpu", "emulate")):
        for device in devices:
            options = ["--random-inputs" + sizes, f"--device={device}", "--quiet"]
            self.refuse("fusion-run", file, *options, says=says, exit=exit, preexec_fn=limits)


class Text(Hostile):
    def graph(self, body, inputs="%x: tensor<4xf32>", result="tensor<4xf32>"):
        self.write("g.mlir", f"func.func @main({inputs}) -> ({result}) {{\n{body}\n}}\n")
        return "g.mlir"

    def slice(self, source, size, start, sizes, step):
        return (f"%r = nn.slice {source} {{starts = [{start}], sizes = [{sizes}], steps = array<i64: {step}>}}"
                f" : (tensor<?xf32>) -> tensor<{size}xf32>\nreturn %r : tensor<{size}xf32>")

    def test_shapes_whose_elements_cannot_be_counted(self):
        """2^64 elements are none when they are multiplied."""
        wide = "tensor<4294967296x4294967296xf32>"
        corner = f"""
          %1 = nn.slice %0 {{starts = [0, 0], sizes = [2, 2], steps = array<i64: 1, 1>}} : ({wide}) -> tensor<2x2xf32>
          return %1 : tensor<2x2xf32>"""
        shape = "{shape = [4294967296, 4294967296]}"
        weight = '{name = "w", path = "w.bin", offset = 0 : i64, length = 0 : i64}'
        self.write("w.bin", "")
        for body, inputs in (
            (f"%0 = nn.reshape %x {shape} : (tensor<0xf32>) -> {wide}" + corner, "%x: tensor<0xf32>"),
            (f"%0 = nn.weight {weight} : () -> {wide}" + corner, ""),
            (f"%0 = nn.constant {{value = dense<1.0> : {wide}}} : () -> {wide}" + corner, ""),
        ):
            file = self.graph(body, inputs, "tensor<2x2xf32>")
            self.compile_refused(file, "impossible type")
            self.run_refused(file, "impossible type")
        file = self.graph("return %x : " + wide, "%x: " + wide, wide)
        self.compile_refused(file, "impossible shape")
        self.run_refused(file, "impossible shape")

    def test_symbolic_shapes_whose_elements_cannot_be_counted(self):
        four = "tensor<?x?x?x?xf32>"
        body = (f'%0 = nn.expand %x {{shape = ["n", "n", "n", "n"]}} : (tensor<?xf32>) -> {four}\n'
                f"%1 = nn.relu %0 : ({four}) -> {four}\nreturn %1 : {four}")
        file = self.graph(body, '%x: tensor<?xf32> {nn.dims = ["n"]}', four)
        self.run_refused(file, "not enough memory", exit=3, sizes="=n:65536", devices=["cpu"])
        self.run_refused(file, "too large", sizes="=n:65536", devices=["emulate"])

    def test_slices_out_of_range(self):
        """Whichever end leaves the dim, and whichever way the slice goes."""
        symbol = '%x: tensor<?xf32> {nn.dims = ["n"]}'
        for start, sizes, step in (
            (0, '"n"', -1),
            (5, '"n"', -3),
            ('"n + 100"', 1, -1),
            ('"n"', 1, -1),
            ('"n - 1"', '"n + 5"', -1),
            ('"0 - n"', 1, 1),
            ('"0 - n"', 2, 3),
            (0, '"n"', -(2**63)),
            (0, '"n"', 2**62),
        ):
            with self.subTest(start=start, sizes=sizes, step=step):
                size = sizes if isinstance(sizes, int) else "?"
                body = self.slice("%x", size, start, sizes, step)
                self.run_refused(self.graph(body, symbol, f"tensor<{size}xf32>"), "nn.slice")
        body = self.slice("%x", "?", '"n - 1"', '"n"', -1)
        file = self.graph(body, symbol, "tensor<?xf32>")
        for size in (0, 1, 7):
            for device in ("cpu", "emulate"):
                self.run_tool("fusion-run", file, f"--random-inputs=n:{size}", f"--device={device}", "--quiet")

    def test_nesting(self):
        function = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ {} return %x : tensor<4xf32> }}"
        deep = 50000
        chain = "#a0 = [1]\n" + "".join(f"#a{i} = [#a{i - 1}]\n" for i in range(1, deep))
        for text in (
            "module {" * deep + "}" * deep,
            "func.func @main() attributes {a = " + "[" * deep + "]" * deep + "} { return }",
            "func.func @main(%x: " + "tuple<" * deep + "f32" + ">" * deep + ") { return }",
            "func.func @main() { return loc(" + "callsite(" * deep + "unknown at unknown" + ")" * deep + ") }",
            chain + f"module attributes {{a = #a{deep - 1}}} {{ {function.format('')} }}",
        ):
            self.write("g.mlir", text)
            for options in ([], ["--fuse"]):
                self.refuse("fusion-opt", "g.mlir", *options, says="nested more than 256 deep", preexec_fn=limits)
            self.write("p.mlir", text)
            self.refuse("fusion-opt", self.graph("return %x : tensor<4xf32>"), "--fuse", "--patterns=p.mlir",
                        says="p.mlir: nested more than 256 deep", preexec_fn=limits)
        for says, text in (("affine", "#m = affine_map<(d0) -> (" + "-" * deep + "d0)>\n" + function.format("")),
                           ("bytecode", b"ML\xefR\x0dx\0" + bytes(range(256)))):
            self.write("g.mlir", text)
            for options in ([], ["--fuse"]):
                self.refuse("fusion-opt", "g.mlir", *options, says=says, preexec_fn=limits)

    def test_special_files(self):
        """Neither a pipe nor a device without end is read, whatever its name says."""
        self.write("g.mlir", "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
        for ending in ("mlir", "pdll"):
            os.mkfifo(self.path(f"pipe.{ending}"))
            os.symlink("/dev/zero", self.path(f"zero.{ending}"))
            for name in (f"pipe.{ending}", f"zero.{ending}"):
                options = ["g.mlir", "--fuse", f"--patterns={name}"]
                self.refuse("fusion-opt", *options, says=f"{name}: not a regular file", preexec_fn=limits)
                if ending == "mlir":
                    for options in ([], ["--fuse"]):
                        says = f"{name}: not a regular file"
                        self.refuse("fusion-opt", name, *options, says=says, preexec_fn=limits)

    @unittest.skipIf(shutil.which("mlir-pdll-22") is None, "no mlir-pdll")
    def test_patterns_without_end(self):
        self.write("g.mlir", "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
        for text in ('#include "p.pdll"\n', "Pattern { let x = " + "(" * 100000 + "1" + ")" * 100000 + "; }"):
            self.write("p.pdll", text)
            says = "p.pdll: mlir-pdll crashed or did not end"
            self.refuse("fusion-opt", "g.mlir", "--fuse", "--patterns=p.pdll", says=says, preexec_fn=limits)

    def test_element_types(self):
        self.run_refused(self.graph("return %x : tensor<4xi3>", "%x: tensor<4xi3>", "tensor<4xi3>"), "not supported")


class Onnx(Hostile):
    def model(self, node, shape=(4,), constants=(), functions=(), domains=()):
        value = helper.make_tensor_value_info
        weights = [numpy_helper.from_array(np.array(v, t), n) for n, v, t in constants]
        graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, shape)],
                                  [value(node.output[0], TensorProto.FLOAT, None)], initializer=weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 20), *domains)]
        made = helper.make_model(graph, opset_imports=opsets, functions=list(functions))
        made.ir_version = 9
        onnx.save(made, self.path("m.onnx"))
        return "m.onnx"

    def test_numbers_that_wrap(self):
        node, i64, f32 = helper.make_node, np.int64, np.float32
        image = (1, 1, 4, 4)
        for says, made in (
            ("out of range", self.pads([LARGE, LARGE])),
            ("out of range", self.pads([2**62, 2**62])),
            ("out of range", (node("Range", ["a", "b", "c"], ["y"]), (4,),
                              [("a", -(2**63), i64), ("b", LARGE, i64), ("c", 1, i64)])),
            ("outputs", (node("Split", ["x"], ["y"], num_outputs=2**62),)),
            ("of 4", (node("Split", ["x", "s"], ["y", "z", "w"]), (4,), [("s", [LARGE, LARGE, 6], i64)])),
            ("elements", (node("Resize", ["x", "", "", "s"], ["y"]), image, [("s", [1, 1, 2**40, 1], i64)])),
            ("elements", (node("Resize", ["x", "", "", "s"], ["y"], mode="linear"), image,
                          [("s", [1, 1, 2**62, 1], i64)])),
            ("scale", (node("Resize", ["x", "", "s"], ["y"]), image, [("s", [1, 1, np.nan, 1], f32)])),
            ("scale", (node("Resize", ["x", "", "s"], ["y"], mode="cubic"), image, [("s", [1, 1, -1, 1], f32)])),
            ("scale", (node("Resize", ["x", "", "s"], ["y"]), image, [("s", [1, 1, np.inf, 1], f32)])),
        ):
            with self.subTest(made[0]):
                self.compile_refused(self.model(*made), says)

    def pads(self, amounts):
        return helper.make_node("Pad", ["x", "p"], ["y"]), (4,), [("p", amounts, np.int64)]

    def test_parts_of_a_known_shape(self):
        """Split of numbers that are known: the parts may not wrap around its end."""
        nodes = [helper.make_node("Shape", ["x"], ["s"]),
                 helper.make_node("Split", ["s", "parts"], ["a", "b", "c"], axis=0),
                 helper.make_node("Expand", ["x", "b"], ["y"])]
        value = helper.make_tensor_value_info
        parts = numpy_helper.from_array(np.array([LARGE, LARGE, 4], np.int64), "parts")
        graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, [1, 4])],
                                  [value("y", TensorProto.FLOAT, None)], initializer=[parts])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        onnx.save(made, self.path("m.onnx"))
        self.compile_refused("m.onnx", "a part has size")

    def test_concats_of_concats(self):
        """One kernel for them all would say each twice as often as the next."""
        value, last = helper.make_tensor_value_info, 16
        nodes = [helper.make_node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], axis=0) for i in range(last)]
        graph = helper.make_graph(nodes, "g", [value("t0", TensorProto.FLOAT, ["n"])],
                                  [value(f"t{last}", TensorProto.FLOAT, None)])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        made.ir_version = 9
        onnx.save(made, self.path("m.onnx"))
        source, _ = self.run_tool("fusion-opt", "m.onnx", "--fuse", "--emit=cuda", "--quiet", preexec_fn=limits)
        self.assertLess(source.count("\n"), 10000)
        x = np.arange(3, dtype=np.float32)
        write_safetensors(self.path("i.safetensors"), {"t0": ("F32", [3], x.tobytes())})
        y = np.tile(x, 2**last)
        write_safetensors(self.path("o.safetensors"), {f"t{last}": ("F32", [y.size], y.tobytes())})
        self.run_tool("fusion-run", "m.onnx", "--inputs=i.safetensors", "--expect=o.safetensors", "--device=emulate",
                      "--quiet")

    def test_many_different_parts(self):
        """A kernel whose stack frame is larger than emulated threads have is compiled again, with a smaller one."""
        count, value = 130, helper.make_tensor_value_info
        names = [f"x{i}" for i in range(count)]
        graph = helper.make_graph([helper.make_node("Concat", names, ["y"], axis=0)], "g",
                                  [value(name, TensorProto.FLOAT, [2, 3]) for name in names],
                                  [value("y", TensorProto.FLOAT, None)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
                  self.path("m.onnx"))
        parts = {name: np.full(6, i, np.float32).tobytes() for i, name in enumerate(names)}
        write_safetensors(self.path("i.safetensors"), {name: ("F32", [2, 3], part) for name, part in parts.items()})
        write_safetensors(self.path("o.safetensors"), {"y": ("F32", [2 * count, 3], b"".join(parts.values()))})
        self.run_tool("fusion-run", "m.onnx", "--inputs=i.safetensors", "--expect=o.safetensors", "--device=emulate",
                      "--quiet", "--rtol=0", "--atol=0")

    def test_integers_that_wrap(self):
        """What is computed of known integers is what the device computes, in their type."""
        node, value, rows = helper.make_node, helper.make_tensor_value_info, 300
        x, y = np.arange(rows, dtype=np.float32), -1 - np.arange(rows, dtype=np.float32)
        write_safetensors(self.path("i.safetensors"), {n: ("F32", [rows], v.tobytes()) for n, v in (("x", x), ("y", y))})
        count = np.arange(rows)
        for kind, op, operand, compare, limit in (
            (np.uint8, "Sub", 1, "Less", 9),
            (np.int8, "Add", 100, "Greater", 5),
            (np.int8, "Mul", 50, "Less", -20),
            (np.int8, "Neg", None, "Greater", 0),
            (np.int16, "Mul", 1000, "Less", 0),
            (np.uint16, "Sub", 100, "Greater", 500),
            (np.int32, "Add", 2**31 - 100, "Greater", 5),
            (np.uint32, "Sub", 7, "LessOrEqual", 7),
            (np.int64, "Add", 2**63 - 100, "Greater", 5),
            (np.int64, "Mul", 2**62, "Equal", 2**63 - 2**62),
            (np.uint64, "Add", 2**63, "Greater", 2**63 + 50),
        ):
            with self.subTest(kind=kind.__name__, op=op):
                code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
                given = [("zero", 0, np.int64), ("rows", rows, np.int64), ("one", 1, np.int64), ("limit", limit, kind)]
                given += [] if operand is None else [("operand", operand, kind)]
                nodes = [node("Range", ["zero", "rows", "one"], ["range"]), node("Cast", ["range"], ["r"], to=code),
                         node(op, ["r"] + ["operand"] * (operand is not None), ["s"]),
                         node(compare, ["s", "limit"], ["b"]), node("Where", ["b", "x", "y"], ["z"])]
                graph = helper.make_graph(nodes, "g", [value(n, TensorProto.FLOAT, [rows]) for n in "xy"],
                                          [value("z", TensorProto.FLOAT, None)],
                                          initializer=[numpy_helper.from_array(np.array(v, t), n) for n, v, t in given])
                made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
                made.ir_version = 9
                onnx.save(made, self.path("m.onnx"))
                r = count.astype(kind)
                s = {"Add": lambda: r + kind(operand), "Sub": lambda: r - kind(operand),
                     "Mul": lambda: r * kind(operand), "Neg": lambda: -r}[op]()
                self.assertEqual(s.dtype, kind)
                holds = {"Less": s < kind(limit), "LessOrEqual": s <= kind(limit), "Greater": s > kind(limit),
                         "Equal": s == kind(limit)}[compare]
                self.assertTrue(holds.any() and not holds.all())
                z = np.where(holds, x, y)
                write_safetensors(self.path("o.safetensors"), {"z": ("F32", [rows], z.tobytes())})
                for device in ("cpu", "emulate"):
                    self.run_tool("fusion-run", "m.onnx", "--inputs=i.safetensors", "--expect=o.safetensors",
                                  f"--device={device}", "--quiet", "--rtol=0", "--atol=0")

    def test_quantising_vectors(self):
        """DynamicQuantizeLinear of rank 1; of zeros alone, or nothing, the scale is 1, as in onnxruntime."""
        outputs = [helper.make_tensor_value_info(name, kind, None)
                   for name, kind in (("y", TensorProto.UINT8), ("s", TensorProto.FLOAT), ("z", TensorProto.UINT8))]
        graph = helper.make_graph([helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], "g",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])], outputs)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
                  self.path("m.onnx"))
        for x, y, scale, zero in (([0, 0, 0], [0, 0, 0], 1, 0), ([], [], 1, 0), ([0, 255, 51], [0, 255, 51], 1, 0),
                                  ([-255, 255], [0, 255], 2, 128)):
            x = np.array(x, np.float32)
            write_safetensors(self.path("i.safetensors"), {"x": ("F32", [x.size], x.tobytes())})
            write_safetensors(self.path("o.safetensors"), {
                "y": ("U8", [x.size], np.array(y, np.uint8).tobytes()),
                "s": ("F32", [], np.float32(scale).tobytes()), "z": ("U8", [], np.uint8(zero).tobytes())})
            for device in ("cpu", "emulate"):
                self.run_tool("fusion-run", "m.onnx", "--inputs=i.safetensors", "--expect=o.safetensors",
                              f"--device={device}", "--quiet", "--rtol=0")

    def test_a_function_twice(self):
        def function():
            return helper.make_function("f", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
                                        [helper.make_opsetid("", 20)])

        call = helper.make_node("F", ["x"], ["y"], domain="f")
        self.compile_refused(self.model(call, functions=[function()] * 2, domains=[("f", 1)]), "f.F is defined twice")


class Safetensors(Hostile):
    def test_many_tensors(self):
        """Time that grows with their number, not with its square."""
        tensors = {f"t{i}": ("F32", [0], b"") for i in range(100000)}
        write_safetensors(self.path("i.safetensors"), tensors)
        self.write("g.mlir", "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
        self.refuse("fusion-run", "g.mlir", "--inputs=i.safetensors", says="unknown input", preexec_fn=limits)


if __name__ == "__main__":
    unittest.main()
