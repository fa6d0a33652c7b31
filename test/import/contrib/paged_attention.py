"""PagedAttention, which ONNX Runtime's CPU provider lacks: its definition in numpy."""
import zlib

import numpy as np
from onnx import helper

from nodes import MICROSOFT, i32, write


def rotated(x, position, cos, sin, interleaved, offset):
    """One head's vector at a position."""
    half, y = cos.shape[1], x.copy()
    turned = x[offset:offset + 2 * half]
    first, second = (turned[0::2], turned[1::2]) if interleaved else (turned[:half], turned[half:])
    c, s = cos[position], sin[position]
    pairs = np.stack([first * c - second * s, second * c + first * s])
    y[offset:offset + 2 * half] = pairs.T.reshape(-1) if interleaved else pairs.reshape(-1)
    return y


def normed(x, weight):
    return x / np.sqrt(np.mean(x * x) + np.float32(1e-6)) * weight


def attended(q, keys, values, scale, cap, sink):
    scores = keys @ q * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    largest = max(scores.max(), sink)
    weights = np.exp(scores - largest)
    return weights @ values / (weights.sum() + np.exp(sink - largest))


def paged(name, new, past, heads=4, groups=2, size=16, page=8, table_pages=3, packed=False, slots=None, norms=False,
          codes=None, latent=0, sinks=None, **attributes):
    """`new`, `past`: tokens of each sequence. `slots`: a slot for each token. `codes`: PER_TENSOR or PER_CHANNEL.
    `sinks`: a score of each head."""
    own = np.random.default_rng(zlib.crc32(name.encode()))
    make = lambda *shape: own.standard_normal(shape).astype(np.float32)
    tokens, sequences, pages = sum(new), len(new), len(new) * table_pages + 2
    table = np.full((sequences, table_pages), -1, np.int32)
    order = own.permutation(pages)
    for sequence in range(sequences):
        for column in range(-(-(past[sequence] + new[sequence]) // page)):
            table[sequence, column], order = order[0], order[1:]
    starts = np.concatenate([[0], np.cumsum(new)])
    q, k = make(tokens, heads * size), make(tokens, groups * size)
    v = None if latent else make(tokens, groups * size)
    kind = np.float32 if codes is None else np.int8
    cache = lambda: make(pages, page, groups, size) if codes is None else own.integers(
        -127, 128, (pages, page, groups, size)).astype(np.int8)
    key_cache, value_cache = cache(), None if latent else cache()
    scales = lambda: (0.01 + 0.02 * own.random((groups, 1, size) if codes == "PER_CHANNEL" else (1,))).astype(np.float32)
    key_scale, value_scale = (scales(), scales()) if codes else (None, None)
    rotary = attributes.get("do_rotary", 0)
    offset, interleaved = attributes.get("rotary_offset", 0), attributes.get("rotary_interleaved", 0)
    cos, sin = (make(page * table_pages, (size - offset) // 2) for _ in range(2)) if rotary else (None, None)
    norm_q, norm_k = (make(size), make(size)) if norms else (None, None)
    inputs = {"query": np.concatenate([q, k, v], 1) if packed else q, "key": None if packed else k,
              "value": None if packed else v, "key_cache": key_cache, "value_cache": value_cache,
              "cumulative": i32(starts), "past": i32(past), "table": table, "cos": cos, "sin": sin,
              "slots": None if slots is None else i32(slots),
              "sink": None if sinks is None else np.array(sinks, np.float32), "q_norm": norm_q, "k_norm": norm_k,
              "k_scale": key_scale, "v_scale": value_scale}

    keys, values = key_cache.copy(), None if latent else value_cache.copy()
    q, k = q.reshape(tokens, heads, size).copy(), k.reshape(tokens, groups, size).copy()
    v = None if latent else v.reshape(tokens, groups, size)
    where = [(sequence, past[sequence] + i) for sequence in range(sequences) for i in range(new[sequence])]
    coded = lambda x, scale: x if codes is None else np.clip(
        np.round(x / scale.reshape(-1, scale.shape[-1])), -128, 127).astype(np.int8)
    decoded = lambda x, scale, group: x if codes is None else x.astype(np.float32) * scale.reshape(
        -1, scale.shape[-1])[group if codes == "PER_CHANNEL" else 0]
    for token, (sequence, position) in enumerate(where):
        for x, weight in ((q, norm_q), (k, norm_k)):
            for head in range(x.shape[1]):
                if norms:
                    x[token, head] = normed(x[token, head], weight)
                if rotary:
                    x[token, head] = rotated(x[token, head], position, cos, sin, interleaved, offset)
        slot = table[sequence, position // page] * page + position % page if slots is None else slots[token]
        if slot >= 0:
            keys[slot // page, slot % page] = coded(k[token], key_scale)
            if not latent:
                values[slot // page, slot % page] = coded(v[token], value_scale)
    y = np.zeros((tokens, heads, latent or size), np.float32)
    scale, window = attributes.get("scale", 1 / np.sqrt(size)), attributes.get("local_window_size", -1)
    for token, (sequence, position) in enumerate(where):
        last = position if attributes.get("is_causal", 1) else past[sequence] + new[sequence] - 1
        seen = range(max(position - window + 1, 0) if window > 0 else 0, last + 1)
        row = lambda cache, group: np.stack([cache[table[sequence, j // page], j % page, group] for j in seen])
        for head in range(heads):
            group = head // (heads // groups)
            own_keys = decoded(row(keys, group), key_scale, group)
            own_values = own_keys[:, :latent] if latent else decoded(row(values, group), value_scale, group)
            sink = -np.inf if sinks is None else np.float32(sinks[head])
            y[token, head] = attended(q[token, head], own_keys, own_values, np.float32(scale),
                                      attributes.get("softcap", 0), sink)
    if codes:
        attributes |= {"k_quant_type": codes, "v_quant_type": codes, "k_cache_dtype": "int8", "v_cache_dtype": "int8"}
    if latent:
        attributes |= {"kv_cache_layout": "LATENT", "v_head_size": latent}
    outputs, results = ["y", "key_cache_out"], [y.reshape(tokens, -1), keys]
    if not latent:
        outputs, results = outputs + ["value_cache_out"], results + [values]
    given = list(inputs.items())
    while given[-1][1] is None:
        given.pop()
    node = helper.make_node("PagedAttention", [key if value is not None else "" for key, value in given], outputs,
                            domain=MICROSOFT, num_heads=heads, kv_num_heads=groups, **attributes)
    token_dims = {key: ["tokens", inputs[key].shape[1]] for key in ("query", "key", "value") if inputs[key] is not None}
    dims = token_dims | {"cumulative": ["sequences_and_one"], "past": ["sequences"],
                         "table": ["sequences", "pages_of_sequence"], "slots": ["tokens"]}
    for key in ("key_cache", "value_cache"):
        dims[key] = ["pages", page, groups, size]
    assert kind == key_cache.dtype
    write(name, [node], {key: value for key, value in inputs.items() if value is not None}, outputs, (), dims, results)


def paged_attention():
    paged("paged_decode", [1, 1, 1], [5, 0, 15])
    paged("paged_ragged", [3, 0, 1, 6], [4, 9, 7, 0])
    paged("paged_packed_rotary", [2, 4], [6, 8], packed=True, do_rotary=1, rotary_interleaved=1)
    paged("paged_rotary_window_cap", [5, 1, 2], [9, 20, 0], do_rotary=1, local_window_size=4, softcap=3.0, scale=0.3)
    paged("paged_slots", [1, 3], [3, 8], slots=[63, -1, 40, 41])
    paged("paged_norms", [2, 1], [6, 3], norms=True, do_rotary=1, page=5)
    paged("paged_not_causal", [4, 2], [6, 0], is_causal=0, local_window_size=3)
    paged("paged_codes", [3, 1], [6, 15], codes="PER_TENSOR")
    paged("paged_codes_by_channel", [1, 1], [6, 15], codes="PER_CHANNEL")
    paged("paged_latent", [3, 1], [6, 15], groups=1, size=24, latent=16, scale=0.2, do_rotary=1, rotary_offset=16)
    # Sinks below, among and above the scores.
    paged("paged_sink", [1, 1, 1], [5, 0, 15], sinks=[-20, 0.5, 2, 30])
    paged("paged_sink_window_cap", [5, 0, 1, 2], [9, 3, 20, 0], sinks=[0, 1.5, -1, 3], do_rotary=1, local_window_size=4,
          softcap=3.0, scale=0.3)
    paged("paged_sink_codes", [3, 1], [6, 15], sinks=[1, -1, 4, 0], codes="PER_TENSOR")
    paged("paged_sink_codes_by_channel", [1, 1], [6, 15], sinks=[1, -1, 4, 0], codes="PER_CHANNEL")
    paged("paged_sink_latent", [3, 1], [6, 15], sinks=[1, -1, 4, 0], groups=1, size=24, latent=16, scale=0.2)
