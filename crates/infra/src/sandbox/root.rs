//! The file system that a command sees: built anew for each, of read-only views of what programs need, the
//! workspace, and nothing else of the host.
//!
//! All of the host's parts are opened first, as mounts that hang nowhere. So it does not matter what
//! covers what while the new root is put together, and no path of the host is resolved after that.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree, unmount,
};

use super::spec::Spec;
use super::sys;

/// What programs consist of. Links among them are made again.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// What programs read of `/etc`. Not in it: keys, passwords, and settings that may hold either.
const SETTINGS: [&str; 24] = [
    "/etc/alternatives",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];

/// The devices without a state.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Links that programs expect in `/dev`. Shared memory by name counts as what is in `/tmp`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/shm", "/tmp"),
];

/// Who commands run as, inside. Outside it is whoever the worker runs as.
pub(super) const USER: u32 = 1000;

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | PLAIN;
/// Nothing of it raises anybody's rights or is a device.
const PLAIN: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// What went wrong, and with what.
type Built<T = ()> = Result<T, String>;

fn with<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Replaces this process's root. It must be the first of its pid namespace, in a mount namespace of its own.
pub(super) fn build(spec: &Spec) -> Built {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(with("the mounts cannot be made private"))?;
    let programs = host_parts(&PROGRAMS)?;
    let settings = host_parts(&SETTINGS)?;
    let devices: Vec<_> = DEVICES.iter().map(|path| Ok((*path, view(path)?))).collect::<Built<_>>()?;
    let workspace = view(&spec.workspace)?;
    // Its path may lead elsewhere since it was looked up.
    let now = rustix::fs::fstat(&workspace).map_err(with("the workspace"))?;
    if (now.st_dev, now.st_ino) != (spec.identity.device, spec.identity.inode) {
        return Err("the workspace was exchanged for another folder just now".into());
    }
    attributes(&workspace, PLAIN, &spec.workspace)?;
    let fixed = spec.fixed.iter().map(|name| {
        let tree = view(spec.workspace.join(name))?;
        attributes(&tree, READ_ONLY, name)?;
        Ok((name, tree))
    });
    let fixed: Vec<_> = fixed.collect::<Built<_>>()?;

    let root = tmpfs("1m")?;
    // Any folder that every host has will do: nothing is looked up in the old tree any more.
    attach(&root, Path::new("/tmp"))?;
    rustix::process::fchdir(&root).map_err(with("the new root cannot be entered"))?;
    put(programs)?;
    put(settings)?;
    attach_new(&tmpfs(&format!("{}m", spec.limits.tmp_mb))?, Path::new("/tmp"))?;
    let dev = tmpfs("1m")?;
    attach_new(&dev, Path::new("/dev"))?;
    for (path, device) in devices {
        fs::write(inside(path), "").map_err(with(path))?;
        attach(&device, &inside(path))?;
    }
    for (path, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, inside(path)).map_err(with(path))?;
    }
    close_off(&dev)?;
    attach_new(&proc()?, Path::new("/proc"))?;
    write_etc()?;
    fs::write(inside("/etc/.empty"), "").map_err(with("an empty file"))?;
    attach_new(&workspace, &spec.workspace)?;
    let workspace = inside(&spec.workspace);
    for (name, tree) in fixed {
        attach(&tree, &workspace.join(name))?;
    }
    for name in &spec.hidden {
        let path = workspace.join(name);
        let nothing = if path.is_dir() { tmpfs("4k")? } else { view("etc/.empty")? };
        attributes(&nothing, READ_ONLY, name)?;
        attach(&nothing, &path)?;
    }
    close_off(&root)?;

    // The old root comes to lie where the new one is, and is what is taken away from there.
    rustix::process::pivot_root(".", ".").map_err(with("the new root cannot take its place"))?;
    unmount(".", UnmountFlags::DETACH).map_err(with("the old root cannot be taken away"))?;
    rustix::process::chdir("/").map_err(with("the new root cannot be entered"))
}

/// A part of the host, and where it goes.
enum Part {
    Tree(PathBuf, OwnedFd),
    Link(PathBuf, PathBuf),
}

