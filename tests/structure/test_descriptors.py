"""Descriptors that are opened are closed where another program is executed: a thread may execute one at any time."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPEN = re.compile(r"(?<![\w>.])(?:dup\(|accept\()|\bF_DUPFD\b|\bfopen\([^;]*, \"[^e\"]+\"\)")
BEFORE_EXEC = {"engine/copy.c"}  # in a process that closes all else, and then executes


class Descriptors(unittest.TestCase):
    def test_none_is_opened_for_programs(self):
        found = [
            f"{path.relative_to(ROOT)}:{line.strip()}"
            for path in sorted((ROOT / "src").rglob("*.c*"))
            if str(path.relative_to(ROOT / "src")) not in BEFORE_EXEC
            for line in path.read_text(encoding="utf-8").splitlines()
            if OPEN.search(line)
        ]
        self.assertEqual([], found)


if __name__ == "__main__":
    unittest.main()
