//! What every repository must do, told as a list of behaviours against one door, so that another
//! database is held to the same list by one more file like `sqlite_behaviour.rs`.
//!
//! Time is passed in by hand: a test that needs an hour to pass says so.

use std::sync::Arc;

use async_trait::async_trait;
use posse_core::clock::Millis;
use posse_core::job::lease::{Lease, WorkerId};
use posse_core::job::transition::Event;
use posse_core::job::{Job, JobId, JobState, Meta, NewJob, Output, Payload};
use posse_core::port::{ClaimRequest, Claimed, Ending, RepositoryError};
use posse_core::run::journal::Entry;

pub use crate::support::expire::Expire;
pub use posse_core::port::Store;

pub mod any_waits;
pub mod asking;
pub mod blocks;
pub mod care;
pub mod claiming;
pub mod deaths;
pub mod events;
pub mod fencing;
pub mod forking;
pub mod grouped;
pub mod journals;
pub mod limited;
pub mod many;
pub mod meaning;
pub mod memory;
pub mod model;
pub mod people;
pub mod properties;
pub mod questions;
pub mod ranking;
pub mod remembering;
pub mod rotation;
pub mod ruling;
pub mod schedules;
pub mod sessions;
pub mod sharing;
pub mod tasks;
pub mod unique;
pub mod waiting;
pub mod world;

/// Gives empty repositories.
#[async_trait]
pub trait Door: Send + Sync {
    /// A repository of its own; it lasts as long as the door.
    async fn fresh(&self) -> Arc<dyn Store>;

    /// The same repository as another process opens it, once there is one.
    async fn again(&self) -> Arc<dyn Store>;
}

/// The moment at which tests begin.
pub const T0: Millis = 1_800_000_000_000;
/// How long leases last in tests.
pub const LEASE: Millis = 30_000;

/// Makes a test of each behaviour. `$door` makes a [`Door`].
macro_rules! behaviours {
    ($door:expr => $($module:ident: $($name:ident),+ $(,)?;)+) => {
        $(mod $module {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let door = $door;
                let store = $crate::stores::behaviour::Door::fresh(&door).await;
                $crate::stores::behaviour::$module::$name(store).await;
            })+
        })+
    };
}

/// The same for behaviours of several processes, which are given the door itself.
macro_rules! shared_behaviours {
    ($door:expr => $($module:ident: $($name:ident),+ $(,)?;)+) => {
        $(mod $module {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let door = $door;
                $crate::stores::behaviour::$module::$name(&door).await;
            })+
        })+
    };
}

/// The same for properties, which make a door for each case.
macro_rules! for_properties {
    ($door:expr => $($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            $crate::stores::behaviour::properties::$name(|| $door, file!());
        })+
    };
}

