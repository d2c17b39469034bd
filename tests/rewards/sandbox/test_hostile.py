# ruff: noqa: E501 (a program is one line of its table)
"""Programs that try to get a reward they did not earn, to get out, or to do damage: none of them may."""

import os
import time
from pathlib import Path

import psutil
import pytest

from roll_core.rewards.base import RewardSample, Status
from roll_core.rewards.code_sandbox import CodeSandboxReward
from roll_core.rewards.sandbox import users
from tests.rewards.sandbox.conftest import Run

TESTS = [
    {
        "assert_code": "from solution import add\ndef test_one():\n    assert add(2, 3) == 5\ndef test_two():\n    assert add(40, 2) == 42\n"
    }
]
LAST_SECOND = 8.0
"""A hog's deadline is 2 s; on an idle machine it is over within 0.3 s more, on a busy one within this."""

CHEATS = {
    "an equal to everything": "class E:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef add(a, b): return E()",
    "an int that equals everything": "class E(int):\n    def __eq__(self, other): return True\ndef add(a, b): return E()",
    "a text that equals everything": "class E(str):\n    def __eq__(self, other): return True\ndef add(a, b): return E()",
    "exit in the function": "def add(a, b):\n    raise SystemExit(0)",
    "hard exit in the function": "import os\ndef add(a, b):\n    os._exit(0)",
    "the caller's constants": "import sys\ndef add(a, b):\n    return [c for c in sys._getframe(1).f_code.co_consts if isinstance(c, int)][-1]",
    "every frame's locals": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n        for v in f.f_locals.values():\n            if isinstance(v, dict) and 'expected' in v: return v['expected']\n        f = f.f_back",
    "all objects in memory": "import gc\ndef add(a, b):\n    texts = [o for o in gc.get_objects() if isinstance(o, str) and 'assert add' in o]\n    return int(texts[0].split('== ')[1].split()[0])",
    "tests in files": "import glob\ndef add(a, b):\n    for f in glob.glob('/**/*', recursive=True):\n        try:\n            t = open(f).read()\n        except Exception: continue\n        if 'assert add(' in t: return int(t.split('== ')[1].split()[0])",
    "tests in other processes": "import os\ndef add(a, b):\n    for p in os.listdir('/proc'):\n        if p.isdigit():\n            try: t = open(f'/proc/{p}/mem','rb').read()\n            except Exception: continue",
    "patched builtins": "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.len = lambda *a: 0\ndef add(a, b): return None",
    "patched operator": "import operator\noperator.eq = lambda a, b: True\ndef add(a, b): return 0",
    "patched unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef add(a, b): return 0",
    "a fake pytest": "import sys, types\nsys.modules['pytest'] = types.ModuleType('pytest')\ndef add(a, b): return 0",
    "its own tests": "def add(a, b): return 0\ndef test_one(): pass\ndef test_two(): pass",
    "a forged answer": "import os\ndef add(a, b):\n    os.write(3, b'{\"value\": true}\\n' * 2)\n    return 0",
    "a forged verdict": 'import os\ndef add(a, b):\n    for d in range(3, 64):\n        try: os.write(d, b\'{"passed": 2, "total": 2, "failure": "", "broken": ""}\')\n        except OSError: pass\n    return 0',
    "a forged load": "import os\nos.write(3, b'{\"names\": []}\\n')\nos._exit(0)",
    "a name that is no text": "import os\nos.write(3, b'{\"names\": [1, null, {}]}\\n')\ndef add(a, b): return 0",
    "nonsense on the wire": "import os\nos.write(3, bytes(range(256)) * 10)\ndef add(a, b): return 0",
    "an endless line": "import os\ndef add(a, b):\n    while True: os.write(3, b'x' * 65536)",
    "a deep answer": "import os\ndef add(a, b):\n    os.write(3, b'[' * 100000 + b'\\n')\n    return 0",
    "an answer of another kind": 'import os\ndef add(a, b):\n    os.write(3, b\'{"value": {"t": "builtin", "v": "eval"}}\\n\')\n    return 0',
    "a reference to nothing": 'import os\ndef add(a, b):\n    os.write(3, b\'{"value": {"t": "ref", "yours": 99}}\\n\')\n    return 0',
    "a raised pass": "class Skipped(Exception): pass\ndef add(a, b): raise Skipped('pass')",
    "a negative index": 'import os\ndef add(a, b):\n    os.write(3, b\'{"value": 0, "args": {"-1": 5}}\\n\')\n    return 0',
    "a swallowed assertion": "try:\n    assert False\nexcept AssertionError:\n    pass\ndef add(a, b):\n    try: return 1 // 0\n    except BaseException: return None",
    "an exit handler": "import atexit, os\natexit.register(lambda: os.write(3, b'{\"value\": 5}\\n'))\ndef add(a, b): raise SystemExit",
    "a printed success": "print('2 passed')\nprint('OK')\ndef add(a, b): return None",
    "a comparison that is always true": "class E:\n    def __lt__(s, o): return True\n    __gt__ = __le__ = __ge__ = __lt__\ndef add(a, b): return E()",
    "a module in place of itself": "import sys\nclass M:\n    def __getattr__(self, n): return lambda *a: 5\nsys.modules['solution'] = M()",
    "a code that is no text": "\x00\x00",
    "a lone surrogate": "add = '\ud800'",
    "no program": "",
}
"""Each would pass where tests and program share a process, or where an exit status or a printed line counts."""

