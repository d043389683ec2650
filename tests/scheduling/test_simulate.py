"""Schedules that can be worked out by hand, and what holds of every schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_core.scheduling.simulate import Task, busy_seconds, simulate


def task(worker, seconds, *after, devices=None):
    return Task("work", worker, (worker,) if devices is None else devices, seconds, after)


def times(tasks, switching=None):
    return [tuple(interval) for interval in simulate(tasks, switching or {})]


def test_a_worker_does_one_thing_after_another():
    assert times([task("a", 1), task("a", 2), task("a", 3)]) == [(0, 1), (1, 3), (3, 6)]


def test_a_task_waits_for_all_that_comes_before_it():
    tasks = [task("a", 1), task("b", 5), task("c", 2, 0, 1), task("a", 1, 2)]
    assert times(tasks) == [(0, 1), (0, 5), (5, 7), (7, 8)]


def test_two_workers_on_one_device_take_it_in_the_order_in_which_they_were_ready():
    shared = ("gpu",)
    tasks = [
        task("a", 3, devices=shared),
        task("b", 1, devices=()),
        task("b", 2, devices=shared),
        task("c", 2, devices=()),
        task("c", 2, devices=shared),
    ]
    assert times(tasks) == [(0, 3), (0, 1), (3, 5), (0, 2), (5, 7)]


def test_several_devices_are_taken_all_at_once():
    tasks = [task("a", 2, devices=("x",)), task("b", 1, devices=("x", "y")), task("c", 1)]
    assert times([*tasks, task("d", 1, devices=("y",))]) == [(0, 2), (2, 3), (0, 1), (0, 1)]


def test_a_pipeline_of_two_stages_overlaps():
    """Simulating and acting cost 1 each; with two stages neither waits after the first step."""

    def lockstep(stages, steps=10):
        tasks, last = [], {}
        for _ in range(steps):
            for stage in range(stages):
                before = [last[stage]] if stage in last else []
                tasks.append(task("simulation", 1 / stages, *before))
                last[stage] = len(tasks) - 1
            for stage in range(stages):
                tasks.append(task("rollout", 1 / stages, last[stage]))
                last[stage] = len(tasks) - 1
        return max(interval.ended for interval in simulate(tasks))

    assert lockstep(1) == pytest.approx(20)
    assert lockstep(2) == pytest.approx(10.5)


def test_changing_hands_takes_time_only_where_another_had_the_device():
    tasks = [task("a", 1, devices=("x",)), task("a", 1, devices=("x",))]
    tasks += [task("b", 1, 1, devices=("x",)), task("a", 1, 2, devices=("x",))]
    switching = {"a": 10, "b": 0.5}
    assert times(tasks, switching) == [(0, 1), (1, 2), (2, 3.5), (3.5, 14.5)]
    assert [tuple(i) for i in simulate(tasks, switching, free={"x"})][-1] == (3, 4)


def test_tasks_that_wait_for_one_another_are_refused():
    with pytest.raises(ValueError, match=r"task 0 \(work of a\) can never start"):
        simulate([task("a", 1, 1), task("b", 1, 0)])
    with pytest.raises(ValueError, match="can never start"):
        simulate([task("a", 1, 1), task("a", 1)])


def test_busy_seconds_between_two_times():
    tasks = [task("a", 2), task("b", 3, devices=("x", "y")), task("a", 1, 1)]
    assert busy_seconds(tasks, simulate(tasks), 1, 3.5) == {"a": 1.5, "x": 2, "y": 2}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 5),
            st.sets(st.sampled_from("xyz"), max_size=2),
            st.sets(st.integers(0, 40), max_size=3),
        ),
        max_size=40,
    )
)
def test_whatever_the_tasks_the_schedule_keeps_every_rule(drawn):
    tasks = [
        Task(str(n), worker, tuple(sorted(devices)), seconds, tuple(a for a in after if a < n))
        for n, (worker, seconds, devices, after) in enumerate(drawn)
    ]
    done = simulate(tasks)
    for number, (task, interval) in enumerate(zip(tasks, done, strict=True)):
        assert interval.ended - interval.began == task.seconds
        assert all(done[before].ended <= interval.began for before in task.after)
        for other in range(number):
            same = tasks[other].worker == task.worker
            if same:
                assert done[other].ended <= interval.began
            elif set(tasks[other].devices) & set(task.devices):
                apart = done[other].ended <= interval.began or interval.ended <= done[other].began
                assert apart
    # Nobody idles while something could be done: every start is the end of something, or 0.
    ends = {0.0, *(interval.ended for interval in done)}
    assert all(interval.began in ends for interval in done)
