"""What the pages say is there: links and anchors, options of the tools, variables, fusions, commands."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("FUSION_SOURCE", pathlib.Path(__file__).parents[2]))
BINARIES = pathlib.Path(os.environ.get("FUSION_BINARIES", SOURCE / "build/bin"))
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "scripts/docs"))

import links  # noqa: E402

TOOLS = ("fusion-opt", "fusion-run", "fusion-compile", "fusion-cache", "fusion-fuzz")
ROOMS = ("ir", "patterns", "passes", "codegen", "runtime", "api", "tools")
FOLDERS = ROOMS + ("python", "test", "examples", "benchmarks", "docs", "scripts")
# Pages that scripts/docs.sh makes.
GENERATED = {f"docs/reference/{name}.md" for name in ("flags", "cpp", "c", "python", "ops")}
# Options in the pages that are other programs' (compilers, cmake, pip, launchers) or those of scripts.
OTHERS = {
    "--build",
    "--cflags",
    "--config-settings",
    "--fmad",
    "--install",
    "--leave-out",
    "--libs",
    "--list",
    "--models",
    "--no-build",
    "--no-python",
    "--nproc-per-node",
    "--only",
    "--peers",
    "--prefix",
    "--preset",
    "--ranks",
    "--seconds",
    "--tokens",
}


def pages():
    """The README, the pages of docs/ and those of the examples, as paths in the project."""
    found = [SOURCE / "README.md", *SOURCE.glob("docs/**/*.md"), *SOURCE.glob("examples/*/README.md")]
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(found)}


def nav():
    """The pages of the site's menu, in its order."""
    text = (SOURCE / "mkdocs.yml").read_text()
    return [
        "docs/" + path
        for path in re.findall(r"^ +- .*: ([\w/.-]+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)
    ]


def wrong_links(page, text, exists, anchors):
    """A line for each link that points to nothing. `exists(path)`; `anchors(path)` of a page."""
    for _, target in links.links_of(text):
        if links.is_outside(target):
            continue
        path, anchor = links.split(target, page)
        if path in GENERATED:
            continue
        if not exists(path):
            yield f"{page}: {target} points to nothing"
        elif anchor and anchor not in anchors(path):
            yield f"{page}: {target}: {path} has no heading #{anchor} (that forge and site agree on)"


@functools.lru_cache
def help_of(tool):
    """The options that --help lists, and of the hidden ones, among which are all of LLVM's, the passes."""

    def printed(option):
        done = subprocess.run([str(BINARIES / tool), option], capture_output=True, text=True, check=True)
        return set(re.findall(r"^ +(-{1,2}[a-z][a-z0-9-]*)", done.stdout, re.MULTILINE))

    passes = {
        option for option in printed("--help-hidden") if option.startswith(("--nn-", "--fuse-", "--mlir-"))
    }
    return printed("--help") | passes


def known_options():
    return set().union(*map(help_of, TOOLS))


def text_of(*folders):
    """The sources and scripts in these folders."""
    suffixes = (".cpp", ".h", ".cuh", ".sh", ".py", ".txt")
    files = (file for folder in folders for file in (SOURCE / folder).rglob("*"))
    return "".join(file.read_text() for file in files if file.suffix in suffixes)


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def fusions():
    """The names of all fusions: a file a family, and those that are proposed."""
    proposed = re.search(
        r"proposers\(\) \{(.*?)\n\}", (SOURCE / "passes/fuse/ProposeEpilogue.cpp").read_text(), re.DOTALL
    )
    return {path.stem for path in (SOURCE / "patterns").glob("*.pdll")} | set(
        re.findall(r'\{"(\w+)"', proposed[1])
    )


class Links(unittest.TestCase):
    def test_links_and_anchors_point_to_something(self):
        texts = pages()
        self.assertGreater(len(texts), 25)
        wrong = []
        for page, text in texts.items():
            wrong += wrong_links(
                page,
                text,
                lambda path: (SOURCE / path).exists(),
                lambda path: links.anchors_of((SOURCE / path).read_text()),
            )
        self.assertEqual([], wrong)

    def test_what_is_wrong_is_seen(self):
        other = "# One `heading` of two\n\n```\n# no heading\n```\n"
        for text, count in (
            ("[a](gone.md)", 1),
            ("![a](gone.svg)", 1),
            ("[a](there.md#one-heading-of-two)", 0),
            ("[a](there.md#no-heading)", 1),
            ("[`a`](gone.md)", 1),
            ("`[a](gone.md)`", 0),
            ("```\n[a](gone.md)\n```\n", 0),
            ("[a](https://gone.md)", 0),
            ("[a [b] c](gone.md)", 1),
            ("[a](#one-heading-of-two)", 0),
            ("two\nlines of [a\nlink](gone.md)", 1),
        ):
            exists = {"there.md", "page.md"}.__contains__
            self.assertEqual(
                count,
                len(list(wrong_links("page.md", text, exists, lambda path: links.anchors_of(other)))),
                text,
            )

    def test_every_page_is_in_the_menu_once(self):
        listed = nav()
        self.assertEqual(len(listed), len(set(listed)))
        there = {page for page in pages() if page.startswith("docs/")} | GENERATED
        self.assertEqual(
            set(), there - set(listed), "these pages are not in the nav of mkdocs.yml: add them there"
        )
        self.assertEqual(set(), set(listed) - there, "the nav of mkdocs.yml names pages that are not there")


class Claims(unittest.TestCase):
    def test_options_that_pages_name_are_options(self):
        known = known_options() | OTHERS
        wrong = {page: options_in(text) - known for page, text in pages().items()}
        self.assertEqual({}, {page: options for page, options in wrong.items() if options})

    def test_commands_take_the_options_that_they_are_given(self):
        """A tool at the beginning of a line of a block, up to the line's end."""
        known = {tool: help_of(tool) for tool in TOOLS}
        seen = 0
        for page, text in pages().items():
            for block in re.findall(
                r"^```\w*\n(.*?)^```", text.replace("\\\n", ""), re.MULTILINE | re.DOTALL
            ):
                for line in block.split("\n"):
                    command = re.match(r"\s*(?:\$ )?(?:build/bin/)?(fusion-\w+)\s(.*)", line.split("#")[0])
                    if not command:
                        continue
                    seen += 1
                    given = options_in(command[2])
                    self.assertEqual(set(), given - known[command[1]], f"{page}: {line}")
        self.assertGreater(seen, 15)

    def test_variables_are_documented_and_read(self):
        project = text_of(*ROOMS)
        read = set(re.findall(r'"(FUSION_[A-Z_]+)"', project))
        self.assertGreater(len(read), 10)
        named = set(re.findall(r"(?<!-D)\bFUSION_[A-Z_]+\b", "".join(pages().values())))
        self.assertEqual(set(), read - named, "these variables are read and in no page")
        other = project + text_of("scripts", "test")
        gone = named - set(re.findall(r"\bFUSION_[A-Z_]+\b", other))
        self.assertEqual(set(), gone, "these variables are in a page and nobody reads them")

    def test_names_between_backticks_are_there(self):
        """Files, ops, passes, and members of classes. NAME and * stand for anything."""
        project = text_of(*ROOMS, "test")
        ops = set(
            re.findall(
                r'<"(\w+)"', "".join(file.read_text() for file in (SOURCE / "ir/dialect").glob("*.td"))
            )
        )
        ops |= set(re.findall(r'"nn\.(\w+)"', project))  # attributes
        options = known_options()
        words = set(re.findall(r"\w+", project))
        wrong, seen = [], {"file": 0, "op": 0, "pass": 0, "member": 0}

        def check(kind, page, name, there):
            seen[kind] += 1
            if not there:
                wrong.append(f"{page}: there is no {kind} {name}")

        for page, text in pages().items():
            prose = re.sub(r"^ *(```+).*?^ *\1$", "", text, flags=re.MULTILINE | re.DOTALL)
            for code in re.findall(r"`([^`\n]+)`", prose):
                if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./*-]*", code):
                    check("file", page, code, any(SOURCE.glob(code.rstrip("/").replace("NAME", "*"))))
                elif match := re.fullmatch(r"nn\.(\w+)", code):
                    check("op", page, code, match[1] in ops)
                elif re.fullmatch(r"nn-[a-z][a-z-]+", code):
                    check("pass", page, code, f"--{code}" in options)
                elif match := re.fullmatch(r"([A-Z]\w+)::(\w+)(?:\(\))?", code):
                    check("member", page, code, {match[1], match[2]} <= words)
        self.assertEqual([], wrong)
        for kind, count in seen.items():
            self.assertGreater(count, 3, kind)

    def test_tests_that_hold_attacks_are_there(self):
        """GoogleTests as Suite.Name or Suite.*, the tools' own, their methods, and graphs of passes."""
        page = pages()["docs/attacks.md"]
        units = set(re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", text_of("test"), re.MULTILINE))
        suites = {suite for suite, _ in units}
        registered = set(re.findall(r"\w+", (SOURCE / "test/tools/CMakeLists.txt").read_text()))
        scripts = text_of("test/tools")
        wrong, seen = [], 0
        for code in re.findall(r"`([^`\n]+)`", page):
            if match := re.fullmatch(r"([A-Z]\w+)\.(\w+|\*)", code):
                there = match[1] in suites and (match[2] == "*" or match.groups() in units)
            elif match := re.fullmatch(r"tools-([a-z_]+)", code):
                there = match[1] in registered and (SOURCE / f"test/tools/{match[1]}_test.py").exists()
            elif re.fullmatch(r"test_\w+", code):
                there = f"def {code}(" in scripts
            elif re.fullmatch(r"[\w-]+\.mlir", code):
                there = (SOURCE / "test/passes" / code).exists()
            else:
                continue
            seen += 1
            if not there:
                wrong.append(code)
        self.assertEqual([], wrong)
        self.assertGreater(seen, 80)

    def test_every_onnx_op_is_in_one_row_of_the_table(self):
        """What the importer claims and refuses is what the page says, op by op."""
        table = pages()["docs/graphs.md"].split("## Every op")[1].split("\n## ")[0]
        rows = re.findall(r"^\| ([^|]+) \| (.*) \|$", table, re.MULTILINE)
        beside = re.compile(r"`[^`]*`|\([^)]*\)|;.*")
        ops = {kind: re.findall(r"\b[A-Z][A-Za-z0-9]+\b", beside.sub("", row)) for kind, row in rows}
        named = sum(ops.values(), [])
        self.assertEqual(sorted(named), sorted(set(named)), "an op is in two rows")
        refused = sum((row for kind, row in ops.items() if kind.startswith("refused")), [])
        test = (SOURCE / "test/import/NodeTest.cpp").read_text()
        sets = [re.findall(r'"(\w+)"', test.split(f"{name} = {{")[1].split("};")[0]) for name in ("claimed", "refused")]
        for op in sets[0]:
            self.assertIn(op, named)
            self.assertNotIn(op, refused)
        for op in sets[1]:
            self.assertIn(op, refused)
        try:
            from onnx import defs  # Debian's test data alone is a module without it
        except ImportError:
            return
        schemas = defs.get_all_schemas_with_history()
        standard = {schema.name for schema in schemas if schema.domain == "" and schema.since_version <= 27}
        self.assertEqual(sorted(standard - set(named)), [])

    def test_the_c_header_says_every_option(self):
        setters = (SOURCE / "api/c/Options.cpp").read_text()
        names = set(re.findall(r'^      \{"([\w-]+)",', setters, re.MULTILINE))
        self.assertGreater(len(names), 10)
        self.assertIn("kv-capacity", names)
        header = (SOURCE / "api/c/fusion.h").read_text()
        listed = re.search(r"Sets one by name;(.*?)\*/", header, re.DOTALL)[1]
        entries = re.findall(r"^ \*(?: +when .*?  )? +(?:- )?([a-z][a-z-]+)(?:: |  )", listed, re.MULTILINE)
        self.assertEqual(names, set(entries))


class Fusions(unittest.TestCase):
    def test_each_has_a_section_and_a_graph(self):
        names, text = fusions(), (SOURCE / "docs/fusions.md").read_text()
        self.assertGreater(len(names), 20)
        self.assertEqual(names, set(re.findall(r"^### (\w+)$", text, re.MULTILINE)))
        self.assertEqual(names, set(re.findall(r"^<!-- fusion: (\w+) -->$", text, re.MULTILINE)))
        self.assertEqual(names, {path.stem for path in (SOURCE / "docs/fusions").glob("*.mlir")})

    def test_each_fires_on_its_graph(self):
        for graph in sorted((SOURCE / "docs/fusions").glob("*.mlir")):
            name = graph.stem
            with self.subTest(name):
                first = graph.read_text().split("\n", 1)[0].split()
                self.assertEqual(first[:3], ["//", "fusion-opt", graph.name])
                single = f"--fuse-{name.replace('_', '-')}"
                self.assertTrue(
                    single in first or any(option.startswith(f"--require={name}=") for option in first), first
                )
                done = subprocess.run(
                    [str(BINARIES / "fusion-opt"), graph.name, *first[3:], "--emit=dot", "--quiet"],
                    cwd=graph.parent,
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f'label="{name}: ', done.stdout)


class Kernels(unittest.TestCase):
    def test_the_kernel_that_is_shown_is_emitted(self):
        page = (SOURCE / "docs/kernel-guide.md").read_text()
        shown = re.search(r"^```cuda\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
        done = subprocess.run(
            [
                str(BINARIES / "fusion-opt"),
                "docs/fusions/add_norm.mlir",
                "--fuse",
                "--profit=model",
                "--emit=cuda",
                "--quiet",
            ],
            cwd=SOURCE,
            capture_output=True,
            text=True,
            check=True,
        )
        for part in shown.split("…\n"):
            kernel = part.replace('#include "row.cuh"\n', "")  # one file has it in place
            for line in kernel.split("\n"):
                self.assertIn(line, done.stdout)


class Commands(unittest.TestCase):
    def test_commands_of_pages_run(self):
        """Blocks that are marked as sh, of pages whose commands need no installation and no GPU. The page on
        editing kernels has a test of its own: tools-kernels."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fusion-docs-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        for each in ("examples", "docs", "codegen", "scripts"):
            (folder / each).symlink_to(SOURCE / each)
        (folder / "build").mkdir()
        (folder / "build/bin").symlink_to(BINARIES)
        environment = dict(os.environ, PATH=f"{BINARIES}:{os.environ['PATH']}")
        for page in ("index", "fusions", "kernel-guide", "faq"):
            text = (SOURCE / f"docs/{page}.md").read_text()
            script = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
            with self.subTest(page):
                self.assertTrue(script)
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", script],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=240,
                )
                self.assertEqual(done.returncode, 0, script + done.stdout[-2000:] + done.stderr[-2000:])


if __name__ == "__main__":
    unittest.main()