HOGS = {
    "an endless loop": "while True: pass",
    "an endless loop that ignores signals": "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except Exception: pass\nwhile True: pass",
    "a long sleep": "import time\ntime.sleep(1000)",
    "a huge list": "x = [0] * 10**10\ndef add(a, b): return 0",
    "memory bit by bit": "x = []\nwhile True: x.append('a' * 10**6)",
    "a fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "threads": "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n    except RuntimeError: pass",
    "a child that leaves its group": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\ndef add(a, b): return 0",
    "a huge file": "f = open('big', 'wb')\nwhile True: f.write(b'a' * 10**6)",
    "many files": "i = 0\nwhile True:\n    open(f'f{i}', 'w').write('a' * 10**5)\n    i += 1",
    "many open files": "import os\nwhile True: os.open('/dev/null', 0)",
    "endless output": "while True: print('a' * 10**6)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "a crash of the interpreter": "import ctypes\nctypes.string_at(0)",
    "a huge number": "x = 10 ** 10 ** 9",
    "a slow regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
}

ESCAPES = {
    "the network": "import socket\nsocket.create_connection(('1.1.1.1', 53), 1)",
    "a local server": "import socket\ns = socket.socket()\ns.connect(('127.0.0.1', PORT))",
    "a name server": "import socket\nsocket.getaddrinfo('example.org', 80)",
    "a file beside it": "open('/usr/bin/owned', 'w')",
    "a file in the system": "open('/etc/owned', 'w')",
    "a file in the packages": "import sys\nopen(sys.path[-1] + '/owned.py', 'w')",
    "the user's home": "import os\nassert os.listdir(HOME)",
    "this repository": "import os\nassert os.listdir(REPOSITORY + '/tests')",
    "the environment": "import os\nassert 'ROLL_SANDBOX_SECRET' in os.environ",
    "the parent's environment": "import os\nassert b'ROLL_SANDBOX_SECRET' in open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "another process": "import os, signal\nfor p in map(int, filter(str.isdigit, os.listdir('/proc'))):\n    if p != os.getpid() and p != 1: os.kill(p, 0); break\nelse: raise SystemExit('alone')",
    "the clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)",
    "root": "import os\nos.setuid(0)",
    "a mount": "import ctypes\nassert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
    "a device": "import os, stat\nos.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(8, 0))",
    "more memory": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))",
}
"""Each ends with exit code 0 exactly if it got out."""


def is_left_behind() -> list[str]:
    """Processes of the sandbox that are still there."""
    mine = psutil.Process(os.getpid()).children(recursive=True)
    return [" ".join(one.cmdline()) for one in mine if one.is_running() and "guest.py" in " ".join(one.cmdline())]


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_earns_a_reward(run_hastily: Run, name: str) -> None:
    score = run_hastily(CHEATS[name], TESTS)
    assert (score.score, score.status) == (0.0, Status.OK), score


@pytest.mark.parametrize("name", HOGS)
def test_no_hog_outlives_its_limits(run_hastily: Run, hasty_reward: CodeSandboxReward, name: str) -> None:
    before = time.monotonic()
    score = run_hastily(HOGS[name], TESTS)
    assert time.monotonic() - before < hasty_reward.limits.wall_s + LAST_SECOND
    assert score.score == 0.0
    assert is_left_behind() == []


@pytest.mark.parametrize("name", ESCAPES)
def test_no_program_gets_out(
    run: Run, reward: CodeSandboxReward, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if reward.jail.kind == "limits":
        pytest.skip(reward.jail.warning)
    import socket

    monkeypatch.setenv("ROLL_SANDBOX_SECRET", "1")
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = (
            ESCAPES[name]
            .replace("PORT", str(server.getsockname()[1]))
            .replace("HOME", repr(str(tmp_path)))
            .replace("REPOSITORY", repr(str(Path(__file__).parents[3])))
        )
        score = run(program, [{"stdin": "", "expected_stdout": ""}], "io")
    assert score.score == 0.0 and "ended with" in score.reason, score


def test_nothing_stays_in_the_home_of_the_next_program(run: Run) -> None:
    pair = [{"stdin": "", "expected_stdout": "['program.py']"}]
    program = "import os\nprint(os.listdir('.'))\nopen('left', 'w').write('x')"
    assert [run(program, pair, "io").score for _ in range(2)] == [1, 1]


def test_a_right_program_still_passes_after_all_of_them(run: Run) -> None:
    assert run("def add(a, b):\n    return a + b", TESTS).score == 1


def test_what_is_not_isolated_is_said() -> None:
    reward = CodeSandboxReward(isolation="limits")
    assert "without isolation" in reward.jail.warning and "network" in reward.jail.warning


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lends programs users; the limit on processes holds for others")
@pytest.mark.parametrize("name", ["a fork bomb", "a child that leaves its group"])
def test_what_multiplies_is_ended_where_there_are_no_namespaces(name: str) -> None:
    reward = CodeSandboxReward(isolation="limits", wall_s=2.0, memory_mib=512)
    program, mine = f"```python\n{HOGS[name]}\n```\n", {users.number(count) for count in range(64)}
    fields = {"test_cases": TESTS, "case_type": "pytest", "test_case_function": ""}
    assert reward.score(RewardSample("1", "", program, fields=fields)).score == 0.0
    # Other tests beside this one may be lent users too, each for a moment; what multiplied would stay.
    deadline = time.monotonic() + 30
    while (running := _running(mine)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running == []
    right = RewardSample("1", "", "```python\ndef add(a, b):\n    return a + b\n```\n", fields=fields)
    assert CodeSandboxReward(isolation="limits", wall_s=30.0, memory_mib=512).score(right).score == 1.0


def _running(users_of_programs: set[int]) -> list[int]:
    """Process ids; a zombie runs nothing: it waits for the machine's first process."""
    return [
        one.pid
        for one in psutil.process_iter(["uids", "status"])
        if one.info["uids"] is not None
        and one.info["uids"].real in users_of_programs
        and one.info["status"] != psutil.STATUS_ZOMBIE
    ]
