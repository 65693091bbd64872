//! Room on the disk in every form: counted, or not given.

use super::script::{nothing_works, python, too_much};
use super::support::Bench;

const LIMIT: &str = "it wrote more than 16 MB, the limit";

#[track_caller]
fn hold(program: &str) {
    let bench = Bench::new();
    // Where the file system has no disk beneath it, nothing takes room on one.
    if has_disk(&bench) {
        too_much(&bench, program, LIMIT);
    }
}

fn has_disk(bench: &Bench) -> bool {
    use rustix::fs::statfs;
    const TMPFS: i64 = 0x0102_1994;
    let kind = statfs(bench.base()).unwrap().f_type as i64;
    if kind == TMPFS {
        eprintln!("AN ATTEMPT IS SKIPPED: the folder for temporary files is no disk");
    }
    kind != TMPFS
}

pub fn room_that_is_not_written() {
    let program = format!(
        "for mode in [0, 1, 0x10, 0x11, 0x20, 0x40]:\n\
         \x20   for n in range(40):\n\
         \x20       fd = os.open('f%d-%d' % (mode, n), os.O_CREAT | os.O_RDWR)\n\
         \x20       tell('fallocate', call({fallocate}, fd, mode, 0, 15 * MB))\n\
         print('TRIED')\n",
        fallocate = libc::SYS_fallocate
    );
    nothing_works(&Bench::new(), &program);
    // Giving room back is nobody's loss, and libraries write where room cannot be reserved.
    let said = python(
        &Bench::new(),
        &format!(
            "f = open('f', 'wb+', 0); f.write(b'x' * MB)\n\
             print('punched', call({fallocate}, f.fileno(), 3, 0, 65536))\n\
             os.posix_fallocate(f.fileno(), 0, 2 * MB); print(os.fstat(f.fileno()).st_size)\n",
            fallocate = libc::SYS_fallocate
        ),
    );
    assert!(said.contains("punched 0") && said.contains("2097152"), "{said}");
}

pub fn room_that_is_reserved() {
    nothing_works(
        &Bench::new(),
        "fd = os.open('f', os.O_CREAT | os.O_RDWR)\n\
         for request in [0x40305828, 0x4030582a, 0x40305839, 0x40305824, 0x4030580a]:\n\
         \x20   tried('reserve', lambda: fcntl.ioctl(fd, request, struct.pack('hhqqiI', 0, 0, 0, 15 * MB, 0, 0) + bytes(16)))\n\
         print('TRIED')\n",
    );
}

pub fn writers_nobody_waits_for() {
    hold(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
         for n in range(80):\n\
         \x20   if os.fork() == 0:\n\
         \x20       open('f%d' % n, 'wb', 0).write(b'x' * MB); os._exit(0)\n\
         \x20   try: os.wait()\n\
         \x20   except ChildProcessError: pass\n\
         held()\n",
    );
}

pub fn files_without_names() {
    hold(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
         kept = []\n\
         for n in range(80):\n\
         \x20   f = open('f', 'wb', 0); os.unlink('f'); kept.append(f)\n\
         \x20   if os.fork() == 0: f.write(b'x' * MB); os._exit(0)\n\
         \x20   try: os.wait()\n\
         \x20   except ChildProcessError: pass\n\
         held()\n",
    );
}

/// Held by nobody: they are on their way through a socket.
pub fn files_on_their_way() {
    hold(
        "import socket\n\
         signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
         a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)\n\
         for n in range(80):\n\
         \x20   f = open('f', 'wb', 0); os.unlink('f')\n\
         \x20   if os.fork() == 0: f.write(b'x' * MB); os._exit(0)\n\
         \x20   try: os.wait()\n\
         \x20   except ChildProcessError: pass\n\
         \x20   socket.send_fds(a, [b'x'], [f.fileno()]); f.close()\n\
         held()\n",
    );
}

pub fn mapped_files() {
    hold(
        "kept = []\n\
         for n in range(10):\n\
         \x20   f = open('f%d' % n, 'wb+'); f.truncate(10 * MB)\n\
         \x20   m = mmap.mmap(f.fileno(), 10 * MB); m.write(b'x' * 10 * MB); kept.append(m)\n\
         held()\n",
    );
}

pub fn many_small_files() {
    hold(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
         for d in range(400):\n\
         \x20   if os.fork() == 0:\n\
         \x20       os.mkdir('d%d' % d)\n\
         \x20       for n in range(100): open('d%d/%d' % (d, n), 'w').write('x')\n\
         \x20       os._exit(0)\n\
         \x20   try: os.wait()\n\
         \x20   except ChildProcessError: pass\n\
         held()\n",
    );
}

pub fn sparse_files() {
    let bench = Bench::new();
    let said = python(
        &bench,
        "for n in range(3):\n\
         \x20   try:\n\
         \x20       f = open('f', 'wb'); f.truncate(1 << 40); print('WORKED')\n\
         \x20   except OSError as error: print('BOUNDED', error)\n",
    );
    assert!(said.contains("the limit (written_mb)") || said.contains("BOUNDED"), "{said}");
    assert!(!said.contains("WORKED") && std::fs::metadata(bench.ws("f")).unwrap().len() <= 16 << 20, "{said}");
}

pub fn attributes() {
    hold(
        "got = 0\n\
         try:\n\
         \x20   for n in range(20000):\n\
         \x20       open('f%d' % n, 'w').close(); os.setxattr('f%d' % n, 'user.x', b'x' * 3500); got += 4096\n\
         except OSError as error: print('BOUNDED', got, error)\n\
         if got > 40 * MB: held()\n",
    );
}

/// What cannot be looked at counts as too much, and only where room is lost at all.
pub fn folders_too_deep_to_look_at() {
    let deep = "\
for n in range(300):
    os.mkdir('d'); os.chdir('d')
";
    let said = python(&Bench::new(), &format!("{deep}print('well')\n"));
    assert!(said.contains("exit code 0") && said.contains("well"), "{said}");
    let bench = Bench::new();
    if has_disk(&bench) {
        let program = format!(
            "{deep}signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
             for n in range(80):\n\
             \x20   if os.fork() == 0: open('f%d' % n, 'wb', 0).write(b'x' * MB); os._exit(0)\n\
             \x20   try: os.wait()\n\
             \x20   except ChildProcessError: pass\n\
             held()\n"
        );
        let said = python(&bench, &program);
        assert!(!said.contains("HELD"), "{said}");
        assert!(said.contains(LIMIT) || said.contains("could not be seen"), "{said}");
    }
}
