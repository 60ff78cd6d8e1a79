"""The dashboard on storage that fails, refuses or does not answer."""

import errno
import http.client
import json
import os
import unittest

from place import FaultCase, failing

import test_dashboard
from journals import Journal


class Seeing(FaultCase):
    def serve(self, env):
        return test_dashboard.Server(self, env=env)

    def test_a_download_that_fails_before_its_first_byte(self):
        run = Journal(self.storage, "a")
        run.log(0, "text")
        run.done(1)
        for error, status in ((errno.EACCES, 403), (errno.EPERM, 403), (errno.ETIMEDOUT, 503), (errno.EIO, 500)):
            with self.subTest(errno.errorcode[error]):
                server = self.serve(failing("read", error, "rank-0.log"))
                for _ in range(5):  # more than may be under way at once
                    told, data, reply = server.ask(f"/api/runs/{server.ids()['a']}/logs/rank-0/whole")
                    self.assertEqual((status, "application/json", None), (told, reply.headers["Content-Type"], reply.headers["Content-Disposition"]), data)
                    self.assertIn(os.strerror(error), json.loads(data)["error"])
                server.end()

    def test_a_download_of_which_nothing_comes(self):
        """It is given up as other answers are, and leaves its place to others once the storage answers."""
        run = Journal(self.storage, "a")
        run.log(0, "text")
        run.log(1, "other")
        run.done(1)
        server = self.serve(failing("read", -80, "rank-0.log"))  # 8 s
        base = f"/api/runs/{server.ids()['a']}/logs"
        asked = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(4)]  # as many as may be under way
        for connection in asked:
            self.addCleanup(connection.close)
            connection.request("GET", base + "/rank-0/whole", headers={"Authorization": "Bearer " + server.token})
        for connection in asked:
            reply = connection.getresponse()
            self.assertEqual((503, "application/json", {"error": "a: not answering for 5 s"}),
                             (reply.status, reply.headers["Content-Type"], json.loads(reply.read())))
        self.wait_for(lambda: server.ask(base + "/rank-1/whole")[:2] == (200, b"other"))


if __name__ == "__main__":
    unittest.main()