/// The list. Read it as the contract of a repository.
macro_rules! suite {
    ($door:expr) => {
        behaviours! { $door =>
            claiming:
                ids_come_in_the_order_of_the_jobs,
                a_batch_is_stored_whole_or_not_at_all,
                what_is_enqueued_is_what_is_claimed,
                urgent_jobs_come_first_then_due_ones_then_older_ones,
                a_job_is_claimed_by_its_role_and_queue_only,
                a_scheduled_job_waits_for_its_time,
                the_next_deadline_is_the_earliest_of_all,
                tokens_rise_with_every_claim,
                the_attempt_is_written_before_the_work,
                fifty_claimers_never_share_a_job,
                strings_come_back_unchanged,
                lists_come_newest_first_by_page,
                counts_tell_each_role_and_state,
                a_commit_of_interest_wakes;
            fencing:
                a_stale_worker_changes_nothing,
                a_heartbeat_keeps_leases_and_reports_lost_ones,
                an_interrupt_gives_the_attempt_back,
                a_snooze_waits_and_gives_the_attempt_back,
                a_failure_waits_and_the_last_discards,
                a_job_that_kills_its_workers_is_discarded,
                a_crash_in_the_last_attempt_discards,
                the_jobs_of_a_dead_worker_are_rescued_at_once,
                a_suspended_job_holds_no_lease,
                workers_are_listed_until_they_leave;
            deaths:
                deaths_with_progress_discard_nobody,
                the_limit_is_the_jobs_own,
                a_suspect_is_worked_with_nothing_beside_it,
                a_suspect_is_waited_for_by_one_worker_only,
                a_worker_that_lives_is_charged_no_death,
                a_worker_that_left_word_is_charged_no_death,
                a_worker_that_leaves_gives_back_what_it_holds,
                a_lease_that_was_renewed_is_not_taken;
            people:
                cancelling_works_in_every_state,
                a_running_job_ends_as_cancelled_whatever_ends_it,
                a_job_that_completed_first_stays_completed,
                a_flagged_job_is_cancelled_when_its_worker_dies,
                no_call_is_started_once_the_end_was_asked_for,
                a_retry_begins_afresh_and_reopens_the_journal,
                cancel_and_finish_race_to_one_outcome,
                there_is_no_such_job;
            waiting:
                a_job_runs_after_all_it_waits_for,
                a_job_that_waits_for_what_is_done_is_available,
                a_job_waits_for_its_time_too,
                what_is_unknown_cannot_be_waited_for,
                a_failure_is_passed_on_by_the_rule,
                every_way_to_end_is_told,
                a_long_chain_is_cancelled_in_one_go,
                a_cancelled_job_waits_for_nothing,
                a_parent_goes_on_when_its_last_child_ends,
                a_parent_that_would_wait_for_itself_is_cancelled,
                a_parent_may_wait_for_the_same_job_twice,
                children_are_made_with_the_suspension_or_not_at_all,
                ends_stored_together_know_of_each_other,
                a_job_that_ends_as_it_begins_holds_no_key,
                a_cancel_reaches_as_far_as_it_is_told;
            tasks:
                a_task_is_made_once_for_each_effect_key,
                a_fan_out_of_five_with_room_for_three_gives_three,
                an_ended_task_gives_its_place_back_however_it_ended,
                depth_and_number_are_counted_from_the_root,
                a_stale_worker_gives_and_ends_no_task,
                who_is_to_be_cancelled_gives_no_task,
                a_job_waits_for_its_tasks_without_a_slot,
                nobody_works_tasks_for_a_job_that_came_to_nothing,
                a_question_of_a_task_comes_with_its_path;
            many:
                jobs_are_found_by_what_they_are,
                a_group_tells_how_it_stands,
                a_batch_remembers_how_far_it_is,
                a_held_unique_key_refuses_a_retry_among_many,
                only_one_of_two_processes_gets_a_chunk_in,
                many_jobs_are_changed_where_their_state_allows_it,
                what_somebody_waits_for_is_not_deleted,
                an_edited_job_is_worked_as_it_is_then,
                a_run_begins_again_when_its_goal_is_edited,
                a_job_that_asked_goes_on_when_its_goal_is_edited,
                progress_is_kept_while_a_job_runs;
            events:
                named_jobs_are_followed_to_their_ends,
                all_jobs_are_followed_from_now_on,
                a_group_is_followed_with_those_that_join_it,
                no_end_is_lost_on_a_slow_reader;
            journals:
                every_kind_of_entry_comes_back,
                entries_are_read_from_a_place_on,
                a_gap_or_a_repeat_is_refused,
                the_ledger_is_the_fold_of_the_journal,
                illegal_moves_of_the_ledger_are_refused,
                an_effect_key_names_one_call_of_one_job,
                annotations_are_saved_with_their_entry,
                annotations_by_hand_are_saved,
                annotations_are_found_by_tag_job_author_and_words,
                annotations_are_tagged_later,
                large_parts_are_read_back;
            questions:
                questions_are_saved_with_their_entry,
                nothing_is_held_while_a_job_waits,
                a_job_goes_on_once_all_its_questions_are_answered,
                a_question_is_settled_once,
                answers_race_to_one,
                questions_expire_at_their_time,
                a_cancelled_job_asks_nothing_and_a_retried_one_asks_again,
                a_job_that_is_cancelled_while_it_asks_asks_nothing,
                only_the_holder_of_the_lease_asks,
                what_leaves_a_conversation_is_archived_once;
            memory:
                an_item_is_found_by_its_words_at_once,
                a_question_may_have_anything_in_it,
                what_is_known_is_saved_once,
                what_contradicts_replaces_and_both_can_be_read,
                what_is_forgotten_is_not_found,
                what_stands_beside_an_item_finds_it_too,
                what_left_a_conversation_is_found,
                the_index_of_words_is_made_anew;
            meaning:
                an_item_is_found_by_what_it_means,
                what_stands_beside_an_item_is_a_part_of_what_it_means,
                vectors_of_two_models_are_never_compared,
                another_length_and_back_loses_nothing,
                one_process_at_a_time_makes_vectors,
                processes_that_differ_do_not_take_turns,
                a_model_that_fails_keeps_nobody_from_finding_words;
            blocks:
                a_block_has_versions_and_each_can_be_brought_back,
                what_a_block_has_no_room_for_goes_from_its_beginning,
                nobody_who_has_read_others_changes_a_block,
                blocks_are_few_and_begun_by_people,
                the_same_call_changes_a_block_once,
                a_forgotten_version_is_gone_and_those_before_it_are_not;
            grouped:
                a_job_waits_for_every_job_of_a_group,
                a_group_that_fails_is_met_by_the_rule,
                a_job_of_a_group_that_runs_again_is_waited_for_again,
                an_empty_group_is_refused,
                a_group_never_waits_for_itself,
                children_in_a_group_are_waited_for;
            unique:
                a_key_is_held_until_its_job_is_final,
                a_key_may_be_held_after_completion,
                a_batch_obeys_the_same_rule,
                a_batch_that_fails_holds_no_key,
                a_retry_whose_key_is_taken_is_refused,
                a_job_that_has_not_begun_can_be_replaced,
                a_replaced_job_keeps_its_place,
                a_debounced_job_runs_once_and_not_too_late,
                a_job_made_a_waiting_one_waits_and_never_for_itself,
                many_that_replace_at_once_are_one_job,
                a_taken_key_wedges_nothing;
            ranking:
                waiting_outweighs_priority_in_the_end,
                urgent_jobs_pass_five_thousand_that_are_due_at_once,
                lines_are_merged_by_rank,
                more_lines_than_are_looked_at_at_once_are_all_served;
            ruling:
                a_limit_holds_for_its_scope,
                a_limit_per_key_lets_other_keys_pass,
                a_full_key_in_front_costs_nothing_behind,
                thousands_of_lines_that_may_not_move_hide_none_that_may,
                the_end_of_a_job_wakes_those_a_limit_held,
                a_vanished_worker_holds_no_place,
                a_rate_lets_jobs_start_evenly,
                what_is_paused_starts_nothing_and_what_runs_goes_on,
                rules_are_listed_until_nothing_is_left_of_them,
                queues_are_counted,
                what_is_said_of_a_queue_stays_until_it_is_taken_back,
                a_job_that_is_held_says_why;
            rotation:
                ten_thousand_jobs_keep_nobody_waiting,
                a_new_key_waits_for_one_round_at_most,
                priority_is_a_matter_within_a_key,
                a_key_that_is_held_is_passed_by,
                a_fair_queue_stands_among_others_by_rank,
                workers_of_different_queues_have_rotations_of_their_own,
                what_is_fair_no_more_goes_by_rank;
            asking:
                requests_are_counted_for_everybody,
                what_was_not_used_is_given_back,
                an_endpoint_that_is_out_is_left_alone_and_probed_by_one,
                an_endpoint_that_answers_is_forgotten,
                a_stopped_probe_lets_another_go,
                who_takes_nothing_for_a_while_is_asked_again_by_one;
            schedules:
                a_schedule_is_kept_as_it_was_added,
                a_run_makes_one_job_whoever_comes_first,
                several_runs_make_their_jobs_together,
                a_paused_schedule_makes_nothing,
                what_a_removed_schedule_made_stays;
            care:
                jobs_go_when_they_were_kept_long_enough,
                what_others_wait_for_stays,
                a_key_outlives_the_time_its_job_is_kept_for,
                each_final_state_is_kept_for_its_own_time,
                retention_is_the_databases,
                a_queue_has_its_jobs_kept_for_times_of_its_own,
                a_content_goes_with_the_last_who_refers_to_it,
                gaps_and_long_lives_do_not_hide_old_jobs,
                a_duty_is_one_workers_at_a_time,
                a_clock_set_back_leaves_no_lease_for_hours,
                workers_are_asked_to_end,
                what_is_in_hand_and_what_is_due_can_be_asked,
                the_numbers_to_watch_leave_out_what_has_ended,
                who_holds_a_key_and_what_it_waits_for_can_be_asked,
                a_dead_workers_jobs_are_taken_back_whatever_the_time;
            sessions:
                a_job_becomes_an_exchange_with_its_enqueue,
                a_session_takes_only_jobs_of_its_role,
                a_name_is_one_session_whoever_begins_it,
                a_session_remembers_the_one_used_last,
                exchanges_say_how_far_they_came,
                the_first_summary_stays,
                exchanges_are_kept_as_long_as_their_session,
                a_session_that_is_remembered_is_kept_for_the_one_that_does,
                what_was_asked_on_the_way_is_told,
                what_is_said_supersedes_what_has_no_answer,
                names_that_differ_in_case_are_one,
                a_deleted_session_is_gone_whole,
                what_is_open_or_waited_for_is_not_deleted,
                an_exchange_deleted_by_hand_is_in_no_summary,
                turns_that_are_summed_up_are_remembered;
            forking:
                a_fork_has_the_same_beginning_and_keys_of_its_own,
                an_edit_changes_one_entry_of_the_fork,
                questions_of_a_fork_wait_until_it_does,
                the_source_may_go_on_meanwhile;
        }
        shared_behaviours! { $door =>
            remembering:
                what_one_process_saves_another_finds,
                what_one_process_embeds_another_finds;
            sharing:
                fifty_enqueue_one_key_at_once,
                limits_hold_over_processes,
                the_rotation_goes_on_from_process_to_process,
                rules_are_seen_by_all_processes_at_once,
                one_process_probes_for_all;
        }
        for_properties! { $door =>
            any_sequence_of_operations_follows_the_transition_function,
            any_sequence_on_jobs_that_belong_together_follows_a_simple_model,
            every_job_ends_or_is_explained,
            no_limit_is_ever_exceeded_and_no_place_is_lost,
        }
    };
}

