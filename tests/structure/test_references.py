"""What text refers to is there: files, sections of pages ("docs/spec/placement.md 3.2"), rows of their tables
("docs/faults.md D6"), anchors of links, and the functions that docs/code.md walks through. Looked at is every
text of the tree but data."""

import fnmatch
import functools
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = "tests/structure/test_references.py"
DATA = ("tests/fuzz/corpus/", "examples/data/")
ROOMS = [path.name for path in sorted((ROOT / "src").iterdir()) if path.is_dir()]
FOLDERS = "bench|docs|examples|include|man|python|scripts|src|tests|trainyard-modules"

# src/run/run.c, tests/unit, python/trainyard/*.py, docs/{a,b}.md; not with a variable in it ("tests/$name.py").
PATH = re.compile(
    rf"(?<![\w./{{%$!:-])((?:{FOLDERS})/[\w./*-]*(?:\{{[\w,.-]+,[\w,.-]+\}})?[\w./*-]*)(?![\w$%{{])"
)
ROOM_FILE = re.compile(rf"(?<![\w./-])((?:{'|'.join(ROOMS)})/\w+\.[ch])\b")  # as in an include: run/chaos.h
BARE_FILE = re.compile(r"(?<![\w./<-])(\w+\.(?:h|c|cc|py))\b(?!\()")
PAGE = re.compile(r"(?<![\w./-])((?:[\w.-]+/)*[\w-]+\.md)\b(?!\s*\])")
# What may follow a page: sections and rows ("1.2, 2.5-2.7 and 6.1", "X1"), vectors, first words of a decision.
LABEL = r"(?:\d+(?:\.\d+)+|[A-Z]\d+(?:-[a-z]+)?|\d+)(?![\w.]*\w)"
LABELS = re.compile(rf"`?[ ]({LABEL}(?:(?:, | and | to |-){LABEL})*)")
VECTORS = re.compile(r"(?:, | )vectors? (\d+(?:(?:, | and | to |-)\d+)*)")
# A section without its page, in a comment of C: "(1.3)", "rules of 1.5", "3.2 step 3", and a row of one's table.
BARE_SECTION = re.compile(r"(?:\(|\b(?:of|and|what|order of) |\* )([1-9]\.[1-9]\d?)(?=[),:]|'s| (?:step|say|and)|, \w|\.? ?\*/)")
QUOTED = re.compile(r',? "([^"]+)"')
# How docs/faults.md names tests: `failure`, `faults/disk`, unit `agent`.
TEST = re.compile(r"(?:\b(unit|sim|python) )?`([\w/]+)`")
TESTS = {
    "": "e2e/{}test_{}.py",
    "python": "python/{}test_{}.py",
    "unit": "unit/{}test_{}.c",
    "sim": "sim/{}test_{}.c",
}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def tracked():
    """Names of the texts, below the root. Without git (a tarball): all files but what is built or hidden."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True)
    names = listed.stdout.splitlines()
    if listed.returncode != 0:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
        names = [name for name in names if not name.startswith((".", "build")) and "/." not in name]
    return sorted(name for name in names if not name.startswith(DATA) and (ROOT / name).is_file())


@functools.cache
def texts():
    """Name -> text, of all that is text."""
    found = {}
    for name in tracked():
        try:
            found[name] = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


@functools.cache
def bare_names():
    return {pathlib.Path(name).name for name in texts()}


@functools.cache
def flatten(text):
    """Comments and paragraphs on one line each, so that what is wrapped is found."""
    return re.sub(r"\s*\n[ \t]*(?:\*(?!/)|#(?!\w)|//)?[ \t]*", " ", text)


def prose(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


@functools.cache
def headings(page):
    return re.findall(r"^#+ (.+)$", prose(texts()[page]), re.M)


def slug(heading):
    """The anchor that a heading has on a page."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def expand(first, last):
    """X3, X4 and X5 of X3 to X5. Of sections and of numbers alone only the ends: some between may lack."""
    head, tail = re.fullmatch(r"([A-Z])(\d+)", first), re.fullmatch(r"([A-Z])(\d+)", last)
    if not head or not tail or head[1] != tail[1]:
        return [first, last]
    return [f"{head[1]}{number}" for number in range(int(head[2]), int(tail[2]) + 1)]


