"""Graphs of other exporters than torch's, emulated against onnxruntime's outputs.

test/data/exporters.tar.xz has them without their weights: fill.json gives mean and deviation of each, and the
numbers follow from the tensor's name.
"""
import json
import os
import tarfile
import tempfile
import unittest
import zlib

from harness import ToolTest

try:
    import numpy
    import onnx
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77)

PACKED = os.path.join(os.environ["FUSION_SOURCE"], "test", "data", "exporters.tar.xz")


def numbers(name, kind, count, mean, deviation):
    """The bytes of a weight."""
    random = numpy.random.default_rng(zlib.crc32(name.encode()))
    if kind in (onnx.TensorProto.UINT8, onnx.TensorProto.INT8):
        return random.integers(0, 256, count, dtype=numpy.uint8).tobytes()
    values = random.standard_normal(count, dtype=numpy.float32) * numpy.float32(deviation) + numpy.float32(mean)
    values = values.astype(numpy.float32)
    if kind == onnx.TensorProto.FLOAT:
        return values.tobytes()
    if kind == onnx.TensorProto.FLOAT16:
        return values.astype(numpy.float16).tobytes()
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()


def fill(folder):
    """Writes the model with its weights; returns its path."""
    model = onnx.load(os.path.join(folder, "model.onnx"))
    with open(os.path.join(folder, "fill.json")) as file:
        recipe = json.load(file)
    for tensor in model.graph.initializer:
        if tensor.name in recipe:
            data = numbers(tensor.name, tensor.data_type, int(numpy.prod(tensor.dims)), *recipe[tensor.name])
            for field in ("float_data", "int32_data"):
                tensor.ClearField(field)
            tensor.raw_data = data
    path = os.path.join(folder, "full.onnx")
    onnx.save(model, path)
    return path


class Exporters(ToolTest):
    def test_numbers(self):
        with tempfile.TemporaryDirectory() as place:
            with tarfile.open(PACKED) as packed:
                packed.extractall(place)
            names = sorted(os.listdir(os.path.join(place, "exporters")))
            self.assertGreater(len(names), 10)
            for name in names:
                folder = os.path.join(place, "exporters", name)
                with self.subTest(name):
                    # Of 4-bit weights, onnxruntime rounds activations too.
                    loose = ["--rtol=2e-2"] if "int4" in name else []
                    out, err = self.run_tool(
                        "fusion-run", fill(folder), "--device=emulate",
                        "--inputs=" + os.path.join(folder, "inputs.safetensors"),
                        "--expect=" + os.path.join(folder, "outputs.safetensors"), *loose)
                    self.assertIn("PASS", out)
                    self.assertNotIn("FAIL", out)

    def test_caches_of_different_lengths(self):
        """GroupQueryAttention in place: each batch entry's new tokens go behind its own past."""
        with tempfile.TemporaryDirectory() as place:
            with tarfile.open(PACKED) as packed:
                packed.extractall(place)
            folder = os.path.join(place, "exporters", "genaib-phi-fp16-cuda")
            model, given = fill(folder), os.path.join(folder, "inputs.safetensors")
            out, err = self.run_tool("fusion-run", model, "--device=emulate", "--inputs=" + given,
                                     "--kv-capacity=16", "--decode=3")
            self.assertIn("decode: 3 steps", out)
            random = numpy.random.default_rng(5)
            shapes = {name: tensor.shape for name, tensor in load_file(given).items()}
            inputs = {name: random.standard_normal((2, shape[1], 5, shape[3])).astype(numpy.float16)
                      for name, shape in shapes.items() if name.startswith("past")}
            inputs["input_ids"] = random.integers(0, 200, (2, 2))
            inputs["attention_mask"] = numpy.array([[1] * 7, [1] * 5 + [0] * 2])
            save_file(inputs, os.path.join(place, "in.safetensors"))
            files = ["--inputs=" + os.path.join(place, "in.safetensors")]
            expected = os.path.join(place, "out.safetensors")
            self.run_tool("fusion-run", model, "--device=cpu", *files, "--outputs=" + expected)
            for capacity in ([], ["--kv-capacity=16"]):
                out, err = self.run_tool("fusion-run", model, "--device=emulate", *files,
                                         "--expect=" + expected, *capacity)
                self.assertNotIn("FAIL", out)
                self.assertGreater(out.count("PASS"), 4)
            # The same caches as buffers with room for more: the same logits, and caches as long as before.
            buffers = {name: numpy.concatenate([value, random.standard_normal(value.shape).astype(value.dtype)], 2)
                       if name.startswith("past") else value for name, value in inputs.items()}
            save_file(buffers, os.path.join(place, "buffers.safetensors"))
            out, err = self.run_tool(
                "fusion-run", model, "--device=emulate", "--shared-caches",
                "--outputs=" + os.path.join(place, "shared.safetensors"),
                "--inputs=" + os.path.join(place, "buffers.safetensors"))
            shared, grown = load_file(os.path.join(place, "shared.safetensors")), load_file(expected)
            for name, value in shared.items():
                if name.startswith("present"):
                    self.assertEqual(value.shape[2], 10)
                    valid = grown[name]
                    for entry, count in enumerate((7, 5)):
                        numpy.testing.assert_allclose(value[entry, :, :count].astype(numpy.float32),
                                                      valid[entry, :, :count].astype(numpy.float32),
                                                      atol=5e-3)
                else:
                    numpy.testing.assert_allclose(value.astype(numpy.float32),
                                                  grown[name].astype(numpy.float32), atol=2e-2)


if __name__ == "__main__":
    unittest.main()
