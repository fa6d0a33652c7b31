"""Ops of ATen: numbers as PyTorch's, where torch is installed."""

import itertools
import sys
import unittest
import warnings

try:
    import torch
except ImportError:
    print("torch is not installed")
    sys.exit(77)

import fusion
from fusion import _dynamo
from fusion._aten import Importer
from fusion._onnx import Builder

warnings.filterwarnings("ignore")


def share_that_differs(function, *inputs):
    """Of the elements that the backend and PyTorch compute."""
    torch._dynamo.reset()
    fusion.torch_reports(clear=True)
    with torch.no_grad():  # one op alone would stay with PyTorch
        compiled = torch.compile(lambda *x: (function(*x), x[0] + x[0]), backend=_dynamo.backend)
        got, want = compiled(*inputs)[0], function(*inputs)
    left = [reason for report in fusion.torch_reports() for reason in report.left]
    assert not left, left
    assert (got.dtype, got.shape) == (want.dtype, want.shape), (got, want)
    return float(((got != want) & ~(got.isnan() & want.isnan())).float().mean())


class AtenTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        fusion.torch_reports(clear=True)

    def test_norms_of_16_bits_are_rounded_once(self):
        """Not before scale and shift: that is a quarter of the elements. Sums in another order are few."""
        layer, group = torch.nn.functional.layer_norm, torch.nn.functional.group_norm
        for dtype in (torch.bfloat16, torch.float16):
            x, weight, bias = (torch.randn(shape).to(dtype) for shape in ((33, 64), (64,), (64,)))
            for name, function in {
                "layer": lambda x, w, b: layer(x, (64,), w, b),
                "layer without shift": lambda x, w, b: layer(x, (64,), w),
                "layer alone": lambda x, w, b: layer(x, (64,)),
                "group": lambda x, w, b: group(x, 4, w, b),
                "group alone": lambda x, w, b: group(x, 4),
                "group behind": lambda x, w, b: group(x.view(33, 16, 4), 4, w[:16], b[:16]),
                "rms": lambda x, w, b: torch.nn.functional.rms_norm(x, (64,), w),
            }.items():
                self.assertLess(share_that_differs(function, x, weight, bias), 3e-3, (name, dtype))

    def test_ops_of_16_bits_are_rounded_once(self):
        """As PyTorch's are: on f32, with numbers in f32; those of sums are rounded first on the CPU."""
        f = torch.nn.functional
        for dtype in (torch.bfloat16, torch.float16):
            a, b, c = ((torch.randn(33, 64) * 1.5).to(dtype) for _ in range(3))
            for name, function in {
                "mul": lambda a, b, c: a * 0.3,
                "mul by a tensor": lambda a, b, c: a * torch.tensor(0.3),
                "div": lambda a, b, c: a / 0.3,
                "div of a number": lambda a, b, c: 0.3 / a,
                "add": lambda a, b, c: a + 0.3,
                "rsub": lambda a, b, c: 0.3 - a,
                "add alpha": lambda a, b, c: torch.add(a, b, alpha=0.3),
                "sub alpha": lambda a, b, c: torch.sub(a, b, alpha=0.3),
                "rsub alpha": lambda a, b, c: torch.rsub(a, b, alpha=0.3),
                "add alpha to a number": lambda a, b, c: torch.add(a, 0.3, alpha=0.7),
                "addcmul": lambda a, b, c: torch.addcmul(a, b, c),
                "addcmul value": lambda a, b, c: torch.addcmul(a, b, c, value=0.7),
                "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c.abs() + 0.5),
                "rsqrt": lambda a, b, c: a.abs().rsqrt(),
                "hardsigmoid": lambda a, b, c: f.hardsigmoid(a * 2),
                "hardswish": lambda a, b, c: f.hardswish(a * 2),
                "leaky_relu": lambda a, b, c: f.leaky_relu(a, 0.013),
                "elu": lambda a, b, c: f.elu(a, 0.7),
                "selu": lambda a, b, c: f.selu(a),
                "celu": lambda a, b, c: f.celu(a, 0.7),
                "mish": lambda a, b, c: f.mish(a),
                "remainder": lambda a, b, c: torch.remainder(a, b),
                "floor of a quotient": lambda a, b, c: torch.div(a, 0.3, rounding_mode="floor"),
                "whole part of a quotient": lambda a, b, c: torch.div(a, b, rounding_mode="trunc"),
            }.items():
                self.assertLess(share_that_differs(function, a, b, c), 1.5e-3, (name, dtype))

    def test_numbers_of_sums_on_a_gpu_are_not_rounded(self):
        def compute(a, b):
            return torch.add(a, b, alpha=0.3) + 0.7

        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx

        a, b = torch.randn(2, 64, 64).to(torch.bfloat16)
        with FakeTensorMode():
            traced = make_fx(compute)(*(torch.empty(64, 64, dtype=a.dtype, device="cuda") for _ in range(2)))
        importer = Importer(traced)
        program = fusion.compile(importer.run(lambda count: ["y"]), device="cpu")
        got = program(dict(zip([name for name, _ in importer.inputs], (a, b))))["y"]
        want = ((a.float() + 0.3 * b.float()).to(a.dtype).float() + 0.7).to(a.dtype)
        self.assertTrue(torch.equal(got, want))

    def test_functions_that_onnx_has_not(self):
        edges = [0.0, -0.0, 1.0, -1.0, 8.0, 1000.0, 1e-30, -1e-6, 2.0**-20, 3e38, -3e38, -88.0, 89.0]
        edges = torch.tensor([*edges, float("inf"), -float("inf"), float("nan")])
        a, b = (each.reshape(-1) for each in torch.meshgrid(edges, edges, indexing="ij"))
        a, b = (torch.cat((each, torch.randn(1000) * 3)) for each in (a, b))
        for name, function in {
            "log1p": lambda a, b: torch.log1p(a),
            "expm1": lambda a, b: torch.expm1(a),
            "log2": lambda a, b: torch.log2(a),
            "log10": lambda a, b: torch.log10(a),
            "atan2": lambda a, b: torch.atan2(a, b),
            "atan": lambda a, b: torch.atan(a),
            "asin": lambda a, b: torch.asin(a),
            "acos": lambda a, b: torch.acos(a),
            "atanh": lambda a, b: torch.atanh(a),
            "elu": lambda a, b: torch.ops.aten.elu(a, 0.5, 1.5, 2.0),
            "selu": lambda a, b: torch.nn.functional.selu(a),
        }.items():
            torch._dynamo.reset()
            compiled = torch.compile(lambda a, b: (function(a, b), a + b), backend=_dynamo.backend)
            got, want = compiled(a, b)[0], function(a.double(), b.double()).float()
            same = (got == want) | (got.isnan() & want.isnan())
            near = (got - want).abs() <= 1e-6 * want.abs() + 1e-38
            wrong = torch.nonzero(~(same | near)).reshape(-1).tolist()
            self.assertEqual([(name, a[i], b[i], got[i], want[i]) for i in wrong[:5]], [])
        self.assertEqual([reason for report in fusion.torch_reports() for reason in report.left], [])

    def test_quotients_and_remainders(self):
        """Of all signs, by zero, and where a quotient is nearly a whole number."""
        a, b = (torch.randint(-30, 31, (2000,)) / 10 for _ in range(2))
        for name, function in {
            "remainder": torch.remainder,
            "remainder by a number": lambda a, b: torch.remainder(a, -0.7),
            "fmod": torch.fmod,
            "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
            "floor by a number": lambda a, b: a // 0.3,
            "whole part": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        }.items():
            self.assertEqual(share_that_differs(function, a, b), 0, name)
        narrow = a.to(torch.bfloat16), b.to(torch.bfloat16)
        self.assertEqual(share_that_differs(lambda a, b: a // 0.3, *narrow), 0)

    def test_triangular_systems(self):
        for rows, upper, left, unit in itertools.product((1, 5, 64), (False, True), (False, True), (False, True)):
            options = {"upper": upper, "left": left, "unitriangular": unit}
            matrix = torch.randn(2, 3, rows, rows) * 0.3 + (0 if unit else 2) * torch.eye(rows)
            right = torch.randn(2, 3, *((rows, 7) if left else (7, rows)))

            def solve(a, b, options=options):
                return torch.linalg.solve_triangular(a, b, **options), b + 1

            want = solve(matrix.double(), right.double())[0]
            fusion.torch_reports(clear=True)
            torch._dynamo.reset()
            got = torch.compile(solve, backend=_dynamo.backend)(matrix, right)[0]
            self.assertEqual([each for report in fusion.torch_reports() for each in report.left], [])
            self.assertLess(float((got - want).abs().max() / want.abs().max()), 1e-6, (rows, options))

    def test_sizes_that_follow_from_others(self):
        """Pads, rounded quotients of what may be negative, and dims of size 0: as symbols, at several sizes."""
        dynamic = getattr(torch.export.Dim, "DYNAMIC", torch.export.Dim.AUTO)
        pad = torch.nn.functional.pad

        def every_third(x):
            y = x.clone()
            y[..., 1:9:3] = x[..., :3] * 2
            y[..., -3::2] = -1
            return y

        for name, compute in {
            "to a multiple": lambda x: pad(x, (0, 0, 0, -x.shape[1] % 8)).reshape(x.shape[0], -1, 8, 12),
            "by a quotient rounded up": lambda x: pad(x, (0, 0, -(-x.shape[1] // 8), 0), value=2.0),
            "what is cut off": lambda x: pad(x, (0, 0, 4 - x.shape[1], 0)),
            "rows with a step": every_third,
            "windows": lambda x: x.unfold(1, 3, 2) + x.unfold(-1, 3, 1)[..., :1].amax(2, keepdim=True)[:, :1],
            "no rows": lambda x: torch.cat((x[:, :0].unsqueeze(1), x.unsqueeze(1)), 2),
        }.items():

            class Module(torch.nn.Module):
                def forward(self, x, compute=compute):
                    return compute(x)

            example = (torch.randn(2, 21, 12),)
            exported = torch.export.export(Module(), example, dynamic_shapes=({0: dynamic, 1: dynamic},))
            program = fusion.compile(fusion.from_exported(exported, input_names=["x"]), device="cpu")
            for rows in (9, 17, 20):
                x = torch.randn(3, rows, 12)
                (got,) = program({"x": x}).values()
                self.assertTrue(torch.equal(got, compute(x)), (name, rows))

    def test_numbers_of_which_sizes_are_made(self):
        """A piece gets -keep, not keep; one behind an op that stays with PyTorch a dim that is a sum of two."""

        def compute(x, keep):
            rows = x[:, -keep:]
            both = torch.cat((rows, torch.special.i1(x)), 1)
            return torch.nn.functional.linear(rows, x[0]), both.reshape(-1, 6) * both.max() + both.min()

        compiled = torch.compile(compute, backend=_dynamo.backend, dynamic=True)
        for length, keep in ((7, 3), (9, 4)):
            x = torch.randn(2, length, 6)
            for got, want in zip(compiled(x, keep), compute(x, keep)):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        left = [reason for report in fusion.torch_reports() for _, reason in report.left]
        self.assertEqual([reason for reason in left if "special_i1" not in reason], [])

    def test_sizes_that_an_export_is_not_for(self):
        """The branch is taken by the example's size: other sizes would give other numbers without a word."""

        class Module(torch.nn.Module):
            def forward(self, x, others):
                rows = x + others["y"][0]
                return {"rows": rows + 1 if x.shape[1] > 8 else rows}

        dynamic = getattr(torch.export.Dim, "DYNAMIC", torch.export.Dim.AUTO)
        example = (torch.randn(2, 5, 4), {"y": [torch.randn(2, 5, 4)]})
        shapes = ({0: dynamic, 1: dynamic}, {"y": [{0: dynamic, 1: dynamic}]})
        exported = torch.export.export(Module(), example, dynamic_shapes=shapes)
        if not getattr(exported, "_guards_code", None):
            self.skipTest("this torch.export does not say what it found")
        program = fusion.compile(fusion.from_exported(exported, input_names=["x", "y"]), device="cpu")
        for batch, rows in ((3, 8), (1, 1)):
            x = torch.randn(batch, rows, 4)
            self.assertTrue(torch.equal(program(x, x)["rows"], x + x))
        x = torch.randn(3, 9, 4)
        for call in (lambda: program(x=x, y=x), lambda: program.run({"x": x, "y": x})):
            with self.assertRaisesRegex(fusion.BadInput, r"is for sizes with [xy].shape.1. <= 8"):
                call()

    def test_complex_numbers(self):
        """As rotations by polar() have them; they may be inputs and results of a piece."""
        table = torch.polar(torch.ones(5, 8), torch.randn(5, 8))

        def compute(x, angles, given):
            turns = (torch.polar(torch.ones_like(angles), angles) * 1.5).unsqueeze(2)
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            rows = pairs[:, :5] * table[None, : x.shape[1], None]
            more = torch.cat((pairs, -pairs), 2)[:, 1:] * x[:, 1:, :1, :1]
            real = torch.view_as_real(pairs * turns).flatten(3)
            return (
                real,
                torch.view_as_real(rows.transpose(1, 2)).sum(-1),
                (pairs * pairs.conj()).real + (pairs + pairs - 2.0 * pairs).imag,
                torch.view_as_real(more),
                pairs * given[0] + torch.complex(x[..., :8], x[..., 8:]),
            )

        compiled = torch.compile(compute, backend=_dynamo.backend, dynamic=True)
        for batch, rows in ((2, 4), (3, 5)):
            x, angles = torch.randn(batch, rows, 3, 16), torch.randn(batch, rows, 8)
            given = torch.randn(2, 8, dtype=torch.complex64).conj()
            for got, want in zip(compiled(x, angles, given), compute(x, angles, given)):
                self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
                torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
        self.assertEqual([reason for report in fusion.torch_reports() for reason in report.left], [])
        with self.assertRaisesRegex(fusion.Unsupported, "complex64"):
            exported = torch.export.export(torch.nn.Identity(), (given,))
            fusion.from_exported(exported)

    def test_sinh_near_zero(self):
        graph = Builder()
        graph.input("x", "float32", [5])
        graph.output("y", graph.node("Sinh", ["x"]), "float32", [5])
        x = torch.tensor([1e-30, -1e-8, 0.5, -3.0, 80.0])
        y = fusion.compile(graph.model(), device="cpu")(x=x)["y"]
        torch.testing.assert_close(y, torch.sinh(x), rtol=1e-6, atol=0)

    def test_variances_and_places_of_all(self):
        def compute(x):
            whole = torch.stack((x.var(), x.std(unbiased=False), x.argmax() * 1.0, x.argmin() * 1.0))
            variance, mean = torch.var_mean(x, (0, 2), correction=1.5)
            deviation, other = torch.std_mean(x, -1, keepdim=True)
            return whole, variance, mean, deviation, other, x.var(1, False), x[:, :1].var(1)

        compiled = torch.compile(compute, backend=_dynamo.backend, dynamic=True)
        for shape in ((3, 4, 5), (2, 7, 6)):
            x = torch.randn(shape)
            for got, want in zip(compiled(x), compute(x)):
                self.assertEqual(got.shape, want.shape)
                torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6, equal_nan=True)
            narrow = x.to(torch.bfloat16)
            self.assertLess(share_that_differs(lambda x: x.std(-1), narrow), 0.01)
        self.assertEqual([reason for report in fusion.torch_reports() for reason in report.left], [])


if __name__ == "__main__":
    unittest.main()
