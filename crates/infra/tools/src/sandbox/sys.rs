//! The system calls that no safe library of ours has. All `unsafe` of the sandbox is here.
//!
//! Everything here runs in a process that [`begin`](super::begin) made single-threaded by never leaving
//! the first lines of `main`, so a fork may do whatever any program may.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::UnshareFlags;

pub(super) enum Fork {
    Child,
    Parent(Pid),
}

pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: this process has one thread, so its copy holds no lock that nobody will release.
    match unsafe { libc::fork() } {
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid).filter(|_| pid > 0).map(Fork::Parent).ok_or_else(io::Error::last_os_error),
    }
}

/// A child of ours, which does not outlive this.
pub(super) struct Child(pub Pid);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}

/// Handles no signal any more. The first process of a pid namespace then gets none from inside of it.
pub(super) fn handle_no_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default is no function of ours. Rust's runtime has handlers for these two.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// What becomes a command is ended by its limit on files, as any program is: whoever made the sandbox ignores that signal, and
/// that is passed on.
pub(super) fn be_ended_by_file_limits() {
    // SAFETY: the default is no function of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
}

/// Leaves namespaces of the host for new ones.
pub(super) fn leave(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of descriptors is not among them, so none comes to be owned by nobody or twice.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Closes every descriptor behind standard error: whatever was inherited by mistake.
pub(super) fn close_inherited() -> io::Result<()> {
    // SAFETY: nothing of this process has been opened yet, or what was is not looked at again to its end, so no owner of a
    // descriptor is left behind.
    done(unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) })
}

/// Sets attributes of a mount and, with `below`, of all mounts below it (`MOUNT_ATTR_*`).
pub(super) fn set_mount_attributes(mount: impl AsFd, attributes: u64, below: bool) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if below { libc::AT_RECURSIVE } else { 0 };
    let size = size_of::<libc::mount_attr>();
    // SAFETY: the path is an empty C string, `attr` lives through the call, and its size is told.
    done(unsafe {
        libc::syscall(libc::SYS_mount_setattr, mount.as_fd().as_raw_fd(), c"".as_ptr(), flags, &raw const attr, size)
    })
}

/// Switches on the loopback interface of this process's own network, which has no other.
pub(super) fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: a request of zeros is a legal one; then it is a name, with its closing zero, and flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives through the call.
    done(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) }.into())
}

/// Bytes of System V shared memory that exist in this process's own IPC namespace, attached or not.
pub(super) fn shared_memory() -> u64 {
    /// `struct shm_info` of `linux/shm.h`; libc has it for some targets only.
    #[repr(C)]
    #[derive(Default)]
    struct ShmInfo {
        used_ids: libc::c_int,
        pages: [libc::c_ulong; 3],
        swap: [libc::c_ulong; 2],
    }
    const SHM_INFO: libc::c_int = 14;
    let mut info = ShmInfo::default();
    // SAFETY: SHM_INFO writes one `shm_info`, which `info` has the shape of.
    let known = unsafe { libc::shmctl(0, SHM_INFO, (&raw mut info).cast()) } >= 0;
    // In it: all pages, those in memory, those swapped out.
    if known { info.pages[0] * rustix::param::page_size() as u64 } else { 0 }
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
