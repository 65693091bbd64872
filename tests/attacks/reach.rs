//! What is not the command's is out of its reach.

use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::script::{nothing_works, python};
use super::support::{Bench, SECRET};

pub fn inherited_files() {
    let secret = tempfile::tempfile().unwrap();
    { &secret }.write_all(SECRET.as_bytes()).unwrap();
    // As a careless library would leave it.
    let kept = rustix::io::dup(&secret).unwrap();
    rustix::io::fcntl_setfd(&kept, rustix::io::FdFlags::empty()).unwrap();
    let bench = Bench::new();
    let said =
        bench.run("ls /proc/self/fd; for n in $(seq 3 60); do cat /proc/self/fd/$n /dev/fd/$n; done 2>/dev/null; :");
    // The fourth is the folder that `ls` reads.
    assert!(said.contains("[stdout]\n0\n1\n2\n3") && !said.contains("\n4") && !said.contains(SECRET), "{said}");
    drop(kept);
}

pub fn terminals() {
    let bench = Bench::new();
    nothing_works(
        &bench,
        "for fd in range(3):\n\
         \x20   for request in [0x5412, 0x541c, 0x541d, 0x540e]:\n\
         \x20       tried('ioctl', lambda: fcntl.ioctl(fd, request, b'x'))\n\
         for path in ['/dev/tty', '/dev/console', '/dev/ptmx', '/dev/pts/0', '/dev/tty0', '/dev/pts/ptmx']:\n\
         \x20   tried(path, lambda: os.open(path, os.O_RDWR))\n\
         tried('pty', lambda: os.openpty())\n\
         print('TRIED')\n",
    );
    let said = bench.run("cat /proc/self/stat | cut -d ' ' -f 7");
    assert!(said.ends_with("[stdout]\n0"), "it has a terminal: {said}");
}

pub fn abstract_sockets() {
    let name = format!("posse-attack-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listening = UnixListener::bind_addr(&address).unwrap();
    let said = nothing_works(
        &Bench::new(),
        &format!(
            "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):\n\
             \x20   tried('abstract', lambda: socket.socket(socket.AF_UNIX, kind).connect('\\0{name}'))\n\
             for kind in (2, 3, 4, 5, 9, 17, 21, 29, 30, 31, 38, 40, 41, 42, 43, 44):\n\
             \x20   if kind != 2: tried('family %d' % kind, lambda: socket.socket(kind, socket.SOCK_RAW))\n\
             tried('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))\n\
             print('TRIED')\n"
        ),
    );
    assert!(said.contains("abstract failed"), "{said}");
}

pub fn processes_of_the_host() {
    let bench = Bench::new();
    let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let (ours, theirs) = (std::process::id(), child.id());
    let parent = std::os::unix::process::parent_id();
    nothing_works(
        &bench,
        &format!(
            "for pid in [{ours}, {theirs}, {parent}, -{ours}, -{theirs}]:\n\
             \x20   for number in [0, 9, 15, 19]:\n\
             \x20       tried('kill', lambda: os.kill(pid, number))\n\
             \x20   tell('pidfd', call({pidfd}, abs(pid), 0))\n\
             \x20   tell('queue', call({queue}, pid, 9, bytes(128)))\n\
             \x20   tell('prlimit', call({prlimit}, abs(pid), 7, 0, bytes(16)))\n\
             \x20   tried('proc', lambda: os.listdir('/proc/%d' % abs(pid)))\n\
             \x20   tried('own', lambda: fcntl.fcntl(1, fcntl.F_SETOWN, pid))\n\
             try: os.kill(-1, 0)\n\
             except OSError: pass\n\
             print('TRIED')\n",
            pidfd = libc::SYS_pidfd_open,
            queue = libc::SYS_rt_sigqueueinfo,
            prlimit = libc::SYS_prlimit64,
        ),
    );
    assert!(child.try_wait().unwrap().is_none(), "it was ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

pub fn environment() {
    let bench = Bench::new();
    let said =
        bench.run("env | cut -d = -f 1 | sort | tr '\\n' ' '; cat /proc/self/environ /proc/1/environ | tr '\\0' '\\n'");
    assert!(said.contains("[stdout]\nHOME LANG LOGNAME PATH PWD SHELL TERM USER"), "{said}");
    let of_ours = std::env::vars().filter(|(name, _)| name.starts_with("CARGO") || name.starts_with("POSSE"));
    for (name, value) in of_ours {
        assert!(!said.contains(&name) && (value.len() < 6 || !said.contains(&value)), "{name}: {said}");
    }
    // Nor of the machine, but for what its kernel is.
    let said = bench.run("hostname; cat /etc/hostname /etc/passwd; cat /proc/cmdline /proc/self/mountinfo");
    assert!(said.contains("[stdout]\nsandbox\nsandbox\nagent:"), "{said}");
    assert!(said.contains("/proc/cmdline: No such file"), "{said}");
}

pub fn watching_the_host() {
    let said = python(
        &Bench::new(),
        "for path in ['/proc/loadavg', '/proc/meminfo', '/proc/stat', '/proc/net/tcp', '/proc/net/unix', '/proc/interrupts', '/proc/kallsyms', '/proc/keys', '/proc/timer_list', '/proc/mounts', '/proc/partitions', '/sys/class', '/run', '/var', '/home', '/root', '/etc/shadow', '/etc/resolv.conf', '/etc/machine-id']:\n\
         \x20   if os.path.exists(path) and not path.startswith(('/proc/net', '/proc/mounts')): print(path, 'WORKED')\n\
         print(open('/proc/self/net/unix').read())\n\
         print('TRIED')\n",
    );
    assert!(said.contains("TRIED") && !said.contains("WORKED") && !said.contains("posse"), "{said}");
}
