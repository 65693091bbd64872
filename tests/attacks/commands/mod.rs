//! `run_command` in real sandboxes, called as a worker calls it.

mod confinement;
mod endings;
mod limits;

/// All of them, by name.
pub fn all() -> Vec<(&'static str, fn())> {
    named! { "commands::";
        endings: exit_codes_signals_and_both_outputs_are_told, long_outputs_are_bounded_and_never_block,
            long_outputs_are_cut_between_characters, outputs_that_are_no_text_are_named,
            nothing_is_left_when_the_shell_ends, input_is_empty_and_there_is_no_terminal, time_is_up,
            the_time_of_the_whole_run_counts, a_stop_ends_it_and_says_that_nobody_knows, a_dropped_call_ends_it,
            arguments_that_make_no_sense_run_nothing;
        confinement: nothing_outside_is_read, nothing_outside_is_changed, lines_that_fool_lists_stay_inside,
            directories_lead_nowhere_else, what_is_not_for_commands_is_hidden_or_kept,
            a_workspace_that_cannot_be_confined_is_refused, another_tenants_database_is_hidden,
            a_known_database_is_hidden_behind_any_number_of_files, a_workspace_that_was_swapped_runs_nothing,
            there_is_no_network_but_its_own, nothing_of_the_kernel_is_open, other_processes_are_out_of_reach,
            programs_work;
        limits: processes, memory, shared_memory, written_bytes, one_file, tmp, open_files, busy_loops;
    }
}
