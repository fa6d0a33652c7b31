import os
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Optional, TypedDict, Union

from typing_extensions import Unpack

__all__ = [
    "AnswerIsNo",
    "BadInput",
    "Caches",
    "Change",
    "Error",
    "Explanation",
    "Graph",
    "Lacking",
    "Miss",
    "Port",
    "Profile",
    "Program",
    "Rank",
    "Report",
    "Site",
    "Tensor",
    "TorchReport",
    "Unsupported",
    "compile",
    "explain",
    "from_exported",
    "from_pretrained",
    "load",
    "set_progress",
    "torch_reports",
]

__version__: str
_Path = Union[str, os.PathLike[str]]
_ArrayLike = Any  # torch.Tensor, numpy.ndarray, fusion.Tensor, what speaks DLPack, numbers and lists
_Model = Any  # a path, bytes, onnx.ModelProto, torch.onnx.ONNXProgram, torch.export.ExportedProgram

class Error(Exception): ...
class AnswerIsNo(Error): ...
class BadInput(Error, ValueError): ...
class Lacking(Error, RuntimeError): ...
class Unsupported(BadInput): ...

class Tensor:
    def __init__(self, core: Any) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any: ...
    def numpy(self) -> Any: ...
    def torch(self) -> Any: ...

class Port(NamedTuple):
    name: str
    dtype: str
    shape: tuple[Union[int, str], ...]

class Site(NamedTuple):
    fusion: str
    location: str
    ops: tuple[str, ...]
    bytes_saved: int
    microseconds: Optional[tuple[float, float]] = None
    assumes: Optional[str] = None

class Miss(NamedTuple):
    fusion: str
    location: str
    reason: str
    bytes: int

class Change(NamedTuple):
    before: int
    after: int

