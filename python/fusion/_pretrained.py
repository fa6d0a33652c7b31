"""Hugging Face folders as graphs, by way of transformers and torch.export."""

import os

from ._errors import BadInput, Lacking


def from_pretrained(folder, *, task=None, caches=True, dtype="auto", **options):
    """A Graph of a folder that transformers' save_pretrained() wrote: config.json and safetensors, which are
    mapped and not copied where transformers keeps them as they are.

    task: 'text-generation' for the model with its head, or 'feature-extraction' for the last hidden state;
        None: what the config's architecture says. Inputs are `input_ids` (batch x seq) and outputs `logits`
        or `last_hidden_state`.
    caches: text generation with key/value caches: inputs `past_key_values.N.key` and `.value` (batch x heads
        x past x width), and outputs `present.N.key` and `.value` that extend them: see Program.caches() and
        compile(kv_capacity=...). Sequences have no padding.
    dtype: a torch.dtype, or 'auto' for the file's.
    `options` are load()'s. Raises Lacking without torch or transformers, BadInput for a folder or model that
    cannot be imported.
    """
    try:
        import torch
        import transformers
    except ImportError as problem:
        raise Lacking(f"from_pretrained needs the packages torch and transformers: {problem}") from None
    folder = os.fspath(folder)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise BadInput(f"{folder}: holds no config.json: not what save_pretrained() wrote")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        generates = _generates(config, task)
        kind = transformers.AutoModelForCausalLM if generates else transformers.AutoModel
        model = kind.from_pretrained(folder, config=config, dtype=dtype, local_files_only=True).eval()
    except (OSError, ValueError, KeyError) as problem:
        raise BadInput(f"{folder}: {str(problem).splitlines()[0]}") from None
    options.setdefault("name", folder)
    return _graph_of(torch, transformers, model, config, generates, caches and generates, options)


def _generates(config, task):
    if task not in (None, "text-generation", "feature-extraction"):
        raise BadInput(f"a task is 'text-generation' or 'feature-extraction', not '{task}'")
    architectures = getattr(config, "architectures", None) or [""]
    return task == "text-generation" or (
        task is None and architectures[0].endswith(("ForCausalLM", "LMHeadModel"))
    )


def _graph_of(torch, transformers, model, config, generates, caches, options):
    from ._exported import from_exported

    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    dynamic = torch.export.Dim.DYNAMIC if hasattr(torch.export.Dim, "DYNAMIC") else torch.export.Dim.AUTO
    ids = torch.ones((2, 8), dtype=torch.int64)
    if not caches:
        result = "logits" if generates else "last_hidden_state"

        class Plain(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, input_ids):
                return {
                    result: getattr(
                        self.model(input_ids=input_ids, **({"use_cache": False} if generates else {})), result
                    )
                }

        module, arguments, shapes, names = (
            Plain(),
            (ids,),
            {"input_ids": {0: dynamic, 1: dynamic}},
            ["input_ids"],
        )
    else:
        shape = _cache_shape(torch, transformers, model, ids)
        module = _cached_module(torch, transformers, model, len(shape))
        pasts = [torch.zeros((2, heads, 6, width), dtype=model.dtype) for kv in shape for heads, width in kv]
        arguments = (ids, pasts)
        shapes = {"input_ids": {0: dynamic, 1: dynamic}, "pasts": [{0: dynamic, 2: dynamic} for _ in pasts]}
        names = ["input_ids"] + [
            f"past_key_values.{i // 2}.{'value' if i % 2 else 'key'}" for i in range(len(pasts))
        ]
    try:
        with torch.no_grad():
            program = torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)
    except Exception as problem:  # torch.export's errors have no common class
        reason = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        raise BadInput(
            f"{options['name']}: torch.export cannot export {type(model).__name__} "
            f"({text.model_type}): {reason}"
        ) from problem
    dims = [["batch", "seq"]] + [["batch", None, "past", None]] * (len(names) - 1)
    return from_exported(program, input_names=names, input_dims=dims, **options)


def _cache_shape(torch, transformers, model, ids):
    """Heads and width of each layer's keys and values."""
    cache = transformers.DynamicCache()
    with torch.no_grad():
        model(input_ids=ids[:1, :1], past_key_values=cache, use_cache=True)
    try:
        return [[(t.shape[1], t.shape[3]) for t in (layer.keys, layer.values)] for layer in cache.layers]
    except AttributeError:  # transformers 4
        return [[(t.shape[1], t.shape[3]) for t in pair] for pair in zip(cache.key_cache, cache.value_cache)]


def _cached_module(torch, transformers, model, layers):
    class Cached(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, pasts):
            cache = transformers.DynamicCache()
            for layer in range(layers):
                cache.update(pasts[2 * layer], pasts[2 * layer + 1], layer)
            logits = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True).logits
            results = {"logits": logits}
            for layer in range(layers):
                if hasattr(cache, "layers"):
                    key, value = cache.layers[layer].keys, cache.layers[layer].values
                else:
                    key, value = cache.key_cache[layer], cache.value_cache[layer]
                results[f"present.{layer}.key"], results[f"present.{layer}.value"] = key, value
            return results

    return Cached()
