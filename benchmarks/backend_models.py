"""The architectures of backend.py: Hugging Face's, with random weights, a cache of fixed capacity and what a
step of decode takes."""
import copy
import inspect

import torch
import transformers

CACHED, CAPACITY = 1000, 1024  # positions that a step finds, and room
VOCABULARY, LAYERS = 32000, 4
SEED = 1

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 2048, "num_hidden_layers": LAYERS, "max_position_embeddings":
    4096, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 8192, **TOKENS
}
ALTERNATING = ["sliding_attention"] * (LAYERS - 1) + ["full_attention"]

# Name: the class without "ForCausalLM" or "Config", and what its configuration takes: the widths of the model
# that is named behind it, with fewer layers and a smaller vocabulary.
ARCHITECTURES = {
    "llama": ("Llama", {**LLAMA, "num_attention_heads": 32, "num_key_value_heads": 8}),  # Llama-3.2-1B
    "qwen3": ("Qwen3", {  # 1.7B
        **LLAMA, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144
    }),
    "gemma3": ("Gemma3", {  # 4B, narrower
        **LLAMA, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512,
        "layer_types": ALTERNATING, "query_pre_attn_scalar": 256
    }),
    "mistral": ("Mistral", {**LLAMA, "num_key_value_heads": 4, "sliding_window": None}),  # 7B v0.3, narrower
    "phi3": ("Phi3", LLAMA),  # mini, narrower
    "gpt2": ("GPT2", {
        "vocab_size": VOCABULARY, "n_embd": 2048, "n_layer": LAYERS, "n_head": 16, "n_positions": CAPACITY,
        **TOKENS
    }),
    "gpt-neox": ("GPTNeoX", LLAMA),  # Pythia-1.4B
    "qwen2": ("Qwen2", {**LLAMA, "num_key_value_heads": 2, "intermediate_size": 11008}),  # Qwen2.5-3B
    "olmo2": ("Olmo2", LLAMA),  # 1B
    "granite": ("Granite", {  # 3.1-2B
        **LLAMA, "num_attention_heads": 32, "num_key_value_heads": 8, "attention_multiplier": 0.015625,
        "residual_multiplier": 0.22, "embedding_multiplier": 12.0, "logits_scaling": 8.0
    }),
}

# Of a dry run.
TINY_CACHED, TINY_CAPACITY = 20, 32
TINY = {
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "sliding_window": 16,
    "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64
}


class Absent(Exception):
    """These transformers have no such architecture."""


def configuration(name, tiny):
    """The class of the model and its configuration."""
    stem, given = ARCHITECTURES[name]
    kind = getattr(transformers, stem + ("LMHeadModel" if stem == "GPT2" else "ForCausalLM"), None)
    settings = getattr(transformers, stem + ("TextConfig" if stem == "Gemma3" else "Config"), None)
    if kind is None or settings is None:
        raise Absent(f"transformers {transformers.__version__} has no {stem}")
    if tiny:
        given = {key: TINY.get(key, value) if value is not None else None for key, value in given.items()}
    return kind, settings(**given)


class Decode:
    """Steps of one sequence, a token each, over a cache that a prompt has filled."""

    def __init__(self, name, device, tiny):
        torch.manual_seed(SEED)
        kind, self.config = configuration(name, tiny)
        self.config._attn_implementation = "sdpa"
        self.past, self.capacity = (TINY_CACHED, TINY_CAPACITY) if tiny else (CACHED, CAPACITY)
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with device:
                self.model = kind(self.config).eval()
        finally:
            torch.set_default_dtype(usual)
        for parameter in self.model.parameters():
            if parameter.dim() == 1:  # norms and biases that are 1 and 0 would hide errors
                parameter.add_(torch.randn_like(parameter) * 0.05)
        self.prompt = torch.randint(3, self.config.vocab_size, (1, self.past), device=device)
        self.ids = torch.randint(3, self.config.vocab_size, (4, 1, 1), device=device)
        self._fill()
        self.contents = [(layer.keys.clone(), layer.values.clone()) for layer in self.cache.layers]

    def _fill(self):
        self.cache = transformers.StaticCache(config=self.config, max_cache_len=self.capacity)
        self.model(self.prompt, past_key_values=self.cache, use_cache=True,
                   **self._places(torch.arange(self.past, device=self.prompt.device)))
        self.counters = [{key: value.clone() if isinstance(value, torch.Tensor) else value
                          for key, value in vars(layer).items() if key.startswith("cumulative_length")}
                         for layer in self.cache.layers]
        self.at = [self._places(torch.tensor([self.past + i], device=self.prompt.device))
                   for i in range(len(self.ids))]

    def _places(self, positions):
        """Inputs that say the positions, of those that the model takes."""
        taken = inspect.signature(type(self.model).forward).parameters
        given = {"position_ids": positions[None], "cache_position": positions}
        return {key: value for key, value in given.items() if key in taken}

    def exact(self):
        """The logits of the same model in f32 over the same cache."""
        wide = copy.copy(self)
        wide.model = copy.deepcopy(self.model).float()
        wide._fill()
        return wide.logits(wide.model.forward)

    def rewind(self):
        """Makes the next step the first again."""
        for layer, counters in zip(self.cache.layers, self.counters):
            for key, value in counters.items():
                if isinstance(value, torch.Tensor):
                    getattr(layer, key).copy_(value)
                else:
                    setattr(layer, key, value)

    def step(self, forward, i=0):
        return forward(self.ids[i], past_key_values=self.cache, use_cache=True, **self.at[i]).logits

    def logits(self, forward):
        """Of some steps, one after the other: each reads what those before it have written."""
        self.rewind()
        for layer, (keys, values) in zip(self.cache.layers, self.contents):
            layer.keys.copy_(keys)
            layer.values.copy_(values)
        return torch.cat([self.step(forward, i).float().clone() for i in range(len(self.ids))])