/// Read-only views of what there is of these.
fn host_parts(paths: &[&str]) -> Built<Vec<Part>> {
    let mut parts = Vec::new();
    for path in paths {
        let Ok(meta) = fs::symlink_metadata(path) else { continue };
        let top_level = Path::new(path).parent() == Some(Path::new("/"));
        if meta.is_symlink() && top_level {
            parts.push(Part::Link(path.into(), fs::read_link(path).map_err(with(path))?));
            continue;
        }
        // A setting that is a link stands for what it leads to; one that leads nowhere is not there.
        if !Path::new(path).exists() {
            continue;
        }
        let tree = view(path)?;
        attributes(&tree, READ_ONLY, path.as_ref())?;
        parts.push(Part::Tree(path.into(), tree));
    }
    Ok(parts)
}

/// Puts parts where they were on the host.
fn put(parts: Vec<Part>) -> Built {
    for part in parts {
        match part {
            Part::Tree(path, tree) => attach_new(&tree, &path)?,
            Part::Link(path, target) => {
                std::os::unix::fs::symlink(target, inside(&path)).map_err(with(path.display()))?;
            }
        }
    }
    Ok(())
}

/// The same path below the new root, which is the current folder.
fn inside(path: impl AsRef<Path>) -> PathBuf {
    path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()).to_owned()
}

/// What is there, with all that is mounted below it, as mounts of our own.
fn view(path: impl AsRef<Path>) -> Built<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path.as_ref(), flags).map_err(with(path.as_ref().display()))
}

fn attributes(tree: &OwnedFd, attributes: u64, path: &Path) -> Built {
    sys::set_mount_attributes(tree, attributes, true).map_err(with(path.display()))
}

/// Makes a mount of ours read-only, now that it is full; what is mounted below it stays as it is.
fn close_off(tree: &OwnedFd) -> Built {
    sys::set_mount_attributes(tree, READ_ONLY, false).map_err(with("the new root cannot be made read-only"))
}

/// Mounts something where there is something already.
fn attach(tree: &OwnedFd, at: &Path) -> Built {
    move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(with(at.display()))
}

/// Mounts something at a path of the new root, which is made.
fn attach_new(tree: &OwnedFd, path: &Path) -> Built {
    let at = inside(path);
    let is_folder = fs::metadata(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(tree)));
    let made = match is_folder.map_err(with(path.display()))?.is_dir() {
        true => fs::create_dir_all(&at),
        false => fs::create_dir_all(at.parent().unwrap_or(&at)).and_then(|()| fs::write(&at, "")),
    };
    made.map_err(with(path.display()))?;
    attach(tree, &at)
}

fn tmpfs(size: &str) -> Built<OwnedFd> {
    new_file_system("tmpfs", &[("size", size), ("mode", "0755"), ("nr_inodes", "100000")], MountAttrFlags::empty())
}

/// The processes of the sandbox, and nothing else of what `/proc` usually has: much of that belongs to the host, and
/// who is root there could write to it even without any rights.
fn proc() -> Built<OwnedFd> {
    new_file_system("proc", &[("subset", "pid")], MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

fn new_file_system(kind: &str, options: &[(&str, &str)], more: MountAttrFlags) -> Built<OwnedFd> {
    let made = || {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            fsconfig_set_string(&context, *key, *value)?;
        }
        fsconfig_create(&context)?;
        let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, plain | more)
    };
    made().map_err(|error: rustix::io::Errno| format!("a new {kind}: {error}"))
}

/// What of `/etc` names the host, its people or its network.
fn write_etc() -> Built {
    let passwd = format!("agent:x:{USER}:{USER}::/tmp:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n");
    for (path, text) in [
        ("/etc/passwd", passwd.as_str()),
        ("/etc/group", "agent:x:1000:\nnogroup:x:65534:\n"),
        ("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        ("/etc/hostname", "sandbox\n"),
    ] {
        let path = inside(path);
        fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(with(path.display()))?;
        fs::write(&path, text).map_err(with(path.display()))?;
    }
    Ok(())
}

/// Whether a workspace at this real path would take the place of what a command is given besides, or is part of it.
pub(super) fn covers_system(workspace: &Path) -> bool {
    let given = PROGRAMS.iter().chain(&SETTINGS).chain(&["/tmp", "/dev", "/proc", "/sys", "/etc"]);
    let not_there = ["/dev", "/proc", "/sys"];
    given.into_iter().any(|path| Path::new(path).starts_with(workspace))
        || not_there.into_iter().any(|path| workspace.starts_with(path))
}
