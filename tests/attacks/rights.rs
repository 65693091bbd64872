//! A command gets no rights that it does not have, neither inside nor, by what it leaves behind, on the host.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::script::{nothing_works, python};
use super::support::Bench;

/// Everything in the workspace that would run as its owner or group on the host.
fn raised(bench: &Bench) -> Vec<String> {
    let files = fs::read_dir(bench.ws("")).unwrap().flatten();
    let raised = files.filter(|file| file.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o6000 != 0));
    raised.map(|file| file.path().display().to_string()).collect()
}

pub fn set_id_by_every_call() {
    let bench = Bench::new();
    let program = format!(
        "open('f', 'w').write('#!/bin/sh\\n'); fd = os.open('f', os.O_RDWR); AT = -100\n\
         for bit in [0o4000, 0o2000, 0o6000]:\n\
         \x20   tried('chmod', lambda: os.chmod('f', bit | 0o755))\n\
         \x20   tried('fchmod', lambda: os.fchmod(fd, bit | 0o755))\n\
         \x20   tell('fchmodat', call({fchmodat}, AT, b'f', bit | 0o755))\n\
         \x20   tell('fchmodat2', call({fchmodat2}, AT, b'f', bit | 0o755, 0))\n\
         \x20   tell('openat', call({openat}, AT, b'o%o' % bit, os.O_CREAT | os.O_WRONLY, bit | 0o755))\n\
         \x20   tell('nameless', call({openat}, AT, b'.', os.O_TMPFILE | os.O_WRONLY, bit | 0o755))\n\
         \x20   tell('openat2', call({openat2}, AT, b'p%o' % bit, struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, bit | 0o755, 0), 24))\n\
         \x20   tell('mknodat', call({mknodat}, AT, b'm%o' % bit, 0o100000 | bit | 0o755, 0))\n\
         \x20   tried('creat', lambda: os.open('c%o' % bit, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, bit | 0o755))\n\
         print('TRIED')\n",
        fchmodat = libc::SYS_fchmodat,
        fchmodat2 = libc::SYS_fchmodat2,
        openat = libc::SYS_openat,
        openat2 = libc::SYS_openat2,
        mknodat = libc::SYS_mknodat,
    );
    nothing_works(&bench, &program);
    assert_eq!(raised(&bench), Vec::<String>::new());
    // Every other mode is as good as ever.
    let said = bench.run("touch a && chmod 0751 a && stat -c %a a && mkdir d && chmod 1777 d && stat -c %a d");
    assert!(said.ends_with("[stdout]\n751\n1777"), "{said}");
}

pub fn set_id_by_programs() {
    let bench = Bench::new();
    for attempt in [
        "cp /bin/sh s && chmod u+s s",
        "cp /bin/sh s && chmod 6755 s",
        "install -m 4755 /bin/sh s",
        "python3 -c 'import os, shutil; shutil.copy(\"/bin/sh\", \"s\"); os.chmod(\"s\", 0o2755)'",
        "cp -p $(find /usr/bin -perm -4000 | head -1) s",
        "for f in $(find /usr/bin -perm /6000); do ln $f . ; cp -a $f .; done; false",
    ] {
        bench.run(attempt);
        assert_eq!(raised(&bench), Vec::<String>::new(), "{attempt}");
    }
    // Such programs of the host raise nobody inside.
    let said = bench.run("grep -E 'Cap(Prm|Eff)|NoNew' /proc/self/status; su root -c id; passwd -S; id -u");
    assert!(said.contains("CapEff:\t0000000000000000") && !said.contains("uid=0"), "{said}");
}

pub fn capabilities_of_files() {
    let bench = Bench::new();
    nothing_works(
        &bench,
        "open('f', 'w').close()\n\
         v2 = struct.pack('<IIIII', 0x02000001, 0xffffffff, 0, 0xff, 0)\n\
         v3 = struct.pack('<IIIIII', 0x03000001, 0xffffffff, 0, 0xff, 0, 0)\n\
         for name, value in [('security.capability', v2), ('security.capability', v3), ('trusted.x', b'x'), ('security.ima', b'x')]:\n\
         \x20   tried(name, lambda: os.setxattr('f', name, value))\n\
         \x20   tried(name, lambda: os.setxattr('/usr/bin/env', name, value))\n\
         print('TRIED')\n",
    );
}

