"""Stand-ins for modules of the standard library and of torch, with the same names; they talk to the current world.

To one thread each behaves as the real one does. What is left out ends the run with NotSimulated, which is no finding.
No finding may rest on something that only stand-ins do, so here is all that they do otherwise:

| stand-in | the real thing |
| --- | --- |
| `lock.release`, `condition.notify` and what follows them up to the next point are one step | others may come between; nobody can tell, unless through what no stand-in guards (see `attributes`) |
| of those who wait for a Lock, RLock or SimpleQueue anybody may be next, and who comes later may be before them | as the operating system likes |
| of those who wait for a Condition, Queue or Semaphore the first to come is the first woken; who comes later may be before them | the same in CPython; nothing is promised |
| time passes only when nobody can run; a wait with a time-out never runs out while others work | a machine may be that slow (`World.hold` makes a task so) |
| each look at a clock is a microsecond later than the one before; waits that end within 0.1 ms of each other end together, at the later moment | clocks may stand still; timers are late by as much |
| all clocks are one, which begins at 1000 s; `time.time` may be set apart; a wait of 1e9 s or more has no end | |
| `event.wait` says True if the flag is up when it returns, though the time was up before | may say False then |
| the end of the world unwinds every thread, daemon or not | the process would wait for those that are no daemons |
| an exception that leaves a thread is in `World.died`; `excepthook` is not called | printed |
| threads of one name are told apart in traces only; `ident` and `native_id` are small numbers, never used again | |
| `settrace`, `setprofile`, `stack_size` do nothing to tasks; deprecated methods do not warn | |
| a Condition over a lock of a class of its own, and processes, are left out | |
| `queue.mutex` excludes nobody, but nobody comes between what is done under it and makes no step; there is no `not_empty`, `not_full`, `all_tasks_done`, and no `Queue.shutdown` (3.13) | |
| threads and futures hash to numbers, so that sets of them have an order | by address |
| `ThreadPoolExecutor` has 8 threads at most unless told, as on 4 CPUs, and its names count from 1 in every world | counts in the process |
| a pool that is forgotten, not shut down, is unwound with the world | joined at exit |
| a collective is complete for all in the step of the last who joins; each rank has the result when it waits, or sees that it is complete | ranks complete one by one; the tensor may be written before |
| `new_group` waits for nobody; `init_process_group` is the harness's affair; every backend is called gloo | a collective of its own |
| a group waits for ever unless it was given a time-out | 30 minutes |
| ranks that meet in different collectives, and two threads of one in the same group, end the run as a desync | hang, or wrong results |
| `Work` has `wait` and `is_completed` only; what is not in `collectives.FUNCTIONS` is the real function | |
| files, sockets, processes, signals, `asyncio`, `datetime` are the real ones: a call that blocks, blocks everybody (see `watchdog`) | |
"""  # noqa: E501
