"""Finds sentences that a reader has to read twice, in docstrings, messages and pages, and links to missing files.

No program can tell good English from bad. This one knows the patterns that the repository once had too many of. They
are docstrings that begin with a relative clause, or name a function's result without a verb, and "input -> output" in
place of a sentence. Others are passive riddles, phrases that nobody speaks, and sentences of over 30 words.

    python docs/check_words.py                           # the whole repository; exit code 1 if anything is found
    python docs/check_words.py src/segmeter/data         # one room
    python docs/check_words.py --counts                  # a number for each file, the worst first
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 30  # words in a sentence
ROOT = Path(__file__).resolve().parent.parent
CHECKED = [
    "src",
    "scripts",
    "docs",
    "benchmarks",
    "packaging",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
]
NOT_OURS = {"_build", "api", "decisions", "metric", "results"}  # folders of docs and benchmarks that programs write

OPENING = re.compile(r"(What|Of|That|Whose|One that|Those that)\b(?!.*\?)")
NO_VERB = re.compile(r"(The|An?|Whether|Why)\b")  # begins a function's docstring that names its result and does nothing
RIDDLES = re.compile(
    r"\b(?:(?:is|are|was|were|be|been) (?:said|given back)|(?:is|are) known of|as\s+such|be\s+had|for\s+ever"
    r"|counts? in no|go(?:es|ing)? on (?:from|with(?! resume=))|stands? alone|shar(?:e|es|ed|ing) out)\b",
    re.IGNORECASE,
)
SECTION = re.compile(
    r"\n[ \t]*(?:References|Examples)\n[ \t]*-{3,}\n.*?(?=\n[ \t]*[A-Z][a-z ]+\n[ \t]*-{3,}\n|\Z)", re.DOTALL
)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)(?:#[^)\s]*)?\)")
END_OF_SENTENCE = re.compile(r"(?<=[.!?:])[\"')\]*_]*\s+(?=[\"'(\[`*_]*[A-Z0-9`>])|(?<=[.!?])[\"')\]*_]+\s+(?=[A-Z])")

Finding = tuple[int, str]  # line, what is found


def sentences(lines: list[str], first_line: int) -> Iterator[tuple[int, str]]:
    """Split prose into sentences, each with the line of its paragraph. Code, headings and underlines are left out."""
    paragraph: list[str] = []
    start = first_line
    fenced = in_example = False
    for number, line in enumerate([*lines, ""], first_line):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced
            stripped = ""
        if not stripped:
            in_example = False
        in_example = in_example or stripped.startswith(">>>")
        ends = not stripped or fenced or in_example or stripped.startswith("#") or set(stripped) <= set("-=|: ")
        starts_item = re.match(r"([*+-]|\d+\.|\|) ", stripped) or re.match(r"\w+(, \w+)* : ", stripped)
        if (ends or starts_item) and paragraph:
            for sentence in END_OF_SENTENCE.split(" ".join(paragraph)):
                yield start, sentence.strip()
            paragraph = []
        if ends:
            continue
        if not paragraph:
            start = number
        if stripped.startswith("|"):
            for cell in stripped.strip("|").split("|"):
                for sentence in END_OF_SENTENCE.split(cell):
                    yield number, sentence.strip()
        else:
            paragraph.append(stripped)


def count_words(sentence: str) -> int:
    """Count words. Code in backticks is one word, and so is the address of a link."""
    plain = re.sub(r"``?[^`]*``?", "code", sentence)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)
    return sum(any(letter.isalnum() for letter in word) for word in plain.split())


def check_prose(lines: list[str], first_line: int) -> Iterator[Finding]:
    """Find long sentences and riddles."""
    for number, sentence in sentences(lines, first_line):
        words = count_words(sentence)
        if words > LONGEST:
            yield number, f"{words} words in a sentence: {sentence[:90]}"
        if riddle := RIDDLES.search(sentence):
            yield number, f'"{riddle.group()}": {sentence[:90]}'


def check_python(path: Path) -> Iterator[Finding]:
    """Find bad patterns in the docstrings of a module, and riddles in its other strings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not (text := ast.get_docstring(node)):
            continue
        is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)  # read like a noun
        if NO_VERB.match(text) and not is_property:
            yield node.lineno, f"no verb: {text}".split("\n")[0]
    docstrings = set()  # of modules, classes and functions, and the strings below the fields of a class
    for first in ast.walk(tree):
        if not (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        ):
            continue
        docstrings.add(first.value)
        text = first.value.value
        summary = text.strip().split("\n\n")[0].replace("\n", " ")
        if OPENING.match(summary):
            yield first.lineno, f'begins with "{summary.split()[0]}": {summary[:90]}'
        if " -> " in summary.split("\n")[0]:
            yield first.lineno, f'" -> " instead of a sentence: {summary[:90]}'
        prose = SECTION.sub("", text)
        yield from check_prose(indented_code_out(prose.split("\n")), first.lineno)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            for riddle in RIDDLES.finditer(node.value):
                yield node.lineno, f'"{riddle.group()}" in a message: {node.value[:90]!r}'


def indented_code_out(lines: list[str]) -> list[str]:
    """Blank out code: blocks after a blank line that stand four spaces deeper than the text before them."""
    kept: list[str] = []
    depth, in_code = 0, False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() and kept and not kept[-1].strip():
            in_code = indent >= depth + 4 and any(map(str.strip, kept))
        if line.strip() and not in_code:
            depth = indent
        kept.append("" if in_code else line)
    return kept


def check_page(path: Path) -> Iterator[Finding]:
    """Find bad patterns in a page of Markdown or reStructuredText, and links to files that do not exist."""
    text = path.read_text(encoding="utf-8")
    yield from check_prose(indented_code_out(text.split("\n")), 1)
    for link in LINK.finditer(text):
        if not (path.parent / link[1]).exists():
            yield text.count("\n", 0, link.start()) + 1, f"no such file: {link[1]}"


def files(paths: list[Path]) -> Iterator[Path]:
    """Every module and page under the paths that people write."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            inside = file.relative_to(ROOT).parts
            if file.suffix in {".py", ".md", ".rst"} and not NOT_OURS & set(inside[1:2]):
                yield file


def main() -> int:
    """Print the findings, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; by default the whole repository")
    parser.add_argument("--counts", action="store_true", help="a number for each file instead of each finding")
    chosen = parser.parse_args()
    paths = [path.resolve() for path in chosen.paths] or [ROOT / name for name in CHECKED]
    total, counts = 0, []
    for file in files(paths):
        found = sorted(set(check_python(file) if file.suffix == ".py" else check_page(file)))
        total += len(found)
        counts.append((len(found), file.relative_to(ROOT)))
        if not chosen.counts:
            for line, message in found:
                print(f"{file.relative_to(ROOT)}:{line}: {message}")
    if chosen.counts:
        for number, name in sorted(counts, key=lambda each: (-each[0], each[1])):
            if number:
                print(f"{number:5} {name}")
    print(f"{total} to rewrite")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