def labels_in(text):
    """Each label of "2.1-2.4, 6.1 and 6.3"; E1-many is one."""
    found = []
    for piece in re.split(r", | and ", text):
        ends = re.split(r" to |-(?=[A-Z]?\d)", piece)
        found += expand(*ends) if len(ends) == 2 else ends
    return found


@functools.cache
def labels_of(page):
    """What may be referred to: numbers of headings, and labels in the first cells of tables."""
    known = {match[1] for heading in headings(page) if (match := re.match(r"([\d.]*\d)[. ]", heading))}
    for cell in re.findall(r"^\| *([A-Z\d][\w. ,-]*?) *\|", texts()[page], re.M):
        known |= set(labels_in(cell))
    return known


def exists(path):
    """Whether a path names anything; {a,b} means all of them, * any, at any depth as git takes it."""
    alternatives = re.search(r"\{([^{}]*)\}", path)
    if alternatives:
        before, after = path[: alternatives.start()], path[alternatives.end() :]
        return all(exists(before + one + after) for one in alternatives[1].split(","))
    return bool(fnmatch.filter(texts(), path)) if "*" in path else (ROOT / path).exists()


# -- what is wrong in a text


def wrong_paths(name, text):
    return [path for path in PATH.findall(flatten(text)) if not exists(path.rstrip(".,-"))]


def wrong_files(name, text):
    """Files of rooms as an include names them; in comments of C also those that are named alone."""
    if not name.startswith(("src/", "include/", "python/", "tests/")):
        return []
    wrong = [path for path in ROOM_FILE.findall(text) if not (ROOT / "src" / path).exists()]
    for comment in re.findall(r"/\*.*?\*/", text, re.S):
        wrong += [file for file in BARE_FILE.findall(comment) if file not in bare_names()]
    return wrong


def wrong_pages(name, text):
    """A page also names those beside it. A bare name in quotes is a piece of a path that is put together."""
    wrong, text = [], re.sub(r"https?://\S+", "", flatten(text))
    for found in PAGE.finditer(text):
        page = found[1]
        piece = "/" not in page and text[found.start() - 1] == '"'
        beside = name.endswith(".md") and (ROOT / name).parent.joinpath(page).exists()
        if not piece and not beside and not (ROOT / page).exists():
            wrong.append(page)
    return wrong


def wrong_labels(name, text):
    """Sections, rows and vectors behind a page's name, and decisions by their first words."""
    wrong, text = [], flatten(text)
    for found in PAGE.finditer(text):
        page, labels = found[1], LABELS.match(text, found.end())
        if page not in texts():
            continue
        meant, end = (labels_in(labels[1]), labels.end()) if labels else ([], found.end())
        if vectors := VECTORS.match(text, end):
            meant, end = meant + labels_in(vectors[1]), vectors.end()
        wrong += [f"{page} {label}" for label in meant if label not in labels_of(page)]
        quoted = QUOTED.match(text, end)
        if quoted and quoted[1] not in flatten(texts()[page]):
            wrong.append(f'{page} "{quoted[1]}"')
    return wrong


def wrong_bare_sections(name, text):
    """A section without a page is one of a page that the same file names."""
    if not name.endswith((".c", ".h")):
        return []
    known = {label for page in PAGE.findall(text) if page in texts() for label in labels_of(page)}
    comments = map(flatten, re.findall(r"/\*.*?\*/", text, re.S))
    return [found for comment in comments for found in BARE_SECTION.findall(comment) if found not in known]


def wrong_links(name, text):
    wrong = []
    for target in LINK.findall(prose(text)) if name.endswith(".md") else []:
        path, _, anchor = target.partition("#")
        aim = (ROOT / name).parent / path if path else ROOT / name
        if re.match(r"[a-z]+:", target):
            continue
        page = str(aim.resolve().relative_to(ROOT)) if aim.exists() else None
        if page is None or anchor and anchor not in map(slug, headings(page)):
            wrong.append(target)
    return wrong


def wrong_words(name, text):
    """Functions and files that the walk through the code names."""
    if name != "docs/code.md":
        return []
    folders = ("src/", "include/", "python/")
    code = " ".join(other for file, other in texts().items() if file.startswith(folders))
    known = set(re.findall(r"[A-Za-z_]\w*", code)) | bare_names()
    named = re.findall(r"`([a-z]\w*_\w+|[\w-]+\.(?:c|h|cc|py))`", prose(text))
    return [one for one in named if one not in known]


