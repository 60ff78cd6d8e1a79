"""The scripts that build: one meson and one ninja, found when they are used; a build directory that is not theirs is made anew,
with the options that it had."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TRAINYARD_BUILD"])
MADE_ANEW = "configure: {} is made anew: {}\n"

# A project that is configured in a moment, with the options of ours that the goals set.
PROJECT = """
project('small', version: '1', meson_version: '>=1.0.0')
configure_file(output: 'made', configuration: {'A': 1})
custom_target('text', output: 'all.txt', command: ['touch', '@OUTPUT@'], build_by_default: true)
"""


class ScriptCase(unittest.TestCase):
    """A small project beside copies of the scripts, in a folder whose name has a space."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="trainyard test ")
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name).resolve()
        self.project = self.path / "project"
        (self.project / "scripts").mkdir(parents=True)
        for name in ("tool", "configure"):
            shutil.copy(ROOT / "scripts" / name, self.project / "scripts")
        shutil.copy(ROOT / "meson_options.txt", self.project)
        (self.project / "meson.build").write_text(PROJECT)
        self.environment = dict(os.environ)

    def run_script(self, name, *words):
        return subprocess.run(
            [f"scripts/{name}", *words], cwd=self.project, env=self.environment, capture_output=True, text=True
        )

    def configure(self, *options):
        done = self.run_script("configure", "build", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def option(self, name):
        rows = json.loads((self.project / "build/meson-info/intro-buildoptions.json").read_text())
        return next(row["value"] for row in rows if row["name"] == name)

    def write_program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)


class Configure(ScriptCase):
    def test_a_directory_is_left_as_it_is(self):
        self.assertEqual(self.configure("-Dtests=enabled"), "")
        stamp = (self.project / "build/build.ninja").stat().st_mtime_ns
        self.assertEqual(self.configure("-Dtests=enabled"), "")
        self.assertEqual(self.configure(), "")
        self.assertEqual((self.project / "build/build.ninja").stat().st_mtime_ns, stamp)

    def test_options_are_added_to_those_that_are_there(self):
        self.configure("-Dexamples=enabled")
        self.configure("-Dtests=enabled")
        self.assertEqual([self.option(name) for name in ("examples", "tests", "python")], ["enabled", "enabled", "auto"])

    def test_another_mesons_directory_is_made_anew(self):
        self.configure("-Dexamples=disabled", "-Dbuildtype=release")
        path = self.project / "build/meson-info/meson-info.json"
        info = json.loads(path.read_text())
        ours = info["meson_version"]["full"]
        info["meson_version"]["full"] = "1.99.9"
        path.write_text(json.dumps(info))
        left = self.project / "build/left"
        left.touch()
        why = f"meson 1.99.9 made it, and the one in use is {ours}"
        self.assertEqual(self.configure("-Dtests=enabled"), MADE_ANEW.format("build", why))
        self.assertFalse(left.exists())
        values = [self.option(name) for name in ("examples", "buildtype", "tests")]
        self.assertEqual(values, ["disabled", "release", "enabled"])
        self.assertEqual(self.configure("-Dtests=enabled"), "")

    def test_one_whose_configuration_did_not_end_is_made_anew(self):
        for name in ("build.ninja", "meson-info/meson-info.json", "meson-private/coredata.dat"):
            with self.subTest(lost=name):
                self.configure()
                (self.project / "build" / name).unlink()
                self.assertEqual(self.configure(), MADE_ANEW.format("build", "its configuration did not end"))
                self.assertTrue((self.project / "build" / name).exists())

    def test_one_that_was_moved_is_made_anew(self):
        self.configure()
        old = self.project / "build"
        self.project = self.project.rename(self.path / "moved")
        self.assertEqual(self.configure(), MADE_ANEW.format("build", f"it was made at {old}"))
        self.assertEqual(self.configure(), "")

    def test_what_is_no_build_directory_keeps_its_files(self):
        mine = self.project / "build/mine"
        mine.parent.mkdir()
        mine.write_text("mine")
        self.assertEqual(self.configure(), "")
        self.assertEqual(mine.read_text(), "mine")

    def test_the_build_of_another_project_is_refused(self):
        self.configure()
        shutil.copytree(self.project, self.path / "other", ignore=shutil.ignore_patterns("build"))
        stamp = (self.project / "build/build.ninja").stat().st_mtime_ns
        build, source = self.project / "build", self.project
        self.project = self.path / "other"
        done = self.run_script("configure", build)
        said = f"configure: {build} is the build directory of {source}: remove it, or name another (make BUILD=DIRECTORY)\n"
        self.assertEqual((done.returncode, done.stderr), (1, said))
        self.assertEqual((build / "build.ninja").stat().st_mtime_ns, stamp)

    def test_what_meson_says_is_told(self):
        (self.project / "meson.build").write_text(PROJECT + "error('no luck')\n")
        done = self.run_script("configure", "build")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ERROR: Problem encountered: no luck", done.stderr)