class Report:
    def __init__(self, text: Callable[[str], str]) -> None: ...
    @property
    def model(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def kernels(self) -> Change: ...
    @property
    def bytes(self) -> Change: ...
    @property
    def sites(self) -> list[Site]: ...
    @property
    def misses(self) -> list[Miss]: ...
    def json(self) -> dict[str, Any]: ...
    def markdown(self) -> str: ...
    def html(self) -> str: ...
    def write(self, path: _Path) -> None: ...
    def fired(self, fusion: str) -> int: ...
    def require(self, fusion: str, times: int) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

class Explanation(NamedTuple):
    text: str
    report: Report

class Profile(NamedTuple):
    table: str
    trace: str

class Rank(NamedTuple):
    rank: int
    ranks: int
    all_gather: Callable[[bytes], Sequence[bytes]]
    gpu: int = 0
    host: Optional[str] = None
    @staticmethod
    def of_torch(group: Any = None) -> Rank: ...

class _HasPorts:
    @property
    def inputs(self) -> list[Port]: ...
    @property
    def outputs(self) -> list[Port]: ...

class _Options(TypedDict, total=False):  # those of compile()
    device: str
    target: Optional[str]
    fuse: bool
    disable: Union[str, Iterable[str]]
    patterns: Union[_Path, Iterable[_Path]]
    kernels: Optional[Mapping[str, _Path]]
    profit: str
    kv_capacity: Optional[int]
    donate_caches: bool
    tensor_parallel: int
    vocabulary_parallel: bool
    rank: Optional[Rank]
    launcher: bool
    assume_finite: bool
    batch_invariant: bool
    cache: Optional[_Path]

class Graph(_HasPorts):
    name: str
    def __init__(self, core: Any, name: str) -> None: ...
    def explain(self, what: str = "mlir", **options: Unpack[_Options]) -> Explanation: ...
    def verify(self, **options: Unpack[_Options]) -> None: ...
    def write_bundle(self, folder: _Path, **options: Unpack[_Options]) -> None: ...
    def __copy__(self) -> Graph: ...
    def __deepcopy__(self, memo: Any) -> Graph: ...
    def __reduce__(self) -> NoReturn: ...

class Program(_HasPorts):
    def __init__(self, core: Any, graph: Optional[Graph] = None) -> None: ...
    def __call__(
        self, *inputs: Union[_ArrayLike, Mapping[str, _ArrayLike]], **named: _ArrayLike
    ) -> dict[str, Any]: ...
    def run(self, inputs: Mapping[str, _ArrayLike], stream: Optional[int] = None) -> dict[str, Tensor]: ...
    def fetch(self, tensors: Mapping[str, _ArrayLike]) -> dict[str, Any]: ...
    def bench(
        self, inputs: Mapping[str, _ArrayLike], iterations: int = 100, cold: bool = False
    ) -> list[float]: ...
    def profile(self, inputs: Mapping[str, _ArrayLike]) -> Profile: ...
    def generate(
        self,
        prompts: Iterable[Iterable[int]],
        max_new_tokens: int,
        *,
        end_token: Optional[int] = None,
        chunk: int = 0,
        seed: int = 0,
        inputs: Optional[Mapping[str, _ArrayLike]] = None,
        on_token: Optional[Callable[[int, int], Optional[bool]]] = None,
    ) -> list[list[int]]: ...
    def caches(self, **sizes: int) -> Caches: ...
    @property
    def device(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def report(self) -> Report: ...
    @property
    def source(self) -> str: ...
    @property
    def statistics(self) -> dict[str, Any]: ...
    def __copy__(self) -> Program: ...
    def __deepcopy__(self, memo: Any) -> Program: ...
    def __reduce__(self) -> NoReturn: ...

class Caches:
    program: Program
    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None: ...
    def __call__(
        self, inputs: Optional[Mapping[str, _ArrayLike]] = None, /, **named: _ArrayLike
    ) -> dict[str, Any]: ...
    def __getitem__(self, past: str) -> _ArrayLike: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def keys(self) -> KeysView[str]: ...

class TorchReport:
    programs: list[Program]
    left: list[tuple[str, str]]
    def __init__(self) -> None: ...

def load(
    model: _Model,
    *,
    weights: Optional[Mapping[str, _ArrayLike]] = None,
    files: Optional[Mapping[str, Any]] = None,
    constants: Optional[Mapping[str, _ArrayLike]] = None,
    shared_caches: bool = False,
    sampling: Optional[str] = None,
    ranks: int = 1,
    name: Optional[str] = None,
) -> Graph: ...
def compile(
    model: Union[Graph, _Model],
    *,
    device: str = "auto",
    target: Optional[str] = None,
    fuse: bool = True,
    disable: Union[str, Iterable[str]] = (),
    patterns: Union[_Path, Iterable[_Path]] = (),
    kernels: Optional[Mapping[str, _Path]] = None,
    profit: str = "auto",
    kv_capacity: Optional[int] = None,
    donate_caches: bool = False,
    tensor_parallel: int = 1,
    vocabulary_parallel: bool = False,
    rank: Optional[Rank] = None,
    launcher: bool = False,
    assume_finite: bool = True,
    batch_invariant: bool = False,
    cache: Optional[_Path] = None,
) -> Program: ...
def explain(
    model: Union[Graph, _Model], what: str = "mlir", **options: Unpack[_Options]
) -> Explanation: ...
def from_exported(
    program: Any,
    *,
    input_names: Optional[Sequence[str]] = None,
    input_dims: Optional[Sequence[Sequence[Optional[str]]]] = None,
    **options: Any,
) -> Graph: ...
def from_pretrained(
    folder: _Path,
    *,
    task: Optional[str] = None,
    caches: bool = True,
    padding: bool = False,
    dtype: Any = "auto",
    **options: Any,
) -> Graph: ...
def set_progress(show: Union[bool, Callable[[str, str, int, int], object]]) -> None: ...
def torch_reports(clear: bool = False) -> list[TorchReport]: ...
