"""The peer of models.py: the same model by hand in PyTorch, with packed QKV and gate/up matrices and caches
written in place, its step recorded as a CUDA graph."""
import json
import math
import struct

import torch
from torch.nn.functional import gelu, linear, rms_norm, scaled_dot_product_attention, silu

WINDOW = 512


def read(path):
    """The tensors of a safetensors file, on the GPU."""
    kinds = {"BF16": torch.bfloat16, "I64": torch.int64}
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, tensors = json.loads(file.read(size)), {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(8 + size + begin)
            tensors[name] = torch.frombuffer(bytearray(file.read(end - begin)) or bytearray(8),
                                             dtype=kinds[entry["dtype"]])
            tensors[name] = tensors[name][:math.prod(entry["shape"])].reshape(entry["shape"]).cuda()
    return tensors


class Stack:
    def __init__(self, writer, folder, inputs, sizes):
        self.m, (self.batch, self.new, self.past) = writer.m, sizes
        with open(f"{folder}/weights.bin", "rb") as file:
            weights = {}
            for name, (offset, dims, _) in writer.places.items():
                file.seek(offset)
                weights[name] = torch.frombuffer(bytearray(file.read(2 * math.prod(dims))),
                                                 dtype=torch.bfloat16).reshape(dims).cuda()
        pack = lambda i, names: torch.cat([weights.pop(f"{i}.{name}") for name in names])
        self.qkv = [pack(i, "qkv") for i in range(self.m.layers)]
        self.gate_up = [pack(i, ("gate", "up")) for i in range(self.m.layers)]
        self.w = weights
        total = self.past + self.new
        self.caches = []
        for i in range(self.m.layers):
            pair = []
            for kind in ("key", "value"):
                cache = torch.zeros(self.batch, self.m.kv_heads, total, self.m.width, dtype=torch.bfloat16,
                                    device="cuda")
                cache[:, :, :self.past] = inputs[f"past_{kind}_{i}"]
                pair.append(cache)
            self.caches.append(pair)
        self.scale = float(torch.tensor(math.sqrt(self.m.hidden)).bfloat16())
        half = self.m.width // 2
        self.rates = torch.tensor([self.m.theta ** (-i / half) for i in range(half)], device="cuda")
        at = torch.arange(total, device="cuda")
        self.near = at[None] > at[self.past:, None] - WINDOW
        self.near &= at[None] <= at[self.past:, None]

    def norm(self, x, name):
        return rms_norm(x, x.shape[-1:], self.w[name], self.m.eps)

    def step(self, ids, positions):
        m = self.m
        x = self.w["embed"][ids]
        if m.gemma:
            x = x * self.scale
        turned = positions[:, None, :, None].float() * self.rates
        cos, sin = turned.cos().bfloat16(), turned.sin().bfloat16()
        for i in range(m.layers):
            a = self.attend(i, self.norm(x, f"{i}.norm1"), cos, sin)
            x = x + (self.norm(a, f"{i}.norm1b") if m.gemma else a)
            gate, up = linear(self.norm(x, f"{i}.norm2"), self.gate_up[i]).chunk(2, -1)
            f = linear((gelu(gate, approximate="tanh") if m.gemma else silu(gate)) * up, self.w[f"{i}.down"])
            x = x + (self.norm(f, f"{i}.norm2b") if m.gemma else f)
        logits = linear(self.norm(x[:, -1:], "norm"), self.w["embed" if m.tied else "head"])
        return logits, logits.argmax(-1)

    def attend(self, i, n, cos, sin):
        m = self.m
        heads = linear(n, self.qkv[i]).unflatten(-1, (-1, m.width))
        q, k, v = heads.split((m.heads, m.kv_heads, m.kv_heads), 2)
        if m.qk_norm:
            q, k = self.norm(q, f"{i}.q_norm"), self.norm(k, f"{i}.k_norm")
        q, k = (rotated(h.transpose(1, 2), cos, sin) for h in (q, k))
        keys, values = self.caches[i]
        keys[:, :, self.past:] = k
        values[:, :, self.past:] = v.transpose(1, 2)
        mask = self.near if m.windowed(i) else None
        a = scaled_dot_product_attention(q, keys, values, attn_mask=mask,
                                         is_causal=mask is None and self.new > 1, enable_gqa=True)
        return linear(a.transpose(1, 2).flatten(2), self.w[f"{i}.o"])


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def microseconds(work, iterations):
    """Of one replay of a CUDA graph of it: the median."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(iterations + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return sorted(times[3:])[iterations // 2]


@torch.no_grad()
def measure_peers(writer, folder, case, sizes, iterations):
    inputs = read(f"{folder}/{case}.safetensors")
    stack = Stack(writer, folder, inputs, sizes)
    ids, positions = inputs["input_ids"], inputs["position_ids"]
    expected, times = stack.step(ids, positions)[0].double(), {}
    actual = read(f"{folder}/{case}.out")["logits"].double()
    times["difference"] = float((actual - expected).norm() / expected.norm())
    times["torch"] = microseconds(lambda: stack.step(ids, positions), iterations)
    for name, mode in (("torch.compile", "default"), ("max-autotune", "max-autotune-no-cudagraphs")):
        torch._dynamo.reset()
        compiled = torch.compile(stack.step, mode=mode)
        times[name] = microseconds(lambda: compiled(ids, positions), iterations)
    del stack
    torch.cuda.empty_cache()
    return times
