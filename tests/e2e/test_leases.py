"""Leases: runs of one machine share its devices without ever holding the same one; who must wait is told for what, and goes on."""

import os
import random
import signal
import subprocess
import time
import unittest

from harness import BUILD, COMMAND
from runs import NEVER, PYTHON, RunCase, children, main, soak, state_of

# Every worker takes its devices in a file that all runs share, under a lock, and fails when one is more than whole.
HOLD = r"""
import fcntl, os, sys, time
ids = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
mine = [ids[int(i)] for i in os.environ["TRAINYARD_DEVICES"].split(",")]
amount, seconds, ledger = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]

def take(sign):
    with open(ledger, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        held = {}
        for line in file:
            device, part = line.split()
            held[device] = held.get(device, 0) + float(part)
        for device in mine:
            part = min(amount, 1)
            if sign > 0 and held.get(device, 0) + part > 1 + 1e-9:
                sys.exit("device %s is held by somebody else: %r" % (device, held))
            file.write("%s %r\n" % (device, sign * part))
take(1)
time.sleep(seconds)
take(-1)
"""


# Holds a file as a run holds its lease.
LOCK = r"""
import fcntl, struct, sys, time
F_OFD_SETLK = 37
file = open(sys.argv[1], "r+")
fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
print("locked", flush=True)
time.sleep(1000)
"""


class LeaseCase(RunCase):
    GPUS = ("--num-gpus", "2", "--use-gpu", "--num-cpus", "64")

    def hold(self, name, *args, n=1, gpus=2, script=": > ready.$TRAINYARD_RUN; exec sleep " + NEVER, **more):
        return self.shell(script, "--name", name, "-n", n, "--num-gpus", gpus, "--use-gpu", "--num-cpus", 64, *args, **more)

    def up(self, process, name):
        self.wait_for_files(process, "ready." + name)
        return process

    def waiting(self, process, name):
        """The run has said in its journal that it waits."""
        def waits():
            if not os.path.exists(os.path.join(self.storage, name, "run.db")):
                return None
            one = self.status(name)
            return one if one["state"] == "waiting" else None
        return self.wait_for(waits, "a run that waits", process)

    def release(self, process, status=130):
        process.send_signal(signal.SIGINT)
        return self.assert_status(status, self.finish(process))


