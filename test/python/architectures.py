"""Hugging Face architectures with tiny random weights, by three ways into fusion, against PyTorch eager.

    PYTHONPATH=build/python python test/python/architectures.py [NAME ...] [--device cpu|emulate] [--way WAY]

Ways: `compile` is torch.compile(dynamic=True) with the backend, on three shapes; `exported` is torch.export
and from_exported, on the same; `pretrained` is save_pretrained, from_pretrained and generate(), with prompts
of one length and of several, against transformers' own generate. A line a way: the largest difference over
the largest number, and what was counted. The exit code is 1 if anything differs by more than TOLERANCE or
fails, unless REFUSED says that it does.
"""

import argparse
import sys
import tempfile
import warnings

import torch
import transformers

import fusion
from fusion import _dynamo

TOLERANCE = 2e-5  # of the largest number, float32: sums are taken in another order
SHAPES = ((2, 7), (3, 12), (4, 5))
SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
ENCODER = {key: SMALL[key] for key in list(SMALL)[:5]} | {"max_position_embeddings": 64, "pad_token_id": 0}
MAMBA = {"vocab_size": 96, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "pad_token_id": 0}

# Name: class of the model without "Model" or what follows, kind, and what its config takes.
CAUSAL = {
    "llama": ("Llama", SMALL),
    "llama3-rope": (
        "Llama",
        SMALL
        | {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
            }
        },
    ),
    "mistral": ("Mistral", SMALL | {"sliding_window": 6}),
    "mixtral": ("Mixtral", SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2", SMALL),
    "qwen3": ("Qwen3", SMALL | {"head_dim": 16}),
    "qwen3-moe": (
        "Qwen3Moe",
        SMALL | {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    ),
    "gemma": ("Gemma", SMALL | {"head_dim": 8}),
    "gemma2": ("Gemma2", SMALL | {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8}),
    "gemma3": ("Gemma3", SMALL | {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8}),
    "qwen3-next": (
        "Qwen3Next",
        SMALL
        | {
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 24,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "deepseek-v2": (
        "DeepseekV2",
        SMALL
        | {
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "gpt2": (
        "GPT2",
        {
            "vocab_size": 96,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "bos_token_id": 1,
            "eos_token_id": None,
            "pad_token_id": 0,
        },
    ),
    "gpt-neox": ("GPTNeoX", SMALL),
    "phi": ("Phi", SMALL),
    "phi3": ("Phi3", SMALL),
    "olmo2": ("Olmo2", SMALL),
    "granite": ("Granite", SMALL | {"attention_multiplier": 0.3, "residual_multiplier": 0.7}),
    "gpt-oss": (
        "GptOss",
        SMALL | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6},
    ),
    "stablelm": ("StableLm", SMALL),
    "smollm3": ("SmolLM3", SMALL),
    "mamba": ("Mamba", MAMBA),
    "falcon-mamba": ("FalconMamba", MAMBA),
}
OTHERS = {
    "bert": ("Bert", ENCODER),
    "roberta": ("Roberta", ENCODER | {"max_position_embeddings": 66}),
    "distilbert": (
        "DistilBert",
        {"vocab_size": 96, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    ),
    "modernbert": ("ModernBert", ENCODER | {"local_attention": 8, "reference_compile": False}),
    "t5-encoder": (
        "T5Encoder",
        {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
    ),
    "vit": ("ViT", ENCODER | {"image_size": 16, "patch_size": 4}),
    "whisper": (
        "Whisper",
        {
            "vocab_size": 96,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "num_mel_bins": 8,
            "max_source_positions": 20,
            "max_target_positions": 32,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
}


# What cannot be, and what the error says of it.
REFUSED = {
    ("mamba", "exported"): "Constraints violated",  # its scan is a Python loop over the positions
    ("falcon-mamba", "exported"): "Constraints violated",
    ("mamba", "pretrained"): "keeps no caches",
    ("falcon-mamba", "pretrained"): "keeps no caches",
    ("qwen3-next", "pretrained"): "keeps no caches",
    ("whisper", "pretrained"): "main input is input_features",
}


class Absent(Exception):
    """These transformers have no such architecture."""


def made(name):
    """The model of that name, in evaluation mode."""
    torch.manual_seed(0)
    stem, options = CAUSAL.get(name) or OTHERS[name]
    end = "Model"
    if name in CAUSAL:
        end = "LMHeadModel" if stem == "GPT2" else "ForCausalLM"
    config_name = stem.replace("T5Encoder", "T5") + ("TextConfig" if stem == "Gemma3" else "Config")
    kind, config = getattr(transformers, stem + end, None), getattr(transformers, config_name, None)
    if kind is None or config is None:
        raise Absent(f"transformers {transformers.__version__} has no {stem}")
    config = config(**options)
    config.architectures = [kind.__name__]
    model = kind(config).eval()
    with torch.no_grad():  # norms and biases that are 1 and 0 would hide errors
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def inputs_of(name, shape):
    batch, length = shape
    ids = torch.randint(3, 96, (batch, length), generator=torch.Generator().manual_seed(batch * length))
    if name == "vit":
        return {
            "pixel_values": torch.rand((batch, 3, 16, 16), generator=torch.Generator().manual_seed(batch))
        }
    if name == "whisper":
        features = torch.rand((batch, 8, 40), generator=torch.Generator().manual_seed(batch))
        return {"input_features": features, "decoder_input_ids": ids}
    return {"input_ids": ids}


class Result(torch.nn.Module):
    """The one tensor that is compared."""

    def __init__(self, name, model):
        super().__init__()
        self.model = model
        self.options = {"use_cache": False} if name in CAUSAL or name == "whisper" else {}
        self.key = "logits" if name in CAUSAL else "last_hidden_state"

    def of(self, **inputs):
        return getattr(self.model(**inputs, **self.options), self.key)


class OfIds(Result):
    def forward(self, input_ids):
        return self.of(input_ids=input_ids)


class OfPixels(Result):
    def forward(self, pixel_values):
        return self.of(pixel_values=pixel_values)


class OfSound(Result):
    def forward(self, input_features, decoder_input_ids):
        return self.of(input_features=input_features, decoder_input_ids=decoder_input_ids)


def module_of(name, model):
    return {"vit": OfPixels, "whisper": OfSound}.get(name, OfIds)(name, model)


def difference(got, want):
    """Of the largest number."""
    if got.shape != want.shape or not torch.isfinite(got).all():
        return float("inf")
    return float((got - want).abs().max() / want.abs().max().clamp(min=1e-6))


def by_compile(name, model, device):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    fusion.torch_reports(clear=True)
    module = module_of(name, model)
    compiled = torch.compile(module, backend=_dynamo.backend, dynamic=True, options={"device": device})
    worst = 0.0
    with torch.no_grad():
        for shape in SHAPES:
            given = inputs_of(name, shape)
            worst = max(worst, difference(compiled(**given), module(**given)))
    reports = fusion.torch_reports()
    breaks = torch._dynamo.utils.counters["graph_break"]
    pieces = sum(len(report.programs) for report in reports)
    text = f"{len(reports)} graphs, {sum(breaks.values())} breaks, {pieces} pieces"
    left = sorted({reason for report in reports for _, reason in report.left})
    reasons = [str(reason).splitlines()[0] for reason in breaks] + left
    return worst, text, reasons


def by_export(name, model, device):
    module = module_of(name, model)
    given = inputs_of(name, SHAPES[0])
    dynamic = torch.export.Dim.DYNAMIC if hasattr(torch.export.Dim, "DYNAMIC") else torch.export.Dim.AUTO
    dims = {key: {0: dynamic, **({1: dynamic} if "ids" in key else {})} for key in given}
    with torch.no_grad():
        exported = torch.export.export(module, (), given, dynamic_shapes=dims, strict=False)
    graph = fusion.from_exported(exported, input_names=list(given))
    program = fusion.compile(graph, device=device)
    worst = 0.0
    with torch.no_grad():
        for shape in SHAPES:
            given = inputs_of(name, shape)
            (got,) = program(given).values()
            worst = max(worst, difference(got, module(**given)))
    fixed = [f"{port.name} {port.shape}" for port in graph.inputs if not isinstance(port.shape[0], str)]
    return worst, f"{len(program.inputs)} inputs", fixed


def by_folder(name, model, device):
    if name not in CAUSAL:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            program = fusion.compile(fusion.from_pretrained(folder), device=device)
        worst = 0.0
        with torch.no_grad():
            for shape in SHAPES:
                given = inputs_of(name, shape)
                got = program(given)["last_hidden_state"]
                worst = max(worst, difference(got, model(**given).last_hidden_state))
        return worst, f"{len(program.inputs)} inputs", []
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        graph = fusion.from_pretrained(folder, padding=True, sampling="greedy")
        program = fusion.compile(graph, device=device, kv_capacity=48)
    ids = inputs_of(name, (2, 9))["input_ids"]
    differ = []
    for what, mask in (("one length", [0, 0]), ("padded", [0, 4])):
        keep = torch.ones_like(ids)
        for row, padding in enumerate(mask):
            keep[row, :padding] = 0
        padded = ids * keep
        with torch.no_grad():
            want = model.generate(padded, attention_mask=keep, max_new_tokens=8, do_sample=False)[:, 9:]
        prompts = [ids[row, padding:].tolist() for row, padding in enumerate(mask)]
        got = program.generate(prompts, max_new_tokens=8)
        if got != want.tolist():
            differ.append(f"{what}: {got} instead of {want.tolist()}")
    return float("inf") if differ else 0.0, "2 generations of 2 prompts, 8 tokens", differ


def by_static_cache(model, device):
    """What is wrong with generate() of a model whose forward is compiled, with a cache of fixed capacity."""
    torch._dynamo.reset()
    fusion.torch_reports(clear=True)
    ids = inputs_of("llama", (2, 9))["input_ids"]
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 4, "do_sample": False}
    with torch.inference_mode():
        want = model.generate(ids, **options).tolist()
        model.forward = torch.compile(model.forward, backend=_dynamo.backend, options={"device": device})
        got = model.generate(ids, cache_implementation="static", **options).tolist()
    reports = fusion.torch_reports()
    left = sorted({reason for report in reports for _, reason in report.left})
    if not any(report.programs for report in reports):
        left.append("nothing was compiled")
    return left if got == want else [*left, f"{got} instead of {want}"]


WAYS = {"compile": by_compile, "exported": by_export, "pretrained": by_folder}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*CAUSAL, *OTHERS])}")
    parser.add_argument("--device", default="cpu", choices=["cpu", "emulate", "cuda"])
    parser.add_argument("--way", action="append", choices=list(WAYS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in CAUSAL and name not in OTHERS]
    if unknown:
        parser.error(f"there is no {unknown[0]}")
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {arguments.device}", flush=True
    )
    failed = 0
    for name in arguments.names or [*CAUSAL, *OTHERS]:
        for way in arguments.way or WAYS:
            try:
                worst, text, reasons = WAYS[way](name, made(name), arguments.device)
                verdict = "ok" if worst <= TOLERANCE else "DIFFERS"
                line = f"{worst:.1e}, {text}"
            except Absent as absent:
                verdict, line, reasons = "absent", str(absent), []
                if (name, way) in REFUSED:
                    verdict, line = "FAILS", "is said to be impossible, and is not"
            except Exception as problem:  # of any library: the table goes on
                refused = (name, way) in REFUSED and REFUSED[name, way] in str(problem)
                verdict, reasons = "refused" if refused else "FAILS", []
                line = f"{type(problem).__name__}: {problem}".splitlines()[0][:300]
            failed += verdict in ("DIFFERS", "FAILS")
            print(f"{name:13} {way:10} {verdict:8} {line}", *reasons, sep="\n" + " " * 6, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
