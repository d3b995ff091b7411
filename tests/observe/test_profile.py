"""`ringloop.profile`: what it samples, on every loop, and the files that it writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import pstats
import sys
import threading
import time
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

import ringloop
from ringloop import profiling
from ringloop.profiling import _profile
from tests import support
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path
    from types import FrameType

    from tests.support import LoopFactory

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.one_thread("one profile runs at a time in a process")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def no_profile_is_left() -> Iterator[None]:
    yield
    if ringloop.profile.running():
        ringloop.profile.stop()
        pytest.fail("the test has left a profile running")


def compute() -> float:
    return math.fsum(math.sqrt(number) for number in range(100_000))


async def until_sampled(profile: profiling.Profile, name: str, work: Callable[[], Any]) -> None:
    """Work in the loop's thread until a sample has a function of that name."""

    def is_sampled() -> bool:
        work()
        return any(function.name == name for stack in profile.stacks for function in stack)

    await wait_until(is_sampled, f"a sample with {name}")


def stack_with(profile: profiling.Profile, name: str) -> tuple[profiling.Function, ...]:
    """Return a stack that ends in a function of that name, or has it."""
    found = [stack for stack in profile.stacks if any(f.name == name for f in stack)]
    assert found, profile.stacks
    return max(found, key=lambda stack: profile.stacks[stack])


# --- what is sampled ------------------------------------------------------------------------------


def test_running_task_is_sampled_with_its_await_chain(run: Run) -> None:
    async def inner(profile: profiling.Profile) -> None:
        await until_sampled(profile, "compute", compute)

    async def outer(profile: profiling.Profile) -> None:
        await inner(profile)

    async def main() -> profiling.Profile:
        with ringloop.profile() as profile:
            await asyncio.create_task(outer(profile), name="the worker")
        return profile

    profile = run(main())
    names = [function.name for function in stack_with(profile, "compute")]
    assert names[:2] == ["running", "task the worker"]
    local = f"{test_running_task_is_sampled_with_its_await_chain.__name__}.<locals>"
    assert names[2:4] == [f"{local}.outer", f"{local}.inner"]
    assert names.index("until_sampled") < names.index("compute")


def test_task_without_a_name_is_called_after_its_coroutine(run: Run) -> None:
    async def unnamed(profile: profiling.Profile) -> None:
        await until_sampled(profile, "compute", compute)

    async def main() -> profiling.Profile:
        with ringloop.profile() as profile:
            await asyncio.create_task(unnamed(profile))
        return profile

    stack = stack_with(run(main()), "compute")
    assert stack[1].name.startswith("task ")
    assert stack[1].name.endswith(".unnamed")


def test_callback_without_a_task_is_sampled(loop: Any) -> None:
    def callback() -> None:
        compute()
        if any(function.name == "compute" for stack in profile.stacks for function in stack):
            loop.stop()
        else:
            loop.call_soon(callback)

    with ringloop.profile(loops=[loop]) as profile:
        loop.call_soon(callback)
        loop.run_forever()
    names = [function.name for function in stack_with(profile, "compute")]
    assert names[:2] == ["running", "callback"]
    assert names[2].endswith(".callback")


def test_sleeping_loop_is_idle(run: Run) -> None:
    async def main() -> profiling.Profile:
        with ringloop.profile() as profile:
            await wait_until(lambda: profile.phases.get("idle", 0) > 0.1, "idle samples")
        return profile

    profile = run(main())
    assert profile.phases["idle"] > 0.1


