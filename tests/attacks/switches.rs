//! What holds the limits cannot be switched off, blinded or held up from inside.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::script::{nothing_works, python, too_much};
use super::support::{Bench, marker, processes_with, until};
use crate::wait::wait_async;

/// Holds more memory than there may be.
const HOG: &str = "b = [bytearray(8 * MB) for _ in range(30)]\nheld()\n";
const MEMORY: &str = "it used more than 128 MB of memory, the limit";

pub fn limits_of_the_watcher() {
    let bench = Bench::new();
    let limits = format!(
        "import resource\n\
         for name in ['NOFILE', 'CPU', 'FSIZE', 'NPROC', 'AS', 'DATA', 'STACK', 'SIGPENDING']:\n\
         \x20   for pid in [1, os.getppid() or 1, os.getpid() - 1 or 1]:\n\
         \x20       tell(name, call({prlimit}, pid, getattr(resource, 'RLIMIT_' + name), struct.pack('QQ', 2, 2), 0))\n\
         print('TRIED')\n",
        prlimit = libc::SYS_prlimit64
    );
    nothing_works(&bench, &limits);
    too_much(&bench, &format!("{limits}{HOG}"), MEMORY);
    assert!(
        bench
            .run("prlimit --pid 1 --nofile=2:2 && echo it worked || echo refused")
            .ends_with("refused\n[stderr]\nprlimit: failed to set the NOFILE resource limit: Operation not permitted")
    );
}

pub fn signals_to_the_watcher() {
    let bench = Bench::new();
    let signals = "\
for number in range(1, 65):
    if number in (32, 33): continue
    for pid in [1, 2, 3]:
        if pid != os.getpid():
            try: os.kill(pid, number)
            except OSError: pass
try: os.kill(-1, signal.SIGSTOP)
except OSError: pass
";
    too_much(&bench, &format!("{signals}{HOG}"), MEMORY);
}

pub fn looking_into_the_watcher() {
    let bench = Bench::new();
    let said = nothing_works(
        &bench,
        &format!(
            "io = struct.pack('QQ', ctypes.addressof(ctypes.create_string_buffer(8)), 8)\n\
             tell('attach', call({ptrace}, 16, 1, 0, 0))\n\
             tell('seize', call({ptrace}, 0x4206, 1, 0, 0))\n\
             tell('read', call({readv}, 1, io, 1, io, 1, 0))\n\
             tell('write', call({writev}, 1, io, 1, io, 1, 0))\n\
             tell('kcmp', call({kcmp}, 1, os.getpid(), 2, 0, 0))\n\
             pidfd = call({pidfd_open}, 1, 0)\n\
             for fd in range(12): tell('getfd', call({pidfd_getfd}, pidfd, fd, 0))\n\
             tell('namespaces', call({setns}, pidfd, 0x20000000))\n\
             tell('madvise', call({madvise}, pidfd, io, 1, 4, 0))\n\
             for name in ['mem', 'environ', 'maps', 'auxv', 'fd/0', 'fd/3', 'root/', 'cwd/', 'exe', 'map_files', 'ns/mnt', 'stack', 'syscall', 'io']:\n\
             \x20   tried(name, lambda: os.listdir('/proc/1/' + name) if name in ('root/', 'cwd/', 'map_files') else open('/proc/1/' + name, 'rb').read(8))\n\
             print('TRIED')\n",
            ptrace = libc::SYS_ptrace,
            readv = libc::SYS_process_vm_readv,
            writev = libc::SYS_process_vm_writev,
            kcmp = libc::SYS_kcmp,
            pidfd_open = libc::SYS_pidfd_open,
            pidfd_getfd = libc::SYS_pidfd_getfd,
            setns = libc::SYS_setns,
            madvise = libc::SYS_process_madvise,
        ),
    );
    assert!(said.contains("attach EPERM") && said.contains("getfd EPERM"), "{said}");
}

pub fn scheduling_of_the_watcher() {
    let bench = Bench::new();
    let scheduling = format!(
        "for pid in [1, 0]:\n\
         \x20   for do in [lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),\n\
         \x20              lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),\n\
         \x20              lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),\n\
         \x20              lambda: call({ioprio}, 1, pid, 3 << 13), lambda: call({ioprio}, 3, os.getuid(), 3 << 13)]:\n\
         \x20       try: do()\n\
         \x20       except OSError: pass\n\
         tried('nice', lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))\n\
         tried('real time', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))\n",
        ioprio = libc::SYS_ioprio_set
    );
    let said = python(&bench, &format!("{scheduling}{HOG}"));
    assert!(said.contains(MEMORY) && !said.contains("WORKED") && !said.contains("HELD"), "{said}");
}

