"""Graphs, tensors and weights that are wrong: one clear line, the right exit code, nothing left behind."""
import os
import shutil
import struct
import unittest

from harness import ToolTest, graph, named, read_safetensors, write_safetensors

LLAMA = "llama-fp32-op18"
DECODE = "llama-fp16-decode"
DEVICES = ("cpu", "emulate")

TYPES = {"F16": "<e", "F32": "<f", "I64": "<q"}


class Inputs(ToolTest):
    def refuse_inputs(self, tensors, says):
        write_safetensors(self.path("i.safetensors"), tensors)
        outputs = f"--outputs={self.path('o.safetensors')}"
        messages = set()
        for device in DEVICES:
            options = ["--inputs=i.safetensors", outputs, f"--device={device}", "--quiet"]
            messages.add(self.refuse("fusion-run", graph(LLAMA), *options, says=says))
        self.assertEqual(len(messages), 1)

    def test_names_types_shapes(self):
        ids = ("I64", [2, 16], b"\0" * 256)
        self.refuse_inputs({"inputs": ids}, ["unknown input inputs", "input_ids"])
        self.refuse_inputs({}, ["missing input input_ids", "i64"])
        self.refuse_inputs({"input_ids": ids, "mask": ids}, "unknown input mask")
        self.refuse_inputs({"input_ids": ("I32", [2, 16], b"\0" * 128)}, ["input_ids is i32", "expected i64"])
        self.refuse_inputs({"input_ids": ("I64", [32], b"\0" * 256)}, ["rank 1", "rank 2"])

    def test_contradictory_symbols(self):
        tensors = read_safetensors(graph(DECODE, "inputs.safetensors"))
        caches = [name for name, (_, shape, _) in tensors.items() if len(shape) == 4]
        kind, shape, data = tensors[caches[-1]]
        longer = shape[:2] + [shape[2] + 1] + shape[3:]
        tensors[caches[-1]] = (kind, longer, data[: len(data) // shape[2]] + data)
        write_safetensors(self.path("i.safetensors"), tensors)
        for device, says in (
            ("cpu", ["13", "14", "self_attn"]),
            ("emulate", ["self_attn", "s15 is 12 from input past_key_0 dim 2",
                         f"is 13 from input {caches[-1]} dim 2"]),
        ):
            options = ["--inputs=i.safetensors", f"--device={device}", "--quiet"]
            self.refuse("fusion-run", graph(DECODE), *options, says=says)

    def test_indices_out_of_range(self):
        """Ids that index a table are looked at before the run, whatever the device."""
        for index, good in ((255, True), (-256, True), (256, False), (-257, False), (1 << 40, False)):
            write_safetensors(self.path("ids"), {"input_ids": ("I64", [2, 16], struct.pack("<q", index) * 32)})
            for device in ("cpu",) if good else DEVICES:
                options = [f"--device={device}", "--inputs=ids", "--quiet"]
                if good:
                    self.run_tool("fusion-run", graph(LLAMA), *options)
                else:
                    says = f"input input_ids: index {index} is out of range for a table of 256 rows (-256 to 255)"
                    self.refuse("fusion-run", graph(LLAMA), *options, says=says)

    def test_damaged_files(self):
        with open(graph(LLAMA, "inputs.safetensors"), "rb") as file:
            good = file.read()
        for name, data in {
            "empty": b"",
            "short": good[:-3],
            "header": good[:60],
            "long": good + b"\0",
            "size": struct.pack("<Q", 1 << 60) + good[8:],
            "json": good[:8] + b"}" + good[9:],
        }.items():
            self.write(name, data)
            for option in ("--inputs", "--expect"):
                with self.subTest(file=name, option=option):
                    inputs = [f"--inputs={graph(LLAMA, 'inputs.safetensors')}"] if option == "--expect" else []
                    self.refuse("fusion-run", graph(LLAMA), *inputs, f"{option}={name}", says=name)
        self.refuse("fusion-run", graph(LLAMA), "--inputs=nosuch", says="nosuch")
        self.refuse("fusion-run", graph(LLAMA), f"--inputs={self.folder}", says=self.folder)

    def test_named_pipe(self):
        os.mkfifo(self.path("pipe.onnx"))
        self.refuse("fusion-opt", "pipe.onnx", says="pipe.onnx: not a regular file")
        self.refuse("fusion-run", graph(LLAMA), "--inputs=pipe.onnx", says="pipe.onnx: not a regular file")

    @unittest.skipIf(os.geteuid() == 0, "root reads everything")
    def test_unreadable(self):
        shutil.copy(graph(LLAMA), self.path("model.onnx"))
        os.chmod(self.path("model.onnx"), 0)
        self.refuse("fusion-opt", "model.onnx", says=["model.onnx", "Permission denied"])


class NaN(ToolTest):
    def test_inputs(self):
        """The same outputs become NaN on every device."""
        tensors = read_safetensors(graph(DECODE, "inputs.safetensors"))
        for name, (kind, shape, data) in tensors.items():
            if len(shape) == 4:
                size = struct.calcsize(TYPES[kind])
                tensors[name] = (kind, shape, struct.pack(TYPES[kind], float("nan")) + data[size:])
        write_safetensors(self.path("i.safetensors"), tensors)
        expected = graph(DECODE, "outputs.safetensors")
        for device in DEVICES:
            options = [graph(DECODE), "--inputs=i.safetensors", f"--device={device}", "--quiet"]
            out, _ = self.run_tool("fusion-run", *options, f"--expect={expected}", exit=1)
            self.assertRegex(out, r"logits .* max_abs inf rel_l2 inf FAIL")
            self.run_tool("fusion-run", *options, f"--outputs={device}.safetensors")
        self.compare_devices()

    def test_weights(self):
        with open(graph(LLAMA), "rb") as file:
            model = file.read()
        out, _ = self.run_tool("fusion-opt", graph(LLAMA))
        (line,) = [line for line in out.splitlines() if '"m.model.norm.weight"' in line]
        offset = int(line.split("offset = ")[1].split(" ")[0])
        nan = struct.pack("<f", float("nan"))
        self.write("model.onnx", model[:offset] + nan + model[offset + 4 :])
        for device in DEVICES:
            options = ["model.onnx", f"--inputs={graph(LLAMA, 'inputs.safetensors')}", f"--device={device}",
                       "--quiet"]
            expected = graph(LLAMA, "outputs.safetensors")
            out, _ = self.run_tool("fusion-run", *options, f"--expect={expected}", exit=1)
            self.assertRegex(out, r"logits .* max_abs inf rel_l2 inf FAIL")
            self.run_tool("fusion-run", *options, f"--outputs={device}.safetensors")
            kind, _, data = read_safetensors(self.path(f"{device}.safetensors"))["logits"]
            values = [value for (value,) in struct.iter_unpack(TYPES[kind], data)]
            self.assertTrue(all(value != value for value in values))
            # An expected NaN is a pass.
            self.run_tool("fusion-run", *options, f"--expect={device}.safetensors")

    def compare_devices(self):
        cpu, emulated = (read_safetensors(self.path(f"{device}.safetensors")) for device in DEVICES)
        for name, (kind, shape, data) in cpu.items():
            mine = [value != value for (value,) in struct.iter_unpack(TYPES[kind], data)]
            other = [value != value for (value,) in struct.iter_unpack(TYPES[kind], emulated[name][2])]
            self.assertEqual(mine, other, f"NaNs of {name}")
            self.assertTrue(any(mine) or name != "logits")


class Models(ToolTest):
    def doctored(self, old, new):
        with open(graph(LLAMA), "rb") as file:
            model = file.read()
        self.assertIn(old, model)
        self.write("model.onnx", model.replace(old, new))
        return "model.onnx"

    def refuse_model(self, says):
        inputs = graph(LLAMA, "inputs.safetensors")
        outputs = f"--outputs={self.path('o.safetensors')}"
        self.refuse("fusion-opt", "model.onnx", "--fuse", "-o", self.path("f.mlir"), says=says)
        self.refuse("fusion-run", "model.onnx", f"--inputs={inputs}", outputs, says=says)
        self.refuse("fusion-compile", "model.onnx", "-o", "bundle", says=says)

    def test_unknown_op(self):
        self.doctored(b"Sigmoid", b"Sigmuid")
        self.refuse_model(["model.onnx", "Sigmuid", "ai.onnx", "opset 18", "node"])

    def test_truncated(self):
        with open(graph(LLAMA), "rb") as file:
            model = file.read()
        for size in (1, 100, 5000, len(model) // 2, len(model) - 1):
            self.write("model.onnx", model[:size])
            self.refuse("fusion-opt", "model.onnx", says="model.onnx")
        self.refuse_model("model.onnx")

    def test_ir_version(self):
        with open(graph(LLAMA), "rb") as file:
            model = file.read()
        self.assertEqual(model[0], 8)  # the field ir_version
        self.write("model.onnx", b"\x08\x01" + model[2:])
        self.refuse_model(["model.onnx", "IR version 1"])


if __name__ == "__main__":
    unittest.main()
