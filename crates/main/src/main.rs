//! `posse`: a durable worker fleet for AI agents. This crate wires the parts together and talks to
//! people; [`wire`] is where to begin reading.

mod chat;
mod cli;
mod embedder;
mod env;
mod exit;
mod faults;
mod fleet;
mod live;
mod metrics;
mod models;
mod output;
mod process;
mod records;
mod session_files;
mod settings;
mod trust;
mod wire;
mod workspace;

use std::process::ExitCode;

use clap::Parser as _;
use posse_app::{Code, Error, Kind};
use posse_core::job::enqueue::Refused;
use posse_core::port::RepositoryError;

use exit::Exit;
use output::{Out, Unwritten, stream};
use trust::Untrusted;

fn main() -> ExitCode {
    // Before anything else: a sandbox is made of a program that has done nothing yet.
    posse_infra::sandbox::begin();
    let code = match cli::Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(told) => tell(&told),
    };
    stream::finish();
    ExitCode::from(code as u8)
}

fn run(cli: cli::Cli) -> Exit {
    let out = cli.out();
    process::raise_open_files();
    posse_infra::process::outlive_file_limits();
    output::log::begin(cli.is_long(), &out);
    // Fails only if somebody chose a provider before us, which nobody does.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out.note(format!("posse: no threads could be started: {error}"));
            return Exit::Failed;
        }
    };
    let ended = runtime.block_on(cli.run());
    // A tool that hangs in a system call must not hold the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended.unwrap_or_else(|error| match error.downcast::<Unwritten>() {
        Ok(unwritten) => unheard(&out, &unwritten),
        Err(error) => {
            // It may name what others wrote.
            let told = output::text::visible(&format!("{error:#}"));
            out.note(format!("{} {told}", out.note_paint.red("posse:")));
            code_of(&error)
        }
    })
}

/// Says on standard error what standard output did not take.
fn unheard(out: &Out, unwritten: &Unwritten) -> Exit {
    let posse = out.note_paint.red("posse:");
    match &unwritten.lost {
        None => {
            out.note(format!("{posse} {unwritten}; nothing was done"));
            Exit::Failed
        }
        Some(lost) if output::may_have_changed() => {
            out.note(format!("{posse} {unwritten}. What was asked for is done; it was to say:\n{lost}"));
            Exit::Untold
        }
        // Whoever read our output had enough of it.
        Some(_) if unwritten.is_broken_pipe() => Exit::Ok,
        Some(_) => {
            out.note(format!("{posse} {unwritten}"));
            Exit::Failed
        }
    }
}

/// Prints the help that was asked for, or what is wrong with the command line: that repeats arguments, which may
/// come from anywhere.
fn tell(told: &clap::Error) -> Exit {
    if told.use_stderr() {
        stream::stderr().send(output::text::visible(&told.render().to_string()));
        return Exit::Usage;
    }
    match told.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Exit::Failed,
        _ => Exit::Ok,
    }
}

fn code_of(error: &anyhow::Error) -> Exit {
    let kind = if let Some(error) = error.downcast_ref::<Error>() {
        error.kind()
    } else if let Some(error) = error.downcast_ref::<RepositoryError>() {
        Code::from(error).kind()
    } else if error.is::<Refused>() || error.is::<Untrusted>() {
        Kind::Invalid
    } else {
        Kind::Failed
    };
    match kind {
        Kind::Invalid => Exit::Usage,
        Kind::NotFound => Exit::NotFound,
        Kind::Conflict => Exit::Conflict,
        Kind::Database => Exit::Database,
        Kind::Failed => Exit::Failed,
    }
}
