//! The file system that a command sees: built anew for each, of read-only views of what programs need, the
//! workspace, and nothing else of the host.
//!
//! All of the host's parts are opened first, as detached mounts. So it does not matter what
//! covers what while the new root is put together, and no path of the host is resolved after that. The workspace is the
//! folder we were started in, which the worker opened once; what of it is to be kept from the command is opened once too,
//! beneath it and through no link, and what was opened is what is looked at, shown and covered. Others may work in the same
//! workspace, and exchange any name of it at any time.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2};
use rustix::io::Errno;
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
/// Read-only, so that the host's nodes keep their owner, mode and times; a device takes what is written to it all the same.
const DEVICE: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
/// Nothing of it raises anybody's rights or is a device.
const PLAIN: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

const CLONE: OpenTreeFlags =
    OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC).union(OpenTreeFlags::AT_RECURSIVE);

/// Beneath where we are, and through no link at all.
const STRICT: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

type Built<T = ()> = Result<T, String>;

fn with<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Makes what is to be kept from changes and is not there, so that no command can: an empty folder, or an empty file for
/// rules. We must be in the workspace.
pub(super) fn make_kept(spec: &Spec) -> Built {
    for name in &spec.fixed {
        match mkdirat(CWD, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(format!("{} cannot be kept from changes: {error}", name.display())),
        }
    }
    let Some(name) = &spec.rules_file else { return Ok(()) };
    let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(CWD, name, make, Mode::from_raw_mode(0o644), STRICT) {
        Ok(_) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(format!("{} cannot be kept from changes: {error}", name.display())),
    }
}

/// Replaces this process's root. It must be the first of its pid namespace, in a mount namespace of its own.
pub(super) fn build(spec: &Spec) -> Built {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(with("the mounts cannot be made private"))?;
    if spec.command.is_some() {
        build_for_command(spec)?
    } else {
        build_for_program()?
    }

    // The old root comes to lie where the new one is, and is what is taken away from there.
    rustix::process::pivot_root(".", ".").map_err(with("the new root cannot take its place"))?;
    unmount(".", UnmountFlags::DETACH).map_err(with("the old root cannot be taken away"))?;
    rustix::process::chdir("/").map_err(with("the new root cannot be entered"))
}

/// A root with nothing in it but what the meter looks at.
fn build_for_program() -> Built {
    let root = tmpfs("64k")?;
    attach(&root, Path::new("/tmp"))?;
    rustix::process::fchdir(&root).map_err(with("the new root cannot be entered"))?;
    attach_new(&tmpfs("4k")?, Path::new("/tmp"))?;
    attach_new(&proc()?, Path::new("/proc"))?;
    close_off(&root)
}

fn build_for_command(spec: &Spec) -> Built {
    // Where the worker opened it, whatever its path leads to by now.
    let workspace = view(".")?;
    attributes(&workspace, if spec.given.read_only { READ_ONLY } else { PLAIN }, &spec.workspace)?;
    let programs = host_parts(&PROGRAMS)?;
    let settings = host_parts(&SETTINGS)?;
    let seen = host_parts(&spec.given.seen)?;
    // Where names are looked up, for whoever can reach anybody.
    let resolver = host_parts(if spec.given.network { &["/etc/resolv.conf"] } else { &[] as &[&str] })?;
    let device = |path: &&'static str| {
        let node = view(path)?;
        attributes(&node, DEVICE, path.as_ref())?;
        Ok((*path, node))
    };
    let devices: Vec<_> = DEVICES.iter().map(device).collect::<Built<_>>()?;

    // Room for the files of a tool of the project's own.
    let root = tmpfs("4m")?;
    // Any folder that every host has will do: nothing is looked up in the old tree any more.
    attach(&root, Path::new("/tmp"))?;
    rustix::process::fchdir(&root).map_err(with("the new root cannot be entered"))?;
    put(programs)?;
    put(settings)?;
    put(seen)?;
    put(resolver)?;
    for (name, text) in &spec.given.files {
        let path = inside("/tool").join(name);
        fs::create_dir_all("tool").and_then(|()| fs::write(&path, text)).map_err(with(path.display()))?;
    }
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
    for name in &spec.hidden {
        cover(&workspace, name, Cover::Nothing)?;
    }
    for name in spec.fixed.iter().chain(&spec.rules_file) {
        if !spec.hidden.contains(name) {
            cover(&workspace, name, Cover::Itself)?;
        }
    }
    close_off(&root)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    Itself,
    Nothing,
}

