"""The tools with closed descriptors, full devices, odd environments and small limits: the same results, one
line, the right exit code, and nothing written where it does not belong."""

import os
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from harness import BINARIES, ToolTest, graph, named

LLAMA = "llama-fp32-op18"
TOOLS = ("fusion-opt", "fusion-run", "fusion-compile", "fusion-cache", "fusion-fuzz")
EXPECT = {"expect": graph(LLAMA, "outputs.safetensors"), "device": "cpu"}
ADD = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = nn.add %x, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
"""


class Descriptors(ToolTest):
    def shell(self, command, exit):
        """Runs a command line of sh, in which $BIN is the folder of the tools. Its stderr."""
        environment = {**os.environ, "FUSION_CACHE_DIR": self.cache, "BIN": BINARIES}
        done = subprocess.run(
            ["sh", "-c", command],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
        self.assertEqual(done.returncode, exit, f"{command}\n{done.stderr}")
        return done.stderr

    def test_full_devices(self):
        self.write("g.mlir", ADD)
        for tool in TOOLS:
            for option in ("--help", "--help-hidden", "--version", "--completion=bash", "--man-page"):
                err = self.shell(f"$BIN/{tool} {option} >/dev/full", 3)
                self.assertEqual(err, f"{tool}: cannot write to stdout: No space left on device\n")
            self.shell(f"$BIN/{tool} --nonsense 2>/dev/full", 2)
        for command in (
            "opt g.mlir",
            "opt g.mlir --fuse",
            "run g.mlir --random-inputs --quiet",
            "run g.mlir --describe",
            "cache list",
            "fuzz --count=1 --print",
            "fuzz --count=1 --quiet",
        ):
            err = self.shell(f"$BIN/fusion-{command} >/dev/full", 3)
            self.assertRegex(err, r"^fusion-\w+: cannot write to stdout: No space left on device\n$")
        for command in ("opt g.mlir -o /dev/full", "run g.mlir --random-inputs --quiet --outputs=/dev/full"):
            err = self.shell(f"$BIN/fusion-{command}", 3)
            self.assertRegex(err, r"^fusion-\w+: /dev/full: No space left on device\n$")

    def test_closed(self):
        """What is asked for on a closed stdout is an error; messages for a closed stderr are lost; both end
        nowhere else."""
        self.write("g.mlir", ADD)
        self.assertIn("cannot write to stdout", self.shell("$BIN/fusion-opt g.mlir >&-", 3))
        self.assertIn("cannot write to stdout", self.shell("$BIN/fusion-run --help >&-", 3))
        self.shell("$BIN/fusion-opt g.mlir --fuse >&- 2>&-", 3)
        self.shell("$BIN/fusion-opt g.mlir --nonsense 2>&-", 2)
        self.assertIn("Bad file descriptor", self.shell("$BIN/fusion-opt - <&-", 2))
        commands = (
            ("opt g.mlir --fuse -o out{0} --report=r{0}.json", False),
            ("run g.mlir --random-inputs --device=emulate --outputs=out{0} --report=r{0}.json", True),
            ("fuzz --count=1 -o .", True),
        )
        for command, prints in commands:
            self.shell(f"$BIN/fusion-{command.format('-good')} >said 2>&1", 0)
            for closed, isOut in (("<&-", False), (">&-", True), ("2>&-", False), ("<&- >&- 2>&-", True)):
                with self.subTest(closed=closed, command=command):
                    self.shell(
                        f"$BIN/fusion-{command.format('-closed')} {closed} {'' if isOut else '>said'}",
                        3 if isOut and prints else 0,
                    )
                    for file in ("out-{}", "r-{}.json") if "out" in command else ():
                        self.assertEqual(
                            self.bytes(file.format("closed")), self.bytes(file.format("good")), file
                        )

    def bytes(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()


class Environment(ToolTest):
    def setUp(self):
        super().setUp()
        self.graph = self.write("g.mlir", ADD)

    def passes(self, env=None, **options):
        out, err = self.run_tool("fusion-run", *named(LLAMA, **EXPECT), "--quiet", env=env, **options)
        self.assertRegex(out, r"^logits 2x16x256 f32 max_abs \S+e-07 rel_l2 \S+e-07 PASS\n$")
        return err

    def emulates(self, env, exit=0, **options):
        """Compiles a small kernel; gives stderr."""
        out, err = self.run_tool(
            "fusion-run",
            self.graph,
            "--random-inputs",
            "--device=emulate",
            "--quiet",
            env=env,
            exit=exit,
            **options,
        )
        self.assertEqual(out, "" if exit else "result0 2 f32\n")
        return err

    def test_homes(self):
        """A relative folder of caches is ignored, as the XDG specification says."""
        for name, value in (
            ("HOME", ""),
            ("HOME", "relative"),
            ("XDG_CACHE_HOME", "relative"),
            ("XDG_CACHE_HOME", ""),
        ):
            env = {"FUSION_CACHE_DIR": "", "HOME": "", "XDG_CACHE_HOME": "", name: value}
            self.refuse("fusion-cache", "list", exit=3, env=env, says="FUSION_CACHE_DIR")
            self.assertEqual(
                self.run_tool(
                    "fusion-run", self.graph, "--random-inputs", "--device=cpu", "--quiet", env=env
                )[1],
                "",
            )
        self.assertEqual(os.listdir(self.folder), ["g.mlir"])
        for folder in (self.graph, "/" + "x" * 5000):
            err = self.emulates({"FUSION_CACHE_DIR": "", "XDG_CACHE_HOME": folder})
            self.assertEqual(len(err.splitlines()), 1)
            self.assertIn("cannot be written to", err)
        self.assertEqual(self.emulates({"FUSION_CACHE_DIR": "", "XDG_CACHE_HOME": self.path("a b\n'c")}), "")

    def test_temporary_folders(self):
        for folder in ("/nonexistent", "/proc", self.graph):
            env = {"TMPDIR": folder}
            self.refuse("fusion-fuzz", "--count=1", exit=3, env=env, says="set TMPDIR")
            err = self.emulates({"FUSION_CACHE_DIR": self.graph + "/no", **env}, exit=3)
            self.assertIn("set TMPDIR", err.splitlines()[-1])
            self.emulates(env)  # the cache is enough

    def test_masks(self):
        for mask in (0, 0o777):
            with self.subTest(mask=oct(mask)):
                cache = {"FUSION_CACHE_DIR": self.path(f"cache{mask}")}
                self.emulates(cache, preexec_fn=lambda: os.umask(mask))
                self.assertEqual(os.stat(cache["FUSION_CACHE_DIR"]).st_mode & 0o077, 0)
                self.run_tool("fusion-opt", self.graph, "-o", f"o{mask}", preexec_fn=lambda: os.umask(mask))
                self.assertEqual(os.stat(self.path(f"o{mask}")).st_mode & 0o777, 0o666 & ~mask)

    def test_languages(self):
        """Numbers are written and read with a point, also where the language has a comma."""
        env = {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}
        if shutil.which("localedef"):  # else the language is as unknown as the next
            made = subprocess.run(
                ["localedef", "-i", "de_DE", "-f", "UTF-8", self.path("de_DE.UTF-8")], capture_output=True
            )
            if made.returncode in (0, 1):  # 1: with warnings
                env["LOCPATH"] = self.folder
        emitted, _ = self.run_tool("fusion-opt", graph(LLAMA), "--fuse", "--emit=cuda")
        for env in (env, {"LC_ALL": "C"}, {"LC_ALL": "nonsense"}, {"LANG": "\xff"}):
            out, _ = self.run_tool("fusion-run", *named(LLAMA, **EXPECT, rtol="0.000001"), "--quiet", env=env)
            self.assertRegex(out, r"max_abs \d\.\d+e-07 .* PASS")
            self.refuse(
                "fusion-run", *named(LLAMA, rtol="0,1"), env=env, says="--rtol takes a tolerance, not '0,1'"
            )
            self.assertEqual(
                self.run_tool("fusion-opt", graph(LLAMA), "--fuse", "--emit=cuda", env=env)[0], emitted
            )

    def test_huge(self):
        self.passes({f"HUGE{i}": "x" * 100000 for i in range(12)})

    def limited(self, limit, value, *arguments, **options):
        def before():
            resource.setrlimit(limit, (value, value))

        return self.run_tool(*arguments, preexec_fn=before, **options)

    def test_few_descriptors(self):
        out, _ = self.limited(resource.RLIMIT_NOFILE, 6, "fusion-run", *named(LLAMA, **EXPECT), "--quiet")
        self.assertIn("PASS", out)
        process = self.start(
            "fusion-opt", graph(LLAMA), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        )
        _, err = process.communicate(timeout=240)
        self.assertIn(process.returncode, (3, 127), err)  # 127: the loader finds no library
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_little_memory(self):
        """Either the result, or one line that says what is short."""
        answers = set()
        for megabytes in (400, 480, 900):

            def before():
                resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

            process = self.start(
                "fusion-run", *named(LLAMA, **{**EXPECT, "device": "emulate"}), "--quiet", preexec_fn=before
            )
            out, err = process.communicate(timeout=240)
            with self.subTest(megabytes):
                self.assertIn(process.returncode, (0, 3, 127), err)
                self.assertEqual(
                    (out.count("PASS"), len(err.splitlines())),
                    (1, 0) if process.returncode == 0 else (0, 1),
                    err,
                )
                answers.add(process.returncode)
        self.assertIn(0, answers)


class Drivers(ToolTest):
    def library(self, name, functions):
        source = self.write(name + ".c", "".join(f"int {each} {{ return 0; }}\n" for each in functions))
        made = self.path(name + ".so")
        subprocess.run([self.compiler, "-w", "-shared", "-fPIC", "-o", made, source], check=True)
        return made

    def test_that_cannot_be_used(self):
        """One line of a run that asks for a GPU; one that takes what there is runs on the CPU."""
        self.compiler = next(filter(None, map(shutil.which, ("cc", "clang-22", "clang", "gcc"))), None)
        if not self.compiler:
            self.skipTest("no C compiler")
        self.write("g.mlir", ADD)
        with open(os.path.join(os.environ["FUSION_SOURCE"], "runtime/cuda/Driver.cpp")) as file:
            wanted = re.findall(r"FUSION_RESOLVE\((cu\w+)\);", file.read())
        self.assertGreater(len(wanted), 50)
        absent = [each + "()" for each in wanted if each != "cuLaunchKernelEx"]
        no_gpu = ["cuDeviceGetCount(int *n)" if each == "cuDeviceGetCount" else each + "()" for each in wanted]
        for driver, says in (
            ("/nonexistent.so", "cannot be loaded"),
            (self.path("g.mlir"), "cannot be loaded"),
            (self.library("none", ["cuInit()"]), "install a driver for CUDA 12.0 or newer"),
            (self.library("old", absent), "has no cuLaunchKernelEx: install a driver for CUDA 12.0"),
            (self.library("nothing", no_gpu), "finds no GPU"),
        ):
            env = {"FUSION_CUDA_DRIVER": driver}
            command = ["fusion-run", "g.mlir", "--random-inputs", "--quiet"]
            with self.subTest(driver):
                self.refuse(*command, "--device=cuda", exit=3, env=env, says=says)
                self.assertEqual(self.run_tool(*command, "--device=auto", env=env), ("result0 2 f32\n", ""))


class Signals(ToolTest):
    def test_interrupted(self):
        """Nothing half written stays, whenever the signal comes."""
        left = set()
        for number, delay in enumerate((0.1, 0.3, 0.6)):
            cache = {"FUSION_CACHE_DIR": self.path(f"cache{number}")}
            process = self.start("fusion-compile", graph(LLAMA), "-o", "bundle", "--quiet", env=cache)
            emulation = self.start("fusion-run", *named(LLAMA, device="emulate"), "--quiet", env=cache)
            time.sleep(delay)
            for each in (process, emulation):
                each.send_signal(signal.SIGINT)
            for each in (process, emulation):
                each.communicate(timeout=60)
                self.assertIn(each.returncode, (0, -signal.SIGINT))
            for at, folders, files in os.walk(self.folder):
                left |= {
                    name
                    for name in folders + files
                    if "building-" in name or ".partial" in name or name.endswith(".old")
                }
        self.assertEqual(left, set())


if __name__ == "__main__":
    unittest.main()
