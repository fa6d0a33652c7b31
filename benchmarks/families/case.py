"""What a benchmark case is. To add one: a subclass in a file of this folder and a line in
families/__init__.py."""
from graph import BYTES

# Relative L2 distance of an output from the exact computation: a few roundings to the type, whatever the
# sizes.
TOLERANCE = {"bf16": 6e-3, "f16": 1e-3, "f32": 1e-5, "f8E4M3FN": 4e-2, "i32": 0, "i64": 0}


class Case:
    """One call of a chain of ops at given sizes.

    A subclass sets `name` (unique, what --only matches), `pattern` (the fusion that must fire, or None) and
    `kernels` (how many a fused call is at most), and says in tensors() what a call reads, in body() what the
    graph computes, in eager() the same as PyTorch users write it, and in exact() the same in double
    precision, rounding only where a result leaves; or exact() returns a function of a result, where that has
    a choice. eager() and exact() take and return dicts of torch tensors; a quantised output `q` with scales
    is returned as (q, scales).
    """
    pattern, kernels = None, 1
    flops = 0         # of products all, of other arithmetic about as many as a person would count
    rate = 1          # of its products on matrix units, in those of bf16
    compiles = True   # False where torch.compile has nothing to fuse
    autotune = False  # worth the time of torch.compile's max-autotune
    small = {}        # sizes for a machine without a GPU
    most_calls = 0    # how many calls are enough; 0: as many as no cache holds
    tolerance = {}    # by output, where TOLERANCE does not fit
    options = ()      # more of fusion-opt's and fusion-run's

    def __init__(self, **sizes):
        self.sizes = sizes

    def tensors(self):
        raise NotImplementedError

    def body(self, graph, values):
        raise NotImplementedError

    def eager(self, t):
        raise NotImplementedError

    def exact(self, t):
        raise NotImplementedError

    def peers(self):
        """More opponents: label -> function like eager(), or a text that says what is missing."""
        return {}

    def bytes(self):
        """What must move: every input read once, every output written once."""
        from graph import written
        graph, _ = written(self, 1)
        moved = sum(spec.bytes(self.sizes) for spec in self.tensors().values())
        for _, value in graph.results:
            count = BYTES[value.dtype]
            for dim in value.dims:
                count *= sum(self.sizes[part] for part in dim.split(" + ")) if isinstance(dim, str) else dim
            moved += count
        return moved


def double(tensor):
    import torch
    return tensor.to(torch.float64)
