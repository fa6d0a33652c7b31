"""What the tools say of their options: help with defaults, words that are taken, man pages, completion by
shells."""

import os
import re
import shutil
import subprocess
import unittest

from harness import BINARIES, ToolTest

TOOLS = ("fusion-opt", "fusion-run", "fusion-compile", "fusion-cache", "fusion-fuzz")


class Help(ToolTest):
    def test_defaults(self):
        for tool, says in (
            (
                "fusion-opt",
                (
                    "--tp=N",
                    "(default 1)",
                    "(default sm_90a)",
                    "one of sm_80, ",
                    "(default auto)",
                    "(default mlir)",
                    "default -, stdout",
                ),
            ),
            (
                "fusion-run",
                (
                    "--seed=N",
                    "(default 0)",
                    "--bench[=N]",
                    "emulate  ",
                    "(default ~/.cache/fusion)".split()[1],
                ),
            ),
            ("fusion-fuzz", ("(default 100)", "(default 4)", "(default cpu)")),
        ):
            out, _ = self.run_tool(tool, "--help")
            for word in says:
                self.assertIn(word, out)

    def test_layout(self):
        for tool in TOOLS:
            out, err = self.run_tool(tool, "--help")
            self.assertEqual(err, "")
            self.assertLessEqual(max(map(len, out.splitlines())), 100)
            self.assertEqual(self.run_tool(tool, "-h")[0], out)
            for library in ("mlir-", "debug-", "print-after"):
                self.assertNotIn("--" + library, out)
            names = re.findall(r"^  (--?[\w-]+)", out, re.MULTILINE)
            self.assertEqual(len(names), len(set(names)))
            hidden, _ = self.run_tool(tool, "--help-hidden")
            for name in names:
                self.assertRegex(hidden, rf"(?m)^  {name}\b")

    def test_refused_values(self):
        for tool, option, says in (
            ("fusion-opt", "--emit=ptx", "--emit takes mlir, cuda, plan or dot, not 'ptx'"),
            ("fusion-opt", "--profit=", "--profit takes auto, model or measure, not ''"),
            ("fusion-opt", "--target=sm_1", "--target takes sm_80, "),
            ("fusion-opt", "--tp=two", "--tp takes a number of ranks, not 'two'"),
            ("fusion-opt", "--tp=99999999999", "--tp takes a number of ranks"),
            ("fusion-run", "--device=gpu", "--device takes auto, cpu, cuda or emulate, not 'gpu'"),
            ("fusion-run", "--bench=x", "--bench takes a number of runs, not 'x'"),
            ("fusion-run", "--atol=nan", "--atol takes a tolerance, not 'nan'"),
            ("fusion-run", "--seed=-1", "--seed takes a whole number, not '-1'"),
            ("fusion-fuzz", "--device=x", "--device takes cpu, emulate or cuda, not 'x'"),
            ("fusion-fuzz", "--count=1e3", "--count takes a whole number, not '1e3'"),
            ("fusion-opt", "--emit=" + "x" * 100000, "--emit takes mlir"),
            ("fusion-opt", "--emit=a`b'c\"d\ne\x1b[31mf", "not 'a`b'c\"d e [31mf'"),
            ("fusion-opt", "--" + "x" * 100000, "there is no option '--xxx"),
            ("fusion-opt", "--fues", "did you mean '--fuse'?"),
            ("fusion-opt", "x" * 100000, "File name too long"),
            ("fusion-opt", "a`b'c\"d\ne.onnx", "a`b'c\"d e.onnx"),
        ):
            line = self.refuse(tool, option, says=says)
            self.assertLess(len(line), 3000)

    def test_known_targets(self):
        self.refuse("fusion-compile", "--target=sm_90", says="no INPUT")  # as sm_90a


class ManPages(ToolTest):
    def test_every_option_is_there(self):
        for tool in TOOLS:
            page, _ = self.run_tool(tool, "--man-page")
            text, _ = self.run_tool(tool, "--help")
            self.assertRegex(page, rf'^\.TH {tool.upper()} 1 "" "fusion \d+\.\d+\.\d+" "User Commands"\n')
            for name in re.findall(r"^  (--?[\w-]+)", text, re.MULTILINE):
                if name not in ("--man-page",):
                    self.assertIn("\\fB" + name.replace("-", "\\-"), page)
            self.assertNotRegex(page, r"(?m)^'")
            for variable in re.findall(r"FUSION_\w+", page):
                self.assertTrue(any(variable.encode() in data for data in self.sources()), variable)

    def sources(self):
        for name in (
            "ir/base/Parallel.cpp",
            "runtime/KernelCache.cpp",
            "runtime/cuda/Nvrtc.cpp",
            "runtime/emulate/HostCompiler.cpp",
        ):
            with open(os.path.join(os.environ["FUSION_SOURCE"], name), "rb") as file:
                yield file.read()

    def test_format(self):
        checkers = [
            (["mandoc", "-T", "lint", "-W", "warning"], "missing date"),
            (["groff", "-man", "-Tutf8", "-ww", "-z"], None),
        ]
        present = [checker for checker in checkers if shutil.which(checker[0][0])]
        if not present:
            self.skipTest("neither mandoc nor groff is installed")
        for tool in TOOLS:
            page = self.write(tool + ".1", self.run_tool(tool, "--man-page")[0])
            for command, known in present:
                done = subprocess.run([*command, page], capture_output=True, text=True)
                lines = [
                    line
                    for line in (done.stdout + done.stderr).splitlines()
                    if known is None or known not in line
                ]
                self.assertEqual(lines, [])


