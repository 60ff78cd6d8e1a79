"""Settings for all runs: files of an administrator and a user, which every face obeys and what a run says itself goes before."""

import json
import os
import subprocess

from harness import BUILD, COMMAND, HERE, Case, main


class SiteCase(Case):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.place, "site.yaml")
        self.environment = dict(self.environment, TRAINYARD_CONFIG=self.file)
        self.environment.pop("TRAINYARD_STORAGE", None)

    def write(self, text, mode=0o644):
        with open(self.file, "w") as file:
            file.write(text)
        os.chmod(self.file, mode)

    def refused(self, *parts):
        before = set(os.listdir(self.place))
        finished = self.assert_status(2, self.trainyard("run", "-n", "1", "--", "/bin/true"))
        self.assert_line(finished, "run", *parts)
        self.assertEqual(before, set(os.listdir(self.place)))


class Obeyed(SiteCase):
    def test_storage_path_of_all_commands(self):
        self.write("run_config: {storage_path: '%s/of $OWNER/${OWNER}'}" % self.place)
        self.environment["OWNER"] = "ann"
        self.assert_status(0, self.trainyard("run", "--name", "a", "--", "/bin/echo", "x"))
        self.assertTrue(os.path.exists(os.path.join(self.place, "of ann", "ann", "a", "run.db")))
        self.assertIn("succeeded", self.assert_status(0, self.trainyard("status", "a")).out)
        self.assertEqual("[rank 0] x\n", self.assert_status(0, self.trainyard("logs")).out)

    def test_what_is_nearer_goes_before(self):
        self.write("run_config: {storage_path: '%s/site', grace_s: 7, log_limit: 1MiB}" % self.place)
        named = os.path.join(self.place, "named.yaml")
        with open(named, "w") as file:
            file.write("run_config: {storage_path: '%s/config', time_limit_s: 50}\nscaling_config: {num_workers: 2}\n" % self.place)
        for where, arguments, environment in (
                ("site", (), {}), ("environment", (), {"TRAINYARD_STORAGE": self.place + "/environment"}),
                ("config", ("--config", named), {"TRAINYARD_STORAGE": self.place + "/environment"}),
                ("option", ("--config", named, "--storage-path", self.place + "/option"), {})):
            finished = subprocess.run([COMMAND, "run", "--name", "a", *arguments, "--", "/bin/true"], capture_output=True, text=True,
                                      env=dict(self.environment, **environment))
            self.assertEqual(0, finished.returncode, finished.stderr)
            self.assertTrue(os.path.exists(os.path.join(self.place, where, "a", "run.db")), where)

    def test_a_user_s_goes_before_the_machine_s(self):
        """The machine's file is not this test's to write: what is seen is that the user's is read where XDG_CONFIG_HOME, or the home, has it."""
        del self.environment["TRAINYARD_CONFIG"]
        for variable, folder in (("XDG_CONFIG_HOME", "xdg"), ("HOME", "home/.config")):
            os.makedirs(os.path.join(self.place, folder))
            with open(os.path.join(self.place, folder, "trainyard.yaml"), "w") as file:
                file.write("run_config: {storage_path: '%s/by %s'}" % (self.place, variable))
            environment = {key: value for key, value in self.environment.items() if key != "XDG_CONFIG_HOME"}
            environment[variable] = os.path.join(self.place, folder.split("/")[0])
            finished = subprocess.run([COMMAND, "run", "--name", "a", "--", "/bin/true"], capture_output=True, text=True, env=environment)
            self.assertEqual(0, finished.returncode, finished.stderr)
            self.assertTrue(os.path.exists(os.path.join(self.place, "by " + variable, "a", "run.db")))

    def test_settings_of_runs_from_c_and_from_requests(self):
        self.write("run_config: {storage_path: '%s/site', failure_config: {max_failures: 1}, log_limit: 64KiB}" % self.place)
        request = {"argv": ["/bin/sh", "-c", "seq 100000; test $TRAINYARD_ATTEMPT = 2"], "name": "r", "quiet": True,
                   "environment": {"PATH": os.environ["PATH"]}, "progress": "none"}
        finished = subprocess.run([os.path.join(BUILD, "tests", "e2e", "site_program"), json.dumps(request)], capture_output=True, text=True,
                                  env=self.environment)
        self.assertEqual((0, self.place + "/site\n"), (finished.returncode, finished.stdout), finished.stderr)
        self.assertLessEqual(os.path.getsize(os.path.join(self.place, "site", "r", "logs", "rank-0.log")), 65536)

    def test_none(self):
        self.environment["TRAINYARD_CONFIG"] = ""
        self.assert_status(0, self.run_workers("-n", "1", "--", "/bin/true"))


class Documented(SiteCase):
    def examples(self, kind):
        with open(os.path.join(HERE, "..", "..", "docs", "configuration.md")) as file:
            blocks = [block.split("```")[0] for block in file.read().split("```yaml\n")[1:]]
        found = [block for block in blocks if block.startswith("# " + kind)]
        self.assertTrue(found)
        return found

    def test_examples_of_the_page(self):
        self.environment.update(TRAINYARD_CONFIG="", USER="ann")
        path = os.path.join(self.place, "example.yaml")
        for kind, *words in (("config", "run", "--storage-path", self.storage, "--config", path, "--", "/bin/true"),
                             ("config", "plan", "--config", path), ("cluster", "plan", "--use-gpu", "-n", "24", "--cluster", path)):
            for example in self.examples(kind):
                with open(path, "w") as file:
                    file.write(example)
                self.assert_status(0, self.trainyard(*words))
        (example,) = self.examples("site")
        self.environment["TRAINYARD_CONFIG"] = self.file
        self.write(example.replace("/scratch", self.place))
        self.assert_status(0, self.trainyard("run", "--", "/bin/true"))
        self.assertEqual(1, len(os.listdir(os.path.join(self.place, "ann", "trainyard_runs"))))


class Refused(SiteCase):
    def test_what_it_cannot_say(self):
        for text, *parts in (("run_config: {name: a}", "site.yaml:1:", "name belongs to one run"),
                             ("run_config: {resume: true}", "resume belongs to one run"),
                             ("scaling_config: {num_workers: 2}", "scaling_config", "known: run_config"),
                             ("run_config: {grace_s: -1}", "site.yaml:1:", "grace_s must be a number of seconds"),
                             ("run_config: {grase_s: 1}", "grase_s", "grace_s"),
                             ("run_config: [1]", "run_config must be a map"),
                             ("run_config: {storage_path: '$NOT_SET_HERE/a'}", "$NOT_SET_HERE is not set"),
                             ("run_config: {storage_path: 's3://a/b'}", "s3://a/b"),
                             ("- 1", "must be a map"), ("{", "site.yaml")):
            with self.subTest(text):
                self.write(text)
                self.refused(*parts)

    def test_one_that_is_not_there(self):
        self.environment["TRAINYARD_CONFIG"] = os.path.join(self.place, "nowhere")
        self.refused("TRAINYARD_CONFIG=", "nowhere", "No such file")

    def test_one_that_others_may_write(self):
        self.write("run_config: {grace_s: 1}", 0o666)
        self.refused("may be changed by others", "chmod go-w")
        if os.geteuid() == 0:
            os.chown(self.file, 65534, 65534)
            self.refused("may be changed by others", "chown root")

    def test_no_file(self):
        os.mkdir(self.file)
        self.refused("must be a file")


if __name__ == "__main__":
    main()
