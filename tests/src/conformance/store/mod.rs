//! What every database must do: a function per sentence of the contracts in `posta::store`, each on
//! a fresh database.
//!
//! A test is a generic function here and a name in [`suite`]; a name that is missing there is an
//! unused function, which the compiler reports.

mod behind;
mod claim;
mod dead_letter;
mod given;
mod inbox;
mod layout;
mod lease;
mod letter_change;
mod letter_filter;
mod letters;
mod migration;
mod outbox;
mod parked;
mod parked_row;
mod pending;
mod plain_sql;
mod postponed;
mod queue;
mod readmitted;
mod recalled;
mod record;
mod redispatch;
mod released;
mod replay;
mod retry;
mod scheduled;
mod session;
mod settle;

/// Every test, once for a database.
macro_rules! suite {
    ($name:ident: $database:ty) => {
        suite! { @ $name: $database;
            outbox {
                rows_come_in_the_order_of_insertion_whatever_their_ids
                inserting_nothing_writes_nothing
                an_envelope_comes_back_as_it_was
                payloads_are_equal_byte_for_byte
                odd_texts_come_back_in_every_field
                what_was_rolled_back_was_never_there
                an_insert_that_is_refused_leaves_nothing
                a_row_that_commits_late_with_a_lower_position_is_found
                the_backlog_counts_rows_and_holds_and_ages
            }
            pending {
                no_more_rows_than_the_limit_come_and_each_lanes_first
                only_rows_of_the_lanes_asked_for_come
                rows_in_flight_are_left_out
                a_held_row_holds_its_successors_and_nobody_else
                a_hold_that_is_over_frees_the_row_and_its_key
                a_hold_that_ends_during_a_reading_shows_no_successor_before_its_head
                held_rows_do_not_fill_a_batch
                successors_of_held_rows_do_not_fill_a_batch
                the_next_due_time_is_that_of_the_first_held_row
            }
            behind {
                rows_behind_a_parked_row_wait_and_go_on_in_order
                rows_behind_a_readmitted_row_follow_it
                rows_behind_follow_a_head_that_gets_through_after_its_hold
                rows_behind_follow_a_head_that_is_removed
                rows_behind_a_head_that_was_deleted_by_hand_go_on
                a_short_hold_moves_nothing
                few_rows_stay_where_they_are
                a_long_queue_behind_a_key_is_moved_in_steps_and_goes_on_in_order
            }
            plain_sql {
                a_malformed_row_comes_alone_with_its_bytes
                a_header_that_is_no_text_is_malformed_and_kept_as_its_json
                an_unknown_type_is_carried_like_any_other
                plain_sql_needs_a_type_and_a_payload_only
                plain_sql_rows_keep_the_order_of_their_key
                adoption_leaves_no_row_without_a_slot
            }
            settle {
                dispatched_rows_move_once_and_are_kept_whole
                rows_of_fenced_lanes_move_and_the_others_stay
                dispatched_rows_stay_without_a_valid_fence
                failed_rows_stay_as_they_are_without_a_valid_fence
                removed_rows_stay_without_a_valid_fence
                rows_that_are_gone_or_in_another_lane_do_not_settle
                a_failure_counts_and_says_why
                error_texts_are_stored_without_nul_and_cut
                removed_rows_leave_no_trace
            }
            queue {
                a_subscription_adds_to_the_one_before
                a_subscription_is_its_consumers_own
                rows_go_to_each_consumer_that_takes_their_type
                rows_that_nobody_takes_are_not_reported_as_routed
                rows_are_queued_in_the_order_given
                a_queued_message_is_the_one_that_was_enqueued
                malformed_rows_are_queued_with_their_bytes
                queued_messages_come_by_slot_and_limit_and_stay
                messages_are_taken_out_once
                the_depth_counts_a_consumers_slots
                routing_that_is_rolled_back_never_was
            }
            inbox {
                an_id_is_fresh_once
                an_id_twice_in_a_batch_is_one_id
                two_consumers_each_get_the_same_id
                an_admission_that_is_rolled_back_leaves_ids_fresh
                keys_on_hold_are_seen_and_only_those_asked_for
                nothing_is_admitted_without_a_valid_fence
                overlapping_batches_admit_each_id_once_without_deadlock
                a_hold_of_a_transaction_that_had_the_id_is_seen
                handled_messages_are_counted_by_consumer
            }
            retry {
                the_first_of_a_key_is_due_and_its_successors_wait
                a_message_without_a_key_waits_for_nobody
                nothing_is_due_before_its_time
                due_messages_come_oldest_first_by_slot_and_limit
                the_earliest_due_come_first_where_there_are_more_than_the_limit
                a_key_without_its_first_message_is_found_among_many
                waiting_messages_do_not_fill_a_batch
                a_held_message_is_the_one_that_came
                a_message_is_held_once_by_a_consumer
                the_next_retry_is_that_of_the_first_due
                a_key_whose_first_message_waits_for_nobody_is_due
                held_messages_and_keys_are_counted
                a_keys_messages_are_counted_no_further_than_asked
                the_messages_of_a_key_come_in_order
                a_hold_that_is_rolled_back_never_was
            }
            released {
                a_release_makes_the_next_of_the_key_due
                several_messages_are_released_together
                a_release_behind_a_head_leaves_it_its_time
                a_release_without_a_valid_fence_changes_nothing
                a_release_of_what_is_gone_says_so
            }
            postponed {
                a_postponed_message_is_due_later_with_one_more_attempt
                a_message_that_is_postponed_untried_has_no_more_attempts
                a_message_knows_when_it_failed_first
                a_postponement_without_a_valid_fence_changes_nothing
                error_texts_of_tries_are_stored_without_nul_and_cut
            }
            layout {
                the_first_wish_is_the_layout
                a_wish_is_its_members_last_one_and_goes_with_its_time
                every_step_is_written_with_the_next_epoch
                a_layout_that_cannot_be_is_refused
                a_partition_is_drained_by_its_owner_in_its_epoch_only
                nobody_waits_for_a_layout_that_somebody_has
            }
            lease {
                members_are_all_that_joined_sorted
                a_member_whose_time_is_over_is_forgotten
                joining_makes_the_leases_and_more_when_more_are_wanted
                free_leases_are_granted_once_and_up_to_the_limit
                only_numbers_below_the_count_are_granted
                a_renewal_keeps_the_epoch_and_returns_what_is_owned
                an_expired_lease_is_not_renewed_and_can_be_taken_with_a_new_epoch
                a_lease_is_given_back_by_its_grant_only
                leaving_frees_what_was_owned_and_nothing_else
                a_member_that_shares_no_longer_keeps_what_it_owns
                resources_have_leases_of_their_own
                members_who_take_at_the_same_time_share
            }
            dead_letter {
                a_message_of_which_nothing_is_known_is_kept
                a_dead_letter_keeps_every_part_and_the_payloads_bytes
                odd_texts_are_kept_without_nul
                letters_are_counted_by_origin
                consumers_with_letters_are_named_once
                burying_nothing_writes_nothing
                a_burial_that_is_rolled_back_never_was
                a_letter_reads_as_it_was_set_aside
                a_message_that_dies_again_is_the_same_letter
                a_letter_that_is_gone_dies_again_as_a_new_one
                a_letter_that_a_policy_drops_is_on_record_and_not_dead
                only_dead_letters_are_counted
            }
            letter_filter {
                each_field_of_a_filter_chooses
                an_errors_text_is_searched_as_it_is_written
                letters_come_by_id_after_a_given_one_up_to_a_limit
                a_filter_chooses_by_state_and_dead_ones_without
                letters_that_are_alike_are_a_group_and_the_largest_comes_first
                a_group_counts_each_parked_key_once_and_what_waits_behind_it
            }
            letter_change {
                a_change_takes_only_letters_in_the_state_that_it_begins_with
                changed_letters_come_once_and_others_stay
                a_replay_is_counted_and_begins_the_attempts_anew
                a_letter_that_was_discarded_can_be_restored
                a_letter_that_is_skipped_stays_dead
                locked_letters_come_by_id_without_those_that_there_are_not
                a_letter_that_is_locked_is_read_by_others_when_that_has_ended
                a_revision_becomes_the_message_and_the_original_stays_byte_for_byte
                revisions_are_numbered_and_say_who_made_them_and_why
                only_a_dead_letter_is_revised
                revisions_survive_another_death
            }
            parked {
                the_successors_of_a_parked_message_wait_for_it
                a_delivery_that_is_parked_at_once_keeps_its_keys_place
                an_unparked_keys_messages_become_due_in_order
                what_is_not_committed_parks_and_readmits_nothing
                a_place_is_not_run
                nothing_is_parked_without_a_valid_fence
                a_key_with_two_places_waits_for_both_in_order
                a_key_that_comes_to_a_place_waits_there
                a_place_behind_a_head_leaves_without_waking_it
                places_of_other_consumers_stay
            }
            readmitted {
                a_readmitted_message_runs_first_and_its_successors_in_order
                a_message_is_readmitted_byte_for_byte
                a_message_without_a_place_is_readmitted_at_the_end
                a_message_that_is_there_already_is_not_readmitted
                a_replay_that_fails_again_is_parked_again_in_its_place
                a_replay_that_fails_again_lets_its_key_go_on_where_that_is_the_policy
                a_replay_that_is_postponed_stays_with_its_letter
                a_readmitted_message_keeps_when_it_was_enqueued
                a_letter_does_not_get_through_without_a_valid_fence
                letters_that_are_released_together_all_got_through
            }
            recalled {
                a_recalled_message_keeps_its_keys_place
                a_recalled_message_without_a_place_lets_its_key_go_on
                a_message_that_a_living_process_has_claimed_is_not_recalled
                a_message_that_is_just_being_handled_is_not_recalled
                a_recalled_row_keeps_its_keys_place
                a_recalled_row_without_a_place_is_gone
            }
            parked_row {
                the_successors_of_a_parked_row_wait_and_nobody_else
                a_readmitted_row_goes_out_first_and_its_successors_in_order
                a_row_is_readmitted_byte_for_byte
                a_row_without_a_place_is_readmitted_at_the_end
                a_row_that_waits_already_is_not_readmitted
                an_unparked_key_goes_on
                a_place_says_that_and_why_it_has_failed
                parked_rows_are_in_the_backlog_by_themselves
                parked_rows_have_no_due_time
                parked_rows_do_not_fill_a_batch
                rows_stay_unparked_without_a_valid_fence
                several_rows_are_parked_each_for_its_letter
                a_place_is_not_settled
                a_row_does_not_get_through_without_a_valid_fence
                a_row_knows_when_it_failed_first
            }
            claim {
                a_members_own_claim_is_not_abandoned
                a_claim_that_another_member_left_behind_is_abandoned
                a_member_that_gives_up_alive_leaves_no_claim
                only_who_runs_a_message_alone_counts_a_death
                a_claim_ends_when_the_message_is_postponed
                a_claim_ends_when_the_message_is_parked
                nothing_is_claimed_without_a_valid_fence
                what_is_there_is_claimed_once
                a_claim_that_is_rolled_back_never_was
                messages_that_are_not_due_are_claimed_too
            }
            scheduled {
                a_message_that_is_due_goes_to_the_outbox_and_no_other
                a_time_that_has_passed_is_due_at_once
                due_messages_are_enqueued_by_time_and_then_as_they_were_scheduled
                a_scheduled_message_is_enqueued_as_it_was
                only_lanes_that_are_owned_are_served
                a_message_can_be_cancelled_until_it_is_due
                a_message_is_scheduled_and_cancelled_in_one_transaction
                what_is_rolled_back_is_not_scheduled_and_not_cancelled
                an_id_is_scheduled_once
                an_id_that_waits_in_the_outbox_is_there_once
                the_next_due_time_is_that_of_the_lanes_asked_for
                a_message_that_was_enqueued_is_dispatched_like_any_other
            }
            replay {
                a_run_is_of_the_letters_that_are_dead_when_it_begins
                a_run_takes_only_what_its_filter_chooses
                a_run_reads_as_it_was_begun
                the_newest_runs_come_first
                a_runs_letters_are_taken_in_its_order_and_settled
                a_letter_that_died_again_and_was_dropped_has_failed
                letters_that_do_not_wait_are_not_marked
                a_runs_state_changes_from_those_given_only
                only_a_running_run_that_is_due_is_taken
                a_run_that_is_taken_is_not_taken_by_others
                a_step_that_is_rolled_back_never_was
                a_rate_or_a_limit_of_nothing_is_refused
                a_keys_place_comes_before_its_letters_that_have_none
                what_became_of_letters_is_told_without_writing_it_down
                a_letter_that_was_recalled_is_left_out
                letters_that_wait_for_another_are_told_with_it
                rows_that_wait_for_a_letter_are_told_with_it
            }
            redispatch {
                the_databases_clock_does_not_go_backwards
                rows_go_out_again_as_they_were
                steps_take_everything_once_and_keep_each_keys_order
                a_step_begins_behind_the_one_before
                each_field_of_a_redispatch_chooses
                rows_go_out_again_behind_what_waits
                a_row_whose_id_waits_already_goes_out_once
                a_preview_counts_what_each_consumer_lacks
                a_redispatch_that_is_rolled_back_never_was
            }
            record {
                the_newest_actions_come_first
                an_action_reads_as_it_was_recorded
                an_action_that_is_rolled_back_is_not_on_record
                what_consumers_handle_is_told_with_the_newest_version
            }
            migration {
                migrations_run_once
                missing_tables_are_a_schema_error
                two_processes_that_migrate_at_once_run_each_migration_once
                the_printed_sql_does_what_migrate_does
                two_names_are_two_sets_of_tables
            }
            session {
                what_is_committed_is_seen_by_others
                a_session_that_is_dropped_leaves_nothing
                sessions_come_back_to_the_pool
                a_refusal_is_told_from_an_outage
            }
        }
    };
    (@ $name:ident: $database:ty; $($noun:ident { $($test:ident)* })*) => {
        mod $name {
            $(mod $noun {
                use crate::conformance::store::$noun as tests;

                $(
                    #[tokio::test]
                    async fn $test() {
                        tests::$test(&tests::start::<$database>().await).await;
                    }
                )*
            })*
        }
    };
}

suite!(sqlite: posta::Sqlite);
suite!(postgres: posta::Postgres);
