//! Attempts as Python programs, which reach every system call.

use serde_json::json;

use super::support::Bench;

/// What each program begins with: a system call by its number, giving its result or the negated error; saying what became
/// of an attempt; and holding what was got for long enough to be seen.
const BEGIN: &str = r#"
import ctypes, errno, fcntl, mmap, os, signal, socket, struct, sys, threading, time
C = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = C.syscall(ctypes.c_long(number), *wide)
    return -ctypes.get_errno() if result == -1 else result
def tell(name, result):
    print(name, 'WORKED' if result >= 0 else errno.errorcode.get(-result, result), flush=True)
def tried(name, do):
    try: do(); print(name, 'WORKED', flush=True)
    except (OSError, ValueError, MemoryError) as error: print(name, 'failed:', error, flush=True)
MB = 1 << 20
def held():
    time.sleep(8)
    print('HELD', flush=True)
"#;

/// Runs a program, and gives what the model reads, whatever became of it.
pub fn python(bench: &Bench, program: &str) -> String {
    bench.write("attempt.py", format!("{BEGIN}{program}"));
    let order = json!({"command": "exec python3 attempt.py", "timeout_s": 100});
    bench.run_with(order).unwrap_or_else(|error| error.message)
}

/// Runs a program in which nothing may have worked, and something was tried.
#[track_caller]
pub fn nothing_works(bench: &Bench, program: &str) -> String {
    let said = python(bench, program);
    assert!(said.contains("TRIED") && !said.contains("WORKED"), "{said}");
    said
}

/// Runs a program that holds more than it may. It is ended for that, or is not given so much.
#[track_caller]
pub fn too_much(bench: &Bench, program: &str, limit: &str) {
    let said = python(bench, program);
    assert!(!said.contains("HELD") && !said.contains("SyntaxError") && !said.contains("timed out"), "{said}");
    assert!(said.contains(limit) || said.contains("BOUNDED") || said.contains("MemoryError"), "{said}");
}
