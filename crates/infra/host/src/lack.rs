//! What a process or its machine may run out of, whatever it is asked to do.

use rustix::io::Errno;

/// What was lacking, in words, if that is why the kernel refused something. It says nothing about what was asked for,
/// and may be there again soon, or elsewhere.
pub fn lack(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::MFILE => Some("this process has as many files open as it may (ulimit -n)"),
        Errno::NFILE => Some("this machine has as many files open as it may (sysctl fs.file-max)"),
        Errno::NOMEM | Errno::NOBUFS | Errno::NOLCK => Some("this machine is out of memory"),
        _ => None,
    }
}

/// What the kernel gave, or nothing where it had a reason in what was asked for; an error where something was lacking.
pub fn given<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Err(errno) if lack(errno).is_none() => Ok(None),
        result => result.map(Some),
    }
}
