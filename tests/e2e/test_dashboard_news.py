"""`trainyard dashboard` over HTTP: the streams that tell what changed."""

import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import sqlite3
import time
import unittest

from dashboards import DashboardCase, exchange
from journals import BEGAN, SECOND, Journal, hold, make_a


class News(DashboardCase):
    def live(self, name, reports, seconds=0):
        run = Journal(self.storage, name, live=True)
        run.event(seconds, "run", command=["python"], host="n1", pid=1)
        run.event(seconds, "attempt", 1, workers=1, nodes=1)
        for n in range(1, reports + 1):
            run.report(seconds + n, 1, 0, n, {"loss": 1 / n})
        run.commit()
        return run

    def until_told(self, reply, look):
        """Asks for nothing before the stream tells that there is something."""
        while True:
            self.next_event(reply, "run")
            found = look()
            if found:
                return found

    def next_log(self, reply, rank, size):
        """This log is told next. One that has just been made, and is still to be written, may have been seen before."""
        while (told := self.next_event(reply, "logs")) != {"rank": rank, "size": size}:
            self.assertEqual((rank, 0), (told.get("rank"), told.get("size")))

    def test_the_stream_tells_what_changed(self):
        run = Journal(self.storage, "live", live=True)
        run.begin(1)
        run.commit()
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        self.next_event(reply, "run")
        for n in range(1, 6):
            run.report(n, 1, 0, n, {"loss": 1 / n})
        run.commit()
        self.assertEqual({"id": 5}, self.next_event(reply, "reports"))
        run.log(0, "hello\n")
        self.next_log(reply, 0, 6)
        os.mkdir(os.path.join(self.place, "elsewhere"))
        for name in ("run.db", "run.db-wal", "run.db-shm"):
            os.link(os.path.join(run.path, name), os.path.join(self.place, "elsewhere", name))
        with contextlib.closing(sqlite3.connect(os.path.join(self.place, "elsewhere", "run.db"))) as other:
            other.execute("INSERT INTO reports(time, attempt, rank, number, metrics) VALUES(0, 1, 0, 6, '{}')")
            other.commit()  # of which the kernel tells nobody who watches the run's directory
        self.assertEqual({"id": 6}, self.next_event(reply, "reports"))
        run.done()
        for name in ("run.db", "run.db-wal", "run.db-shm"):
            if os.path.exists(os.path.join(run.path, name)):
                os.unlink(os.path.join(run.path, name))
        self.next_event(reply, "gone")

    def test_the_list_tells_what_changed(self):
        os.makedirs(self.storage)
        server = self.serve()
        reply = self.open_stream(server)
        cursor, rows = 0, {}  # as a page has them, that asks for what changed

        def look():
            nonlocal cursor
            told = server.json(f"/api/runs?after={cursor}")
            cursor = told["cursor"]
            rows.update({one["id"]: one for one in told["runs"]})
            for id in told["gone"]:
                rows.pop(id, None)
            return True

        def until(condition):
            while not condition():
                self.until_told(reply, look)

        run = self.live("live", 2)
        lock = hold(run.path)
        self.addCleanup(lock.close)
        until(lambda: rows)
        (id, found), = rows.items()
        self.assertEqual("live", found["name"])
        run.report(time.time() - BEGAN / SECOND - 26, 1, 0, 3, {"loss": 1})
        run.commit()
        until(lambda: rows[id]["metrics"] == {"loss": 1})
        until(lambda: rows[id]["quiet_s"])  # by the clock alone
        lock.close()
        until(lambda: rows[id]["state"] == "died")  # by its lock alone
        run.done()
        os.rename(run.path, os.path.join(self.place, "old"))
        until(lambda: not rows)

    def test_a_run_that_turns_quiet_or_dies_is_told(self):
        run = self.live("live", 2)
        lock = hold(run.path)
        self.addCleanup(lock.close)
        server = self.serve()
        id = server.ids()["live"]
        numbers = itertools.count(3)

        def is_not_yet():  # on a machine that is busy it may be by the time of the answer
            run.report(time.time() - BEGAN / SECOND - 18, 1, 0, next(numbers), {"loss": 1})
            run.commit()
            return server.json("/api/runs/" + id)["quiet_s"] is None

        self.wait_for(is_not_yet, "a run that goes on")
        reply = self.open_stream(server, id)
        self.until_told(reply, lambda: server.json("/api/runs/" + id)["quiet_s"])
        lock.close()
        self.until_told(reply, lambda: server.json("/api/runs/" + id)["state"] == "died")
        run.done()

    def test_every_log_that_was_written_is_told(self):
        run = self.live("live", 3)
        os.rmdir(os.path.join(run.path, "logs"))
        server = self.serve()
        id = server.ids()["live"]
        self.assertEqual([], server.json(f"/api/runs/{id}/logs")["ranks"])
        reply = self.open_stream(server, id)
        self.next_event(reply, "reports")
        os.mkdir(os.path.join(run.path, "logs"))  # none was there when the stream began
        run.log(0, "hello\n")
        self.next_log(reply, 0, 6)
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
        for rank in range(100):
            run.log(rank, "more at once\n")
        server.process.send_signal(signal.SIGCONT)
        while self.next_event(reply, "logs") != {}:  # too many to be told one by one, unless it had begun to look
            pass
        run.log(99, "and then one\n" * 2)
        self.next_log(reply, 99, 26)
        os.link(os.path.join(run.path, "logs", "rank-7.log"), os.path.join(self.place, "elsewhere.log"))
        with open(os.path.join(self.place, "elsewhere.log"), "a") as file:
            file.write("of which the kernel tells nobody\n")
        self.next_log(reply, 7, 46)
        run.done()

    def test_what_the_kernel_has_no_room_to_tell_is_looked_for(self):
        with open("/proc/sys/fs/inotify/max_queued_events") as file:
            room = int(file.read())
        if room > 1 << 18:
            self.skipTest(f"the kernel queues {room} events")
        run = self.live("live", 3)
        known, told = set(), []
        for rank in (0, 1, 3, 7):
            run.log(rank, "hello\n")
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        while len(known) < 4:
            known.add(self.next_event(reply, "logs")["rank"])
        for i in range(2):  # behind these all logs were looked at with the watches in their places
            run.log(0, "hello again\n" * (i + 1))
            self.next_log(reply, 0, 12 * (i + 1))
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
        logs = [open(os.path.join(run.path, "logs", f"rank-{rank}.log"), "ab", buffering=0) for rank in (0, 1)]
        for i in range(room + 2):  # by turns: what is told twice in a row is told once
            logs[i % 2].write(b"x")
        for file in logs:
            file.close()
        run.log(7, "there is no room left for this\n")
        server.process.send_signal(signal.SIGCONT)
        while 3 not in told:
            told.append(self.next_event(reply, "logs")["rank"])
            if len(told) == 1:
                run.log(3, "and this is told by itself\n")
        self.assertIn(7, told)
        run.done()

    def test_a_run_that_comes_again_under_its_name_is_told(self):
        run = self.live("live", 3)
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        self.assertEqual({"id": 3}, self.next_event(reply, "reports"))
        run.done()
        shutil.rmtree(run.path)
        self.next_event(reply, "gone")
        run = self.live("live", 4, 1000)
        self.next_event(reply, "run")
        self.assertEqual({"id": 4}, self.next_event(reply, "reports"))
        run.log(0, "hello\n")
        self.next_log(reply, 0, 6)
        run.done()

    def test_a_run_in_the_place_of_another_is_told(self):
        old = self.live("live", 3)
        new = self.live("other", 3, 1000)
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        self.assertEqual({"id": 3}, self.next_event(reply, "reports"))
        old.done()
        os.rename(old.path, os.path.join(self.place, "old"))
        os.rename(new.path, old.path)
        self.next_event(reply, "gone")
        self.next_event(reply, "run")
        self.assertEqual({"id": 3}, self.next_event(reply, "reports"))
        new.done()

    def test_a_run_that_cannot_be_reached_is_not_gone(self):
        run = self.live("live", 3)
        server = self.serve()
        id = server.ids()["live"]
        reply = self.open_stream(server, id)
        self.next_event(reply, "reports")
        away = os.path.join(self.place, "away")
        os.symlink("live", away)  # leads nowhere, for root as well, once it has the run's name
        exchange(run.path, away)
        self.assertEqual("run", self.next_of(reply, ("run", "gone")))
        status, data, _ = server.ask("/api/runs/" + id)
        self.assertEqual(500, status)
        self.assertIn("Too many levels of symbolic links", json.loads(data)["error"])
        exchange(run.path, away)
        self.assertEqual("run", self.next_of(reply, ("run", "gone")))
        self.assertEqual(3, server.json("/api/runs/" + id)["reports"])
        run.done()

    def test_news_that_are_dear_to_look_at_are_told_seldom(self):
        run = self.live("live", 45_000)  # so few that all of them are read for each answer
        server = self.serve()
        id = server.ids()["live"]
        reply, begun, told = self.open_stream(server, id), time.monotonic(), 0
        while told < 8:
            self.next_event(reply, "reports")
            told += 1
            server.json(f"/api/series?run={id}&metric=loss")
            server.json(f"/api/series?run={id}&metric=loss&x=time")
            run.report(told, 1, 0, 45_000 + told, {"loss": 1})
            run.commit()
        self.assertLessEqual(told, 1 + 1.5 * (time.monotonic() - begun))
        run.done()

    def test_pages_that_hear_of_news_together_see_them(self):
        """An answer is kept for others who ask for the same, but not beyond the next news."""
        run = self.live("live", 45_000)
        server = self.serve()
        id = server.ids()["live"]
        replies = [self.open_stream(server, id) for _ in range(3)]
        for reply in replies:
            self.next_event(reply, "reports")
        for told in range(45_001, 45_004):
            for _ in replies:
                self.assertEqual(told - 1, sum(server.json(f"/api/series?run={id}&metric=loss")["series"][0]["n"]))
            run.report(told, 1, 0, told, {"loss": 1})
            run.commit()
            for reply in replies:
                while self.next_event(reply, "reports")["id"] < told:
                    pass
        run.done()

    def test_streams_are_bounded_and_freed(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        open_ones = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=180) for _ in range(33)]
        replies = []
        for connection in open_ones:
            connection.request("GET", "/api/stream?run=" + run, headers={"Authorization": "Bearer " + server.token})
            replies.append(connection.getresponse())
        self.assertEqual([200] * 32 + [503], [reply.status for reply in replies])
        for connection, reply in zip(open_ones, replies):
            reply.close()
            connection.close()

        def one_more():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=180)
                connection.request("GET", "/api/stream?run=" + run, headers={"Authorization": "Bearer " + server.token})
                status = connection.getresponse().status
            finally:
                connection.close()
            return status == 200

        self.wait_for(one_more)


if __name__ == "__main__":
    unittest.main()
