"""Compiled graphs and their caches."""

import json
import os
import sys
from typing import Callable, NamedTuple, Optional

import numpy

from . import _core
from ._errors import BadInput
from ._graph import Graph, HasPorts, load
from ._options import options_of
from ._report import Report


class Profile(NamedTuple):
    """Where the time of a run goes."""

    table: str  #: for people, a line a kernel
    trace: str  #: JSON for Perfetto or chrome://tracing


class Rank(NamedTuple):
    """Which of several ranks this process is. `all_gather(bytes)` returns what each rank gave, in the ranks'
    order; compile() calls it once, on all ranks alike."""

    rank: int
    ranks: int
    all_gather: Callable
    gpu: int = 0  #: of this process
    host: Optional[str] = None  #: what the other ranks reach this one under

    @staticmethod
    def of_torch(group=None):
        """By torch.distributed, which has been initialised; the GPU is torch's current one."""
        import torch
        import torch.distributed as dist

        def all_gather(mine):
            answers = [None] * dist.get_world_size(group)
            dist.all_gather_object(answers, mine, group=group)
            return answers

        gpu = torch.cuda.current_device() if torch.cuda.is_available() else 0
        return Rank(dist.get_rank(group), dist.get_world_size(group), all_gather, gpu)


class Program(HasPorts):
    """A compiled graph; made by compile(). May be called by several threads; runs take turns.

    program(**inputs), or program({name: tensor}) where a name is no identifier, takes a tensor for each input
    by name: torch tensors, numpy arrays, anything that speaks DLPack or numpy's array interface, numbers and
    lists. Memory is not copied if it is dense. It returns a dict by output's name: torch tensors if one of
    the inputs is one, else numpy arrays (fusion.Tensor where numpy has no such type or place). What extends a
    cache (see Caches) stays a fusion.Tensor.

    With torch tensors on a GPU the run is queued on torch's current stream and not waited for; their contents
    must stay until the stream has passed the run. A stream that is captured takes the launches into its graph
    once these shapes have run.

    Raises BadInput for an input that is missing, unknown or misshapen, with its name.
    """

    def __init__(self, core, graph=None):
        self._core, self._graph = core, graph
        self._call = core.call

    def __call__(self, inputs=None, /, **named):
        if inputs is not None:
            named = {**inputs, **named} if named else dict(inputs)
        return self._call(named)

    def run(self, inputs, stream=None):
        """The same with fusion.Tensors as results. `stream`: a cudaStream_t as int, where the run is queued
        and not waited for; None: the results are there on return."""
        return self._core.run(dict(inputs), stream)

    def fetch(self, tensors):
        """Dense numpy arrays of fusion.Tensors by name, after all that was queued so far."""
        return self._core.fetch(dict(tensors))

    @property
    def device(self):
        """'cpu reference', 'emulated', or the GPU's name."""
        return self._core.device

    @property
    def rank(self):
        """Of a program whose ranks are processes, this one's; else 0."""
        return self._core.rank

    @property
    def report(self):
        """What fused and what did not, with reasons: a Report."""
        return Report(self._core.report)

    @property
    def source(self):
        """The emitted kernels as CUDA source; empty on the CPU."""
        return self._core.source()

    @property
    def statistics(self):
        """How runs were brought to the device, as a dict: runs, plans, recordings, replays, host_microseconds
        of the last run ..."""
        return json.loads(self._core.statistics())

    def bench(self, inputs, iterations=100, cold=False):
        """Microseconds of each of `iterations` runs, after three that do not count: device time on a GPU.
        `cold`: its cache is emptied before each."""
        return self._core.bench(dict(inputs), iterations, cold)

    def profile(self, inputs):
        """Kernel by kernel; not on the CPU."""
        return Profile(*self._core.profile(dict(inputs)))

    def generate(
        self,
        prompts,
        max_new_tokens,
        *,
        end_token=None,
        chunk=0,
        seed=0,
        inputs=None,
        on_token=None,
    ):
        """Lists of up to `max_new_tokens` token ids that follow each of `prompts`, lists of token ids, of a
        graph that was loaded with `sampling`. Prompts of different lengths need a graph with inputs
        attention_mask and position_ids: from_pretrained(padding=True).

        end_token: nothing follows it. chunk: positions of the prompts in one run; 0: all. seed: of what is
        drawn. inputs: those that are neither token ids, mask, positions nor caches. on_token(prompt, token):
        called with each token, step by step, as soon as it is known; where it returns what is true the
        generation ends. Raises BadInput for a graph that is not one of this kind, and what on_token raises.
        """
        rows = [[int(token) for token in prompt] for prompt in prompts]
        return self._core.generate(rows, max_new_tokens, end_token, chunk, seed, dict(inputs or {}), on_token)

    def caches(self, **sizes):
        """Empty key/value caches for this program: see Caches."""
        return Caches(self, sizes)

    def _repr_html_(self):
        return self.report._repr_html_()

    def __repr__(self):
        return (
            f"<fusion.Program on {self.device}: {', '.join(port.name for port in self.inputs)} -> "
            f"{', '.join(port.name for port in self.outputs)}>"
        )


