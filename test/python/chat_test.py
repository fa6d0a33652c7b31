"""examples/chat with a tiny random model and a tokenizer that is made here."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import tokenizers
    import torch
    import transformers
except ImportError as problem:
    print(f"{problem}")
    sys.exit(77)

EXAMPLE = pathlib.Path(os.environ["FUSION_SOURCE"]) / "examples/chat/chat.py"


def folder_with(tokenizer, folder):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return model


def letters():
    """A token a byte, and a template of one word a turn."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {letter: i for i, letter in enumerate(["<end>", *sorted(alphabet)])}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")
    tokenizer.chat_template = "{% for turn in messages %}{{ turn.role[0] }}:{{ turn.content }};{% endfor %}a:"
    return tokenizer


class ChatTest(unittest.TestCase):
    def test_answers_are_what_the_model_generates(self):
        tokenizer = letters()
        with tempfile.TemporaryDirectory() as folder:
            model = folder_with(tokenizer, folder)
            told, turns, expected = ["hello", "and you?"], "", ""
            for text in told:
                turns += f"u:{text};"
                ids = tokenizer(turns + "a:", add_special_tokens=False, return_tensors="pt")["input_ids"]
                answer = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=6,
                    do_sample=False,
                    eos_token_id=tokenizer.eos_token_id,
                    pad_token_id=tokenizer.eos_token_id,
                )
                said = tokenizer.decode(answer[0, ids.shape[1] :], skip_special_tokens=True)
                turns += f"a:{said};"
                expected += said + "\n"
            command = [
                sys.executable,
                str(EXAMPLE),
                folder,
                "--device=cpu",
                "--tokens=6",
                "--kv-capacity=200",
            ]
            done = subprocess.run(
                command,
                input="\n".join(told).encode(),
                capture_output=True,
                env=os.environ | {"PYTHONUTF8": "1"},
            )
            self.assertEqual((done.returncode, done.stdout.decode()), (0, expected), done.stderr.decode())

    def test_a_folder_that_is_none_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, str(EXAMPLE), folder], input=b"", capture_output=True)
        self.assertEqual(done.returncode, 2, done.stderr.decode())
        self.assertTrue(done.stderr.decode().splitlines()[-1].startswith("chat: "), done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
