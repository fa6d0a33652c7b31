"""Node tests of models whose layers hand on several streams, by their definitions."""
import numpy as np

from nodes import MICROSOFT
from plain import contrib, f16, f32, op


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def norm(x, scale, eps=1e-5):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale


def hyper():
    batch, streams, size = (2, 3), 4, 8
    x, flat = f32(*batch, streams, size), (*batch, streams * size)
    for name, scale in (("all", f32(streams * size)), ("each", f32(streams, size)), ("one", f32(size))):
        y = norm(x, scale.reshape(-1, size)).astype(np.float32)
        contrib(f"branchwise_norm_{name}",
                "BranchwiseRMSNorm", {
                    "x": x.reshape(flat),
                    "scale": scale
                }, [y.reshape(flat)],
                num_branches=streams)
    half = f16(*batch, streams, size)
    contrib("branchwise_norm_f16", "BranchwiseRMSNorm", {"x": half}, [norm(half, 1).astype(np.float16)])
    gates, wide, mix, fresh = f32(*batch, streams), f32(*batch, streams,
                                                        size), f32(*batch, streams,
                                                                   streams), f32(*batch, size)
    pre = lambda gate: (0.5 * (x * gate).sum(-2)).astype(np.float32)
    contrib("pre_mix",
            "HyperConnectionPreMix", {
                "x": x,
                "gates": gates
            }, [pre(gates[..., None])],
            reduction_scale=0.5)
    contrib("pre_mix_flat",
            "HyperConnectionPreMix", {
                "x": x.reshape(flat),
                "gates": wide.reshape(flat)
            }, [pre(wide)],
            reduction_scale=0.5,
            num_branches=streams)
    mixed = np.einsum("...ck,...ch->...kh", mix, x) + gates[..., None] * fresh[..., None, :]
    contrib("post_mix", "HyperConnectionPostMix", {
        "x": x,
        "fresh": fresh,
        "gates": gates,
        "mix": mix
    }, [mixed])
    contrib("post_mix_flat",
            "HyperConnectionPostMix", {
                "x": x.reshape(flat),
                "fresh": fresh,
                "gates": wide
            }, [(x + wide * fresh[..., None, :]).reshape(flat)],
            num_branches=streams)
    scale, rank = f32(streams * size), 5
    down, up, inject = f32(streams * size, rank) / 4, f32(rank,
                                                          streams * size), f32(streams * size, streams) / 4
    before = x + gates[..., None] * fresh[..., None, :]
    own = norm(before, scale.reshape(streams, size))
    low = 1.5 * own.reshape(flat) @ down
    gate = sigmoid(low * sigmoid(low) @ up).reshape(x.shape)
    results = [0.25 * (own * gate).sum(-2), sigmoid(own.reshape(flat) @ inject / 2) * 3, before.reshape(flat)]
    op("low_rank_mix",
       "HyperConnectionLowRankMix", {
           "x": x.reshape(flat),
           "scale": scale,
           "down": down,
           "up": up,
           "inject": inject,
           "fresh": fresh,
           "gates": gates
       }, ("y", "gate", "streams"),
       weights=("scale", "down", "up", "inject"),
       results=[result.astype(np.float32) for result in results],
       domain=MICROSOFT,
       num_branches=streams,
       silu_alpha=1.5,
       reduction_scale=0.25,
       gate_div=2.0,
       gate_mul=3.0)
    query, value = f32(*x.shape), f32(*batch, size)
    scales = {name: f32(streams, size) for name in ("ks", "qs", "cs")}
    dot = (norm(x, scales["ks"]) * norm(query, scales["qs"])).sum(-1, keepdims=True) / np.sqrt(size)
    gated = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), 1e-6))) * value[..., None, :]
    op("engram_gate",
       "EngramGate", {
           "key": x,
           "query": query,
           "value": value
       } | scales, ("y", "normed"),
       weights=tuple(scales),
       results=[gated.astype(np.float32),
                norm(gated, scales["cs"]).astype(np.float32)],
       domain=MICROSOFT)
    rows, weight = f32(2, 3, 6), f32(6, 4 + 2 * 5)
    y = rows @ weight
    gate, linear = np.minimum(y[..., 4:9], 1.5), np.clip(y[..., 9:], -1.5, 1.5)
    op("router_gate_up",
       "RouterGateUpProj", {
           "x": rows,
           "w": weight
       }, ("logits", "activated"),
       weights=("w", ),
       results=[y[..., :4], (gate * sigmoid(1.7 * gate) * (linear + 1)).astype(np.float32)],
       domain=MICROSOFT,
       router_size=4,
       activation_alpha=1.7,
       activation_beta=1.0,
       limit=1.5)
