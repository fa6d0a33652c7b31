"""torch.compile and torch.export, where torch is installed."""

import copy
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import numpy as np

try:
    import torch
except ImportError:
    print("torch is not installed")
    sys.exit(77)

import fusion
from fusion import _dynamo

warnings.filterwarnings("ignore")


class Block(torch.nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm, self.heads = torch.nn.LayerNorm(width), heads
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width, bias=False), torch.nn.Linear(2 * width, width)
        self.scale = torch.nn.Parameter(torch.rand(width))

    def forward(self, x):
        batch, seq, width = x.shape
        q, k, v = (
            t.view(batch, seq, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm(x)).split(width, dim=-1)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        return {"y": x + self.down(torch.nn.functional.gelu(self.up(normed)) * 0.5), "last": x[:, -1]}


class Odd(torch.nn.Module):
    """In the middle is what cannot be imported."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        values, _ = torch.linalg.qr(torch.relu(self.a(x)))
        return torch.relu(self.b(values)) + 1


class Writes(torch.nn.Module):
    """Indices: what routed experts and caches are written with."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.tensor([1, 1, 3]))

    def forward(self, x, at):
        order = torch.sort(at).indices
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        counts = torch.histc(at.float(), bins=4, min=0, max=3)
        rows = x[order][back]
        rows = rows.slice_scatter(x[:, :2] * 2, 1, 1, 3).select_scatter(x[:, 0], 1, 0)
        rows[:, 3] = x[:, 0] + 1
        ones = torch.zeros_like(x).scatter(1, at[:, None], 1.0)
        sums = torch.zeros(4, x.shape[1]).index_put((self.rows,), x[:3], accumulate=True)
        return {
            "rows": rows.repeat_interleave(2, 0),
            "counts": counts,
            "ones": ones.scatter_add(1, at[:, None], x),
            "sums": sums,
            "rest": torch.trunc(x * 3)
            + torch.exp2(x)
            + torch.isfinite(x) * torch.nn.functional.hardsigmoid(x)
            + torch.fmod(x, 0.7),
        }


def flat(results):
    return results if isinstance(results, tuple) else (results,)


def largest(a, b):
    return float((a - b).abs().max())


class TorchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        fusion.torch_reports(clear=True)

    def test_exported_programs(self):
        model = Block().eval()
        dims = {"x": {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("seq", max=512)}}
        exported = torch.export.export(model, (torch.randn(2, 5, 32),), dynamic_shapes=dims)
        graph = fusion.from_exported(exported, input_dims=[["batch", "seq", None]])
        self.assertEqual(graph.inputs, [fusion.Port("x", "float32", ("batch", "seq", 32))])
        program = fusion.compile(graph, device="cpu")
        for shape in ((2, 5, 32), (1, 1, 32), (3, 70, 32)):
            x = torch.randn(shape)
            got, want = program(x=x), model(x)
            self.assertEqual(list(got), ["y", "last"])
            for name in want:
                self.assertLess(largest(got[name], want[name]), 2e-6, (shape, name))
        with torch.no_grad():
            model.scale.fill_(0)  # by pointer
        self.assertLess(largest(program(x=x)["y"], model(x)["y"]), 2e-6)
        self.assertIsInstance(program(x=x.numpy())["y"], np.ndarray)
        with tempfile.TemporaryDirectory() as folder:
            torch.export.save(exported, folder + "/block.pt2")
            again = fusion.compile(folder + "/block.pt2", device="cpu")
        self.assertLess(largest(again(x=x)["y"], model(x)["y"]), 2e-6)

    def test_what_an_export_cannot_be_is_said(self):
        exported = torch.export.export(Odd(), (torch.randn(8, 8),))
        with self.assertRaisesRegex(fusion.Unsupported, "linalg_qr.*is not known"):
            fusion.from_exported(exported)

        class Counts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("count", torch.zeros(1))

            def forward(self, x):
                self.count.add_(1)
                return x + self.count

        with self.assertRaisesRegex(fusion.Unsupported, "changes count"):
            fusion.from_exported(torch.export.export(Counts(), (torch.randn(4),)))

    def test_the_backend(self):
        model = Block().eval()
        compiled = torch.compile(model, backend=_dynamo.backend)
        with torch.no_grad():
            for shape in ((2, 5, 32), (3, 9, 32), (1, 4, 32)):
                x = torch.randn(shape)
                got, want = compiled(x), model(x)
                for name in want:
                    self.assertLess(largest(got[name], want[name]), 2e-6, (shape, name))
            model.scale.mul_(2)
            self.assertLess(largest(compiled(x)["y"], model(x)["y"]), 2e-6)
        with torch.inference_mode():
            made = Block().eval()
            self.assertLess(largest(torch.compile(made, backend=_dynamo.backend)(x)["y"], made(x)["y"]), 2e-6)
        for report in fusion.torch_reports():
            self.assertEqual((report.left, len(report.programs) > 0), ([], True))

    def test_writes_and_indices(self):
        model = Writes()
        args = (torch.randn(6, 5), torch.tensor([3, 1, 0, 3, 2, 1]))
        dims = {"x": {0: torch.export.Dim.AUTO}, "at": {0: torch.export.Dim.AUTO}}
        program = fusion.compile(
            fusion.from_exported(torch.export.export(model, args, dynamic_shapes=dims)), device="cpu"
        )
        for x, at in (args, (torch.randn(3, 5), torch.tensor([2, 2, 0]))):
            got, want = program(x=x, at=at), model(x, at)
            for name in want:
                self.assertLess(largest(got[name], want[name]), 2e-6, name)

    def test_folders_of_transformers(self):
        """A dense and a routed model: generation is transformers' own, and the backend leaves nothing."""
        try:
            import architectures
        except ImportError as problem:
            self.skipTest(str(problem))
        for name in ("llama", "mixtral"):
            model = architectures.made(name)
            worst, text, reasons = architectures.by_folder(name, model, "cpu")
            self.assertEqual((worst, reasons), (0, []), name)
        worst, text, reasons = architectures.by_compile("llama", architectures.made("llama"), "cpu")
        self.assertLess(worst, architectures.TOLERANCE)
        self.assertEqual((text, reasons), ("1 graphs, 0 breaks, 1 pieces", []))
        self.assertEqual(architectures.by_static_cache(architectures.made("llama"), "cpu"), [])

    def test_what_cannot_be_imported_stays_with_torch(self):
        model = Odd().eval()
        with torch.no_grad():
            x = torch.randn(8, 8)
            got = torch.compile(model, backend=_dynamo.backend)(x)
        self.assertLess(largest(got, model(x)), 1e-6)
        (report,) = fusion.torch_reports()
        self.assertEqual(len(report.programs), 2)
        self.assertIn("linalg_qr", str(report))

    def test_pieces_without_tensors_as_inputs(self):
        """Of positions alone, or of sizes: their results are PyTorch's all the same."""
        positions = torch.compile(lambda: torch.arange(6) * 2 + 1, backend=_dynamo.backend)
        self.assertTrue(torch.equal(positions(), torch.arange(6) * 2 + 1))
        as_long = torch.compile(
            lambda x: torch.arange(x.shape[0]) * 2 + 1, backend=_dynamo.backend, dynamic=True
        )
        for length in (3, 5):
            self.assertTrue(torch.equal(as_long(torch.ones(length)), torch.arange(length) * 2 + 1))
        for report in fusion.torch_reports():
            self.assertEqual((report.left, len(report.programs)), ([], 1))

    def test_what_a_handler_refuses_is_left_alone(self):
        """Not the piece around it: that an op cannot be imported may depend on its arguments."""

        def compute(x):
            best = torch.logcumsumexp(torch.relu(x) * 2, -1)
            return torch.softmax(x + best, -1) * 3

        x = torch.randn(4, 6)
        got = torch.compile(compute, backend=_dynamo.backend)(x)
        self.assertLess(largest(got, compute(x)), 1e-6)
        (report,) = fusion.torch_reports()
        self.assertEqual(len(report.programs), 2)
        self.assertEqual([where for where, _ in report.left], ["logcumsumexp"])
        self.assertIn("not known", report.left[0][1])

    def test_reads_and_writes_behind_the_first_dim(self):
        """As a static cache is written: at positions of its third dim."""

        def compute(cache, new, at, other):
            cache = cache.clone()
            cache[:, :, at] = new
            spread = torch.zeros(2, 3, 4, 5)
            spread[:, at, other] = new[:, 0]
            return cache, cache[:, at, other], cache[:, :, at, other], spread

        cache, new = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 2, 5)
        at, other = torch.tensor([2, 0]), torch.tensor([1, 3])
        got = torch.compile(compute, backend=_dynamo.backend)(cache, new, at, other)
        for one, (a, b) in enumerate(zip(got, compute(cache, new, at, other))):
            self.assertEqual(a.shape, b.shape)
            self.assertLess(largest(a, b), 1e-6, one)
        (report,) = fusion.torch_reports()
        self.assertEqual(report.left, [])

    def test_static_caches_are_written_where_they_lie(self):
        """One row, or rows that follow one another; and a cache whose old rows are read too is copied."""

        def step(keys, values, length, new, scale):
            at = torch.arange(new.shape[2]) + length
            length.add_(new.shape[2])
            keys.index_copy_(2, at, new * 2)
            values.index_copy_(2, at, new + 1)
            return ((keys * scale).sum(-1) * values.sum(-1)).relu()

        def and_reads(keys, values, length, new, scale):
            old = keys[:, :, 0] * 3
            return step(keys, values, length, new, scale), old

        for function, rows, in_place in ((step, 1, 2), (step, 3, 2), (and_reads, 1, 1)):
            torch._dynamo.reset()
            fusion.torch_reports(clear=True)
            keys, values = torch.randn(2, 3, 8, 16), torch.randn(2, 3, 8, 16)
            got = [keys, values, torch.tensor(1), torch.randn(2, 3, rows, 16), torch.randn(16)]
            want = [each.clone() for each in got]
            compiled = torch.compile(function, backend=_dynamo.backend, options={"device": "emulate"})
            with torch.no_grad(), mock.patch.object(_dynamo, "_changed", wraps=_dynamo._changed) as changed:
                for _ in range(2):
                    results = zip(flat(compiled(*got)), flat(function(*want)))
                    for a, b in [*results, *zip(got, want)]:
                        self.assertLess(largest(a, b), 1e-4, (function, rows))
            self.assertEqual(changed.call_count, 2 * in_place, (function, rows))
            (report,) = fusion.torch_reports()
            self.assertEqual(report.left, [])

    def test_floats_are_constants_until_they_change(self):
        """With dynamic=True they are tensors to the graph, and an epsilon in one is no norm's."""

        def compute(x, eps, scale):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * scale

        compiled = torch.compile(compute, backend=_dynamo.backend, dynamic=True)
        for eps, scale, programs, inputs in (
            (1e-5, 0.3, 1, 1),
            (1e-5, 0.3, 1, 1),
            (1e-5, 0.7, 2, 2),
            (1e-5, 0.9, 2, 2),
            (0.1, 0.9, 3, 3),
            (0.2, 0.3, 3, 3),
        ):
            x = torch.randn(3, 16)
            self.assertLess(largest(compiled(x, eps, scale), compute(x, eps, scale)), 1e-6)
            reports = fusion.torch_reports()
            if len(reports) == 1:  # else this Dynamo compiles for each number itself
                self.assertEqual(len(reports[0].programs), programs)
                self.assertEqual(len(reports[0].programs[-1].inputs), inputs)

    def test_inputs_that_a_graph_changes(self):
        def swap(a, b):
            old = a * 1 + 0
            a.copy_(b * 2)
            b.copy_(old)
            return a + b

        got = [torch.randn(4), torch.randn(4)]
        want = [each.clone() for each in got]
        with torch.no_grad():
            self.assertLess(largest(torch.compile(swap, backend=_dynamo.backend)(*got), swap(*want)), 1e-6)
        for a, b in zip(got, want):
            self.assertTrue(torch.equal(a, b))

    def test_options_are_checked_before_anything_is_compiled(self):
        for options, reason in (
            ({"devcie": "cpu"}, "no option 'devcie'; did you mean 'device'"),
            ({"device": "gpu"}, "auto, cpu, cuda or emulate, not 'gpu'"),
        ):
            torch._dynamo.reset()
            with self.assertRaisesRegex(Exception, reason):
                torch.compile(torch.relu, backend=_dynamo.backend, options=options)(torch.ones(2))

    def test_programs_of_a_compiled_model_are_copied_with_it(self):
        model = Block().eval()
        x = torch.randn(2, 5, 32)
        with torch.no_grad():
            compiled = torch.compile(model, backend=_dynamo.backend)
            want = compiled(x)["y"]
            self.assertLess(largest(copy.deepcopy(compiled)(x)["y"], want), 1e-6)

    def test_training_stays_with_torch(self):
        model = Block()
        _dynamo._warned.clear()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(2):
                torch._dynamo.reset()
                loss = torch.compile(model, backend=_dynamo.backend)(torch.randn(2, 5, 32))["y"].sum()
                loss.backward()
        said = [str(each.message) for each in told if str(each.message).startswith("fusion:")]
        self.assertEqual(len(said), 1, said)
        self.assertIn("needs gradients and stays with PyTorch", said[0])
        self.assertIsNotNone(model.scale.grad)
        self.assertIn("it needs gradients", str(fusion.torch_reports()[0]))

    def test_the_reference_is_said_to_be_slow_once(self):
        x = torch.randn(3)
        for options, times in ((None, 1), ({"device": "cpu"}, 0)):
            _dynamo._warned.clear()
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                for function in (lambda a: torch.relu(a) + 1, lambda a: torch.tanh(a) * 2):
                    torch.compile(function, backend=_dynamo.backend, options=options)(x)
            said = [each for each in told if "reference, which checks numbers and is slow" in str(each.message)]
            self.assertEqual(len(said), times)


if __name__ == "__main__":
    unittest.main()
