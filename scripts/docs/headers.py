"""Markdown references of the public headers, read by Doxygen."""

import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

SETTINGS = """
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
AUTOLINK_SUPPORT = NO
QUIET = YES
WARN_IF_UNDOCUMENTED = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = FUSION_API= __cplusplus
"""
# C's comments as those that Doxygen reads: before a declaration, and after one on its line.
C_EDITS = (r"s,.*clang-format.*,,", r"s,^/[*] ([^-]),/** \1,", r"s|([;0-9,]) +/[*] |\1 /**< |")
C_FILTER = f"""FILTER_PATTERNS = "*.h=sed -E '{'; '.join(C_EDITS)}'" """
SHOWN = ("variable", "function", "typedef", "enum")


def public_headers(source):
    """The installed C++ headers and what they include, as paths in the project, the interfaces first."""
    installed = (source / "cmake/FusionInstall.cmake").read_text()
    found = re.findall(r"\bapi/\w+\.h", re.search(r"install\(FILES (api/.*?) DESTINATION", installed)[1])
    found.sort(key=lambda path: path != "api/Fusion.h")
    for path in found:  # grows
        for include in re.findall(r'^#include "(.+)"', (source / path).read_text(), re.MULTILINE):
            if include not in found:
                found.append(include)
    return found


def parsed(files, settings):
    """Doxygen's descriptions of what the files declare: {id: compound}."""
    with tempfile.TemporaryDirectory() as folder:
        quoted = " ".join(f'"{file}"' for file in files)
        text = f"{SETTINGS}\n{settings}\nINPUT = {quoted}\nOUTPUT_DIRECTORY = {folder}\n"
        # Elsewhere than in the project, whose folder it would take from the paths.
        subprocess.run(["doxygen", "-"], cwd=folder, input=text, text=True, check=True, capture_output=True)
        roots = [ElementTree.parse(file).getroot() for file in pathlib.Path(folder).glob("xml/*.xml")]
    return {each.get("id"): each for root in roots for each in root.iter("compounddef")}


def prose(element):
    """A description as Markdown."""
    if element is None:
        return ""
    if element.tag == "computeroutput":
        return f"`{''.join(element.itertext())}`"
    if element.tag in ("verbatim", "preformatted", "programlisting"):
        return "\n\n```\n" + "".join(element.itertext()).strip("\n") + "\n```\n\n"
    inner = escaped(element.text) + "".join(prose(child) + escaped(child.tail) for child in element)
    if element.tag == "listitem":
        return "\n- " + " ".join(inner.split())
    if element.tag in ("para", "itemizedlist"):
        return f"\n\n{inner.strip(' ')}\n\n"
    return inner


def escaped(text):
    """Text that means itself in Markdown; what stands between backticks is code already."""
    return re.sub(r"(`[^`]*`)|([*_<\[])", lambda match: match[1] or "\\" + match[2], text or "")


def described(member):
    parts = (prose(member.find(tag)) for tag in ("briefdescription", "detaileddescription"))
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(part.strip() for part in parts)).strip()


def flat(element):
    text = "" if element is None else " ".join("".join(element.itertext()).split())
    return re.sub(r"< ", "<", re.sub(r" >", ">", text)).replace(" *", " *").replace(" & ", " &")


def declaration(member, language):
    """The declaration as one reads it in the header."""
    kind, name = member.get("kind"), member.findtext("name")
    if kind == "typedef":
        if language == "c":
            gap = "" if flat(member.find("type")).endswith("(*") else " "
            return f"typedef {flat(member.find('type'))}{gap}{name}{flat(member.find('argsstring'))};"
        return f"using {name} = {flat(member.find('type'))};"
    before = "static " if member.get("static") == "yes" else ""
    type = flat(member.find("type"))
    type += "" if not type or type.endswith(("*", "&")) else " "
    if kind == "variable":
        value = flat(member.find("initializer"))
        return f"{before}{type}{name}{flat(member.find('argsstring'))}{' ' * bool(value)}{value};"
    explicit = "explicit " if member.get("explicit") == "yes" else ""
    template = ""
    if (parameters := member.find("templateparamlist")) is not None:
        template = f"template <{', '.join(flat(each) for each in parameters)}>\n"
    return f"{template}{before}{explicit}{type}{name}{flat(member.find('argsstring'))};"


