//! What the namespaces leave open is closed by number: system calls that no command needs and that reach past a
//! sandbox, or have let many out of one.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};

/// Refused with "operation not permitted".
const REFUSED: &[libc::c_long] = &[
    // Keys are not divided by any namespace.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Programs in the kernel, and what watches it, or the host's files.
    libc::SYS_bpf,
    libc::SYS_fanotify_init,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // System calls by a way that no filter sees.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // Other namespaces, and another file system.
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // Memory of files that are nowhere, or that only a pipe holds: nobody could say how much of it there is.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_vmsplice,
    // The machine itself.
    libc::SYS_acct,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
];

/// The kinds of sockets there are inside: local ones, IPv4 and IPv6 on the loopback, and asking the kernel about it. Some
/// others, such as those to the host of a virtual machine, are not divided by the network namespace.
const SOCKETS: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Messages and semaphores of System V, where their namespace does not bound them.
const UNBOUNDED_IPC: [libc::c_long; 2] = [libc::SYS_msgget, libc::SYS_semget];

/// As if the kernel had none.
const MISSING: &[libc::c_long] = &[
    // Their flags and modes stand where a filter cannot look; without them, libraries use `clone` and `openat`.
    libc::SYS_clone3,
    libc::SYS_openat2,
    // The host has a certain number of these, which all share.
    libc::SYS_io_setup,
];

/// The first number behind all that was looked at here. What newer kernels have besides is as if it were missing.
const UNKNOWN: u32 = libc::SYS_mseal as u32 + 1;

/// Requests to devices and file systems that are refused: typing into a terminal for others, and taking room on a disk
/// without writing to it.
const REQUESTS: [u64; 6] = [
    libc::TIOCSTI,
    libc::TIOCLINUX,
    libc::TIOCCONS,
    0x4030_5828, // FS_IOC_RESVSP
    0x4030_582a, // FS_IOC_RESVSP64
    0x4030_5839, // FS_IOC_ZERO_RANGE
];

/// Binds this process, and all it becomes and makes, to the filters.
pub(super) fn restrict(ipc_is_bounded: bool) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("system calls cannot be filtered: {error}");
    for filter in [refusing(ipc_is_bounded), missing(), unsupported(), pretended()] {
        let program = filter.and_then(BpfProgram::try_from).map_err(|error| said(&error))?;
        apply_filter(&guarded(program)).map_err(|error| said(&error))?;
    }
    Ok(())
}

/// All that a program of an agent may ask of the kernel: memory, its line to the worker, its own end. Random numbers are for
/// the engine's tables; the program has none of them.
const OF_COMPUTING: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close_range,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Binds this process to computing: what else it asks of the kernel is refused.
pub(super) fn restrict_to_computing() -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("system calls cannot be filtered: {error}");
    let rules = OF_COMPUTING.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let made = || -> Made<BpfProgram> {
        let arch = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()
    };
    apply_filter(&made().map_err(|error| said(&error))?).map_err(|error| said(&error))
}

type Made<T> = Result<T, seccompiler::BackendError>;

/// That an argument, or a bit of it, is so. The kernel reads 32 bits of all that is asked about here.
fn is(argument: u8, operator: SeccompCmpOp, value: u64) -> Made<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn has(argument: u8, bit: u64) -> Made<SeccompCondition> {
    is(argument, SeccompCmpOp::MaskedEq(bit), bit)
}

fn refusing(ipc_is_bounded: bool) -> Made<SeccompFilter> {
    use SeccompCmpOp::{Eq, Ne};
    let mut rules: BTreeMap<_, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    if !ipc_is_bounded {
        rules.extend(UNBOUNDED_IPC.map(|call| (call, Vec::new())));
    }
    let mut refuse = |call, conditions: Vec<SeccompCondition>| -> Made<()> {
        rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
        Ok(())
    };
    refuse(libc::SYS_clone, vec![has(0, libc::CLONE_NEWUSER as u64)?])?;
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        refuse(call, SOCKETS.iter().map(|kind| is(0, Ne, *kind as u64)).collect::<Made<_>>()?)?;
    }
    // Limits of others.
    refuse(libc::SYS_prlimit64, vec![is(0, Ne, 0)?])?;
    for request in REQUESTS {
        refuse(libc::SYS_ioctl, vec![is(1, Eq, request)?])?;
    }
    // Who holds a lease of a file keeps the host's programs from writing to it for a while.
    refuse(libc::SYS_fcntl, vec![is(1, Eq, libc::F_SETLEASE as u64)?])?;
    // Large pages are the host's, and belong to whoever they were set aside for.
    refuse(libc::SYS_mmap, vec![has(3, libc::MAP_HUGETLB as u64)?])?;
    refuse(libc::SYS_shmget, vec![has(2, libc::SHM_HUGETLB as u64)?])?;
    // A file that gives the rights of its owner or group would do so on the host.
    for bit in [libc::S_ISUID, libc::S_ISGID].map(u64::from) {
        for (call, mode) in MODES {
            refuse(*call, vec![has(*mode, bit)?])?;
        }
        for (call, flags) in OPENS {
            for makes in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
                refuse(*call, vec![has(*flags, makes as u64)?, has(flags + 1, bit)?])?;
            }
        }
    }
    filter(rules, libc::EPERM)
}

fn missing() -> Made<SeccompFilter> {
    filter(MISSING.iter().map(|call| (*call, Vec::new())).collect(), libc::ENOSYS)
}

/// Room on a disk that is taken and not written is in no count, so it is taken by writing. Giving some back is welcome.
fn unsupported() -> Made<SeccompFilter> {
    let takes = is(1, SeccompCmpOp::MaskedEq(libc::FALLOC_FL_PUNCH_HOLE as u64), 0)?;
    filter(BTreeMap::from([(libc::SYS_fallocate, vec![SeccompRule::new(vec![takes])?])]), libc::EOPNOTSUPP)
}

/// Sizes of sockets' buffers are wishes, which the kernel fulfils as far as it likes. Here they stay as they are.
fn pretended() -> Made<SeccompFilter> {
    let of = |option| -> Made<SeccompRule> {
        let level = is(1, SeccompCmpOp::Eq, libc::SOL_SOCKET as u64)?;
        SeccompRule::new(vec![level, is(2, SeccompCmpOp::Eq, option as u64)?])
    };
    filter(BTreeMap::from([(libc::SYS_setsockopt, vec![of(libc::SO_SNDBUF)?, of(libc::SO_RCVBUF)?])]), 0)
}

/// System calls that set the mode of a file, and where it stands.
#[cfg(target_arch = "x86_64")]
const MODES: &[(libc::c_long, u8)] = &[
    (libc::SYS_chmod, 1),
    (libc::SYS_creat, 1),
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mknodat, 2),
];
#[cfg(not(target_arch = "x86_64"))]
const MODES: &[(libc::c_long, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_fchmodat2, 2), (libc::SYS_mknodat, 2)];

/// System calls that make a file by opening it, and where their flags stand; the mode is behind.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_open, 1), (libc::SYS_openat, 2)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_openat, 2)];

fn filter(
    rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    errno: libc::c_int,
) -> Result<SeccompFilter, seccompiler::BackendError> {
    // A call by another architecture's numbers ends the process.
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)
}

/// The same, refusing first all numbers that no rule could name: those of later kernels, and the second set that x86-64 has.
fn guarded(program: BpfProgram) -> BpfProgram {
    let step = |code: u32, jf, k| sock_filter { code: code as u16, jt: 0, jf, k };
    let mut guarded = vec![
        // The number is what a filter sees first.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, UNKNOWN),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    guarded.extend(program);
    guarded
}