class Waiting(LeaseCase):
    def stacks(self, name, *args):
        return self.start("stacks", "--storage-path", self.storage, name, *args)

    def test_stacks_of_workers_that_have_not_begun(self):
        holder = self.up(self.hold("holder", n=2), "holder")
        waiter = self.hold("waiter")
        self.waiting(waiter, "waiter")
        for rank in ((), ("--rank", "0")):
            self.assert_line(self.assert_status(2, self.finish(self.stacks("waiter", *rank))), "stacks", "waiter: its workers have not started yet")
        self.release(holder)
        self.up(waiter, "waiter")
        self.release(waiter)

    def test_stacks_wait_for_workers_that_begin(self):
        def shown(number):
            """Whether a look that began before the worker tells of it; a busy test may come too late to stop it while it waits."""
            holder, waiter = "holder-%d" % number, "waiter-%d" % number
            holding = self.up(self.hold(holder, n=2), holder)
            waits = self.hold(waiter)
            self.waiting(waits, waiter)
            stacks = self.stacks(waiter)
            self.wait_for(lambda: state_of(stacks.pid) in "SZ")
            stacks.send_signal(signal.SIGSTOP)
            self.release(holding)
            self.up(waits, waiter)
            self.wait_for(lambda: self.finish(self.stacks(waiter)).status == 0, "a worker on record")
            stacks.send_signal(signal.SIGCONT)
            told = self.finish(stacks)
            self.release(waits)
            return told.status == 0 and "sleep" in told.out

        self.assertTrue(any(shown(number) for number in range(20)))

    def test_waits_says_so_and_goes_on(self):
        holder = self.up(self.hold("holder", n=2), "holder")
        waiter = self.hold("waiter", script="echo mine $CUDA_VISIBLE_DEVICES")
        one = self.waiting(waiter, "waiter")
        self.assertIn("GPU", one["waits_for"])
        self.assertIn("run holder of ", one["waits_for"])
        self.assertIn("(pid %d) has held 2 GPU since 20" % holder.pid, one["waits_for"])
        self.assertLessEqual(one["waits_since"], time.time() + 1)
        text = self.trainyard("status", "waiter", "--storage-path", self.storage).out
        self.assertIn("waiting", text)
        self.assertIn("waits since  20", text)
        self.assertRegex(self.trainyard("status", "--storage-path", self.storage).out, r"waiter +waiting")
        self.release(holder)
        finished = self.assert_status(0, self.finish(waiter))
        self.assertIn("mine 0", finished.out)
        said = [line for line in finished.err.splitlines() if "waiting" in line]
        self.assertEqual(1, len(said), finished.err)
        for word in ("GPU", "run holder of ", "since 20"):
            self.assertIn(word, said[0])
        self.assert_clean()
        self.assertEqual("succeeded", self.status("waiter")["state"])
        self.assertIsNone(self.status("waiter")["waits_for"])

    def test_goes_on_when_the_holder_ends_however(self):
        for how in ("by itself", "controller", "agent", "worker"):
            with self.subTest(how):
                self.forget()
                name = how.replace(" ", "-")
                script = ": > ready.$TRAINYARD_RUN; while [ ! -e go ]; do sleep 0.01; done"
                holder = self.up(self.hold(name, script=script, n=2), name)
                waiter = self.hold("after-" + name, script="true")
                self.waiting(waiter, "after-" + name)
                agent, = self.agents(holder)
                if how == "by itself":
                    self.write("work/go", "")
                elif how == "controller":
                    holder.kill()
                elif how == "agent":
                    os.kill(agent, signal.SIGKILL)
                else:
                    os.kill(children(agent)[0], signal.SIGKILL)
                self.assert_status(0, self.finish(waiter))
                self.finish(holder)
                self.assert_clean()

    def test_the_lease_lasts_until_the_workers_are_gone(self):
        """The controller is dead, but a worker that needs its time still has the device."""
        script = "trap 'sleep 0.1; echo done > held; exit 0' TERM; : > ready.$TRAINYARD_RUN; while :; do sleep 0.01; done"
        holder = self.up(self.hold("holder", script=script, gpus=1), "holder")
        waiter = self.hold("waiter", script="cat held", gpus=1)
        self.waiting(waiter, "waiter")
        holder.kill()
        self.assertIn("done", self.assert_status(0, self.finish(waiter)).out)
        self.finish(holder)

    def test_waits_for_as_long_as_what_is_free_does_not_do(self):
        one = self.up(self.hold("one"), "one")
        other = self.up(self.hold("other"), "other")
        waiter = self.hold("waiter", "--resources", "GPU=2", script="echo mine $CUDA_VISIBLE_DEVICES")
        self.waiting(waiter, "waiter")
        self.release(one)
        self.wait_for(lambda: "run other of" in self.status("waiter")["waits_for"]
                      and "run one of" not in self.status("waiter")["waits_for"], "a new reason", waiter)
        self.release(other)
        self.assertIn("mine 0,1", self.assert_status(0, self.finish(waiter)).out)

    def test_what_can_never_fit_does_not_wait(self):
        holder = self.up(self.hold("holder"), "holder")
        finished = self.finish(self.hold("waiter", "--resources", "GPU=3", script="true"))
        self.assert_status(3, finished)
        self.assertNotIn("waiting", finished.err)
        self.assertFalse(os.path.exists(os.path.join(self.storage, "waiter")))
        self.release(holder)

    def test_those_who_need_no_device_do_not_wait(self):
        holder = self.up(self.hold("holder", n=2), "holder")
        self.assert_status(0, self.run_workers("-n", "2", "--", "true"))
        self.release(holder)

    def test_no_wait(self):
        holder = self.up(self.hold("holder", n=2), "holder")
        finished = self.finish(self.hold("hasty", "--no-wait", script="true"))
        self.assert_status(3, finished)
        self.assert_line(finished, "run", "GPU", "run holder of ", "pid %d" % holder.pid, "since 20")
        self.assertFalse(os.path.exists(os.path.join(self.storage, "hasty")))
        self.release(holder)
        self.assert_status(0, self.finish(self.hold("hasty", "--no-wait", script="true")))
        self.assert_clean()

    def test_interrupted_while_it_waits(self):
        holder = self.up(self.hold("holder", n=2), "holder")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                name = "waiter-%d" % number
                waiter = self.hold(name, script="true")
                self.waiting(waiter, name)
                waiter.send_signal(number)
                self.assert_status(128 + number, self.finish(waiter))
                self.assert_ended(name, "preempted" if number == signal.SIGTERM else "interrupted")
        self.release(holder)
        self.assert_clean()

    def test_many_wait_and_all_go_on(self):
        holder = self.up(self.hold("holder", n=2), "holder")
        waiters = [self.hold("waiter-%d" % i, "--resources", "GPU=2", script="echo had it") for i in range(6)]
        for i, waiter in enumerate(waiters):
            self.waiting(waiter, "waiter-%d" % i)
        self.release(holder)
        for waiter in waiters:
            self.assertIn("had it", self.assert_status(0, self.finish(waiter)).out)
        self.assert_clean()

    def test_a_stopped_holder_keeps_its_devices(self):
        holder = self.up(self.hold("holder", n=2), "holder")
        agent, = self.agents(holder)
        for pid in (holder.pid, agent):
            os.kill(pid, signal.SIGSTOP)
        waiter = self.hold("waiter", script="true")
        self.waiting(waiter, "waiter")
        time.sleep(0.2)
        self.assertIsNone(waiter.poll())
        for pid in (holder.pid, agent):
            os.kill(pid, signal.SIGCONT)
        self.release(holder)
        self.assert_status(0, self.finish(waiter))


