"""The module fusion with numpy alone."""

import html.parser
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

import fusion

EXAMPLE = pathlib.Path(os.environ["FUSION_SOURCE"]) / "examples/llama"
DECODE = pathlib.Path(os.environ["FUSION_SOURCE"]) / "test/data/graphs/llama-fp16-decode"


def addition(dtype=TensorProto.FLOAT, weight=np.arange(32, dtype="float32")):
    """y = x + w."""
    x = helper.make_tensor_value_info("x", dtype, ["rows", 32])
    y = helper.make_tensor_value_info("y", dtype, ["rows", 32])
    w = numpy_helper.from_array(weight, "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


class ModuleTest(unittest.TestCase):
    def test_a_file_computes_what_pytorch_did(self):
        program = fusion.compile(EXAMPLE / "model.onnx", device="cpu")
        self.assertEqual(program.inputs, [fusion.Port("input_ids", "int64", ("batch", "sequence"))])
        inputs, expected = (load_file(EXAMPLE / f"{name}.safetensors") for name in ("inputs", "outputs"))
        logits = program(**inputs)["logits"]
        self.assertEqual(logits.dtype, np.float16)
        np.testing.assert_allclose(logits.astype("f4"), expected["logits"].astype("f4"), atol=2e-3)
        same = fusion.compile((EXAMPLE / "model.onnx").read_bytes(), device="cpu")
        np.testing.assert_array_equal(same(inputs)["logits"], logits)
        self.assertEqual(program.report.fired("rope"), 2)
        program.report.require("rope", 2)
        with self.assertRaisesRegex(fusion.AnswerIsNo, "rope fired 2 times, 3 are required"):
            program.report.require("rope", 3)
        self.assertIn("</html>", program.report.html())
        self.assertIn("srcdoc", program._repr_html_())
        self.assertIn("| rope | 2 |", str(program.report))

    def test_a_report_is_a_page(self):
        report = fusion.load(EXAMPLE / "model.onnx").explain("plan").report
        page = report.html()
        self.assertIn("struct Config", page)
        self.assertIn("\n## `m.model.layers.0`\n", report.markdown())
        frames = []

        class Frames(html.parser.HTMLParser):
            def handle_starttag(self, tag, attributes):
                frames.append((tag, dict(attributes).get("srcdoc")))

        Frames().feed(report._repr_html_())
        self.assertEqual(frames, [("iframe", page)])
        with tempfile.TemporaryDirectory() as folder:
            report.write(f"{folder}/r.html")
            self.assertEqual(pathlib.Path(folder, "r.html").read_text(encoding="utf-8"), page)

    def test_models_and_weights_in_memory(self):
        model = addition()
        x = np.ones((2, 32), "float32")
        np.testing.assert_array_equal(fusion.compile(model, device="cpu")(x=x)["y"], x + np.arange(32))
        weight = np.full(32, 5, "float32")
        program = fusion.compile(fusion.load(model, weights={"w": weight}), device="cpu")
        self.assertEqual(program(x=x)["y"][0, 0], 6)
        weight[:] = 7  # not copied
        self.assertEqual(program(x=x)["y"][0, 0], 8)
        with self.assertRaisesRegex(fusion.BadInput, "weight 'w': 31 f32 is given"):
            fusion.load(model, weights={"w": np.zeros(31, "float32")})

    def test_external_data_in_memory(self):
        model = addition()
        tensor = model.graph.initializer[0]
        data = tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
        program = fusion.compile(fusion.load(model, files={"w.bin": data}), device="cpu")
        self.assertEqual(program(x=np.zeros((1, 32), "float32"))["y"][0, 31], 31)
        with self.assertRaisesRegex(
            fusion.BadInput, "mine: initializer 'w': external data file 'w.bin' is missing"
        ):
            fusion.load(model, name="mine")

    def test_memory_is_let_go_with_the_last_user(self):
        weight = np.zeros(32, "float32")
        gone = weakref.ref(weight)
        program = fusion.compile(fusion.load(addition(), weights={"w": weight}), device="cpu")
        del weight
        x = np.ones((1, 32), "float32")
        y = program(x=x)["y"]
        self.assertIsNotNone(gone())
        before = y.copy()
        del program, x
        self.assertIsNone(gone())
        np.testing.assert_array_equal(y, before)  # a result lives by itself

    def test_tensors_of_any_library(self):
        program = fusion.compile(addition(), device="cpu")
        rows = np.arange(64, dtype="float32").reshape(2, 32)
        expected = rows + np.arange(32)

        class Speaks:  # DLPack and nothing else
            def __dlpack__(self, stream=None):
                return rows.__dlpack__()

            def __dlpack_device__(self):
                return rows.__dlpack_device__()

        frozen = rows.copy()
        frozen.flags.writeable = False
        results = program.run({"x": rows})
        for value in (
            rows,
            Speaks(),
            rows.tolist() and np.asfortranarray(rows),
            frozen,
            fusion.compile(addition(), device="cpu").run({"x": rows - np.arange(32, dtype="float32")})["y"],
        ):
            np.testing.assert_array_equal(program(x=value)["y"], expected)
        np.testing.assert_array_equal(np.from_dlpack(results["y"]), expected)
        np.testing.assert_array_equal(np.asarray(results["y"]), expected)
        self.assertEqual(repr(results["y"]), "fusion.Tensor(2x32, float32, cpu)")
        with self.assertRaisesRegex(fusion.BadInput, "input x: elements of type <U3 are not supported"):
            program(x=np.array([["abc"]]))
        with self.assertRaisesRegex(fusion.BadInput, "x"):
            program(x=rows.astype("float64"))

    def test_arrays_of_all_kinds_are_taken_and_given(self):
        def same(dtype):
            x = helper.make_tensor_value_info("x", dtype, ["a", "b"])
            y = helper.make_tensor_value_info("y", dtype, ["b", "a"])
            graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"])], "g", [x], [y])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
            return fusion.compile(model, device="cpu")

        for name in ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"):
            x = (np.arange(12).reshape(3, 4) % 5).astype(name)
            program = same(helper.np_dtype_to_tensor_dtype(np.dtype(name)))
            for given in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x[:0]):
                y = program(x=given)["y"]
                self.assertEqual((y.dtype, y.shape), (given.dtype, given.T.shape))
                np.testing.assert_array_equal(y, given.T)
        y[...] = 0  # the caller's own
        program = same(TensorProto.FLOAT)
        swapped = np.arange(4, dtype=">f4").reshape(2, 2)
        with self.assertRaisesRegex(fusion.BadInput, "input x: elements of type .*f.* are not supported"):
            program(x=swapped)
        np.testing.assert_array_equal(program(x=[[1.5, 2]] and np.float32([[1.5, 2]]))["y"], [[1.5], [2]])
        with self.assertRaises(TypeError):
            program({1: swapped})

    def test_bfloat16(self):
        import ml_dtypes

        weight = np.ones(32, ml_dtypes.bfloat16)
        program = fusion.compile(addition(TensorProto.BFLOAT16, weight), device="cpu")
        y = program(x=np.full((1, 32), 2, ml_dtypes.bfloat16))["y"]
        self.assertEqual((y.dtype, y[0, 0]), (ml_dtypes.bfloat16, 3))

    def test_caches_in_pages(self):
        folder = pathlib.Path(os.environ["FUSION_SOURCE"]) / "test/import/contrib/test_paged_ragged"
        program = fusion.compile(folder / "model.onnx", device="emulate", kv_capacity=1)
        copying = fusion.compile(folder / "model.onnx", device="cpu")
        with self.assertRaisesRegex(fusion.BadInput, "key_cache: the size of pages is not given"):
            program.caches()
        for wrong in (-1, 1.5, "8", None, True, 2**63):
            with self.assertRaisesRegex(fusion.BadInput, "pages takes a size from 0 on, not "):
                program.caches(pages=wrong)
        for large in (2**50, 2**62):
            with self.assertRaisesRegex(fusion.Lacking, "key_cache: there is not enough memory for "):
                program.caches(pages=large)
        pools, copied = program.caches(pages=9), copying.caches(pages=9)
        self.assertEqual(set(pools), {"key_cache", "value_cache"})
        self.assertEqual(pools["key_cache"].shape, (9, 8, 2, 16))
        random, past = np.random.default_rng(3), np.zeros(3, "int32")
        table = np.array([[8, 1, -1], [4, -1, -1], [0, 2, 7]], "int32")
        for new in ([9, 0, 3], [1, 2, 1]):
            step = {name: random.standard_normal((sum(new), width)).astype("f4")
                    for name, width in (("query", 64), ("key", 32), ("value", 32))}
            step |= {"cumulative": np.cumsum([0, *new]).astype("int32"), "past": past, "table": table}
            np.testing.assert_allclose(pools(step)["y"], copied(step)["y"], atol=1e-5)
            past = past + np.array(new, "int32")
        keys = program.fetch({"keys": pools["key_cache"]})["keys"]
        np.testing.assert_allclose(keys, copied["key_cache"], atol=1e-6)

    def test_caches(self):
        program = fusion.compile(DECODE / "model.onnx", device="cpu")
        inputs, expected = (load_file(DECODE / f"{name}.safetensors") for name in ("inputs", "outputs"))
        whole = program(
            {name: inputs[name] for name in inputs if name in {port.name for port in program.inputs}}
        )
        np.testing.assert_allclose(whole["logits"].astype("f4"), expected["logits"].astype("f4"), atol=5e-3)
        caches = program.caches(
            **{dim: 1 for port in program.inputs for dim in port.shape[:1] if isinstance(dim, str)}
        )
        self.assertGreater(len(caches), 0)
        self.assertTrue(all(0 in caches[past].shape for past in caches))
        with self.assertRaisesRegex(fusion.BadInput, "is one of the caches"):
            caches({next(iter(caches)): 1})

    def test_names_that_are_no_text(self):
        """ONNX says that they are UTF-8, protobuf does not look."""
        def model(op):
            ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["dim_"]) for name in ("in__", "out_")]
            node = helper.make_node(op, ["in__"], ["out_"], name="name")
            graph = helper.make_graph([node], "g", ports[:1], ports[1:])
            return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()

        for op, names, reason in (("Relu", (b"dim_", b"in__", b"out_"), "not UTF-8"),
                                  ("none", (b"name", b"none"), r"\?\?\?\?.*not supported")):
            for name in names:
                with self.assertRaisesRegex(fusion.BadInput, reason):
                    fusion.load(model(op).replace(name, b"\xff\xfe\xc3\x80"[:3] + b"\xf5"))

    def test_errors_by_kind(self):
        for wrong, reason in (
            (lambda: fusion.load("absent.onnx"), "absent.onnx: no such file"),
            (lambda: fusion.load(b"text"), "model.onnx: not an ONNX model"),
            (lambda: fusion.load(3), "not int"),
            (lambda: fusion.load(addition(), constants={"v": 1}), "no input 'v' for a constant"),
            (lambda: fusion.explain(addition(), "cude"), "mlir, cuda, plan or dot, not as 'cude'"),
            (lambda: fusion.compile(addition(), devcie="cpu"), "no option 'devcie'; did you mean 'device'"),
            (lambda: fusion.compile(addition(), device="gpu"), "auto, cpu, cuda or emulate, not 'gpu'"),
            (lambda: fusion.compile(addition(), device="cpu").profile({}), "no kernels to profile"),
        ):
            with self.assertRaisesRegex(fusion.BadInput, reason) as caught:
                wrong()
            self.assertIsInstance(caught.exception, ValueError)
            self.assertNotIn("\n", str(caught.exception))
        if not os.path.exists("/dev/nvidia0"):
            with self.assertRaises(fusion.Lacking):
                fusion.compile(addition(), device="cuda")

    def test_kernels_in_threads_and_bundles(self):
        graph = fusion.load(addition())
        self.assertIn("__global__", graph.explain("cuda", target="sm_90a").text)
        self.assertIn("kernel", str(graph.explain("plan").report).lower())
        program = fusion.compile(graph, device="emulate")
        results = {}

        def run(value):
            for _ in range(5):
                results[value] = program(x=np.full((1, 32), value, "float32"))["y"][0, 1]

        threads = [threading.Thread(target=run, args=(value,)) for value in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {value: value + 1 for value in range(4)})
        self.assertIn("__global__", program.source)
        self.assertGreaterEqual(program.statistics["runs"], 20)
        with tempfile.TemporaryDirectory() as folder:
            graph.write_bundle(folder + "/bundle", target="sm_90a")
            opened = fusion.compile(folder + "/bundle", device="emulate")
            self.assertEqual(opened(x=np.zeros((1, 32), "float32"))["y"][0, 31], 31)

    def test_runs_do_not_hold_the_interpreter(self):
        """Two ranks that are threads of one process wait for each other as they compile and as they run."""
        program = "import sys; sys.path.insert(0, sys.argv[1]); import module_test; module_test.two_threads()"
        done = subprocess.run(
            [sys.executable, "-c", program, str(pathlib.Path(__file__).parent)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "both agree\n"), done.stderr)

    def test_many_threads_make_and_drop_programs(self):
        failures = []

        def work(value):
            try:
                for round in range(4):
                    weight = np.full(32, value, "float32")
                    program = fusion.compile(fusion.load(addition(), weights={"w": weight}), device="cpu")
                    y = program(x=np.full((2, 32), round, "float32"))["y"]
                    del program, weight
                    np.testing.assert_array_equal(y, np.full((2, 32), round + value))
            except BaseException as problem:
                failures.append(problem)

        threads = [threading.Thread(target=work, args=(value,)) for value in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_generation(self):
        """Of the graph with caches, against runs by hand that take the most likely token."""
        graph = fusion.load(DECODE / "model.onnx", sampling="greedy")
        extra = [port.name for port in graph.inputs]
        self.assertIn("next_tokens", [port.name for port in graph.outputs])
        program = fusion.compile(graph, device="cpu")
        told = []
        (tokens,) = program.generate([[3, 1, 4]], 4, on_token=lambda prompt, token: told.append(token))
        self.assertEqual((told, len(tokens)), (tokens, 4), extra)
        self.assertEqual(program.generate([[3, 1, 4]], 4), [tokens])
        self.assertEqual(program.generate([[3, 1, 4]], 4, end_token=tokens[0]), [tokens[:1]])
        self.assertEqual(program.generate([[3, 1, 4]], 4, on_token=lambda prompt, token: True), [tokens[:1]])
        with self.assertRaises(ZeroDivisionError):
            program.generate([[3, 1, 4]], 4, on_token=lambda prompt, token: 1 // 0)
        with self.assertRaisesRegex(fusion.BadInput, "prompt 0 is empty"):
            program.generate([[]], 4)
        with self.assertRaisesRegex(fusion.BadInput, "chooses no tokens"):
            fusion.compile(DECODE / "model.onnx", device="cpu").generate([[1]], 1)

    def test_ranks_find_each_other_by_a_callback(self):
        program = "import sys; sys.path.insert(0, sys.argv[1]); import module_test; module_test.one_rank(*map(int, sys.argv[2:]))"
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-c", program, str(pathlib.Path(__file__).parent), str(rank)],
                    cwd=folder,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank in range(2)
            ]
            outputs = [rank.communicate(timeout=120) for rank in ranks]
        for rank, (out, err) in enumerate(outputs):
            self.assertEqual((ranks[rank].returncode, out), (0, f"rank {rank} agrees\n"), err)

    def test_what_a_callback_raises_is_raised(self):
        def fails(mine):
            raise KeyError("no group")

        with self.assertRaisesRegex(KeyError, "no group"):
            fusion.compile(
                EXAMPLE / "model.onnx", device="emulate", tensor_parallel=2, rank=fusion.Rank(0, 2, fails)
            )

    def test_stubs_name_what_there_is(self):
        stub = (pathlib.Path(fusion.__file__).resolve().parent / "__init__.pyi").read_text()
        for name in fusion.__all__:
            self.assertRegex(stub, rf"\b{name}\b")


def one_rank(rank):
    """Gathers by files in the working folder."""
    import time

    def all_gather(mine):
        pathlib.Path(f"{rank}.part").write_bytes(mine)
        os.rename(f"{rank}.part", f"{rank}.told")
        while not all(os.path.exists(f"{other}.told") for other in range(2)):
            time.sleep(0.02)
        return [pathlib.Path(f"{other}.told").read_bytes() for other in range(2)]

    program = fusion.compile(
        EXAMPLE / "model.onnx", device="emulate", tensor_parallel=2, rank=fusion.Rank(rank, 2, all_gather)
    )
    assert program.rank == rank
    inputs, expected = (load_file(EXAMPLE / f"{name}.safetensors") for name in ("inputs", "outputs"))
    np.testing.assert_allclose(
        program(inputs)["logits"].astype("f4"), expected["logits"].astype("f4"), atol=3e-3
    )
    print(f"rank {rank} agrees")


def two_threads():
    """Gathers by a barrier: nobody passes before the other's call is under way."""
    barrier, given, agreed = threading.Barrier(2), [None, None], []
    inputs, expected = (load_file(EXAMPLE / f"{name}.safetensors") for name in ("inputs", "outputs"))

    def work(rank):
        def all_gather(mine):
            given[rank] = mine
            barrier.wait()
            return list(given)

        program = fusion.compile(
            EXAMPLE / "model.onnx", device="emulate", tensor_parallel=2, rank=fusion.Rank(rank, 2, all_gather)
        )
        logits = program(inputs)["logits"].astype("f4")
        del program
        np.testing.assert_allclose(logits, expected["logits"].astype("f4"), atol=3e-3)
        agreed.append(rank)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("both agree" if sorted(agreed) == [0, 1] else agreed)


if __name__ == "__main__":
    unittest.main()
