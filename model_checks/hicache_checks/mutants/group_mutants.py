"""Mutants of groups: one rule or helper replaced by a faulty one, where it is looked for, and what it breaks first."""

from __future__ import annotations

from dataclasses import replace

from hicache_checks.engine.explore import DEADLOCK
from hicache_checks.mutants import faulty_groups as faulty
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.parts.grid import Grid
from hicache_spec.parts.groups_design import PAIR, PAIR_BACKUP, PAIR_TWO, SQUARE, SQUARE_DEATH

LINE = Grid("line", tp=1, pp=2, failures=True, misses=True)
LINE_IDLE = Grid("line_idle", tp=1, pp=2, fetches=False, deaths=1)
LINE_DEATH = Grid("line_death", tp=1, pp=2, deaths=1)
SLICES = Grid("slices", tp=1, cp=2, backup=True, replicated=True, fetches=False)
REPLICAS = replace(PAIR_BACKUP, name="replicas", replicated=True, fetches=False, deaths=0)
STAGES_MISSES = Grid("stages_misses", pp=2, misses=True)
PAIR_DEATH = Grid("pair_death", deaths=1)

SAME_CALL = "inv_members_make_the_same_call"
SAME_VALUES = "inv_ranks_act_on_the_same_values"
SAME_OPERATION = "inv_threads_ask_about_the_same_operation"
LOCKSTEP = "inv_ranks_in_lockstep"
OF_ALL_MEMBERS = "step_what_is_agreed_is_of_all_members"

