"""Includes point one way only (docs/design.md 2): a room uses the rooms above it; rooms that are pure make no system
call; and the page says which rooms a room uses."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ['base', 'loop', 'scaling', 'accelerator', 'usage', 'cluster', 'placement', 'wire', 'run', 'journal', 'checkpoint',
         'collective', 'worker', 'framework', 'agent', 'engine', 'controller', 'view', 'web', 'cli']
PURE = ['scaling', 'placement', 'run']
PURE_FILES = ['wire/frame.c', 'wire/frame.h']
SYSTEM = {'unistd.h', 'fcntl.h', 'poll.h', 'spawn.h', 'time.h', 'dirent.h', 'pthread.h', 'uv.h', 'sys/socket.h', 'sys/stat.h',
          'sys/mman.h', 'sys/epoll.h', 'sys/syscall.h', 'sys/time.h', 'sys/file.h', 'netdb.h', 'sched.h'}


def sources():
    for path in sorted((ROOT / 'src').rglob('*')):
        if path.suffix in ('.c', '.h', '.cc'):
            yield path


def room(path):
    return path.relative_to(ROOT / 'src').parts[0]


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'#include ([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


class Includes(unittest.TestCase):
    def test_rooms_are_the_ones_of_the_design(self):
        found = {room(path) for path in sources()}
        self.assertEqual(found, set(ROOMS))

    def test_the_page_tells_the_rooms_and_what_they_use(self):
        page = (ROOT / 'docs/design.md').read_text(encoding='utf-8').split('## 2. Rooms')[1]
        told = {room: set() if used == '-' else set(used.split(', '))
                for room, used in re.findall(r'^\| `(\w+)` \|.*\| ([\w, -]+) \|$', page, re.M)}
        used = {room: set() for room in ROOMS}
        for path in sources():
            used[room(path)] |= {name.split('/')[0] for _, kind, name in includes(path) if kind == '"'}
        self.assertEqual(list(told), ROOMS)
        self.assertEqual(told, {room: names - {room} for room, names in used.items()})

    def test_a_room_uses_only_rooms_above_it(self):
        wrong = []
        for path in sources():
            own = ROOMS.index(room(path))
            for number, kind, name in includes(path):
                if kind == '"' and ROOMS.index(name.split('/')[0]) > own:
                    wrong.append(f'{path.relative_to(ROOT)}:{number}: {name}')
        self.assertEqual(wrong, [])

    def test_includes_of_ours_name_their_room(self):
        wrong = [f'{path.relative_to(ROOT)}:{number}: {name}' for path in sources() for number, kind, name in includes(path)
                 if kind == '"' and name.split('/')[0] not in ROOMS]
        self.assertEqual(wrong, [])

    def test_pure_rooms_include_nothing_that_makes_system_calls(self):
        wrong = []
        for path in sources():
            place = str(path.relative_to(ROOT / 'src'))
            if room(path) not in PURE and place not in PURE_FILES:
                continue
            wrong += [f'{place}:{number}: {name}' for number, kind, name in includes(path) if kind == '<' and name in SYSTEM]
        self.assertEqual(wrong, [])

    def test_public_headers_include_only_public_ones(self):
        wrong = [f'{path.name}:{number}: {name}' for path in sorted((ROOT / 'include/trainyard').glob('*.h'))
                 for number, kind, name in includes(path)
                 if kind == '"' or not (name.startswith('trainyard/') or name in ('stdbool.h', 'stddef.h', 'stdint.h'))
                 and not (path.name == 'list.h' and name in ('initializer_list', 'vector'))]  # C++ alone sees these
        self.assertEqual(wrong, [])


if __name__ == '__main__':
    unittest.main()
