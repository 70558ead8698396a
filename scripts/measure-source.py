#!/usr/bin/env python3
"""Measures the source tree: names of types, import circles, struct fields, lengths, lines of each crate.

    scripts/measure-source.py             a table
    scripts/measure-source.py --list KIND one-word | shared | circle | fields | long
    scripts/measure-source.py --check     what breaks the rules of names and imports; fails if anything does

Method: comments, strings and test code (`tests.rs`, `tests/`, `testing`, items under `#[cfg(test)]`) are taken out by a scanner of its
own, not by a compiler. A type is a struct, enum, trait or union. A name has as many words as CamelCase shows. An import is a path
that begins with `crate::` or `super::`, followed through the re-exports of the modules on its way. A circle is a strongly connected
component of modules: of the top level of a crate, or of files. Arrows from a module to its own children, and back, are left out.
"""
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

CRATES = ["model", "durable-fs", "chassis", "gear-spec", "engine", "ingest", "query", "iceberg", "mixer", "rack", "cli"]
ROOT = Path(__file__).resolve().parent.parent
# Types of one word: the specification's nouns, and the names that every Rust crate has.
NOUNS = set(
    "Attributes Clock Cluster Engine Entropy Error Gear Heartbeat Lane Message Mixer Passport Scenario Settings Span Spec Table"
    " Timestamp Token Wire".split()
)
WORDS = re.compile(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])")


def is_test(path: Path) -> bool:
    """Whether a file is test code only."""
    names = set(path.with_suffix("").parts)
    return bool(names & {"tests", "testing"})


def blank(text: str) -> str:
    """Source with comments and the contents of strings as spaces; lines stay where they are."""
    pattern = re.compile(
        r"""//[^\n]*|/\*.*?\*/|b?r(?P<h>\#*)".*?"(?P=h)|b?"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'""", re.S
    )
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def end_of_block(text: str, start: int) -> int:
    """Behind the brace that closes the first one after start; or behind the first semicolon before any."""
    depth = 0
    for at in range(start, len(text)):
        letter = text[at]
        if letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return at + 1
        elif letter == ";" and depth == 0:
            return at + 1
    return len(text)


def end_of_field(text: str, start: int) -> int:
    """The end of a field of a struct or of its value: its comma, or the bracket behind it."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "({[<") - (text[at] in ")}]>" and text[at - 1] != "-")
        if depth < 0 or depth == 0 and text[at] == ",":
            return at
    return len(text)


def without_tests(text: str) -> str:
    """Blanked source without items under #[cfg(test)]."""
    while found := re.search(r"#\[cfg\(test\)\]", text):
        field = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?[a-z_]\w*\s*:(?!:)").match(text, found.end())
        end = end_of_field(text, field.end()) if field else end_of_block(text, found.end())
        text = text[: found.start()] + re.sub(r"[^\n]", " ", text[found.start() : end]) + text[end:]
    return text


class Source:
    """A file of a crate."""

    def __init__(self, crate: str, path: Path):
        self.crate, self.path = crate, path
        whole = path.read_text()
        self.code = without_tests(blank(whole))
        kept = zip(whole.splitlines(), blank(whole).splitlines(), self.code.splitlines())
        # A line that only the removal of tests has emptied is a line of tests.
        self.lines = sum(1 for _, before, after in kept if not before.strip() or after.strip())
        parts = list(path.relative_to(ROOT / crate / "src").with_suffix("").parts)
        if parts[-1] in ("mod", "lib", "main"):
            parts.pop()
        self.module = tuple(parts)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


def sources() -> list[Source]:
    found = []
    for crate in CRATES:
        for path in sorted((ROOT / crate / "src").rglob("*.rs")):
            if not is_test(path.relative_to(ROOT / crate)):
                found.append(Source(crate, path))
    return found


def types(files: list[Source]) -> list[tuple[str, Source]]:
    pattern = re.compile(r"\b(?:struct|enum|trait|union)\s+([A-Z]\w*)")
    return [(name, file) for file in files for name in pattern.findall(file.code)]


