"""The peer of models.py: the same model by hand in PyTorch, with packed QKV and gate/up matrices and caches
written in place, its step recorded as a CUDA graph. In f32 it is what the numbers of both are judged by.
"""
import json
import math
import struct
import time

import torch
from torch.nn.functional import gelu, linear, rms_norm, scaled_dot_product_attention, silu

from graph import WEIGHTS
from models_graph import WINDOW

KINDS = {"BF16": torch.bfloat16, "F32": torch.float32, "I64": torch.int64}
WARM_UP = 3
FEW = 64  # rows of experts of which a copy of each one's matrices is still the faster way


def read(path, device):
    """The tensors of a safetensors file."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, tensors = json.loads(file.read(size)), {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(8 + size + begin)
            tensor = torch.frombuffer(bytearray(file.read(end - begin)) or bytearray(8),
                                      dtype=KINDS[entry["dtype"]])
            tensors[name] = tensor[:math.prod(entry["shape"])].reshape(entry["shape"]).to(device)
    return tensors


def read_weights(writer, folder, device):
    weights = {}
    with open(f"{folder}/{WEIGHTS}", "rb") as file:
        for name, (offset, dims, _) in writer.places.items():
            file.seek(offset)
            data = torch.frombuffer(bytearray(file.read(2 * math.prod(dims))), dtype=torch.bfloat16)
            weights[name] = data.reshape(dims).to(device)
    return weights


class Stack:
    """Takes the tensors of `weights` that it packs out of it. `dtype` is that of all values: weights of bf16
    are cast as they are used, so that f32 needs no second copy of them."""

    def __init__(self, model, weights, inputs, sizes, dtype=torch.bfloat16):
        self.m, (self.batch, self.new, self.past), self.dtype = model, sizes, dtype
        self.device = inputs["input_ids"].device
        pack = lambda i, names, dim=0: torch.cat([weights.pop(f"{i}.{name}") for name in names], dim)
        self.packed = [{"qkv": pack(i, "qkv"), "gate_up": pack(i, ("gate", "up"), 1 if model.experts else 0)}
                       for i in range(model.layers)]
        self.w = weights
        self.caches = []
        self.fill(inputs)
        # The graph's constant has the type of the model.
        self.scale = float(torch.tensor(math.sqrt(model.hidden)).bfloat16())
        half, total = model.width // 2, self.past + self.new
        self.rates = torch.tensor([model.theta ** (-i / half) for i in range(half)], device=self.device)
        at = torch.arange(total, device=self.device)
        self.causal = at[None] <= at[self.past:, None]
        self.near = self.causal & (at[None] > at[self.past:, None] - WINDOW)

    def fill(self, inputs):
        m, total = self.m, self.past + self.new
        for i in range(m.layers):
            pair = [
                torch.zeros(self.batch, m.kv_heads, total, m.width, dtype=self.dtype, device=self.device)
                for _ in "kv"
            ]
            for cache, kind in zip(pair, ("key", "value")):
                cache[:, :, :self.past] = inputs[f"past_{kind}_{i}"]
            self.caches.append(pair)

    def as_f32(self, inputs):
        """The same weights, and values of f32."""
        wide = Stack.__new__(Stack)
        wide.__dict__.update(self.__dict__, dtype=torch.float32, caches=[])
        wide.fill(inputs)
        return wide

    def weight(self, tensor):
        return tensor.to(self.dtype)

    def norm(self, x, name):
        return rms_norm(x, x.shape[-1:], self.weight(self.w[name]), self.m.eps)

    def step(self, ids, positions):
        m = self.m
        x = self.weight(self.w["embed"][ids])
        if m.gemma:
            x = x * self.scale
        turned = positions[:, None, :, None].float() * self.rates
        cos, sin = turned.cos().to(self.dtype), turned.sin().to(self.dtype)
        for i in range(m.layers):
            a = self.attend(i, self.norm(x, f"{i}.norm1"), cos, sin)
            x = x + (self.norm(a, f"{i}.norm1b") if m.gemma else a)
            n = self.norm(x, f"{i}.norm2")
            f = self.experts(i, n) if m.experts else self.feed_forward(i, n)
            x = x + (self.norm(f, f"{i}.norm2b") if m.gemma else f)
        logits = linear(self.norm(x[:, -1:], "norm"), self.weight(self.w["embed" if m.tied else "head"]))
        return logits, logits.argmax(-1)

    def feed_forward(self, i, n):
        gate, up = linear(n, self.weight(self.packed[i]["gate_up"])).chunk(2, -1)
        gate = gelu(gate, approximate="tanh") if self.m.gemma else silu(gate)
        return linear(gate * up, self.weight(self.w[f"{i}.down"]))

    def attend(self, i, n, cos, sin):
        m = self.m
        heads = linear(n, self.weight(self.packed[i]["qkv"])).unflatten(-1, (-1, m.width))
        q, k, v = heads.split((m.heads, m.kv_heads, m.kv_heads), 2)
        if m.qk_norm:
            q, k = self.norm(q, f"{i}.q_norm"), self.norm(k, f"{i}.k_norm")
        q, k = (rotated(h.transpose(1, 2), cos, sin) for h in (q, k))
        keys, values = self.caches[i]
        keys[:, :, self.past:] = k
        values[:, :, self.past:] = v.transpose(1, 2)
        # Every position sees all of the past; PyTorch's own causal mask is for equally many queries and keys.
        mask = self.near if m.windowed(i) else self.causal if self.new > 1 and self.past else None
        a = scaled_dot_product_attention(q,
                                         keys,
                                         values,
                                         attn_mask=mask,
                                         is_causal=mask is None and self.new > 1,
                                         enable_gqa=True)
        return linear(a.transpose(1, 2).flatten(2), self.weight(self.w[f"{i}.o"]))

    def experts(self, i, n):
        m, x = self.m, n.flatten(0, 1)
        scores = linear(x, self.weight(self.w[f"{i}.router"])).float().softmax(-1)
        top, chosen = scores.topk(m.slots, -1)
        weights = (top / top.sum(-1, keepdim=True)).to(self.dtype)
        gate_up, down = self.packed[i]["gate_up"], self.w[f"{i}.down"]
        if len(x) * m.slots <= FEW:
            matrices = self.weight(gate_up[chosen.flatten()]), self.weight(down[chosen.flatten()])
            inner = gated(torch.bmm(matrices[0], x.repeat_interleave(m.slots, 0).unsqueeze(-1)).squeeze(-1))
            out = torch.bmm(matrices[1], inner.unsqueeze(-1)).squeeze(-1)
        else:
            order = chosen.flatten().argsort(stable=True)
            rows = x[order // m.slots]
            counts = torch.zeros(m.experts, dtype=torch.int32, device=x.device)
            counts.index_add_(0, chosen.flatten(), torch.ones_like(chosen.flatten(), dtype=torch.int32))
            inner = gated(self.grouped(rows, gate_up, counts))
            out = torch.empty_like(rows)
            out[order] = self.grouped(inner, down, counts)
        y = (out.unflatten(0, (-1, m.slots)) * weights.unsqueeze(-1)).sum(1)
        return y.reshape(n.shape)

    def grouped(self, rows, matrices, counts):
        """Rows that are sorted by expert, times the matrix [columns, k] of each."""
        if self.dtype == torch.bfloat16 and rows.is_cuda:
            return torch._grouped_mm(rows, matrices.transpose(1, 2), offs=counts.cumsum(0, dtype=torch.int32))
        parts = rows.split(counts.tolist())
        return torch.cat([linear(part, self.weight(matrix)) for part, matrix in zip(parts, matrices)])


def gated(x):
    gate, up = x.chunk(2, -1)
    return silu(gate) * up


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def microseconds(work, iterations, device, record=True):
    """The median of a call: on a GPU of a replay of its CUDA graph; without `record`, from launch to end."""
    if device.type != "cuda":
        work()
        return sorted(seconds(work) for _ in range(iterations))[iterations // 2] * 1e6
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
    torch.cuda.synchronize()
    if record:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        work = graph.replay
    times = []
    for _ in range(iterations + WARM_UP):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return sorted(times[WARM_UP:])[iterations // 2]


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def distance(actual, exact):
    return float((actual.double() - exact.double()).norm() / exact.double().norm())


@torch.no_grad()
def measure_peers(writer, folder, case, sizes, iterations, device):
    """Microseconds of a step by peer, how far our logits and theirs are from those of f32, and these."""
    inputs = read(f"{folder}/{case}.safetensors", device)
    weights = read_weights(writer, folder, device)
    stack = Stack(writer.m, weights, inputs, sizes)
    ids, positions = inputs["input_ids"], inputs["position_ids"]
    exact = stack.as_f32(inputs).step(ids, positions)[0]
    errors = {"torch": distance(stack.step(ids, positions)[0], exact)}
    ours = read(f"{folder}/{case}.out", device)["logits"]
    errors["fused"] = distance(ours, exact)
    times = {"torch": microseconds(lambda: stack.step(ids, positions), iterations, device)}
    for name, mode in (("torch.compile", "default"), ("max-autotune", "max-autotune-no-cudagraphs")):
        torch._dynamo.reset()
        compiled = torch.compile(stack.step, mode=mode)
        times[name] = microseconds(lambda: compiled(ids, positions), iterations, device)
        errors[name] = distance(compiled(ids, positions)[0], exact)
    return times, errors, exact