pub fn new_namespaces() {
    let program = format!(
        "for flag in [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80]:\n\
         \x20   tell('unshare', call({unshare}, flag))\n\
         \x20   pid = call({clone}, flag | 17, 0, 0, 0, 0) if flag != 0x80 else -1\n\
         \x20   if pid == 0: print('clone WORKED', flush=True); os._exit(0)\n\
         \x20   tell('clone3', call({clone3}, struct.pack('11Q', flag, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88))\n\
         \x20   for kind in ['user', 'mnt', 'pid', 'net']:\n\
         \x20       tell('setns', call({setns}, os.open('/proc/self/ns/' + kind, os.O_RDONLY), 0))\n\
         print('TRIED')\n",
        unshare = libc::SYS_unshare,
        clone = libc::SYS_clone,
        clone3 = libc::SYS_clone3,
        setns = libc::SYS_setns,
    );
    nothing_works(&Bench::new(), &program);
}

pub fn new_mounts() {
    let program = format!(
        "none = ctypes.c_void_p(0)\n\
         tell('mount', call({mount}, b'none', b'/tmp', b'tmpfs', 0, none))\n\
         tell('bind', call({mount}, b'/usr', b'/tmp', none, 4096, none))\n\
         tell('umount', call({umount}, b'/proc', 2))\n\
         tell('pivot', call({pivot}, b'.', b'.'))\n\
         tell('chroot', call({chroot}, b'/tmp'))\n\
         tell('fsopen', call({fsopen}, b'tmpfs', 0))\n\
         tell('open_tree', call({open_tree}, -100, b'/usr', 1))\n\
         tell('open_tree_attr', call(467, -100, b'/usr', 1, struct.pack('QQQQ', 0, 1, 0, 0), 32))\n\
         tell('move_mount', call({move_mount}, -100, b'/usr', -100, b'/tmp', 0))\n\
         tell('mount_setattr', call({setattr}, -100, b'/usr', 0, struct.pack('QQQQ', 0, 1, 0, 0), 32))\n\
         tell('fspick', call({fspick}, -100, b'/', 0))\n\
         print('TRIED')\n",
        mount = libc::SYS_mount,
        umount = libc::SYS_umount2,
        pivot = libc::SYS_pivot_root,
        chroot = libc::SYS_chroot,
        fsopen = libc::SYS_fsopen,
        open_tree = libc::SYS_open_tree,
        move_mount = libc::SYS_move_mount,
        setattr = libc::SYS_mount_setattr,
        fspick = libc::SYS_fspick,
    );
    nothing_works(&Bench::new(), &program);
}

pub fn handles_of_files() {
    let program = format!(
        "room, mount = ctypes.create_string_buffer(struct.pack('Ii', 128, 0), 136), ctypes.c_int(0)\n\
         call({name}, -100, b'.', room, ctypes.byref(mount), 0)\n\
         tell('by handle', call({open}, -100, room, 0))\n\
         for number in range(2, 200):\n\
         \x20   handle = struct.pack('Ii', 8, 1) + struct.pack('II', number, 0)\n\
         \x20   if call({open}, os.open('.', os.O_RDONLY), handle, os.O_RDONLY) >= 0: print('WORKED', number)\n\
         print('TRIED')\n",
        name = libc::SYS_name_to_handle_at,
        open = libc::SYS_open_by_handle_at,
    );
    nothing_works(&Bench::new(), &program);
}

pub fn processes_as_paths() {
    let bench = Bench::new();
    let evil = bench.base().join("ws-evil/secret.txt");
    let evil = evil.display();
    let said = python(
        &bench,
        &format!(
            "for way in ['/proc/1/root', '/proc/1/cwd', '/proc/self/root', '/proc/self/cwd/..', '/proc/self/cwd/../..', '/proc/self/task/1/root', '/proc/1/map_files', '/proc/1/fd/0/..', '/proc/2/root', '/proc/self/fd/0/..', '/proc/self/exe/..', '/dev/fd/0/..', '/dev/stdin/..']:\n\
             \x20   tried(way, lambda: print(open(way + '{evil}').read()))\n\
             \x20   tried(way, lambda: print(os.listdir(way + '/root'), os.listdir(way + '/home'), os.listdir(way + '/var'), 'WORKED'))\n\
             for up in range(1, 40):\n\
             \x20   tried('up', lambda: print(open('../' * up + '{evil}'[1:]).read()))\n\
             root = os.open('/', os.O_RDONLY)\n\
             tried('root', lambda: (os.chroot('/tmp'), os.fchdir(root), os.chdir('../../..')))\n\
             print('TRIED')\n"
        ),
    );
    assert!(said.contains("TRIED") && !said.contains("WORKED") && !said.contains("s3cret"), "{said}");
}

