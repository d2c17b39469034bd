from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roll_core.errors import RollError
from roll_core.objects import ObjectError
from roll_core.rewards import RewardSample, Score, Status
from roll_core.rewards.pool import RewardPool
from roll_core.rewards.worker import RewardWorker

ODD = str(Path(__file__).parent / "samples" / "odd_rewards.py")


def samples(*responses: str, prompt: str = "", reference: str = "") -> list[RewardSample]:
    return [RewardSample(str(number), prompt, response, reference) for number, response in enumerate(responses)]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_dead(pid: int, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_alive(pid)


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [one for child in children for one in descendants(child)]


def test_nothing_waits_behind_a_slow_sample_while_another_process_is_free(tmp_path: Path) -> None:
    with RewardPool(f"{ODD}:meets", 2, 20.0) as pool:
        pool.score_many(samples("a", "b", reference=str(tmp_path)))  # So it is known that samples take long.
        scores = pool.score_many(samples("wait", "come", *["a"] * 6, reference=str(tmp_path / "met")))
    assert scores == [Score(1.0)] * 8


@pytest.fixture(scope="module")
def math_pool() -> Iterator[RewardPool]:
    with RewardPool("math_rule", 2, 5.0) as pool:
        yield pool


def test_a_reward_that_hangs_or_dies_costs_only_its_own_sample() -> None:
    responses = ["a", "hang", "b", "exit", "segfault", "c", "kill", "raise", "sys.exit", "sleep", "d", *["e"] * 50]
    with RewardPool(f"{ODD}:misbehaves", 2, 1.0) as pool:
        scores = pool.score_many(samples(*responses))
    found = dict(zip(responses, scores))
    assert len(scores) == len(responses)
    assert all(found[name] == Score(1.0) for name in "abcde")
    assert found["hang"].status is found["sleep"].status is Status.TIMEOUT
    assert found["hang"].reason.endswith("odd_rewards.py:misbehaves' gave no score within 1 s")
    for name in ("exit", "segfault", "kill", "raise", "sys.exit"):
        assert found[name].status is Status.ERROR and found[name].score == 0.0
    assert "(exit code 3)" in found["exit"].reason
    assert "SIGSEGV" in found["segfault"].reason
    assert "SIGKILL" in found["kill"].reason
    assert "ValueError: this is the matter" in found["raise"].reason and "odd_rewards.py:" in found["raise"].reason


def test_a_child_has_no_more_memory_than_its_limit() -> None:
    with RewardPool(f"{ODD}:misbehaves", 1, 10.0, memory_limit_bytes=2 << 30) as pool:
        first, second = pool.score_many(samples("memory", "a"))
    assert first.status is Status.ERROR and "MemoryError" in first.reason
    assert second == Score(1.0)


NAMES = ["None", "NaN", "infinity", "text", "True", "list", "above", "below"]
NAMES += ["score NaN", "score True", "score text", "status", "reason", "reward NaN"]


def test_anything_but_a_score_is_an_error_that_names_the_reward_and_what_it_returned() -> None:
    with RewardPool(f"{ODD}:garbage", 1) as pool:
        found = dict(zip(NAMES, pool.score_many(samples(*NAMES))))
    assert len(found) == len(NAMES)
    assert all(score.status is Status.ERROR and score.score == 0.0 for score in found.values()), found
    assert all("odd_rewards.py:garbage' returned" in score.reason for score in found.values())
    end = "it must return a number in [0, 1] or a Score"
    assert found["None"].reason.endswith(f"returned None (NoneType); {end}")
    assert found["text"].reason.endswith(f"returned '0.5' (str); {end}")
    assert found["True"].reason.endswith(f"returned True (bool); {end}")
    assert found["above"].reason.endswith(f"returned 1.5, which is outside [0, 1]; {end}")


def test_math_in_a_thread_beside_a_tower_of_powers(math_pool: RewardPool) -> None:
    pairs = [(rf"\sqrt{{{2 * n * n}}}", rf"{n}\sqrt{{2}}") for n in range(1, 9)]
    batch = [RewardSample("1", "", rf"\boxed{{{answer}}}", reference) for answer, reference in pairs]
    batch.insert(4, RewardSample("2", "", r"\boxed{9^{9^{9^{9}}}}", "5"))
    scores: list[Score] = []
    thread = threading.Thread(target=lambda: scores.extend(math_pool.score_many(batch)))
    thread.start()
    thread.join()
    tower = scores.pop(4)
    assert [score.score for score in scores] == [1.0] * 8
    assert (tower.score, tower.status) == (0.0, Status.TIMEOUT)


def test_huge_values_and_huge_texts_get_a_score_each(math_pool: RewardPool) -> None:
    filler = "x" * 1_000_000
    towers = [r"\boxed{(10^8)!}", r"\boxed{\sum_{k=1}^{10^9} \frac{1}{k^2}}"]
    texts = [rf"\boxed{{42}}{filler}", rf"{filler}\boxed{{42}}", rf"\boxed{{{filler}}}", "{" * 10**6 + r"\boxed{42}"]
    scores = math_pool.score_many(samples(*towers, *texts, reference="42"))
    assert [score.status for score in scores[:2]] == [Status.TIMEOUT] * 2
    assert [score.score for score in scores[2:]] == [1.0, 1.0, 0.0, 1.0]


def test_easy_samples_start_no_process() -> None:
    with RewardPool("math_rule", 2) as pool:
        before = descendants(os.getpid())
        scores = pool.score_many(samples(*[rf"\boxed{{{n % 2}}}" for n in range(256)], reference="1"))
        assert descendants(os.getpid()) == before
    assert sum(score.score for score in scores) == 128


def test_scores_come_in_the_order_of_the_samples_from_any_number_of_threads() -> None:
    results: dict[int, list[Score]] = {}
    with RewardPool(f"{ODD}:misbehaves", 3, 5.0) as pool:

        def run(number: int) -> None:
            results[number] = pool.score_many(samples("a", "raise", "b", *["exit"] * (number % 2), "c"))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, scores in results.items():
        wanted = [Status.OK, Status.ERROR, Status.OK, *[Status.ERROR] * (number % 2), Status.OK]
        assert [score.status for score in scores] == wanted


def test_a_call_that_began_with_few_children_takes_on_those_that_become_free(tmp_path: Path) -> None:
    reward = tmp_path / "gated.py"
    reward.write_text(
        "import os, pathlib, time\n"
        "from roll_core.rewards import Reward, Score\n"
        "class Gated(Reward):\n"
        "    def score(self, sample):\n"
        "        folder = pathlib.Path(sample.prompt)\n"
        "        (folder / f'begun {sample.response}').touch()\n"
        "        while not (folder / sample.response).exists():\n"
        "            time.sleep(0.01)\n"
        "        return Score(1.0, reason=str(os.getpid()))\n"
    )

    def wait_for(name: str) -> None:
        end = time.monotonic() + 20
        while not (tmp_path / name).exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert (tmp_path / name).exists(), name

    with RewardPool(f"{reward}:Gated", 2, 60.0) as pool:
        found: list[Score] = []
        first = threading.Thread(target=pool.score_many, args=(samples("one", "two", prompt=str(tmp_path)),))
        names = ["three"] + ["four"] * 39
        second = threading.Thread(target=lambda: found.extend(pool.score_many(samples(*names, prompt=str(tmp_path)))))
        first.start()
        wait_for("begun one")
        wait_for("begun two")
        second.start()
        (tmp_path / "one").touch()
        wait_for("begun three")
        (tmp_path / "two").touch()
        first.join(20)
        assert not first.is_alive()
        (tmp_path / "three").touch()
        # The child that scored three takes its next, and whoever joined it takes another: then all may end.
        wait_for("begun four")
        (tmp_path / "four").touch()
        second.join(60)
    assert len(found) == 40 and all(one.status is Status.OK for one in found)
    assert len({score.reason for score in found}) == 2


def test_a_child_killed_between_calls_is_replaced(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with RewardPool(f"{ODD}:says_pid", 1, 5.0) as pool:
        pool.score_many(samples("a", prompt=str(note)))
        first = int(note.read_text())
        os.kill(first, signal.SIGKILL)
        assert wait_until_dead(first)
        (score,) = pool.score_many(samples("a", prompt=str(note)))
        assert score.status is Status.OK and int(note.read_text()) != first


def test_a_killed_nursery_is_replaced(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with RewardPool(f"{ODD}:says_pid", 1, 5.0) as pool:
        pool.score_many(samples("a", prompt=str(note)))
        child = int(note.read_text())
        nursery = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(nursery, signal.SIGKILL)
        assert wait_until_dead(child), "a child outlives the process that forked it"
        assert pool.score_many(samples("a", prompt=str(note)))[0].status is Status.OK


def test_what_a_reward_started_is_killed_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with RewardPool(f"{ODD}:misbehaves", 1, 1.0) as pool:
        (score,) = pool.score_many(samples("offspring", prompt=str(note)))
    assert score.status is Status.TIMEOUT
    assert wait_until_dead(int(note.read_text()))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_their_parent_even_in_mid_sample(tmp_path: Path, how: signal.Signals) -> None:
    note = tmp_path / "pid"
    code = (
        "import signal, sys\n"
        # A shell starts what it puts into the background with this signal ignored, and children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from roll_core.rewards import RewardSample\n"
        "from roll_core.rewards.pool import RewardPool\n"
        "pool = RewardPool(sys.argv[1], 1, 1000.0)\n"
        "pool.score_many([RewardSample('1', sys.argv[2], 'hang')])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, f"{ODD}:says_pid", str(note)], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (note.exists() and note.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    family = descendants(parent.pid)
    assert int(note.read_text()) in family
    parent.send_signal(how)
    parent.wait(timeout=30)
    assert all(wait_until_dead(pid) for pid in family)


def test_closing_leaves_no_process_and_may_be_done_twice() -> None:
    before = set(descendants(os.getpid()))
    pool = RewardPool(f"{ODD}:misbehaves", 2, 5.0)
    pool.score_many(samples("a", "b", "c"))
    family = set(descendants(os.getpid())) - before
    assert len(family) >= 2
    pool.close()
    pool.close()
    assert all(wait_until_dead(pid) for pid in family)
    with pytest.raises(RollError, match="is closed"):
        pool.score_many(samples("a"))


def test_what_a_reward_prints_stays_off_standard_output() -> None:
    code = (
        "import sys\n"
        "from roll_core.rewards import RewardSample\n"
        "from roll_core.rewards.pool import RewardPool\n"
        "with RewardPool(sys.argv[1], 1) as pool:\n"
        "    print(pool.score_many([RewardSample('1', '', 'a')])[0].score)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, f"{ODD}:prints"], capture_output=True, text=True, check=True)
    assert done.stdout == "0.5\n"
    assert "printed by the reward" in done.stderr


def test_a_reward_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module\n\ndef score(sample):\n    return 1.0\n")
    with RewardPool(f"{broken}:score") as pool, pytest.raises(RollError, match="No module named 'no_such_module'"):
        pool.score_many(samples("a"))
    deadly = tmp_path / "deadly.py"
    deadly.write_text("import os\nos._exit(7)\n\ndef score(sample):\n    return 1.0\n")
    with RewardPool(f"{deadly}:score") as pool, pytest.raises(RollError, match=r"died \(exit code 7\)"):
        pool.start()
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ntime.sleep(1000)\n\ndef score(sample):\n    return 1.0\n")
    with RewardPool(f"{slow}:score", start_timeout_s=1.0) as pool, pytest.raises(RollError, match="within 1 s"):
        pool.start()
    with pytest.raises(ObjectError, match="cannot be made"):
        RewardPool("math_rule", options={"no_such": 1})


def test_options_reach_the_reward_and_it_is_warmed_up() -> None:
    worker = RewardWorker(f"{ODD}:Halves", {"whole": 0.5}, num_processes=2, deadline_s=5.0)
    assert worker.compute_rewards(samples("a", "b")) == [Score(0.25, reward=0.5)] * 2
    assert worker.compute_rewards([]) == []
    assert worker.self_test() == []
    worker.close()


def test_the_self_test_runs_in_a_child(math_pool: RewardPool) -> None:
    assert math_pool.self_test() == []
    with RewardPool(f"{ODD}:FailsSelfTest") as pool:
        assert pool.self_test() == ["two and two are five here"]


def test_a_pool_needs_a_worker_and_a_deadline() -> None:
    with pytest.raises(ValueError, match="at least one worker, not 0"):
        RewardPool("math_rule", 0)
    with pytest.raises(ValueError, match="must be positive, not 0"):
        RewardPool("math_rule", 1, 0)


def test_files_of_the_working_directory_do_not_take_the_place_of_standard_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("selectors", "socket", "json"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not the module that was meant')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    with RewardPool(f"{ODD}:misbehaves", 1, 5.0) as pool:
        assert pool.score_many(samples("a")) == [Score(1.0)]
