//! `run_command`, and attempts to get out of it, or around its limits, by kinds. RELIABILITY.md has them in a table.
//!
//! This is a program of its own because one whose agents run commands begins its `main` with [`begin`], before there is
//! any thread, and the usual harness has its own. Each attempt is made as the user who runs the tests and, where that is
//! root, once more as nobody: there no control group can be made, and limits are held by looking. Where the host cannot
//! make sandboxes all are left out, and standard error says so.
#![allow(clippy::unwrap_used)]

/// Functions of modules, each with its name behind what all begin with.
macro_rules! named {
    ($begin:literal; $($module:ident: $($name:ident),+;)+) => {
        vec![$($((concat!($begin, stringify!($module), "::", stringify!($name)), $module::$name as fn())),+),+]
    };
}

mod commands;
mod devices;
mod disk;
mod links;
mod memory;
mod programs;
mod reach;
mod rights;
mod script;
mod support;
mod switches;
#[path = "../support/tree.rs"]
mod tree;
#[path = "../support/wait.rs"]
mod wait;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use posse_infra::sandbox::{Commands, begin};

/// Set where we are nobody.
const AS_NOBODY: &str = "POSSE_ATTACKS_AS_NOBODY";
const NOBODY: u32 = 65534;

fn main() {
    begin();
    let attacks = named! { "attacks::";
        links: rules_exchanged_with_a_link, rules_that_link_to_a_file_that_is_not_there, rules_with_a_second_name,
            rules_that_are_no_file, a_hidden_folder_exchanged_with_a_link, a_kept_folder_exchanged_with_a_link,
            a_workspace_exchanged_with_the_system, a_directory_exchanged_with_a_link;
        devices: nodes_of_the_host_keep_mode_owner_and_times, views_of_the_host_keep_mode_and_times,
            no_node_is_made, no_view_is_made_writable;
        switches: limits_of_the_watcher, signals_to_the_watcher, looking_into_the_watcher,
            scheduling_of_the_watcher, files_of_the_watcher, a_limit_is_raised, oom_score_is_lowered,
            a_first_thread_that_is_gone, a_program_nobody_may_read, a_fork_bomb_whose_worker_goes,
            a_core_is_dumped;
        memory: unix_sockets, datagrams, streams, pipes, gifts_to_pipes, shared_mappings_out_of_sight,
            shared_mappings_of_children, system_v_segments, system_v_messages, system_v_semaphores,
            message_queues, files_without_names, files_of_tmp, empty_files_of_tmp, page_tables, kernel_stacks,
            watches, keys_programs_and_rings, requests_ahead, large_pages, many_open_files;
        disk: room_that_is_not_written, room_that_is_reserved, writers_nobody_waits_for, files_without_names, files_on_their_way,
            mapped_files, many_small_files, sparse_files, attributes, folders_too_deep_to_look_at;
        rights: set_id_by_every_call, set_id_by_programs, capabilities_of_files, new_namespaces, new_mounts,
            handles_of_files, processes_as_paths, settings_of_processes, the_machine_itself,
            later_system_calls, a_lease_on_a_program;
        reach: inherited_files, terminals, abstract_sockets, processes_of_the_host, environment, watching_the_host;
    };
    let arguments = Arguments::from_args();
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let why_not = runtime.block_on(Commands::default().probe(folder.path())).err();
    let trial = |(name, attack): (&'static str, fn())| {
        Trial::test(name, move || {
            attack();
            Ok(())
        })
    };
    let attempts = attacks.iter().copied().map(trial);
    let may_be_nobody = std::env::var_os(AS_NOBODY).is_none() && rustix::process::geteuid().is_root();
    let names = attacks.iter().map(|(name, _)| *name).filter(|_| may_be_nobody);
    let nobodys = names.map(|name| Trial::test(format!("as_nobody::{name}"), move || as_nobody(name)));
    let programs = named! { "";
        programs: what_programs_give, calls_of_programs, it_does_the_same_each_time, hostile_programs_end_at_a_limit,
            sources_that_are_none, time_ends_a_program_that_only_waits, an_engine_that_breaks_down_is_a_failed_call,
            its_process_has_nothing,
            a_stop_ends_it;
    };
    let trials = commands::all().into_iter().chain(programs).map(trial).chain(attempts).chain(nobodys);
    let trials = trials.map(|trial| trial.with_ignored_flag(why_not.is_some())).collect();
    if let Some(why) = why_not {
        eprintln!("ALL TESTS OF COMMANDS ARE SKIPPED, for this host cannot make sandboxes: {why}");
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Makes one attempt in a process that is nobody's.
fn as_nobody(name: &str) -> Result<(), Failed> {
    let mut attempt = Command::new("/proc/self/exe");
    attempt.args([name, "--exact", "--test-threads=1"]).env(AS_NOBODY, "1").current_dir("/").uid(NOBODY).gid(NOBODY);
    let output = attempt.output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.success() && said.contains("1 passed") {
        true => Ok(()),
        // A host may let root alone make sandboxes.
        false if said.contains("ARE SKIPPED") => {
            eprintln!("{said}");
            Ok(())
        }
        false => Err(said.into()),
    }
}