def struct_fields(files: list[Source]) -> list[tuple[int, str, Source]]:
    """Fields of each struct with named ones."""
    found = []
    for file in files:
        for match in re.finditer(r"\bstruct\s+(\w+)[^;{(]*\{", file.code):
            body = file.code[match.end() : end_of_block(file.code, match.end() - 1) - 1]
            depth, flat = 0, []
            for letter in body:
                depth += letter in "({[<"
                depth -= letter in ")}]>"
                flat.append(letter if depth == 0 else " ")
            count = len(re.findall(r"\b[a-z_]\w*\s*:(?!:)", "".join(flat)))
            found.append((count, match.group(1), file))
    return found


def functions(files: list[Source]) -> list[tuple[int, str, Source]]:
    found = []
    for file in files:
        for match in re.finditer(r"\bfn\s+(\w+)", file.code):
            end = end_of_block(file.code, match.end())
            if file.code[end - 1] == "}":
                found.append((file.code.count("\n", match.start(), end) + 1, match.group(1), file))
    return found


def expand(tree: str) -> list[str]:
    """The paths of a use tree."""
    tree = tree.strip()
    at = tree.find("{")
    if at < 0:
        return [re.sub(r"\s+as\s+\w+", "", tree)]
    head, inner, items, depth, item = tree[:at], tree[at + 1 : tree.rfind("}")], [], 0, ""
    for letter in inner + ",":
        if letter == "," and depth == 0:
            items.append(item)
            item = ""
            continue
        depth += letter == "{"
        depth -= letter == "}"
        item += letter
    return [head + path for item in items if item.strip() for path in expand(item)]


