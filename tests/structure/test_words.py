"""One word for one thing: no struct tag, enum tag or enumerator is defined in two files of src."""
import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
TAG = re.compile(r"\b(?:struct|enum)\s+(\w+)\s*\{")
ENUM = re.compile(r"\benum\s*\w*\s*\{([^{}]*)\}")


def words(code):
    """Tags of structs and enums, and the enumerators that stand in the text."""
    code = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", TEXT.sub(" ", code), flags=re.M)
    found = set(TAG.findall(code))
    for body in ENUM.findall(code):
        while re.search(r"\([^()]*\)", body):
            body = re.sub(r"\([^()]*\)", "", body)
        found |= {name for name in re.findall(r"(?:^|,)\s*(\w+)\s*(?==|,|$)", body)}
    return found


class Words(unittest.TestCase):
    def test_words_are_found(self):
        code = (
            "/* struct no { */ struct a { int x; };\n"
            "enum b { C, D = F(1, 2), /* E */ G };\nenum { H };\n#define I enum j { K }\n"
        )
        self.assertEqual(words(code), {"a", "b", "C", "D", "G", "H"})

    def test_each_word_has_one_meaning(self):
        files = collections.defaultdict(list)
        for path in sorted((ROOT / "src").rglob("*.[ch]")):
            for word in words(path.read_text(encoding="utf-8")):
                files[word].append(str(path.relative_to(ROOT)))
        self.assertGreater(len(files), 500)
        self.assertEqual({word: where for word, where in files.items() if len(where) > 1}, {})


if __name__ == "__main__":
    unittest.main()
