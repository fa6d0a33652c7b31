"""Compiled graphs and their caches."""

import json
import operator
import os
from collections.abc import Mapping
from typing import Callable, NamedTuple, Optional

import numpy

from . import _core
from ._errors import BadInput, Lacking
from ._graph import Graph, HasPorts, load
from ._options import did_you_mean, options_of, with_options
from ._report import Report


class Profile(NamedTuple):
    """Where the time of a run goes."""

    table: str  #: for people, a line a kernel
    trace: str  #: JSON for Perfetto or chrome://tracing

    def __str__(self):
        return self.table


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

    program(**inputs), program({name: tensor}) where a name is no identifier, or program(*tensors) in the
    order of `inputs`, takes a tensor for each input: torch tensors, numpy arrays, anything that speaks DLPack
    or numpy's array interface, and numbers and lists, which become what the input is. Memory is not copied if
    it is dense. It returns a dict by output's name: torch tensors if one of the inputs is one, else numpy
    arrays (fusion.Tensor where numpy has no such type or place). What extends a cache (see Caches) stays a
    fusion.Tensor.

    With torch tensors on a GPU the run is queued on torch's current stream and not waited for; their contents
    must stay until the stream has passed the run. A stream that is captured takes the launches into its graph
    once these shapes have run.

    Raises BadInput for an input that is missing, unknown or misshapen, with its name.
    """

    def __init__(self, core, graph=None):
        self._core, self._graph = core, graph
        self._call = core.call
        self._conditions = graph and graph._conditions

    def __call__(self, *inputs, **named):
        if inputs:
            named = self._by_name(inputs, named)
        if self._conditions:
            self._check(named)
        return self._call(named, self._typed)

    def _check(self, named):
        broken = self._conditions.broken(named)
        if broken:
            raise BadInput(
                f"the exported program is for sizes with {broken}, which torch.export found with its example: "
                "export it for sizes as these"
            )

    def _by_name(self, inputs, named):
        """What was given by position, and by name, as one dict."""
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return {**inputs[0], **named}
        names = [port.name for port in self.inputs]
        if len(inputs) > len(names):
            raise BadInput(f"{len(inputs)} tensors for {len(names)} inputs: {', '.join(names)}")
        twice = next((name for name in names[: len(inputs)] if name in named), None)
        if twice is not None:
            raise BadInput(f"input {twice} is given by its place and by its name")
        return {**dict(zip(names, inputs)), **named}

    def _typed(self, name, value):
        """A number or list as an array of the type that its input has; itself where there is no such input."""
        port = next((port for port in self.inputs if port.name == name), None)
        if port is None:
            return value
        try:
            return numpy.asarray(value, numpy_type(port.dtype))
        except (TypeError, ValueError, OverflowError) as problem:
            if isinstance(problem, BadInput):
                raise
            raise BadInput(f"input {name}: {problem}") from None

    def run(self, inputs, stream=None):
        """A call with fusion.Tensors as results, a dict by output's name. `inputs`: tensors by name.
        `stream`: a cudaStream_t as int, where the run is queued and not waited for; None: the results are there on
        return. Raises BadInput as a call does."""
        inputs = dict(inputs)
        if self._conditions:
            self._check(inputs)
        return self._core.run(inputs, stream)

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
        """How runs were brought to the device, as a dict: runs, plans, recordings, replays, variants
        (programs that were compiled for runs of one kind each), host_microseconds of the last run ..."""
        return json.loads(self._core.statistics())

    def bench(self, inputs, iterations=100, cold=False):
        """Microseconds of each of `iterations` runs, a list, after three that do not count: device time on a
        GPU. `cold`: its cache is emptied before each. Raises BadInput as a call does."""
        return self._core.bench(dict(inputs), iterations, cold)

    def profile(self, inputs):
        """Where the time of a run goes, kernel by kernel: a Profile. Raises BadInput on the CPU, which has no
        kernels."""
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
        """Empty key/value caches for this program: see Caches. `sizes`: of symbolic dims other than the
        positions, such as batch=1. Raises BadInput if the program has no caches."""
        return Caches(self, sizes)

    def _repr_html_(self):
        return self.report._repr_html_()

    def __copy__(self):  # what it computes does not change
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError(
            "a fusion.Program cannot be pickled: it holds kernels of this process; Graph.write_bundle() "
            "writes a folder that compile() opens"
        )

    def __repr__(self):
        return (
            f"<fusion.Program on {self.device}: {', '.join(port.name for port in self.inputs)} -> "
            f"{', '.join(port.name for port in self.outputs)}>"
        )


def _size(name, size):
    try:
        number = operator.index(size)
    except TypeError:
        number = -1
    if isinstance(size, bool) or not 0 <= number < 2**63:
        raise BadInput(f"{name} takes a size from 0 on, not {size!r}")
    return number


class Caches:
    """The key/value caches of one conversation, which each call extends.

        caches = program.caches(batch=1)
        outputs = caches(input_ids=prompt, ...)    # runs the program on the caches, and keeps the new ones
        outputs = caches(input_ids=next_token, ...)

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
        dims = {dim for port in shapes.values() for dim in port.shape if isinstance(dim, str)}
        unknown = next((name for name in sizes if name not in dims), None)
        if unknown:
            raise BadInput(
                f"the inputs have no dim '{unknown}': {', '.join(sorted(dims))}" + did_you_mean(unknown, dims)
            )
        sizes = {name: _size(name, size) for name, size in sizes.items()}
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
            try:
                self._tensors[past] = numpy.zeros(shape, numpy_type(port.dtype))
            except (MemoryError, ValueError) as error:  # the second of more bytes than an address has
                raise Lacking(f"{past}: there is not enough memory for {shape}") from error

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
        """The names of the inputs that are caches."""
        return self._tensors.keys()

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)