class Caches:
    """The key/value caches of one conversation, which each call extends.

        caches = program.caches(batch=1)
        outputs = caches(input_ids=prompt, ...)        # runs the program on the caches, and keeps the new
        ones outputs = caches(input_ids=next_token, ...)

    With compile(kv_capacity=N) they are extended where they lie, up to N positions; otherwise each run makes
    new ones. Caches that keep their size, such as pages, are zeros at first, and need the size of each dim:
    program.caches(num_blocks=4096).
    """

    def __init__(self, program, sizes):
        self.program = program
        self._pairs = program._core.caches or _pairs(program)
        if not self._pairs:
            raise BadInput("the program has no caches: no input is called like an output that extends it")
        shapes = {port.name: port for port in program.inputs}
        results = {port.name: port for port in program.outputs}
        self._tensors = {}
        for past, present in self._pairs:
            port = shapes[past]
            shape = [dim if isinstance(dim, int) else sizes.get(dim, 0) for dim in port.shape]
            if list(results[present].shape) == list(port.shape):  # written where it lies, as pages are
                lacking = [dim for dim, size in zip(port.shape, shape) if not size]
                if lacking:
                    raise BadInput(f"{past}: the size of {lacking[0]} is not given")
            elif all(shape):
                raise BadInput(
                    f"{past}: none of its dims {port.shape} is the number of positions: "
                    "give the others sizes only"
                )
            self._tensors[past] = numpy.zeros(shape, _numpy_type(port.dtype))

    def __call__(self, inputs=None, /, **named):
        given = {**(inputs or {}), **named}
        clash = next((name for name in given if name in self._tensors), None)
        if clash:
            raise BadInput(f"{clash} is one of the caches")
        outputs = self.program({**given, **self._tensors})
        for past, present in self._pairs:
            self._tensors[past] = outputs.pop(present)
        return outputs

    def __getitem__(self, past):
        """The cache that is given as the input `past` next."""
        return self._tensors[past]

    def keys(self):
        return self._tensors.keys()

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)


def compile(model, **options):
    """A program that runs `model`: a Graph, anything that load() takes, a folder that fusion-compile wrote,
    or a torch.export ExportedProgram or .pt2 file.

    device: 'auto' (default: the GPU if there is one, else the reference on the host), 'cpu', 'cuda', or
        'emulate': the kernels' own source on the host.
    target: the GPU architecture, 'sm_90a' ...; default: that of GPU 0.
    fuse: False leaves all fusions out; disable: names of those to leave out; patterns: files with more;
        kernels: {name: file.cu}.
    profit: 'auto', 'model' or 'measure': what decides between fusions.
    kv_capacity: positions that key/value caches hold; they are extended where they lie. See Caches.
    tensor_parallel: ranks among which the graph is divided; vocabulary_parallel: embedding and head too. The
        ranks are GPUs of this process, or processes: rank=Rank(...), or launcher=True for what torchrun's
        variables say.
    assume_finite: False runs experts of weight 0 as well.
    batch_invariant: a row's result does not depend on the other rows of a run.
    cache: the folder for compiled kernels, plans and reports.

    Raises BadInput for what cannot be compiled, Lacking for what the machine has not.
    """
    chosen = options_of(**options)
    if isinstance(model, (str, os.PathLike)) and os.path.isfile(os.path.join(model, "bundle.json")):
        return Program(_core.Program.open(os.fspath(model), chosen))
    is_file = isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(".pt2")
    if is_file or (type(model).__name__ == "ExportedProgram" and "torch" in sys.modules):
        from ._exported import from_exported

        model = from_exported(model)
    graph = model if isinstance(model, Graph) else load(model)
    return Program(_core.Program.compile(graph._core, chosen), graph)


def _numpy_type(name):
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        try:
            import ml_dtypes
        except ImportError:
            raise BadInput(f"numpy has no {name}: install ml_dtypes") from None
        return getattr(ml_dtypes, name)
    return name


def _pairs(program):
    """Caches by what exporters call them: past_key_values.0.key and present.0.key, past_3 and present_3,
    key_cache and key_cache_out."""
    outputs = {port.name for port in program.outputs}
    pairs = []
    for port in program.inputs:
        names = [port.name.replace(past, "present", 1) for past in ("past_key_values", "past")]
        for name in (*names, port.name + "_out"):
            if name != port.name and name in outputs:
                pairs.append((port.name, name))
                break
    return pairs