class Imports:
    """Who imports whom within a crate."""

    def __init__(self, files: list[Source]):
        self.modules = {file.module: file for file in files}
        self.exports: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = defaultdict(dict)
        for file in files:
            for tree in re.findall(r"\bpub(?:\([\w:\s]+\))?\s+use\s+([^;]+);", file.code):
                for path in expand(tree):
                    target = self.absolute(file, path.strip())
                    if target:
                        self.exports[file.module][target[-1]] = target
        self.arrows: dict[tuple[str, ...], set[tuple[str, ...]]] = {module: set() for module in self.modules}
        for file in files:
            paths = []
            for tree in re.findall(r"\buse\s+([^;]+);", file.code):
                paths += expand(tree)
            paths += re.findall(r"\b(?:crate|super)(?:::\w+)+", re.sub(r"\buse\s+[^;]+;", "", file.code))
            for path in paths:
                target = self.module_of(self.absolute(file, path.strip()))
                if target is not None and target != file.module:
                    self.arrows[file.module].add(target)

    def absolute(self, file: Source, path: str) -> tuple[str, ...] | None:
        """A path from the root of the crate; none where it leads elsewhere."""
        parts = [part.strip() for part in path.split("::")]
        base = list(file.module)
        if parts[0] == "crate":
            return tuple(parts[1:])
        if parts[0] == "self":
            return tuple(base + parts[1:])
        if parts[0] == "super":
            while parts and parts[0] == "super":
                parts.pop(0)
                base = base[:-1]
            return tuple(base + parts)
        if tuple(base + parts[:1]) in self.modules:
            return tuple(base + parts)
        return None

    def module_of(self, path: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The module in which what a path names is defined."""
        for _ in range(8):
            if path is None:
                return None
            at = len(path)
            while at > 0 and path[:at] not in self.modules:
                at -= 1
            rest = path[at:]
            exported = self.exports.get(path[:at], {}).get(rest[0]) if rest else None
            if exported is None or exported == path:
                return path[:at]
            path = exported + rest[1:]
        return path[:at]

    def circles(self, key) -> list[list]:
        """Strongly connected components of more than one node, the largest first."""
        graph: dict = defaultdict(set)
        for module, targets in self.arrows.items():
            for target in targets:
                a, b = key(module), key(target)
                related = module[: len(target)] == target or target[: len(module)] == module
                if a != b and not related and () not in (a, b):
                    graph[a].add(b)
        return strongly_connected(graph)


def strongly_connected(graph: dict) -> list[list]:
    index, low, stack, found, counter = {}, {}, [], [], [0]
    sys.setrecursionlimit(10_000)

    def visit(node):
        index[node] = low[node] = counter[0]
        counter[0] += 1
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == node:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    for node in list(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def quantiles(values: list[int]) -> str:
    ordered = sorted(values)
    at = lambda part: ordered[min(len(ordered) - 1, int(len(ordered) * part))]
    return f"{statistics.median(ordered):.0f} / {at(0.9)} / {at(0.99)} / {ordered[-1]}"


def broken_rules(files: list[Source]) -> list[str]:
    """What breaks the rules of names and imports."""
    found, seen = [], {}
    for name, file in types(files):
        if len(WORDS.findall(name)) == 1 and name not in NOUNS:
            found.append(f"{file.name}: the type {name} has one word; say in two what it is")
        other = seen.setdefault((file.crate, name), file)
        if other is not file:
            found.append(f"{file.name}: a type of {other.name} is called {name}, too")
    for crate in CRATES:
        circles = Imports([file for file in files if file.crate == crate]).circles(lambda module: module[:1])
        for circle in circles:
            found.append(f"{crate}: modules import each other in a circle: {', '.join('::'.join(node) for node in circle)}")
    return found


def main() -> None:
    files = sources()
    if sys.argv[1:] == ["--check"]:
        found = broken_rules(files)
        print("\n".join(found))
        sys.exit(bool(found))
    all_types, wanted = types(files), sys.argv[2] if sys.argv[1:2] == ["--list"] and len(sys.argv) > 2 else None
    by_name = defaultdict(list)
    for name, file in all_types:
        by_name[name].append(file)
    one_word = [(name, file) for name, file in all_types if len(WORDS.findall(name)) == 1]
    shared = [(name, file) for name, file in all_types if len(by_name[name]) > 1]
    in_crate = [name for name, file in shared if sum(other.crate == file.crate for other in by_name[name]) > 1]
    if wanted in ("one-word", "shared"):
        for name, file in sorted({"one-word": one_word, "shared": shared}[wanted], key=lambda pair: pair[0]):
            print(name, file.name)
        return
    fields, lengths = struct_fields(files), functions(files)
    if wanted == "fields":
        for count, name, file in sorted(fields, key=lambda row: -row[0]):
            if count > 12:
                print(count, name, file.name)
        return
    if wanted == "long":
        for count, name, file in sorted(lengths, key=lambda row: -row[0])[:40]:
            print(count, name, file.name)
        return
    print(f"{'crate':9} {'files':>5} {'lines':>7} {'types':>6} {'one word':>9} {'modules in a circle':>20} {'files in circles':>17}")
    for crate in CRATES:
        own = [file for file in files if file.crate == crate]
        imports = Imports(own)
        modules, each = imports.circles(lambda module: module[:1]), imports.circles(lambda module: module)
        if wanted == "circle":
            for circle in modules:
                print(crate, "modules:", ", ".join("::".join(node) for node in circle))
            for circle in each:
                print(crate, "files:", ", ".join("::".join(node) for node in circle))
            continue
        named = [name for name, file in all_types if file.crate == crate]
        short = sum(file.crate == crate for _, file in one_word)
        largest = len(modules[0]) if modules else 0
        print(
            f"{crate:9} {len(own):5} {sum(file.lines for file in own):7} {len(named):6} {short / max(len(named), 1):9.1%}"
            f" {largest:20} {sum(map(len, each)):17}"
        )
    if wanted == "circle":
        return
    total = len(all_types)
    print(f"\nnon-test lines                {sum(file.lines for file in files)}")
    print(f"types                         {total}")
    print(f"  of one word                 {len(one_word) / total:.1%}")
    print(f"  that share their name       {len(shared) / total:.1%} (within one crate {len(in_crate) / total:.1%})")
    print(f"structs over 12 fields        {sum(count > 12 for count, _, _ in fields)}, most {max(fields)[0]}")
    print(f"lines of a file               {quantiles([file.lines for file in files])} (median / p90 / p99 / most)")
    print(f"lines of a function           {quantiles([count for count, _, _ in lengths])} of {len(lengths)}")


if __name__ == "__main__":
    main()