/// Covers an entry of the workspace, which hangs in the new root already.
fn cover(workspace: &OwnedFd, name: &Path, how: Cover) -> Built {
    let shown = name.display();
    let unkept = |what: &str| format!("'{shown}' in the workspace {what}, which cannot be kept from changes");
    let open = || {
        let entry = openat2(workspace, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), STRICT)?;
        let stat = fstat(&entry)?;
        Ok((entry, stat))
    };
    let (entry, stat) = match open() {
        Err(Errno::NOENT) if how == Cover::Nothing => return Ok(()),
        opened => opened.map_err(|error: Errno| format!("'{shown}' in the workspace cannot be opened: {error}"))?,
    };
    let is_folder = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => true,
        // By its other name it could be read and changed.
        FileType::RegularFile if stat.st_nlink > 1 => return Err(unkept("is a file with several names")),
        FileType::RegularFile => false,
        FileType::Symlink => return Err(unkept("is a symlink")),
        _ => return Err(unkept("is neither a file nor a folder")),
    };
    let tree = match (how, is_folder) {
        (Cover::Itself, _) => view_of(&entry, name)?,
        (Cover::Nothing, true) => tmpfs("4k")?,
        (Cover::Nothing, false) => view("etc/.empty")?,
    };
    attributes(&tree, READ_ONLY, name)?;
    move_mount(
        &tree,
        "",
        &entry,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
    .map_err(with(name.display()))?;
    // What is covered is what was opened. Does it still have its name?
    let covered = fstat(&tree).map_err(with(name.display()))?;
    let named = open().map(|(_, stat)| (stat.st_dev, stat.st_ino));
    match named == Ok((covered.st_dev, covered.st_ino)) {
        true => Ok(()),
        false => Err(unkept("is being exchanged by somebody else")),
    }
}

enum Part {
    Tree(PathBuf, OwnedFd),
    Link(PathBuf, PathBuf),
}

/// Read-only views of what there is of these.
fn host_parts(paths: &[impl AsRef<Path>]) -> Built<Vec<Part>> {
    let mut parts = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let top_level = path.parent() == Some(Path::new("/"));
        if top_level && let Ok(target) = fs::read_link(path) {
            parts.push(Part::Link(path.into(), target));
            continue;
        }
        // A setting that is a link stands for what it leads to; one that leads nowhere is not there.
        let tree = match open_tree(CWD, path, CLONE) {
            Ok(tree) => tree,
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(error) => return Err(with(path.display())(error)),
        };
        attributes(&tree, READ_ONLY, path)?;
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
    open_tree(CWD, path.as_ref(), CLONE).map_err(with(path.as_ref().display()))
}

/// The same of what was opened. `shown` is what an error calls it.
fn view_of(opened: &OwnedFd, shown: &Path) -> Built<OwnedFd> {
    open_tree(opened, "", CLONE.union(OpenTreeFlags::AT_EMPTY_PATH)).map_err(with(shown.display()))
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
/// who is root there could write to it even without any rights. Nobody writes to any of it, so nobody makes himself one
/// that is ended later than others when memory is scarce.
fn proc() -> Built<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
    new_file_system("proc", &[("subset", "pid")], attributes)
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
    let given = PROGRAMS.iter().chain(&SETTINGS).chain(&["/tmp", "/dev", "/proc", "/sys", "/etc", "/tool"]);
    let not_there = ["/dev", "/proc", "/sys"];
    given.into_iter().any(|path| Path::new(path).starts_with(workspace))
        || not_there.into_iter().any(|path| workspace.starts_with(path))
}
