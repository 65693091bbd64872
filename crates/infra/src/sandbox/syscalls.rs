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
    // Programs in the kernel, and what watches it.
    libc::SYS_bpf,
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
    // Memory of files that are nowhere: nobody could say how much of it there is.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
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

/// Binds this process, and all it becomes and makes, to the filters.
pub(super) fn restrict() -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("system calls cannot be filtered: {error}");
    for filter in [refusing(), missing()] {
        let program = filter.and_then(BpfProgram::try_from).map_err(|error| said(&error))?;
        apply_filter(&guarded(program)).map_err(|error| said(&error))?;
    }
    Ok(())
}

fn refusing() -> Result<SeccompFilter, seccompiler::BackendError> {
    let mut rules: BTreeMap<_, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let new_user = libc::CLONE_NEWUSER as u64;
    let makes_user = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(new_user), new_user)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![makes_user])?]);
    let other =
        SOCKETS.iter().map(|kind| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *kind as u64));
    let other = SeccompRule::new(other.collect::<Result<_, _>>()?)?;
    rules.insert(libc::SYS_socket, vec![other.clone()]);
    rules.insert(libc::SYS_socketpair, vec![other]);
    filter(rules, libc::EPERM)
}

/// `clone3` has its flags where a filter cannot look; without it, libraries use `clone`.
fn missing() -> Result<SeccompFilter, seccompiler::BackendError> {
    filter(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

fn filter(
    rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    errno: libc::c_int,
) -> Result<SeccompFilter, seccompiler::BackendError> {
    // A call by another architecture's numbers ends the process.
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)
}

/// The same, refusing first the second set of numbers that x86-64 has, which no rule names.
fn guarded(program: BpfProgram) -> BpfProgram {
    if cfg!(not(target_arch = "x86_64")) {
        return program;
    }
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jf, k| sock_filter { code: code as u16, jt: 0, jf, k };
    let mut guarded = vec![
        // The number is what a filter sees first.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    guarded.extend(program);
    guarded
}
