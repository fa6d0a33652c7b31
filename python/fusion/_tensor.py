"""Tensors to and from other libraries, without a copy where their memory is dense."""

import sys

import numpy

from . import _core
from ._errors import BadInput

# Type codes and bits of DLPack.
_CODES = {
    "bool": (6, 8),
    "int8": (0, 8),
    "int16": (0, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
    "float16": (2, 16),
    "float32": (2, 32),
    "float64": (2, 64),
    "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
}
_NAMES = {code: name for name, code in _CODES.items()}
_CODES_OF = {}  # by numpy.dtype
_RAW = {
    "bfloat16": numpy.dtype("uint16"),
    "float8_e4m3fn": numpy.dtype("uint8"),
    "float8_e5m2": numpy.dtype("uint8"),
}
_DTYPES = {name: numpy.dtype(name) for name in _CODES if name not in _RAW}
_HOST, _CUDA = 1, 2


class Tensor:
    """A tensor in the memory of the host or of a GPU; nobody changes it, except that a cache is extended
    where it lies.

    Speaks DLPack (`torch.from_dlpack(t)`, `cupy.from_dlpack(t)`) and, on the host, numpy's protocol
    (`numpy.asarray(t)`). With bfloat16 or an 8-bit float, numpy() needs the package ml_dtypes.
    """

    __slots__ = ("_core", "_known", "__weakref__")

    def __init__(self, core):
        self._core, self._known = core, None

    def _facts(self):
        if self._known is None:
            self._known = self._core.facts()
        return self._known

    @property
    def shape(self):
        """The dims, as a tuple of int."""
        return tuple(self._facts()[1])

    @property
    def dtype(self):
        """The element type by its numpy name: 'float16', 'bfloat16', 'int64' ..."""
        return _NAMES[self._facts()[3:5]]

    @property
    def device(self):
        """'cpu', or 'cuda:N'."""
        kind, ordinal = self._facts()[5:]
        return f"cuda:{ordinal}" if kind == _CUDA else "cpu"

    def __dlpack_device__(self):
        return self._facts()[5:]

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self._core.to_dlpack()

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def numpy(self):
        """The same memory as a numpy array. Raises BadInput on a GPU: program.fetch() copies to the host."""
        address, shape, strides, code, bits, kind, _ = self._facts()
        if kind == _CUDA:
            raise BadInput(
                "the tensor is on a GPU: copy it with Program.fetch(), or take it with torch.from_dlpack()"
            )
        name = _NAMES[code, bits]
        if name in _RAW:
            try:
                import ml_dtypes
            except ImportError:
                raise BadInput(
                    f"numpy has no {name}: install ml_dtypes, or take the tensor with torch.from_dlpack()"
                ) from None
            return numpy.asarray(_Interface(self, address, shape, strides, _RAW[name])).view(
                getattr(ml_dtypes, name)
            )
        return numpy.asarray(_Interface(self, address, shape, strides, _DTYPES[name]))

    def torch(self):
        """The same memory as a torch.Tensor, on its device."""
        import torch  # noqa: F401

        return _of_torch_capsule(self._core.to_dlpack())

    def __repr__(self):
        return f"fusion.Tensor({'x'.join(map(str, self.shape)) or 'scalar'}, {self.dtype}, {self.device})"


class _Interface:
    """Shows numpy a host tensor's memory as elements of `dtype`."""

    __slots__ = ("owner", "__array_interface__")

    def __init__(self, tensor, address, shape, strides, dtype):
        self.owner = tensor
        self.__array_interface__ = {
            "data": (address, False),
            "shape": tuple(shape),
            "typestr": dtype.str,
            "version": 3,
            "strides": None if strides is None else tuple(s * dtype.itemsize for s in strides),
        }


def _of_array(array, name):
    """A numpy array, or what makes one."""
    array = numpy.asarray(array, order="C")
    kind = _CODES_OF.get(array.dtype)
    if kind is None:
        kind = _CODES.get(array.dtype.name)
        if kind is None or not array.dtype.isnative:
            raise BadInput(f"{name}: elements of type {array.dtype} are not supported")
        _CODES_OF[array.dtype] = kind
    return _core.Tensor.from_pointer(
        array.__array_interface__["data"][0], array.shape, *kind, _HOST, 0, array
    )


def is_torch(value):
    torch = sys.modules.get("torch")
    return torch is not None and (type(value) is torch.Tensor or isinstance(value, torch.Tensor))


def _torch_capsule(value):
    torch = sys.modules["torch"]
    if value.requires_grad:
        value = value.detach()
    if not value.is_contiguous():
        value = value.contiguous()
    take = getattr(torch._C, "_to_dlpack", None) or torch.utils.dlpack.to_dlpack
    return take(value)


def _of_torch_capsule(capsule):
    torch = sys.modules["torch"]
    take = getattr(torch._C, "_from_dlpack", None) or torch.utils.dlpack.from_dlpack
    return take(capsule)


def _torch_stream(gpu):
    torch = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # what Inductor calls: 20 times as quick
    return raw(gpu) if raw else torch.cuda.current_stream(gpu).cuda_stream


def to_core(value, name):
    """The handle of a tensor of any library; `name` is for messages."""
    if isinstance(value, Tensor):
        return value._core
    if is_torch(value):
        return _core.Tensor.from_dlpack(_torch_capsule(value))
    if not hasattr(value, "__array_interface__") and hasattr(value, "__dlpack__"):
        try:
            return _core.Tensor.from_dlpack(value.__dlpack__())
        except (BufferError, TypeError) as problem:
            raise BadInput(f"{name}: {problem}") from None
    try:
        return _of_array(value, name)
    except (TypeError, ValueError) as problem:
        if isinstance(problem, BadInput):
            raise
        raise BadInput(f"{name}: a {type(value).__name__} is no tensor: {problem}") from None


def as_numpy(tensor):
    """As a numpy array, or the tensor where numpy has no such type or place."""
    if tensor.device != "cpu":
        return tensor
    try:
        return tensor.numpy()
    except BadInput:  # a type that numpy has not
        return tensor


def _kind_of(value):
    """What Values.h calls the kind of a value."""
    if isinstance(value, Tensor):
        return 1
    if is_torch(value):
        return 3
    if type(value) in _PLAIN:
        return 4
    return 2 if isinstance(value, numpy.ndarray) else 0


# What has no element type of its own.
_PLAIN = frozenset((bool, int, float, list, tuple))


_core.set_value_hooks(
    {
        "kind_of": _kind_of,
        "to_core": to_core,
        "torch_capsule": _torch_capsule,
        "of_torch_capsule": _of_torch_capsule,
        "stream_of": _torch_stream,
        "tensor": Tensor,
        "as_array": numpy.asarray,
        "of_other": lambda core: as_numpy(Tensor(core)),
    }
)
