"""The cases that run.py measures, the most telling first: when time runs out, the rest is left."""
from .attention import Attention
from .experts import Experts
from .gated import Gated
from .heads import QkNormRope, QkNormRopeCache
from .latent_attention import LatentAttention
from .layer import Layer
from .linear_attention import LinearAttention
from .matmul import Epilogue, GatedMatmul
from .norm import AddNorm
from .quantised import QuantisedMatmul, QuantisedOperands
from .sampling import Head, Sampling

TOKENS = (1, 16, 128, 1024, 8192)


def cases():
    """The default run."""
    found = [AddNorm(kind, tokens, 4096) for kind in ("rms", "gemma", "layer") for tokens in TOKENS]
    found += [AddNorm("rms", tokens, 4096, quant=quant) for quant in ("static", "token", "group")
              for tokens in (1, 128, 8192)]
    found += [Gated(act, tokens, 4096, quant=quant) for act in ("silu", "gelu") for quant in (None, "static")
              for tokens in (1, 128, 1024, 8192)]
    found += [QkNormRope(tokens) for tokens in (1, 32, 512, 4096)]
    found += [QkNormRopeCache(tokens, 1024) for tokens in (1, 32, 512, 4096)]
    found += [Layer(batch, 1, 1024) for batch in (1, 8, 32)] + [Layer(1, 2048, 0)]
    found += [Epilogue("gelu", *shape) for shape in ((1, 14336, 4096), (1, 4096, 4096), (16, 14336, 4096),
                                                     (128, 4096, 14336), (1024, 14336, 4096),
                                                     (4096, 14336, 4096))]
    found += [GatedMatmul(tokens) for tokens in (1, 16, 128, 2048)]
    found += [QuantisedMatmul(kind, tokens, *shape) for shape in ((14336, 4096), (4096, 14336))
              for tokens in (1, 8, 16, 32, 64, 128) for kind in QuantisedMatmul.KINDS]
    found += [QuantisedOperands(kind, tokens, 14336, 4096) for tokens in (16, 64, 4096)
              for kind in QuantisedOperands.KINDS]
    found += [Experts.qwen3(tokens) for tokens in (1, 8, 32, 512, 4096)]
    found += [Experts.mixtral(tokens) for tokens in (1, 32, 4096)]
    found += [Attention(1, tokens, tokens) for tokens in (512, 2048, 8192)] + [Attention(8, 2048, 2048)]
    found += [Attention(batch, 1, keys) for batch, keys in ((1, 1024), (1, 8192), (8, 1024), (32, 1024),
                                                            (32, 8192))]
    found += [LatentAttention(*sizes) for sizes in ((1, 1024, 16), (32, 1024, 16), (32, 8192, 16), (1, 8192, 128),
                                                    (32, 1024, 128), (32, 8192, 128))]
    found += [LinearAttention(1, 1), LinearAttention(32, 1), LinearAttention(1, 4096)]
    found += [Sampling(kind, rows) for kind in Sampling.KINDS for rows in (1, 8, 64)]
    found += [Head(rows) for rows in (1, 8, 32, 64)]
    # Generality: sizes that no table lists, odd widths, another type.
    found += [AddNorm("rms", 1024, hidden) for hidden in (2048, 2880, 5120, 7168, 16384)]
    found += [AddNorm("rms", 8192, hidden) for hidden in (2880, 5120, 7168, 8192)]
    found += [AddNorm("rms", tokens, 4096, "f16") for tokens in (1, 1024, 8192)]
    found += [AddNorm("rms", 1024, hidden) for hidden in (1001, 4095, 6007)]
    found += [AddNorm("rms", 8192, hidden) for hidden in (1001, 4097)]
    found += [AddNorm(kind, 8192, 4096, quant="token") for kind in ("gemma", "layer")]
    found += [AddNorm("gemma", 1024, 2880), AddNorm("layer", 1024, 2880),
              AddNorm("rms", 1024, 5120, "f16", "group")]
    found += [Gated("silu", 8192, 4096, "f16"), Gated("silu", 8192, 4096, quant="token"),
              Gated("silu", 1024, 2880),
              Gated("silu", 8192, 4096, packed=False), Gated("gelu", 1024, 4095)]
    found += [QkNormRope(4096, dtype="f16"), QkNormRope(4096, 28, 4), QkNormRope(512, norm=False),
              QkNormRope(4096, norm=False)]
    found += [Epilogue("silu", *shape) for shape in ((1, 14336, 4096), (128, 4096, 14336),
                                                     (1024, 14336, 4096))]
    return found


def small_cases():
    """One of each kind, small enough for emulation."""
    kinds = {}
    for case in cases():
        kinds.setdefault(case.shrunk().name, case.shrunk())
    return list(kinds.values())
