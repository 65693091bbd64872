//! `posse-local`: one GGUF model behind a loopback OpenAI-compatible server, so that Posse works with no account.

use std::future;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use posse_local::args::Args;
use posse_local::engine::Engine;
use posse_local::http::{self, Activity, Server};

/// How long open connections may take to end when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// How OpenMP's threads wait for each other.
const WAIT_POLICY: &str = "OMP_WAIT_POLICY";

fn main() -> ExitCode {
    let args = Args::parse();
    wait_passively();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("posse-local: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the program anew with sleeping instead of spinning threads, unless somebody chose already.
///
/// Beside a build on the same cores, a thread that spins for one that is not running takes away the core it waits
/// for: measured, answers came ten times slower. OpenMP reads this before `main`, so it has to be there at the start.
fn wait_passively() {
    if std::env::var_os(WAIT_POLICY).is_some() {
        return;
    }
    let exec = |program| Command::new(program).args(std::env::args_os().skip(1)).env(WAIT_POLICY, "passive").exec();
    let error = std::env::current_exe().map_or_else(|e| e, exec);
    eprintln!("posse-local: threads will spin, as {WAIT_POLICY} could not be set: {error}");
}

#[tokio::main(flavor = "current_thread")]
async fn run(args: Args) -> Result<(), String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))
        .await
        .map_err(|e| format!("cannot listen on port {}: {e}", args.port))?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let (engine, stopper) = Engine::start(&args).await?;

    // Only now: while the model loads, a signal may end the process at once.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let activity = Activity::new();
    let idle = {
        let activity = Arc::clone(&activity);
        async move {
            match args.idle_exit {
                0 => future::pending().await,
                seconds => activity.idle_for(Duration::from_secs(seconds)).await,
            }
        }
    };

    announce(port, &args.model_name(), engine.n_ctx);
    let router = http::router(Server { engine, model: args.model_name(), token: args.token, activity });
    let (begin_stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let serve = axum::serve(listener, router).with_graceful_shutdown(async { drop(stopping.await) });
    let mut serve = std::pin::pin!(serve.into_future());
    let clean = tokio::select! {
        end = &mut serve => return end.map_err(|e| format!("the server failed: {e}")),
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
        () = idle => true,
        () = stopper.ended() => false,
    };
    stopper.stop();
    drop(begin_stop);
    let _ = tokio::time::timeout(GRACE, serve).await;
    if stopper.join() && clean { Ok(()) } else { Err("the model's thread ended".into()) }
}

/// The one line on stdout. Nobody has to read it.
fn announce(port: u16, model: &str, ctx: usize) {
    let line = serde_json::json!({"ready": true, "port": port, "model": model, "ctx": ctx});
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
