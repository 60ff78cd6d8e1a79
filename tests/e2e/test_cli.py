"""The command itself: version, help, manual pages, names of commands and options, outside of a worker."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

from harness import COMMAND, Case, main

COMMANDS = ["run", "plan", "accelerators", "status", "logs", "report", "store", "help", "version"]


class Version(Case):
    def test_text_and_json_agree(self):
        text = self.assert_status(0, self.trainyard("version")).out
        data = self.assert_status(0, self.trainyard("version", "--format", "json")).json
        self.assertTrue(text.startswith("trainyard %s (build %s, " % (data["trainyard"], data["build"])), text)
        self.assertRegex(data["build"], "^%s[+][0-9a-f]{12}$" % re.escape(data["trainyard"]))
        for name, version in data["libraries"].items():
            self.assertIn("%s %s" % (name, version), text)

    def test_option_forms(self):
        expected = self.trainyard("version").out
        self.assertEqual(expected, self.trainyard("--version").out)
        self.assertEqual(expected, self.trainyard("-V").out)

    def test_no_heavy_library_is_linked(self):
        if not os.path.exists("/usr/bin/readelf"):
            self.fail("readelf of binutils is needed")
        needed = subprocess.run(["readelf", "-d", COMMAND], capture_output=True, text=True, check=True).stdout
        for heavy in ("sqlite", "libssl", "libcrypto", "gloo", "openblas", "hwloc", "microhttpd", "stdc++", "nccl"):
            self.assertNotIn(heavy, needed)


class Help(Case):
    def test_overview_lists_every_command(self):
        out = self.assert_status(0, self.trainyard("help")).out
        for name in COMMANDS:
            self.assertIn("\n  %s " % name, out)
        self.assertEqual(out, self.trainyard("--help").out)
        self.assertEqual(out, self.trainyard("-h").out)

    def test_each_command(self):
        for name in COMMANDS:
            with self.subTest(name):
                out = self.assert_status(0, self.trainyard(name, "--help")).out
                self.assertTrue(out.startswith("Usage: trainyard %s" % name), out)
                self.assertEqual(out, self.trainyard("help", name).out)
                self.assertLessEqual(max(map(len, out.splitlines())), 110)

    def test_help_behind_program_is_the_programs(self):
        out = self.run_workers("--quiet", "--", "/bin/echo", "--help").out
        self.assertNotIn("Usage:", out)

    def test_help_wins_over_a_wrong_value(self):
        self.assert_status(0, self.trainyard("plan", "-n", "x", "--help"))

    def test_every_option_is_in_the_manual_page(self):
        for name in COMMANDS:
            with self.subTest(name):
                text = self.trainyard(name, "--help").out
                page = self.assert_status(0, self.trainyard("help", "--man", name)).out
                self.assertTrue(page.startswith(".TH TRAINYARD"), page)
                for word in text.split():
                    if word.startswith("--") and len(word) > 2 and word[2:].replace("-", "").isalpha():
                        self.assertIn(word.replace("-", "\\-"), page)

    def test_unknown(self):
        self.assert_usage(self.trainyard("help", "plam"), "help", "plam", "did you mean plan")


class Names(Case):
    def test_no_command(self):
        self.assert_usage(self.trainyard(), None, "which command")

    def test_nearest_command(self):
        for wrong, right in (("rnu", "run"), ("plna", "plan"), ("stauts", "status"), ("acelerators", "accelerators")):
            with self.subTest(wrong):
                self.assert_usage(self.trainyard(wrong), None, wrong, "did you mean %s?" % right)

    def test_no_near_command(self):
        self.assert_usage(self.trainyard("frobnicate"), None, "frobnicate", "trainyard help")

    def test_option_before_command(self):
        self.assert_usage(self.trainyard("--name", "x", "run"), None, "--name", "command comes first")

    def test_another_shell_is_refused(self):
        self.assert_usage(self.trainyard("completion", "tcsh"), "completion", "tcsh", "bash, zsh or fish")
        self.assert_usage(self.trainyard("completion", "bash", "zsh"), "completion", "unexpected", "zsh")

    def test_control_characters_are_shown(self):
        finished = self.trainyard("\x1b[31mred\x1b[0m\nline")
        self.assert_usage(finished, None, "unknown command")
        self.assertNotIn("\x1b", finished.err)

    def test_agent_is_not_for_people(self):
        self.assert_usage(self.trainyard("agent"), "agent", "trainyard run")
        self.assert_usage(self.trainyard("agent", "--channel-fd", "x", "--name", "n"), "agent")


class OutsideOfAWorker(Case):
    def test_report(self):
        self.assert_usage(self.trainyard("report", "loss=1"), "report", "inside a worker")

    def test_store(self):
        for words in (["get", "k"], ["set", "k", "v"], ["wait", "k"], ["add", "k", "1"]):
            with self.subTest(words):
                self.assert_usage(self.trainyard("store", *words), "store", "inside a worker")


class ProgramsThatCannotBeExecuted(Case):
    """What would run the file that is there is told."""

    def refusal(self, *program):
        finished = self.trainyard("run", "--storage-path", self.storage, "--", *program, cwd=self.place)
        self.assert_status(4, finished)
        return finished.err.splitlines()[0]

    def test_a_script_of_this_directory(self):
        os.chmod(self.write("train.py", "print(1)\n"), 0o644)
        self.assertIn("`python train.py`, or ./train.py", self.refusal("train.py"))
        self.assertIn("not executable; say `python ./train.py`", self.refusal("./train.py"))
        self.assertIn("`sh %s`" % self.write("go.sh", ""), self.refusal(os.path.join(self.place, "go.sh")))

    def test_a_program_of_this_directory(self):
        os.chmod(self.write("my-trainer", "#!/bin/sh\n"), 0o755)
        self.assertIn("for the file here say ./my-trainer, ", self.refusal("my-trainer"))
        os.chmod(os.path.join(self.place, "my-trainer"), 0o644)
        self.assertIn("chmod +x ./my-trainer", self.refusal("./my-trainer"))

    def test_a_directory(self):
        os.mkdir(os.path.join(self.place, "my-data"))
        for name in ("my-data", "./my-data", self.place):
            self.assertIn("it is a directory", self.refusal(name))

    def test_no_file_at_all(self):
        self.assertIn("No such file or directory in PATH=", self.refusal("no-such-program"))


class Places(Case):
    """Where runs cannot be kept, the option that names another place is told."""

    def test_a_name_that_exists(self):
        self.assert_status(0, self.run_workers("--name", "a", "--", "/bin/true"))
        again = self.assert_status(2, self.run_workers("--name", "a", "--", "/bin/true"))
        self.assert_line(again, "run", "exists already", "--resume", "--name")
        self.assertNotIn("resume=True", again.err)

    def test_a_home_where_nothing_can_be_made(self):
        finished = self.trainyard("run", "--", "/bin/true", env={"HOME": "/proc"})
        self.assert_usage(finished, "run", "/proc/trainyard_runs", "--storage-path")

    @unittest.skipUnless(os.getuid() == 0, "only root can become a user without a name")
    def test_no_home(self):
        command = self.command_for_all()
        for words in (["run", "--", "/bin/true"], ["status"], ["logs", "x"]):
            with self.subTest(words):
                finished = self.trainyard(*words, command=command, env={"HOME": None}, user=54321, cwd="/")
                self.assert_usage(finished, words[0], "no home directory", "--storage-path")


class TheLastWord(Case):
    REPORT = ('mkdir -p c && "%s" report loss=0.25 step=1234567 --checkpoint c && "%s" report loss=0.98 step=1234567 --checkpoint c'
              % (COMMAND, COMMAND))

    def last_line(self, *args, status=0):
        return self.assert_status(status, self.run_workers("--name", "mine", *args)).err.splitlines()[-1]

    def test_of_a_run_that_succeeded(self):
        line = self.last_line("--", "true")
        self.assertRegex(line, r"^trainyard run: mine succeeded in [0-9.]+ m?s; %s$" % re.escape(os.path.join(self.storage, "mine")))

    def test_metrics_and_the_last_checkpoint(self):
        line = self.last_line("--", "sh", "-c", self.REPORT)
        self.assertRegex(line, r"mine succeeded in [0-9.]+ \w+: loss 0.98  step 1234567; last checkpoint: checkpoint_000002; /")

    def test_the_best_checkpoint(self):
        options = ["--checkpoint-score-attribute", "loss", "--checkpoint-score-order", "min"]
        self.assertIn("; best checkpoint by loss: checkpoint_000001; /", self.last_line(*options, "--", "sh", "-c", self.REPORT))

    def test_the_command_that_goes_on(self):
        words = ["sh", "-c", 'echo "$1"; test -e again || { touch again; echo up; sleep 600; }', "-", "it's\n$HOME \\ \u00e9"]
        for number, outcome in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "preempted")):
            with self.subTest(outcome):
                name = "a b'%s" % outcome
                mark = os.path.join(self.place, "again")
                if os.path.exists(mark):
                    os.remove(mark)
                process = self.start_run("--name", name, "--grace", "1", "--no-prefix", "--", *words)
                self.wait_for(lambda: os.path.exists(mark), process=process)
                process.send_signal(number)
                finished = self.finish(process)
                self.assertEqual(128 + number, finished.status, finished)
                self.assertIn(outcome + " by", finished.err)
                [command] = [line.partition("to go on: ")[2] for line in finished.err.splitlines() if "to go on: " in line]
                again = subprocess.run(["bash", "-c", command], cwd=self.place, env=self.environment, capture_output=True, text=True)
                self.assertEqual(0, again.returncode, again.stderr)
                self.assertEqual(words[-1] + "\n", again.stdout)
                self.assertIn(name + " succeeded in ", again.stderr)


class Environment(Case):
    SHOW = ["--no-prefix", "--", "/bin/sh", "-c", 'echo "${A-unset} ${B-unset} ${OMP_NUM_THREADS-unset}"']

    def show(self, *args, env=None):
        return self.assert_status(0, self.run_workers(*args, *self.SHOW, env=env)).out.rstrip("\n")

    def test_inherited_given_and_repeated(self):
        self.assertEqual("here unset unset", self.show(env={"A": "here"}))
        self.assertEqual("there x=y $(z) unset", self.show("--env", "A=there", "--env", "B=1", "--env", "B=x=y $(z)", env={"A": "here"}))
        self.assertEqual("here unset 7", self.show("--env", "A", "--env", "OMP_NUM_THREADS=7", env={"A": "here"}))
        self.assertEqual(" unset unset", self.show("--env", "A="))

    def test_config_file_below_options(self):
        path = self.write("c.yaml", "run_config: {name: from-file, worker_runtime_env: {env_vars: {A: file, B: file}}}\n")
        self.assertEqual("file option unset", self.show("--config", path, "--env", "B=option", env={"A": "here"}))
        self.assertEqual(["from-file"], os.listdir(self.storage))

    def test_no_shell_reads_anything(self):
        marks = {"BASH_ENV": self.write("mark.sh", "echo sourced\n"), "ENV": os.path.join(self.place, "mark.sh")}
        name = "a b;$(touch %s)&|" % "x"
        finished = self.run_workers("--name", name, "--no-prefix", "--", "/bin/echo", "$HOME", "`id`", "*", ";", env=marks)
        self.assertEqual("$HOME `id` * ;\n", self.assert_status(0, finished).out)
        self.assertEqual([name], os.listdir(self.storage))
        self.assertFalse(os.path.exists(os.path.join(self.place, "x")))


class Completion(Case):
    """Real shells, in which `trainyard` completes as the command does, and shows what it is called with."""

    OTHER = "an other \\ run's"
    LINES = (("stat\t", "<status>"), ("status --form\tjs\t", "<status><--format><json>"), ("status --format=te\t", "<status><--format=text>"),
             ("run --placement STRICT_S\t", "<run><--placement><STRICT_SPREAD>"), ("run --config nod\t", "<run><--config><nodes.yaml>"),
             ("logs mi\t", "<logs><mine>"), ("rm an\t", "<rm><" + OTHER + ">"),
             ("rm 'an\t", "<rm><" + OTHER + ">"), ("rm \"an\t", "<rm><" + OTHER + ">"), ("stop --storage-path mo\t th\t", "<stop><--storage-path><more><third>"),
             ("checkpoints ver\tan\t", "<checkpoints><verify><" + OTHER + ">"), ("run -n 2 -- unmist\t", "<run><-n><2><--><unmistakable>"))

    def setUp(self):
        super().setUp()
        shown = self.write("trainyard", '#!/bin/sh\n[ "$1" != completion ] || exec "%s" "$@"\nprintf "<%%s>" "$@"\necho\n' % COMMAND)
        for program in shown, self.write("unmistakable", ""):
            os.chmod(program, 0o755)
        self.write("nodes.yaml", "")
        self.environment.update(PATH=self.place + ":" + os.environ["PATH"], TRAINYARD_STORAGE=self.storage, TERM="dumb")
        self.assert_status(0, self.trainyard("run", "--name", "mine", "--", "true"))
        for path in (self.storage, self.OTHER), (self.place, "more", "third"):
            shutil.copytree(os.path.join(self.storage, "mine"), os.path.join(*path))

    def assert_completes(self, *shell, begin):
        """What is typed into the shell, on a terminal of its own, gives the words that are expected."""
        master, slave = pty.openpty()
        process = subprocess.Popen(shell, stdin=slave, stdout=slave, stderr=slave, env=self.environment, cwd=self.place, start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(slave)
        with open(master, "r+b", buffering=0) as terminal:
            for text, expected in ((begin, "<begun>"), *(("trainyard " + line, words) for line, words in self.LINES)):
                terminal.write(text.encode() + b"\n")
                seen, limit = "", time.monotonic() + 180
                while expected not in seen.replace("\r", "").replace("/>", ">"):  # as zsh leaves a directory
                    self.assertLess(time.monotonic(), limit, (text, seen))
                    if select.select([terminal], [], [], 1)[0]:
                        seen += terminal.read(4096).decode()

    def test_bash(self):
        self.assert_completes("bash", "--norc", "--noprofile", "-i", begin="source <(trainyard completion bash); trainyard begun")

    def test_zsh(self):
        """With those of its functions alone that are called here: it reads the first lines of all."""
        functions = "/usr/share/zsh/functions/Completion"
        for name in ("Unix/_files", "Unix/_path_files", "Unix/_list_files", "Unix/_have_glob_qual", "Zsh/_command_names"):
            os.symlink(os.path.join(functions, name), os.path.join(self.place, os.path.basename(name)))
        self.assert_completes("zsh", "-f", "-i", begin="fpath=(%s %s/Base %s); autoload -Uz compinit; compinit -u -D; "
                              "source <(trainyard completion zsh); trainyard begun" % (functions, functions, self.place))

    def test_fish(self):
        for line, expected in self.LINES:
            *before, word = re.findall("<(.*?)>", expected)
            with self.subTest(line):
                asked = " ".join(["trainyard", *before, re.split("[ \t]", line[:-1])[-1]])
                finished = subprocess.run(["fish", "--no-config", "-c", "trainyard completion fish | source; complete -C $argv[1]", asked],
                                          env=self.environment, cwd=self.place, capture_output=True, text=True)
                self.assertEqual("", finished.stderr)
                self.assertIn(word, [row.split("\t")[0] for row in finished.stdout.splitlines()])

    def test_what_may_stand_in_place_of_a_word(self):
        for line, *expected in (
                ([], "run\trun a program on many workers", "version\tprint the version, and those of the libraries in use"),
                (["run", "--framework", ""], "plain", "torch", "jax", "tensorflow", "mpi"), (["run", "--sample", ""], "off"),
                (["run", "--resume", ""], "mine", self.OTHER), (["run", "-n", ""],), (["run", "--name", ""],), (["run", "-n2", ""], ":programs"),
                (["run", "true", "--na"], ":files"), (["torchrun", "--standalone", ""], ":files"), (["status", "mine", ""],),
                (["rm", "mine", ""], "mine", self.OTHER), (["checkpoints", ""], "list", "verify"),
                (["checkpoints", "list", ""], "mine", self.OTHER, ":files"), (["logs", "--storage-path=" + self.place + "/more", ""], "third"),
                (["logs", "--storage-path", "=", self.place + "/more", ""], "third"), (["logs", "--storage-path", ""], ":directories"),
                (["logs", "--storage-path", "/dev/null", ""],), (["logs", "-", ""],),
                (["store", ""], "get", "set", "wait", "add"), (["nothing", ""],), (["prune", ""],)):
            finished = self.assert_status(0, self.trainyard("completion", "words", *line))
            with self.subTest(line):
                told = finished.out.splitlines()
                self.assertEqual(sorted(expected), sorted(told) if line else [row for row in told if row in expected])


class EmptyStorage(Case):
    def test_status_of_no_runs(self):
        finished = self.assert_status(0, self.trainyard("status", "--storage-path", self.storage))
        self.assertIn("No runs", finished.out)
        data = self.trainyard("status", "--storage-path", self.storage, "--format", "json").json
        self.assertEqual({"runs": []}, data)
        self.assert_nothing_made()

    def test_unknown_run(self):
        for command in ("status", "logs"):
            with self.subTest(command):
                self.assert_usage(self.trainyard(command, "nope", "--storage-path", self.storage), command, "nope")

    def test_a_name_is_no_path(self):
        for name in ("../x", "a/b", ".hidden", "", "x" * 4096, "a\nb"):
            for command in ("status", "logs"):
                with self.subTest(command=command, name=name[:10]):
                    self.assert_usage(self.trainyard(command, "--storage-path", self.storage, "--", name), command)


if __name__ == "__main__":
    main()
