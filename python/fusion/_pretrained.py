"""Hugging Face folders as graphs, by way of transformers and torch.export."""

import inspect
import os

from ._errors import BadInput, Lacking
from ._graph import from_exported


def from_pretrained(folder, *, task=None, caches=True, padding=False, dtype="auto", **options):
    """A Graph of a folder that transformers' save_pretrained() wrote: config.json and safetensors, which are
    mapped and not copied where transformers keeps them as they are.

    task: 'text-generation' for the model with its head, or 'feature-extraction' for the last hidden state;
        None: what the config's architecture says. Inputs are `input_ids` (batch x seq), or what else the
        model calls its main input, and outputs `logits` or `last_hidden_state`.
    caches: text generation with key/value caches: inputs `past_key_values.N.key` and `.value` (batch x heads
        x past x width), and outputs `present.N.key` and `.value` that extend them: see Program.caches(),
        Program.generate() and compile(kv_capacity=...).
    padding: inputs `attention_mask` (batch x positions, of past and seq together; 1: a token, 0: padding)
        and, where the model takes them, `position_ids` (batch x seq). Otherwise sequences have no padding.
    dtype: a torch.dtype, or 'auto' for the file's.
    `options` are load()'s; `sampling` is for Program.generate(). Raises Lacking without torch or
    transformers, BadInput for a folder or model that cannot be imported.
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
        model = _model(transformers, folder, config, generates, dtype)
    except (OSError, ValueError, KeyError) as problem:
        raise BadInput(f"{folder}: {str(problem).splitlines()[0]}") from None
    options.setdefault("name", folder)
    return _Export(torch, transformers, model, generates, caches and generates, padding).graph(options)


def _generates(config, task):
    if task not in (None, "text-generation", "feature-extraction"):
        raise BadInput(f"a task is 'text-generation' or 'feature-extraction', not '{task}'")
    architectures = getattr(config, "architectures", None) or [""]
    return task == "text-generation" or (
        task is None and architectures[0].endswith(("ForCausalLM", "LMHeadModel"))
    )


def _model(transformers, folder, config, generates, dtype):
    """In evaluation mode, and spelled as the compiler knows it."""
    kind = transformers.AutoModelForCausalLM if generates else transformers.AutoModel
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    precision = {"dtype" if version >= (4, 56) else "torch_dtype": dtype}
    model = kind.from_pretrained(folder, config=config, local_files_only=True, **precision).eval()
    architectures = getattr(config, "architectures", None) or [""]
    if not generates and architectures[0].endswith("EncoderModel") and hasattr(model, "get_encoder"):
        model = model.get_encoder()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")  # the experts of each row: nn.expert_matmul
    return model


class _Export:
    """One model on its way: what it takes, by name, and with which sizes it is traced."""

    def __init__(self, torch, transformers, model, generates, cached, padding):
        self.torch, self.transformers, self.model = torch, transformers, model
        self.cached = cached
        self.result = "logits" if generates else "last_hidden_state"
        self.main = getattr(model, "main_input_name", "input_ids") or "input_ids"
        self.takes = inspect.signature(model.forward).parameters
        self.padding = padding
        self.options = {"use_cache": cached} if generates else {}

    def graph(self, options):
        torch, batch, seq, past = self.torch, 2, 8, 6
        given, dims = {self.main: self._example(batch, seq)}, {self.main: ["batch"]}
        if self.main == "input_ids":
            dims[self.main].append("seq")
        if self.padding:
            if "attention_mask" not in self.takes:
                raise BadInput(f"{options['name']}: {type(self.model).__name__} takes no attention_mask")
            length = seq + past if self.cached else seq
            given["attention_mask"] = torch.ones((batch, length), dtype=torch.int64)
            dims["attention_mask"] = ["batch", "positions" if self.cached else "seq"]
            if "position_ids" in self.takes:
                given["position_ids"] = torch.arange(seq).expand(batch, seq).contiguous()
                dims["position_ids"] = ["batch", "seq"]
        pasts, names = [], list(given)
        if self.cached:
            for layer, pair in enumerate(self._cache_shape(options["name"])):
                for part, (heads, width) in zip(("key", "value"), pair):
                    pasts.append(torch.zeros((batch, heads, past, width), dtype=self.model.dtype))
                    names.append(f"past_key_values.{layer}.{part}")
        program = self._exported(given, pasts, dims, options["name"])
        self._check(program, [dims[name] for name in given] + [["batch", None, "past"]] * len(pasts), options)
        all_dims = list(dims.values()) + [["batch", None, "past", None]] * len(pasts)
        return from_exported(program, input_names=names, input_dims=all_dims, **options)

    def _exported(self, given, pasts, dims, name):
        """The exported program. Releases of torch.export differ in which of their kinds of dims they can
        relate, positions to past + seq."""
        torch = self.torch
        problem = None
        for dynamic in (torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO):
            shapes = {"given": {key: {i: dynamic for i in range(len(dims[key]))} for key in given}}
            shapes["pasts"] = [{0: dynamic, 2: dynamic} for _ in pasts]
            module = self._module(len(pasts) // 2)
            try:
                with torch.no_grad():
                    return torch.export.export(module, (given, pasts), dynamic_shapes=shapes, strict=False)
            except Exception as raised:  # torch.export's errors have no common class
                problem = problem or raised
        reason = next((line for line in str(problem).splitlines() if line.strip()), "")
        raise BadInput(
            f"{name}: torch.export cannot export {type(self.model).__name__}: {type(problem).__name__}: {reason}"
        ) from problem

    def _check(self, program, dims, options):
        """That nothing was fixed which the graph is to take in any size."""
        values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
        for name, wanted in zip(program.graph_signature.user_inputs, dims):
            for dim, size in zip(wanted, values[name].shape):
                if dim and isinstance(size, int):
                    raise BadInput(
                        f"{options['name']}: torch.export cannot export {type(self.model).__name__} for any "
                        f"{dim}: its code depends on the size, {size} here"
                    )

    def _example(self, batch, seq):
        """Of the main input."""
        torch, config = self.torch, self.model.config
        if self.main == "input_ids":
            return torch.ones((batch, seq), dtype=torch.int64)
        if self.main == "pixel_values" and isinstance(getattr(config, "image_size", None), int):
            size = config.image_size
            return torch.zeros((batch, config.num_channels, size, size), dtype=self.model.dtype)
        raise BadInput(f"a model whose main input is {self.main}: export it, and use from_exported()")

    def _cache_shape(self, name):
        """Heads and width of each layer's keys and values."""
        torch, cache = self.torch, self.transformers.DynamicCache()
        try:
            with torch.no_grad():
                self.model(
                    input_ids=torch.ones((1, 1), dtype=torch.int64), past_key_values=cache, use_cache=True
                )
            return [[(t.shape[1], t.shape[3]) for t in pair] for pair in _layers(cache)]
        except (AttributeError, LookupError, TypeError, ValueError):
            raise BadInput(
                f"{name}: {type(self.model).__name__} keeps no caches that DynamicCache holds: use caches=False"
            ) from None

    def _module(self, layers):
        torch, outer, model = self.torch, self, self.model

        class Exported(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, given, pasts):
                if not outer.cached:
                    return {outer.result: getattr(self.model(**given, **outer.options), outer.result)}
                cache = outer.transformers.DynamicCache()
                for layer in range(layers):
                    cache.update(pasts[2 * layer], pasts[2 * layer + 1], layer)
                results = self.model(**given, past_key_values=cache, **outer.options)
                results = {outer.result: getattr(results, outer.result)}
                for layer, (key, value) in enumerate(_layers(cache)):
                    results[f"present.{layer}.key"], results[f"present.{layer}.value"] = key, value
                return results

        return Exported()


def _layers(cache):
    """Keys and values by layer."""
    if hasattr(cache, "layers"):
        pairs = [(layer.keys, layer.values) for layer in cache.layers]
    else:  # transformers 4
        pairs = list(zip(cache.key_cache, cache.value_cache))
    if not pairs:
        raise AttributeError("no layers")
    return pairs
