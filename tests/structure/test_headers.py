"""The public headers are C and C++: each compiles alone, without a warning, by every compiler that is here; and a C++ program
that uses their macros and calls builds and runs."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get('TRAINYARD_BUILD', ROOT / 'build'))
HEADERS = sorted((ROOT / 'include/trainyard').glob('*.h'))
STRICT = ['-Wall', '-Wextra', '-Wpedantic', '-Werror', '-I', ROOT / 'include']
LANGUAGES = {'c': (('gcc', 'clang'), ('c11', 'c17')), 'c++': (('g++', 'clang++'), ('c++11', 'c++17', 'c++20'))}
SANITIZE = ['-fsanitize=address,undefined'] if 'sanitized' in str(BUILD) else []  # as the library is linked
PROGRAM = ROOT / 'tests/structure/program.cc'


def compilers(language):
    names, standards = LANGUAGES[language]
    return [(name, standard) for name in names if shutil.which(name) for standard in standards]


class Headers(unittest.TestCase):
    def assert_compiles(self, arguments, text=None):
        done = subprocess.run(arguments, input=text, capture_output=True, text=True)
        self.assertEqual((0, ''), (done.returncode, done.stderr), arguments)

    def test_every_header_compiles_alone_in_c_and_cpp(self):
        for language in LANGUAGES:
            self.assertTrue(compilers(language))
            for compiler, standard in compilers(language):
                whole = [ROOT / 'include/trainyard/trainyard.h']  # each alone by the oldest standard is enough
                for header in HEADERS if standard == LANGUAGES[language][1][0] else whole:
                    text = f'#include <trainyard/{header.name}>\n#include <trainyard/{header.name}>\nint used;\n'
                    self.assert_compiles([compiler, f'-std={standard}', *STRICT, '-fsyntax-only', '-x', language, '-'], text)

    def test_a_cpp_program_uses_the_macros_and_calls(self):
        with tempfile.TemporaryDirectory() as place:
            for compiler, standard in compilers('c++'):
                program = pathlib.Path(place) / f'{compiler}-{standard}'
                self.assert_compiles([compiler, f'-std={standard}', *STRICT, '-O2', '-c', '-o', f'{program}.o', PROGRAM])
                library = [f'-L{BUILD}', '-ltrainyard', f'-Wl,-rpath,{BUILD}']
                subprocess.run(['g++', *SANITIZE, '-o', program, f'{program}.o', *library], check=True)
                done = subprocess.run([program], capture_output=True, text=True, timeout=60)
                self.assertEqual((0, ''), (done.returncode, done.stderr), f'{compiler} -std={standard}')


if __name__ == '__main__':
    unittest.main()
