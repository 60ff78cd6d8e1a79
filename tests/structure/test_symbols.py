"""libtrainyard.so exports what its headers declare, listed in symbols.txt, and loads nothing heavy; a worker stays thin."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ['TRAINYARD_BUILD'])
LIBRARY = BUILD / 'libtrainyard.so'
HEAVY = ['libgloo', 'libsqlite3', 'libssl', 'libcrypto', 'libmicrohttpd', 'libhwloc', 'libnccl', 'libstdc++']


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


class Symbols(unittest.TestCase):
    def test_exported_symbols_are_the_listed_ones(self):
        exported = sorted(line.split()[-1].split('@')[0] for line in run('nm', '-D', '--defined-only', str(LIBRARY)).splitlines()
                          if ' A ' not in line)
        self.assertEqual(exported, (HERE / 'symbols.txt').read_text().split())

    def test_listed_symbols_are_declared_in_public_headers(self):
        declared = set()
        for header in (ROOT / 'include/trainyard').glob('*.h'):
            declared |= set(re.findall(r'TY_API[^;]*?\b(ty_\w+)\(', header.read_text()))
        self.assertEqual(sorted(declared), (HERE / 'symbols.txt').read_text().split())

    def test_the_library_needs_nothing_heavy(self):
        needed = run('ldd', str(LIBRARY))
        self.assertEqual([name for name in HEAVY if name in needed], [] if 'asan' not in needed else
                         [name for name in HEAVY if name in needed and name == 'libstdc++'])

    def test_the_command_links_nothing_heavy(self):
        needed = run('readelf', '-d', str(BUILD / 'trainyard'))
        self.assertEqual([name for name in HEAVY if name in needed], [])

    def test_a_worker_that_reads_its_rank_loads_nothing_heavy(self):
        with tempfile.TemporaryDirectory() as place:
            loaded = run(str(BUILD / 'trainyard'), 'run', '-n', '1', '--storage-path', place, '--env', 'LD_DEBUG=files', '--',
                         'sh', '-c', f'"{BUILD}/bench/rank" 2>&1')
        self.assertIn('libtrainyard.so', loaded)
        self.assertEqual([name for name in HEAVY if name in loaded and 'asan' not in loaded], [])


if __name__ == '__main__':
    unittest.main()
