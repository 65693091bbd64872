//! Another process, named so that a recycled number is not taken for it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use posse_host::process::start_ticks_of;

/// How long a server may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// How long one question about health may take, and how often it is asked: a machine that loads a model is slow.
const HEALTH: Duration = Duration::from_secs(1);
const HEALTH_TRIES: usize = 3;

/// A live process, held so that its number cannot pass to another one meanwhile.
pub(super) struct Pid {
    number: u32,
    start_ticks: u64,
    fd: OwnedFd,
}

impl Pid {
    /// The process with this number, if it lives and was started at this moment.
    pub(super) fn find(number: u32, start_ticks: u64) -> Option<Self> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(number).ok()?)?;
        // First held, then looked at: what is seen is then true of what is held.
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (start_ticks_of(number)? == start_ticks).then_some(Self { number, start_ticks, fd })
    }

    /// Ends it: asked first, then killed. Returns when it is gone.
    pub(super) fn end(self) {
        for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
            if pidfd_send_signal(&self.fd, signal).is_err() || self.is_gone_within(patience) {
                return;
            }
        }
    }

    fn is_gone_within(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while start_ticks_of(self.number) == Some(self.start_ticks) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// Whether a server on this port of loopback says that it is well.
pub(super) fn is_healthy(port: u16) -> bool {
    (0..HEALTH_TRIES).any(|_| {
        let asked = Instant::now();
        let healthy = ask_health(port).unwrap_or(false);
        if !healthy && asked.elapsed() < Duration::from_millis(100) {
            // Refused at once: give it a moment before the next try.
            std::thread::sleep(Duration::from_millis(100));
        }
        healthy
    })
}

fn ask_health(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HEALTH)?;
    stream.set_read_timeout(Some(HEALTH))?;
    stream.set_write_timeout(Some(HEALTH))?;
    write!(stream, "GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
    // "HTTP/1.1 200": the status line is all that matters.
    let mut line = [0; 12];
    stream.read_exact(&mut line)?;
    Ok(line.starts_with(b"HTTP/1.") && line.ends_with(b" 200"))
}