GROUP_MUTANTS = (
    SpecMutant("sched_polls_what_it_looks_at", {"own_vote": faulty.vote_on_what_is_looked_at}, PAIR_TWO, SAME_CALL, 18),
    SpecMutant("sched_samples_what_there_is", {"sched_sample": faulty.sample_what_there_is}, PAIR, SAME_CALL, 10),
    SpecMutant(
        "sched_polls_when_something_has_landed",
        {"sched_poll": faulty.poll_when_something_has_landed},
        PAIR,
        SAME_VALUES,
        15,
    ),
    SpecMutant("sched_takes_what_it_has", {"agree_on_count": faulty.agree_on_no_count}, PAIR, OF_ALL_MEMBERS, 9),
    SpecMutant(
        "sched_agrees_on_the_highest_count",
        {"agree_on_count": faulty.agree_on_the_highest_count},
        PAIR,
        OF_ALL_MEMBERS,
        9,
    ),
    SpecMutant(
        "sched_ends_when_one_is_ready", {"agree_on_most": faulty.end_when_one_is_ready}, PAIR, OF_ALL_MEMBERS, 16
    ),
    SpecMutant(
        "sched_publishes_what_any_has", {"agree_on_least": faulty.publish_what_any_has}, PAIR, OF_ALL_MEMBERS, 20
    ),
    SpecMutant(
        "sched_puts_forward_what_was_granted",
        {"freeze": faulty.put_forward_what_was_granted},
        PAIR,
        "inv_published_landed_everywhere",
        20,
    ),
    SpecMutant(
        "sched_votes_before_it_lands", {"own_vote": faulty.vote_before_it_lands}, PAIR, "step_ends_for_cause", 16
    ),
    SpecMutant(
        "sched_counts_without_the_slices", {"go_to": faulty.go_past_context_parallel_ranks}, SQUARE, SAME_VALUES, 19
    ),
    SpecMutant(
        "sched_polls_without_the_stages",
        {"go_to": faulty.go_past_stages_in_a_poll, "sched_begin": faulty.begin_when_the_word_is_taken},
        LINE,
        "step_ends_for_cause",
        10,
    ),
    SpecMutant(
        "sched_publishes_without_the_stages", {"go_to": faulty.go_past_stages_with_counts}, LINE, SAME_VALUES, 18
    ),
    SpecMutant(
        "sched_follows_by_its_own_count", {"sched_follow": faulty.follow_by_its_own_count}, LINE, SAME_VALUES, 8
    ),
    SpecMutant("sched_takes_what_is_there", {"sched_take": faulty.take_what_is_there}, LINE, LOCKSTEP, 10),
    SpecMutant("sched_joins_crosswise", {"go_to": faulty.join_crosswise}, SQUARE, DEADLOCK, 20),
    SpecMutant(
        "sched_hands_down_after_the_poll",
        {"hand_down": faulty.hand_down_nothing, "end_turn": faulty.hand_down_after_the_poll},
        LINE,
        DEADLOCK,
        10,
    ),
    SpecMutant(
        "sched_hears_of_an_abort_late", {"sched_begin": faulty.begin_with_what_was_asked_before}, PAIR, LOCKSTEP, 3
    ),
    SpecMutant(
        "sched_aborts_without_a_barrier",
        {"abort": faulty.abort_without_a_barrier},
        PAIR,
        "inv_given_back_when_all_have_stopped",
        18,
    ),
    SpecMutant("sched_releases_by_its_own_ack", {"agree_on_ack": faulty.agree_on_no_ack}, REPLICAS, OF_ALL_MEMBERS, 11),
    SpecMutant(
        "backup_writes_on_the_first_of_all",
        {"is_writer": faulty.write_by_the_first_of_all},
        SLICES,
        "inv_released_is_stored",
        13,
    ),
    SpecMutant(
        "query_agrees_with_nobody",
        {"query_meet": faulty.seat_with_its_own_answer},
        PAIR,
        "step_hit_is_of_all_members",
        3,
    ),
    SpecMutant("query_agrees_in_its_slice", {"query_meet": faulty.seat_without_the_last_group}, SQUARE, LOCKSTEP, 23),
    SpecMutant(
        "query_agrees_in_its_stage", {"query_meet": faulty.seat_without_the_last_group}, STAGES_MISSES, LOCKSTEP, 18
    ),
    SpecMutant("query_keeps_a_miss", {"query_ask": faulty.ask_and_keep_a_miss}, PAIR_TWO, SAME_OPERATION, 4),
    SpecMutant(
        "query_asks_in_its_own_order", {"start": faulty.start_in_an_order_of_its_own}, PAIR_TWO, SAME_OPERATION, 2
    ),
    SpecMutant(
        "sched_meets_among_the_living",
        {"sched_meet": faulty.meet_among_the_living},
        PAIR_DEATH,
        "step_nobody_acts_without_a_member",
        4,
    ),
    SpecMutant("sched_is_told_of_deaths_only", {"has_lost": faulty.has_lost_to_death}, SQUARE_DEATH, DEADLOCK, 9),
    SpecMutant(
        "sched_waits_for_a_word_for_ever", {"is_left_untold": faulty.is_never_left_untold}, LINE_DEATH, DEADLOCK, 6
    ),
)

STARVING_GROUPS = (
    LivenessMutant(
        "sched_polls_when_there_is_something",
        {"sched_poll": faulty.poll_when_there_is_something, "sched_begin": faulty.begin_when_the_word_is_taken},
        LINE_IDLE,
        "live_the_others_end",
        1,
        10,
    ),
    LivenessMutant(
        "sched_waits_for_what_has_failed",
        {"own_vote": faulty.wait_for_what_has_failed},
        PAIR,
        "live_operations_end_on_every_rank",
        14,
        24,
    ),
    LivenessMutant(
        "sched_polls_until_all_have_ended",
        {"end_turn": faulty.poll_until_all_have_ended},
        PAIR,
        "live_turns_end",
        12,
        5,
    ),
    LivenessMutant(
        "query_drops_what_raises", {"query_ask": faulty.drop_what_raises}, PAIR, "live_look_ups_are_agreed", 2, 24
    ),
    LivenessMutant(
        "backup_acknowledges_what_it_writes",
        {"backup_store": faulty.acknowledge_what_it_writes},
        REPLICAS,
        "live_backups_are_released",
        1,
        24,
    ),
)
"""Faults that break no safety property: something goes on for ever."""
