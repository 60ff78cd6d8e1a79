"""Names that are told in several places: options and keys are read from the tables that parse them, and what README, docs and
headers name must be among them."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Options of other programs that the pages show.
FOREIGN = {"--signal", "--cflags", "--libs", "--follow", "--at"}
# Settings that Python's driver sends of its own: of the trainer, of a policy, of how it shows a run.
OF_DRIVER = {"framework", "backend", "manifest", "output", "keep_agents"}
OF_OTHERS = {"docs/spec/slurm.md", "docs/slurm.md"}  # pages about another program's options


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def options():
    """Of all subcommands, from their tables; --help is the parser's own."""
    names = {"help", *(option for _, option in settings() if option)}
    for path in sorted((ROOT / "src/cli").glob("*.c")):
        names |= set(
            re.findall(r"^ *\{\"([a-z][a-z-]+)\", (?:0|'.'),", path.read_text(encoding="utf-8"), re.M)
        )
    return {"--" + name for name in names}


def settings():
    """Key and option of each row of the table of settings."""
    row = r"^SETTING\(\w+, \w+, \w+, (\w+), \w+, (?:\"([a-z-]+)\"|NULL),"
    return re.findall(row, text("src/run/settings.def"), re.M)


def table(path, name):
    """First texts of the rows of a C table."""
    body = re.search(name + r"\[\] = \{\n(.*?)\n\};", text(path), re.S)
    return re.findall(r'^ *\{"(\w+)"', body[1], re.M)


class Names(unittest.TestCase):
    def test_options_that_pages_name(self):
        known = options()
        self.assertIn("--num-workers", known)
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for page in (page for page in pages if str(page.relative_to(ROOT)) not in OF_OTHERS):
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
            with self.subTest(page=page.name):
                self.assertEqual(sorted(named - known - FOREIGN), [])

    def test_keys_of_a_request(self):
        keys = table("src/controller/request.c", "request_fields") + [key for key, _ in settings()]
        self.assertGreater(len(keys), 20)
        comment = text("include/trainyard/run.h").split("TY_API int ty_run_open")[0]
        self.assertEqual([key for key in keys if not re.search(rf"\b{key}\b", comment)], [])

    def test_words_of_a_request(self):
        """Each word that a setting may have stands in quotes behind its key, before the next one."""
        row = r"^SETTING\(\w+, (?:WORD|CHOICE), \w+, (\w+), \w+, (?:\"[a-z-]+\"|NULL), 0, \"([a-z|]+)\","
        rows = re.findall(row, text("src/run/settings.def"), re.M)
        self.assertGreater(len(rows), 8)
        comment = text("include/trainyard/run.h").split("TY_API int ty_run_open")[0].replace("|", '", "')
        for key, words in rows:
            behind = re.search(rf"\b{key}\b((?:.|\n(?! \*   \w))*)", comment)[1]
            for word in words.split("|"):
                with self.subTest(key=key, word=word):
                    self.assertIn(f'"{word}"', behind)

    def test_settings_are_fields_in_python(self):
        fields = set(re.findall(r"^    (\w+): [^\n=]+ = ", text("python/trainyard/config.py"), re.M))
        self.assertEqual({key for key, _ in settings()} - fields, OF_DRIVER)

    def test_every_setting_was_read(self):
        self.assertEqual(len(settings()), text("src/run/settings.def").count("\nSETTING("))


if __name__ == "__main__":
    unittest.main()
