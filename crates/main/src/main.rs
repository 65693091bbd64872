//! `posse`: a durable worker fleet for AI agents. This crate wires the parts together and talks to
//! people; [`wire`] is where to begin reading.

mod bench;
mod chat;
mod cli;
mod exit;
mod fleet;
mod live;
mod local;
mod metrics;
mod models;
mod output;
mod settings;
mod times;
mod wire;

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use exit::Exit;

fn main() -> ExitCode {
    // Before anything else: a sandbox is made of a program that has done nothing yet.
    posse_infra::sandbox::begin();
    let cli = cli::Cli::parse();
    let out = cli.out();
    log_to_stderr(cli.is_long(), &out);
    // Fails only if somebody chose a provider before us, which nobody does.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out.note(format!("posse: no threads could be started: {error}"));
            return ExitCode::from(Exit::Failed as u8);
        }
    };
    let ended = runtime.block_on(cli.run());
    // A tool that hangs in a system call must not hold the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    let code = match ended {
        Ok(exit) => exit,
        // Whoever read our output had enough of it.
        Err(error) if exit::is_broken_pipe(&error) => Exit::Ok,
        Err(error) => {
            // It may name what others wrote.
            let told = output::text::visible(&format!("{error:#}"));
            out.note(format!("{} {told}", out.note_paint.red("posse:")));
            exit::code_of(&error)
        }
    };
    ExitCode::from(code as u8)
}

/// POSSE_LOG or RUST_LOG decides what is logged; else warnings, and more where a command goes on
/// for long.
fn log_to_stderr(long: bool, out: &output::Out) {
    let named =
        ["POSSE_LOG", "RUST_LOG"].into_iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    // The live view of one job tells of a model's failed tries itself.
    let fallback =
        if long { "warn,posse=info,posse_core=info,posse_infra=info" } else { "warn,posse_infra::model=error" };
    let filter = match named.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            out.warn(format!("POSSE_LOG or RUST_LOG is not understood ({error}); logging warnings"));
            EnvFilter::new(fallback)
        }
        None => EnvFilter::new(fallback),
    };
    let ansi = !out.note_paint.red("x").eq("x");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .with_target(false)
        .init();
}
