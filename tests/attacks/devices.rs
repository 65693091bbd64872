//! Nothing of the host that a command sees is changed by it, its attributes included.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::support::Bench;

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

type State = Vec<(String, u32, u32, u32, i64, i64)>;

fn state(paths: &[&str]) -> State {
    let of = |path: &&str| {
        let meta = fs::metadata(path).ok()?;
        // Others use them too, so the times that reading and writing set do not count.
        Some(((*path).to_owned(), meta.mode(), meta.uid(), meta.gid(), meta.ctime(), meta.ctime_nsec()))
    };
    paths.iter().filter_map(of).collect()
}

fn attempts(path: &str) -> Vec<String> {
    vec![
        format!("chmod 0640 {path}"),
        format!("chmod u+s {path}"),
        format!("chown 1000:1000 {path}"),
        format!("chgrp 1000 {path}"),
        format!("touch -d 2001-01-01 {path}"),
        format!("python3 -c 'import os; os.setxattr(\"{path}\", \"user.x\", b\"x\")'"),
        format!("python3 -c 'import os; os.setxattr(\"{path}\", \"system.posix_acl_access\", b\"x\")'"),
        format!("python3 -c 'import os; os.fchmod(os.open(\"{path}\", os.O_RDONLY | os.O_NONBLOCK), 0o640)'"),
        format!("chmod 0640 /proc/self/fd/3 3< {path}"),
        format!("mv {path} {path}.old"),
        format!("ln -f {path} linked"),
        format!("rm -f {path}"),
    ]
}

pub fn nodes_of_the_host_keep_mode_owner_and_times() {
    let bench = Bench::new();
    let before = state(&DEVICES);
    assert_eq!(before.len(), 5);
    for device in DEVICES {
        for attempt in attempts(device) {
            let said = bench.run(&format!("{attempt} && echo it worked"));
            assert!(!said.contains("it worked"), "{attempt}: {said}");
        }
    }
    assert_eq!(
        state(&DEVICES).iter().map(|s| (s.1, s.2, s.3)).collect::<Vec<_>>(),
        before.iter().map(|s| (s.1, s.2, s.3)).collect::<Vec<_>>()
    );
    // They are still what they are.
    let works = "echo x > /dev/null && head -c 3 /dev/zero | wc -c && head -c 3 /dev/urandom | wc -c; head -c 9 /dev/zero > /dev/full";
    let said = bench.run(works);
    assert!(said.contains("[stdout]\n3\n3\n") && said.contains("No space left on device"), "{said}");
}

pub fn views_of_the_host_keep_mode_and_times() {
    let bench = Bench::new();
    let views = ["/usr", "/usr/bin", "/usr/bin/env", "/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs"];
    let before = state(&views);
    for (path, ..) in &before {
        for attempt in attempts(path) {
            let said = bench.run(&format!("{attempt} && echo it worked"));
            assert!(!said.contains("it worked"), "{attempt}: {said}");
        }
    }
    assert_eq!(state(&views), before);
}

pub fn no_node_is_made() {
    let bench = Bench::new();
    for folder in [".", "/tmp"] {
        for node in ["b 8 0", "b 7 0", "c 1 1", "c 1 3", "c 5 0", "c 10 200"] {
            let said = bench.run(&format!("mknod {folder}/node {node} && echo it worked"));
            assert!(!said.contains("it worked"), "{node}: {said}");
        }
    }
}

pub fn no_view_is_made_writable() {
    let bench = Bench::new();
    for attempt in [
        "mount -o remount,rw /usr",
        "mount -o remount,bind,rw /usr",
        "mount --bind /usr /tmp",
        "mount -o remount,rw /dev/null",
        "mount -o remount,rw /proc",
        "umount -l /proc",
        "umount /dev/null",
        "touch /usr/pwned-by-posse",
        "touch /dev/pwned /pwned",
    ] {
        let said = bench.run(&format!("{attempt} && echo it worked"));
        assert!(!said.contains("it worked"), "{attempt}: {said}");
    }
}