class Needs(ScriptCase):
    """Our own build, on a machine without the libraries that only examples and tests need."""

    def setUp(self):
        super().setUp()
        hide = 'case "$*" in *cmocka* | *openblas*) exit 1 ;; esac\n'
        self.write_program(self.path / "bin/pkg-config", f'{hide}exec {shutil.which("pkg-config")} "$@"\n')
        self.environment["PATH"] = f"{self.path}/bin:{os.environ['PATH']}"
        self.environment["CMAKE"] = "false"  # which meson asks next

    def setup_ours(self, *options):
        return subprocess.run([ROOT / "scripts/tool", "meson", "setup", self.path / "ours", ROOT, *options], env=self.environment,
                              capture_output=True, text=True)

    def test_what_need_not_be_built_is_left_out(self):
        done = self.setup_ours()
        self.assertEqual(done.returncode, 0, done.stdout)
        names = {row["name"] for row in json.loads((self.path / "ours/meson-info/intro-targets.json").read_text())}
        self.assertLessEqual({"trainyard", "driver", "product"}, names)
        self.assertEqual({"digits", "test_base_error", "bench_placement"} & names, set())

    def test_what_is_demanded_fails_by_name(self):
        for option, library in (("-Dtests=enabled", "OpenBLAS"), ("-Dexamples=enabled", "openblas")):
            done = self.setup_ours(option)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout, f"ERROR: .*{library}")


class Tool(ScriptCase):
    """Debian's programs cannot be hidden here, so the ones that are named, and what is passed on, are what is tried."""

    def test_one_that_is_named_is_used_and_passed_on(self):
        for name in ("MESON", "NINJA"):
            program = f'echo "{name} $NINJA $MESON $*"\n'
            self.environment[name] = self.write_program(self.path / "some where" / name.lower(), program)
        meson, ninja = self.environment["MESON"], self.environment["NINJA"]
        self.assertEqual(self.run_script("tool", "meson", "a", "b c").stdout, f"MESON {ninja} {meson} a b c\n")
        self.assertEqual(self.run_script("tool", "ninja", "-C", "x").stdout, f"NINJA {ninja} {meson} -C x\n")

    def test_what_is_first_in_the_path_does_not_come_between(self):
        """Neither when a build is configured, nor when ninja configures it again: both would write another ninja's log."""
        told = self.path / "told"
        del self.environment["MESON"]
        self.environment.pop("NINJA", None)
        ours = [self.run_script("tool", name, "--version").stdout for name in ("meson", "ninja")]
        for name in ("meson", "ninja"):
            self.write_program(self.path / "bin" / name, f'[ "$*" = --version ] || echo {name} >>"{told}"\necho 0.1\n')
        self.environment["PATH"] = f"{self.path}/bin:{os.environ['PATH']}"
        self.assertEqual([self.run_script("tool", name, "--version").stdout for name in ("meson", "ninja")], ours)
        self.configure()
        self.assertEqual(self.run_script("tool", "ninja", "-C", "build").returncode, 0)
        (self.project / "meson.build").touch()
        self.assertEqual(self.run_script("tool", "ninja", "-C", "build").returncode, 0)
        self.assertFalse(told.exists())


class Places(ScriptCase):
    """A directory that is named, and holds files of the user's."""

    def test_hosts_are_not_noted_there(self):
        shutil.copy(ROOT / "scripts/hosts", self.project / "scripts")
        mine = self.path / "mine"
        mine.mkdir()
        (mine / "precious").touch()
        done = self.run_script("hosts", "hold", "1", "--at", str(mine))
        self.assertNotEqual(0, done.returncode)
        self.assertIn(f"{mine} holds something else", done.stderr)
        self.assertEqual(["precious"], os.listdir(mine))

    def test_a_cluster_does_not_clear_it(self):
        shutil.copy(ROOT / "scripts/slurm", self.project / "scripts")
        self.write_program(self.project / "scripts/hosts", "exit 1\n")
        for name in ("slurmctld", "slurmd", "srun", "munged"):
            self.write_program(self.path / "bin" / name, "exit 1\n")
        self.environment["PATH"] = f"{self.path}/bin:{os.environ['PATH']}"
        mine = self.path / "mine"
        mine.mkdir()
        (mine / "precious").touch()
        done = self.run_script("slurm", "hold", "--at", str(mine))
        self.assertEqual((1, f"slurm: {mine} is there, and no cluster's: name another with --at\n"), (done.returncode, done.stderr))
        self.assertEqual(["precious"], os.listdir(mine))


if __name__ == "__main__":
    unittest.main()