def test_loops_that_begin_later_and_in_other_threads_are_sampled(loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loops are sampled where they are named, or run at the beginning")
    threads = []
    with ringloop.profile() as profile:
        for number in range(2):

            def main(number: int = number) -> None:
                with asyncio.Runner(loop_factory=support.loop_factory(loop_name)) as runner:
                    own = f"loop's work {number}"

                    async def work() -> None:
                        def is_seen() -> bool:
                            compute()
                            return any(stack[1:2] == named for stack in list(profile.stacks))

                        named = (profiling.Function(f"task {own}"),)
                        await wait_until(is_seen, own)

                    async def named() -> None:
                        await asyncio.create_task(work(), name=own)

                    runner.run(named())

            threads.append(threading.Thread(target=main, name=f"thread {number}"))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {track.name.partition("(")[2] for track in profile.tracks} == {"thread 0)", "thread 1)"}


def test_sample_of_an_ended_callback_names_no_function(loop: Any, loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loops have no pulse")
    sampler: Any = profiling._running.Sampler(None, [loop])

    async def main() -> None:
        here = sys._getframe()
        in_this_turn = loop._beat()
        assert sampler._stack_of_ours(loop, in_this_turn, here)[0].name == "running"
        # On a busy machine a timer is due before the loop sleeps.
        await wait_until(lambda: loop._beat()[2] != in_this_turn[2], "a sleep of the loop")
        missed = sampler._stack_of_ours(loop, in_this_turn, here)
        assert missed == (profiling.Function(_profile.MISSED),)

    loop.run_until_complete(main())


def test_seconds_of_all_samples_are_those_of_the_profile(run: Run) -> None:
    async def main() -> profiling.Profile:
        with ringloop.profile() as profile:
            await until_sampled(profile, "compute", compute)
            await wait_until(lambda: profile.samples > 30)
        return profile

    profile = run(main())
    summed = sum(profile.phases.values())
    assert summed == pytest.approx(sum(map(sum, (track.weights for track in profile.tracks))))
    assert summed <= profile.seconds + 0.001
    assert profile.samples == sum(len(track.times) for track in profile.tracks)
    assert profile.sampler_seconds < profile.seconds


# --- waiting tasks --------------------------------------------------------------------------------


def test_waiting_tasks_are_sampled_with_what_they_wait_for(run: Run) -> None:
    async def connection(queue: asyncio.Queue[None]) -> None:
        await queue.get()

    async def handler(queue: asyncio.Queue[None]) -> None:
        await connection(queue)

    async def main() -> profiling.Profile:
        queue: asyncio.Queue[None] = asyncio.Queue()
        task = asyncio.create_task(handler(queue), name="waiter")
        with ringloop.profile(mode="waiting", rate=200) as profile:
            await wait_until(lambda: any("waiter" in s[1].name for s in list(profile.stacks)))
        queue.put_nowait(None)
        await within(task)
        return profile

    profile = run(main())
    stack = next(stack for stack in profile.stacks if stack[1].name == "task waiter")
    names = [function.name.rpartition(".")[2] for function in stack]
    assert names == ["waiting", "task waiter", "handler", "connection", "get", "waits for a Future"]
    assert profile.stacks[stack] > 0


def test_chains_through_generators_and_tasks(run: Run) -> None:
    import types

    @types.coroutine
    def old_style(task: asyncio.Task[None]) -> Any:
        yield from task

    async def sleeper() -> None:
        await asyncio.sleep(60)

    async def waits(task: asyncio.Task[None]) -> None:
        await old_style(task)

    async def main() -> profiling.Profile:
        inner = asyncio.create_task(sleeper(), name="inner")
        outer = asyncio.create_task(waits(inner), name="outer")
        with ringloop.profile(mode="waiting", rate=200) as profile:
            await wait_until(lambda: any("outer" in s[1].name for s in list(profile.stacks)))
        for task in (outer, inner):
            task.cancel()
        await asyncio.wait([outer, inner])
        return profile

    stack = next(s for s in run(main()).stacks if s[1].name == "task outer")
    names = [function.name.rpartition(".")[2] for function in stack]
    assert names[:4] == ["waiting", "task outer", "waits", "old_style"]
    assert names[4] == "waits for task inner"


# --- begin and end --------------------------------------------------------------------------------


def test_start_stop_running() -> None:
    assert not ringloop.profile.running()
    with pytest.raises(RuntimeError, match=r"no profile is running: .*start"):
        ringloop.profile.stop()
    ringloop.profile.start()
    assert ringloop.profile.running()
    with pytest.raises(RuntimeError, match=r"a profile is running.*stop"):
        ringloop.profile.start()
    profile = ringloop.profile.stop()
    assert profile.samples == 0
    assert not ringloop.profile.running()


def test_block_stopped_inside_ends_silently(tmp_path: Path) -> None:
    with ringloop.profile(tmp_path / "a.svg"):
        assert ringloop.profile.stop().mode == "running"
        ringloop.profile.start()
    # The other one goes on.
    ringloop.profile.stop()


@contextlib.contextmanager
def interrupted_at(line: int, handler: Callable[[], object]) -> Iterator[list[int]]:
    """Call `handler` before the given line that runs of profiling's functions, as a signal does."""
    passed: list[int] = []

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != profiling.__file__:
            return None
        if event == "line":
            passed.append(frame.f_lineno)
            if len(passed) == line:
                handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield passed
    finally:
        sys.settrace(before)


def test_signal_handler_may_begin_and_end_profiles_at_any_point() -> None:
    def toggle() -> None:
        (ringloop.profile.stop if ringloop.profile.running() else ringloop.profile.start)()

    ended_by_handler = 0
    for line in range(1, 1000):
        with interrupted_at(line, toggle) as passed:
            # Each may find that the handler was first.
            with contextlib.suppress(RuntimeError):
                ringloop.profile.start()
            ended_by_handler += not ringloop.profile.running()
            with contextlib.suppress(RuntimeError):
                ringloop.profile.stop()
        with contextlib.suppress(RuntimeError):
            ringloop.profile.stop()
        left = [thread.name for thread in threading.enumerate()]
        assert not [name for name in left if name.startswith("ringloop profile")]
        if len(passed) < line:
            break
    assert line > 20
    assert ended_by_handler


def test_loop_closed_meanwhile_keeps_its_samples(loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loops are sampled where they are named, or run at the beginning")

    async def until_tracks(count: int) -> None:
        def is_seen() -> bool:
            compute()
            return len(profile.tracks) == count

        await wait_until(is_seen, f"{count} loops with samples")

    with ringloop.profile() as profile:
        for count in (1, 2):
            loop = support.loop_factory(loop_name)()
            loop.run_until_complete(until_tracks(count))
            loop.close()
    assert all(track.times for track in profile.tracks)


def test_file_is_written_though_the_block_raises(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ringloop.profile(tmp_path / "a.svg"):
        raise ZeroDivisionError
    assert (tmp_path / "a.svg").stat().st_size > 0


def test_switch_interval_is_put_back() -> None:
    before = sys.getswitchinterval()
    with ringloop.profile():
        support.wait_until_blocking(lambda: sys.getswitchinterval() < 0.001)
    assert sys.getswitchinterval() == before
    with ringloop.profile():
        support.wait_until_blocking(lambda: sys.getswitchinterval() < 0.001)
        sys.setswitchinterval(0.01)
    assert sys.getswitchinterval() == pytest.approx(0.01)
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"path": "a.txt"}, r"'a.txt' names no format: use one of \.svg", id="extension"
        ),
        pytest.param({"path": "a", "format": "png"}, r"format must be one of svg,", id="format"),
        pytest.param({"mode": "walking"}, r"mode must be 'running' or", id="mode"),
        pytest.param({"rate": 0}, r"rate must be above 0", id="no rate"),
        pytest.param({"rate": math.nan}, r"rate must be above 0", id="nan"),
        pytest.param({"rate": 1e9}, r"at most 10000", id="high rate"),
    ],
)
def test_wrong_arguments_are_refused_before_the_profile(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ringloop.profile(**arguments)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_fork_has_no_profile() -> None:
    with ringloop.profile():
        pid = os.fork()
        if pid == 0:
            os._exit(7 if ringloop.profile.running() else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert ringloop.profile.running()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_fork_leaves_the_block_quietly(tmp_path: Path) -> None:
    file = tmp_path / "profile.svg"
    pid = -1
    try:
        with ringloop.profile(file):
            pid = os.fork()
            if pid:
                _, status = os.waitpid(pid, 0)
    finally:
        if pid == 0:
            os._exit(5 if sys.exc_info() == (None, None, None) and not file.exists() else 1)
    assert os.waitstatus_to_exitcode(status) == 5
    assert file.exists()


# --- formats --------------------------------------------------------------------------------------


@pytest.fixture
def sampled(loop_factory: LoopFactory) -> profiling.Profile:
    """A profile of a task that computes, on each loop."""

    async def main() -> profiling.Profile:
        with ringloop.profile() as profile:
            await until_sampled(profile, "compute", compute)
            await wait_until(lambda: profile.phases.get("idle", 0) > 0, "an idle sample")
        return profile

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def test_svg_is_well_formed_and_shows_every_function(
    sampled: profiling.Profile, tmp_path: Path
) -> None:
    sampled.save(tmp_path / "flame.svg")
    root = ElementTree.parse(tmp_path / "flame.svg").getroot()
    texts = [node.text or "" for node in root.iter(f"{SVG}text")]
    line = compute.__code__.co_firstlineno
    assert any(text.endswith(f"tests/observe/test_profile.py:{line})") for text in texts)
    assert "running" in texts
    # Said, not drawn.
    assert "idle" not in texts
    boxes = [node for node in root.iter(f"{SVG}svg") if node.get("class") == "box"]
    rows: dict[str, float] = {}
    for box in boxes:
        rows[box.attrib["data-r"]] = rows.get(box.attrib["data-r"], 0) + float(box.attrib["data-w"])
    assert rows["0"] == pytest.approx(1, abs=0.01)
    assert all(width <= 1.000001 for width in rows.values())


def test_svg_escapes_names(tmp_path: Path) -> None:
    profile = profiling.Profile("running", 100)
    track = _profile.Track("loop 1")
    profile.tracks.append(track)
    name = "task <script>alert('&\"')</script> ]]>"
    profile.add(track, 0.1, (profiling.Function("running"), profiling.Function(name)), 0.5)
    profile.save(tmp_path / "flame.svg")
    root = ElementTree.parse(tmp_path / "flame.svg").getroot()
    assert name in [node.text for node in root.iter(f"{SVG}text")]
    assert len(list(root.iter(f"{SVG}script"))) == 1


def test_empty_profile_is_written_in_every_format(tmp_path: Path) -> None:
    with ringloop.profile() as profile:
        pass
    for name in ("a.svg", "a.speedscope.json", "a.gecko.json"):
        profile.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0


def test_speedscope_file_adds_up(sampled: profiling.Profile, tmp_path: Path) -> None:
    sampled.save(tmp_path / "a.speedscope.json")
    content = json.loads((tmp_path / "a.speedscope.json").read_text())
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = content["shared"]["frames"]
    assert any(frame["name"] == "compute" and frame["line"] > 0 for frame in frames)
    (own,) = content["profiles"]
    assert own["type"] == "sampled"
    assert own["unit"] == "seconds"
    assert len(own["samples"]) == len(own["weights"]) == sampled.samples
    assert own["endValue"] == pytest.approx(sum(own["weights"]))
    assert all(0 <= index < len(frames) for stack in own["samples"] for index in stack)


def test_gecko_file_refers_only_to_what_it_has(sampled: profiling.Profile, tmp_path: Path) -> None:
    sampled.save(tmp_path / "a.gecko.json")
    content = json.loads((tmp_path / "a.gecko.json").read_text())
    (thread,) = content["threads"]
    column = {
        name: table["schema"] for name, table in thread.items() if "schema" in str(table)[:12]
    }
    frames, stacks = thread["frameTable"]["data"], thread["stackTable"]["data"]
    for frame in frames:
        assert len(frame) == len(column["frameTable"])
        assert 0 <= frame[column["frameTable"]["location"]] < len(thread["stringTable"])
        assert 0 <= frame[column["frameTable"]["category"]] < len(content["meta"]["categories"])
    for index, stack in enumerate(stacks):
        prefix, frame = (stack[column["stackTable"][name]] for name in ("prefix", "frame"))
        assert prefix is None or prefix < index
        assert 0 <= frame < len(frames)
    samples = thread["samples"]["data"]
    assert len(samples) == sampled.samples
    assert all(0 <= sample[0] < len(stacks) for sample in samples)
    times = [sample[1] for sample in samples]
    assert times == sorted(times)
    assert any(text.startswith("compute (") for text in thread["stringTable"])


def test_pstats_file_is_read_by_pstats(sampled: profiling.Profile, tmp_path: Path) -> None:
    sampled.save(tmp_path / "a.pstats")
    stats: Any = pstats.Stats(str(tmp_path / "a.pstats"))
    key = (__file__, compute.__code__.co_firstlineno, "compute")
    calls, _, own, total, callers = stats.stats[key]
    assert calls >= 1
    assert 0 <= own <= total
    assert any(name[2].endswith("is_sampled") or "is_sampled" in name[2] for name in callers)
    assert sum(entry[2] for entry in stats.stats.values()) == pytest.approx(
        sum(sampled.phases.values())
    )


def test_recursion_counts_its_time_once() -> None:
    profile = profiling.Profile("running", 100)
    track = _profile.Track("loop 1")
    profile.tracks.append(track)
    function = profiling.Function("recursive", "/a.py", 1)
    profile.add(track, 0.1, (profiling.Function("running"), function, function), 0.5)
    (share,) = profile.shares()
    assert (share.own, share.total) == (0.5, 0.5)


def test_stacks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_profile, "STACKS_MAX", 2)
    monkeypatch.setattr(_profile, "TIMED_SAMPLES_MAX", 3)
    profile = profiling.Profile("running", 100)
    track = _profile.Track("loop 1")
    running = profiling.Function("running")
    for number in range(5):
        profile.add(track, number, (running, profiling.Function(f"task {number}")), 1.0)
    assert profile.samples == 5
    assert len(track.times) == 3
    assert track.dropped == 2
    assert profile.phases == {"running": 5.0}
    assert len(profile.stacks) == 3


def test_own_functions_are_distinguished_from_libraries() -> None:
    assert profiling.Function("compute", __file__, 1).is_own
    assert not profiling.Function("run", asyncio.__file__, 1).is_own
    assert not profiling.Function("pytest", pytest.__file__, 1).is_own
    assert not profiling.Function("run", ringloop.__file__, 1).is_own
    assert not profiling.Function("<frozen>", "<frozen runpy>", 1).is_own
    assert not profiling.Function("idle").is_own


# --- native parts ---------------------------------------------------------------------------------


def test_stacks_of_other_threads_are_read_while_they_run() -> None:
    from ringloop import _native

    ends = threading.Event()

    def work() -> None:
        while not ends.is_set():
            recurse(40)

    def recurse(depth: int) -> None:
        if depth:
            recurse(depth - 1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + 0.5
        deepest = 0
        while time.monotonic() < deadline or deepest < 10:
            frames = sys._current_frames()
            stacks = _native.call_stacks([frames[t.ident] for t in threads if t.ident in frames])
            for stack in stacks:
                names = [code.co_name for code, _ in stack]
                # Callers in order: no call between two others is torn off.
                assert names[-1] == "_bootstrap"
                deepest = max(deepest, names.count("recurse"))
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    with pytest.raises(TypeError, match=r"frames of sys\._current_frames"):
        _native.call_stacks([object()])  # type: ignore[list-item]


def test_pulse_says_what_the_loop_does(run: Run, loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loops have no pulse")
    from ringloop import _native

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        phase, turns, _, callbacks = loop._beat()
        assert phase == 1
        await asyncio.sleep(0)
        assert loop._beat()[1] >= turns
        assert loop._beat()[3] > callbacks
        # Another thread finds it asleep.
        phases: set[int] = set()

        def look() -> None:
            while 2 not in phases:
                phases.update(beat[0] for beat in _native.pulses([loop], 0.001))

        await within(asyncio.to_thread(look))

    run(main())
    loop = ringloop.Loop()
    assert loop._beat()[0] == 0
    for seconds in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="seconds must be"):
            _native.pulses([loop], seconds)
    loop.close()