class Completion(ToolTest):
    scripts = {}  # of bash, by tool

    def setUp(self):
        super().setUp()
        for name in ("model.onnx", "graph.mlir", "in.safetensors", "notes.txt", "p.pdll"):
            self.write(name, "")
        os.mkdir(self.path("folder"))

    def bash(self, tool, line, breaks=None):
        """What bash offers at the end of a line: sets COMP_… as it does, and calls the function."""
        if tool not in self.scripts:
            self.scripts[tool] = self.run_tool(tool, "--completion=bash")[0]
        script = self.scripts[tool]
        function = re.search(r"^complete -F (\w+) ", script, re.MULTILINE)[1]
        program = (
            "compopt() { :; }\n"
            + script
            + ("" if breaks is None else f"COMP_WORDBREAKS={breaks}\n")
            + f'COMP_LINE=$1 COMP_POINT=${{#1}}\n{function}\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", program, "bash", line], capture_output=True, text=True, cwd=self.folder
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(done.stdout.split("\n")[:-1])

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash(self):
        for tool, line, expected in (
            ("fusion-opt", "fusion-opt --em", ["--emit="]),
            ("fusion-opt", "fusion-opt --require-", ["--require-plan"]),
            ("fusion-opt", "fusion-opt --emit=", ["cuda", "dot", "mlir", "plan"]),
            ("fusion-opt", "fusion-opt --emit p", ["plan"]),
            ("fusion-opt", "fusion-opt --target=sm_9", ["sm_90a"]),
            ("fusion-opt", "fusion-opt --fuse-disable=add_norm,gated_m", ["add_norm,gated_matmul"]),
            ("fusion-opt", "fusion-opt --require=gated_m", ["gated_matmul="]),
            ("fusion-opt", "fusion-opt --require=gated_matmul=", [""]),
            ("fusion-opt", "fusion-opt --patterns=", ["folder", "graph.mlir", "p.pdll"]),
            ("fusion-opt", "fusion-opt ", ["folder", "graph.mlir", "model.onnx"]),
            (
                "fusion-opt",
                "fusion-opt -o ",
                ["folder", "graph.mlir", "in.safetensors", "model.onnx", "notes.txt", "p.pdll"],
            ),
            ("fusion-opt", "fusion-opt --tp=", [""]),
            ("fusion-run", "fusion-run --prompt=", [""]),
            ("fusion-run", "fusion-run model.onnx --inputs=", ["folder", "in.safetensors"]),
            ("fusion-run", "fusion-run model.onnx --cache=", ["folder"]),
            ("fusion-run", "fusion-run --device=e", ["emulate"]),
            ("fusion-compile", "fusion-compile -o ", ["folder"]),
            ("fusion-cache", "fusion-cache c", ["check", "clear"]),
            ("fusion-fuzz", "fusion-fuzz g", ["graph.mlir"]),
        ):
            with self.subTest(line):
                self.assertEqual(self.bash(tool, line), expected)
        self.assertEqual(self.bash("fusion-opt", "fusion-opt --emit=p", breaks="' '"), ["--emit=plan"])
        names = self.bash("fusion-run", "fusion-run --")
        text, _ = self.run_tool("fusion-run", "--help")
        self.assertEqual(
            {name.rstrip("=") for name in names} | {"--help-hidden", "--man-page"},
            set(re.findall(r"^  (--[\w-]+)", text, re.MULTILINE)),
        )

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        for tool, line, expected in (
            ("fusion-opt", "fusion-opt --emit=", {"--emit=mlir", "--emit=cuda", "--emit=plan", "--emit=dot"}),
            ("fusion-opt", "fusion-opt --fuse-disable=add_norm,gated_m",
             {"--fuse-disable=add_norm,gated_matmul"}),
            ("fusion-opt", "fusion-opt --require=gated_m", {"--require=gated_matmul="}),
            ("fusion-run", "fusion-run --inputs=", {"--inputs=in.safetensors"}),
            ("fusion-run", "fusion-run --inputs i", {"in.safetensors"}),
            ("fusion-run", "fusion-run --cache=f", {"--cache=folder/"}),
            ("fusion-run", "fusion-run --device e", {"emulate"}),
            ("fusion-cache", "fusion-cache c", {"check", "clear"}),
        ):
            self.write("script.fish", self.run_tool(tool, "--completion=fish")[0])
            command = ["fish", "--no-config", "-c", f"source script.fish; complete -C '{line}'"]
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=self.folder,
                env={**os.environ, "HOME": self.folder}
            )
            found = {offer.split("\t")[0] for offer in done.stdout.splitlines()}
            # Files of other kinds may follow those that are asked for.
            self.assertEqual((found & expected, done.stderr), (expected, ""), line)
            if "input" not in line:
                self.assertEqual(found, expected, line)

    def test_other_shells(self):
        for tool in TOOLS:
            for shell, check in (
                ("bash", ["bash", "-n"]),
                ("zsh", ["zsh", "-n"]),
                ("fish", ["fish", "--no-execute"]),
            ):
                script, _ = self.run_tool(tool, f"--completion={shell}")
                self.assertIn(tool, script.splitlines()[0])
                text, _ = self.run_tool(tool, "--help")
                for name in re.findall(r"^  --([\w-]+)", text, re.MULTILINE):
                    if name not in ("help-hidden", "man-page"):
                        self.assertIn(name, script)
                path = self.write("script", script)
                if shutil.which(check[0]):
                    done = subprocess.run([*check, path], capture_output=True, text=True)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.refuse(
            "fusion-opt", "--completion=tcsh", says="--completion takes bash, zsh or fish, not 'tcsh'"
        )


if __name__ == "__main__":
    unittest.main()
