"""torch's tensors as inputs, where torch is installed: of every layout, and what no program takes."""

import gc
import sys
import unittest
import weakref

try:
    import torch
except ImportError:
    print("torch is not installed")
    sys.exit(77)

import fusion
from fusion import _tensor


class Twice(torch.nn.Module):
    def forward(self, x):
        return x + x


def program(dtype=torch.float32):
    dims = {0: torch.export.Dim("n"), 1: torch.export.Dim("m")}
    exported = torch.export.export(Twice(), (torch.ones(3, 5, dtype=dtype),), dynamic_shapes=(dims,))
    return fusion.compile(fusion.from_exported(exported), device="cpu")


class Sub(torch.Tensor):
    pass


class TorchTensorsTest(unittest.TestCase):
    def test_layouts(self):
        base = torch.randn(6, 7)
        twice = program()
        for name, given in (
            ("dense", base),
            ("a view behind the first element", base[2:]),
            ("transposed", base.t()),
            ("of steps", base[::2, 1:5]),
            ("repeated", base[:1].expand(4, 7)),
            ("a row", base[3:4]),
            ("a column", base[:, 3:4]),
            ("a parameter", torch.nn.Parameter(base)),
            ("of gradients, transposed", torch.nn.Parameter(base).t()),
            ("a subclass", base.as_subclass(Sub)),
            ("for inference", torch.inference_mode()(lambda: base * 1)()),
        ):
            with self.subTest(name):
                (got,) = twice(x=given).values()
                self.assertIsInstance(got, torch.Tensor)
                self.assertTrue(torch.equal(got, given.detach() + given.detach()))

    def test_types(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32):
            with self.subTest(dtype):
                given = torch.arange(12).reshape(3, 4).to(dtype)
                (got,) = program(dtype)(x=given).values()
                self.assertEqual(got.dtype, dtype)
                self.assertTrue(torch.equal(got, given + given))

    def test_what_is_no_input(self):
        twice = program()
        for name, given, reason in (
            ("complex", torch.ones(3, 5, dtype=torch.complex64), "element type"),
            ("sparse", torch.eye(3).to_sparse(), ""),
            ("of no memory", torch.ones(3, 5, device="meta"), ""),
        ):
            with self.subTest(name):
                with self.assertRaisesRegex((fusion.Error, RuntimeError, BufferError), reason):
                    twice(x=given)
        (got,) = twice(x=torch.ones(2, 2)).values()  # and goes on
        self.assertTrue(torch.equal(got, torch.full((2, 2), 2.0)))

    def test_memory_is_held_no_longer_than_needed(self):
        twice, given = program(), torch.randn(64, 64)
        (got,) = twice(x=given).values()
        gone = weakref.ref(given)
        want = given * 2
        del given
        gc.collect()
        self.assertIsNone(gone())
        self.assertTrue(torch.equal(got, want))

    def test_results_keep_the_memory_that_they_share(self):
        same = fusion.compile(
            fusion.load(b"func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }", name="g.mlir"),
            device="cpu",
        )
        given, want = torch.randn(1 << 16), []
        for shift in range(3):  # handles of the calls before are used again
            want.append(given + shift)
            (got,) = same(want[-1]).values()
            self.assertEqual(got.data_ptr(), want[-1].data_ptr())
            gone, copy = weakref.ref(want[-1]), want.pop().clone()
            gc.collect()
            self.assertIsNotNone(gone())
            torch.randn(1 << 16)  # where the memory was, if it had been let go
            self.assertTrue(torch.equal(got, copy))
            del got
            gc.collect()
            self.assertIsNone(gone())

    def test_inputs_in_any_order_beside_numbers(self):
        text = b"""func.func @main(%x: tensor<?xf32>, %y: tensor<f32>, %z: tensor<?xf32>) -> tensor<?xf32> {
          %0 = nn.sub %x, %y : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
          %1 = nn.div %0, %z : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
          return %1 : tensor<?xf32> }"""
        ratio = fusion.compile(fusion.load(text, name="g.mlir"), device="cpu")
        names = [port.name for port in ratio.inputs]
        given = [torch.full((3,), 8.0), 2, torch.full((3,), 4.0)]
        for how, order in (("as they are", (0, 1, 2)), ("again", (0, 1, 2)), ("turned", (2, 0, 1))):
            for copied in (names, ["".join(list(name)) for name in names]):  # strings of another identity
                with self.subTest(how, copied=copied is not names):
                    (got,) = ratio({copied[i]: given[i] for i in order}).values()
                    self.assertTrue(torch.equal(got, torch.full((3,), 1.5)))
        (got,) = ratio(given[0], torch.tensor(2.0), given[0]).values()
        self.assertTrue(torch.equal(got, torch.full((3,), 0.75)))
        with self.assertRaisesRegex(fusion.BadInput, names[1]):
            ratio(given[0], [[2]], given[2])

    def test_a_call_counts_references_back(self):
        twice, given = program(), torch.randn(8, 8)
        before = sys.getrefcount(given)
        for _ in range(20):
            twice(x=given)
        self.assertEqual(sys.getrefcount(given), before)

    def test_libraries_without_the_table_give_capsules(self):
        """Of PyTorch before 2.10: types are looked at once, so this one is new."""

        class Older(torch.Tensor):
            __dlpack_c_exchange_api__ = None

        given = torch.randn(4, 4)
        (got,) = program()(x=given.as_subclass(Older)).values()
        self.assertTrue(torch.equal(got, given * 2))
        self.assertEqual(_tensor._kind_of(given.as_subclass(Older)), 3)


if __name__ == "__main__":
    unittest.main()