pub(crate) use {behaviours, for_properties, shared_behaviours, suite};

/// A job for `role`, due at once.
pub fn job(role: &str) -> NewJob {
    NewJob {
        role: role.into(),
        payload: Payload { goal: format!("a goal for {role}"), ..Payload::default() },
        ..NewJob::default()
    }
}

/// Enqueues one job for `role`.
pub async fn enqueue(store: &dyn Store, role: &str, now: Millis) -> JobId {
    enqueue_all(store, vec![job(role)], now).await[0]
}

/// Enqueues jobs that are all new.
pub async fn enqueue_all(store: &dyn Store, jobs: Vec<NewJob>, now: Millis) -> Vec<JobId> {
    let enqueued = store.enqueue(jobs, now).await.expect("is stored");
    assert!(enqueued.iter().all(|one| !one.existed()));
    enqueued.into_iter().map(|one| one.id).collect()
}

/// What worker `w1` asks for as `role`.
pub fn request(role: &str, limit: u32, now: Millis) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId("w1".into()),
        role: role.into(),
        queues: Vec::new(),
        limit,
        now,
        lease_until: now + LEASE,
    }
}

/// Claims up to `limit` jobs of `role` for worker `w1`.
pub async fn claim(store: &dyn Store, role: &str, limit: u32, now: Millis) -> Vec<Claimed> {
    store.claim(request(role, limit, now)).await.expect("a claim works")
}

