"""Programs that choose what they run by facts that only a run knows, compared with onnxruntime."""

import itertools
import sys
import threading
import unittest

import numpy as np
from onnx import TensorProto, helper, numpy_helper

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


def merged_decoder():
    """A decoder in each branch of an If on `use_cache_branch`, as optimum merges them."""
    shape, past = ["batch", 2, "sequence", 8], ["batch", 2, "past", 8]
    branches = {}
    for has_past in (False, True):
        name = "past" if has_past else "first"
        nodes = [
            helper.make_node("Concat", ["past_key", "k"], [f"{name}_keys"], axis=2) if has_past
            else helper.make_node("Identity", ["k"], [f"{name}_keys"]),
            helper.make_node("Transpose", [f"{name}_keys"], [f"{name}_turned"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["q", f"{name}_turned"], [f"{name}_scores"]),
            helper.make_node("Softmax", [f"{name}_scores"], [f"{name}_p"], axis=-1),
            helper.make_node("MatMul", [f"{name}_p", f"{name}_keys"], [f"{name}_mixed"]),
            helper.make_node("MatMul", [f"{name}_mixed", "w"], [f"{name}_y"]),
        ]
        outputs = [port(f"{name}_y", shape), port(f"{name}_keys", ["batch", 2, f"{name}_total", 8])]
        branches[has_past] = helper.make_graph(nodes, name, [], outputs)
    choice = helper.make_node("If", ["use_cache_branch"], ["y", "present_key"],
                              then_branch=branches[True], else_branch=branches[False])
    weight = np.random.default_rng(1).standard_normal((8, 8)).astype("f4")
    return model(
        [choice],
        [port("q", shape), port("k", shape), port("past_key", past),
         port("use_cache_branch", [1], TensorProto.BOOL)],
        [port("y", shape), port("present_key", ["batch", 2, "total", 8])],
        [numpy_helper.from_array(weight, "w")],
    )


def merged_inputs(uses_cache, sequence, past, seed=0):
    random = np.random.default_rng(seed)
    shapes = {"q": sequence, "k": sequence, "past_key": past}
    inputs = {name: random.standard_normal((2, 2, size, 8)).astype("f4") for name, size in shapes.items()}
    return {**inputs, "use_cache_branch": np.array([uses_cache])}


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

    def test_a_merged_decoder(self):
        session = onnxruntime.InferenceSession(merged_decoder().SerializeToString())
        self.assertEqual([each.name for each in fusion.load(merged_decoder()).inputs],
                         [each.name for each in session.get_inputs()])
        for device in ("cpu", "emulate"):
            program = fusion.compile(merged_decoder(), device=device)
            for uses_cache, sequence, past in ((False, 4, 1), (True, 1, 4), (True, 2, 5), (False, 3, 0)):
                with self.subTest(device=device, uses_cache=uses_cache, sequence=sequence):
                    self.check(program, session, merged_inputs(uses_cache, sequence, past))
            self.assertEqual(program.statistics["variants"], 2)
        with self.assertRaisesRegex(fusion.BadInput, "missing input use_cache_branch"):
            program({key: value for key, value in merged_inputs(True, 1, 4).items() if "use" not in key})
        with self.assertRaisesRegex(fusion.BadInput, "--constant=use_cache_branch=1"):
            fusion.explain(merged_decoder())
        graph = fusion.load(merged_decoder(), constants={"use_cache_branch": np.array([True])})
        known = fusion.compile(graph, device="cpu")
        inputs = merged_inputs(True, 1, 4)
        want = program(inputs)["y"]
        del inputs["use_cache_branch"]
        np.testing.assert_allclose(known(inputs)["y"], want, rtol=1e-4, atol=1e-5)

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
