//! Memory in every form in which the kernel holds it for a process: counted, bounded, or not given.

use super::script::{nothing_works, too_much};
use super::support::{Bench, SMALL};

const LIMIT: &str = "it used more than 128 MB of memory, the limit";

#[track_caller]
fn hold(program: &str) {
    too_much(&Bench::new(), program, LIMIT);
}

pub fn unix_sockets() {
    // 24 processes, so that no single one's files are what bounds it.
    hold(
        "kept = []\n\
         def fill():\n\
         \x20   got = 0\n\
         \x20   try:\n\
         \x20       while True:\n\
         \x20           a, b = socket.socketpair(); kept.append((a, b))\n\
         \x20           for s in (a, b):\n\
         \x20               s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MB); s.setblocking(False)\n\
         \x20               try:\n\
         \x20                   while True: got += s.send(b'x' * 65536)\n\
         \x20               except BlockingIOError: pass\n\
         \x20   except OSError: pass\n\
         for _ in range(10):\n\
         \x20   if os.fork() == 0: break\n\
         fill(); held()\n",
    );
}

pub fn datagrams() {
    hold(
        "kept = []\n\
         def fill():\n\
         \x20   try:\n\
         \x20       while True:\n\
         \x20           s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); kept.append(s)\n\
         \x20           s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MB)\n\
         \x20           for _ in range(100): s.sendto(b'x' * 60000, s.getsockname())\n\
         \x20   except OSError: pass\n\
         for _ in range(10):\n\
         \x20   if os.fork() == 0: break\n\
         fill(); held()\n",
    );
}

pub fn streams() {
    hold(
        "kept = []\n\
         def fill():\n\
         \x20   l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n\
         \x20   try:\n\
         \x20       while True:\n\
         \x20           a = socket.create_connection(l.getsockname()); b, _ = l.accept(); kept.append((a, b))\n\
         \x20           for s in (a, b):\n\
         \x20               s.setblocking(False)\n\
         \x20               try:\n\
         \x20                   while True: s.send(b'x' * 65536)\n\
         \x20               except BlockingIOError: pass\n\
         \x20   except OSError: pass\n\
         for _ in range(10):\n\
         \x20   if os.fork() == 0: break\n\
         fill(); held()\n",
    );
}

pub fn pipes() {
    hold(
        "kept, got = [], 0\n\
         def fill():\n\
         \x20   global got\n\
         \x20   try:\n\
         \x20       while True:\n\
         \x20           r, w = os.pipe(); kept.append((r, w)); os.set_blocking(w, False)\n\
         \x20           try: fcntl.fcntl(w, 1031, MB)\n\
         \x20           except OSError: pass\n\
         \x20           try:\n\
         \x20               while True: got += os.write(w, b'x' * 65536)\n\
         \x20           except BlockingIOError: pass\n\
         \x20   except OSError: pass\n\
         for _ in range(20):\n\
         \x20   if os.fork() == 0: break\n\
         fill()\n\
         if got < 6 * MB: print('BOUNDED', got)\n\
         else: held()\n",
    );
}

pub fn gifts_to_pipes() {
    let program = format!(
        "r, w = os.pipe()\n\
         m = mmap.mmap(-1, MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.write(b'x' * MB)\n\
         at = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
         tell('vmsplice', call({vmsplice}, w, struct.pack('QQ', at, 65536), 1, 8))\n\
         print('TRIED')\n",
        vmsplice = libc::SYS_vmsplice
    );
    nothing_works(&Bench::new(), &program);
}

/// Touched, and then let go by the process but not by the mapping.
pub fn shared_mappings_out_of_sight() {
    hold(
        "m = mmap.mmap(-1, 300 * MB)\n\
         for at in range(0, 300):\n\
         \x20   m[at * MB:(at + 1) * MB] = b'x' * MB\n\
         \x20   m.madvise(mmap.MADV_DONTNEED, at * MB, MB)\n\
         held()\n",
    );
}

pub fn shared_mappings_of_children() {
    hold(
        "m = [mmap.mmap(-1, 10 * MB) for _ in range(30)]\n\
         for one in m:\n\
         \x20   if os.fork() == 0: one.write(b'x' * 10 * MB); os._exit(0)\n\
         \x20   os.wait()\n\
         held()\n",
    );
}

pub fn system_v_segments() {
    hold(
        "got = 0\n\
         C.shmat.restype = ctypes.c_void_p\n\
         for _ in range(300):\n\
         \x20   n = C.shmget(0, MB, 0o1600)\n\
         \x20   if n < 0: print('BOUNDED', got); sys.exit()\n\
         \x20   at = C.shmat(n, None, 0); ctypes.memset(ctypes.c_void_p(at), 1, MB); C.shmdt(ctypes.c_void_p(at)); got += 1\n\
         held()\n",
    );
}

pub fn system_v_messages() {
    hold(
        "got = 0\n\
         for _ in range(30000):\n\
         \x20   q = C.msgget(0, 0o1600)\n\
         \x20   if q < 0: break\n\
         \x20   while C.msgsnd(q, struct.pack('q', 1) + b'x' * 8000, 8000, 0o4000) == 0: got += 8000\n\
         if got < 8 * MB: print('BOUNDED', got)\n\
         else: held()\n",
    );
}

pub fn system_v_semaphores() {
    hold(
        "got = 0\n\
         for size in (32000, 250):\n\
         \x20   for _ in range(30000):\n\
         \x20       if C.semget(0, size, 0o1600) < 0: break\n\
         \x20       got += size\n\
         if got < 10000: print('BOUNDED', got)\n\
         else: held()\n",
    );
}