/// Enqueues and claims one job.
pub async fn running(store: &dyn Store, role: &str, now: Millis) -> Lease {
    enqueue(store, role, now).await;
    claim(store, role, 1, now).await[0].lease
}

/// An ending with `event` and nothing more.
pub fn ending(event: Event, due_at: Millis) -> Ending {
    Ending {
        event,
        due_at,
        reason: None,
        output: None,
        entries: Vec::new(),
        seq: 0,
        children: Vec::new(),
        waits_for: Vec::new(),
    }
}

/// Ends the attempt with `event`.
pub async fn finish(store: &dyn Store, lease: Lease, event: Event, now: Millis) -> JobState {
    store.finish(lease, ending(event, now), now).await.expect("the lease stands")
}

/// The job as stored.
pub async fn get(store: &dyn Store, id: JobId) -> Job {
    store.job(id).await.expect("can be read").expect("is there")
}

/// Everything that is stored about a job, to tell that nothing was changed.
pub async fn everything(store: &dyn Store, id: JobId) -> String {
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        store.job(id).await.expect("job"),
        store.attempts(id).await.expect("attempts"),
        store.journal(id, 0).await.expect("journal"),
        store.ledger(id).await.expect("ledger"),
        store.annotations(id).await.expect("annotations"),
    )
}

/// Whether the call said that the lease on `job` is lost.
pub fn is_lost<T: std::fmt::Debug>(result: Result<T, RepositoryError>, job: JobId) -> bool {
    matches!(result, Err(RepositoryError::LeaseLost(lost)) if lost == job)
}

/// The number of claims it takes to reach any state, and a job in it.
pub async fn in_state(store: &dyn Store, state: JobState, role: &str) -> JobId {
    let event = match state {
        JobState::Scheduled => Event::Snooze,
        JobState::Retryable => Event::Fail,
        JobState::Suspended => Event::Suspend,
        JobState::Completed => Event::Complete,
        JobState::Discarded => Event::GiveUp,
        JobState::Available => return enqueue(store, role, T0).await,
        JobState::Running => return running(store, role, T0).await.job,
        JobState::Cancelled => {
            let id = enqueue(store, role, T0).await;
            store.cancel(id, "not needed".into(), T0).await.expect("is cancelled");
            return id;
        }
    };
    let lease = running(store, role, T0).await;
    let due = ending(event, T0 + 1_000_000);
    assert_eq!(store.finish(lease, due, T0).await.expect("finishes"), state);
    lease.job
}

/// A note, for journals whose content does not matter.
pub fn note(text: &str) -> Entry {
    Entry::Note { text: text.into() }
}

/// An output that says `text`.
pub fn output(text: &str) -> Output {
    Output { text: text.into(), status: "completed".into(), ..Output::default() }
}
