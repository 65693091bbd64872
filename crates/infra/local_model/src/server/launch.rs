//! Finds `posse-local`, starts it so that it outlives this process, and waits until it is ready.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rand::TryRngCore as _;
use serde::Deserialize;

use super::ServerOptions;
use super::error::ServerError;
use super::state::{Record, Room};
use posse_host::process::start_ticks_of;

const NAME: &str = "posse-local";

/// What may come before the ready line, and the line itself.
const STDOUT_BYTES: u64 = 64 << 10;

/// The server's word that it answers.
#[derive(Deserialize)]
struct Ready {
    ready: bool,
    port: u16,
    ctx: u32,
}

/// Starts a server and writes down where it is.
pub(super) fn launch(model: &Path, name: &str, options: &ServerOptions, room: &Room) -> Result<Record, ServerError> {
    if !model.is_file() {
        return Err(ServerError::NoModel(model.to_owned()));
    }
    let binary = match &options.binary {
        Some(path) => chosen(path)?,
        None => find_binary()?,
    };
    let token = new_token()?;
    let mut command = Command::new(&binary);
    command
        .arg("--model")
        .arg(model)
        .args(["--port", "0", "--name", name])
        .args(["--ctx", &options.context.to_string()])
        .args(["--idle-exit", &options.idle_exit.as_secs().to_string()])
        // It outlives us: it must not hold the folder that we were started in.
        .current_dir("/")
        // A clean environment: no key that this process holds is the server's business.
        .env_clear()
        .envs(["PATH", "HOME", "LANG"].into_iter().filter_map(|k| Some((k, std::env::var_os(k)?))))
        // Not an argument: those can be read by every user of the machine.
        .env("POSSE_LOCAL_TOKEN", &token)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(room.new_log()?);
    if let Some(threads) = options.threads {
        command.args(["--threads", &threads.to_string()]);
    }
    // A session of its own: Ctrl-C and a closing terminal are meant for us, not for a server that others share.
    // SAFETY: setsid is a plain system call, safe to make between fork and exec; nothing is allocated.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
    let mut child = command.spawn().map_err(|e| ServerError::Spawn { binary, source: e })?;
    let started = wait_ready(&mut child, options.start_timeout, room).and_then(|ready| {
        let pid = child.id();
        let start_ticks = start_ticks_of(pid).ok_or_else(|| died(&mut child, room))?;
        let record = Record {
            name: name.to_owned(),
            port: ready.port,
            token,
            pid,
            start_ticks,
            model: model.to_owned(),
            context: ready.ctx,
            asked_context: options.context,
        };
        room.write(&record)?;
        Ok(record)
    });
    if started.is_err() {
        // Whatever went wrong, no half-started server stays behind.
        let _ = child.kill();
        let _ = child.wait();
    } else {
        // Buries it should it end while this process lives; until then a dead one would look alive to others.
        std::thread::spawn(move || child.wait());
    }
    started
}

/// 256 bits from the operating system, in hex.
fn new_token() -> Result<String, ServerError> {
    let mut bytes = [0_u8; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|e| ServerError::NoRandom(e.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn wait_ready(child: &mut Child, timeout: Duration, room: &Room) -> Result<Ready, ServerError> {
    let Some(stdout) = child.stdout.take() else { return Err(died(child, room)) };
    let until = Instant::now() + timeout;
    let lines = lines_of(stdout);
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => match serde_json::from_str::<Ready>(&line) {
                Ok(ready) if ready.ready => return Ok(ready),
                // Not for us.
                _ => {}
            },
            Err(RecvTimeoutError::Timeout) => {
                return Err(ServerError::NeverReady { after: timeout, said: room.said(), log: room.log_path() });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(died(child, room)),
        }
    }
}

/// The lines that the server writes, read on a thread so that waiting for one can end. The thread ends with the
/// server's stdout, or when nobody listens any more.
fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout.take(STDOUT_BYTES)).lines() {
            let Ok(line) = line else { return };
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The error for a server that ended too early.
fn died(child: &mut Child, room: &Room) -> ServerError {
    // Its stdout is closed; most likely it is gone or about to be.
    let until = Instant::now() + Duration::from_secs(2);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.to_string(),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => break "it closed its output".to_owned(),
        }
    };
    ServerError::Died { status, said: room.said(), log: room.log_path() }
}

/// Finds the server's binary: `POSSE_LOCAL_BIN`, beside this program, in the checkout that this program was built
/// in, in `PATH`.
pub fn find_binary() -> Result<PathBuf, ServerError> {
    let exe = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    find_from(std::env::var_os("POSSE_LOCAL_BIN").as_deref(), exe.as_deref(), std::env::var_os("PATH").as_deref())
}

fn chosen(path: &Path) -> Result<PathBuf, ServerError> {
    if is_runnable(path) { Ok(path.to_owned()) } else { Err(ServerError::WrongBinary(path.to_owned())) }
}

fn find_from(named: Option<&OsStr>, exe: Option<&Path>, path: Option<&OsStr>) -> Result<PathBuf, ServerError> {
    if let Some(named) = named.filter(|n| !n.is_empty()) {
        return chosen(Path::new(named));
    }
    let beside = exe.and_then(Path::parent).map(|dir| dir.join(NAME));
    // A checkout's target folder is somewhere below it: target/release/posse, target/debug/deps/….
    let in_checkout = exe.into_iter().flat_map(Path::ancestors).skip(1);
    let in_checkout = in_checkout.map(|dir| dir.join("crates/local/target/release").join(NAME));
    let path = path.map(|p| std::env::split_paths(p).collect::<Vec<_>>()).unwrap_or_default();
    // A relative folder in PATH would be looked up wherever the caller happens to stand.
    let in_path = path.into_iter().filter(|dir| dir.is_absolute()).map(|dir| dir.join(NAME));
    beside.into_iter().chain(in_checkout).chain(in_path).find(|p| is_runnable(p)).ok_or(ServerError::NoBinary)
}

fn is_runnable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(path: &Path, mode: u32) -> PathBuf {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        fs::write(path, "").expect("the file");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
        path.to_owned()
    }

    #[test]
    fn each_place_is_looked_at_in_order() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let root = dir.path();
        let exe = root.join("checkout/target/release/posse");
        let path = root.join("bin").into_os_string();
        let find = |named: Option<&Path>| find_from(named.map(Path::as_os_str), Some(&exe), Some(&path)).ok();

        let missing = find_from(None, None, None).expect_err("nowhere").to_string();
        assert!(missing.contains("./quickstart") && missing.contains("cargo build"), "{missing}");
        assert_eq!(find(None), None);
        let in_path = put(&root.join("bin/posse-local"), 0o755);
        assert_eq!(find(None), Some(in_path));
        let built = put(&root.join("checkout/crates/local/target/release/posse-local"), 0o755);
        assert_eq!(find(None), Some(built));
        let beside = put(&root.join("checkout/target/release/posse-local"), 0o755);
        assert_eq!(find(None), Some(beside));
        let named = put(&root.join("elsewhere/server"), 0o755);
        assert_eq!(find(Some(&named)), Some(named));
    }
}
