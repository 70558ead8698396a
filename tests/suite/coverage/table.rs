//! What there is, and the tests that cover it: one line each.
//!
//! A new endpoint, command, event or state fails [`super`] until it has a row here; its page is written anew with `make docs`.

/// What covers a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Proof {
    /// Tests, each as `<file>::<function>`, the file from the project's folder on.
    By(&'static [&'static str]),
    /// It cannot happen, and why.
    Never(&'static str),
}

use Proof::{By, Never};

/// A row: what is covered, and by what.
pub(super) type Row = (&'static str, Proof);

/// A fault: what it is, what an operator sees of it and what becomes of it, and the tests that make it.
pub(super) struct Fault {
    pub(super) what: &'static str,
    pub(super) seen: &'static str,
    pub(super) by: &'static [&'static str],
}

/// A Rack's states, as [`super::RACK_STATES`] pairs them.
#[rustfmt::skip]
pub(super) const RACKS: &[Row] = &[
    ("none → pending", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused", "mixer/src/enrollment/tests.rs::without_auto_adopt_a_rack_waits_and_gets_its_passport_once_approved"])),
    ("none → active", By(&["mixer/src/enrollment/tests.rs::with_auto_adopt_a_rack_gets_a_passport_for_its_key_at_once_and_keeps_its_identity", "rack/tests/agent.rs::a_new_rack_enrols_and_its_telemetry_arrives_under_sequences_without_gaps"])),
    ("none → suspended", Never("a Rack is known from its first handshake on, and begins as pending or active")),
    ("none → offline", Never("only who was heard can be missed")),
    ("none → removed", Never("only who is known can be removed")),
    ("pending → active", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused", "tests/suite/first_light.rs::a_rack_waits_for_approval_and_then_runs_its_gears"])),
    ("pending → suspended", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("pending → offline", Never("a pending Rack sends no heartbeats that could be missed: it asks again until it is approved")),
    ("pending → removed", By(&["tests/suite/coverage/racks.rs::a_rack_is_removed_from_every_state_for_ever"])),
    ("active → pending", Never("an approval is taken back by removal alone")),
    ("active → suspended", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused", "rack/tests/orders.rs::suspended_and_removed_racks_run_no_gears_and_active_ones_do_again"])),
    ("active → offline", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused", "mixer/src/app/tests/racks.rs::a_rack_that_misses_three_heartbeats_is_offline_until_the_next_one_and_events_say_so"])),
    ("active → removed", By(&["tests/suite/coverage/racks.rs::a_rack_is_removed_from_every_state_for_ever", "rack/tests/orders.rs::suspended_and_removed_racks_run_no_gears_and_active_ones_do_again"])),
    ("suspended → pending", Never("an approval is taken back by removal alone")),
    ("suspended → active", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused", "rack/src/runtime/tests.rs::a_suspended_rack_holds_no_socket_and_resumes_what_ran"])),
    ("suspended → offline", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("suspended → removed", By(&["tests/suite/coverage/racks.rs::a_rack_is_removed_from_every_state_for_ever", "mixer/src/app/tests/racks.rs::a_suspended_rack_has_nothing_to_run_until_it_is_resumed_and_a_removed_one_is_refused_for_ever"])),
    ("offline → pending", Never("an approval is taken back by removal alone")),
    ("offline → active", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused", "mixer/src/app/tests/racks.rs::a_rack_that_misses_three_heartbeats_is_offline_until_the_next_one_and_events_say_so"])),
    ("offline → suspended", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("offline → removed", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused", "tests/suite/coverage/racks.rs::a_rack_is_removed_from_every_state_for_ever"])),
    ("removed → pending", By(&["tests/suite/coverage/racks.rs::a_rack_is_removed_from_every_state_for_ever", "mixer/src/enrollment/tests.rs::a_name_belongs_to_the_first_key_until_that_rack_is_removed"])),
    ("removed → active", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("removed → suspended", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("removed → offline", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
];

/// How a Rack stands to the active scenario: `runs`, and what `mixer/src/scenario/standing.rs` says of those that do not.
#[rustfmt::skip]
pub(super) const STANDINGS: &[Row] = &[
    ("runs", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not"])),
    ("it is not enrolled", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not", "tests/suite/scenarios/rest.rs::racks_that_are_not_there_and_groups_that_mean_nobody_are_named"])),
    ("it was not heard yet", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not"])),
    ("it has not taken it yet", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not"])),
    ("it is pending: platform racks approve", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not"])),
    ("it is suspended: platform racks resume", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not"])),
    ("it is {state}", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not"])),
    ("what the Rack says", By(&["tests/suite/scenarios/rest.rs::an_activation_tells_what_runs_where_and_a_rack_that_cannot_keeps_its_last_good_scenario", "mixer/src/app/tests/racks.rs::a_rack_that_cannot_apply_a_scenario_says_why_and_is_not_sent_it_again_at_every_heartbeat"])),
    ("resumed without its Mixer", By(&["rack/tests/agent.rs::a_restarted_rack_works_on_without_bus_and_mixer_and_sends_the_earlier_run_first"])),
];

/// Why a Rack does not apply a scenario: the variants of `NotApplied` in `rack/src/wires.rs`.
#[rustfmt::skip]
pub(super) const REFUSALS: &[Row] = &[
    ("UnknownType", By(&["rack/src/wires.rs::gears_that_cannot_run_are_named"])),
    ("TwoGears", By(&["rack/src/wires.rs::gears_that_cannot_run_are_named"])),
    ("Config", By(&["rack/src/wires.rs::gears_that_cannot_run_are_named"])),
    ("NoConsumer", By(&["rack/src/wires.rs::a_wire_that_cannot_be_kept_is_refused_with_the_way_out"])),
    ("NoLane", By(&["rack/src/runtime/tests.rs::a_wire_over_the_bus_is_refused_where_there_is_no_bus"])),
    ("CrossesRacks", By(&["rack/src/wires.rs::a_wire_that_cannot_be_kept_is_refused_with_the_way_out"])),
    ("NoPort", By(&["rack/src/wires.rs::a_wire_that_cannot_be_kept_is_refused_with_the_way_out"])),
    ("Init", By(&["rack/src/runtime/tests/reload.rs::a_scenario_that_cannot_start_leaves_the_last_good_one_running"])),
];

/// What becomes of a message of lane guaranteed.
#[rustfmt::skip]
pub(super) const MESSAGES: &[Row] = &[
    ("sent → kept at its Rack, whole or not at all", By(&["rack/src/spool/tests.rs::a_whole_that_is_cut_anywhere_is_not_there_and_the_one_before_is"])),
    ("kept → waits while the outbox is full", By(&["rack/src/spool/tests/full.rs::a_batch_is_admitted_when_a_floor_makes_room"])),
    ("sent → its port has no credit left → other ports go on", By(&["tests/suite/lanes/isolation.rs::a_rack_that_was_never_enrolled_holds_up_its_own_wire_only"])),
    ("on the bus → lost by it at a power cut → sent again", By(&["tests/suite/lanes/power.rs::a_power_cut_of_the_mixers_machine_loses_no_message_of_a_wire"])),
    ("sent → its port has no credit left → goes on when the receiver does", By(&["tests/suite/lanes/standstill.rs::what_waits_for_a_gear_of_its_own_rack_leaves_when_that_takes_again", "tests/suite/lanes/standstill.rs::what_waits_for_a_gear_of_its_own_rack_leaves_after_a_restart_of_the_rack"])),
    ("kept → waits while the bus is away", By(&["tests/suite/examples.rs::a_field_gateway_filters_and_loses_nothing_while_the_mixer_and_the_bus_are_dead"])),
    ("kept → on the bus, sent again until the Mixer has it", By(&["rack/tests/agent.rs::the_floor_and_not_the_buss_acknowledgement_empties_the_spool", "rack/tests/agent.rs::what_the_bus_acknowledged_and_lost_is_sent_again_under_the_same_sequences"])),
    ("on the bus → archived once", By(&["tests/suite/config_keys/json.rs::a_business_message_is_archived_once_in_its_own_tree", "tests/suite/lanes.rs::no_message_is_lost_or_archived_twice_and_order_is_kept_through_faults"])),
    ("on the bus where Racks have credentials → archived once", By(&["tests/suite/lanes.rs::where_racks_have_credentials_nothing_is_lost_through_faults_either"])),
    ("on the bus → waits for a Rack that is away", By(&["tests/suite/lanes.rs::messages_cross_racks_and_wait_for_one_that_is_away"])),
    ("on the bus → delivered in order, once", By(&["rack/src/lane/tests.rs::what_a_killed_rack_had_and_not_taken_comes_before_what_is_new"])),
    ("never came → given up and counted", By(&["rack/src/lane/place.rs::places_of_one_outbox_are_in_order_and_those_of_another_are_never_behind", "rack/src/lane/tests.rs::a_number_that_the_stream_lost_is_given_up_at_once"])),
    ("delivered → taken, with what it made", By(&["tests/suite/lanes.rs::no_message_is_lost_or_archived_twice_and_order_is_kept_through_faults"])),
    ("delivered → its gear failed → delivered again", By(&["rack/src/gears/supervisor/tests.rs::an_attempt_that_is_cut_off_counts_for_nothing_and_the_corrected_gear_gets_the_message"])),
    ("delivered → rejected → dead letter", By(&["tests/suite/lanes.rs::what_a_gear_cannot_handle_becomes_a_dead_letter_and_the_next_message_goes_on"])),
    ("over max_hops or max_payload_size → ends", By(&["rack/src/runtime/tests.rs::a_loop_ends_at_max_hops_and_a_large_message_at_max_payload_size", "tests/suite/config_keys/control.rs::a_message_is_no_larger_than_rack_and_mixer_allow"])),
    ("dead letter → waits for its gear → taken once", By(&["tests/suite/dlq/replay.rs::a_letter_waits_for_a_rack_that_is_away_and_goes_back_once_through_kill_9_of_the_mixer", "tests/suite/dlq/replay.rs::a_rack_that_is_killed_while_letters_go_back_takes_each_once"])),
    ("dead letter → cannot go back → open", By(&["tests/suite/dlq/replay.rs::a_letter_whose_gear_or_wire_is_gone_says_so_and_goes_back_when_it_is_there_again"])),
    ("dead letter → dropped", By(&["tests/suite/dlq/rest.rs::letters_are_chosen_by_filter_dropped_and_replayed_in_bulk_in_their_order"])),
    ("no message → dead letter", By(&["ingest/src/archive.rs::what_is_no_message_becomes_a_dead_letter_at_its_place"])),
    ("hot: delivered once or, where the gear dies, not", By(&["rack/src/runtime/tests.rs::a_panicking_gear_is_reported_and_restarted_while_others_go_on"])),
    ("consumers lost with the bus's store → made anew", By(&["tests/suite/lanes.rs::a_bus_that_lost_its_store_gets_its_consumers_anew_and_messages_go_on"])),
    ("consumers lost while the Mixer is away → made anew from where their wires began", By(&["tests/suite/lanes/consumers.rs::a_wire_begins_where_it_began_though_its_consumer_was_lost_while_the_mixer_was_away"])),
    ("archived and taken → leaves a stream that fills up", By(&["tests/suite/lanes/consumers.rs::what_is_archived_and_taken_makes_room_in_a_full_stream_and_what_waits_for_a_rack_stays"])),
    ("delivered → its gear was cut off → its next life's", By(&["rack/src/gears/supervisor/tests.rs::a_gear_cut_off_while_the_outbox_is_full_leaves_what_it_holds_to_its_next_life"])),
    ("hot: waits where the inbox is full", By(&["rack/src/gears/tcp_in/tests.rs::a_full_inbox_stops_the_reading_and_nothing_is_lost"])),
];

/// The kinds of `mixer/src/events.rs`.
#[rustfmt::skip]
pub(super) const EVENTS: &[Row] = &[
    ("rack_pending", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event"])),
    ("rack_approved", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event"])),
    ("rack_adopted", By(&["mixer/src/app/tests/racks.rs::a_rack_that_misses_three_heartbeats_is_offline_until_the_next_one_and_events_say_so"])),
    ("rack_suspended", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event"])),
    ("rack_resumed", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event"])),
    ("rack_removed", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event"])),
    ("rack_offline", By(&["mixer/src/app/tests/racks.rs::a_rack_that_misses_three_heartbeats_is_offline_until_the_next_one_and_events_say_so"])),
    ("rack_online", By(&["mixer/src/app/tests/racks.rs::a_rack_that_misses_three_heartbeats_is_offline_until_the_next_one_and_events_say_so"])),
    ("rack_renamed", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event", "mixer/src/enrollment/tests.rs::a_rack_that_asks_for_another_name_is_renamed_and_the_audit_log_says_from_what_to_what"])),
    ("rack_log_level", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event", "tests/suite/racks/audit.rs::scenarios_and_log_levels_are_in_the_audit_log_and_the_command_shows_it_page_by_page"])),
    ("rack_labels", By(&["tests/suite/coverage/racks.rs::every_change_of_a_racks_state_is_an_event", "tests/suite/racks/labels.rs::the_gears_of_a_group_run_where_the_label_is_and_move_with_it_also_while_a_rack_is_away"])),
    ("scenario_imported", By(&["mixer/src/app/tests/scenarios.rs::every_change_of_scenarios_is_an_event_and_what_changes_nothing_is_none"])),
    ("scenario_activated", By(&["mixer/src/app/tests/scenarios.rs::every_change_of_scenarios_is_an_event_and_what_changes_nothing_is_none"])),
    ("scenario_rolled_back", By(&["mixer/src/app/tests/scenarios.rs::every_change_of_scenarios_is_an_event_and_what_changes_nothing_is_none"])),
    ("scenario_deleted", By(&["mixer/src/app/tests/scenarios.rs::every_change_of_scenarios_is_an_event_and_what_changes_nothing_is_none"])),
    ("letters_replayed", By(&["tests/suite/dlq/audit.rs::a_request_that_changes_letters_is_one_entry_of_the_audit_log_and_one_event_and_others_are_none"])),
    ("letters_dropped", By(&["tests/suite/dlq/audit.rs::a_request_that_changes_letters_is_one_entry_of_the_audit_log_and_one_event_and_others_are_none"])),
];

/// The methods of the paths in the OpenAPI document.
#[rustfmt::skip]
pub(super) const ENDPOINTS: &[Row] = &[
    ("GET /api/v1/telemetry/logs", By(&["tests/suite/first_light.rs::a_log_line_on_a_rack_becomes_a_row_in_rest_and_in_duckdb", "mixer/src/api/tests.rs::rows_come_under_the_columns_names_newest_first_and_page_by_cursor"])),
    ("GET /api/v1/telemetry/logs/histogram", By(&["tests/suite/coverage/endpoints.rs::counts_names_and_values_are_those_of_the_rows"])),
    ("GET /api/v1/telemetry/logs/top", By(&["tests/suite/coverage/endpoints.rs::counts_names_and_values_are_those_of_the_rows"])),
    ("GET /api/v1/messages/tail", By(&["tests/suite/tail.rs::the_command_follows_messages_as_racks_send_them", "query/src/tests/messages.rs::messages_are_followed_each_once_with_those_that_were_there_and_their_bytes_in_each_form"])),
    ("GET /api/v1/telemetry/logs/tail", By(&["tests/suite/tail.rs::every_row_comes_once_while_the_mixer_is_killed_and_connections_break", "tests/suite/tail.rs::a_tail_has_the_lists_filters_begins_in_the_past_and_is_refused_beyond_its_number"])),
    ("GET /api/v1/telemetry/traces", By(&["tests/suite/first_light.rs::a_generated_message_crosses_two_gears_as_one_trace"])),
    ("GET /api/v1/telemetry/traces/top", By(&["tests/suite/coverage/endpoints.rs::counts_names_and_values_are_those_of_the_rows"])),
    ("GET /api/v1/telemetry/traces/{trace_id}", By(&["tests/suite/first_light.rs::a_generated_message_crosses_two_gears_as_one_trace"])),
    ("GET /api/v1/telemetry/metrics", By(&["tests/suite/first_light.rs::host_metrics_come_in_buckets_of_a_minute"])),
    ("GET /api/v1/telemetry/metrics/names", By(&["tests/suite/coverage/endpoints.rs::counts_names_and_values_are_those_of_the_rows"])),
    ("GET /api/v1/telemetry/metrics/{metric_name}", By(&["mixer/src/api/tests.rs::one_metric_tells_what_it_is_and_an_unknown_one_is_404"])),
    ("GET /api/v1/telemetry/metrics/{metric_name}/labels", By(&["tests/suite/coverage/endpoints.rs::counts_names_and_values_are_those_of_the_rows"])),
    ("GET /api/v1/telemetry/metrics/{metric_name}/labels/{label_key}", By(&["tests/suite/coverage/endpoints.rs::counts_names_and_values_are_those_of_the_rows"])),
    ("GET /api/v1/telemetry/messages", By(&["tests/suite/coverage/endpoints.rs::messages_are_listed_and_found_by_their_signal_over_http_and_by_the_command"])),
    ("GET /api/v1/telemetry/messages/{flux_id}", By(&["tests/suite/coverage/endpoints.rs::messages_are_listed_and_found_by_their_signal_over_http_and_by_the_command"])),
    ("GET /api/v1/messages", By(&["mixer/src/api/tests/flux.rs::messages_have_two_paths_that_answer_the_same_and_neither_is_deprecated"])),
    ("GET /api/v1/messages/{flux_id}", By(&["mixer/src/api/tests/flux.rs::messages_have_two_paths_that_answer_the_same_and_neither_is_deprecated"])),
    ("GET /api/v1/flux/{flux_id}", By(&["tests/suite/flux.rs::a_signal_keeps_its_id_and_trace_through_every_gear_and_both_lanes_and_is_found_whole", "mixer/src/api/tests/flux.rs::a_signal_is_found_by_its_id_however_old_its_rows_are_and_each_row_says_what_it_is"])),
    ("GET /api/v1/telemetry/dead_letters", By(&["tests/suite/faults.rs::foreign_batches_are_stored_and_bad_ones_become_dead_letters", "tests/suite/lanes.rs::what_a_gear_cannot_handle_becomes_a_dead_letter_and_the_next_message_goes_on"])),
    ("GET /api/v1/logs", By(&["mixer/src/api/tests.rs::former_paths_answer_the_same_and_name_their_successors"])),
    ("GET /api/v1/traces", By(&["mixer/src/api/tests.rs::former_paths_answer_the_same_and_name_their_successors"])),
    ("GET /api/v1/traces/{trace_id}", By(&["mixer/src/api/tests.rs::former_paths_answer_the_same_and_name_their_successors"])),
    ("GET /api/v1/metrics", By(&["mixer/src/api/tests.rs::former_paths_answer_the_same_and_name_their_successors"])),
    ("GET /api/v1/metrics/{metric_name}", By(&["mixer/src/api/tests.rs::former_paths_answer_the_same_and_name_their_successors"])),
    ("POST /api/v1/sql", By(&["tests/suite/sql.rs::statements_give_the_answers_that_duckdb_gives_over_the_same_files", "mixer/src/api/tests.rs::sql_is_answered_in_the_format_that_is_asked_for"])),
    ("POST /api/v1/ingest/logs", By(&["tests/suite/http_ingest.rs::every_encoding_in_every_packing_is_there_when_the_answer_is_and_soon_in_duckdb", "tests/suite/http_ingest.rs::a_request_with_a_key_is_stored_once_over_kill_9_and_answers_the_same"])),
    ("POST /api/v1/ingest/metrics", By(&["tests/suite/http_ingest.rs::every_encoding_in_every_packing_is_there_when_the_answer_is_and_soon_in_duckdb"])),
    ("POST /api/v1/ingest/traces", By(&["tests/suite/http_ingest.rs::every_encoding_in_every_packing_is_there_when_the_answer_is_and_soon_in_duckdb"])),
    ("GET /api/v1/racks", By(&["tests/suite/first_light.rs::a_rack_waits_for_approval_and_then_runs_its_gears"])),
    ("GET /api/v1/racks/{id}", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("POST /api/v1/racks/{id}/approve", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("POST /api/v1/racks/{id}/suspend", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("POST /api/v1/racks/{id}/resume", By(&["tests/suite/coverage/racks.rs::a_rack_goes_where_its_state_allows_and_every_other_way_is_refused"])),
    ("POST /api/v1/racks/{id}/remove", By(&["tests/suite/coverage/racks.rs::a_rack_is_removed_from_every_state_for_ever"])),
    ("POST /api/v1/racks/{id}/log-level", By(&["tests/suite/racks.rs::the_level_of_a_racks_log_changes_while_it_runs"])),
    ("PUT /api/v1/racks/{id}/labels", By(&["tests/suite/racks/labels.rs::the_gears_of_a_group_run_where_the_label_is_and_move_with_it_also_while_a_rack_is_away", "tests/suite/racks/labels.rs::labels_are_replaced_as_a_whole_and_bad_ones_are_refused_with_what_is_wrong"])),
    ("PATCH /api/v1/racks/{id}/labels", By(&["tests/suite/racks/labels.rs::labels_that_are_changed_at_one_moment_are_all_changed_and_the_others_stay"])),
    ("GET /api/v1/racks/{id}/tap", By(&["tests/suite/tap.rs::messages_of_both_lanes_are_shown_and_a_watcher_that_takes_nothing_slows_nobody", "tests/suite/tap.rs::what_cannot_be_watched_is_answered_with_what_can_and_taps_end_with_their_watchers"])),
    ("GET /api/v1/wires", By(&["tests/suite/lanes/isolation.rs::a_rack_that_was_never_enrolled_holds_up_its_own_wire_only"])),
    ("GET /api/v1/audit", By(&["tests/suite/racks/audit.rs::every_transition_of_a_rack_is_in_the_audit_log_with_who_did_it_and_counted_and_survives_a_kill", "tests/suite/racks/audit.rs::scenarios_and_log_levels_are_in_the_audit_log_and_the_command_shows_it_page_by_page"])),
    ("GET /api/v1/scenarios", By(&["tests/suite/scenarios/rest.rs::the_same_content_is_the_same_scenario_and_another_one_needs_another_version_or_a_word"])),
    ("POST /api/v1/scenarios", By(&["tests/suite/scenarios/rest.rs::the_same_content_is_the_same_scenario_and_another_one_needs_another_version_or_a_word", "tests/suite/scenarios/rest.rs::a_bad_scenario_is_refused_with_the_place_of_each_fault"])),
    ("GET /api/v1/scenarios/status", By(&["tests/suite/coverage/racks.rs::the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not"])),
    ("POST /api/v1/scenarios/rollback", By(&["tests/suite/scenarios/rest.rs::an_activation_tells_what_runs_where_and_a_rack_that_cannot_keeps_its_last_good_scenario"])),
    ("GET /api/v1/scenarios/{reference}", By(&["tests/suite/scenarios/rest.rs::the_same_content_is_the_same_scenario_and_another_one_needs_another_version_or_a_word"])),
    ("POST /api/v1/scenarios/{reference}/activate", By(&["tests/suite/scenarios/rest.rs::an_activation_tells_what_runs_where_and_a_rack_that_cannot_keeps_its_last_good_scenario"])),
    ("POST /api/v1/scenarios/{reference}/delete", By(&["tests/suite/scenarios/command.rs::a_stored_scenario_is_deleted_unless_it_is_active"])),
    ("GET /api/v1/dlq", By(&["tests/suite/dlq/rest.rs::letters_are_chosen_by_filter_dropped_and_replayed_in_bulk_in_their_order"])),
    ("GET /api/v1/dlq/{letter_id}", By(&["tests/suite/dlq/rest.rs::what_is_no_message_is_listed_says_why_it_cannot_go_back_and_can_be_dropped"])),
    ("POST /api/v1/dlq/replay", By(&["tests/suite/dlq/rest.rs::letters_are_chosen_by_filter_dropped_and_replayed_in_bulk_in_their_order"])),
    ("POST /api/v1/dlq/drop", By(&["tests/suite/dlq/rest.rs::letters_are_chosen_by_filter_dropped_and_replayed_in_bulk_in_their_order"])),
    ("POST /api/v1/dlq/{letter_id}/replay", By(&["tests/suite/dlq/replay.rs::a_letter_waits_for_a_rack_that_is_away_and_goes_back_once_through_kill_9_of_the_mixer", "tests/suite/dlq/replay.rs::a_letter_whose_gear_or_wire_is_gone_says_so_and_goes_back_when_it_is_there_again"])),
    ("POST /api/v1/dlq/{letter_id}/drop", By(&["tests/suite/dlq/rest.rs::what_is_no_message_is_listed_says_why_it_cannot_go_back_and_can_be_dropped"])),
    ("GET /api/v1/gears", By(&["tests/suite/scenarios/rest.rs::gear_types_tell_their_ports_their_configuration_and_an_example"])),
    ("GET /api/v1/gears/{type}", By(&["tests/suite/scenarios/rest.rs::gear_types_tell_their_ports_their_configuration_and_an_example"])),
    ("GET /api/v1/specs", By(&["tests/suite/specs.rs::spec_files_are_checked_on_the_command_line_and_listed_from_the_mixer", "tests/suite/specs.rs::a_spec_that_comes_while_messages_flow_gets_them_with_their_columns"])),
    ("GET /api/v1/storage", By(&["tests/suite/retention.rs::a_store_over_its_size_loses_its_oldest_partition_and_a_larger_size_keeps_it", "mixer/src/api/tests.rs::a_whole_mixer_says_how_it_is_what_it_holds_and_who_is_there"])),
    ("GET /api/v1/openapi.json", By(&["tests/suite/coverage/mod.rs::everything_there_is_has_a_row", "mixer/src/api/openapi/tests.rs::every_route_is_documented_and_every_documented_one_is_there"])),
    ("GET /healthz", By(&["mixer/src/api/tests.rs::a_whole_mixer_says_how_it_is_what_it_holds_and_who_is_there"])),
    ("GET /readyz", By(&["mixer/src/api/tests.rs::a_whole_mixer_says_how_it_is_what_it_holds_and_who_is_there"])),
    ("GET /version", By(&["mixer/src/api/tests.rs::a_whole_mixer_says_how_it_is_what_it_holds_and_who_is_there"])),
    ("GET /metrics", By(&["mixer/src/api/tests.rs::a_whole_mixer_says_how_it_is_what_it_holds_and_who_is_there"])),
];

/// The commands that the programs' help names.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Row] = &[
    ("platform", By(&["tests/suite/coverage/commands.rs::without_a_command_each_program_is_the_mixer_or_the_agent_and_the_word_run_starts_the_agent_too", "tests/suite/readme.rs::the_first_steps_work_as_written_and_show_rows_in_under_five_commands"])),
    ("platform run", By(&["tests/suite/readme.rs::every_command_of_the_table_exists_and_every_command_that_exists_is_in_the_table", "tests/suite/coverage/commands.rs::without_a_command_each_program_is_the_mixer_or_the_agent_and_the_word_run_starts_the_agent_too"])),
    ("platform logs", By(&["tests/suite/cli/rows.rs::logs_are_a_line_per_row_for_people_and_the_rows_of_the_api_for_programs", "tests/suite/cli/rows.rs::filters_of_the_command_choose_what_they_say"])),
    ("platform tail", By(&["tests/suite/tail.rs::the_command_follows_over_a_kill_prints_no_controls_and_ends_well_by_an_interrupt"])),
    ("platform tap", By(&["tests/suite/tap.rs::messages_of_both_lanes_are_shown_and_a_watcher_that_takes_nothing_slows_nobody", "tests/suite/tap.rs::what_cannot_be_watched_is_answered_with_what_can_and_taps_end_with_their_watchers"])),
    ("platform metrics", By(&["tests/suite/cli/rows.rs::metrics_are_points_or_buckets"])),
    ("platform traces", By(&["tests/suite/cli/rows.rs::a_trace_is_a_tree_for_people_and_its_spans_for_programs"])),
    ("platform trace", By(&["tests/suite/cli/rows.rs::a_trace_is_a_tree_for_people_and_its_spans_for_programs", "tests/suite/cli/screen.rs::buckets_and_spans_are_drawn_on_a_terminal_or_where_it_is_wished"])),
    ("platform messages", By(&["tests/suite/coverage/endpoints.rs::messages_are_listed_and_found_by_their_signal_over_http_and_by_the_command"])),
    ("platform flux", By(&["tests/suite/flux.rs::a_signal_keeps_its_id_and_trace_through_every_gear_and_both_lanes_and_is_found_whole"])),
    ("platform dead-letters", By(&["tests/suite/cli/rows.rs::dead_letters_are_listed_with_their_reason"])),
    ("platform dlq list", By(&["tests/suite/dlq/command.rs::letters_are_listed_shown_replayed_and_dropped_by_the_command"])),
    ("platform dlq show", By(&["tests/suite/dlq/command.rs::letters_are_listed_shown_replayed_and_dropped_by_the_command"])),
    ("platform dlq replay", By(&["tests/suite/dlq/command.rs::letters_are_listed_shown_replayed_and_dropped_by_the_command"])),
    ("platform dlq drop", By(&["tests/suite/dlq/command.rs::letters_are_listed_shown_replayed_and_dropped_by_the_command", "tests/suite/dlq/command.rs::whoever_drops_letters_at_a_terminal_is_asked_first"])),
    ("platform sql", By(&["tests/suite/cli/sql.rs::a_statement_prints_its_columns_in_order_in_every_format", "tests/suite/cli/shell.rs::a_statement_of_many_lines_is_answered_kept_for_its_user_alone_and_found_again"])),
    ("platform storage", By(&["tests/suite/coverage/commands.rs::racks_gear_types_and_the_store_are_listed_and_one_rack_is_shown"])),
    ("platform racks list", By(&["tests/suite/coverage/commands.rs::racks_gear_types_and_the_store_are_listed_and_one_rack_is_shown"])),
    ("platform racks show", By(&["tests/suite/coverage/commands.rs::racks_gear_types_and_the_store_are_listed_and_one_rack_is_shown"])),
    ("platform racks approve", By(&["tests/suite/cli/ends.rs::racks_are_approved_under_a_name_suspended_resumed_and_removed"])),
    ("platform racks suspend", By(&["tests/suite/cli/ends.rs::racks_are_approved_under_a_name_suspended_resumed_and_removed"])),
    ("platform racks resume", By(&["tests/suite/cli/ends.rs::racks_are_approved_under_a_name_suspended_resumed_and_removed"])),
    ("platform racks remove", By(&["tests/suite/cli/ends.rs::racks_are_approved_under_a_name_suspended_resumed_and_removed"])),
    ("platform racks log-level", By(&["tests/suite/racks.rs::the_level_of_a_racks_log_changes_while_it_runs"])),
    ("platform racks label", By(&["tests/suite/racks/labels.rs::the_gears_of_a_group_run_where_the_label_is_and_move_with_it_also_while_a_rack_is_away", "tests/suite/racks/labels.rs::labels_are_replaced_as_a_whole_and_bad_ones_are_refused_with_what_is_wrong"])),
    ("platform wires", By(&["tests/suite/lanes/isolation.rs::a_rack_that_was_never_enrolled_holds_up_its_own_wire_only"])),
    ("platform audit", By(&["tests/suite/racks/audit.rs::scenarios_and_log_levels_are_in_the_audit_log_and_the_command_shows_it_page_by_page"])),
    ("platform scenario validate", By(&["tests/suite/scenarios/command.rs::a_file_is_validated_with_a_line_for_each_fault_and_each_warning"])),
    ("platform scenario test", By(&["tests/suite/scenarios/scenario_test.rs::cases_pass_fail_with_what_differs_and_bad_files_are_told_with_their_places", "tests/suite/scenarios/scenario_test.rs::the_example_of_unit_tests_passes"])),
    ("platform scenario import", By(&["tests/suite/scenarios/command.rs::a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone"])),
    ("platform scenario list", By(&["tests/suite/coverage/commands.rs::racks_gear_types_and_the_store_are_listed_and_one_rack_is_shown"])),
    ("platform scenario show", By(&["tests/suite/scenarios/command.rs::a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone"])),
    ("platform scenario diff", By(&["tests/suite/scenarios/command.rs::a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone"])),
    ("platform scenario activate", By(&["tests/suite/scenarios/command.rs::a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone"])),
    ("platform scenario status", By(&["tests/suite/scenarios/command.rs::a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone"])),
    ("platform scenario rollback", By(&["tests/suite/scenarios/command.rs::a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone"])),
    ("platform scenario delete", By(&["tests/suite/scenarios/command.rs::a_stored_scenario_is_deleted_unless_it_is_active"])),
    ("platform scenario graph", By(&["tests/suite/scenarios/command.rs::a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone", "tests/suite/scenarios/command.rs::pictures_and_pages_of_gears_need_no_mixer"])),
    ("platform spec validate", By(&["tests/suite/specs.rs::spec_files_are_checked_on_the_command_line_and_listed_from_the_mixer"])),
    ("platform spec list", By(&["tests/suite/specs.rs::spec_files_are_checked_on_the_command_line_and_listed_from_the_mixer"])),
    ("platform gears list", By(&["tests/suite/coverage/commands.rs::racks_gear_types_and_the_store_are_listed_and_one_rack_is_shown"])),
    ("platform gears doc", By(&["tests/suite/scenarios/command.rs::pictures_and_pages_of_gears_need_no_mixer"])),
    ("platform config show", By(&["tests/suite/config_keys/layers.rs::flags_win_over_the_environment_that_over_the_file_that_over_the_defaults"])),
    ("platform config init", By(&["tests/suite/coverage/commands.rs::a_new_configuration_file_has_every_key_and_means_the_defaults"])),
    ("platform config migrate", By(&["tests/suite/migrate.rs::a_rack_file_of_v0_4_4_becomes_one_that_the_rack_reads_and_that_means_the_same"])),
    ("platform schema", By(&["tests/suite/outside/export.rs::what_platform_schema_prints_for_duckdb_reads_the_store"])),
    ("platform doctor", By(&["tests/suite/cli/doctor.rs::a_rack_that_has_what_it_needs_is_well_and_nothing_is_changed", "tests/suite/cli/doctor.rs::what_fails_is_named_with_what_helps_and_gives_the_exit_code"])),
    ("platform completions", By(&["tests/suite/cli/pages.rs::every_shell_is_told_every_command"])),
    ("platform man", By(&["tests/suite/cli/pages.rs::every_command_has_a_manual_page"])),
    ("platform-mixer", By(&["tests/suite/coverage/commands.rs::without_a_command_each_program_is_the_mixer_or_the_agent_and_the_word_run_starts_the_agent_too", "tests/suite/readme.rs::the_first_steps_work_as_written_and_show_rows_in_under_five_commands"])),
    ("platform-mixer check", By(&["tests/suite/check.rs::a_flipped_bit_in_a_data_file_is_found_and_the_file_is_named", "tests/suite/check.rs::a_damaged_catalogue_is_rebuilt_after_a_kill_and_every_row_is_there_once"])),
    ("platform-mixer retention", By(&["tests/suite/retention.rs::a_partition_older_than_the_rules_allow_goes_everywhere"])),
    ("platform-mixer copy", By(&["tests/suite/config_keys/object_store.rs::a_store_is_copied_into_a_bucket_and_home_by_the_command", "tests/suite/object_stores/mod.rs::the_requirements_hold_on_s3"])),
    ("platform-mixer export duckdb", By(&["tests/suite/outside/export.rs::an_exported_database_of_views_stays_current_and_one_of_rows_stands_alone"])),
    ("platform-mixer found-cluster", By(&["tests/suite/founding.rs::a_store_whose_registry_is_lost_is_not_taken_for_a_new_one_and_a_cluster_is_founded_in_it_on_purpose"])),
    ("platform-mixer config show", By(&["tests/suite/config_keys/layers.rs::flags_win_over_the_environment_that_over_the_file_that_over_the_defaults"])),
    ("platform-mixer config init", By(&["tests/suite/coverage/commands.rs::a_new_configuration_file_has_every_key_and_means_the_defaults"])),
    ("platform-mixer config reference", By(&["tests/suite/coverage/commands.rs::the_reference_of_the_keys_is_printed_as_it_is_published"])),
    ("platform-mixer config migrate", By(&["tests/suite/migrate.rs::a_mixer_file_of_v0_4_4_becomes_one_that_the_mixer_reads_and_that_means_the_same"])),
];

/// Bad input and faults from outside.
#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        what: "wrong handshake: another key, a changed bit, another protocol, a foreign name",
        seen: "`a rack was refused` with code and reason in the Mixer's log, the same reason in the Rack's; nothing is written",
        by: &["mixer/src/enrollment/tests.rs::a_transcript_signed_by_another_key_or_changed_in_any_bit_is_refused_and_nothing_is_written", "mixer/src/enrollment/tests.rs::other_protocols_foreign_keys_and_control_characters_are_refused", "mixer/src/enrollment/tests.rs::a_heartbeat_cannot_pass_as_a_transcript", "tests/suite/racks/names.rs::a_name_that_another_rack_has_is_refused_with_its_holder_and_the_way_out"],
    },
    Fault {
        what: "replayed handshake; a flood of hellos; an old state file",
        seen: "refused as above: a challenge is good once, for a minute, for the key that asked; the flood pushes out only the oldest",
        by: &["mixer/src/enrollment/tests.rs::a_challenge_is_good_once_for_a_minute_and_for_the_key_that_asked", "mixer/src/enrollment/tests.rs::a_flood_of_hellos_pushes_out_only_the_oldest_challenges", "mixer/src/enrollment/tests.rs::a_copy_of_an_old_state_file_is_refused_but_a_lost_answer_is_not"],
    },
    Fault {
        what: "forged or repeated answer of a Mixer: that a Rack was removed, that it is still active",
        seen: "`an answer on the bus is not this cluster's Mixer's` with the reason in the Rack's log, `rack.answers.passed_over`; the Rack goes on waiting for the answer",
        by: &["rack/tests/answers.rs::who_is_not_the_mixer_cannot_tell_a_rack_that_it_was_removed", "rack/tests/answers.rs::a_rack_that_is_known_comes_back_whatever_others_answer_to_its_handshake", "rack/tests/answers.rs::answers_that_were_heard_before_keep_no_rack_as_it_was", "model/src/answer.rs::an_answer_is_one_to_its_question_only_by_its_cluster_only_and_as_it_was_signed_only"],
    },
    Fault {
        what: "forged or copied heartbeat, heartbeat of a stranger",
        seen: "`a heartbeat was refused` with code and reason in the Mixer's log; what is shown of the Rack does not change",
        by: &["mixer/src/app/tests/racks.rs::a_heartbeat_signed_by_another_key_copied_or_of_a_stranger_changes_nothing"],
    },
    Fault {
        what: "tampered passport or state file",
        seen: "the Rack does not start: exit 65 or 77, the file is named and left as it is",
        by: &["tests/suite/faults.rs::a_tampered_passport_stops_the_rack_and_names_the_file", "rack/src/state.rs::an_accepted_passport_is_there_after_a_restart_and_no_flipped_bit_of_the_file_passes", "rack/src/state.rs::passports_of_another_cluster_for_another_key_or_of_an_older_count_are_refused", "rack/src/state.rs::no_flipped_bit_of_an_encrypted_file_passes"],
    },
    Fault {
        what: "a name that leads elsewhere: of a Rack, a gear, a scenario, a spec, in an address, on the bus, in a message's body",
        seen: "refused with the name where it enters (400, 404, 422, exit 64, 65 or 78), or a dead letter; no file is made",
        by: &["tests/suite/racks/names.rs::no_name_of_a_rack_a_scenario_or_a_gear_leads_out_of_its_folder", "tests/suite/hardship/names.rs::no_name_in_an_address_leads_to_another_thing_than_its_own", "tests/suite/hardship/names.rs::no_name_on_the_command_line_or_in_a_file_leads_out_of_its_folder", "tests/suite/hardship/names.rs::no_name_on_the_bus_becomes_a_folder_and_each_is_a_letter", "mixer/src/enrollment/tests.rs::a_name_that_leads_out_of_its_folder_or_its_subject_is_refused_and_nothing_is_written", "model/src/token.rs::subjects_folders_and_wildcards_cannot_be_smuggled_in", "model/src/spec_name.rs::a_name_cannot_leave_its_folder", "rack/src/gears/file_out/tests.rs::a_body_is_one_line_whatever_is_in_it_and_a_message_is_one_json_object"],
    },
    Fault {
        what: "an admitted Rack that speaks for another, or has the server answer on a subject where it may not speak, where Racks have credentials",
        seen: "the server refuses it, or the answer stays in the Rack's own account; streams, consumers, other Racks and their messages are as they were",
        by: &["mixer/src/app/tests/attacks.rs::no_answer_to_an_admitted_rack_changes_streams_or_consumers_or_lies_under_the_name_of_another", "mixer/src/app/tests/attacks.rs::nobody_acknowledges_for_another_or_answers_in_the_servers_place", "mixer/src/app/tests/credentials.rs::a_rack_publishes_and_hears_as_itself_only_and_a_stranger_may_ask_for_admission_and_nothing_else", "mixer/src/app/tests/credentials.rs::no_answer_of_the_mixer_or_the_server_goes_where_only_others_may_publish"],
    },
    Fault {
        what: "10,000 garbage messages among good ones",
        seen: "each is a dead letter with its reason (`platform dlq list`, `platform_ingest_dead_letters_total`), good ones arrive once and in order",
        by: &["tests/suite/hardship/garbage.rs::each_of_ten_thousand_garbage_messages_is_a_letter_and_good_ones_arrive_once_and_in_order", "tests/suite/faults.rs::foreign_batches_are_stored_and_bad_ones_become_dead_letters", "mixer/src/api/tests/hostile.rs::ten_thousand_generated_requests_are_answered_or_refused_and_never_our_fault"],
    },
    Fault {
        what: "a gear that panics",
        seen: "`the gear panicked` with its words, `gear.errors`, a span with status error; it starts again, others go on; a message it panics at three times is a dead letter",
        by: &["rack/src/runtime/tests.rs::a_panicking_gear_is_reported_and_restarted_while_others_go_on", "rack/src/gears/supervisor/tests.rs::a_message_that_the_gear_panics_at_is_a_dead_letter_after_three_attempts"],
    },
    Fault {
        what: "a gear that hangs",
        seen: "`the gear has been at one message for 30s` with the message's `flux_id`, and ever more rarely again; a change of the scenario cuts it off; a `wasm` module without end is cut by its fuel",
        by: &["rack/src/runtime/tests/hang.rs::a_gear_that_hangs_is_named_with_its_message_again_and_again_while_others_go_on", "rack/src/runtime/tests/hang.rs::a_change_of_the_scenario_cuts_a_hanging_gear_off_and_no_socket_is_closed", "rack/src/gears/patience.rs::what_takes_long_is_told_at_ever_longer_intervals_and_once_more_when_it_is_done", "rack/src/gears/patience.rs::who_waits_for_room_is_told_apart_from_who_does_not_come_back", "rack/src/runtime/tests.rs::a_gear_that_does_not_stop_is_cut_off_within_the_bound", "rack/src/gears/wasm/tests/hostile.rs::every_way_to_misbehave_is_refused_with_its_reason"],
    },
    Fault {
        what: "a gear that floods",
        seen: "its counters; what the lanes do not take waits at its source, telemetry beyond the spool is dropped and counted (`rack.telemetry.dropped`, a warning), log lines are throttled and counted; memory and disk stay bounded",
        by: &["tests/suite/hardship/flood.rs::gears_that_flood_both_lanes_keep_within_the_racks_memory_and_disk_and_others_go_on", "rack/tests/agent.rs::a_gear_that_talks_too_much_is_throttled_and_its_data_is_not", "rack/src/gears/tcp_in/tests.rs::a_full_inbox_stops_the_reading_and_nothing_is_lost"],
    },
    Fault {
        what: "a slow HTTP target",
        seen: "the gear's errors say how long it waited and of which message; other receivers go on, all come in order when it is quick again",
        by: &["tests/suite/hardship/slow.rs::a_slow_target_holds_up_neither_who_sends_nor_the_rack_and_gets_all_in_order_when_it_is_quick", "rack/src/gears/http_out/tests.rs::an_answer_that_does_not_come_in_time_is_none", "rack/src/gears/http_out/tests.rs::messages_wait_while_the_breaker_is_open_and_one_attempt_closes_it"],
    },
    Fault {
        what: "a full disk on the Rack",
        seen: "`the spool cannot be written` in its log, `disk.free` in `platform racks show`; nothing is acknowledged that is not kept, all goes on by itself when there is room; a start on a full disk ends with the file and the reason",
        by: &["tests/suite/hardship/disk.rs::a_rack_on_a_full_disk_acknowledges_nothing_that_it_does_not_keep_says_so_and_goes_on_by_itself", "rack/src/memory.rs::what_the_disk_refused_is_written_as_soon_as_it_takes_it", "rack/src/gears/file_out/tests.rs::with_a_full_disk_nothing_is_lost_and_nothing_is_written_twice", "rack/src/spool/tests/full.rs::a_full_spool_takes_checkpoints_and_what_consumers_make_in_their_share"],
    },
    Fault {
        what: "clocks a day apart",
        seen: "`clock.offset` in `platform racks show`, a warning in the Mixer's log; the Rack works, and its orders keep their order also where the Mixer's clock was set back",
        by: &["mixer/src/app/tests/clocks.rs::a_rack_whose_clock_is_a_day_off_works_and_its_offset_is_shown", "mixer/src/app/tests/clocks.rs::a_mixer_whose_clock_was_a_day_ahead_and_a_rack_whose_clock_is_a_day_behind_work_together"],
    },
    Fault {
        what: "the bus is restarted in the middle of an activation",
        seen: "`platform scenario status` says who does not run it yet; in the end every Rack does",
        by: &["tests/suite/hardship/activation.rs::a_bus_that_is_killed_between_the_store_and_the_push_of_a_scenario_keeps_no_rack_from_it"],
    },
    Fault {
        what: "the Mixer is away for an hour",
        seen: "`heartbeat not answered` in the Rack's log, `spool_bytes` when it is heard again; gears go on, also over a restart of the Rack; all is archived once and arrives in order, also what the bus has forgotten to have had",
        by: &["mixer/src/app/tests/away.rs::a_rack_works_on_while_its_mixer_is_away_for_an_hour_and_catches_up_in_order_and_once", "rack/tests/agent.rs::a_restarted_rack_works_on_without_bus_and_mixer_and_sends_the_earlier_run_first", "rack/tests/agent.rs::what_the_bus_acknowledged_and_lost_is_sent_again_under_the_same_sequences"],
    },
];
