"""Reference pages that are made of what the project says itself: options, ops, Python's names."""

import json
import re
import subprocess

import links

TOOLS = ("fusion-opt", "fusion-run", "fusion-compile", "fusion-cache", "fusion-fuzz")
# In what --help prints: a heading, an option, a value that it takes, and what goes on below them.
HEADING = re.compile(r"^(\S.*):$")
OPTION = re.compile(r"^  (-\S*(?: <\w+>| [A-Z]+)?)(?: +- +| {2,}|$)(.*)$")
VALUE = re.compile(r"^    =?([\w-]+)(?: +- +| {2,})(\S.*)$")
MORE = re.compile(r"^ {8,}(\S.*)$")


def help_of(tool):
    """Overview, usage and {heading: [[option, text]]} of what `tool --help` prints."""
    text = subprocess.run([str(tool), "--help"], check=True, capture_output=True, text=True).stdout
    overview = re.search(rf"^(?:OVERVIEW: )?{tool.name}: (.*)$", text, re.MULTILINE)[1]
    usage = re.search(r"^usage: (.*)$", text, re.MULTILINE | re.IGNORECASE)[1]
    sections = {}
    for line in text.split("\n"):
        if match := HEADING.match(line):
            options = sections[match[1]] = []
        elif match := OPTION.match(line):
            options.append([match[1], match[2]])
        elif match := VALUE.match(line):
            options[-1][1] = f"{options[-1][1].rstrip(':')}; `{match[1]}`: {match[2]}"
        elif sections and options and (match := MORE.match(line)):
            options[-1][1] = f"{options[-1][1]} {match[1]}".strip()
    return overview, usage, {heading: options for heading, options in sections.items() if options}


def cell(text):
    """Text of a table's cell; what stands between backticks is code already."""
    plain = {"|": "\\|", "<": "&lt;", "*": "\\*", "_": "\\_"}
    return re.sub(r"(`[^`]*`)|([|<*_])", lambda match: match[1] or plain[match[2]], text)


def flags(binaries):
    page = [
        "# Options of the tools",
        "Made of what `--help` of each tool prints.",
        "All tools exit with 0: yes, 1: no, 2: bad input or usage, 3: the machine lacks something.",
    ]
    for tool in TOOLS:
        what, usage, sections = help_of(binaries / tool)
        page += [f"## {tool}", f"{what[0].upper()}{what[1:]}.", f"```\n{usage}\n```"]
        for heading, options in sections.items():
            rows = [f"| `{option}` | {cell(text)} |" for option, text in options]
            page.append("\n".join([f"| {heading.lower()} | |", "|---|---|", *rows]))
    return "\n\n".join(page) + "\n"


def ops(source, include):
    """The dialects by mlir-tblgen, with the summaries as they are written."""

    def run(*command):
        command += ("-I", str(source), "-I", str(include))
        return subprocess.run(command, cwd=source, check=True, capture_output=True, text=True).stdout

    page = [
        "# Ops",
        "The dialects [`nn`](#nn), which graphs are imported into, and [`fusion`](#fusion), whose "
        "groups become kernels. Made of the definitions in `ir/dialect/*.td`.",
    ]
    for files, dialect in ((("NNOps", "NNLoop", "NNSample", "NNScatter"), "nn"), (("FusionOps",), "fusion")):
        for file in files:
            path = f"ir/dialect/{file}.td"
            records = json.loads(run("llvm-tblgen-22", "-dump-json", path))
            summaries = {
                f"{dialect}.{op['opName']}": op["summary"]
                for op in (records[name] for name in records["!instanceof"]["Op"])
            }
            if file == files[0]:
                text = run("mlir-tblgen-22", "-gen-dialect-doc", f"-dialect={dialect}", path)
                text = re.sub(r"^.*?^# '\w+' Dialect$", f"## {dialect}", text, flags=re.DOTALL | re.MULTILINE)
            else:
                text = run("mlir-tblgen-22", "-gen-op-doc", path)
            page.append(tidied(text, summaries))
    return "\n\n".join(page) + "\n"


def tidied(text, summaries):
    """What mlir-tblgen prints, without what is the same for all ops."""
    text = re.sub(r"^<!--.*?-->\n|^\[TOC\]\n|^## Operations\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^### `([\w.]+)` \(.*\)\n\n_.*_$",
        lambda match: heading(match[1], summaries),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        r"^Syntax:\n\n```\noperation ::= `[\w.]+` operands attr-dict .*\n```\n", "", text, flags=re.MULTILINE
    )
    text = re.sub(r"^(Traits|Interfaces|Effects): .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^    ```mlir\n(?:    .*\n)+?    ```$",
        lambda match: re.sub(r"(?m)^    ", "", match[0]),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"^#### (\w+):$", r"**\1**", text, flags=re.MULTILINE)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    spans = links.code_spans(text)  # elsewhere brackets are indices, not links

    def bracket(match):
        return "[" if any(first <= match.start() < last for first, last in spans) else "\\["

    return re.sub(r"\[", bracket, text)


def heading(op, summaries):
    summary = re.sub(r"(`[^`]*`)|([*_|])", lambda match: match[1] or "\\" + match[2], summaries[op])
    return f"### {op}\n\n{summary}"


def python(package):
    """A page for mkdocstrings: every public name."""
    source = (package / "__init__.py").read_text()
    names = re.findall(r'"(\w+)"', re.search(r"__all__ = \[(.*?)\]", source, re.DOTALL)[1])
    page = [
        "# Python",
        "The module `fusion`; [how it is used](../python.md). Made of its docstrings and types.",
        '```python\nprogram = fusion.compile("model.onnx")\noutputs = program(input_ids=ids)\n```',
    ]
    for name in sorted(names, key=lambda name: (name[0].isupper(), name != "compile", name)):
        page.append(f"::: fusion.{name}")
    return "\n\n".join(page) + "\n"