class Sharing(LeaseCase):
    def test_two_runs_have_different_devices(self):
        one = self.up(self.hold("one", script="echo $CUDA_VISIBLE_DEVICES > dev.one; : > ready.one; exec sleep " + NEVER), "one")
        other = self.up(self.hold("other", script="echo $CUDA_VISIBLE_DEVICES > dev.other; : > ready.other; exec sleep " + NEVER), "other")
        self.assertEqual(["0", "1"], sorted([self.read("dev.one").strip(), self.read("dev.other").strip()]))
        self.release(one)
        again = self.up(self.hold("again", script="echo $CUDA_VISIBLE_DEVICES > dev.again; : > ready.again; exec sleep " + NEVER), "again")
        self.assertEqual(self.read("dev.one"), self.read("dev.again"))
        self.release(other)
        self.release(again)

    def test_fractions_share_a_device(self):
        held = []
        for i in range(4):
            name = "half-%d" % i
            script = "echo $CUDA_VISIBLE_DEVICES > dev.%s; : > ready.%s; exec sleep %s" % (name, name, NEVER)
            held.append(self.up(self.hold(name, "--resources", "GPU=0.5", script=script), name))
        self.assertEqual(["0", "0", "1", "1"], [self.read("dev.half-%d" % i).strip() for i in range(4)])
        finished = self.finish(self.hold("more", "--resources", "GPU=0.5", "--no-wait", script="true"))
        self.assert_status(3, finished)
        self.assertIn("and 1 more", finished.err)
        self.release(held[2])
        self.assert_status(3, self.finish(self.hold("whole", "--no-wait", script="true")))
        self.assert_status(0, self.finish(self.hold("more", "--resources", "GPU=0.5", "--no-wait", script="true")))
        for process in (held[0], held[1], held[3]):
            self.release(process)
        self.assert_clean()

    def test_devices_are_the_same_under_any_mask(self):
        """What one run sees as its first device may be another one's second."""
        two = {"CUDA_VISIBLE_DEVICES": "0,1"}
        swapped = {"CUDA_VISIBLE_DEVICES": "1,0"}
        one = self.up(self.hold("one", env=two), "one")
        finished = self.finish(self.hold("other", script="echo mine $CUDA_VISIBLE_DEVICES", env=swapped))
        self.assertIn("mine 1\n", self.assert_status(0, finished).out)
        self.release(one)

    def test_a_run_inside_a_worker_must_wait_as_any_other(self):
        """The devices of the outer run are held, also for what its own workers start."""
        inner = "'%s' run --storage-path inner --num-gpus 1 --use-gpu --no-wait -- true" % COMMAND
        finished = self.finish(self.hold("outer", gpus=1, script=inner))
        self.assert_status(3, finished)
        self.assertIn("run outer of ", finished.err)

    def test_never_twice_at_once(self):
        """Many runs at once, whole devices and fractions, some of them killed: a device is never held beyond whole."""
        script = self.write("work/hold.py", HOLD)
        ledger = os.path.join(self.work, "ledger")
        choice = random.Random(7)
        processes = []
        n_runs = soak("LEASE_RUNS", 24)
        for i in range(n_runs):
            n, amount = choice.choice([(1, "1"), (2, "1"), (1, "2"), (1, "0.5"), (2, "0.5"), (3, "0.25"), (4, "0.5"), (1, "0.3")])
            processes.append(self.start_run("--name", "r%d" % i, "-n", n, "--resources", "GPU=" + amount, *self.GPUS, "--",
                                            PYTHON, "-S", "-E", script, amount, "%.3f" % (0.05 * choice.random()), ledger))
            time.sleep(0.02 * choice.random())
        for process in processes:
            self.assert_status(0, self.finish(process, 120 + 2 * n_runs))  # there is no queue: any may be the last
        self.assert_clean()
        with open(ledger) as file:
            held = {}
            for line in file:
                device, part = line.split()
                held[device] = held.get(device, 0) + float(part)
        self.assertEqual({"0", "1"}, set(held))
        for left in held.values():
            self.assertAlmostEqual(0, left)

    def test_never_twice_at_once_when_holders_are_killed(self):
        """A worker takes its time to end when its run was killed; who gets the devices then must not find it any more."""
        script = "echo $$ > pid.$TRAINYARD_RUN; : > ready.$TRAINYARD_RUN; trap 'sleep 0.02; exit 0' TERM; while :; do sleep 0.005; done"
        for i in range(soak("LEASE_KILLS", 10)):
            self.forget()
            holder = self.up(self.hold("holder-%d" % i, "--resources", "GPU=2", script=script), "holder-%d" % i)
            waiter = self.hold("waiter-%d" % i, "--resources", "GPU=2", script="! kill -0 $(cat pid.holder-%d)" % i)
            time.sleep(0.003 * i)
            holder.kill()
            self.assert_status(0, self.finish(waiter))
            self.finish(holder)
        self.assert_clean()