def wrong_tests(name, text):
    """Of the last cells of docs/faults.md, which say where each fault is shown."""
    wrong = []
    for cell in re.findall(r"^\|.*\| (.*) \|$", text, re.M) if name == "docs/faults.md" else []:
        for kind, test in TEST.findall(cell):
            folder, _, file = test.rpartition("/")
            path = "tests/" + TESTS[kind].format(folder + "/" if folder else "", file)
            if not test.startswith("tests/") and not (ROOT / path).exists():
                wrong.append(f"{kind} `{test}`".strip())
    return wrong


CHECKS = (
    wrong_paths,
    wrong_files,
    wrong_pages,
    wrong_labels,
    wrong_bare_sections,
    wrong_links,
    wrong_words,
    wrong_tests,
)

PLANTED = (
    (wrong_paths, "src/run/run.c", "as src/gone/gone.c has it"),
    (wrong_paths, "Makefile", "see tests/gone,"),
    (wrong_paths, "Makefile", "see docs/{design,gone}.md"),
    (wrong_files, "src/run/run.c", '#include "run/gone.h"'),
    (wrong_files, "src/run/run.c", "/* as gone_for_good.c has it */"),
    (wrong_pages, "src/run/run.c", "/* docs/gone.md */"),
    (wrong_pages, "README.md", "see spec/design.md"),
    (wrong_pages, "bench/run", "the limits of limits.md E6"),
    (wrong_pages, "src/run/run.c", "/* DESIGN.md 4 */"),
    (wrong_labels, "src/run/run.c", "/* the rule of docs/spec/placement.md\n * 3.9 */"),
    (wrong_labels, "src/run/run.c", "# docs/design.md 2 and 4.7"),
    (wrong_labels, "docs/code.md", "(docs/faults.md W1, Z9)"),
    (wrong_labels, "tests/unit/test_ranks.c", "/* docs/spec/train-api.md 8, vectors 55 to 65 */"),
    (wrong_labels, "src/run/run.c", '/* docs/design.md 4, "No such decision" */'),
    (wrong_bare_sections, "src/run/run.c", "/* in their order (1.3) */"),
    (wrong_bare_sections, "src/run/run.c", "/* docs/design.md 2; the rules of 3.9 */"),
    (wrong_links, "README.md", "[there](docs/gone.md)"),
    (wrong_links, "README.md", "[there](docs/code.md#no-such-part)"),
    (wrong_tests, "docs/faults.md", "| W1 | a fault | what happens | - | `failure`, unit `gone` |"),
    (wrong_words, "docs/code.md", "then `no_such_function` does it"),
)


class References(unittest.TestCase):
    maxDiff = None

    def test_what_is_referred_to_is_there(self):
        for check in CHECKS:
            with self.subTest(check=check.__name__):
                others = {name: text for name, text in texts().items() if name != OWN}
                wrong = {f"{name}: {one}" for name, text in others.items() for one in check(name, text)}
                self.assertEqual(sorted(wrong), [])

    def test_what_is_not_there_is_found(self):
        for check, name, text in PLANTED:
            with self.subTest(text=text):
                self.assertEqual(len(check(name, text)), 1)

    def test_every_measurement_has_its_limit(self):
        """The rows of bench/run, and those that they print, are those of docs/spec/limits.md."""
        run = set(re.findall(r'"([\w-]+)": \w+\.run', texts()["bench/run"]))
        rows = [text for name, text in texts().items() if name.startswith("bench/rows/")]
        printed = set(re.findall(r'bench\.row\(\s*"([\w-]+)"', "".join(rows)))
        limits = set(re.findall(r"^\| ([\w-]+) \| `bench/", texts()["docs/spec/limits.md"], re.M))
        self.assertGreater(len(run), 20)
        self.assertEqual(run - limits, {"python"})  # whose rows have the names of others
        self.assertEqual(limits - (run | printed), set())

    def test_every_page_is_listed_in_the_readme(self):
        pages = [name for name in texts() if re.fullmatch(r"docs/[\w-]+\.md", name)]
        self.assertGreater(len(pages), 5)
        self.assertEqual([name for name in pages if f"({name})" not in texts()["README.md"]], [])


if __name__ == "__main__":
    unittest.main()
