"""Machines that are taken away: workers save, the run ends "preempted" with its own exit status, and goes on where it was."""

import json
import os
import signal

from runs import NEVER, RunCase, children, main

# Reports a checkpoint when it is told to stop; begins at the last one.
SAVER = """
say() { printf '%s\\n' "$*" >&$TRAINYARD_FD; }
hear() { IFS= read -r answer <&$TRAINYARD_FD; }
save() {
    say preemption; hear; IFS= read -r -N ${answer#value } info <&$TRAINYARD_FD; echo "told $info"
    say 'checkpoint {"step": 7}'; hear
    rest=${answer#directory }; number=${rest%% *}; path=${rest#* }
    mkdir -p $path && echo 7 > $path/step.$RANK
    say "commit $number []"; hear; echo "saved $answer"
    exit 0
}
if [ -n "$TRAINYARD_CHECKPOINT" ]; then echo "goes on from $(cat $TRAINYARD_CHECKPOINT/step.$RANK)"; exit 0; fi
trap save TERM
say ready
: > ready.$RANK
while :; do sleep 0.02; done
"""


class Preemption(RunCase):
    def saver(self, n, *options):
        self.forget()
        return self.start_run("--name", "run", "-n", n, "--grace", "60s", *options, "--", "bash", self.write("work/saver.sh", SAVER))

    def assert_preempted(self, finished, status):
        self.assert_status(status, finished)
        one = self.status("run")
        self.assertEqual(("preempted", status), (one["state"], one["exit_status"]))
        return one

    def test_workers_save_and_the_run_goes_on_later(self):
        process = self.saver(3)
        self.ready(process, 3)
        process.send_signal(signal.SIGTERM)
        finished = self.finish(process)
        one = self.assert_preempted(finished, 143)
        self.assertEqual(3, finished.out.count("saved ok"), repr(finished))
        self.assertEqual(1, one["checkpoints"])
        self.assertIn("preempted by signal 15 (SIGTERM)", finished.err)
        info = json.loads(finished.out.split("told ", 1)[1].splitlines()[0])
        self.assertEqual([0, 1, 2], info["ranks"])
        self.assertEqual([os.uname().nodename], info["nodes"])
        again = self.assert_status(0, self.finish(self.saver(3, "--resume")))
        self.assertEqual(3, again.out.count("goes on from 7"), repr(again))
        self.assertEqual("succeeded", self.status("run")["state"])

    def test_another_signal(self):
        process = self.saver(1, "--preempt-signal", "USR1")
        self.ready(process, 1)
        process.send_signal(signal.SIGUSR1)
        self.assert_preempted(self.finish(process), 128 + signal.SIGUSR1)

    def test_sigterm_is_an_interrupt_then(self):
        process = self.saver(1, "--preempt-signal", "USR1")
        self.ready(process, 1)
        process.send_signal(signal.SIGTERM)
        self.assert_status(143, self.finish(process))
        self.assertEqual("interrupted", self.status("run")["state"])

    def test_a_preemption_is_no_failure(self):
        process = self.saver(2, "--max-failures", "5")
        self.ready(process, 2)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(1, self.assert_preempted(self.finish(process), 143)["attempts"])

    def test_the_second_signal_does_not_wait(self):
        process = self.start_run("--name", "run", "--grace", "1h", "--", "sh", "-c", "trap '' TERM; : > ready.0; sleep %s" % NEVER)
        self.ready(process, 1)
        process.send_signal(signal.SIGTERM)
        self.wait_for(lambda: "stop" in self.kinds(), "the stop on record", process)
        process.send_signal(signal.SIGTERM)
        self.assert_preempted(self.finish(process), 143)

    def kinds(self):
        import sqlite3

        try:
            with sqlite3.connect("file:%s?mode=ro" % os.path.join(self.storage, "run", "run.db"), uri=True) as journal:
                return [row[0] for row in journal.execute("SELECT kind FROM events")]
        except sqlite3.Error:
            return []

    def test_a_node_that_is_taken_away(self):
        cluster = self.write("work/cluster.json", json.dumps({"nodes": [{"name": "n[1-2]", "resources": {"CPU": 1}}]}))
        process = self.saver(2, "--cluster", cluster)
        self.ready(process, 2)
        os.kill(self.parent_of_rank(1), signal.SIGTERM)
        finished = self.finish(process)
        self.assert_preempted(finished, 143)
        self.assertIn("preempted: the agent was told to end, on node n2", finished.err)
        self.assertEqual(2, finished.out.count("saved ok"), repr(finished))
        for line in finished.out.splitlines():
            if " told " in line:
                info = json.loads(line.split("told ", 1)[1])
                self.assertEqual(([1], ["n2"]), (info["ranks"], info["nodes"]))

    def parent_of_rank(self, rank):
        """The agent of a rank's worker."""
        for agent in children(self.process.pid):
            for worker in children(agent):
                with open("/proc/%d/environ" % worker, "rb") as file:
                    if b"RANK=%d" % rank in file.read().split(b"\0"):
                        return agent
        self.fail("rank %d has no agent" % rank)

    def start_run(self, *args, **more):
        self.process = super().start_run(*args, **more)
        return self.process


if __name__ == "__main__":
    main()
