"""What pip installs: the package, and inside it the library, its modules and the command, where they find each other."""
import json
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = ['driver', 'gloo', 'journal', 'topology']


class Wheel(unittest.TestCase):
    def test_everything_that_a_run_needs_is_in_the_package(self):
        with tempfile.TemporaryDirectory() as build:
            subprocess.run(['/usr/bin/meson', 'setup', build, ROOT, '-Dwheel=true'], check=True, stdout=subprocess.DEVNULL)
            plan = json.loads((pathlib.Path(build) / 'meson-info/intro-install_plan.json').read_text())
        wheel = {entry['destination'] for files in plan.values() for entry in files.values() if entry['tag'] == 'wheel'}
        library = '{py_platlib}/trainyard/_lib/'
        self.assertEqual(wheel, {
            '{py_platlib}/trainyard', '{py_platlib}/trainyard/_core.abi3.so', library + 'libtrainyard.so.0', library + 'trainyard',
            *(f'{library}trainyard-modules/{name}.so' for name in MODULES)})


if __name__ == '__main__':
    unittest.main()
