"""One word for one thing: no tag or enumerator is defined in two files of the product, and no program of tests, measurements or
examples gives one of its headers another meaning."""
import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
TAG = re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*\{")
PRODUCT = ("src", "include", "python")
PROGRAMS = ("tests", "bench", "examples")
ENUM = re.compile(r"\benum\s*\w*\s*\{([^{}]*)\}")


def words(code):
    """Tags of structs, unions and enums, and the enumerators that stand in the text."""
    code = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", TEXT.sub(" ", code), flags=re.M)
    found = set(TAG.findall(code))
    for body in ENUM.findall(code):
        while re.search(r"\([^()]*\)", body):
            body = re.sub(r"\([^()]*\)", "", body)
        found |= {name for name in re.findall(r"(?:^|,)\s*(\w+)\s*(?==|,|$)", body)}
    return found


def files_by_word(folders, pattern):
    """Word -> the files that define it."""
    files = collections.defaultdict(list)
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob(pattern)):
        for word in words(path.read_text(encoding="utf-8")):
            files[word].append(str(path.relative_to(ROOT)))
    return files


class Words(unittest.TestCase):
    def test_words_are_found(self):
        code = (
            "/* struct no { */ struct a { int x; };\n"
            "enum b { C, D = F(1, 2), /* E */ G };\nenum { H };\n#define I enum j { K }\n"
        )
        self.assertEqual(words(code), {"a", "b", "C", "D", "G", "H"})
        self.assertEqual(words("union a { int b; };"), {"a"})

    def test_each_word_has_one_meaning(self):
        files = files_by_word(PRODUCT, "*.[ch]")
        self.assertGreater(len(files), 500)
        self.assertEqual({word: where for word, where in files.items() if len(where) > 1}, {})

    def test_programs_keep_the_words_of_headers(self):
        headers, programs = files_by_word(PRODUCT, "*.h"), files_by_word(PROGRAMS, "*.[ch]")
        self.assertGreater(len(programs), 200)
        self.assertEqual({word: (headers[word], programs[word]) for word in headers.keys() & programs.keys()}, {})


if __name__ == "__main__":
    unittest.main()
