"""ty_report_failure: what a worker tells of the exception that it ends with is on the screen once, and in its log (docs/faults.md W5)."""
import json
import os
import subprocess

import runs
from harness import BUILD

PROGRAM = os.path.join(BUILD, "tests", "e2e", "report_program")


def failure(text="boom"):
    return json.dumps({"traceback": "Traceback of %s\nMine: it went wrong\n" % text})


class ToldFailure(runs.RunCase):
    def tell(self, *texts, n=1, options=()):
        return self.run_workers("--name", "r", "-n", n, "--num-cpus", 64, *options, "--", PROGRAM, "fail", *texts)

    def log(self, rank):
        return self.read(self.storage, "r", "logs", "rank-%d.log" % rank)

    def test_what_is_no_failure_is_refused(self):
        whole = failure()
        finished = self.assert_status(5, self.tell("NULL", "", "[]", "{}", '{"traceback": 3}', "{", "large", whole))
        told = [line.split(" ", 3)[3] for line in finished.out.splitlines()]
        self.assertEqual(["TY_EUSAGE"] * 7 + ["ok"], [line.split(" ")[0] for line in told], finished.out)
        self.assertTrue(all('a "traceback"' in line for line in told[2:6]), finished.out)
        self.assertIn("1048576", told[6])

    def test_outside_of_a_run_nobody_hears(self):
        done = subprocess.run([PROGRAM, "fail", failure()], stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual(5, done.returncode)
        self.assertIn("told: TY_EUNSUPPORTED ", done.stdout)

    def test_the_screen_shows_it_once(self):
        finished = self.assert_status(5, self.tell(failure(), n=4))
        self.assertEqual(1, finished.err.count("Traceback of boom"), finished.err)
        self.assertEqual(1, finished.err.count("Mine: it went wrong"), finished.err)
        self.assertIn("exited with code 5", finished.err)
        self.assertNotIn("Traceback", finished.out)
        self.assert_clean()

    def test_it_is_in_the_log_of_its_rank(self):
        self.assert_status(5, self.tell(failure()))
        self.assertIn("Traceback of boom\nMine: it went wrong\n", self.log(0))

    def test_what_a_terminal_obeys_is_escaped_on_the_screen_alone(self):
        finished = self.assert_status(5, self.tell(failure("\x1b[31m\r")))
        self.assertIn("Traceback of \\x1b[31m", finished.err)
        self.assertNotIn("\x1b", finished.err)
        self.assertIn("Traceback of \x1b[31m", self.log(0))

    def test_the_last_of_several_attempts_is_shown(self):
        script = 'exec "$0" fail "{\\"traceback\\": \\"attempt $TRAINYARD_ATTEMPT went wrong\\"}"'
        finished = self.assert_status(5, self.run_workers("--name", "r", "--max-failures", 1, "--", "sh", "-c", script, PROGRAM))
        self.assertEqual(1, finished.err.count("attempt 2 went wrong"), finished.err)
        self.assertIn("first cause: rank 0 exited with code 5", finished.err)


if __name__ == "__main__":
    runs.main()
