"""`make install PREFIX=` gives a tree against which a program outside of this one builds with pkg-config and runs."""
import json
import os
import pathlib
import re
import shlex
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

# A program is linked as the library is.
SANITIZE = ['-fsanitize=address,undefined'] if 'sanitized' in str(BUILD) else []


def install(prefix, *words):
    """All that is installed was built before this test (meson.build): no ninja is run, so none can read another one's log."""
    subprocess.run(['make', '-s', 'install', f'PREFIX={prefix}', f'BUILD={BUILD}', 'NINJA=true', *words], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL, umask=0o077)


class Installed(unittest.TestCase):
    """One prefix, in which nothing is changed."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.path = pathlib.Path(directory.name)
        cls.path.chmod(0o755)
        cls.prefix = cls.path / 'a prefix'
        install(cls.prefix)

    def test_a_program_outside_the_tree_builds_and_runs(self):
        flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'trainyard'], check=True, capture_output=True, text=True,
                               env={**os.environ, 'PKG_CONFIG_PATH': str(self.prefix / 'lib/pkgconfig')}).stdout
        program = self.path / 'program'
        program.with_suffix('.c').write_text(PROGRAM)
        subprocess.run(['gcc', '-Wall', '-Werror', '-o', program, program.with_suffix('.c'), *SANITIZE, *shlex.split(flags),
                        f'-Wl,-rpath,{self.prefix}/lib'], check=True)
        done = subprocess.run([program, self.path / 'runs'], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ['[rank 0] worker 0 of 2', '[rank 1] worker 1 of 2'])

    def test_the_installed_command_runs_and_its_manual_is_there(self):
        command = self.prefix / 'bin/trainyard'
        done = subprocess.run([command, 'run', '-n', '2', '--storage-path', self.path / 'runs', '--', 'true'], timeout=60)
        self.assertEqual(done.returncode, 0)
        told = subprocess.run([command, 'help'], capture_output=True, text=True, check=True).stdout
        names = re.findall(r'^  ([a-z]+)  ', told, re.M)
        self.assertIn('dashboard', names)
        for page in ('trainyard.1', *(f'trainyard-{name}.1' for name in names)):
            self.assertTrue((self.prefix / 'share/man/man1' / page).exists(), page)
            for named in re.findall(r'\bdocs/[\w/]+\.md', (self.prefix / 'share/man/man1' / page).read_text()):
                self.assertTrue((self.prefix / 'share/doc/trainyard' / named).exists(), (page, named))

    def test_the_programs_of_the_page_are_built_and_run_as_they_stand_there(self):
        """Where root installed, another user runs them; the prefix is seen where pkg-config's words need no quotes."""
        page = (ROOT / 'docs/install.md').read_text()
        kinds = ('c', 'sh', 'cmake', 'meson')
        (program,), (line,), (cmake,), (meson,) = (re.findall(rf'```{kind}\n(.*?)```', page, re.S) for kind in kinds)
        place, prefix = self.path / 'user', self.path / 'prefix'
        prefix.symlink_to(self.prefix)
        place.mkdir()
        compiler = ' '.join(['#!/bin/sh\nexec gcc', *SANITIZE, '"$@"\n'])
        for name, text in ('train.c', program), ('CMakeLists.txt', cmake), ('meson.build', meson), ('cc', compiler):
            (place / name).write_text(text)
        (place / 'cc').chmod(0o755)
        other = {'user': 65534, 'group': 65534, 'extra_groups': []} if os.getuid() == 0 else {}
        if other:
            os.chown(place, 65534, 65534)
        environment = os.environ | {'PATH': f'{place}:{prefix}/bin:{os.environ["PATH"]}', 'HOME': str(place),
                                    'PKG_CONFIG_PATH': f'{prefix}/lib/pkgconfig'}
        tool = shlex.quote(str(ROOT / 'scripts/tool'))
        for script in 'cmake -B by-cmake && cmake --build by-cmake', f'{tool} meson setup by-meson && {tool} ninja -C by-meson':
            done = subprocess.run(script, shell=True, cwd=place, env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for script, more in ((line, {'LD_LIBRARY_PATH': f'{prefix}/lib'}), ('trainyard run -n 2 -- by-cmake/train', {}),
                             ('trainyard run -n 2 -- by-meson/train', {})):
            done = subprocess.run(['sh', '-euc', script], cwd=place, env=environment | more, **other,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(done.stdout.splitlines()), ['[rank 0] worker 0 of 2', '[rank 1] worker 1 of 2'])

    def test_all_that_is_installed_is_built_for_it(self):
        """Where nothing else was built before, as the tests build more than `make install` does."""
        def tell(*words):
            return subprocess.run(['scripts/tool', *words], check=True, capture_output=True, text=True, cwd=ROOT).stdout

        targets = [target for target in json.loads(tell('meson', 'introspect', '--targets', BUILD)) if target['installed']]
        installed = {os.path.relpath(name, BUILD) for target in targets for name in target['filename']}
        built = set(re.findall(r'^    (?:[|]+ )?(\S+)$', tell('ninja', '-C', BUILD, '-t', 'query', 'product'), re.M))
        self.assertIn('trainyard', installed)
        self.assertEqual(set(), installed - built)

    def test_completions_are_installed(self):
        for path in ('bash-completion/completions/trainyard.bash', 'zsh/site-functions/_trainyard',
                     'fish/vendor_completions.d/trainyard.fish'):
            self.assertIn('trainyard', (self.prefix / 'share' / path).read_text(), path)

    def test_all_users_may_read_what_is_installed(self):
        """Whatever the umask of who installs."""
        installed = [path for path in self.prefix.rglob('*') if not path.is_symlink()]
        self.assertGreater(len(installed), 20)
        for path in (self.prefix, *installed):
            readable = 0o555 if path.is_dir() or path.parent.name == 'bin' else 0o444
            self.assertEqual(path.stat().st_mode & readable, readable, path)

    @unittest.skipUnless(os.getuid() == 0, 'only root can install what is not its own')
    def test_what_root_installs_is_roots(self):
        self.assertEqual({path.lstat().st_uid for path in self.prefix.rglob('*')}, {0})


class Changed(unittest.TestCase):
    """Prefixes of their own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name)

    def test_uninstall_removes_what_was_installed_and_nothing_else(self):
        prefix = self.path / 'a prefix'
        install(prefix)
        mine = prefix / 'lib' / 'mine.txt'
        mine.write_text('kept')
        for _ in range(2):  # the second time there is nothing to do, which is told
            done = subprocess.run(['make', '-s', 'uninstall', f'PREFIX={prefix}'], cwd=ROOT, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('nothing is installed', done.stderr)
        self.assertEqual([mine], [path for path in prefix.rglob('*') if not path.is_dir()])
        self.assertEqual([prefix / 'lib'], list(prefix.iterdir()))

    def test_uninstall_removes_nothing_outside_of_the_prefix(self):
        """A list that names such files, by "..", or by a link that leads there."""
        prefix, outside = self.path / 'prefix', self.path / 'outside'
        list_ = prefix / 'share/trainyard/installed'
        list_.parent.mkdir(parents=True)
        outside.mkdir()
        names = ('precious', 'more', 'third')
        for name in names:
            (outside / name).write_text('kept')
        (prefix / 'link').symlink_to(outside)
        list_.write_text(f'../outside/precious\nlink/more\nlink/../outside/third\n{outside}/precious\nshare/trainyard/installed\n')
        subprocess.run(['make', '-s', 'uninstall', f'PREFIX={prefix}'], cwd=ROOT, check=True)
        self.assertEqual(sorted(names), sorted(path.name for path in outside.iterdir()))
        self.assertFalse(list_.exists())

    def test_a_package_is_made_in_a_folder_of_its_own(self):
        """Nothing is put below the prefix itself, which may be /usr."""
        place, prefix = self.path / 'package', self.path / 'usr'
        install(prefix, f'DESTDIR={place}')
        self.assertFalse(prefix.exists())
        self.assertTrue((place / prefix.relative_to('/') / 'bin/trainyard').exists())
        subprocess.run(['make', '-s', 'uninstall', f'PREFIX={prefix}', f'DESTDIR={place}'], cwd=ROOT, check=True)
        self.assertEqual([], [path for path in place.rglob('*') if not path.is_dir()])

    def test_a_prefix_that_is_there_keeps_its_mode_and_what_lies_in_it(self):
        shared = self.path / 'shared'
        (shared / 'lib').mkdir(parents=True)
        os.chown(shared, -1, 100 if os.getuid() == 0 else max(os.getgroups()))
        shared.chmod(0o2775)
        (shared / 'lib').chmod(0o750)
        (shared / 'lib/other.so').write_text('other')
        install(shared)
        install(shared)
        self.assertEqual([path.stat().st_mode & 0o7777 for path in (shared, shared / 'lib')], [0o2775, 0o750])
        self.assertEqual((shared / 'lib/other.so').read_text(), 'other')
        made = [(shared / name).stat() for name in ('share', 'share/man/man1', 'bin/trainyard')]
        self.assertEqual({status.st_gid for status in made}, {shared.stat().st_gid})
        self.assertTrue(all(status.st_mode & 0o2000 for status in made[:2]))
        self.assertFalse((BUILD / 'stage').exists())


if __name__ == '__main__':
    unittest.main()
