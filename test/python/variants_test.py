"""Programs that choose what they run by facts that only a run knows, compared with onnxruntime."""

import itertools
import sys
import threading
import unittest

import numpy as np
from onnx import TensorProto, helper

try:
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import fusion


def port(name, dims, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def model(nodes, inputs, outputs, initialisers=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initialisers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def encoder(spelled_out=False):
    """Attention whose mask [batch, sequence] meets [queries, keys], as mobius-onnx writes it."""
    shape = ["batch", 2, "sequence", 8]
    nodes = [helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])]
    if spelled_out:  # onnxruntime's Attention does not broadcast such a mask
        nodes = [
            helper.make_node("Transpose", ["k"], ["keys"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["q", "keys"], ["products"]),
            helper.make_node("Mul", ["products", "scale"], ["scores"]),
            helper.make_node("Where", ["mask", "scores", "none"], ["masked"]),
            helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "v"], ["y"]),
        ]
    numbers = (("scale", 8**-0.5), ("none", -1e30))
    return model(
        nodes,
        [*(port(name, shape) for name in "qkv"), port("mask", ["batch", "sequence"], TensorProto.BOOL)],
        [port("y", shape)],
        [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in numbers],
    )


def encoder_inputs(batch, sequence, seed=0):
    random = np.random.default_rng(seed)
    inputs = {name: random.standard_normal((batch, 2, sequence, 8)).astype("f4") for name in "qkv"}
    mask = random.random((batch, sequence)) < 0.7
    mask[:, 0] = True
    return {**inputs, "mask": mask}


class VariantsTest(unittest.TestCase):
    def check(self, program, session, inputs):
        want = dict(zip((each.name for each in session.get_outputs()), session.run(None, inputs)))
        got = program(inputs)
        self.assertEqual(set(got), set(want))
        for name, value in want.items():
            self.assertEqual(got[name].shape, value.shape, name)
            np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5, err_msg=name)

    def test_a_mask_of_one_sequence(self):
        session = onnxruntime.InferenceSession(encoder(spelled_out=True).SerializeToString())
        for device, spelled_out in itertools.product(("cpu", "emulate"), (False, True)):
            program = fusion.compile(encoder(spelled_out), device=device)
            for batch, sequence in ((1, 7), (3, 3), (1, 1), (1, 5), (1, 7)):
                with self.subTest(device=device, spelled_out=spelled_out, batch=batch, sequence=sequence):
                    self.check(program, session, encoder_inputs(batch, sequence))
            if device == "emulate":
                self.assertEqual(program.statistics["variants"], 2)
                with self.assertRaisesRegex(fusion.BadInput, "batch is 2.* sequence is 3"):
                    program(encoder_inputs(2, 3))

    def test_threads(self):
        session = onnxruntime.InferenceSession(encoder(spelled_out=True).SerializeToString())
        program = fusion.compile(encoder(), device="emulate")
        failures = []

        def work(first):
            try:
                for i in range(6):
                    batch, sequence = ((1, 4), (2, 2), (1, 3))[(first + i) % 3]
                    self.check(program, session, encoder_inputs(batch, sequence, seed=first))
            except Exception as error:  # to the test's thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(program.statistics["variants"], 2)


if __name__ == "__main__":
    unittest.main()