pub fn files_of_the_watcher() {
    let bench = Bench::new();
    nothing_works(
        &bench,
        "for pid in ['1', 'self', 'thread-self']:\n\
         \x20   for name in ['oom_score_adj', 'oom_adj', 'comm', 'mem', 'uid_map', 'gid_map', 'setgroups', 'clear_refs', 'coredump_filter', 'timerslack_ns', 'attr/current', 'attr/exec', 'sched', 'autogroup', 'loginuid', 'make-it-fail']:\n\
         \x20       tried(pid + '/' + name, lambda: os.write(os.open('/proc/' + pid + '/' + name, os.O_WRONLY), b'0'))\n\
         print('TRIED')\n",
    );
}

pub fn a_limit_is_raised() {
    let bench = Bench::new();
    nothing_works(
        &bench,
        "import resource\n\
         for name in ['CORE', 'NOFILE', 'FSIZE', 'NPROC', 'DATA', 'STACK', 'MEMLOCK', 'MSGQUEUE', 'SIGPENDING', 'RTPRIO', 'NICE']:\n\
         \x20   kind = getattr(resource, 'RLIMIT_' + name)\n\
         \x20   most = resource.getrlimit(kind)[1]\n\
         \x20   if most == resource.RLIM_INFINITY: print(name, 'WORKED')\n\
         \x20   tried(name, lambda: resource.setrlimit(kind, (most + 1, most + 1)))\n\
         print('TRIED')\n",
    );
}

pub fn oom_score_is_lowered() {
    let bench = Bench::new();
    let said =
        bench.run("for v in 0 -1000 999; do echo $v > /proc/self/oom_score_adj; done; cat /proc/self/oom_score_adj");
    assert!(said.contains("[stdout]\n1000\n[stderr]"), "{said}");
}

/// The kernel tells less of a process whose first thread has ended.
pub fn a_first_thread_that_is_gone() {
    let bench = Bench::new();
    let gone = format!(
        "def rest():\n\
         \x20   time.sleep(0.2)\n\
         \x20   b = [bytearray(8 * MB) for _ in range(30)]\n\
         \x20   time.sleep(8)\n\
         \x20   os.write(1, b'HELD')\n\
         threading.Thread(target=rest).start()\n\
         time.sleep(0.1)\n\
         call({exit}, 0)\n",
        exit = libc::SYS_exit
    );
    too_much(&bench, &gone, MEMORY);
    let gone = format!(
        "def rest():\n\
         \x20   time.sleep(0.2)\n\
         \x20   for n in range(60):\n\
         \x20       t = threading.Thread(target=lambda: open('f%d' % n, 'wb').write(b'x' * MB)); t.start(); t.join()\n\
         \x20   time.sleep(8)\n\
         \x20   os.write(1, b'HELD')\n\
         threading.Thread(target=rest).start()\n\
         time.sleep(0.1)\n\
         call({exit}, 0)\n",
        exit = libc::SYS_exit
    );
    too_much(&bench, &gone, "it wrote more than 16 MB, the limit");
}

pub fn a_program_nobody_may_read() {
    let bench = Bench::new();
    bench.write("hog.py", "import time\nb = [bytearray(8 << 20) for _ in range(30)]\ntime.sleep(8)\nprint('HELD')\n");
    let command = "cp $(python3 -c 'import sys; print(sys.executable)') blind; chmod 0111 blind; exec ./blind hog.py";
    let said = bench.run_with(json!({"command": command, "timeout_s": 60})).unwrap_or_else(|error| error.message);
    assert!(
        said.contains("the limit") || said.contains("could not be seen") || said.contains("cannot execute"),
        "{said}"
    );
    assert!(!said.contains("HELD"), "{said}");
}

pub fn a_fork_bomb_whose_worker_goes() {
    let bench = Bench::new();
    let marker = marker();
    let bomb = format!("b() {{ b | b & }}; b; b; sleep {marker} & sleep {marker}");
    let said = bench.run_with(json!({"command": bomb, "timeout_s": 20})).unwrap_or_else(|error| error.message);
    // Without a control group the kernel's bound may be met, and the bomb be over, between two looks.
    assert!(said.contains("it had more than 24 processes") || said.contains("Cannot fork"), "{said}");
    assert_eq!(processes_with(&marker), 0);
    bench.runtime().block_on(async {
        let calling = bench.call(json!({"command": format!("touch begun; {bomb}"), "timeout_s": 60}));
        let begun = wait_async(Duration::from_secs(60), async || fs::metadata(bench.ws("begun")));
        tokio::select! { _ = calling => {}, begun = begun => drop(begun.expect("it begins")) }
    });
    until("nothing of it is left", || processes_with(&marker) == 0);
}

/// What a host does with cores it does outside of every sandbox, as its root.
pub fn a_core_is_dumped() {
    let bench = Bench::new();
    let said = bench.run("ulimit -Sc; ulimit -Hc; sh -c 'kill -SEGV $$'; echo $?; ls");
    // 1 is the one value at which programs that take cores are not started either.
    assert!(said.contains("[stdout]\n0\n0\n") || said.contains("[stdout]\n1\n1\n"), "{said}");
    assert!(said.contains("139") && !said.contains("core"), "{said}");
}
