//! A terminal for a program under test: what it writes is drawn, as far as a line editor needs that.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::termios::{LocalModes, tcgetattr};

use crate::support::wait::wait;

/// A program at a terminal of its own.
pub struct Terminal {
    keyboard: File,
    // Keeps the terminal there when the program has ended.
    line: OwnedFd,
    drawn: Arc<Mutex<Drawn>>,
    child: Child,
}

#[derive(Default)]
struct Drawn {
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
    columns: usize,
    /// The beginning of a character or of a sequence.
    pending: Vec<u8>,
}

impl Terminal {
    /// Starts `command` at a terminal with so many columns.
    pub fn start(mut command: Command, columns: u16) -> Terminal {
        let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut keyboard, mut line) = (0, 0);
        // SAFETY: both are places for a descriptor, and `size` is read alone.
        let made = unsafe {
            libc::openpty(&mut keyboard, &mut line, ptr::null_mut(), ptr::null_mut(), &raw const size as *mut _)
        };
        assert_eq!(made, 0, "a terminal");
        // SAFETY: they were made just now, and nobody else has them.
        let (keyboard, line) = unsafe { (File::from_raw_fd(keyboard), OwnedFd::from_raw_fd(line)) };
        let stream = || Stdio::from(line.try_clone().expect("a descriptor"));
        command.stdin(stream()).stdout(stream()).stderr(stream()).env("TERM", "xterm").env_remove("NO_COLOR");
        let child = command.spawn().expect("posse starts");
        let drawn = Arc::new(Mutex::new(Drawn { columns: columns.into(), ..Drawn::default() }));
        let (mut reads, draws) = (keyboard.try_clone().expect("a descriptor"), Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reads.read(&mut bytes) {
                draws.lock().expect("drawn").draw(&bytes[..length]);
            }
        });
        Terminal { keyboard, line, drawn, child }
    }

    /// Types.
    pub fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    /// The rows with something in them.
    pub fn rows(&self) -> Vec<String> {
        let drawn = self.drawn.lock().expect("drawn");
        let rows = drawn.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
        rows.filter(|row| !row.is_empty()).collect()
    }

    /// Waits until the rows are as they should be.
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let looked = wait(Duration::from_secs(60), || {
            let rows = self.rows();
            if is_so(&rows) { Ok(rows) } else { Err(rows) }
        });
        looked.unwrap_or_else(|rows| panic!("{what} does not come:\n{}", rows.join("\n")))
    }

    /// Whether the terminal shows what is typed, as it did before.
    pub fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.line).expect("modes").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// Asks the program to end, as a service manager would.
    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("is there");
    }

    /// Waits for the program's end, and gives its exit code.
    pub fn wait(&mut self) -> i32 {
        let ended = wait(Duration::from_secs(60), || self.child.try_wait().expect("a child").ok_or(()));
        let Ok(status) = ended else { panic!("it does not end:\n{}", self.rows().join("\n")) };
        status.code().unwrap_or(-1)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drawn {
    fn draw(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let text = match std::str::from_utf8(&pending) {
            Ok(text) => text,
            Err(error) => {
                assert!(error.error_len().is_none(), "no UTF-8: {pending:?}");
                std::str::from_utf8(&pending[..error.valid_up_to()]).expect("valid so far")
            }
        };
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let mut length = c.len_utf8();
            match c {
                '\r' => self.column = 0,
                '\n' => self.row += 1,
                '\u{8}' => self.column = self.column.saturating_sub(1),
                '\u{7}' => {}
                '\u{1b}' => {
                    let end = rest.char_indices().skip(2).find(|(_, c)| c.is_ascii_alphabetic());
                    let Some((at, kind)) = end.filter(|_| rest.starts_with("\u{1b}[")) else { break };
                    length = at + 1;
                    self.control(&rest[2..at], kind);
                }
                c => self.put(c),
            }
            rest = &rest[length..];
        }
        let taken = text.len() - rest.len();
        self.pending = pending[taken..].to_vec();
    }

    fn control(&mut self, number: &str, kind: char) {
        let n: usize = number.parse().unwrap_or(1);
        match kind {
            'A' => self.row = self.row.saturating_sub(n),
            'B' => self.row += n,
            'C' => self.column = (self.column + n).min(self.columns - 1),
            'D' => self.column = self.column.saturating_sub(n),
            'K' => {
                let column = self.column;
                self.here().truncate(column);
            }
            'J' => {
                let (row, column) = (self.row, self.column);
                self.here().truncate(column);
                self.rows.truncate(row + 1);
            }
            'm' | 'h' | 'l' => {}
            other => panic!("the terminal does not know what \\e[{number}{other} is"),
        }
    }

    fn put(&mut self, c: char) {
        if self.column >= self.columns {
            (self.row, self.column) = (self.row + 1, 0);
        }
        let column = self.column;
        let row = self.here();
        if row.len() <= column {
            row.resize(column + 1, ' ');
        }
        row[column] = c;
        self.column += 1;
    }

    fn here(&mut self) -> &mut Vec<char> {
        if self.rows.len() <= self.row {
            self.rows.resize(self.row + 1, Vec::new());
        }
        &mut self.rows[self.row]
    }
}
