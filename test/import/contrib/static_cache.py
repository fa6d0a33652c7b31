"""Attention over caches of a fixed length whose heads lie side by side, as mobius-onnx writes static caches."""
import numpy as np
from onnx import helper

from nodes import write

own = np.random.default_rng(37)


def f32(*shape):
    return own.standard_normal(shape).astype(np.float32)


def static_cache(name, new, starts, heads=4, groups=2, size=16, length=12):
    batch = len(starts)
    starts = np.array(starts, np.int64)
    inputs = {"q": f32(batch, new, heads * size), "k": f32(batch, new, groups * size),
              "v": f32(batch, new, groups * size), "key_cache": f32(batch, length, groups * size),
              "value_cache": f32(batch, length, groups * size),
              "positions": starts[:, None] + np.arange(new)[None, :], "write_indices": starts,
              "lengths": starts + new, "cos": np.cos(f32(32, size // 2)), "sin": np.sin(f32(32, size // 2))}
    node = helper.make_node
    nodes = [node("RotaryEmbedding", ["q", "cos", "sin", "positions"], ["q_rotated"], num_heads=heads),
             node("RotaryEmbedding", ["k", "cos", "sin", "positions"], ["k_rotated"], num_heads=groups),
             node("TensorScatter", ["key_cache", "k_rotated", "write_indices"], ["keys"], axis=1),
             node("TensorScatter", ["value_cache", "v", "write_indices"], ["values"], axis=1),
             node("Attention", ["q_rotated", "keys", "values", "", "", "", "lengths"], ["y"], q_num_heads=heads,
                  kv_num_heads=groups, is_causal=1)]
    cache = ["batch", length, groups * size]
    dims = {"q": ["batch", "new", heads * size], "k": ["batch", "new", groups * size],
            "v": ["batch", "new", groups * size], "key_cache": cache, "value_cache": cache,
            "positions": ["batch", "new"], "write_indices": ["batch"], "lengths": ["batch"]}
    write(name, nodes, inputs, ["y", "keys", "values"], ("cos", "sin"), dims, opset=24)


def static_caches():
    static_cache("static_cache_prompt", 5, [0, 0])
    static_cache("static_cache_decode", 1, [3, 7])
    static_cache("static_cache_chunk", 3, [4, 4])


if __name__ == "__main__":
    static_caches()