pub fn message_queues() {
    hold(
        "got = 0\n\
         for n in range(1000):\n\
         \x20   q = C.mq_open(b'/q%d' % n, os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o600, None)\n\
         \x20   if q < 0: break\n\
         \x20   while C.mq_send(q, b'x' * 8000, 8000, 0) == 0: got += 8000\n\
         if got < 8 * MB: print('BOUNDED', got)\n\
         else: held()\n",
    );
}

pub fn files_without_names() {
    let program = format!(
        "tell('memfd', call({memfd}, b'x', 0))\n\
         tell('memfd huge', call({memfd}, b'x', 4))\n\
         tell('secret', call({secret}, 0))\n\
         print('TRIED')\n",
        memfd = libc::SYS_memfd_create,
        secret = libc::SYS_memfd_secret
    );
    nothing_works(&Bench::new(), &program);
}

pub fn files_of_tmp() {
    hold(
        "got = 0\n\
         try:\n\
         \x20   for n in range(300):\n\
         \x20       f = open('/tmp/x', 'wb', 0); os.unlink('/tmp/x'); got += f.write(b'x' * MB); globals()['f%d' % n] = f\n\
         except OSError: pass\n\
         if got <= 8 * MB: print('BOUNDED', got)\n\
         else: held()\n",
    );
}

pub fn empty_files_of_tmp() {
    let limits = posse_infra::sandbox::CommandLimits { memory_mb: 64, ..SMALL };
    let bench = Bench::with(|_| posse_infra::sandbox::Commands { limits, ..Default::default() });
    let program = "\
try:
    for n in range(200000): os.mknod('/tmp/%d' % n)
except OSError: pass
time.sleep(8)
if n > 70000: print('HELD')
else: print('BOUNDED', n)
";
    too_much(&bench, program, "MB of memory, the limit");
}

/// A page read in every 2 MB is nobody's memory, but the table that leads to it is.
pub fn page_tables() {
    hold(
        "C.mmap.restype = ctypes.c_void_p\n\
         C.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]\n\
         size = 1 << 37\n\
         at = C.mmap(None, size, 1, 0x4022, -1, 0)\n\
         if at in (None, 2 ** 64 - 1): print('BOUNDED'); sys.exit()\n\
         C.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 15)\n\
         for page in range(at, at + size, 2 * MB): ctypes.c_char.from_address(page).value\n\
         held()\n",
    );
}

pub fn kernel_stacks() {
    // As many as there may be, and each with as much as it may have.
    hold(
        "threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(20)]\n\
         for t in threads: t.start()\n\
         b = [bytearray(8 * MB) for _ in range(30)]\n\
         held()\n",
    );
}

pub fn watches() {
    hold(
        "got, C_init = 0, C.inotify_init\n\
         names = []\n\
         for n in range(20000):\n\
         \x20   try: os.mknod('/tmp/w%d' % n); names.append(b'/tmp/w%d' % n)\n\
         \x20   except OSError: break\n\
         for _ in range(200):\n\
         \x20   fd = C.inotify_init()\n\
         \x20   if fd < 0: break\n\
         \x20   for name in names:\n\
         \x20       if C.inotify_add_watch(fd, name, 2) < 0: break\n\
         \x20       got += 1\n\
         if got <= 20000: print('BOUNDED', got)\n\
         else: held()\n",
    );
}

pub fn keys_programs_and_rings() {
    let program = format!(
        "room = ctypes.create_string_buffer(256)\n\
         tell('add_key', call({add_key}, b'user', b'x', b'y', 1, -3))\n\
         tell('keyctl', call({keyctl}, 0, -3, 1))\n\
         tell('bpf', call({bpf}, 0, room, 120))\n\
         tell('perf', call({perf}, room, 0, -1, -1, 0))\n\
         tell('userfaultfd', call({userfaultfd}, 1))\n\
         tell('io_uring', call({ring}, 8, room))\n\
         tell('fanotify', call({fanotify}, 0x200, 0))\n\
         print('TRIED')\n",
        add_key = libc::SYS_add_key,
        keyctl = libc::SYS_keyctl,
        bpf = libc::SYS_bpf,
        perf = libc::SYS_perf_event_open,
        userfaultfd = libc::SYS_userfaultfd,
        ring = libc::SYS_io_uring_setup,
        fanotify = libc::SYS_fanotify_init,
    );
    nothing_works(&Bench::new(), &program);
}

pub fn requests_ahead() {
    let setup = libc::SYS_io_setup;
    let program =
        format!("at = ctypes.c_long(0)\ntell('io_setup', call({setup}, 65536, ctypes.byref(at)))\nprint('TRIED')\n");
    nothing_works(&Bench::new(), &program);
}

pub fn large_pages() {
    let program = format!(
        "tell('mmap', call({mmap}, 0, 2 * MB, 3, 0x40022, -1, 0))\n\
         tell('shmget', call({shmget}, 0, 2 * MB, 0o5600))\n\
         print('TRIED')\n",
        mmap = libc::SYS_mmap,
        shmget = libc::SYS_shmget
    );
    nothing_works(&Bench::new(), &program);
}

pub fn many_open_files() {
    hold(
        "kept = []\n\
         try:\n\
         \x20   while True: kept.append(open('/dev/null'))\n\
         except OSError: print('BOUNDED', len(kept))\n",
    );
}
