"""What pip installs: the package, and inside it the library, its modules and the command, where they find each other."""
import json
import pathlib
import subprocess
import tempfile
import unittest

import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = ['driver', 'gloo', 'http', 'journal', 'pmix', 'screen', 'tls', 'topology']


class Wheel(unittest.TestCase):
    def configure(self):
        """The plan of installation and the names of the libraries of a build that is configured as pip does."""
        settings = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['meson-python']['args']
        with tempfile.TemporaryDirectory() as build:
            subprocess.run([ROOT / 'scripts/tool', 'meson', 'setup', build, ROOT, *settings['setup']], check=True,
                           stdout=subprocess.DEVNULL)
            told = [json.loads((pathlib.Path(build) / f'meson-info/intro-{name}.json').read_text())
                    for name in ('install_plan', 'dependencies')]
        return told[0], [library['name'] for library in told[1]]

    def test_everything_that_a_run_needs_is_in_the_package_and_nothing_more_is_needed(self):
        plan, dependencies = self.configure()
        wheel = {entry['destination'] for files in plan.values() for entry in files.values() if entry['tag'] == 'wheel'}
        library = '{py_platlib}/trainyard/_lib/'
        self.assertEqual(wheel, {
            '{py_platlib}/trainyard', '{py_platlib}/trainyard/_core.abi3.so', library + 'libtrainyard.so.0', library + 'trainyard',
            *(f'{library}trainyard-modules/{name}.so' for name in MODULES)})
        self.assertIn('sqlite3', dependencies)
        self.assertEqual([name for name in ('cmocka', 'openblas') if name in dependencies], [])


if __name__ == '__main__':
    unittest.main()