class Cards(LeaseCase):
    """With a stand-in for the driver: devices are known by their UUIDs, whatever a run calls them."""

    def setUp(self):
        super().setUp()
        self.environment.update(FAKE_NVML="2:NVIDIA H100", TRAINYARD_NVML_LIBRARY=os.path.join(BUILD, "tests", "unit", "fake_nvml.so"))

    def card(self, name, script, n=1, **env):
        return self.shell(script, "--name", name, "-n", n, "--use-gpu", "--no-wait", "--num-cpus", 64, env=env)

    def test_a_card_and_its_parts(self):
        """MIG: who has the card has all instances of it, and who has one of these keeps others from the card, not from the other instances."""
        new, old = "MIG-00000001-aaaa", "MIG-GPU-00000001-1111-2222-3333-444444444444/7/0"
        other = "MIG-00000000-bbbb"
        for name, held, refused, free in (("card", "1", (new, old), ("0", other)), ("new", new, ("1", new), ("0", other, "MIG-00000001-cccc", old)),
                                          ("old", old, ("1", old), ("0", new, other))):
            holder = self.up(self.card(name, ": > ready.%s; exec sleep %s" % (name, NEVER), CUDA_VISIBLE_DEVICES=held), name)
            for number, visible in enumerate(refused):
                finished = self.finish(self.card("%s-refused-%d" % (name, number), "true", CUDA_VISIBLE_DEVICES=visible))
                self.assert_status(3, finished)
            for number, visible in enumerate(free):
                finished = self.finish(self.card("%s-free-%d" % (name, number), "echo $CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES=visible))
                self.assertEqual("[rank 0] %s\n" % visible, self.assert_status(0, finished).out)
            self.release(holder)
        both = self.card("both", "true", n=2, CUDA_VISIBLE_DEVICES="%s,%s" % (new, old))
        self.assert_status(0, self.finish(both))

    def test_one_card_by_all_its_names(self):
        uuid = "GPU-0000000%d-1111-2222-3333-444444444444"
        holder = self.up(self.card("holder", ": > ready.holder; exec sleep " + NEVER, CUDA_VISIBLE_DEVICES="1"), "holder")
        for names in ("1", uuid % 1, "GPU-00000001"):
            finished = self.finish(self.card("other", "true", CUDA_VISIBLE_DEVICES=names))
            self.assert_status(3, finished)
            self.assertIn("run holder of ", finished.err)
        fastest = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
        shown = "echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"
        self.assertIn("PCI_BUS_ID 0\n", self.assert_status(0, self.finish(self.card("index", shown))).out)
        self.assertIn("FASTEST_FIRST %s\n" % (uuid % 0), self.assert_status(0, self.finish(self.card("uuid", shown, **fastest))).out)
        finished = self.finish(self.card("unknown", "true", CUDA_VISIBLE_DEVICES="0", **fastest))
        self.assert_status(2, finished)
        self.assert_line(finished, "run", "CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID")
        self.assertFalse(os.path.exists(os.path.join(self.storage, "unknown")))
        self.release(holder)


class LeaseFiles(LeaseCase):
    def test_void_and_foreign_files_hold_nothing(self):
        os.mkdir(self.leases)
        for name, text in (("trainyard-1-0000000000000001.lease", '{"pid": 1, "run": "x", "claims": [{"resource": "GPU", "id": "0", "amount": 10000}]}'),
                           ("trainyard-2-0000000000000002.lease", "not json"), ("trainyard-3-0000000000000003.lease", ""), ("other", "text")):
            self.write(os.path.join("leases", name), text)
        self.assert_status(0, self.finish(self.hold("run", "--no-wait", n=2, script="true")))
        self.assertEqual(["other"], self.lease_files())

    def test_unsafe_directory_is_refused(self):
        os.mkdir(self.leases)
        os.chmod(self.leases, 0o777)
        finished = self.finish(self.hold("run", script="true"))
        self.assertNotEqual(0, finished.status)
        self.assert_line(finished, "run", self.leases, "not safe")
        self.assertFalse(os.path.exists(os.path.join(self.storage, "run")))

    @unittest.skipUnless(os.getuid() == 0, "only root can make what is another's")
    def test_squatted_directory_is_refused(self):
        """Somebody was there first, with whatever mode: he could remove leases. Whose it is, and the cure."""
        os.mkdir(self.leases)
        os.chown(self.leases, 65534, 65534)
        for mode in (0o700, 0o755, 0o1777):
            with self.subTest(mode=oct(mode)):
                os.chmod(self.leases, mode)
                finished = self.finish(self.hold("run", script="true"))
                self.assertNotEqual(0, finished.status)
                self.assert_line(finished, "run", self.leases, "not safe", "belongs to user nobody (65534)",
                                 "sudo install -d -m 1777 -o root /run/trainyard", "TRAINYARD_LEASE_DIR")
                self.assertFalse(os.path.exists(os.path.join(self.storage, "run")))

    def test_directory_behind_a_link_is_refused(self):
        os.mkdir(os.path.join(self.place, "elsewhere"))
        os.symlink("elsewhere", self.leases)
        finished = self.finish(self.hold("run", script="true"))
        self.assertNotEqual(0, finished.status)
        self.assert_line(finished, "run", self.leases, "symbolic link")

    def test_a_lease_of_hostile_text_is_shown_harmless(self):
        os.mkdir(self.leases)
        text = '{"pid": 7, "run": "\\u001b[31mred", "since": 0, "until": 0, "claims": [{"resource": "GPU", "id": "0", "amount": 10000}, ' \
               '{"resource": "GPU", "id": "1", "amount": 99999999}]}'
        path = self.write("leases/trainyard-9-0000000000000009.lease", text)
        holder = subprocess.Popen([PYTHON, "-c", LOCK, path], cwd=self.work, env=self.environment, stdout=subprocess.PIPE)
        holder.stdout.readline()
        finished = self.finish(self.hold("run", "--no-wait", script="true"))
        holder.kill()
        holder.communicate()
        self.assert_status(3, finished)
        self.assertNotIn("\x1b", finished.err)
        self.assertIn("[31mred", finished.err)


class SeveralUsers(LeaseCase):
    """As root, another user can be tried; else there is only one."""

    def as_nobody(self, *args):
        return self.start_as(["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"], *args)

    def start_as(self, prefix, *args):
        place = os.path.join(self.place, "work", "nobody")
        if not os.path.isdir(place):
            os.mkdir(place)
            os.chmod(place, 0o777)
        return subprocess.Popen([*prefix, self.command_for_all(), "run", "--storage-path", os.path.join(place, "runs"), "--num-cpus", "4",
                                 "--num-gpus", "2", "--use-gpu", *args],
                                cwd=place, env=dict(self.environment, HOME=place), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    @unittest.skipUnless(os.getuid() == 0, "only root can become somebody else")
    def test_another_user_waits_too(self):
        os.mkdir(self.leases)
        os.chmod(self.leases, 0o1777)
        holder = self.up(self.hold("holder", n=2), "holder")
        out, err = self.as_nobody("--no-wait", "--", "true").communicate(timeout=180)
        self.assertIn("run holder of root (pid %d)" % holder.pid, err)
        waiter = self.as_nobody("--", "sh", "-c", "id -un")
        self.wait_for(lambda: waiter.stderr.readable() and "waiting" in waiter.stderr.readline(), "word of the wait")
        holder.kill()
        out, err = waiter.communicate(timeout=180)
        self.assertEqual((0, "[rank 0] nobody\n"), (waiter.returncode, out), err)
        self.finish(holder)
        self.assert_clean()

    @unittest.skipUnless(os.getuid() == 0, "only root can become somebody else")
    def test_of_another_user(self):
        """The other way round: root waits for nobody's run, and removes nothing that is nobody's."""
        os.mkdir(self.leases)
        os.chmod(self.leases, 0o1777)
        self.command_for_all()
        holder = self.as_nobody("-n", "2", "--name", "theirs", "--", "sh", "-c", ": > up.$RANK; exec sleep " + NEVER)
        self.wait_for(lambda: os.path.exists(os.path.join(self.work, "nobody", "up.1")), "their workers")
        finished = self.finish(self.hold("mine", "--no-wait", script="true"))
        self.assert_status(3, finished)
        self.assertIn("run theirs of nobody", finished.err)
        waiter = self.hold("mine", script="true")
        self.waiting(waiter, "mine")
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate(timeout=180)
        self.assert_status(0, self.finish(waiter))


if __name__ == "__main__":
    main()
