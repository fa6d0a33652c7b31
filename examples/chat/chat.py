"""Chats with a folder that transformers' save_pretrained() wrote, model and tokenizer.

    python examples/chat/chat.py FOLDER [--device auto] [--tokens 128] [--sample temperature=0.8,top-p=0.95]

A line of standard input is a turn; what the model says is printed as it comes. A tokenizer with a chat
template is given all turns by it, another one plain text.
"""

import argparse
import sys

import transformers

import fusion


class Printer:
    """Prints text as its tokens come: what a token adds may only be known with the next one."""

    def __init__(self, tokenizer, out):
        self.tokenizer, self.out, self.tokens, self.shown = tokenizer, out, [], ""

    def text(self):
        return self.tokenizer.decode(self.tokens, skip_special_tokens=True)

    def __call__(self, prompt, token):
        self.tokens.append(token)
        text = self.text()
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # bytes of a letter that is not complete
            self.show(text)

    def show(self, text):
        self.out.write(text[len(self.shown) :])
        self.out.flush()
        self.shown = text

    def end(self):
        self.show(self.text())
        self.out.write("\n")
        return self.shown


class Chat:
    def __init__(self, folder, device, tokens, sample, capacity):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        graph = fusion.from_pretrained(folder, sampling=sample + ",no-logits")
        self.program = fusion.compile(graph, device=device, kv_capacity=capacity)
        self.most, self.turns, self.seed = tokens, [], 0

    def prompt(self):
        """Token ids of all turns."""
        if self.tokenizer.chat_template:
            text = self.tokenizer.apply_chat_template(self.turns, add_generation_prompt=True, tokenize=False)
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self.tokenizer("\n".join(turn["content"] for turn in self.turns) + "\n")["input_ids"]

    def say(self, text, out):
        """The answer to `text`, which is also written to `out`."""
        self.turns.append({"role": "user", "content": text})
        printer = Printer(self.tokenizer, out)
        self.program.generate(
            [self.prompt()],
            self.most,
            end_token=self.tokenizer.eos_token_id,
            seed=self.seed,
            on_token=printer,
        )
        self.seed += 1
        self.turns.append({"role": "assistant", "content": printer.end()})
        return printer.shown


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "chat").splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or emulate")
    parser.add_argument("--tokens", type=int, default=128, help="at most, in an answer")
    parser.add_argument("--sample", default="greedy", help="greedy, or temperature=T,top-k=K,top-p=P")
    parser.add_argument("--kv-capacity", type=int, default=4096, help="positions of a conversation")
    options = parser.parse_args()
    try:
        chat = Chat(options.folder, options.device, options.tokens, options.sample, options.kv_capacity)
        for line in sys.stdin:
            if line.strip():
                chat.say(line.strip(), sys.stdout)
    except (fusion.Error, OSError, ValueError) as problem:
        print(f"chat: {options.folder}: {str(problem).splitlines()[0]}", file=sys.stderr)
        return 3 if isinstance(problem, fusion.Lacking) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
