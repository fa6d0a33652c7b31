"""Another peer of models.py: Hugging Face's model over the same weights, by torch.compile, with a static
cache."""
import torch
import transformers

from models_graph import WINDOW
from models_torch import WARM_UP, distance, microseconds, read, read_weights


def config(m, positions):
    """The class of the model and its configuration."""
    shared = dict(vocab_size=m.vocabulary,
                  hidden_size=m.hidden,
                  num_hidden_layers=m.layers,
                  num_attention_heads=m.heads,
                  num_key_value_heads=m.kv_heads,
                  head_dim=m.width,
                  rms_norm_eps=m.eps,
                  rope_theta=m.theta,
                  tie_word_embeddings=m.tied,
                  max_position_embeddings=positions,
                  attn_implementation="sdpa",
                  intermediate_size=m.ffn)
    if m.gemma:
        kinds = ["sliding_attention" if m.windowed(i) else "full_attention" for i in range(m.layers)]
        return transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(**shared,
                                                                             sliding_window=WINDOW,
                                                                             layer_types=kinds,
                                                                             query_pre_attn_scalar=m.width,
                                                                             rope_local_base_freq=m.theta)
    if m.experts:
        return transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig(**shared,
                                                                             moe_intermediate_size=m.ffn,
                                                                             num_experts=m.experts,
                                                                             num_experts_per_tok=m.slots,
                                                                             norm_topk_prob=True,
                                                                             decoder_sparse_step=1)
    if m.qk_norm:
        return transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**shared)
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(**shared)


def names(m):
    """Hugging Face's names of our weights, and what becomes of each."""
    same = lambda w: w
    shifted = (lambda w: w - 1) if m.gemma else same  # Gemma stores a norm's weight less 1
    yield "embed", "model.embed_tokens.weight", same
    yield "norm", "model.norm.weight", shifted
    if not m.tied:
        yield "head", "lm_head.weight", same
    norms = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
    if m.gemma:
        norms = {
            "norm1": "input_layernorm", "norm1b": "post_attention_layernorm", "norm2":
            "pre_feedforward_layernorm", "norm2b": "post_feedforward_layernorm"
        }
    for i in range(m.layers):
        at = f"model.layers.{i}."
        for ours, theirs in norms.items():
            yield f"{i}.{ours}", f"{at}{theirs}.weight", shifted
        for name in "qkvo":
            yield f"{i}.{name}", f"{at}self_attn.{name}_proj.weight", same
        for name in "qk" if m.qk_norm else "":
            yield f"{i}.{name}_norm", f"{at}self_attn.{name}_norm.weight", shifted
        for name in () if m.experts else ("gate", "up", "down"):
            yield f"{i}.{name}", f"{at}mlp.{name}_proj.weight", same


def build(m, weights, positions):
    kind, settings = config(m, positions)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with weights["embed"].device:
            model = kind(settings)
    finally:
        torch.set_default_dtype(usual)
    state = {theirs: change(weights[ours]) for ours, theirs, change in names(m)}
    for i in range(m.layers) if m.experts else ():
        at = f"model.layers.{i}.mlp."
        state[f"{at}gate.weight"] = weights[f"{i}.router"]
        state[f"{at}experts.gate_up_proj"] = torch.cat([weights.pop(f"{i}.gate"), weights.pop(f"{i}.up")], 1)
        state[f"{at}experts.down_proj"] = weights[f"{i}.down"]
    lacking = model.load_state_dict(state, strict=False, assign=True)
    if m.tied:
        model.tie_weights()
    wrong = [name for name in lacking.missing_keys if not (m.tied and name == "lm_head.weight")
             ] + lacking.unexpected_keys
    if wrong:
        raise RuntimeError(
            f"transformers {transformers.__version__} has other weights: {', '.join(wrong[:4])}")
    return model.eval(), settings


@torch.no_grad()
def measure_transformers(writer, folder, case, sizes, iterations, device, exact):
    """Microseconds of a step from the call to its end, by `torch.compile` (reduce-overhead records CUDA
    graphs itself), and the distance of its logits to `exact`."""
    m, (batch, new, past) = writer.m, sizes
    inputs = read(f"{folder}/{case}.safetensors", device)
    # A cache of newer versions counts its positions itself: a step more each time. A prompt needs none.
    room = past + new * (1 + iterations + 2 * WARM_UP)
    model, settings = build(m, read_weights(writer, folder, device), room)
    positions = inputs["position_ids"]
    given = dict(input_ids=inputs["input_ids"],
                 position_ids=positions,
                 logits_to_keep=1,
                 use_cache=bool(past))
    if past:
        cache = transformers.StaticCache(config=settings, max_cache_len=room)
        for i in range(m.layers):
            places = {"cache_position": torch.arange(past, device=device)}
            cache.update(inputs[f"past_key_{i}"], inputs[f"past_value_{i}"], i, places)
        given.update(past_key_values=cache, cache_position=positions[0])
    torch._dynamo.reset()
    compiled = torch.compile(model, mode="reduce-overhead")
    step = lambda: compiled(**given).logits
    error = distance(step().clone(), exact)
    return microseconds(step, iterations, device, record=False), error