@with_options
def compile(model, **options):
    """A Program that runs `model`.

        program = fusion.compile("model.onnx")
        outputs = program(input_ids=ids)        # {name: tensor}

    model: a Graph, anything that load() takes (a path, bytes, an onnx.ModelProto, a torch.export
        ExportedProgram ...), or a folder that fusion-compile or Graph.write_bundle() wrote.
    device: 'auto', the GPU if there is one, else the reference on the host, which is right and slow; 'cpu',
        that reference; 'cuda'; or 'emulate', the kernels' own source on the host.
    target: the GPU architecture, 'sm_90a' ...; default: that of GPU 0.
    fuse: False leaves all fusions out.
    disable: names of fusions to leave out.
    patterns: paths of .pdll files with more fusions.
    kernels: {name: path of a .cu file}, edited kernels that run instead of the emitted ones.
    profit: what decides between fusions that exclude each other: 'model', the traffic and the launches that
        they save; 'measure', their times on the GPU; 'auto', the times where the program is for the GPU of
        this machine, else the model.
    kv_capacity: positions that key/value caches hold; they are extended where they lie. See Caches.
    donate_caches: True: caches that are given dense, of full capacity and on the program's device are written
        where they lie, whoever made them: the caller's tensors change.
    tensor_parallel: ranks among which the graph is divided: GPUs of this process, or processes.
    vocabulary_parallel: they divide embedding and head too.
    rank: a Rank, where each rank is a process.
    launcher: True: which rank this process is stands in the variables that torchrun sets.
    assume_finite: False runs experts of weight 0 as well.
    batch_invariant: True: a row's result does not depend on the other rows of a run.
    cache: the folder for compiled kernels, plans and reports; default: FUSION_CACHE_DIR, else
        ~/.cache/fusion.

    Raises BadInput for what cannot be compiled, with the reason, and for an unknown option; Lacking for what
    the machine has not: a GPU, a driver, NVRTC.
    """
    chosen = options_of(**options)
    if isinstance(model, (str, os.PathLike)) and os.path.isfile(os.path.join(model, "bundle.json")):
        return Program(_core.Program.open(os.fspath(model), chosen))
    graph = model if isinstance(model, Graph) else load(model)
    return Program(_core.Program.compile(graph._core, chosen), graph)


def numpy_type(name):
    """A numpy type by its name."""
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