pub fn settings_of_processes() {
    let bench = Bench::new();
    nothing_works(
        &bench,
        "PR = lambda *a: C.prctl(*[ctypes.c_ulong(x) for x in a])\n\
         tell('no new privileges off', PR(38, 0, 0, 0, 0))\n\
         tell('ambient', PR(47, 2, 21, 0, 0))\n\
         tell('keep', PR(24, 21))\n\
         tell('securebits', PR(28, 1))\n\
         tell('seccomp off', PR(22, 0))\n\
         tried('setuid', lambda: os.setuid(0))\n\
         tried('setgid', lambda: os.setgid(0))\n\
         tried('setgroups', lambda: os.setgroups([0]))\n\
         tried('setresuid', lambda: os.setresuid(0, 0, 0))\n\
         print('TRIED')\n",
    );
}

pub fn the_machine_itself() {
    let program = format!(
        "room = ctypes.create_string_buffer(256)\n\
         for name, number, args in [('reboot', {reboot}, (0xfee1dead, 672274793, 0, 0)), ('syslog', {syslog}, (3, room, 200)), ('kexec', {kexec}, (0, 0, 0, 0)), ('swapoff', {swapoff}, (b'/x',)), ('swapon', {swapon}, (b'x', 0)), ('module', {module}, (room, 8, b'')), ('delete', {delete}, (b'x', 0)), ('acct', {acct}, (b'x',)), ('quota', {quota}, (0x800002, 0, 0, 0)), ('time', {time}, (0, struct.pack('qq', 1, 0))), ('zone', {zone}, (0, struct.pack('ii', 1, 0))), ('name', {name}, (b'x', 1)), ('domain', {domain}, (b'x', 1)), ('adjust', {adjust}, (0, struct.pack('I', 1) + bytes(252)))]:\n\
         \x20   tell(name, call(number, *args))\n\
         for path in ['/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper', '/proc/sys/vm/drop_caches', '/sys/fs/cgroup/cgroup.procs', '/sys/fs/cgroup/memory/cgroup.procs', '/dev/kmsg', '/dev/mem', '/dev/kvm', '/dev/fuse', '/dev/net/tun', '/dev/loop-control', '/dev/ptmx', '/dev/tty', '/dev/sda', '/dev/vda']:\n\
         \x20   tried(path, lambda: os.open(path, os.O_WRONLY))\n\
         print('TRIED')\n",
        reboot = libc::SYS_reboot,
        syslog = libc::SYS_syslog,
        kexec = libc::SYS_kexec_load,
        swapoff = libc::SYS_swapoff,
        swapon = libc::SYS_swapon,
        module = libc::SYS_init_module,
        delete = libc::SYS_delete_module,
        acct = libc::SYS_acct,
        quota = libc::SYS_quotactl,
        time = libc::SYS_clock_settime,
        zone = libc::SYS_settimeofday,
        name = libc::SYS_sethostname,
        domain = libc::SYS_setdomainname,
        adjust = libc::SYS_clock_adjtime,
    );
    nothing_works(&Bench::new(), &program);
}

/// By numbers that no rule can know: those of newer kernels, and of the other tables that x86-64 has.
pub fn later_system_calls() {
    let program = "\
for number in list(range(463, 700)) + [0x40000000 + n for n in (0, 1, 2, 39, 56, 157, 165, 272, 512, 520)]:
    result = call(number, 0, 0, 0, 0, 0, 0)
    if result != -errno.ENOSYS: print(number, result, 'WORKED')
print('TRIED')
";
    nothing_works(&Bench::new(), program);
    // Loads the number of `mount` by the 32-bit table, whose calls end a process.
    #[cfg(target_arch = "x86_64")]
    {
        let said = python(
            &Bench::new(),
            "code = bytes.fromhex('b814000000cd80c3')\n\
             m = mmap.mmap(-1, 4096, prot=7); m.write(code)\n\
             at = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
             print(ctypes.CFUNCTYPE(ctypes.c_int)(at)(), 'WORKED')\n",
        );
        assert!(said.starts_with("ended by signal") && !said.contains("WORKED"), "{said}");
    }
}

pub fn a_lease_on_a_program() {
    nothing_works(
        &Bench::new(),
        "for path in ['/usr/bin/env', '/bin/sh', '/etc/nsswitch.conf']:\n\
         \x20   fd = os.open(path, os.O_RDONLY)\n\
         \x20   for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):\n\
         \x20       tried('lease', lambda: fcntl.fcntl(fd, 1024, kind))\n\
         print('TRIED')\n",
    );
}
