"""share: the processor time of a run's workers beside two busy processes, each in a session of its own, as the programs of
other terminals are. The peer is torchrun's way: every worker in a session of its own."""
import glob
import os
import subprocess
import sys

WORKERS, BUSY, SECONDS = 2, 2, 4
WITHIN = 0.10
BURN = """
import os, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
if len(sys.argv) > 2:
    open(os.path.join(sys.argv[2], "used.%d" % os.getpid()), "w").write(str(time.process_time()))
"""


def _used(bench, start):
    """Seconds of processor time that the workers had in all, of SECONDS on every core."""
    place = os.path.join(bench.storage(), "share")
    os.makedirs(place)
    busy = [subprocess.Popen([sys.executable, "-c", BURN, "1000"], start_new_session=True) for _ in range(BUSY)]
    try:
        start([sys.executable, "-c", BURN, str(SECONDS), place])
    finally:
        for process in busy:
            process.kill()
            process.wait()
    used = sum(float(open(path).read()) for path in glob.glob(place + "/used.*"))
    bench.clear_storage()
    return used


def run(bench):
    def ours(program):
        bench.time(bench.trainyard(WORKERS, *program))

    def alone(program):
        for process in [subprocess.Popen(program, start_new_session=True) for _ in range(WORKERS)]:
            process.wait()

    share, other = _used(bench, ours), _used(bench, alone)
    bench.row("share", f"{WORKERS} workers beside {BUSY} busy processes", f"{share:.2f} s of {SECONDS} s",
              f"a session each {other:.2f} s", f"within {WITHIN:.0%}", share >= other * (1 - WITHIN), share=share, sessions=other)