def broken(text, width=96):
    """A long declaration, broken after commas."""
    lines = text.split("\n")
    while len(lines[-1]) > width and (cut := lines[-1].rfind(", ", 0, width)) > 0:
        lines[-1:] = [lines[-1][: cut + 1], "    " + lines[-1][cut + 2 :]]
    return "\n".join(lines)


def members_of(compound):
    found = [each for each in compound.iter("memberdef") if each.get("kind") in SHOWN]
    return [each for each in found if each.get("prot", "public") == "public"]


def line_of(element):
    return int(element.find("location").get("line"))


def enumeration(member):
    lines = []
    for value in member.iter("enumvalue"):
        text = " ".join(described(value).split())
        name = (
            value.findtext("name")
            + " " * bool(value.findtext("initializer"))
            + flat(value.find("initializer"))
        )
        lines.append(f"- `{name}`" + (f": {text}" if text else ""))
    return "\n".join(lines)


def printed(member, language):
    text = described(member)
    if member.get("kind") == "variable":
        return f"- `{declaration(member, language)[:-1]}`" + (": " + " ".join(text.split()) if text else "")
    if member.get("kind") == "enum":
        parts = [f"`enum {member.findtext('name')}`", text, enumeration(member)]
    else:
        parts = [f"```{language}\n{broken(declaration(member, language))}\n```", text]
    return "\n\n".join(part for part in parts if part)


def whole(compound, language):
    """A class with its members, in the order of the header."""
    name = compound.findtext("compoundname")
    short = re.sub(r"^fusion::", "", name).replace("< ", "<").replace(" >", ">")
    members = [printed(member, language) for member in sorted(members_of(compound), key=line_of)]
    return paragraphs([f"### {compound.get('kind')} {short}", described(compound), *members])


def paragraphs(parts):
    """Joined by empty lines, but for what is a list."""
    text = "\n\n".join(part for part in parts if part)
    return re.sub(r"(?m)^(- .*)\n\n(?=- )", r"\1\n", text)


def is_repeated(member, compounds):
    """Whether it is C's second name of a struct or an enum."""
    type = flat(member.find("type"))
    if member.get("kind") != "typedef" or type not in (
        f"{tag} {member.findtext('name')}" for tag in ("struct", "enum")
    ):
        return False
    names = (each.findtext("compoundname") for each in compounds.values())
    return type.startswith("enum") or member.findtext("name") in names


def reference(title, introduction, source, paths, language):
    """A page: a section for each header, with its classes, functions and types in the header's order."""
    compounds = parsed([source / path for path in paths], C_FILTER if language == "c" else "")
    page = [f"# {title}", introduction]
    for path in paths:
        file = str((source / path).resolve())
        declared = []
        for compound in compounds.values():
            if compound.get("kind") in ("class", "struct"):
                place = compound.find("location")
                if place.get("file") == file and compound.get("prot", "public") == "public":
                    if "operator" not in compound.findtext("compoundname"):
                        declared.append((line_of(compound), whole(compound, language)))
            elif compound.get("kind") in ("namespace", "file"):
                for member in members_of(compound):
                    if member.find("location").get("file") == file and not is_repeated(member, compounds):
                        declared.append((line_of(member), printed(member, language)))
        text = (source / path).read_text()
        for match in re.finditer(r"^/\* -+ (.+?) -+ \*/$", text, re.MULTILINE):
            declared.append((text.count("\n", 0, match.start()) + 1, f"### {match[1]}"))
        seen, parts = set(), []
        for _, part in sorted(declared):
            if part not in seen:
                parts.append(part)
            seen.add(part)
        page += [f"## {path}", heading_comment(text), *parts]
    return paragraphs(page) + "\n"


def heading_comment(text):
    """What a header says first, about all of itself."""
    if text.startswith("/*"):
        lines = text[2 : text.index("*/")].split("\n")
        lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in lines]
    else:
        lines = []
        for line in text.split("\n"):
            if not line.startswith("//"):
                break
            lines.append(re.sub(r"^// ?", "", line))
    # What is indented is code.
    return "\n".join(
        "  " + line if line.startswith("  ") else escaped(line.strip()) for line in lines
    ).strip()
