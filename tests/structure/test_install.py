"""`make install PREFIX=` gives a tree against which a program outside of this one builds with pkg-config and runs."""
import os
import pathlib
import subprocess
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ['TRAINYARD_BUILD'])

PROGRAM = textwrap.dedent('''
    #include <stdio.h>
    #include <trainyard/trainyard.h>

    static int train(ty_worker *worker, const void *config, size_t config_size) {
        (void)config;
        (void)config_size;
        printf("worker %d of %d\\\\n", ty_world_rank(worker), ty_world_size(worker));
        return 0;
    }

    int main(int argc, char **argv) {
        ty_init(&argc, &argv);
        ty_scaling_config scaling = {.num_workers = 2};
        ty_run_config run = {.storage_path = argv[1]};
        ty_trainer_config trainer = {.train = train, .scaling = &scaling, .run = &run};
        ty_error err = {0};
        ty_result *result = NULL;
        int code = ty_fit(&trainer, &result, &err);
        if (code < 0) fprintf(stderr, "%s\\\\n", err.message);
        ty_result_free(result);
        return code < 0;
    }
''').replace('\\\\n', '\\n')


class Install(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.prefix = self.path / 'prefix'
        subprocess.run(['make', '-s', 'install', f'PREFIX={self.prefix}', f'BUILD={BUILD}'], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)

    def tearDown(self):
        self.directory.cleanup()

    def build(self, name):
        flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'trainyard'], check=True, capture_output=True, text=True,
                               env={**os.environ, 'PKG_CONFIG_PATH': str(self.prefix / 'lib/pkgconfig')}).stdout.split()
        (self.path / 'program.c').write_text(PROGRAM)
        program = self.path / name
        sanitize = ['-fsanitize=address,undefined'] if 'sanitized' in str(BUILD) else []
        subprocess.run(['gcc', '-Wall', '-Werror', '-o', program, self.path / 'program.c', *sanitize, *flags,
                        f'-Wl,-rpath,{self.prefix}/lib'], check=True)
        return program

    def test_a_program_outside_the_tree_builds_and_runs(self):
        program = self.build('program')
        done = subprocess.run([program, self.path / 'runs'], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ['[rank 0] worker 0 of 2', '[rank 1] worker 1 of 2'])

    def test_the_installed_command_runs_and_its_manual_is_there(self):
        command = self.prefix / 'bin/trainyard'
        done = subprocess.run([command, 'run', '-n', '2', '--storage-path', self.path / 'runs', '--', 'true'], timeout=60)
        self.assertEqual(done.returncode, 0)
        for page in ('trainyard.1', 'trainyard-run.1'):
            self.assertTrue((self.prefix / 'share/man/man1' / page).exists(), page)


if __name__ == '__main__':
    unittest.main()
