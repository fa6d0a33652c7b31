"""GroupQueryAttention with caches of codes of 8 and of 4 bits."""
import numpy as np

from nodes import case, f32, i32, random


def coded(name, batch, new, past, lengths, by_channel=False, size=16, heads=4, groups=2, bits=8, sink=None,
          total=None, **attributes):
    """`lengths`: of past and new tokens, less one. Rows that no token of an entry has are codes of the
    past. `total`: of the longest entry, where the past is a buffer with room for more."""
    kind = "PER_CHANNEL" if by_channel else "PER_TENSOR"

    def codes():
        if bits == 4:
            return random.integers(0, 256, (batch, groups, past, size // 2)).astype(np.uint8)
        return random.integers(-127, 128, (batch, groups, past, size)).astype(np.int8)

    def scales():
        shape = (groups, 1, size) if by_channel else (1,)
        return ((0.01 + 0.02 * random.random(shape)) * (16 if bits == 4 else 1)).astype(np.float32)

    past_key, past_value = codes(), codes()
    inputs = {"q": f32(batch, new, heads * size), "k": f32(batch, new, groups * size),
              "v": f32(batch, new, groups * size),
              "past_key": past_key, "past_value": past_value, "seqlens_k": i32(lengths),
              "total": i32(total or past + new),
              "cos": None, "sin": None, "positions": None, "bias": None, "sink": sink, "k_scale": scales(),
              "v_scale": scales()}

    def keep_past(results):
        for cache, source in ((results[1], past_key), (results[2], past_value)):
            for entry, length in enumerate(lengths):
                cache[entry, :, length + 1:past] = source[entry, :, length + 1:past]
        return results

    case(name, "GroupQueryAttention", inputs, ("y", "present_key", "present_value"), weights=("total",),
         adjust=keep_past, num_heads=heads, kv_num_heads=groups, k_quant_type=kind, v_quant_type=kind,
         kv_cache_bit_width=bits, **attributes)


def coded_caches():
    coded("gqa_codes", 2, 1, 6, [6, 3])
    coded("gqa_codes_prompt", 1, 4, 3, [6])
    coded("gqa_codes_by_channel", 2, 1, 6, [6, 3], by_channel=True)
    coded("gqa_codes4", 2, 1, 6, [6, 3], bits=4)
    coded("gqa_codes4_prompt", 1, 4, 3, [6], bits=4, local_window_size=4)
    coded("gqa_codes4_by_channel", 2, 1, 6, [6, 3], by_channel=True, bits=4, sink=f32(4))
    coded("gqa_codes4_first", 1, 5, 0, [4], bits=4)
    coded("gqa_codes4_buffer", 2, 1, 8, [6, 3], bits=4, total=7, size=32)
