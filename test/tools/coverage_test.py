"""Every exported graph: what has to fuse fuses, and every candidate that did not says why."""
import json
import os
import re
import unittest

from harness import GRAPHS, ToolTest

# Of the two layers of each graph: decomposed spellings that become named ops, and chains that end up in one kernel.
# A norm of the branch (Gemma 3); one of queries or keys before their rotation.
GRAPH_FACTS = {
    "bert": {"gelu": 2},
    "gemma": {"rope": 4, "gated": 2, "ropes": 4},
    "gemma3": {"rope": 4, "gated": 2, "branch_norms": 4, "ropes": 4, "head_norms": 4},
    "gpt2": {"gelu": 2},
    "llama": {"rope": 4, "silu": 2, "gated": 2, "ropes": 4},
    "phi3": {"rope": 4, "silu": 2, "gated": 2, "ropes": 4},
    "qwen3": {"rope": 4, "silu": 2, "gated": 2, "ropes": 4, "head_norms": 4},
}
NORMS = {"nn.rms_norm", "nn.layer_norm"}
ACTIVATIONS = {"nn.silu", "nn.gelu"}

# What a reason names: an op, an operand, a guard, or another fusion. Lines that name nothing are not reasons.
NAMES_SOMETHING = re.compile(r"nn\.\w+|operand|guard|product|overlaps \w+|group|result|scores|bytes|input|schedule")


def groups_of(text):
    """The bodies of the groups, and the ops outside, as lists of op names."""
    groups, outside, body = [], [], None
    for line in text.splitlines():
        found = re.search(r"(?:= |^\s*)((?:nn|fusion)\.\w+)", line)
        if not found:
            if body is not None and line.strip().startswith("}"):
                groups.append(body)
                body = None
            continue
        if found.group(1) == "fusion.group":
            body = []
        elif body is not None:
            body.append(found.group(1))
        else:
            outside.append(found.group(1))
    return groups, outside


class Coverage(ToolTest):
    def fuse(self, name):
        model = os.path.join(GRAPHS, name, "model.onnx")
        facts = GRAPH_FACTS[name.split("-")[0]]
        # ONNX has had an op for attention since opset 23, and one for GELU since 20.
        required = {key: facts[key] for key in ("silu", "gelu") if key in facts}
        if "op23" not in name and not name.endswith("bf16-decode"):
            required["attention"] = 2
        self.run_tool(
            *("fusion-opt", model, "--fuse", "--quiet", "--report=r.json", "-o", "f.mlir"),
            *(f"--require={key}={count}" for key, count in required.items()),
        )
        report = json.loads(self.read("r.json"))
        self.assertEqual(report["raises"].get("rope", {"fired": 0})["fired"], facts.get("rope", 0))
        return report, self.read("f.mlir"), facts

    def test_every_graph(self):
        names = sorted(os.listdir(GRAPHS))
        checked = 0
        for name in names:
            if not os.path.exists(os.path.join(GRAPHS, name, "model.onnx")):
                continue
            with self.subTest(name):
                report, text, facts = self.fuse(name)
                self.check_reasons(report)
                self.check_groups(text, facts)
                checked += 1
        self.assertGreater(checked, 5)

    def check_reasons(self, report):
        for section in ("patterns", "raises"):
            for pattern, entry in report[section].items():
                self.assertEqual(entry["fired"], len(entry["sites"]), pattern)
                for miss in entry["missed"]:
                    self.assertRegex(miss["reason"], NAMES_SOMETHING, pattern)
                    self.assertNotIn("fusion.group", miss["reason"], pattern)
                    if miss["location"] == "":
                        self.assertRegex(miss["reason"], "^the graph has no nn|disabled by option", pattern)
        for op, entry in report["raises"].items():
            self.assertEqual(entry["missed"], [], op)

    def check_groups(self, text, facts):
        groups, outside = groups_of(text)
        everything = [op for group in groups for op in group] + outside
        for gone in ("nn.softmax", "nn.rsqrt", "nn.sigmoid", "nn.tanh", "nn.erf", "nn.is_nan", "nn.pow"):
            self.assertNotIn(gone, everything)
        self.assertEqual(everything.count("nn.attention"), 2)

        # A residual add or a rotation outside of any group is a fusion that did not happen.
        self.assertNotIn("nn.rope", outside)
        self.assertNotIn("nn.add", outside)
        self.assertFalse(ACTIVATIONS & set(outside))
        count = {"ropes": 0, "gated": 0, "head_norms": 0, "branch_norms": 0}
        for group in groups:
            norms = sum(op in NORMS for op in group)
            ropes = group.count("nn.rope")
            count["ropes"] += ropes
            if ropes:
                count["head_norms"] += norms
            elif "nn.add" in group and norms:
                count["branch_norms"] += norms - 1
            if ACTIVATIONS & set(group) and "nn.mul" in group:
                count["gated"] += 1
        for key, found in count.items():
            if key == "gated" and key not in facts:
                continue
            if key == "branch_norms":  # in the kernel of the add, or in one of its own
                continue
            self.assertEqual(found, facts.get(key, 0), key)


if __name__ == "__main__":
    unittest.main()
